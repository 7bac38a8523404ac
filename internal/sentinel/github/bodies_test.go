package github

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// Strangers that send slowly, or nothing, keep nobody out: of those that hold too much
// together the first is cut off.
func TestWebhookSlowStrangers(t *testing.T) {
	h, _ := site(t)
	srv := httptest.NewServer(h)
	defer srv.Close()
	const size = 1 << 20
	dial := func(sent int) net.Conn {
		c, err := net.Dial("tcp", srv.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		_, err = fmt.Fprintf(c, "POST / HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", size, bytes.Repeat([]byte(" "), sent))
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	for range 40 {
		dial(0)
	}
	held := func(n int) {
		t.Helper()
		for end := time.Now().Add(20 * time.Second); ; <-time.After(time.Millisecond) {
			h.bodies.mu.Lock()
			now := h.bodies.held
			h.bodies.mu.Unlock()
			if now == n {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%d bytes are held, want %d", now, n)
			}
		}
	}
	first := dial(size - 1)
	held(size - 1)
	for i := 1; i < maxHeld/size; i++ {
		dial(size - 1)
	}
	held(maxHeld - maxHeld/size)
	dial(size - 1)
	resp, err := http.ReadResponse(bufio.NewReader(first), nil)
	if err != nil || resp.StatusCode != http.StatusRequestTimeout {
		t.Fatalf("the first of too many: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	held(maxHeld - maxHeld/size)
	body := read(t, "pull_request.closed")
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, srv.URL, bytes.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	r.Header = http.Header{"Content-Type": {"application/json"}, "X-Github-Event": {"pull_request"}, "X-Github-Delivery": {"d-1"}, "X-Hub-Signature-256": {sign(secret, body)}}
	resp, err = srv.Client().Do(r)
	if err != nil || resp.StatusCode != http.StatusAccepted {
		t.Fatalf("GitHub's own: %v, %v", resp, err)
	}
	_ = resp.Body.Close()
	srv.CloseClientConnections()
	held(0)
}
