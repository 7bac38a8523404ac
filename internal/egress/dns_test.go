package egress

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/miekg/dns"

	"github.com/surehook/surehook"
)

const pub4, pub6 = "93.184.215.14", "2606:4700:4700::1111"

// scriptRows puts every row of ssrf_dns.tsv on the server and returns the
// names in it.
func scriptRows(t *testing.T, s *nameServer, slow <-chan struct{}) []string {
	t.Helper()
	type rule struct {
		when func(n int) bool
		r    reply
	}
	rules := map[string][]rule{}
	var names []string
	for _, f := range lines(t, "testdata/ssrf_dns.tsv", 6) {
		name, types, r := f[0], []string{f[1]}, parseReply(t, f[0], f[1], f[3], slow)
		if f[1] == "*" {
			types = []string{"A", "AAAA"}
		}
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
		for _, ty := range types {
			q := question(name, dns.StringToType[ty])
			rules[q] = append(rules[q], rule{parseNth(t, f[2]), r})
		}
	}
	for q, list := range rules {
		name, ty, _ := strings.Cut(q, " ")
		s.on(name, dns.StringToType[ty], func(n int) reply {
			for _, r := range list {
				if r.when(n) {
					return r.r
				}
			}
			return reply{}
		})
	}
	return names
}

func parseNth(t *testing.T, s string) func(int) bool {
	t.Helper()
	switch first, _, _ := strings.Cut(s, " "); first {
	case "*":
		return func(int) bool { return true }
	case "1":
		return func(n int) bool { return n == 1 }
	case "2+":
		return func(n int) bool { return n >= 2 }
	case "odd":
		return func(n int) bool { return n%2 == 1 }
	case "even":
		return func(n int) bool { return n%2 == 0 }
	}
	t.Fatalf("unknown nth_query %q", s)
	return nil
}

var plainAddrs = regexp.MustCompile(`^[0-9a-f.:,]+( \(both orders\)| \(blackholed\))?$`)

func parseReply(t *testing.T, name, ty, s string, slow <-chan struct{}) reply {
	t.Helper()
	rr := func(owner, ty, data string) string { return dns.Fqdn(owner) + " 0 IN " + ty + " " + data }
	var r reply
	switch {
	case plainAddrs.MatchString(s):
		list, _, _ := strings.Cut(s, " ")
		for a := range strings.SplitSeq(list, ",") {
			r.rrs = append(r.rrs, rr(name, ty, a))
		}
	case s == "(empty NOERROR)", s == "NOERROR no data":
	case s == "NXDOMAIN", s == "10.96.0.1 only via search domain":
		r.rcode = dns.RcodeNameError
	case s == "SERVFAIL":
		r.rcode = dns.RcodeServerFailure
	case s == "(no reply)":
		r.mute = true
	case s == "CNAME to itself":
		r.rrs = []string{rr(name, "CNAME", dns.Fqdn(name))}
	case s == "8 CNAMEs then A 10.0.0.5":
		owner := name
		for i := range 8 {
			next := fmt.Sprintf("hop%d.example.net", i)
			r.rrs = append(r.rrs, rr(owner, "CNAME", dns.Fqdn(next)))
			owner = next
		}
		r.rrs = append(r.rrs, rr(owner, "A", "10.0.0.5"))
	case strings.HasPrefix(s, "CNAME "):
		to, addr, ok := strings.Cut(strings.TrimPrefix(s, "CNAME "), " ; A ")
		if !ok {
			t.Fatalf("unknown answer %q", s)
		}
		r.rrs = []string{rr(name, "CNAME", to), rr(to, "A", addr)}
	case s == "A other.example.net 127.0.0.1":
		r.rrs = []string{rr("other.example.net", "A", "127.0.0.1")}
	case s == "20 public + 10.0.0.5 last":
		for i := range 20 {
			r.rrs = append(r.rrs, rr(name, "A", "93.184.215."+strconv.Itoa(i+1)))
		}
		r.rrs = append(r.rrs, rr(name, "A", "10.0.0.5"))
	case s == "93.184.215.14 after 3 s":
		r.rrs, r.after = []string{rr(name, "A", pub4)}, slow
	case s == "TC=1 on UDP, A 10.0.0.5 on TCP":
		r.rrs, r.tc = []string{rr(name, "A", "10.0.0.5")}, true
	default:
		t.Fatalf("unknown answer %q", s)
	}
	return r
}

// world is a name server with all rows, a TLS receiver for every public name,
// and a client that reaches it only at the two public addresses.
type world struct {
	dns    *nameServer
	rc     *receiver
	client *Client
	routes *routes
	sni    chan string
	slow   chan struct{}
	names  []string
}

func newWorld(t *testing.T, script func(*peer)) *world {
	t.Helper()
	w := &world{sni: make(chan string, 100), slow: make(chan struct{})}
	ca := newAuthority(t)
	conf := ca.serverConfig(t, "*.example.com")
	conf.GetConfigForClient = func(h *tls.ClientHelloInfo) (*tls.Config, error) {
		w.sni <- h.ServerName
		return nil, nil
	}
	w.dns = newNameServer(t)
	w.names = scriptRows(t, w.dns, w.slow)
	w.rc = newReceiver(t, conf, script)
	w.client, w.routes = routed(t, Config{Resolver: w.dns.resolver(), RootCAs: ca.pool},
		map[string]netip.AddrPort{pub4: w.rc.addr(), pub6: w.rc.addr()})
	return w
}

func (w *world) post(t *testing.T, host string) Result {
	t.Helper()
	return w.client.Do(t.Context(), &Request{Target: target(t, w.client, "https://"+host+"/in"), Body: []byte("{}"),
		Timeout: patience, ConnectTimeout: patience})
}

// expectations of the rows by name: what one attempt ends in. Names that need
// more have tests of their own and are listed with an empty note.
var dnsExpect = map[string]struct {
	code surehook.Code
	text string
}{
	"hooks.example.com":         {"", ""},
	"v6only.example.com":        {"", ""},
	"dual.example.com":          {"", ""},
	"rebind.example.com":        {"", ""},
	"rebind-alt.example.com":    {"", ""},
	"reg-then-flip.example.com": {"", ""},
	"mixed.example.com":         {surehook.SSRFBlocked, "127.0.0.1: loopback"},
	"v4pub-v6priv.example.com":  {surehook.SSRFBlocked, "fd00::1: unique local"},
	"v4priv-v6pub.example.com":  {surehook.SSRFBlocked, "10.0.0.5: private"},
	"mapped-aaaa.example.com":   {surehook.SSRFBlocked, "IPv4-mapped"},
	"compat-aaaa.example.com":   {surehook.SSRFBlocked, "::7f00:1"},
	"nat64-aaaa.example.com":    {surehook.SSRFBlocked, "64:ff9b::a9fe:a9fe: link-local"},
	"6to4-aaaa.example.com":     {surehook.SSRFBlocked, "6to4"},
	"cname-int.example.com":     {surehook.SSRFBlocked, "169.254.169.254: link-local"},
	"cname-chain.example.com":   {surehook.SSRFBlocked, "10.0.0.5"},
	"cname-loop.example.com":    {surehook.DNS, "no such host"},
	"cname-pub.example.com":     {"", ""},
	"wrong-owner.example.com":   {surehook.SSRFBlocked, "127.0.0.1"},
	"many.example.com":          {surehook.SSRFBlocked, "10.0.0.5"},
	"zero.example.com":          {surehook.SSRFBlocked, "0.0.0.0"},
	"azure.example.com":         {surehook.SSRFBlocked, "168.63.129.16: Azure"},
	"nx.example.com":            {surehook.DNS, "no such host"},
	"servfail.example.com":      {surehook.DNS, "name server failed"},
	"empty.example.com":         {surehook.DNS, "no address"},
	"blackhole.example.com":     {surehook.DNS, "didn't answer"},
	"slow.example.com":          {surehook.Timeout, "resolving"},
	"truncated.example.com":     {surehook.SSRFBlocked, "10.0.0.5"},
	"aaaa-servfail.example.com": {"", ""},
	"aaaa-timeout.example.com":  {surehook.DNS, "didn't answer"},
	"kubernetes.default.svc":    {surehook.InvalidURL, ""}, // refused by name; see TestSearchDomainsAreNeverAsked
}

func TestRowsDNS(t *testing.T) {
	w := newWorld(t, answering(noContent))
	for _, name := range w.names {
		exp, ok := dnsExpect[name]
		if !ok {
			t.Errorf("%s: no expectation", name)
			continue
		}
		t.Run(name, func(t *testing.T) {
			raw := "https://" + name + "/in"
			if exp.code == surehook.InvalidURL {
				if v := w.client.Check(t.Context(), raw, true); v.Code != exp.code {
					t.Errorf("%+v", v)
				}
				return
			}
			r := &Request{Target: target(t, w.client, raw), Timeout: patience, ConnectTimeout: patience}
			switch name {
			case "blackhole.example.com", "aaaa-timeout.example.com":
				r.ConnectTimeout = 100 * time.Millisecond // bounds the look-up
			case "slow.example.com":
				r.Timeout = 100 * time.Millisecond
			}
			before := len(w.routes.dialled())
			res := w.client.Do(t.Context(), r)
			want(t, res, exp.code, exp.text)
			if res.Code != "" {
				if len(w.routes.dialled()) != before {
					t.Error("it dialled")
				}
				return
			}
			if sni := <-w.sni; sni != name {
				t.Errorf("SNI %q", sni)
			}
			if ip := res.Remote.Addr().String(); ip != pub4 && ip != pub6 {
				t.Errorf("connected to %s", ip)
			}
		})
	}
	for _, got := range w.rc.requests() {
		if !strings.Contains(got, "\r\nHost: ") || !strings.HasPrefix(got, "POST /in HTTP/1.1\r\n") {
			t.Errorf("got %q", got)
		}
	}
}

// The dns- rows of ssrf.tsv, by Check and by a real attempt.
func TestRowsResolve(t *testing.T) {
	w := newWorld(t, answering(noContent))
	fixture := regexp.MustCompile(`fixture answer ([^;]+);`)
	ran := 0
	for _, r := range rows(t) {
		if !strings.HasPrefix(r.id, "dns-") {
			continue
		}
		ran++
		t.Run(r.id, func(t *testing.T) {
			tg := target(t, w.client, r.input)
			if m := fixture.FindStringSubmatch(r.reason); m != nil {
				w.dns.a(tg.Host(), strings.Split(m[1], " / ")...)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			if strings.Contains(tg.Host(), "timeout") || strings.Contains(tg.Host(), "blackhole") {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
			}
			defer cancel()
			if v := w.client.Check(ctx, r.input, true); v.Verdict != r.verdict {
				t.Errorf("Check: %+v, want %s (%s)", v, r.verdict, r.reason)
			}
			res := w.client.Do(ctx, &Request{Target: tg, ConnectTimeout: patience})
			if (res.Code == "") != (r.verdict == "allow") {
				t.Errorf("Do: %q %s, want %s (%s)", res.Code, res.Err, r.verdict, r.reason)
			}
		})
	}
	if ran < 15 {
		t.Errorf("only %d rows", ran)
	}
}

func TestOneLookupPerAttempt(t *testing.T) {
	w := newWorld(t, answering(noContent))
	const host = "rebind.example.com"
	want(t, w.post(t, host), "", "")
	if a, aaaa := w.dns.queries(host, dns.TypeA), w.dns.queries(host, dns.TypeAAAA); a != 1 || aaaa != 1 {
		t.Errorf("%d A and %d AAAA queries in one attempt", a, aaaa)
	}
	if d := w.routes.dialled(); len(d) != 1 || d[0].String() != pub4+":443" {
		t.Errorf("dialled %v", d)
	}
	want(t, w.post(t, host), surehook.SSRFBlocked, "127.0.0.1: loopback")
}

func TestRebindingDoesNotRideThePool(t *testing.T) {
	w := newWorld(t, answering(noContent))
	const host = "rebind-alt.example.com"
	want(t, w.post(t, host), "", "")
	want(t, w.post(t, host), surehook.SSRFBlocked, "10.0.0.5")
	if res := w.post(t, host); res.Code != "" || !res.Reused {
		t.Errorf("the pooled connection serves again when its address is back: %+v", res)
	}
	if n := len(w.rc.requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestFlipAfterRegistration(t *testing.T) {
	w := newWorld(t, answering(noContent))
	const host = "reg-then-flip.example.com"
	if v := w.client.Check(t.Context(), "https://"+host+"/", true); v.Verdict != "allow" {
		t.Fatalf("%+v", v)
	}
	want(t, w.post(t, host), surehook.SSRFBlocked, "169.254.169.254")
}

func TestSearchDomainsAreNeverAsked(t *testing.T) {
	w := newWorld(t, answering(noContent))
	if _, err := w.client.dns.lookup(t.Context(), "kubernetes.default.svc"); err == nil {
		t.Error("resolved")
	}
	for _, q := range w.dns.questions() {
		if !strings.HasPrefix(q, "kubernetes.default.svc. ") {
			t.Errorf("asked %q", q)
		}
	}
}

func TestSlowAnswerCountsAgainstTheDeadline(t *testing.T) {
	w := newWorld(t, answering(noContent))
	asked := w.dns.asked("slow.example.com", dns.TypeA)
	go func() {
		<-asked
		close(w.slow)
	}()
	res := w.post(t, "slow.example.com")
	want(t, res, "", "")
	if res.Phases.Resolve <= 0 || res.Phases.Resolve > res.Phases.Total {
		t.Errorf("phases %+v", res.Phases)
	}
}
