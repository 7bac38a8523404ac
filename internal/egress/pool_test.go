package egress

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// I-08: as many idle connections as there may be, of however many hosts.
func TestI08_SocketsAreBounded(t *testing.T) {
	names := resolving("x")
	rc := newReceiver(t, nil, answering(noContent))
	const hosts, idle = 200, 8
	for i := range hosts {
		names.set(fmt.Sprintf("h%d.example.com", i), "127.0.0.1")
	}
	c := newClient(t, Config{AllowNetworks: loopback, Resolver: names, MaxIdle: idle})
	port := rc.addr().Port()
	for i := range hosts {
		want(t, post(t, c, fmt.Sprintf("http://h%d.example.com:%d/", i, port), "{}"), "", "")
	}
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if c.pool.count != idle || len(c.pool.hosts) != idle {
		t.Errorf("%d idle connections of %d hosts", c.pool.count, len(c.pool.hosts))
	}
}

// I-09, I-07: an answer is read to its end, so its connection goes on; no port is used up.
func TestI09_OneConnectionForMany(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 200 OK\r\nContent-Length: 2048\r\n\r\n"+strings.Repeat("b", 2048)))
	c := local(t)
	for range 1000 {
		want(t, post(t, c, rc.url(), "{}"), "", "")
	}
	if n := rc.conns.Load(); n != 1 {
		t.Errorf("%d connections", n)
	}
}

// I-07: the same with chunks.
func TestI07_ChunkedBodiesKeepTheConnection(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nX-T: 1\r\n\r\n"))
	c := local(t)
	for i := range 10 {
		res := post(t, c, rc.url(), "{}")
		want(t, res, "", "")
		if string(res.Body) != "ok" || res.Truncated || res.Reused != (i > 0) {
			t.Errorf("%+v", res)
		}
	}
}

func TestConnectionCloseIsHonoured(t *testing.T) {
	for _, head := range []string{"HTTP/1.1 204 N\r\nConnection: close\r\n\r\n", "HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"} {
		rc := newReceiver(t, nil, answering(head))
		c := local(t)
		for range 2 {
			if res := post(t, c, rc.url(), "{}"); res.Code != "" || res.Reused {
				t.Errorf("%+v", res)
			}
		}
	}
}

// clock is a settable time that never goes behind the real one.
type clock struct{ off atomic.Int64 }

func (k *clock) now() time.Time          { return time.Now().Add(time.Duration(k.off.Load())) }
func (k *clock) advance(d time.Duration) { k.off.Add(int64(d)) }

// I-11: a connection lives no longer than the answer that led to it.
func TestI11_MovesWithDNS(t *testing.T) {
	one := newReceiver(t, nil, answering(noContent))
	two := newReceiver(t, nil, answering(noContent))
	names := resolving("hooks.example.com", "127.0.0.1")
	c, _ := routed(t, Config{AllowNetworks: loopback, Resolver: names, DNSCache: 5 * time.Second},
		map[string]netip.AddrPort{"127.0.0.1": one.addr(), "127.0.0.2": two.addr()})
	var k clock
	c.now = k.now
	send := func() Result { return post(t, c, "http://hooks.example.com/", "{}") }
	want(t, send(), "", "")
	names.set("hooks.example.com", "127.0.0.2")
	if res := send(); !res.Reused || names.asked != 2 {
		t.Errorf("reused %v, %d queries: the answer still serves", res.Reused, names.asked)
	}
	k.advance(5 * time.Second)
	if res := send(); res.Code != "" || res.Reused || res.Remote.Addr().String() != "127.0.0.2" || len(two.requests()) != 1 {
		t.Errorf("%+v", res)
	}
}

func TestIdleAndAgeLimits(t *testing.T) {
	rc := newReceiver(t, nil, answering("HTTP/1.1 204 N\r\nKeep-Alive: timeout=5, max=100\r\n\r\n"))
	plain := newReceiver(t, nil, answering(noContent))
	c := newClient(t, Config{AllowNetworks: loopback, IdleTimeout: time.Hour, MaxConnAge: 3 * time.Hour})
	var k clock
	c.now = k.now
	for i, step := range []struct {
		url    string
		wait   time.Duration
		reused bool
	}{
		{rc.url(), 0, false},
		{rc.url(), 3900 * time.Millisecond, true},
		{rc.url(), 4 * time.Second, false}, // it announced 5 s
		{plain.url(), 0, false},
		{plain.url(), 59 * time.Minute, true},
		{plain.url(), time.Hour, false},
		{plain.url(), 59 * time.Minute, true},
		{plain.url(), 59 * time.Minute, true},
		{plain.url(), 59 * time.Minute, true},
		{plain.url(), 59 * time.Minute, false}, // too old
	} {
		k.advance(step.wait)
		if res := post(t, c, step.url, "{}"); res.Code != "" || res.Reused != step.reused {
			t.Fatalf("step %d, after %v: %q %s, reused %v", i, step.wait, res.Code, res.Err, res.Reused)
		}
	}
}

func TestIdleConnectionsAreSwept(t *testing.T) {
	ended := make(chan struct{})
	rc := newReceiver(t, nil, func(p *peer) {
		for p.request() {
			p.say(noContent)
		}
		close(ended)
	})
	c := newClient(t, Config{AllowNetworks: loopback, IdleTimeout: 40 * time.Millisecond})
	want(t, post(t, c, rc.url(), "{}"), "", "")
	select {
	case <-ended:
	case <-time.After(patience):
		t.Error("still open")
	}
}

func TestI23_BurstSharesConnections(t *testing.T) {
	var busy, most atomic.Int32
	rc := newReceiver(t, nil, func(p *peer) {
		for p.request() {
			n := busy.Add(1)
			m := most.Load()
			for n > m && !most.CompareAndSwap(m, n) {
				m = most.Load()
			}
			busy.Add(-1)
			p.say(noContent)
		}
	})
	c := newClient(t, Config{AllowNetworks: loopback, MaxConnsPerHost: 4})
	tg := target(t, c, rc.url())
	var wg sync.WaitGroup
	for range 400 {
		wg.Go(func() {
			res := c.Do(t.Context(), &Request{Target: tg, Body: []byte("{}"), Timeout: patience})
			if res.Code != "" {
				t.Errorf("%q %s", res.Code, res.Err)
			}
		})
	}
	wg.Wait()
	if rc.conns.Load() > 4 || most.Load() > 4 || len(rc.requests()) != 400 {
		t.Errorf("%d connections, %d at once, %d requests", rc.conns.Load(), most.Load(), len(rc.requests()))
	}
}

func TestWaitingForAConnectionEnds(t *testing.T) {
	arrived := make(chan struct{})
	rc := newReceiver(t, nil, func(p *peer) {
		p.request()
		close(arrived)
		p.hold()
	})
	c := newClient(t, Config{AllowNetworks: loopback, MaxConnsPerHost: 1})
	tg := target(t, c, rc.url())
	done := make(chan Result)
	go func() { done <- c.Do(t.Context(), &Request{Target: tg, Timeout: 500 * time.Millisecond}) }()
	<-arrived
	res := c.Do(t.Context(), &Request{Target: tg, Timeout: 20 * time.Millisecond})
	want(t, res, surehook.Timeout, "waiting for a connection")
	want(t, <-done, surehook.Timeout, "waiting for the answer")
}

// Whatever happens to many requests at once, every connection is accounted
// for in the end.
func TestPoolBookkeeping(t *testing.T) {
	rc := newReceiver(t, nil, func(p *peer) {
		rnd := rand.New(rand.NewPCG(uint64(p.nr), 1))
		for p.request() {
			switch rnd.IntN(10) {
			case 0:
				return
			case 1:
				p.say("HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
			case 2:
				p.say("garbage\r\n\r\n")
			case 3:
				p.reset()
				return
			default:
				p.say(noContent)
			}
		}
	})
	c := newClient(t, Config{AllowNetworks: loopback, MaxConnsPerHost: 5, MaxIdlePerHost: 3, MaxIdle: 3, IdleTimeout: 50 * time.Millisecond})
	tg := target(t, c, rc.url())
	dead := target(t, c, "http://"+closedPort(t).String())
	var wg sync.WaitGroup
	var good atomic.Int32
	for worker := range 16 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(worker), 2))
			for range 100 {
				ctx, cancel := context.WithCancel(t.Context())
				r := &Request{Target: tg, Body: []byte("{}"), Timeout: patience}
				switch rnd.IntN(8) {
				case 0:
					r.Target = dead
				case 1:
					r.Timeout = time.Duration(rnd.IntN(300)) * time.Microsecond
				case 2:
					go cancel()
				}
				if c.Do(ctx, r).Code == "" {
					good.Add(1)
				}
				cancel()
			}
		})
	}
	wg.Wait()
	c.Close()
	c.pool.mu.Lock()
	defer c.pool.mu.Unlock()
	if len(c.pool.hosts) != 0 || c.pool.count != 0 || good.Load() < 300 {
		t.Errorf("%d hosts, %d idle, %d good", len(c.pool.hosts), c.pool.count, good.Load())
	}
}

func TestCloseEndsEverything(t *testing.T) {
	ended := make(chan struct{}, 2)
	rc := newReceiver(t, nil, func(p *peer) {
		for p.request() {
			p.say(noContent)
		}
		ended <- struct{}{}
	})
	c := local(t)
	want(t, post(t, c, rc.url(), "{}"), "", "")
	c.Close()
	c.Close()
	<-ended
	want(t, post(t, c, rc.url(), "{}"), surehook.Connect, "closed")
}

func TestOneLookupForABurst(t *testing.T) {
	w := newWorld(t, answering(noContent))
	const host = "hooks.example.com"
	w.client.dns.ttl = DefaultDNSCache
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() { want(t, w.post(t, host), "", "") })
	}
	wg.Wait()
	if n := w.dns.queries(host, 1); n != 1 {
		t.Errorf("%d queries", n)
	}
}

func TestFailedLookupsAreNotRemembered(t *testing.T) {
	names := resolving("hooks.example.com")
	c, _ := routed(t, Config{Resolver: names, DNSCache: time.Hour}, nil)
	want(t, post(t, c, hooks, "{}"), surehook.DNS, "no such host")
	names.set("hooks.example.com", "10.0.0.1")
	want(t, post(t, c, hooks, "{}"), surehook.SSRFBlocked, "10.0.0.1")
}

func TestCacheIsBounded(t *testing.T) {
	l := newLookups(NewGuard(nil, nil), resolving("x"), time.Hour, time.Hour, time.Now)
	defer l.close()
	for i := range maxCachedHosts + 10 {
		l.mu.Lock()
		l.makeRoom(time.Now())
		l.cache[strconv.Itoa(i)] = &answer{until: time.Now().Add(time.Hour)}
		l.mu.Unlock()
	}
	if n := len(l.cache); n > maxCachedHosts {
		t.Errorf("%d hosts", n)
	}
}
