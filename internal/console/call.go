package console

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"

	"github.com/surehook/surehook"
)

// problem is the API's refusal.
type problem struct {
	Status    int                   `json:"status"`
	Code      surehook.ErrorCode    `json:"code"`
	Detail    string                `json:"detail"`
	Fields    []surehook.FieldError `json:"errors"`
	RequestID string                `json:"request_id"`
}

func (p *problem) Error() string { return p.Detail }

// words are what a form says above its fields: those say themselves what is wrong.
func (p *problem) words() string {
	if len(p.Fields) > 0 {
		return "Some fields need another look."
	}
	return p.Detail
}

// recorder takes an answer within the process.
type recorder struct {
	head   http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header         { return r.head }
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }
func (r *recorder) WriteHeader(status int)      { r.status = status }

// ask sends the API a request of this visit's, and reads the answer into out.
func (v *visit) ask(method, path string, body, out any, header ...string) error {
	var raw []byte
	if body != nil {
		var err error
		if raw, err = json.Marshal(body); err != nil {
			return err
		}
	}
	req, err := http.NewRequestWithContext(v.r.Context(), method, path, bytes.NewReader(raw)) //nolint:gosec // within the process: nothing is sent
	if err != nil {
		return surehook.Errorf(surehook.NotFound, "there is nothing here")
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	rec := &recorder{head: make(http.Header), status: http.StatusOK}
	v.api.ServeHTTP(rec, req)
	if rec.status >= 300 {
		p := &problem{}
		if err := json.Unmarshal(rec.body.Bytes(), p); err != nil || p.Code == "" {
			return fmt.Errorf("the API answered %d", rec.status)
		}
		p.Status = rec.status
		return p
	}
	v.again = v.again || rec.head.Get("Idempotency-Replayed") != ""
	if out == nil {
		return nil
	}
	return json.Unmarshal(rec.body.Bytes(), out)
}

// get reads one thing.
func get[T any](v *visit, path string, q url.Values) (T, error) {
	var out T
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	return out, v.ask(http.MethodGet, path, nil, &out)
}

// list is a page of a listing.
type list[T any] struct {
	Items []T    `json:"items"`
	Next  string `json:"next"`
}

// rows is how many rows a page shows.
const rows = "50"

// only keeps those parameters of a request that have a value.
func only(from url.Values, names ...string) url.Values {
	q := url.Values{}
	for _, n := range names {
		if x := from.Get(n); x != "" {
			q.Set(n, x)
		}
	}
	return q
}

// seg is an id as a part of a path.
func seg[T ~string](id T) string { return url.PathEscape(string(id)) }
