package conformance

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook/signing"
)

// kit is one run.
type kit struct {
	o       Options
	u       *url.URL
	client  *http.Client
	now     func() time.Time
	scheme  scheme
	signers []signer
	retired signer // nil: none was given
	late    int    // events whose effect wasn't there when they were answered
	vain    bool   // an effect was waited for, and didn't come
}

// signer makes the value of the signature header.
type signer func(id, ts string, body []byte) string

// scheme is what differs between the profiles.
type scheme struct {
	id, ts, sig string // header names
	key         func(secret string) ([]byte, error)
	mac         func(key []byte) signer
	signer      func(secret string) (signer, error)
	newID       func(now time.Time) string
	body        func(id, data string) []byte
	extra       [][2]string
	cases       func() []testCase
}

func standard() scheme {
	s := scheme{id: signing.HeaderID, ts: signing.HeaderTimestamp, sig: signing.HeaderSignature, cases: standardCases,
		extra: [][2]string{{"Content-Type", "application/json"}, {"User-Agent", "surehook-conformance"}, {"Surehook-Attempt", "1"}},
		newID: func(now time.Time) string { return "evt_" + newULID(now) },
		body: func(id, data string) []byte {
			return []byte(`{"id":"` + id + `","type":"conformance.test","timestamp":"2026-01-14T12:00:00.000Z","data":` + data + `}`)
		}}
	s.key = func(secret string) ([]byte, error) {
		k, err := signing.ParseSecret(secret)
		return k.Bytes(), err
	}
	s.mac = func(key []byte) signer {
		return func(id, ts string, body []byte) string {
			return "v1," + base64.StdEncoding.EncodeToString(sum(key, id+"."+ts+".", body))
		}
	}
	s.signer = func(secret string) (signer, error) {
		if strings.HasPrefix(secret, "whsk_") {
			return asymmetric(secret)
		}
		if strings.HasPrefix(secret, "whpk_") {
			return nil, errors.New("a public key can't sign; give the private one, whsk_…")
		}
		key, err := s.key(secret)
		return s.mac(key), err
	}
	return s
}

func asymmetric(secret string) (signer, error) {
	k, err := signing.ParsePrivateKey(secret)
	if err != nil {
		return nil, err
	}
	sign, err := signing.NewSigner(k)
	if err != nil {
		return nil, err
	}
	return func(id, ts string, body []byte) string {
		n, err := strconv.ParseInt(ts, 10, 64)
		if err != nil {
			return "v1a," + base64.StdEncoding.EncodeToString(make([]byte, 64))
		}
		return sign.Sign(id, n, body)
	}, nil
}

func purpleWolf() scheme {
	s := scheme{id: signing.PurpleWolfEventID, ts: signing.PurpleWolfTimestamp, sig: signing.PurpleWolfSignature, cases: purpleWolfCases,
		extra: [][2]string{{"Content-Type", "application/json"}, {"User-Agent", "purple-wolf-relay/conformance"}, {signing.PurpleWolfSchema, "purple-wolf.audit/v1"},
			{signing.PurpleWolfDeliveryID, "01HXYZ7F8GZG23P4M2RKN9Y4QG"}, {signing.PurpleWolfAttempt, "1"}},
		newID: newULID,
		body: func(id, data string) []byte {
			return envelope("purple-wolf.audit/v1", id, data)
		}}
	s.key = func(secret string) ([]byte, error) {
		if secret == "" {
			return nil, errors.New("it is empty")
		}
		return []byte(secret), nil
	}
	s.mac = func(key []byte) signer {
		return func(_, ts string, body []byte) string { return "sha256=" + hex.EncodeToString(sum(key, ts+".", body)) }
	}
	s.signer = func(secret string) (signer, error) {
		key, err := s.key(secret)
		return s.mac(key), err
	}
	return s
}

// envelope is purple-wolf's, with data as a part of the audit line.
func envelope(schema, id, data string) []byte {
	return []byte(`{"schema":"` + schema + `","event_id":"` + id + `","delivery_id":"01HXYZ7F8GZG23P4M2RKN9Y4QG","delivered_at":"2026-05-25T17:30:02.123Z","attempt":1,` +
		`"labels":{"environment":"test"},"source":{"middleware":"strict-waf","router":null,"entry_point":"web","relay_instance":"conformance"},` +
		`"event":{"host":"checkout.acme.example","path":"/","query":"id=1%27","method":"GET","source_ip":"203.0.113.7","action":"block","blocked_rule":"injection/sqli",` +
		`"blocked_severity":"critical","blocked_detail":"SQLi in field: 1'","would_block_rules":[],"added_later":` + data + `}}`)
}

func newULID(now time.Time) string { return ulid.MustNew(ulid.Timestamp(now), rand.Reader).String() }

func sum(key []byte, head string, body []byte) []byte {
	m := hmac.New(sha256.New, key)
	_, _ = io.WriteString(m, head) // a hash takes everything
	m.Write(body)
	return m.Sum(nil)
}

// lacks says why a case can't be asked; empty: it can.
func (k *kit) lacks(needs string) string {
	switch {
	case needs == "rotation" && len(k.signers) < 2:
		return "it needs two secrets: the current one, and the one before"
	case needs == "retired" && k.retired == nil:
		return "it needs a secret that is no longer valid"
	case needs == "hmac" && strings.HasPrefix(k.o.Secrets[0], "whsk_"):
		return "it is about symmetric secrets"
	}
	return ""
}

// message is a request to be sent.
type message struct {
	method  string
	query   url.Values // beside the URL's own
	header  [][2]string
	body    []byte
	chunked bool
	slow    bool
	endless int64 // so many bytes more than anybody should read, in place of body
}

// event is a fresh and right delivery.
func (k *kit) event(data string) message {
	id := k.scheme.newID(k.now())
	return k.signed(k.signers[0], id, k.stamp(0), k.scheme.body(id, data))
}

func (k *kit) stamp(off time.Duration) string { return strconv.FormatInt(k.now().Add(off).Unix(), 10) }

func (k *kit) signed(s signer, id, ts string, body []byte) message {
	m := message{method: http.MethodPost, body: body}
	m.header = append(m.header, k.scheme.extra...)
	m.header = append(m.header, [2]string{k.scheme.id, id}, [2]string{k.scheme.ts, ts}, [2]string{k.scheme.sig, s(id, ts, body)})
	return m
}

// get and with read and change a header.
func (m message) get(name string) string {
	for _, h := range m.header {
		if strings.EqualFold(h[0], name) {
			return h[1]
		}
	}
	return ""
}

func (m message) with(name, value string) message {
	header := make([][2]string, 0, len(m.header))
	for _, h := range m.header {
		if strings.EqualFold(h[0], name) {
			h[1] = value
		}
		header = append(header, h)
	}
	m.header = header
	return m
}

func (m message) without(name string) message {
	var header [][2]string
	for _, h := range m.header {
		if !strings.EqualFold(h[0], name) {
			header = append(header, h)
		}
	}
	m.header = header
	return m
}

func (m message) bodied(body string) message {
	m.body = []byte(body)
	return m
}

// answer is what came back.
type answer struct {
	status int // 0: none
	closed bool
	err    error
}

func (a answer) String() string {
	switch {
	case a.status != 0:
		return strconv.Itoa(a.status)
	case a.closed:
		return "connection closed"
	}
	return "no answer: " + reason(a.err)
}

// reason words an error without the URL, which may hold a token.
func reason(err error) string {
	if e, ok := errors.AsType[*url.Error](err); ok {
		if e.Timeout() {
			return "timeout"
		}
		return e.Err.Error()
	}
	return fmt.Sprint(err)
}

func (k *kit) answers(ctx context.Context, c testCase) []answer {
	steps := c.steps(k)
	out := make([]answer, len(steps))
	if !c.together {
		for i, m := range steps {
			out[i] = k.send(ctx, m)
		}
		return out
	}
	var wg sync.WaitGroup
	for i, m := range steps {
		wg.Go(func() { out[i] = k.send(ctx, m) })
	}
	wg.Wait()
	return out
}

func (k *kit) send(ctx context.Context, m message) answer {
	ctx, cancel := context.WithTimeout(ctx, k.o.Timeout)
	defer cancel()
	var body io.Reader = bytes.NewReader(m.body)
	length := int64(len(m.body))
	var counted *endless
	switch {
	case m.endless > 0:
		counted = &endless{left: m.endless}
		body, length = counted, m.endless+1<<40
	case m.slow:
		half := len(m.body) / 2
		body = &slowly{first: m.body[:half], second: m.body[half:], gone: ctx.Done()}
	case len(m.body) == 0:
		body = http.NoBody
	}
	if m.chunked {
		length = -1
		body = struct{ io.Reader }{body}
	}
	u := *k.u
	if len(m.query) > 0 {
		u.RawQuery = strings.TrimPrefix(u.RawQuery+"&"+m.query.Encode(), "&")
	}
	req, err := http.NewRequestWithContext(ctx, m.method, u.String(), body)
	if err != nil {
		return answer{err: err}
	}
	req.ContentLength = length
	for _, h := range m.header {
		req.Header[h[0]] = append(req.Header[h[0]], h[1]) // the name as it is written
	}
	resp, err := k.client.Do(req)
	if err != nil {
		// Whoever hangs up in the middle of a body has refused it; one who reads
		// it to its end has not.
		return answer{err: err, closed: counted != nil && !counted.exhausted() && ctx.Err() == nil}
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // so that the connection can be used again
	_ = resp.Body.Close()
	return answer{status: resp.StatusCode}
}

// endless is a body that nobody should read to its end.
type endless struct {
	mu   sync.Mutex
	left int64
}

var filler = bytes.Repeat([]byte("x"), 4<<10)

var errEnd = errors.New("it read 64 MiB of a body without a limit")

// Read implements io.Reader.
func (e *endless) Read(p []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.left <= 0 {
		return 0, errEnd
	}
	n := int(min(int64(len(p)), e.left))
	for done := 0; done < n; {
		done += copy(p[done:n], filler)
	}
	e.left -= int64(n)
	return n, nil
}

func (e *endless) exhausted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.left <= 0
}

// slowly is a body in two halves, with a pause between.
type slowly struct {
	first, second []byte
	waited        bool
	gone          <-chan struct{}
}

const pause = 100 * time.Millisecond

// Read implements io.Reader.
func (s *slowly) Read(p []byte) (int, error) {
	if len(s.first) > 0 {
		n := copy(p, s.first)
		s.first = s.first[n:]
		return n, nil
	}
	if !s.waited {
		s.waited = true
		select {
		case <-time.After(pause):
		case <-s.gone:
			return 0, context.Canceled
		}
	}
	if len(s.second) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.second)
	s.second = s.second[n:]
	return n, nil
}
