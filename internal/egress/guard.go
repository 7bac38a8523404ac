package egress

import (
	"net/netip"
	"strings"
)

// Guard holds the operator's two settings that bear on what may be reached.
// It keeps no state and opens nothing.
type Guard struct {
	allow []netip.Prefix
	own   map[string]bool
}

// NewGuard makes a guard. allow are networks that development may reach
// although they aren't public; own are our own API and console hosts, as
// "host" or "host:port".
func NewGuard(allow []netip.Prefix, own []string) *Guard {
	g := &Guard{own: make(map[string]bool, len(own))}
	for _, p := range allow {
		if p.IsValid() {
			g.allow = append(g.allow, p.Masked())
		}
	}
	for _, h := range own {
		h = strings.TrimSuffix(strings.ToLower(strings.TrimSpace(h)), ".")
		if h != "" {
			g.own[h] = true
		}
	}
	return g
}

func (g *Guard) allowed(a netip.Addr) bool {
	if a.Zone() != "" {
		return false
	}
	a = a.Unmap()
	for _, p := range g.allow {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// judge says why a may not be dialled for t; empty means that it may.
func (g *Guard) judge(a netip.Addr, lifted bool) string {
	if len(g.allow) > 0 && g.allowed(a) {
		return ""
	}
	if lifted {
		// The URL itself was accepted only because of the setting, so the
		// setting's networks are all that it can reach.
		return "outside the allowed networks"
	}
	return Blocked(a)
}

// BlockedError is the guard's refusal of an address.
type BlockedError struct {
	Addr   netip.Addr
	Reason string
	Hint   bool // an allowed network would lift it
}

func (e *BlockedError) Error() string {
	text := "resolves to a blocked address (" + e.Reason + ")"
	if e.Addr.IsValid() {
		text = "resolves to a blocked address (" + e.Addr.String() + ": " + e.Reason + ")"
	}
	if e.Hint {
		text += "; see --allow-networks"
	}
	return text
}

// judgeAll refuses a whole answer for one bad address: picking the good ones
// would leave the choice of the moment to whoever runs the zone.
func (g *Guard) judgeAll(addrs []netip.Addr, lifted bool) error {
	for _, a := range addrs {
		if reason := g.judge(a, lifted); reason != "" {
			return &BlockedError{Addr: a, Reason: reason, Hint: len(g.allow) > 0}
		}
	}
	return nil
}
