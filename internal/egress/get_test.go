package egress

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// A GET is a POST's head without what belongs to a body, and its answer comes
// whole up to the bound.
func TestGet(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"))
	c := local(t)
	res := c.Do(t.Context(), &Request{Target: target(t, c, rc.url()+"/in?a=1"), Get: true, Body: []byte("never"), Header: []Field{{"Accept", "*/*"}}, Timeout: patience})
	want(t, res, "", "")
	if got, want := rc.requests()[0], "GET /in?a=1 HTTP/1.1\r\nHost: "+rc.ln.Addr().String()+"\r\nAccept: */*\r\n\r\n"; got != want {
		t.Errorf("got\n%q, want\n%q", got, want)
	}
	if string(res.Body) != "hello" || res.Truncated {
		t.Errorf("%+v", res)
	}
}

func TestH2_Get(t *testing.T) {
	_, c, _ := speaking(t, Config{}, func(w http.ResponseWriter, r *http.Request) {
		if b, _ := io.ReadAll(r.Body); r.Method != http.MethodGet || len(b) > 0 || r.Header.Get("Content-Length") != "" {
			t.Errorf("%s with %d bytes", r.Method, len(b))
		}
		_, _ = io.WriteString(w, r.RequestURI)
	})
	res := c.Do(t.Context(), &Request{Target: target(t, c, "https://hooks.example.com/x%2Fy"), Get: true, Body: []byte("never"), Timeout: patience})
	want(t, res, "", "")
	if string(res.Body) != "/x%2Fy" {
		t.Errorf("%s", res.Body)
	}
}

// An answer that was asked for may come as slowly as the whole attempt may take; one
// that doesn't come in that time is none.
func TestAnswer(t *testing.T) {
	slow := func(whole bool) func(http.ResponseWriter, *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Length", "5")
			_, _ = io.WriteString(w, "he")
			_ = http.NewResponseController(w).Flush()
			if !whole {
				<-r.Context().Done()
				return
			}
			<-time.After(2 * bodyGrace)
			_, _ = io.WriteString(w, "llo")
		}
	}
	for _, whole := range []bool{true, false} {
		_, c2, _ := speaking(t, Config{}, slow(whole))
		one := httptest.NewServer(http.HandlerFunc(slow(whole)))
		c1 := local(t)
		for i, c := range []*Client{c1, c2} {
			url := []string{one.URL, "https://hooks.example.com/x"}[i]
			r := &Request{Target: target(t, c, url), Answer: true, Timeout: patience}
			if !whole {
				r.Timeout = 2 * bodyGrace
			}
			res := c.Do(t.Context(), r)
			if whole {
				want(t, res, "", "")
				if string(res.Body) != "hello" || res.Truncated {
					t.Errorf("HTTP/%d: %+v", i+1, res)
				}
				continue
			}
			want(t, res, surehook.Timeout, "timed out reading the answer")
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(bodyGrace, cancel)
			r.Timeout = patience
			if res := c.Do(ctx, r); !res.Cancelled || res.Code == surehook.OK {
				t.Errorf("HTTP/%d, given up: %+v", i+1, res)
			}
		}
		one.CloseClientConnections()
		one.Close()
	}
}
