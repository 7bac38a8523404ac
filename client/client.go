// Package client speaks to Surehook's REST API. The command line goes through it
// alone.
//
// Every error that the server answers is a *Problem. Reads are repeated when the
// server says 503; publishing is too, since ids are made here and a repeat of an
// id is recognised. Other changes are sent once.
package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Client speaks to one server with one key. It is safe for concurrent use.
type Client struct {
	base  *url.URL
	key   string
	http  *http.Client
	agent string
}

// New makes a client for a server's URL and an API key.
func New(base, key string) (*Client, error) {
	u, err := url.Parse(strings.TrimSuffix(base, "/"))
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
		return nil, errors.New("the server's URL must be http or https with a host, e.g. http://127.0.0.1:8080")
	}
	if key == "" {
		return nil, errors.New("an API key is required")
	}
	return &Client{base: u, key: key, http: &http.Client{Timeout: 2 * time.Minute}, agent: "surehook-client"}, nil
}

// FieldError names an input that the server refused.
type FieldError struct {
	Path    string `json:"path"`
	Message string `json:"message"`
}

// Problem is an error that the server answered (RFC 9457).
type Problem struct {
	Status    int          `json:"status"`
	Code      string       `json:"code"`
	Detail    string       `json:"detail"`
	Errors    []FieldError `json:"errors,omitempty"`
	Details   Details      `json:"details,omitzero"`
	RequestID string       `json:"request_id,omitempty"`

	retryAfter time.Duration
}

// Details is what some codes add to a problem.
type Details struct {
	Required string   `json:"required,omitempty"` // permission_denied: the permission that the key lacks
	Scope    string   `json:"scope,omitempty"`    // permission_denied: platform, where a tenant's key isn't enough
	IDs      []string `json:"ids,omitempty"`      // store_unavailable: the ids to publish the same events again with

	NextCursor string `json:"next_cursor,omitempty"` // cursor_expired: where to go on
	Dropped    int64  `json:"dropped,omitempty"`     // cursor_expired: events that left the inbox unread since
}

func (p *Problem) Error() string {
	s := p.Detail
	if s == "" {
		s = fmt.Sprintf("the server answered %d", p.Status)
	}
	if p.RequestID != "" && p.Status >= 500 {
		s += " (request " + p.RequestID + ")"
	}
	return s
}

// ReachError is a server that gave no answer. What was asked may have happened.
type ReachError struct {
	Host  string
	Cause error
}

func (e *ReachError) Error() string {
	return "the server at " + e.Host + " can't be reached: " + e.Cause.Error()
}

func (e *ReachError) Unwrap() error { return e.Cause }

// AnswerError is an answer that isn't understood. What was asked has happened.
type AnswerError struct {
	Host  string
	Cause error
}

func (e *AnswerError) Error() string {
	return "the answer of " + e.Host + " isn't what this version of the client knows"
}

func (e *AnswerError) Unwrap() error { return e.Cause }

// Page bounds what one request of a listing asks for.
type Page struct {
	Limit int // rows a request; 0: the server's 100
}

// request is one call; a body is JSON bytes.
type request struct {
	method, path string
	query        url.Values
	body         []byte
	repeat       bool // safe to send again after a 503
	key          string
}

const (
	maxAnswer = 64 << 20
	maxTries  = 5
)

// do makes a call and reads its answer into out, if there is one.
func (c *Client) do(ctx context.Context, r request, out any) error {
	for try := 1; ; try++ {
		err := c.once(ctx, r, out)
		p, busy := errors.AsType[*Problem](err)
		if !busy || p.Status != http.StatusServiceUnavailable || !r.repeat || try == maxTries {
			return err
		}
		wait := time.NewTimer(max(p.retryAfter, 200*time.Millisecond))
		select {
		case <-ctx.Done():
			wait.Stop()
			return errors.Join(err, ctx.Err())
		case <-wait.C:
		}
	}
}

func (c *Client) once(ctx context.Context, r request, out any) error {
	u := *c.base
	u.RawQuery = r.query.Encode()
	target := strings.TrimSuffix(u.String(), "?"+u.RawQuery) + r.path
	if u.RawQuery != "" {
		target += "?" + u.RawQuery
	}
	var body io.Reader
	if r.body != nil {
		body = bytes.NewReader(r.body)
	}
	req, err := http.NewRequestWithContext(ctx, r.method, target, body)
	if err != nil {
		return errors.New("the request can't be made: check the ids given")
	}
	req.Header.Set("Authorization", "Bearer "+c.key)
	req.Header.Set("User-Agent", c.agent)
	if r.body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.key != "" {
		req.Header.Set("Idempotency-Key", r.key)
	}
	res, err := c.http.Do(req)
	if err != nil {
		return &ReachError{Host: c.base.Host, Cause: unwrapURL(err)}
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(io.LimitReader(res.Body, maxAnswer))
	switch {
	case err != nil:
		return &ReachError{Host: c.base.Host, Cause: fmt.Errorf("the answer broke off: %w", err)}
	case res.StatusCode >= 300:
		return problem(res, raw)
	case out == nil || len(raw) == 0:
		return nil
	}
	if err := json.Unmarshal(raw, out); err != nil {
		return &AnswerError{Host: c.base.Host, Cause: err}
	}
	return nil
}

// unwrapURL drops the URL from an error's text: it may hold ids that are secret
// to others.
func unwrapURL(err error) error {
	if u, ok := errors.AsType[*url.Error](err); ok {
		return u.Err
	}
	return err
}

func problem(res *http.Response, raw []byte) error {
	p := &Problem{}
	if err := json.Unmarshal(raw, p); err != nil || p.Code == "" {
		p = &Problem{Detail: "the server answered " + res.Status + ", and not as Surehook does; check the URL"}
	}
	p.Status = res.StatusCode
	if s, err := strconv.Atoi(res.Header.Get("Retry-After")); err == nil {
		p.retryAfter = time.Duration(min(max(s, 0), 60)) * time.Second
	}
	return p
}

// page is one page of a listing.
type page[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// pages gives the rows of a listing, fetching page after page. An error ends it.
func pages[T any](ctx context.Context, c *Client, path string, q url.Values, p Page) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		q := maps.Clone(q) // the sequence may be read twice
		if q == nil {
			q = url.Values{}
		}
		if p.Limit > 0 {
			q.Set("limit", strconv.Itoa(min(p.Limit, 1000)))
		}
		for {
			var got page[T]
			if err := c.do(ctx, request{method: http.MethodGet, path: path, query: q, repeat: true}, &got); err != nil {
				var zero T
				yield(zero, err)
				return
			}
			for _, item := range got.Items {
				if !yield(item, nil) {
					return
				}
			}
			if got.Next == "" {
				return
			}
			q.Set("cursor", got.Next)
		}
	}
}

// get reads one thing.
func get[T any](ctx context.Context, c *Client, path string, q url.Values) (T, error) {
	var out T
	err := c.do(ctx, request{method: http.MethodGet, path: path, query: q, repeat: true}, &out)
	return out, err
}

// send changes something.
func send[T any](ctx context.Context, c *Client, method, path string, body any) (T, error) {
	var out T
	var raw []byte
	if body != nil {
		var err error
		if raw, err = encode(body); err != nil {
			return out, err
		}
	}
	err := c.do(ctx, request{method: method, path: path, body: raw}, &out)
	return out, err
}

// encode is JSON without the escapes that encoding/json adds for HTML.
func encode(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(v)
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), err
}

// values makes a query of what isn't empty.
func values(pairs ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		if pairs[i+1] != "" {
			q.Set(pairs[i], pairs[i+1])
		}
	}
	return q
}

func at(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}

func seg(id string) string { return url.PathEscape(id) }
