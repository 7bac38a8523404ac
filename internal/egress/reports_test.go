package egress

import (
	"crypto/tls"
	"net/netip"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/profile"
)

// D-08: whatever goes wrong below HTTP is tried again by default, and each kind
// is told apart from the others.
func TestD08_FailuresBelowHTTP(t *testing.T) {
	names := newNameServer(t)
	names.a("hooks.example.com", pub4)
	names.on("nxdomain.example.com", dns.TypeA, func(int) reply { return reply{rcode: dns.RcodeNameError} })
	names.on("nxdomain.example.com", dns.TypeAAAA, func(int) reply { return reply{rcode: dns.RcodeNameError} })
	names.on("servfail.example.com", dns.TypeA, func(int) reply { return reply{rcode: dns.RcodeServerFailure} })
	names.on("servfail.example.com", dns.TypeAAAA, func(int) reply { return reply{rcode: dns.RcodeServerFailure} })
	ca := newAuthority(t)
	past := ca.issue(t, time.Now().Add(-time.Minute), "hooks.example.com")
	valid := ca.serverConfig(t, "hooks.example.com")
	reset := func(p *peer) { p.request(); p.reset() }
	silent := func(p *peer) { p.request(); p.hold() }
	seen := map[string]string{}
	for _, c := range []struct {
		name   string
		url    string
		conf   *tls.Config
		script func(*peer) // nil: nobody listens
		code   surehook.Code
	}{
		{"no such name", "https://nxdomain.example.com/", nil, nil, surehook.DNS},
		{"the name server fails", "https://servfail.example.com/", nil, nil, surehook.DNS},
		{"refused", hooks, nil, nil, surehook.Connect},
		{"reset", hooks, valid, reset, surehook.Connect},
		{"no TLS", hooks, nil, func(p *peer) { p.say("220 mail\r\n") }, surehook.TLS},
		{"expired", hooks, &tls.Config{Certificates: []tls.Certificate{past}}, reset, surehook.TLS},
		{"silence", hooks, valid, silent, surehook.Timeout},
	} {
		to := closedPort(t)
		if c.script != nil {
			to = newReceiver(t, c.conf, c.script).addr()
		}
		client, _ := routed(t, Config{Resolver: names.resolver(), RootCAs: ca.pool}, map[string]netip.AddrPort{pub4: to})
		limit := patience
		if c.code == surehook.Timeout {
			limit = 300 * time.Millisecond
		}
		res := client.Do(t.Context(), &Request{Target: target(t, client, c.url), Body: []byte("{}"), Timeout: limit})
		if res.Code != c.code || res.Err == "" {
			t.Errorf("%s: code %q, %q", c.name, res.Code, res.Err)
		}
		if other, told := seen[string(res.Code)+res.Err]; told {
			t.Errorf("%s and %s are told alike: %s, %q", c.name, other, res.Code, res.Err)
		}
		seen[string(res.Code)+res.Err] = c.name
		if d := profile.Classify(profile.Standard, res.Code, res.Status); d != profile.Retry {
			t.Errorf("%s: %s", c.name, d)
		}
	}
}
