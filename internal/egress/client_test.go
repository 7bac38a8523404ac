package egress

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

var loopback = []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}

// patience is for what must happen; a test that needs it all has failed.
const patience = 20 * time.Second

// routes sends judged addresses to loopback listeners.
type routes struct {
	mu   sync.Mutex
	to   map[string]netip.AddrPort
	seen []netip.AddrPort
	rest netip.AddrPort
}

func (r *routes) route(ap netip.AddrPort) netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.seen = append(r.seen, ap)
	if to, ok := r.to[ap.Addr().String()]; ok {
		return to
	}
	return r.rest
}

func (r *routes) dialled() []netip.AddrPort {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]netip.AddrPort(nil), r.seen...)
}

// closedPort is an address that refuses connections.
func closedPort(t *testing.T) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ap := netip.MustParseAddrPort(ln.Addr().String())
	_ = ln.Close()
	return ap
}

func newClient(t *testing.T, cfg Config) *Client {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// routed makes a client whose judged addresses lead to loopback.
func routed(t *testing.T, cfg Config, to map[string]netip.AddrPort) (*Client, *routes) {
	t.Helper()
	c := newClient(t, cfg)
	r := &routes{to: to, rest: closedPort(t)}
	c.dial.route = r.route
	return c, r
}

// local makes a client that may reach loopback by address.
func local(t *testing.T) *Client { return newClient(t, Config{AllowNetworks: loopback}) }

func target(t *testing.T, c *Client, url string) *Target {
	t.Helper()
	tg, err := c.ParseURL(url)
	if err != nil {
		t.Fatal(err)
	}
	return tg
}

func post(t *testing.T, c *Client, url, body string) Result {
	t.Helper()
	return c.Do(t.Context(), &Request{Target: target(t, c, url), Body: []byte(body), Timeout: patience})
}

func want(t *testing.T, res Result, code surehook.Code, text string) {
	t.Helper()
	if res.Code != code || !strings.Contains(res.Err, text) || (code == "") != (res.Err == "") {
		t.Fatalf("got code %q, status %d, error %q; want code %q with %q", res.Code, res.Status, res.Err, code, text)
	}
}

// answers is a resolver with fixed addresses.
type answers struct {
	mu    sync.Mutex
	addrs map[string][]netip.Addr
	asked int
}

func resolving(host string, addrs ...string) *answers {
	r := &answers{addrs: map[string][]netip.Addr{}}
	r.set(host, addrs...)
	return r
}

func (r *answers) set(host string, addrs ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []netip.Addr
	for _, a := range addrs {
		list = append(list, netip.MustParseAddr(a))
	}
	r.addrs[host+"."] = list
}

func (r *answers) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.asked++
	var out []netip.Addr
	for _, a := range r.addrs[host] {
		if a.Unmap().Is4() == (network == "ip4") {
			out = append(out, a)
		}
	}
	if out == nil {
		return nil, &net.DNSError{Err: "no such host", IsNotFound: true}
	}
	return out, nil
}
