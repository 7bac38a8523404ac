package cli

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"
)

// raw is a server that keeps the very bytes of each request's head, and gives
// one answer to all.
func raw(t *testing.T, answer string) (u *url.URL, heads chan string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	heads = make(chan string, 9)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			var head []byte
			for one := make([]byte, 1); !strings.HasSuffix(string(head), "\r\n\r\n"); head = append(head, one...) {
				if _, err := io.ReadFull(conn, one); err != nil {
					break
				}
			}
			heads <- string(head)
			_, _ = io.WriteString(conn, answer)
			_ = conn.Close()
		}
	}()
	return &url.URL{Scheme: "http", Host: l.Addr().String(), Path: "/hook"}, heads
}

// Names as they were spelt, several of one name in their order, an odd query;
// and the same over a connection that is used again. Nothing is added.
func TestForwardKeepsTheHead(t *testing.T) {
	target, heads := raw(t, "HTTP/1.1 204 No Content\r\nX-Mine: 1\r\nConnection: close\r\n\r\n")
	addr, _, _ := listening(t, true, func(l *listener) { l.forward = target })
	conn, err := net.Dial("tcp", strings.TrimPrefix(addr, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
		t.Fatal(err)
	}
	answers := bufio.NewReader(conn)
	for _, c := range []struct {
		send string
		want []string
	}{
		{"POST /p?a=%20b&c=;d&&e HTTP/1.1\r\nhost: x\r\nwebhook-ID: e1\r\nX-WeIrD: 1\r\nx-dup: a\r\nX-DUP: b\r\nx-dup: c\r\nuser-agent: me\r\ncontent-length: 2\r\n\r\n{}",
			[]string{"POST /hook?a=%20b&c=;d&&e HTTP/1.1", "User-Agent: me", "Content-Length: 2", "X-WeIrD: 1", "webhook-ID: e1", "x-dup: a", "x-dup: b", "x-dup: c"}},
		{"POST /p HTTP/1.1\r\nHost: x\r\nWEBHOOK-ID: e2\r\nkeep-alive: 5\r\nconnection: x-gone\r\nx-Gone: 1\r\nTRANSFER-encoding: chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n",
			[]string{"POST /hook HTTP/1.1", "Content-Length: 1", "WEBHOOK-ID: e2"}},
		{"GET /p?z=1 HTTP/1.1\r\nHost: x\r\nwebhook-id: e3\r\n\r\n", []string{"GET /hook?z=1 HTTP/1.1", "webhook-id: e3"}},
		{"HEAD /p HTTP/1.1\r\nHost: x\r\nwebhook-iD: e4\r\n\r\n", []string{"HEAD /hook HTTP/1.1", "webhook-iD: e4"}},
	} {
		if _, err := io.WriteString(conn, c.send); err != nil {
			t.Fatal(err)
		}
		got := strings.Split(strings.TrimSpace(<-heads), "\r\n")
		got = slices.DeleteFunc(got, func(s string) bool { return strings.HasPrefix(s, "Host: ") })
		slices.Sort(got[1:])
		slices.Sort(c.want[1:])
		if !slices.Equal(got, c.want) {
			t.Errorf("%q\nnot %q", got, c.want)
		}
		resp, err := http.ReadResponse(answers, &http.Request{Method: strings.Fields(c.send)[0]})
		if err != nil {
			t.Fatal(err)
		}
		if resp.StatusCode != http.StatusNoContent || resp.Header.Get("X-Mine") != "1" || len(resp.Header) != 1 {
			t.Errorf("%d %v", resp.StatusCode, resp.Header)
		}
	}
}
