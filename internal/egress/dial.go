package egress

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"strconv"
	"syscall"
	"time"
)

const (
	maxDials = 4                      // addresses tried in one attempt
	stagger  = 250 * time.Millisecond // before the next address is tried beside a slow one
)

// dialer opens guarded TCP connections.
type dialer struct {
	guard *Guard
	// route is nil but in tests: where the kernel is sent once an address
	// has been judged.
	route func(netip.AddrPort) netip.AddrPort
	via   func(context.Context, netip.AddrPort) (net.Conn, error) // Config.Dial
}

// one dials exactly ap. The control hook sees what the kernel is about to
// connect to: it must be that address, and must pass the same judgement.
func (d *dialer) one(ctx context.Context, ap netip.AddrPort, lifted bool) (net.Conn, error) {
	if d.via != nil {
		if reason := d.guard.judge(ap.Addr(), lifted); reason != "" {
			return nil, &BlockedError{Addr: ap.Addr(), Reason: reason}
		}
		return d.via(ctx, ap)
	}
	want := ap
	if d.route != nil {
		want = d.route(ap)
	}
	nd := net.Dialer{ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
		got, err := netip.ParseAddrPort(address)
		if err != nil || got != want || (network != "tcp4" && network != "tcp6") {
			return &BlockedError{Addr: got.Addr(), Reason: "not the address that was judged"}
		}
		judged := got.Addr()
		if d.route != nil {
			judged = ap.Addr()
		}
		if reason := d.guard.judge(judged, lifted); reason != "" {
			return &BlockedError{Addr: judged, Reason: reason}
		}
		return nil
	}}
	return nd.DialContext(ctx, "tcp", want.String())
}

type dialed struct {
	nc  net.Conn
	at  netip.AddrPort
	err error
}

// any tries the addresses in order, the next one beside a slow one, and keeps
// the first connection. first is tried before all others if it's among them.
func (d *dialer) any(ctx context.Context, addrs []netip.Addr, first netip.Addr, port uint16, lifted bool) dialed {
	order := make([]netip.AddrPort, 0, maxDials)
	for _, a := range addrs {
		if a == first {
			order = append(order, netip.AddrPortFrom(a, port))
		}
	}
	for _, a := range addrs {
		if a != first && len(order) < maxDials {
			order = append(order, netip.AddrPortFrom(a, port))
		}
	}
	if len(order) == 1 {
		nc, err := d.one(ctx, order[0], lifted)
		return dialed{nc, order[0], err}
	}
	return d.race(ctx, order, lifted)
}

func (d *dialer) race(ctx context.Context, order []netip.AddrPort, lifted bool) dialed {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results := make(chan dialed, len(order))
	next, running := 0, 0
	start := func() {
		ap := order[next]
		next++
		running++
		go func() {
			nc, err := d.one(ctx, ap, lifted)
			results <- dialed{nc, ap, err}
		}()
	}
	start()
	timer := time.NewTimer(stagger)
	defer timer.Stop()
	var first dialed
	for running > 0 {
		select {
		case <-timer.C:
			if next < len(order) {
				start()
				timer.Reset(stagger)
			}
		case r := <-results:
			running--
			if r.err == nil {
				cancel()
				for ; running > 0; running-- {
					if late := <-results; late.err == nil {
						_ = late.nc.Close()
					}
				}
				return r
			}
			if first.err == nil {
				first = r
			}
			if next < len(order) {
				start()
				timer.Reset(stagger)
			}
		}
	}
	return first
}

// proxyDialer reaches targets through an HTTP proxy, by CONNECT.
type proxyDialer struct {
	addr   string
	useTLS *tls.Config
	auth   string
}

func newProxyDialer(u *url.URL, roots *tls.Config) (*proxyDialer, error) {
	p := &proxyDialer{}
	port := u.Port()
	switch u.Scheme {
	case "http":
		if port == "" {
			port = "80"
		}
	case "https":
		if port == "" {
			port = "443"
		}
		p.useTLS = roots.Clone()
		p.useTLS.ServerName = u.Hostname()
		p.useTLS.NextProtos = nil
		p.useTLS.Certificates = nil
	default:
		return nil, errors.New("egress: the proxy's scheme must be http or https")
	}
	if u.Hostname() == "" {
		return nil, errors.New("egress: the proxy has no host")
	}
	p.addr = net.JoinHostPort(u.Hostname(), port)
	if u.User != nil {
		pass, _ := u.User.Password()
		p.auth = "Basic " + base64.StdEncoding.EncodeToString([]byte(u.User.Username()+":"+pass))
	}
	return p, nil
}

// dial connects to the proxy itself. Its address is the operator's choice and
// isn't judged.
func (p *proxyDialer) dial(ctx context.Context) dialed {
	nc, err := (&net.Dialer{}).DialContext(ctx, "tcp", p.addr)
	if err != nil {
		return dialed{err: &phaseError{"proxy", err}}
	}
	at, _ := netip.ParseAddrPort(nc.RemoteAddr().String())
	return dialed{nc: nc, at: at}
}

// connect asks for the tunnel. The host goes by name: the proxy decides by
// name, and resolves again for itself.
func (p *proxyDialer) connect(ctx context.Context, nc net.Conn, t *Target) (net.Conn, error) {
	if p.useTLS != nil {
		tc := tls.Client(nc, p.useTLS)
		if err := tc.HandshakeContext(ctx); err != nil {
			return nil, &phaseError{"proxy TLS", err}
		}
		nc = tc
	}
	to := net.JoinHostPort(t.host, strconv.Itoa(t.Port()))
	head := "CONNECT " + to + " HTTP/1.1\r\nHost: " + to + "\r\n"
	if p.auth != "" {
		head += "Proxy-Authorization: " + p.auth + "\r\n"
	}
	if _, err := nc.Write([]byte(head + "\r\n")); err != nil {
		return nil, &phaseError{"proxy", err}
	}
	lim := &limitReader{r: nc, n: 32 << 10}
	br := bufio.NewReader(lim)
	resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodConnect}) //nolint:bodyclose // closing would read on; the body is the tunnel
	if err != nil {
		return nil, &phaseError{"proxy", err}
	}
	if resp.StatusCode != http.StatusOK {
		return nil, &phaseError{fmt.Sprintf("the proxy refused the tunnel with %d", resp.StatusCode), nil}
	}
	if br.Buffered() > 0 {
		return nil, &phaseError{"the proxy sent data before the tunnel was used", nil}
	}
	return nc, nil
}

// phaseError is a failure with words of our own; err only classifies it.
type phaseError struct {
	text string
	err  error
}

func (e *phaseError) Error() string {
	if e.err == nil {
		return e.text
	}
	return e.text + ": " + reasonOf(e.err)
}

func (e *phaseError) Unwrap() error { return e.err }
