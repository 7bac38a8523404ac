package egress

import (
	"encoding/binary"
	"net/netip"
)

// block is one range that is never a receiver's address.
type block struct {
	prefix netip.Prefix
	reason string
}

func blocks(pairs ...string) []block {
	list := make([]block, 0, len(pairs)/2)
	for i := 0; i < len(pairs); i += 2 {
		list = append(list, block{netip.MustParsePrefix(pairs[i]), pairs[i+1]})
	}
	return list
}

// The IANA IPv4 special-purpose registry, plus multicast, and one cloud
// provider's control address inside ordinary space.
var blocked4 = blocks(
	"0.0.0.0/8", "this network",
	"10.0.0.0/8", "private network",
	"100.64.0.0/10", "carrier-grade NAT",
	"127.0.0.0/8", "loopback",
	"169.254.0.0/16", "link-local",
	"172.16.0.0/12", "private network",
	"192.0.0.0/24", "IETF protocol assignments",
	"192.0.2.0/24", "documentation",
	"192.31.196.0/24", "AS112 anycast",
	"192.52.193.0/24", "AMT anycast",
	"192.88.99.0/24", "6to4 relay anycast",
	"192.168.0.0/16", "private network",
	"192.175.48.0/24", "AS112 anycast",
	"198.18.0.0/15", "benchmarking",
	"198.51.100.0/24", "documentation",
	"203.0.113.0/24", "documentation",
	"224.0.0.0/4", "multicast",
	"240.0.0.0/4", "reserved",
	"168.63.129.16/32", "Azure control address",
)

// Global unicast is the only IPv6 space that's assigned to be routed; these
// are the special blocks inside it.
var (
	globalUnicast = netip.MustParsePrefix("2000::/3")
	blocked6      = blocks(
		"2001::/32", "Teredo",
		"2001::/23", "IETF protocol assignments",
		"2001:db8::/32", "documentation",
		"2002::/16", "6to4",
		"2620:4f:8000::/48", "AS112 anycast",
		"3fff::/20", "documentation",
	)
)

// Ranges outside global unicast are blocked as a whole; these names only make
// the reason readable.
var named6 = blocks(
	"::1/128", "loopback",
	"::/128", "unspecified",
	"::/96", "IPv4-compatible",
	"::ffff:0:0:0/96", "IPv4-translated",
	"64:ff9b:1::/48", "local-use NAT64",
	"100::/64", "discard-only",
	"5f00::/16", "segment routing",
	"fc00::/7", "unique local",
	"fe80::/10", "link-local",
	"fec0::/10", "site-local",
	"ff00::/8", "multicast",
)

// nat64 is the well-known prefix that DNS64 puts before an IPv4 address on
// networks without IPv4. What counts is the IPv4 address behind it.
var nat64 = netip.MustParsePrefix("64:ff9b::/96")

// IsPublic reports whether a is an address that a receiver may have. It fails
// closed: the zero Addr and zoned addresses aren't public.
func IsPublic(a netip.Addr) bool { return Blocked(a) == "" }

// Blocked says why a isn't a public address; empty means that it is.
func Blocked(a netip.Addr) string {
	switch {
	case !a.IsValid():
		return "not an address"
	case a.Zone() != "":
		// A zone hides an address from Prefix.Contains, and no public
		// address has one.
		return "zoned address"
	}
	a = a.Unmap()
	if nat64.Contains(a) {
		a = embedded4(a)
	}
	if a.Is4() {
		return find(blocked4, a)
	}
	if !globalUnicast.Contains(a) {
		if reason := find(named6, a); reason != "" {
			return reason
		}
		return "outside global unicast"
	}
	return find(blocked6, a)
}

func find(list []block, a netip.Addr) string {
	for i := range list {
		if list[i].prefix.Contains(a) {
			return list[i].reason
		}
	}
	return ""
}

// embedded4 takes the IPv4 address from the last 32 bits.
func embedded4(a netip.Addr) netip.Addr {
	b := a.As16()
	var v [4]byte
	binary.BigEndian.PutUint32(v[:], binary.BigEndian.Uint32(b[12:]))
	return netip.AddrFrom4(v)
}
