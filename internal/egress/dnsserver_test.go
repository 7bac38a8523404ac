package egress

import (
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/miekg/dns"
)

// reply is one scripted answer of the name server.
type reply struct {
	rcode int
	rrs   []string // zone-file records
	mute  bool     // no reply at all
	tc    bool     // truncated on UDP
	after <-chan struct{}
}

// nameServer is a scripted DNS server on loopback, UDP and TCP.
type nameServer struct {
	addr string

	mu    sync.Mutex
	count map[string]int               // "name. A" → queries, TCP repeats not counted
	say   map[string]func(n int) reply // n counts from 1
	seen  []string                     // every question
	wake  map[string][]chan<- struct{} // told once a question has come
	wg    sync.WaitGroup
	gone  chan struct{}
	stops []func() error
}

func newNameServer(t *testing.T) *nameServer {
	t.Helper()
	s := &nameServer{count: map[string]int{}, say: map[string]func(int) reply{},
		wake: map[string][]chan<- struct{}{}, gone: make(chan struct{})}
	pc, ln := samePort(t)
	s.addr = pc.LocalAddr().String()
	for _, srv := range []*dns.Server{{PacketConn: pc, Handler: s}, {Listener: ln, Handler: s}} {
		started := make(chan struct{})
		srv.NotifyStartedFunc = func() { close(started) }
		s.wg.Add(1)
		go func() {
			defer s.wg.Done()
			_ = srv.ActivateAndServe()
		}()
		<-started
		s.stops = append(s.stops, srv.Shutdown)
	}
	t.Cleanup(func() {
		close(s.gone)
		for _, stop := range s.stops {
			_ = stop()
		}
		s.wg.Wait()
	})
	return s
}

// samePort listens on one port by UDP and TCP. A free port for one may be
// taken for the other.
func samePort(t *testing.T) (net.PacketConn, net.Listener) {
	t.Helper()
	var last error
	for range 50 {
		pc, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ln, err := net.Listen("tcp", pc.LocalAddr().String())
		if err == nil {
			return pc, ln
		}
		last = err
		_ = pc.Close()
	}
	t.Fatal(last)
	return nil, nil
}

func question(name string, qtype uint16) string {
	return strings.ToLower(dns.Fqdn(name)) + " " + dns.TypeToString[qtype]
}

// on scripts the answers to one question; without a script it's NOERROR
// without data.
func (s *nameServer) on(name string, qtype uint16, f func(n int) reply) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.say[question(name, qtype)] = f
}

// a scripts a fixed answer of addresses.
func (s *nameServer) a(name string, addrs ...string) {
	v4, v6 := reply{}, reply{}
	for _, a := range addrs {
		if strings.Contains(a, ":") {
			v6.rrs = append(v6.rrs, dns.Fqdn(name)+" 0 IN AAAA "+a)
		} else {
			v4.rrs = append(v4.rrs, dns.Fqdn(name)+" 0 IN A "+a)
		}
	}
	s.on(name, dns.TypeA, func(int) reply { return v4 })
	s.on(name, dns.TypeAAAA, func(int) reply { return v6 })
}

func (s *nameServer) queries(name string, qtype uint16) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.count[question(name, qtype)]
}

func (s *nameServer) questions() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]string(nil), s.seen...)
}

func (s *nameServer) ServeDNS(w dns.ResponseWriter, m *dns.Msg) {
	q := question(m.Question[0].Name, m.Question[0].Qtype)
	udp := w.RemoteAddr().Network() == "udp"
	s.mu.Lock()
	s.seen = append(s.seen, q)
	if udp {
		s.count[q]++
	}
	n, f := s.count[q], s.say[q]
	for _, c := range s.wake[q] {
		close(c)
	}
	delete(s.wake, q)
	s.mu.Unlock()

	r := reply{}
	if f != nil {
		r = f(n)
	}
	if r.after != nil {
		select {
		case <-r.after:
		case <-s.gone:
			return
		}
	}
	if r.mute {
		return
	}
	out := new(dns.Msg)
	out.SetRcode(m, r.rcode)
	out.RecursionAvailable = true
	if r.tc && udp {
		out.Truncated = true
	} else {
		for _, text := range r.rrs {
			rr, err := parseRR(text)
			if err != nil {
				panic(err)
			}
			out.Answer = append(out.Answer, rr)
		}
	}
	_ = w.WriteMsg(out)
}

// parseRR keeps mapped addresses, which the zone-file reader refuses or folds.
func parseRR(text string) (dns.RR, error) {
	if f := strings.Fields(text); len(f) == 5 && f[3] == "AAAA" {
		a, err := netip.ParseAddr(f[4])
		if err != nil {
			return nil, err
		}
		b := a.As16()
		return &dns.AAAA{Hdr: dns.RR_Header{Name: f[0], Rrtype: dns.TypeAAAA, Class: dns.ClassINET}, AAAA: b[:]}, nil
	}
	return dns.NewRR(text)
}

// asked returns a channel that closes when the question next comes in.
func (s *nameServer) asked(name string, qtype uint16) <-chan struct{} {
	c := make(chan struct{})
	s.mu.Lock()
	defer s.mu.Unlock()
	q := question(name, qtype)
	s.wake[q] = append(s.wake[q], c)
	return c
}

// resolver is the production resolver, pointed at this server.
func (s *nameServer) resolver() Resolver { return systemResolver(s.addr) }
