package console_test

import (
	"bufio"
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"
)

// live follows the stream of an open overview; news gives each event's lines, and is
// closed with the stream.
func (b *browser) live(ctx context.Context) (status int, news chan string) {
	b.s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, b.s.srv.URL+"/console/live", nil)
	if err != nil {
		b.s.t.Fatal(err)
	}
	res, err := b.client.Do(req)
	if err != nil {
		b.s.t.Fatal(err)
	}
	news = make(chan string, 100)
	go func() {
		defer close(news)
		defer res.Body.Close()
		var event strings.Builder
		for lines := bufio.NewScanner(res.Body); lines.Scan(); {
			if lines.Text() != "" {
				event.WriteString(lines.Text() + "\n")
				continue
			}
			news <- event.String()
			event.Reset()
		}
	}()
	return res.StatusCode, news
}

// next waits for the next event that holds a text; "" waits for the end.
func next(t *testing.T, news chan string, text string) {
	t.Helper()
	late := time.After(20 * time.Second)
	for {
		select {
		case e, open := <-news:
			if !open {
				if text != "" {
					t.Fatalf("the stream ended before %q", text)
				}
				return
			}
			if text != "" && strings.Contains(e, text) {
				return
			}
		case <-late:
			t.Fatalf("never: %q", text)
		}
	}
}

// An open overview hears of changes, and its stream ends with the session, with the
// key, with the reader, and with the server.
func TestLiveNumbers(t *testing.T) {
	s := lite(t)
	if status, news := s.browser().live(t.Context()); status != http.StatusUnauthorized {
		t.Errorf("without a session: %d", status)
	} else {
		next(t, news, "")
	}
	made := s.rest("POST", "/v1/keys", `{"permissions":["read"]}`)
	b, byKey := s.signIn(adminKey), s.signIn(made["key"].(string))
	gone, leave := context.WithCancel(t.Context())
	status, news := b.live(t.Context())
	_, ofKey := byKey.live(t.Context())
	_, ofReader := b.live(gone)
	if status != http.StatusOK {
		t.Fatal(status)
	}
	next(t, news, "event: numbers")
	next(t, ofReader, "event: numbers")
	for i := range 3 {
		s.hook(fmt.Sprintf(`{"url":"http://127.0.0.1:9/%d","enabled":false}`, i))
	}
	next(t, news, "<dd>0, 3</dd>")
	leave()
	next(t, ofReader, "")
	s.rest("DELETE", "/v1/keys/"+made["id"].(string), "")
	next(t, ofKey, "event: over")
	next(t, ofKey, "")
	b.get("/console/")
	b.post("/console/logout")
	next(t, news, "event: over")
	next(t, news, "")

	_, last := s.signIn(adminKey).live(t.Context())
	next(t, last, "event: numbers")
	closed := make(chan struct{})
	go func() {
		s.pages.Close()
		close(closed)
	}()
	next(t, last, "")
	select {
	case <-closed:
	case <-time.After(10 * time.Second):
		t.Error("the pages don't close")
	}
}

// A tenant that opens live pages without end takes nobody else's place, and has its
// own again when it closes one.
func TestLiveNumbersAreShared(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		acme, ops := s.signIn(s.key("acme", "read")), s.signIn(adminKey)
		one, leave := context.WithCancel(t.Context())
		rest, leaveAll := context.WithCancel(t.Context())
		defer leaveAll()
		if status, _ := acme.live(one); status != http.StatusOK {
			t.Fatal(status)
		}
		for i := range 63 {
			if status, _ := acme.live(rest); status != http.StatusOK {
				t.Fatalf("stream %d: %d", i+2, status)
			}
		}
		if status, _ := acme.live(rest); status != http.StatusServiceUnavailable {
			t.Errorf("one too many: %d", status)
		}
		if status, _ := ops.live(rest); status != http.StatusOK {
			t.Errorf("somebody else's: %d", status)
		}
		leave()
		s.until("a place is free again", func() bool {
			status, _ := acme.live(rest)
			return status == http.StatusOK
		})
	})
}
