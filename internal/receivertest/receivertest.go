// Package receivertest is a receiver for tests: a real server on loopback that
// keeps the raw bytes of what it got and answers by script, faults included.
package receivertest

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"
)

// Request is what arrived, byte for byte.
type Request struct {
	Line   string   // the request line
	Header []string // the header lines, in order
	Body   []byte
	At     time.Time
	Conn   int // number of its connection, from 1
}

// Get gives the value of the first header line of that name.
func (r Request) Get(name string) string {
	for _, line := range r.Header {
		if n, v, ok := strings.Cut(line, ":"); ok && strings.EqualFold(n, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// ID is the request's webhook-id.
func (r Request) ID() string { return r.Get("webhook-id") }

// Answer is what a script does with one request. The zero value is 200 with an
// empty body.
type Answer struct {
	Status int
	Header []string // whole lines
	Body   string
	Raw    string        // sent as it is, in place of the above
	Hang   bool          // never answer, or after Raw say nothing more; hold the connection
	Reset  bool          // RST the connection
	Close  bool          // close it without an answer
	Gate   chan struct{} // wait until it is closed before answering
	Delay  time.Duration // answer later, as a slow receiver
	// Endless sends a body without end, as fast as it is taken.
	Endless bool
}

// Script decides the answer to the n-th request (from 1).
type Script func(n int, r Request) Answer

// Receiver is a running receiver.
type Receiver struct {
	URL    string
	l      net.Listener
	mu     sync.Mutex
	script Script
	got    []Request
	conns  map[net.Conn]bool
	opened int
	news   chan struct{} // rung at each arrival
	wg     sync.WaitGroup
}

// New starts a receiver that ends with the test. A nil script answers 200.
func New(t testing.TB, script Script) *Receiver {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Receiver{URL: "http://" + l.Addr().String(), l: l, script: script, conns: map[net.Conn]bool{}, news: make(chan struct{}, 1)}
	r.wg.Go(r.accept)
	t.Cleanup(r.Close)
	return r
}

// Close ends every connection.
func (r *Receiver) Close() {
	_ = r.l.Close() // twice is fine
	r.mu.Lock()
	for c := range r.conns {
		_ = c.Close()
	}
	r.mu.Unlock()
	r.wg.Wait()
}

// Use replaces the script.
func (r *Receiver) Use(script Script) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.script = script
}

// Requests gives what has arrived so far.
func (r *Receiver) Requests() []Request {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]Request(nil), r.got...)
}

// Opened is the number of connections so far.
func (r *Receiver) Opened() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.opened
}

// Wait blocks until n requests have arrived, and gives them.
func (r *Receiver) Wait(t testing.TB, n int) []Request {
	t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	for {
		if got := r.Requests(); len(got) >= n {
			return got
		}
		select {
		case <-r.news:
		case <-limit.C:
			t.Fatalf("%d requests arrived in 20 s, want %d", len(r.Requests()), n)
		}
	}
}

func (r *Receiver) accept() {
	for {
		c, err := r.l.Accept()
		if err != nil {
			return
		}
		r.mu.Lock()
		r.opened++
		n := r.opened
		r.conns[c] = true
		r.mu.Unlock()
		r.wg.Go(func() {
			r.serve(c, n)
			_ = c.Close()
			r.mu.Lock()
			delete(r.conns, c)
			r.mu.Unlock()
		})
	}
}

func (r *Receiver) serve(c net.Conn, conn int) {
	br := bufio.NewReader(c)
	for {
		req, err := read(br)
		if err != nil {
			return
		}
		req.At, req.Conn = time.Now(), conn
		r.mu.Lock()
		r.got = append(r.got, req)
		n, script := len(r.got), r.script
		r.mu.Unlock()
		select {
		case r.news <- struct{}{}:
		default:
		}
		a := Answer{}
		if script != nil {
			a = script(n, req)
		}
		if !reply(c, br, a) {
			return
		}
	}
}

// read takes one request with a Content-Length off the connection.
func read(br *bufio.Reader) (Request, error) {
	line, err := br.ReadString('\n')
	if err != nil {
		return Request{}, err
	}
	req := Request{Line: strings.TrimRight(line, "\r\n")}
	for {
		line, err := br.ReadString('\n')
		if err != nil {
			return req, err
		}
		if line = strings.TrimRight(line, "\r\n"); line == "" {
			break
		}
		req.Header = append(req.Header, line)
	}
	var n int64
	if _, err := fmt.Sscan(req.Get("Content-Length"), &n); err != nil {
		return req, errors.New("no content length")
	}
	var body bytes.Buffer
	_, err = io.CopyN(&body, br, n)
	req.Body = body.Bytes()
	return req, err
}

func reply(c net.Conn, br *bufio.Reader, a Answer) (again bool) {
	if a.Gate != nil {
		<-a.Gate
	}
	if a.Delay > 0 {
		<-time.After(a.Delay)
	}
	switch {
	case a.Raw != "" && a.Hang:
		_, _ = io.WriteString(c, a.Raw)
		_, _ = io.Copy(io.Discard, br)
		return false
	case a.Endless:
		endless(c)
		return false
	case a.Hang:
		_, _ = io.Copy(io.Discard, br) // until the sender gives up
		return false
	case a.Reset:
		if tcp, ok := c.(*net.TCPConn); ok {
			_ = tcp.SetLinger(0)
		}
		return false
	case a.Close:
		return false
	case a.Raw != "":
		_, err := io.WriteString(c, a.Raw)
		return err == nil
	}
	if a.Status == 0 {
		a.Status = http.StatusOK
	}
	var b strings.Builder
	fmt.Fprintf(&b, "HTTP/1.1 %d %s\r\n", a.Status, http.StatusText(a.Status))
	for _, h := range a.Header {
		b.WriteString(h + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(a.Body), a.Body)
	_, err := io.WriteString(c, b.String())
	return err == nil
}

// endless answers 200 with a body that ends with the connection.
func endless(c net.Conn) {
	_, err := io.WriteString(c, "HTTP/1.1 200 OK\r\n\r\n")
	for block := bytes.Repeat([]byte("x"), 64<<10); err == nil; {
		_, err = c.Write(block)
	}
}
