package egress

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strings"
	"syscall"
	"time"

	"golang.org/x/net/http/httpguts"

	"github.com/surehook/surehook"
)

// Config is the operator's settings. The zero value is the strict guard with
// no DNS cache.
type Config struct {
	// AllowNetworks are for development: inside them, and only there, the
	// rules on scheme, IP literals, ports and names don't hold.
	AllowNetworks []netip.Prefix
	// OwnHosts are refused as targets, as "host" or "host:port".
	OwnHosts []string

	Resolver Resolver      // nil: the system's name servers, asked in pure Go
	DNSCache time.Duration // how long an answer serves; 0: not at all. See DefaultDNSCache

	// Proxy is an HTTP proxy that every connection goes through by CONNECT.
	// The URL rules hold before it, and so do the address rules where the
	// target resolves here; where it doesn't, the proxy decides. The
	// environment's proxies are ignored.
	Proxy *url.URL

	// Dial opens connections to addresses that were judged, in place of the
	// kernel: for receivers in memory. One that isn't a socket serves one request.
	Dial func(ctx context.Context, to netip.AddrPort) (net.Conn, error)

	RootCAs            *x509.CertPool // nil: the system's, SSL_CERT_FILE included
	ClientCertificates []tls.Certificate

	MaxConnsPerHost int           // 0: 256
	MaxIdlePerHost  int           // 0: 32
	MaxIdle         int           // 0: 512
	IdleTimeout     time.Duration // 0: 60 s
	MaxConnAge      time.Duration // 0: 10 min

	MaxResponseBody   int64 // 0: 4 KiB
	MaxResponseHeader int64 // 0: 32 KiB
}

func or[T comparable](v, otherwise T) T {
	var zero T
	if v == zero {
		return otherwise
	}
	return v
}

// Field is one header field, sent in the given order and spelling.
type Field struct{ Name, Value string }

// Request is one POST, or one GET.
type Request struct {
	Target         *Target
	Get            bool    // ask for something; there is no body then
	Answer         bool    // what a 2xx answer says is asked for: its body may take all of the time
	Header         []Field // reserved names are left out; see ReservedHeader
	Body           []byte
	Timeout        time.Duration // of the whole attempt; 0: 15 s
	ConnectTimeout time.Duration // of resolving, and of connecting; 0: 5 s
}

// Phases are the times that an attempt spent.
type Phases struct {
	Resolve, Connect, TLS, Write, Wait, Read, Total time.Duration
}

// Result is what became of an attempt.
type Result struct {
	Code surehook.Code
	// Cancelled: the context ended before the deadline and before an answer.
	// Nobody's failure; the receiver may or may not have the request.
	Cancelled   bool
	Status      int      // 0: no answer
	Err         string   // short; the host at most, never a path, query or header
	RetryAfter  []string // as received
	ContentType string
	Body        []byte // the first bytes, as sent: neither decoded nor inflated
	Truncated   bool   // Body isn't all of it
	Phases      Phases
	Reused      bool
	Proto       string
	Remote      netip.AddrPort // the proxy's, if there is one
}

// Client sends attempts. It's safe for concurrent use.
type Client struct {
	*Guard
	dns       *lookups
	dial      dialer
	proxy     *proxyDialer
	pool      *pool
	tls       *tls.Config
	h2        *http.Transport
	maxBody   int64
	maxHeader int64
	now       func() time.Time
}

// New makes a client.
func New(cfg Config) (*Client, error) {
	c := &Client{
		Guard:     NewGuard(cfg.AllowNetworks, cfg.OwnHosts),
		maxBody:   or(cfg.MaxResponseBody, 4<<10),
		maxHeader: or(cfg.MaxResponseHeader, 32<<10),
		now:       time.Now,
	}
	now := func() time.Time { return c.now() }
	c.dial.guard, c.dial.via = c.Guard, cfg.Dial
	c.tls = &tls.Config{
		MinVersion:         tls.VersionTLS12,
		RootCAs:            cfg.RootCAs,
		Certificates:       cfg.ClientCertificates,
		NextProtos:         []string{"h2", "http/1.1"},
		ClientSessionCache: tls.NewLRUClientSessionCache(1024),
	}
	c.h2 = newH2Transport(c.maxHeader)
	grace := time.Duration(0)
	if cfg.Proxy != nil {
		p, err := newProxyDialer(cfg.Proxy, c.tls)
		if err != nil {
			return nil, err
		}
		c.proxy, grace = p, unresolvedGrace
	}
	c.dns = newLookups(c.Guard, cfg.Resolver, cfg.DNSCache, grace, now)
	c.pool = newPool(limits{
		perHost:     or(cfg.MaxConnsPerHost, 256),
		idlePerHost: or(cfg.MaxIdlePerHost, 32),
		idle:        or(cfg.MaxIdle, 512),
		idleFor:     or(cfg.IdleTimeout, time.Minute),
		age:         or(cfg.MaxConnAge, 10*time.Minute),
	}, now)
	return c, nil
}

// Close closes idle connections and ends look-ups. Attempts in flight end by
// their own context or deadline.
func (c *Client) Close() {
	c.pool.close()
	c.dns.close()
}

// ReservedHeader reports whether a header field is the client's own business:
// framing, the connection and the host. Refuse it in settings; it's never
// sent.
func ReservedHeader(name string) bool {
	for _, r := range reserved {
		if len(r) == len(name) && strings.EqualFold(r, name) {
			return true
		}
	}
	return false
}

var reserved = []string{
	"Host", "Content-Length", "Transfer-Encoding", "Connection", "Keep-Alive", "Expect",
	"TE", "Trailer", "Upgrade", "Proxy-Connection", "Proxy-Authorization",
}

// ValidHeader reports whether a field can be put on the wire.
func ValidHeader(name, value string) bool {
	return httpguts.ValidHeaderFieldName(name) && httpguts.ValidHeaderFieldValue(value)
}

// attempt is one call of Do.
type attempt struct {
	req      *Request
	res      Result
	start    time.Time
	deadline time.Time
	phase    string // what it was doing, for error texts
	now      func() time.Time
}

// lap returns the time since *at and moves *at to now.
func (a *attempt) lap(at *time.Time) time.Duration {
	t := a.now()
	d := t.Sub(*at)
	*at = t
	return d
}

// Do performs one attempt. It never fails otherwise than by its result.
func (c *Client) Do(ctx context.Context, r *Request) Result {
	a := attempt{req: r, start: c.now(), now: c.now}
	a.deadline = a.start.Add(or(r.Timeout, 15*time.Second))
	if d, ok := ctx.Deadline(); ok && d.Before(a.deadline) {
		a.deadline = d
	}
	c.do(ctx, &a)
	a.res.Phases.Total = c.now().Sub(a.start)
	return a.res
}

func (c *Client) do(ctx context.Context, a *attempt) {
	if err := ctx.Err(); err != nil {
		c.fail(ctx, a, err)
		return
	}
	for i := range a.req.Header {
		if f := &a.req.Header[i]; !ValidHeader(f.Name, f.Value) {
			a.res.Code, a.res.Err = surehook.Connect, "not sent: a header field is invalid"
			return
		}
	}
	at := a.start
	a.phase = "resolving"
	ans, err := c.resolve(ctx, a.req.Target, a.start, a.until(a.start))
	a.res.Phases.Resolve = a.lap(&at)
	if err != nil && !c.leaveToProxy(ctx, a, err) {
		c.failResolve(ctx, a, err)
		return
	}
	cn, err := c.connection(ctx, a, ans)
	if err != nil {
		c.fail(ctx, a, err)
		return
	}
	a.res.Remote = cn.remote
	if cn.h2 != nil {
		c.pool.put(cn, c.exchange2(ctx, a, cn))
		return
	}
	stop := context.AfterFunc(ctx, cn.abort)
	reusable := c.exchange(ctx, a, cn)
	// Once abort has begun to run it may spoil the next request's deadline.
	c.pool.put(cn, stop() && reusable)
}

// until bounds one step by the connect timeout.
func (a *attempt) until(from time.Time) time.Time {
	d := from.Add(or(a.req.ConnectTimeout, 5*time.Second))
	if a.deadline.Before(d) {
		return a.deadline
	}
	return d
}

// connection returns a connection that is ready for the request.
func (c *Client) connection(ctx context.Context, a *attempt, ans *answer) (*conn, error) {
	for {
		a.phase = "waiting for a connection"
		cn, h, err := c.pool.get(ctx, a.req.Target.key, ans, a.deadline)
		if err != nil {
			return nil, err
		}
		if cn == nil {
			if cn, err = c.open(ctx, a, h, ans); err != nil {
				c.pool.failed(h)
			}
			return cn, err
		}
		if cn.h2 != nil || cn.quiet(a.deadline) {
			a.res.Reused = true
			return cn, nil
		}
		c.pool.put(cn, false)
	}
}

// open dials, and shakes hands.
func (c *Client) open(ctx context.Context, a *attempt, h *hostPool, ans *answer) (*conn, error) {
	t, at := a.req.Target, c.now()
	a.phase = "connecting"
	dialing, cancel := context.WithDeadline(ctx, a.until(at))
	defer cancel()
	var d dialed
	if c.proxy != nil {
		d = c.proxy.dial(dialing)
	} else {
		d = c.dial.any(dialing, ans.addrs, c.pool.firstOf(h), t.port, t.lifted)
	}
	a.res.Phases.Connect = a.lap(&at)
	if d.err != nil {
		return nil, d.err
	}
	_ = d.nc.SetDeadline(a.deadline)
	stop := context.AfterFunc(ctx, func() { _ = d.nc.SetDeadline(longAgo) })
	cn := &conn{nc: d.nc, tcp: d.nc, remote: d.at, host: h, born: at, refs: 1, proxied: c.proxy != nil}
	cn.abort = func() { _ = cn.tcp.SetDeadline(longAgo) }
	err := c.secure(ctx, a, cn)
	a.res.Phases.TLS = a.lap(&at)
	if !stop() && err == nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = d.nc.Close()
		return nil, err
	}
	c.pool.worked(h, d.at.Addr())
	return cn, c.speak(ctx, cn)
}

// secure goes through the proxy and TLS, as far as they apply.
func (c *Client) secure(ctx context.Context, a *attempt, cn *conn) error {
	t := a.req.Target
	if c.proxy != nil {
		a.phase = "asking the proxy"
		nc, err := c.proxy.connect(ctx, cn.nc, t)
		if err != nil {
			return err
		}
		cn.nc = nc
	}
	if t.scheme != "https" {
		return nil
	}
	a.phase = "in the TLS handshake"
	cfg := c.tls.Clone()
	cfg.ServerName = t.host
	tc := tls.Client(cn.nc, cfg)
	if err := tc.HandshakeContext(ctx); err != nil {
		return &handshakeError{err}
	}
	cn.nc = tc
	return nil
}

// speak settles the protocol of a new connection.
func (c *Client) speak(ctx context.Context, cn *conn) error {
	if tc, ok := cn.nc.(*tls.Conn); ok && tc.ConnectionState().NegotiatedProtocol == "h2" {
		_ = cn.tcp.SetDeadline(time.Time{})
		cc, err := newH2(ctx, c.h2, tc)
		if err != nil {
			_ = cn.tcp.Close()
			return err
		}
		if cc.Reserve() != nil {
			_ = cc.Close()
			return errNoStream
		}
		cn.h2 = cc
		c.pool.share(cn)
		return nil
	}
	if sc, ok := cn.tcp.(syscall.Conn); ok {
		raw, err := sc.SyscallConn()
		if err != nil {
			return err
		}
		cn.raw = raw
	}
	cn.newH1()
	return nil
}
