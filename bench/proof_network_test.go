package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/postgres"
)

// wire is the network between a node and the database.
type wire struct {
	l     net.Listener
	to    string
	mu    sync.Mutex
	moved *sync.Cond
	state wireState
	conns map[net.Conn]bool
}

type wireState int

const (
	wireOpen wireState = iota
	wireCut            // connections break, and new ones are refused
	wireHole           // nothing comes through, and nobody is told; later it does
	wireSlow
)

const wireDelay = 10 * time.Millisecond

// newWire gives the wire and the DSN that leads over it.
func newWire(t *testing.T, dsn string) (*wire, string) {
	t.Helper()
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{l: l, to: u.Host, conns: map[net.Conn]bool{}}
	w.moved = sync.NewCond(&w.mu)
	go w.accept()
	t.Cleanup(func() {
		_ = l.Close() // once
		w.set(wireCut)
	})
	u.Host = l.Addr().String()
	return w, u.String()
}

func (w *wire) set(s wireState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.state = s
	if s == wireCut {
		for c := range w.conns {
			_ = c.Close() // that is the point
		}
		clear(w.conns)
	}
	w.moved.Broadcast()
}

// through waits until something gets through; false: it never will.
func (w *wire) through() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.state == wireHole {
		w.moved.Wait()
	}
	return w.state != wireCut
}

func (w *wire) accept() {
	for {
		near, err := w.l.Accept()
		if err != nil {
			return
		}
		go func() {
			defer func() { _ = near.Close() }() // to cut it is what this is for
			if !w.through() {
				return
			}
			far, err := net.Dial("tcp", w.to)
			if err != nil {
				return
			}
			defer func() { _ = far.Close() }()
			w.mu.Lock()
			w.conns[near], w.conns[far] = true, true
			w.mu.Unlock()
			go w.pump(near, far)
			w.pump(far, near)
		}()
	}
}

// pump carries one direction until an end of it is closed.
func (w *wire) pump(to, from net.Conn) {
	defer func() { _ = to.Close() }()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if err != nil || !w.through() {
			return
		}
		w.mu.Lock()
		slow := w.state == wireSlow
		w.mu.Unlock()
		if slow {
			<-time.After(wireDelay)
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// arrival is a request, and which node sent it.
type arrival struct {
	node, id string
	at       time.Time
}

// pair is two nodes in this process, the first one at the end of a wire.
type pair struct {
	t     *testing.T
	wire  *wire
	nodes [2]*engine.Engine

	mu       sync.Mutex
	got      []arrival
	running  int // requests right now
	most     int // of them at once
	accepted map[string]bool
}

const pairLease = 10 * time.Second

func newPair(t *testing.T) (*pair, string) {
	t.Helper()
	p := &pair{t: t, accepted: map[string]bool{}}
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		now := time.Now()
		p.mu.Lock()
		p.got = append(p.got, arrival{r.UserAgent(), r.Header.Get("webhook-id"), now})
		p.running++
		p.most = max(p.most, p.running)
		p.mu.Unlock()
		_, _ = io.Copy(io.Discard, r.Body) // a cut body is an attempt that is made again
		<-time.After(5 * time.Millisecond)
		p.mu.Lock()
		p.running--
		p.mu.Unlock()
	}))
	t.Cleanup(srv.Close)
	dsn := pgserver.Database(t)
	w, over := newWire(t, dsn)
	p.wire = w
	p.nodes = [2]*engine.Engine{p.start("a", over), p.start("b", dsn)}
	return p, srv.URL
}

func (p *pair) start(name, dsn string) *engine.Engine {
	p.t.Helper()
	s, err := postgres.Open(p.t.Context(), dsn, postgres.Options{Name: name, Lease: pairLease})
	if err != nil {
		p.t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Store: s, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}, UserAgent: name,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() {
		p.wire.set(wireOpen)
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			p.t.Error(err)
		}
		if err := s.Close(); err != nil {
			p.t.Error(err)
		}
	})
	if err := e.Start(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	return e
}

func (p *pair) hook(url string, limits surehook.Limits) *surehook.Endpoint {
	p.t.Helper()
	limits.Timeout = time.Second
	e, _, err := p.nodes[1].CreateWebhook(p.t.Context(), engine.Webhook{URL: url + "/hook/0", Limits: limits}, engine.Actor{})
	if err != nil {
		p.t.Fatal(err)
	}
	return e
}

// publish has workers publish by each node until stop is called; stop waits for
// the last answers.
func (p *pair) publish(tag string) (stop func()) {
	quit := make(chan struct{})
	var work sync.WaitGroup
	for w := range 4 {
		work.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-quit:
					return
				case <-time.After(3 * time.Millisecond):
				}
				p.publishOne(p.nodes[w%2], fmt.Sprintf("%s-%d-%d", tag, w, n))
			}
		})
	}
	stop = sync.OnceFunc(func() {
		close(quit)
		p.wire.set(wireOpen) // or the last answers take long
		work.Wait()
	})
	p.t.Cleanup(stop)
	return stop
}

func (p *pair) publishOne(e *engine.Engine, id string) {
	_, err := e.Publish(context.Background(), surehook.Event{ID: id, Type: "proof.network", Data: []byte(`{}`)})
	if err != nil && surehook.CodeOf(err) != surehook.Unavailable {
		p.t.Errorf("publishing: %v", err)
	}
	if err == nil {
		p.mu.Lock()
		p.accepted[id] = true
		p.mu.Unlock()
	}
}

// settle waits until everything has arrived, and gives the ids.
func (p *pair) settle(limit time.Duration) map[string]bool {
	p.t.Helper()
	for end := time.Now().Add(limit); ; <-time.After(20 * time.Millisecond) {
		there := map[string]bool{}
		p.mu.Lock()
		for _, a := range p.got {
			there[a.id] = true
		}
		missing := 0
		for id := range p.accepted {
			if !there[id] {
				missing++
			}
		}
		all, requests := len(p.accepted), len(p.got)
		p.mu.Unlock()
		if missing == 0 {
			p.t.Logf("%d events accepted, all arrived, by %d requests", all, requests)
			return there
		}
		if time.Now().After(end) {
			p.t.Fatalf("%d of %d events are missing after %v", missing, all, limit)
		}
	}
}

// by counts a node's requests since a time, those for old ids alone if given.
func (p *pair) by(node string, since time.Time, old map[string]bool) (n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, a := range p.got {
		if a.node == node && a.at.After(since) && (old == nil || old[a.id]) {
			n++
		}
	}
	return n
}

// A node that is cut off goes on by itself; its connections may break at once.
func TestProofNetworkCut(t *testing.T) {
	p, url := newPair(t)
	p.hook(url, surehook.Limits{})
	for round := range rounds(2, 20) {
		stop := p.publish(fmt.Sprint("cut", round))
		<-time.After(300 * time.Millisecond)
		p.wire.set(wireCut)
		<-time.After(time.Second)
		p.wire.set(wireOpen)
		<-time.After(500 * time.Millisecond)
		stop()
	}
	p.settle(20 * time.Second)
	healed := time.Now()
	p.backs(healed)
}

// backs waits until the first node sends what is published there.
func (p *pair) backs(since time.Time) {
	p.t.Helper()
	for n := 0; p.by("a", since, nil) == 0; n++ {
		if n == 200 {
			p.t.Fatal("the node doesn't send any more")
		}
		p.publishOne(p.nodes[0], fmt.Sprintf("back-%d-%d", since.UnixNano(), n))
		<-time.After(50 * time.Millisecond)
	}
	p.settle(20 * time.Second)
}

// A node whose words don't get through, and who isn't told so, stops before its
// lease runs out; the others take over; and when the network is there again it
// sends nothing that others have sent.
func TestProofNetworkHole(t *testing.T) {
	p, url := newPair(t)
	p.hook(url, surehook.Limits{})
	for round := range rounds(1, 5) {
		stop := p.publish(fmt.Sprint("hole", round))
		<-time.After(500 * time.Millisecond)
		p.wire.set(wireHole)
		hole := time.Now()
		<-time.After(pairLease + 4*time.Second)
		before := p.settle(15 * time.Second) // the server gives a transaction up whose node is silent for 10 s
		// An attempt starts only if it will be over 5 s before the lease.
		if n := p.by("a", hole.Add(pairLease-5*time.Second), nil); n > 0 {
			t.Errorf("the node that was cut off made %d requests when its lease was about to end", n)
		}
		p.wire.set(wireOpen)
		healed := time.Now()
		<-time.After(2 * time.Second)
		stop()
		p.settle(20 * time.Second)
		p.backs(healed)
		if n := p.by("a", healed, before); n > 0 {
			t.Errorf("the node sent %d events, when it was back, that others had sent", n)
		}
	}
}

func TestProofNetworkSlow(t *testing.T) {
	p, url := newPair(t)
	p.hook(url, surehook.Limits{})
	p.wire.set(wireSlow)
	stop := p.publish("slow")
	<-time.After(2 * time.Second)
	stop()
	p.settle(30 * time.Second)
	p.backs(time.Now())
}
