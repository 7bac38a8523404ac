package egress

import (
	"io"
	"net/http"
	"testing"
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
