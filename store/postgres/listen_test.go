package postgres

import (
	"bytes"
	"log/slog"
	"net"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
)

// hearing is a store, what it hears of, and its log.
type hearing struct {
	*Store
	t     *testing.T
	heard chan surehook.Change
	mu    sync.Mutex
	log   bytes.Buffer
}

func (h *hearing) Write(p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.log.Write(p)
}

func (h *hearing) said(text string) int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return strings.Count(h.log.String(), text)
}

func listening(t *testing.T, dsn string, opt Options) *hearing {
	t.Helper()
	h := &hearing{t: t, heard: make(chan surehook.Change, 10_000)}
	opt.Logger = slog.New(slog.NewTextHandler(h, nil))
	h.Store = reopenable(t, dsn, opt)()
	h.Watch(func(c surehook.Change) { h.heard <- c })
	return h
}

// next waits for a change of a kind, and tells how long that took.
func (h *hearing) next(what string, limit time.Duration, kind func(surehook.Change) bool) time.Duration {
	h.t.Helper()
	began := time.Now()
	for over := time.After(limit); ; {
		select {
		case c := <-h.heard:
			if kind(c) {
				return time.Since(began)
			}
		case <-over:
			h.mu.Lock()
			defer h.mu.Unlock()
			h.t.Fatalf("%s: not heard of within %s\n%s", what, limit, h.log.String())
		}
	}
}

// everything is what a store says when something may have been missed.
func everything(c surehook.Change) bool { return c.Config && c.Outbox && c.Rows }

func onlyConfig(c surehook.Change) bool { return c.Config && !c.Rows }

// listeners is the process of the connection that listens.
const endListeners = `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND query ILIKE 'listen %'`

// N-08: a listening connection that the server ends is made anew, and what may have
// been missed is looked at.
func TestN08_AListenerThatWasEnded(t *testing.T) {
	dsn := migrated(t)
	h, other := listening(t, dsn, Options{}), reopenable(t, dsn, Options{})()
	h.next("the start", 10*time.Second, everything)
	for range 2 {
		exec(t, dsn, endListeners)
		h.next("a look at everything", 10*time.Second, everything)
		if err := other.CreateEndpoint(t.Context(), &surehook.Endpoint{ID: newAttemptID(time.Now().UnixMilli())}, 0, nil); err != nil {
			t.Fatal(err)
		}
		h.next("a notice over the new connection", 10*time.Second, onlyConfig)
	}
}

// line is a way to the server that can fall silent, as a cable does.
type line struct {
	to     string
	l      net.Listener
	opened atomic.Int32
	cut    atomic.Bool
	mu     sync.Mutex
	conns  []net.Conn
}

func newLine(t *testing.T, dsn string) (through string, ln *line) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ln = &line{to: u.Host, l: l}
	var work sync.WaitGroup
	work.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			ln.opened.Add(1)
			up, err := net.Dial("tcp", ln.to)
			if err != nil {
				_ = c.Close()
				continue
			}
			ln.mu.Lock()
			ln.conns = append(ln.conns, c, up)
			ln.mu.Unlock()
			silent := &ln.cut
			if ln.opened.Load() > 1 {
				silent = new(atomic.Bool) // only the first one is cut
			}
			work.Go(func() { pass(up, c, silent) })
			work.Go(func() { pass(c, up, silent) })
		}
	})
	t.Cleanup(func() {
		_ = l.Close()
		ln.mu.Lock()
		for _, c := range ln.conns {
			_ = c.Close()
		}
		ln.mu.Unlock()
		work.Wait()
	})
	u.Host = l.Addr().String()
	return u.String(), ln
}

// pass copies until an end, and swallows everything once the line is cut.
func pass(to, from net.Conn, cut *atomic.Bool) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 32<<10)
	for {
		n, err := from.Read(buf)
		if err != nil {
			return
		}
		if cut.Load() {
			continue
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// N-08: a connection from which nothing comes any more, not even an end, is found
// out by asking, and given up when there is no answer.
func TestN08_ALineThatFellSilent(t *testing.T) {
	t.Parallel() // it waits, mostly
	dsn := migrated(t)
	through, ln := newLine(t, dsn)
	h := listening(t, dsn, Options{ListenDSN: through, listenCheck: 100 * time.Millisecond})
	other := reopenable(t, dsn, Options{})()
	h.next("the start", 10*time.Second, everything)
	ln.cut.Store(true)
	h.next("a look at everything", 4*listenReply, everything)
	if err := other.CreateEndpoint(t.Context(), &surehook.Endpoint{ID: "whk_1"}, 0, nil); err != nil {
		t.Fatal(err)
	}
	h.next("a notice over the new connection", 10*time.Second, onlyConfig)
}

// N-09: a pooler in transaction mode takes the LISTEN and swallows the notices. That
// is found out, said once, and made up for by looking every two seconds.
func TestN09_NoticesThatAPoolerSwallows(t *testing.T) {
	t.Parallel() // it waits, mostly
	direct := migrated(t)
	h := listening(t, pgserver.Pooler(t, direct), Options{})
	h.next("the start", 10*time.Second, everything)
	for range 3 {
		if took := h.next("a look at everything", 20*time.Second, everything); took < deafPoll/4 {
			t.Errorf("looked again after %s", took)
		}
	}
	if n := h.said("notices don't arrive"); n != 1 {
		t.Errorf("it was said %d times", n)
	}
	// Nobody says so where they do.
	ok := listening(t, migrated(t), Options{listenCheck: 50 * time.Millisecond})
	ok.next("the start", 10*time.Second, everything)
	<-time.After(2 * deafPoll)
	if n := ok.said("notices don't arrive"); n != 0 {
		t.Error("notices arrive, and it says that they don't")
	}
}

// N-10: where nobody answers, the listener tries once a second.
func TestN10_ADeadListenerDoesNotSpin(t *testing.T) {
	t.Parallel() // it waits, mostly
	dsn := migrated(t)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	var tried atomic.Int32
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			tried.Add(1)
			_ = c.Close()
		}
	}()
	dead := "postgres://nobody@" + l.Addr().String() + "/none?sslmode=disable"
	h := listening(t, dsn, Options{ListenDSN: dead})
	<-time.After(3*listenRetry + listenRetry/2)
	if n := h.said("notices can't be heard"); n < 2 || n > 5 {
		t.Errorf("%d tries in 3.5 s", n)
	}
	if n := tried.Load(); n < 2 || n > 10 {
		t.Errorf("%d connections in 3.5 s", n)
	}
}
