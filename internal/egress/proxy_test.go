package egress

import (
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// tunnel is a proxy that answers CONNECT and joins the two ends.
func tunnel(t *testing.T, conf *tls.Config, to netip.AddrPort, says string) *receiver {
	t.Helper()
	return newReceiver(t, conf, func(p *peer) {
		if !p.request() {
			return
		}
		p.say(says)
		if !strings.Contains(says, " 200 ") {
			return
		}
		up, err := net.Dial("tcp", to.String())
		if err != nil {
			return
		}
		done := make(chan struct{})
		go func() {
			_, _ = io.Copy(p, up)
			_ = p.Close()
			close(done)
		}()
		_, _ = io.Copy(up, p.br)
		_ = up.Close()
		<-done
	})
}

const established = "HTTP/1.1 200 Connection established\r\n\r\n"

func through(t *testing.T, cfg Config, proxy string) *Client {
	t.Helper()
	u, err := url.Parse(proxy)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Proxy = u
	return newClient(t, cfg)
}

// I-13, I-19: through a proxy on a private address, with the same head.
func TestI13_I19_ExplicitProxy(t *testing.T) {
	ca := newAuthority(t)
	rc := newReceiver(t, ca.serverConfig(t, "hooks.example.com"), answering(noContent))
	px := tunnel(t, nil, rc.addr(), established)
	c := through(t, Config{RootCAs: ca.pool, Resolver: resolving("hooks.example.com", pub4)}, "http://user:p%40ss@"+px.ln.Addr().String())
	for i := range 3 {
		res := post(t, c, hooks, "{}")
		want(t, res, "", "")
		if res.Reused != (i > 0) || res.Remote != px.addr() {
			t.Errorf("%+v", res)
		}
	}
	if got, want := px.requests(), "CONNECT hooks.example.com:443 HTTP/1.1\r\nHost: hooks.example.com:443\r\nProxy-Authorization: Basic dXNlcjpwQHNz\r\n\r\n"; len(got) != 1 || got[0] != want {
		t.Errorf("the proxy got %q", got)
	}
	for _, got := range rc.requests() {
		if !strings.Contains(got, "\r\nContent-Length: 2\r\n") || strings.Contains(got, "Proxy-Auth") || !strings.HasPrefix(got, "POST /in?token=SECRET HTTP/1.1\r\n") {
			t.Errorf("the receiver got %q", got)
		}
	}
}

func TestProxyOverTLS(t *testing.T) {
	ca := newAuthority(t)
	rc := newReceiver(t, ca.serverConfig(t, "hooks.example.com"), answering(noContent))
	px := tunnel(t, ca.serverConfig(t, "localhost"), rc.addr(), established)
	c := through(t, Config{RootCAs: ca.pool, Resolver: resolving("hooks.example.com", pub4)},
		strings.Replace("https://"+px.ln.Addr().String(), "127.0.0.1", "localhost", 1))
	want(t, post(t, c, hooks, "{}"), "", "")
}

// I-19: the proxy is no way around the guard.
func TestI19_TargetIsJudgedBeforeTheProxy(t *testing.T) {
	px := tunnel(t, nil, netip.AddrPort{}, established)
	names := resolving("in.example.com", "10.0.0.5")
	names.set("mixed.example.com", pub4, "fd00::1")
	c := through(t, Config{Resolver: names}, px.url())
	want(t, post(t, c, "https://in.example.com/", "{}"), surehook.SSRFBlocked, "10.0.0.5")
	want(t, post(t, c, "https://mixed.example.com/", "{}"), surehook.SSRFBlocked, "fd00::1")
	if _, err := c.ParseURL("https://127.0.0.1/"); err == nil {
		t.Error("the URL rules don't hold before a proxy")
	}
	if px.conns.Load() != 0 {
		t.Error("the proxy was asked")
	}
}

func TestProxyResolvesWhatWeCannot(t *testing.T) {
	ca := newAuthority(t)
	rc := newReceiver(t, ca.serverConfig(t, "hooks.example.com"), answering(noContent))
	px := tunnel(t, nil, rc.addr(), established)
	names := resolving("nothing.example.com")
	c := through(t, Config{RootCAs: ca.pool, Resolver: names}, px.url())
	for range 3 {
		want(t, post(t, c, hooks, "{}"), "", "")
	}
	if names.asked != 2 {
		t.Errorf("%d look-ups: a failure is remembered for a while", names.asked)
	}
	if v := c.Check(t.Context(), hooks, true); v.Verdict != "allow" {
		t.Errorf("%+v", v)
	}
}

func TestProxyRefusals(t *testing.T) {
	for says, text := range map[string]string{
		"HTTP/1.1 407 Auth\r\nContent-Length: 0\r\n\r\n":                    "the proxy refused the tunnel with 407",
		"HTTP/1.1 403 No\r\nX: " + strings.Repeat("x", 64<<10) + "\r\n\r\n": "proxy: the answer's head is too large",
		"HTTP/1.1 200 OK\r\n\r\nsurprise":                                   "before the tunnel was used",
		"garbage\r\n\r\n":                                                   "proxy: the answer isn't valid HTTP",
		"":                                                                  "proxy: ",
	} {
		px := newReceiver(t, nil, func(p *peer) {
			if p.request() {
				p.say(says)
			}
		})
		c := through(t, Config{Resolver: resolving("hooks.example.com", pub4)}, px.url())
		want(t, post(t, c, hooks, "{}"), surehook.Connect, text)
	}
	c := through(t, Config{Resolver: resolving("hooks.example.com", pub4)}, "http://"+closedPort(t).String())
	want(t, post(t, c, hooks, "{}"), surehook.Connect, "proxy: connection refused")
}

func TestMuteProxyIsATimeout(t *testing.T) {
	px := newReceiver(t, nil, func(p *peer) { p.hold() })
	c := through(t, Config{Resolver: resolving("hooks.example.com", pub4)}, px.url())
	res := c.Do(t.Context(), &Request{Target: target(t, c, hooks), Timeout: 50 * time.Millisecond})
	want(t, res, surehook.Timeout, "asking the proxy")
}

func TestProxySettingIsChecked(t *testing.T) {
	for _, bad := range []string{"socks5://127.0.0.1:1080", "http://", "ftp://proxy"} {
		u, err := url.Parse(bad)
		if err != nil {
			t.Fatal(err)
		}
		if c, err := New(Config{Proxy: u}); err == nil {
			c.Close()
			t.Errorf("%s was accepted", bad)
		}
	}
}
