package egress

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"code.dny.dev/ssrf"
	"pgregory.net/rapid"

	"github.com/surehook/surehook"
)

func refusedURLs(t *testing.T, urls ...string) {
	t.Helper()
	g := NewGuard(nil, nil)
	for _, u := range urls {
		if _, err := g.ParseURL(u); err == nil {
			t.Errorf("%q was accepted", u)
		}
	}
}

func blockedAddrs(t *testing.T, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		if IsPublic(netip.MustParseAddr(a)) {
			t.Errorf("%s is public", a)
		}
	}
}

// J-01: an IPv4 address in IPv6 clothes is judged as what it is.
func TestJ01_MappedIPv6(t *testing.T) {
	refusedURLs(t, "https://[::ffff:127.0.0.1]/", "https://[::ffff:7f00:1]/", "https://[::ffff:169.254.169.254]/")
	blockedAddrs(t, "::ffff:127.0.0.1", "::ffff:7f00:1", "::ffff:169.254.169.254")
}

// J-02: addresses that lead to others by a tunnel are none.
func TestJ02_6to4AndTeredo(t *testing.T) {
	refusedURLs(t, "https://[2002:7f00:1::1]/", "https://[2001:0:4136:e378:8000:63bf:3fff:fdd2]/")
	blockedAddrs(t, "2002:7f00:1::1", "2001:0:4136:e378:8000:63bf:3fff:fdd2")
}

// J-03: all that IANA's registries call special, each range at both of its ends.
func TestJ03_TheWholeList(t *testing.T) {
	blockedAddrs(t, "64:ff9b::7f00:1", "::7f00:1", "fec0::1", "100.64.0.1", "198.18.0.1", "192.0.0.1", "240.0.0.1",
		"2001:db8::1", "5f00::1", "3fff::1", "100::1", "64:ff9b:1::1")
	// The oracle's lists are generated from IANA's registries.
	for _, p := range append(append([]netip.Prefix(nil), ssrf.IPv4DeniedPrefixes...), ssrf.IPv6DeniedPrefixes...) {
		for _, a := range []netip.Addr{p.Addr(), lastOf(p)} {
			if IsPublic(a) {
				t.Errorf("%s of %s is public", a, p)
			}
		}
	}
}

func lastOf(p netip.Prefix) netip.Addr {
	b := p.Addr().AsSlice()
	for i := p.Bits(); i < len(b)*8; i++ {
		b[i/8] |= 1 << (7 - i%8)
	}
	a, _ := netip.AddrFromSlice(b)
	return a
}

// J-04: a number, however it is written, is no host name.
func TestJ04_NumericSpellings(t *testing.T) {
	refusedURLs(t, "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/", "https://127.1/", "https://0/",
		"https://0X7F.1/", "https://1.1.1.1/", "https://1.1.1.1./", "https://0x/")
	blockedAddrs(t, "100.64.0.1", "100.127.255.255")
}

// J-05, J-06: brackets are seen as the addresses that they hold.
func TestJ05_J06_Brackets(t *testing.T) {
	refusedURLs(t, "https://[::1]/", "https://[::1]:8443/", "https://[fe80::1%25eth0]/", "https://[fd12:3456::1]:80/",
		"https://[2606:4700::1]:443/", "https://[]/", "https://[::1/", "https://::1]/")
}

// J-07: one parser, and nothing that another one could read otherwise.
func TestJ07_ParsersThatDisagree(t *testing.T) {
	refusedURLs(t, "https://good.example.com%40evil.example.com/", "https://good.example.com@evil.example.com/",
		"https://h.example.com\\@evil.example.com/", "https://h.exa\tmple.com/", "https://h.example.com/\r\n", "https://h.example.com/a b",
		"https://h.example.com/\x00", " https://h.example.com/", "https://h.example.com/\xff", "https://h.example.com/%zz", "https:///h.example.com/")
}

// J-11: the environment's proxy would see the target in our place.
func TestJ11_EnvironmentProxyIsIgnored(t *testing.T) {
	proxy := newReceiver(t, nil, func(p *peer) { p.request() })
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"} {
		t.Setenv(name, proxy.url())
	}
	ca := newAuthority(t)
	rc, c := secured(t, ca.serverConfig(t, "hooks.example.com"), Config{RootCAs: ca.pool}, answering(noContent))
	want(t, post(t, c, hooks, "{}"), "", "")
	c2 := newClient(t, Config{Resolver: resolving("hooks.example.com", "10.0.0.5")})
	want(t, post(t, c2, hooks, "{}"), surehook.SSRFBlocked, "10.0.0.5: private network")
	if proxy.conns.Load() != 0 || len(rc.requests()) != 1 {
		t.Error("the environment's proxy was used")
	}
}

// J-12: what is lifted is what was named, and a refusal names the setting.
func TestJ12_AllowedNetworks(t *testing.T) {
	cfg := Config{AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}}
	names := resolving("ci.corp", "10.1.2.3")
	names.set("out.corp", "10.2.0.1")
	names.set("mixed.corp", "10.1.2.3", "169.254.169.254")
	names.set("pub.corp", pub4)
	names.set("hooks.example.com", pub4)
	names.set("inside.example.com", "10.1.9.9")
	cfg.Resolver = names
	c := newClient(t, cfg)
	for raw, verdict := range map[string]string{
		"http://10.1.2.3:8080/x":      "allow",
		"https://10.1.2.3/":           "allow",
		"http://10.2.0.1/":            "block",
		"http://169.254.169.254/":     "block",
		"https://127.0.0.1/":          "block",
		"http://ci.corp:2375/":        "allow", // name, scheme and port lifted: it's inside
		"http://out.corp/":            "block",
		"http://mixed.corp/":          "block",
		"https://pub.corp/":           "block", // a lifted name reaches the allowed networks only
		"http://hooks.example.com/":   "block",
		"https://hooks.example.com/":  "allow",
		"https://inside.example.com/": "allow",
		"http://localhost/":           "block",
		"https://u@10.1.2.3/":         "block",
		"https://[::ffff:10.1.2.3]/":  "block",
		"https://167838211/":          "block",
	} {
		v := c.Check(t.Context(), raw, true)
		if v.Verdict != verdict {
			t.Errorf("%s: %+v", raw, v)
		}
	}
	if v := c.Check(t.Context(), "http://10.2.0.1/", true); !strings.Contains(v.Reason, "--allow-networks") {
		t.Errorf("%+v doesn't name the setting", v)
	}
	if v := c.Check(t.Context(), "http://out.corp/", true); !strings.Contains(v.Reason, "--allow-networks") || v.Code != surehook.SSRFBlocked {
		t.Errorf("%+v doesn't name the setting", v)
	}
	for addr, verdict := range map[string]string{"10.1.2.3": "allow", "10.2.0.1": "block", "169.254.169.254": "block", "8.8.8.8": "allow"} {
		if v := c.CheckAddr(addr); v.Verdict != verdict {
			t.Errorf("%+v", v)
		}
	}
}

func TestLocalhostInsideAllowedNetworks(t *testing.T) {
	rc := newReceiver(t, nil, answering(noContent))
	c := newClient(t, Config{AllowNetworks: loopback, Resolver: resolving("nothing")})
	for _, host := range []string{"localhost", "LOCALHOST.", "app.localhost"} {
		want(t, post(t, c, strings.Replace(rc.url(), "127.0.0.1", host, 1), "{}"), "", "")
	}
}

// J-13: one blocked address among good ones is a reason, and may be repaired.
func TestJ13_LinkLocalAAAA(t *testing.T) {
	c := newClient(t, Config{Resolver: resolving("hooks.example.com", pub4, "fe80::1")})
	res := post(t, c, hooks, "{}")
	want(t, res, surehook.SSRFBlocked, "resolves to a blocked address (fe80::1: link-local)")
	if res.Code.Final() {
		t.Error("final, although DNS can be repaired")
	}
}

// J-14: our own hosts are no targets.
func TestJ14_OwnHosts(t *testing.T) {
	g := NewGuard(loopback, []string{"API.Example.com.", "127.0.0.1:8080"})
	for u, ok := range map[string]bool{
		"https://api.example.com/": false, "https://API.example.com.:8443/v1/events": false, "https://x.api.example.com/": true,
		"http://127.0.0.1:8080/v1": false, "http://127.0.0.1:8081/v1": true,
	} {
		if _, err := g.ParseURL(u); (err == nil) != ok {
			t.Errorf("%s: %v", u, err)
		}
	}
}

// Everything that we allow, the oracle allows too.
func TestOracleAgrees(t *testing.T) {
	oracle := ssrf.New(ssrf.WithAnyPort(), ssrf.WithAllowedV6Prefixes(ssrf.IPv6NAT64Prefix))
	edges := append(append([]netip.Prefix(nil), ssrf.IPv4DeniedPrefixes...), ssrf.IPv6DeniedPrefixes...)
	for _, b := range append(append(append([]block(nil), blocked4...), blocked6...), named6...) {
		edges = append(edges, b.prefix)
	}
	addr := rapid.Custom(func(t *rapid.T) netip.Addr {
		switch rapid.IntRange(0, 3).Draw(t, "kind") {
		case 0:
			return netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
		case 1:
			b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "v6")
			return netip.AddrFrom16([16]byte(b))
		case 2:
			b := rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "global")
			b[0] = 0x20 | b[0]&0x1f
			return netip.AddrFrom16([16]byte(b))
		}
		p := rapid.SampledFrom(edges).Draw(t, "prefix")
		return rapid.SampledFrom([]netip.Addr{p.Addr(), p.Addr().Prev(), lastOf(p), lastOf(p).Next()}).Draw(t, "edge")
	})
	rapid.Check(t, func(t *rapid.T) {
		a := addr.Draw(t, "address")
		if !a.IsValid() || a.Is4In6() || !IsPublic(a) {
			return
		}
		if err := oracle.SafeAddr(a); err != nil {
			t.Fatalf("%s: we allow, the oracle says %v", a, err)
		}
		if nat64.Contains(a) && oracle.SafeAddr(embedded4(a)) != nil {
			t.Fatalf("%s: what it embeds isn't allowed", a)
		}
	})
}

func TestMappedIsJudgedAsIPv4(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := netip.AddrFrom4([4]byte(rapid.SliceOfN(rapid.Byte(), 4, 4).Draw(t, "v4")))
		if IsPublic(a) != IsPublic(netip.AddrFrom16(a.As16())) {
			t.Fatalf("%s and its mapped form differ", a)
		}
	})
}

func TestInvalidAddrIsNotPublic(t *testing.T) {
	if IsPublic(netip.Addr{}) {
		t.Error("the zero Addr is public")
	}
}

func FuzzParseURL(f *testing.F) {
	for _, s := range []string{"https://hooks.example.com/in?x=1", "https://[::1]/", "https://a@b/", "http://127.0.0.1:80/", "https://b\u00fccher.example.com/\u00e9",
		"https://xn--a.example.com/", "https://1.2.3/", "HTTPS://A.B:443", "https://a.b:/", "https://a.b/%zz?%zz"} {
		f.Add(s)
	}
	strict, open := NewGuard(nil, nil), NewGuard([]netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}, nil)
	f.Fuzz(func(t *testing.T, raw string) {
		tg, err := strict.ParseURL(raw)
		if err != nil {
			var u *URLError
			if !errors.As(err, &u) || u.Reason == "" || u.Message == "" {
				t.Fatalf("%v", err)
			}
		} else {
			checkTarget(t, strict, tg)
			if tg.lifted || tg.scheme != "https" || tg.addr.IsValid() || !strings.Contains(tg.host, ".") {
				t.Fatalf("%+v", tg)
			}
		}
		if tg, err := open.ParseURL(raw); err == nil {
			checkTarget(t, open, tg)
		}
	})
}

// checkTarget holds what every accepted URL must keep.
func checkTarget(t *testing.T, g *Guard, tg *Target) {
	t.Helper()
	if strings.ContainsAny(tg.path+tg.auth, " \r\n\t\x00#") || !isASCII(tg.URL()) || !strings.HasPrefix(tg.path, "/") {
		t.Fatalf("%q can't be on a request line", tg.URL())
	}
	again, err := g.ParseURL(tg.URL())
	if len(tg.URL()) <= MaxURL && (err != nil || again.URL() != tg.URL() || again.key != tg.key) {
		t.Fatalf("%q isn't stable: %v", tg.URL(), err)
	}
}
