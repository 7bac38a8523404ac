package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"sync"
	"time"
)

// Resolver looks up one address family of a fully qualified name.
// *net.Resolver is one.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// DefaultDNSCache is how long an answer serves in production.
const DefaultDNSCache = 5 * time.Second

const (
	lookupLimit     = 10 * time.Second // of one shared look-up, whoever still waits
	maxCachedHosts  = 10_000
	unresolvedGrace = time.Minute // how long a proxy's target counts as unresolvable here
)

// answer is one host's addresses, judged once for as long as they serve.
type answer struct {
	addrs  []netip.Addr
	err    error
	public error // the verdict without allowed networks being required
	lifted error // the verdict when only allowed networks count
	until  time.Time
}

func (a *answer) verdict(lifted bool) error {
	if lifted {
		return a.lifted
	}
	return a.public
}

func (a *answer) has(addr netip.Addr) bool {
	for _, x := range a.addrs {
		if x == addr {
			return true
		}
	}
	return false
}

type flight struct {
	done chan struct{}
	ans  *answer
}

// lookups shares one look-up per host among all callers, and its answer for
// a short while.
type lookups struct {
	guard *Guard
	via   Resolver
	ttl   time.Duration // 0: an answer serves only those who waited for it
	grace time.Duration // how long a failure is remembered
	now   func() time.Time

	ctx  context.Context
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu      sync.Mutex
	closed  bool
	cache   map[string]*answer
	flights map[string]*flight
}

func newLookups(g *Guard, via Resolver, ttl, grace time.Duration, now func() time.Time) *lookups {
	if via == nil {
		via = systemResolver("")
	}
	l := &lookups{guard: g, via: via, ttl: ttl, grace: grace, now: now,
		cache: map[string]*answer{}, flights: map[string]*flight{}}
	l.ctx, l.stop = context.WithCancel(context.Background())
	return l
}

// systemResolver asks the name servers of the system, or the given one, in
// pure Go: the C library reads 127.1 and 0x7f000001 as addresses.
func systemResolver(server string) *net.Resolver {
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
		if server != "" {
			addr = server
		}
		nc, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err == nil {
			// The library waits for a mute server although nobody waits for
			// the library any more.
			context.AfterFunc(ctx, func() { _ = nc.Close() })
		}
		return nc, err
	}}
}

func (l *lookups) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.stop()
	l.wg.Wait()
}

// cached returns an answer that still serves, or nil.
func (l *lookups) cached(host string, now time.Time) *answer {
	if l.ttl <= 0 && l.grace <= 0 {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if a := l.cache[host]; a != nil && now.Before(a.until) {
		return a
	}
	return nil
}

// lookup resolves host, joining a look-up in flight. It returns ctx's error
// if that ends first; the look-up goes on for the others.
func (l *lookups) lookup(ctx context.Context, host string) (*answer, error) {
	l.mu.Lock()
	if l.closed {
		l.mu.Unlock()
		return nil, errClosed
	}
	if a := l.cache[host]; a != nil && l.now().Before(a.until) {
		l.mu.Unlock()
		return a, a.err // it has landed since the caller looked
	}
	f := l.flights[host]
	if f == nil {
		f = &flight{done: make(chan struct{})}
		l.flights[host] = f
		l.wg.Add(1)
		go l.fly(f, host) //nolint:contextcheck // shared: it outlives the one who asked first
	}
	l.mu.Unlock()
	select {
	case <-f.done:
		return f.ans, f.ans.err
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *lookups) fly(f *flight, host string) {
	defer l.wg.Done()
	ctx, cancel := context.WithTimeout(l.ctx, lookupLimit)
	defer cancel()
	a := &answer{}
	a.addrs, a.err = l.both(ctx, host)
	if a.err == nil {
		a.public = l.guard.judgeAll(a.addrs, false)
		a.lifted = l.guard.judgeAll(a.addrs, true)
	}
	f.ans = a

	l.mu.Lock()
	delete(l.flights, host)
	serves := l.ttl
	if a.err != nil {
		serves = l.grace
	}
	if now := l.now(); serves > 0 && !l.closed {
		a.until = now.Add(serves)
		l.makeRoom(now)
		l.cache[host] = a
	}
	l.mu.Unlock()
	close(f.done)
}

// makeRoom bounds the cache: expired answers go first, then any.
func (l *lookups) makeRoom(now time.Time) {
	if len(l.cache) < maxCachedHosts {
		return
	}
	for h, a := range l.cache {
		if !now.Before(a.until) {
			delete(l.cache, h)
		}
	}
	for h := range l.cache {
		if len(l.cache) < maxCachedHosts {
			return
		}
		delete(l.cache, h)
	}
}

type half struct {
	addrs []netip.Addr
	err   error
}

// both asks for A and AAAA separately and at once. A family that fails with
// an answer counts as empty; one that never answers leaves the whole answer
// unknown, and an unknown address can't be judged.
func (l *lookups) both(ctx context.Context, host string) ([]netip.Addr, error) {
	// The trailing dot keeps search domains out.
	fqdn := host + "."
	six := make(chan half, 1)
	go func() {
		addrs, err := l.via.LookupNetIP(ctx, "ip6", fqdn)
		six <- half{addrs, err}
	}()
	a4, err4 := l.via.LookupNetIP(ctx, "ip4", fqdn)
	h6 := <-six
	if timedOut(err4) || timedOut(h6.err) {
		return nil, &dnsError{"the name server didn't answer"}
	}
	addrs := merge(a4, h6.addrs)
	if len(addrs) > 0 {
		return addrs, nil
	}
	var mapped *net.AddrError
	if errors.As(h6.err, &mapped) {
		// The library hides IPv4-mapped addresses in AAAA records; a host
		// that has nothing else is hiding something too.
		return nil, &BlockedError{Reason: "IPv4-mapped addresses only"}
	}
	for _, err := range []error{err4, h6.err} {
		var d *net.DNSError
		if err == nil || errors.As(err, &d) && d.IsNotFound {
			continue
		}
		return nil, &dnsError{"the name server failed"}
	}
	return nil, &dnsError{"no such host, or it has no address"}
}

func timedOut(err error) bool {
	var d *net.DNSError
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled) ||
		errors.As(err, &d) && d.IsTimeout
}

// merge alternates the families, IPv6 first, without duplicates, so that the
// first two dials try both.
func merge(a4, a6 []netip.Addr) []netip.Addr {
	out := make([]netip.Addr, 0, len(a4)+len(a6))
	add := func(a netip.Addr) {
		a = a.Unmap()
		for _, x := range out {
			if x == a {
				return
			}
		}
		out = append(out, a)
	}
	for i := range max(len(a4), len(a6)) {
		if i < len(a6) {
			add(a6[i])
		}
		if i < len(a4) {
			add(a4[i])
		}
	}
	return out
}

// dnsError is a look-up without a usable answer, in our words: the library's
// hold the server's address and the name with its dot.
type dnsError struct{ text string }

func (e *dnsError) Error() string { return e.text }

// resolve returns the addresses that t may be reached at, all of them judged.
func (c *Client) resolve(ctx context.Context, t *Target, now time.Time, deadline time.Time) (*answer, error) {
	if t.addr.IsValid() {
		a := &answer{addrs: []netip.Addr{t.addr}}
		return a, c.judgeAll(a.addrs, t.lifted)
	}
	if isLocalhost(t.host) {
		return c.localhost()
	}
	a := c.dns.cached(t.host, now)
	if a == nil {
		ctx, cancel := context.WithDeadline(ctx, deadline)
		defer cancel()
		var err error
		if a, err = c.dns.lookup(ctx, t.host); err != nil && a == nil {
			return nil, err
		}
	}
	if a.err != nil {
		return nil, a.err
	}
	return a, a.verdict(t.lifted)
}

// localhost answers for itself (RFC 6761), and only as far as the operator
// allowed: most machines have both addresses, and allowing one is enough.
func (c *Client) localhost() (*answer, error) {
	a := &answer{}
	for _, addr := range []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()} {
		if c.allowed(addr) {
			a.addrs = append(a.addrs, addr)
		}
	}
	if len(a.addrs) == 0 {
		return nil, &BlockedError{Addr: netip.IPv6Loopback(), Reason: "loopback", Hint: true}
	}
	return a, nil
}
