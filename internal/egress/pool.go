package egress

import (
	"bufio"
	"context"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"time"
)

// conn is one guarded connection: HTTP/1.1 for one request at a time, or
// HTTP/2 shared by several.
type conn struct {
	nc      net.Conn // TLS or plain
	tcp     net.Conn
	raw     syscall.RawConn
	remote  netip.AddrPort
	host    *hostPool
	born    time.Time
	idleAt  time.Time
	keep    time.Duration // how long the receiver says it keeps it idle; 0: unknown
	proxied bool
	abort   func() // ends every wait on the connection

	lim  limitReader
	br   *bufio.Reader
	dead bool // set by peek
	peek func(fd uintptr) bool

	h2   *http.ClientConn
	refs int  // requests in flight; under the pool's lock
	gone bool // out of the pool; closed when refs reaches 0

	prev, next *conn // the pool's list of idle connections
}

type hostPool struct {
	key   string
	idle  []*conn // HTTP/1.1, the latest last
	h2    []*conn
	open  int // connections, idle or not, and dials
	wait  []chan struct{}
	first netip.Addr // the address that worked last
}

type limits struct {
	perHost, idlePerHost, idle int
	idleFor, age               time.Duration
}

// pool keeps connections per origin. Its sockets are bounded, and it has no
// goroutine of its own: a timer runs while something is idle.
type pool struct {
	limits
	now func() time.Time

	mu     sync.Mutex
	hosts  map[string]*hostPool
	root   conn // of the idle list: root.next is the most recent
	count  int
	timer  *time.Timer
	armed  bool
	closed bool
}

func newPool(l limits, now func() time.Time) *pool {
	p := &pool{limits: l, now: now, hosts: map[string]*hostPool{}}
	p.root.next, p.root.prev = &p.root, &p.root
	return p
}

// get returns a connection to reuse, or nil and the right to dial one. The
// caller looks whether an HTTP/1.1 one is still alive.
// It waits while the host has all its connections in use.
func (p *pool) get(ctx context.Context, key string, ans *answer, deadline time.Time) (*conn, *hostPool, error) {
	for {
		p.mu.Lock()
		if p.closed {
			p.mu.Unlock()
			return nil, nil, errClosed
		}
		h := p.hosts[key]
		if h == nil {
			h = &hostPool{key: key}
		}
		c, stale := p.take(h, ans)
		dial := c == nil && (p.perHost <= 0 || h.open < p.perHost)
		var turn chan struct{}
		switch {
		case dial:
			h.open++
			p.hosts[key] = h // dropping the last stale connection took it out
		case c == nil:
			turn = make(chan struct{})
			h.wait = append(h.wait, turn)
		}
		p.mu.Unlock()
		for _, s := range stale {
			s.close()
		}
		if c != nil || dial {
			return c, h, nil
		}
		if err := await(ctx, turn, deadline); err != nil {
			p.leave(h, turn)
			return nil, nil, err
		}
	}
}

func await(ctx context.Context, turn chan struct{}, deadline time.Time) error {
	timer := time.NewTimer(time.Until(deadline))
	defer timer.Stop()
	select {
	case <-turn:
		return nil
	case <-timer.C:
		return errBusy
	case <-ctx.Done():
		return ctx.Err()
	}
}

// leave takes a waiter out of the line. If its turn has come meanwhile, the
// next one gets it.
func (p *pool) leave(h *hostPool, turn chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, w := range h.wait {
		if w == turn {
			h.wait = append(h.wait[:i], h.wait[i+1:]...)
			return
		}
	}
	h.wake()
}

func (h *hostPool) wake() {
	if len(h.wait) > 0 {
		close(h.wait[0])
		h.wait = h.wait[1:]
	}
}

// take finds a connection that may be reused, newest first, and removes those
// that never may again. The caller closes these.
func (p *pool) take(h *hostPool, ans *answer) (c *conn, stale []*conn) {
	now := p.now()
	for i := len(h.h2) - 1; i >= 0; i-- {
		c := h.h2[i]
		if !p.expired(c, now) && c.serves(ans) && c.h2.Reserve() == nil {
			p.unlink(c)
			c.refs++
			return c, stale
		}
		if p.expired(c, now) || !c.serves(ans) || c.refs == 0 {
			if p.drop(c) {
				stale = append(stale, c)
			}
		}
	}
	for n := len(h.idle); n > 0; n = len(h.idle) {
		c := h.idle[n-1]
		h.idle = h.idle[:n-1]
		p.unlink(c)
		if !p.expired(c, now) && c.serves(ans) {
			c.refs = 1
			return c, stale
		}
		p.drop(c)
		stale = append(stale, c)
	}
	return nil, stale
}

// serves reports whether c leads where the latest answer says. A proxy's own
// address has nothing to do with the answer.
func (c *conn) serves(ans *answer) bool { return c.proxied || ans.has(c.remote.Addr()) }

func (p *pool) expired(c *conn, now time.Time) bool {
	if p.age > 0 && now.Sub(c.born) >= p.age {
		return true
	}
	if c.refs > 0 {
		return false
	}
	idle := now.Sub(c.idleAt)
	return idle >= p.idleFor || c.keep > 0 && idle >= c.keep
}

// drop takes c out of the pool, and reports whether it can be closed now.
func (p *pool) drop(c *conn) bool {
	if c.gone {
		return false
	}
	c.gone = true
	p.unlink(c)
	h := c.host
	h.idle = without(h.idle, c)
	h.h2 = without(h.h2, c)
	p.closedOne(h)
	return c.refs == 0
}

func without(list []*conn, c *conn) []*conn {
	for i, x := range list {
		if x == c {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}

// closedOne gives back the right to one connection.
func (p *pool) closedOne(h *hostPool) {
	h.open--
	h.wake()
	if h.open == 0 && len(h.wait) == 0 && p.hosts[h.key] == h {
		delete(p.hosts, h.key)
	}
}

// failed gives back the right to dial.
func (p *pool) failed(h *hostPool) {
	p.mu.Lock()
	p.closedOne(h)
	p.mu.Unlock()
}

// firstOf returns the address of h that worked last.
func (p *pool) firstOf(h *hostPool) netip.Addr {
	p.mu.Lock()
	defer p.mu.Unlock()
	return h.first
}

func (p *pool) worked(h *hostPool, a netip.Addr) {
	p.mu.Lock()
	h.first = a
	p.mu.Unlock()
}

// share makes a new HTTP/2 connection available to others. The caller holds
// one request on it.
func (p *pool) share(c *conn) {
	p.mu.Lock()
	if !p.closed {
		c.host.h2 = append(c.host.h2, c)
	}
	p.mu.Unlock()
}

// put ends one request on c: it's kept if reusable, else closed.
func (p *pool) put(c *conn, reusable bool) {
	var closing [2]*conn
	p.mu.Lock()
	c.refs--
	c.idleAt = p.now()
	switch {
	case c.gone:
		if c.refs == 0 {
			closing[0] = c
		}
	case p.closed || !reusable:
		if p.drop(c) {
			closing[0] = c
		}
	case c.h2 != nil:
		c.host.wake()
		if c.refs == 0 {
			closing[1] = p.link(c)
		}
	case len(c.host.idle) >= p.idlePerHost:
		p.drop(c)
		closing[0] = c
	default:
		c.host.idle = append(c.host.idle, c)
		c.host.wake()
		closing[1] = p.link(c)
	}
	p.mu.Unlock()
	for _, c := range closing {
		if c != nil {
			c.close()
		}
	}
}

// link puts c at the head of the idle list and returns the one that has to go
// for it, if the list is full.
func (p *pool) link(c *conn) (evicted *conn) {
	c.prev, c.next = &p.root, p.root.next
	c.prev.next, c.next.prev = c, c
	p.count++
	if p.count > p.idle {
		evicted = p.root.prev
		p.drop(evicted)
	}
	if !p.armed && p.count > 0 {
		p.arm()
	}
	return evicted
}

func (p *pool) unlink(c *conn) {
	if c.next == nil {
		return
	}
	c.prev.next, c.next.prev = c.next, c.prev
	c.prev, c.next = nil, nil
	p.count--
}

func (p *pool) arm() {
	p.armed = true
	every := max(p.idleFor/4, 10*time.Millisecond)
	if p.timer == nil {
		p.timer = time.AfterFunc(every, p.sweep)
	} else {
		p.timer.Reset(every)
	}
}

// sweep closes what has been idle too long.
func (p *pool) sweep() {
	p.mu.Lock()
	now := p.now()
	var stale []*conn
	for c := p.root.prev; c != &p.root; {
		older := c
		c = c.prev
		if p.expired(older, now) {
			p.drop(older)
			stale = append(stale, older)
		}
	}
	p.armed = false
	if p.count > 0 && !p.closed {
		p.arm()
	}
	p.mu.Unlock()
	for _, c := range stale {
		c.close()
	}
}

// close closes what is idle; what is in use is closed when it's put back.
func (p *pool) close() {
	p.mu.Lock()
	p.closed = true
	if p.timer != nil {
		p.timer.Stop()
	}
	var stale []*conn
	for _, h := range p.hosts {
		for _, c := range append(append([]*conn(nil), h.idle...), h.h2...) {
			if p.drop(c) {
				stale = append(stale, c)
			}
		}
		for len(h.wait) > 0 {
			h.wake()
		}
	}
	p.mu.Unlock()
	for _, c := range stale {
		c.close()
	}
}

func (c *conn) close() {
	if c.h2 != nil {
		_ = c.h2.Close()
		return
	}
	// Not through TLS: a peer that doesn't read would hold the alert.
	_ = c.tcp.Close()
}
