package receiver_test

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehook/surehook/receiver"
)

// send writes bytes as they are, and gives the status of the answer; 0: none.
func send(t *testing.T, srv *httptest.Server, request string, finish bool) int {
	t.Helper()
	conn, err := net.Dial("tcp", srv.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(30 * time.Second)); err != nil {
		t.Fatal(err)
	}
	go func() { // a server may answer before it has read all
		_, _ = io.WriteString(conn, request)
		if finish {
			_ = conn.(*net.TCPConn).CloseWrite()
		}
	}()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0
	}
	defer resp.Body.Close()
	return resp.StatusCode
}

// head writes a request's beginning. Headers of the map come first, then more.
func head(proto string, h http.Header, more ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "POST /hooks %s\r\nHost: x\r\n", proto)
	for name, values := range h {
		for _, v := range values {
			fmt.Fprintf(&b, "%s: %s\r\n", name, v)
		}
	}
	for _, line := range more {
		b.WriteString(line + "\r\n")
	}
	return b.String() + "\r\n"
}

// Requests as a stranger or a broken proxy writes them: what is right in its
// bytes is taken whatever it looks like, and nothing else is.
func TestHostileRequests(t *testing.T) {
	length := fmt.Sprintf("Content-Length: %d", len(text))
	chunks := fmt.Sprintf("%x\r\n%s\r\n%x;ext=1\r\n%s\r\n0\r\n", 5, text[:5], len(text)-5, text[5:])
	h := func() http.Header { return standard(secret, "e1", at, text) }
	sig := h().Get("Webhook-Signature")
	many := func(n int) string { return strings.Repeat("v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA= ", n) }
	without := h()
	without.Del("Webhook-Signature")
	for name, c := range map[string]struct {
		request string
		finish  bool
		want    int
	}{
		"plain":                     {head("HTTP/1.1", h(), length) + text, false, 200},
		"HTTP/1.0":                  {head("HTTP/1.0", h(), length) + text, false, 200},
		"HTTP/1.0 without a length": {head("HTTP/1.0", h()) + text, true, 401}, // no body, by RFC 9112 6.3
		"chunks and trailers":       {head("HTTP/1.1", h(), "Transfer-Encoding: chunked", "Trailer: X-End") + chunks + "X-End: 1\r\n\r\n", false, 200},
		"a signature as trailer":    {head("HTTP/1.1", without, "Transfer-Encoding: chunked", "Trailer: Webhook-Signature") + chunks + "Webhook-Signature: " + sig + "\r\n\r\n", false, 400},
		"chunks and a length":       {head("HTTP/1.1", h(), "Transfer-Encoding: chunked", "Content-Length: 3") + chunks + "\r\n", false, 200}, // the chunks count,
		"broken chunks":             {head("HTTP/1.1", h(), "Transfer-Encoding: chunked") + "zz\r\n", false, 400},
		"two lengths":               {head("HTTP/1.1", h(), length, "Content-Length: 3") + text, false, 400},
		"shorter than its length":   {head("HTTP/1.1", h(), fmt.Sprintf("Content-Length: %d", len(text)+1)) + text, true, 400},
		"longer than its length":    {head("HTTP/1.1", h(), length) + text + "{}", false, 200},
		"a length cuts it":          {head("HTTP/1.1", h(), fmt.Sprintf("Content-Length: %d", len(text)-1)) + text, false, 401},
		"folded":                    {head("HTTP/1.1", without, "Webhook-Signature: v9,AAAA\r\n "+sig, length) + text, false, 200},
		"folded inside":             {head("HTTP/1.1", without, "Webhook-Signature: "+sig[:20]+"\r\n "+sig[20:], length) + text, false, 401},
		"the same header twice":     {head("HTTP/1.1", h(), "webhook-signature: "+sig, length) + text, false, 400},
		"another id too":            {head("HTTP/1.1", h(), "WEBHOOK-ID: e2", length) + text, false, 400},
		"an encoding":               {head("HTTP/1.1", h(), "Content-Encoding: gzip", length) + text, false, 200},
		"31 wrong ones first":       {head("HTTP/1.1", with(without, "Webhook-Signature", many(31)+sig), length) + text, false, 200},
		"10,000 signatures":         {head("HTTP/1.1", with(without, "Webhook-Signature", many(10_000)+sig), length) + text, false, 401},
		"two megabytes of headers":  {head("HTTP/1.1", h(), "X-Pad: "+strings.Repeat("a", 2<<20), length) + text, false, 431},
		"5,000 headers":             {head("HTTP/1.1", h(), strings.Repeat("X-A: b\r\n", 5000)+length) + text, false, 200},
		"a bad escape in the path":  {strings.Replace(head("HTTP/1.1", h(), length), "/hooks", "/%zz", 1) + text, false, 400},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rc := create(t, receiver.Standard(secret), memory())
			srv := httptest.NewServer(rc.Middleware(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if m, ok := receiver.FromContext(r.Context()); !ok || string(m.Body) != text || m.ID != "e1" {
					t.Errorf("%+v", m)
				}
			}))) // a handler that reads nothing
			defer srv.Close()
			if got := send(t, srv, c.request, c.finish); got != c.want {
				t.Errorf("%d, not %d", got, c.want)
			}
		})
	}
}

// A body that doesn't come in time is answered 408, after which every sender
// tries again; and a handler may take longer than a body.
func TestASlowBody(t *testing.T) {
	rc := create(t, receiver.Standard(secret), memory(), receiver.WithReadTimeout(100*time.Millisecond))
	srv := httptest.NewServer(rc.Handle(func(ctx context.Context, _ receiver.Message) error {
		select {
		case <-time.After(300 * time.Millisecond): // past the body's deadline
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}))
	defer srv.Close()
	request := head("HTTP/1.1", standard(secret, "e1", at, text), fmt.Sprintf("Content-Length: %d", len(text)))
	if got := send(t, srv, request+text[:9], false); got != 408 {
		t.Errorf("%d", got)
	}
	// What is refused before its body is read must not wait for it either.
	twice := head("HTTP/1.1", standard(secret, "e1", at, text), "Webhook-Id: e1", fmt.Sprintf("Content-Length: %d", len(text)))
	if got := send(t, srv, twice+text[:9], false); got != 400 {
		t.Errorf("%d", got)
	}
	if got := send(t, srv, request+text, false); got != 200 {
		t.Errorf("the deadline of the body cut the handler: %d", got)
	}
	if _, err := receiver.New(receiver.Standard(secret), memory(), receiver.WithReadTimeout(0)); err == nil {
		t.Error("no time at all was taken")
	}
}

// The server's own ReadTimeout is the same to a sender.
func TestTheServersTimeout(t *testing.T) {
	h := create(t, receiver.Standard(secret), memory()).Handle(func(context.Context, receiver.Message) error { return nil })
	hidden := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(struct{ http.ResponseWriter }{w}, r) // whose deadline can't be set, as of a framework that hides it
	}))
	hidden.Config.ReadTimeout = 100 * time.Millisecond
	hidden.Start()
	defer hidden.Close()
	request := head("HTTP/1.1", standard(secret, "e1", at, text), fmt.Sprintf("Content-Length: %d", len(text)))
	if got := send(t, hidden, request+text[:9], false); got != 408 {
		t.Errorf("%d", got)
	}
}

// A handler that panics has done nothing: its event comes again. With twins at
// the same time, one does it.
func TestPanicsAndTwins(t *testing.T) {
	for name, d := range map[string]func() receiver.Dedupe{
		"memory": func() receiver.Dedupe { return memory() },
		"sql": func() receiver.Dedupe {
			s := receiver.NewSQL(databases(t)["sqlite"], "webhook_ids")
			if err := s.CreateTable(t.Context()); err != nil {
				t.Fatal(err)
			}
			return s
		},
	} {
		for _, middleware := range []bool{false, true} {
			t.Run(fmt.Sprint(name, middleware), func(t *testing.T) {
				var calls, did atomic.Int32
				effect := func() {
					if calls.Add(1) == 1 {
						panic("planted")
					}
					did.Add(1)
				}
				rc := create(t, receiver.Standard(secret), d())
				h := rc.Handle(func(context.Context, receiver.Message) error { effect(); return nil })
				if middleware {
					h = rc.Middleware(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent); effect() }))
				}
				srv := httptest.NewUnstartedServer(h)
				srv.Config.ErrorLog = log.New(io.Discard, "", 0) // the panic that is meant
				srv.Start()
				defer srv.Close()
				request := head("HTTP/1.1", standard(secret, "e1", at, text), fmt.Sprintf("Content-Length: %d", len(text))) + text
				if got := send(t, srv, request, false); got != 0 {
					t.Errorf("a panic was answered %d", got)
				}
				var twins sync.WaitGroup
				for range 20 {
					twins.Go(func() {
						if got := send(t, srv, request, false); got/100 != 2 {
							t.Errorf("%d", got)
						}
					})
				}
				twins.Wait()
				if did.Load() != 1 {
					t.Errorf("done %d times", did.Load())
				}
			})
		}
	}
}

// The edges of the tolerance, in whole seconds and parts of one.
func TestTheEdgeOfTheTolerance(t *testing.T) {
	for off, want := range map[time.Duration]int{
		-300 * time.Second: 200, -300*time.Second - 1: 401, 300 * time.Second: 200, 300*time.Second + 1: 401, -301 * time.Second: 401, 301 * time.Second: 401,
	} {
		rc := create(t, receiver.Standard(secret), memory(), receiver.WithClock(func() time.Time { return at.Add(off) }))
		h := rc.Handle(func(context.Context, receiver.Message) error { return nil })
		if w := ask(h, standard(secret, "e1", at, text), text); w.Code != want {
			t.Errorf("%s: %d", off, w.Code)
		}
	}
}

// A store that fails is asked nothing of the sender but to come again.
func TestAStoreThatFails(t *testing.T) {
	called := false
	h := create(t, receiver.Standard(secret), full{}).Handle(func(context.Context, receiver.Message) error { called = true; return nil })
	w := ask(h, standard(secret, "e1", at, text), text)
	if w.Code != 503 || called || strings.Contains(w.Body.String(), "planted") {
		t.Errorf("%d %q %v", w.Code, w.Body, called)
	}
}

type full struct{}

func (full) Do(context.Context, string, func(context.Context) error) (bool, error) {
	return false, errors.New("disk full at /planted")
}
