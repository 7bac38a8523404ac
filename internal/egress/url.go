package egress

import (
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode/utf8"
)

// MaxURL bounds a URL, in bytes.
const MaxURL = 2048

// URLError is the guard's refusal of a URL. It never holds any part of it.
type URLError struct {
	Reason  string // a stable slug
	Message string // for people
}

func (e *URLError) Error() string { return e.Message }

func refuse(reason, message string) error { return &URLError{reason, message} }

// Target is a URL that passed the rules, in canonical form. Parse once per
// endpoint version and reuse: it's immutable.
type Target struct {
	scheme string
	host   string     // lower case, A-labels, no trailing dot, no brackets
	addr   netip.Addr // the IP literal, if host is one
	port   uint16
	auth   string // what goes into Host: host, and the port unless it's the default
	path   string // path and query, byte for byte
	key    string // of the connection pool
	head   string // the first lines of an HTTP/1.1 request
	lifted bool   // accepted only because of the allowed networks
}

// Host returns the host name, which is all that logs may show.
func (t *Target) Host() string { return t.host }

// Port returns the port.
func (t *Target) Port() int { return int(t.port) }

// URL returns the canonical URL. It may hold a secret: store it, don't log it.
func (t *Target) URL() string { return t.scheme + "://" + t.auth + t.path }

// String shows the scheme and the authority only, so that printing a target
// can't leak a token.
func (t *Target) String() string { return t.scheme + "://" + t.auth }

// GoString keeps %#v from leaking what String hides.
func (t *Target) GoString() string { return "egress.Target(" + t.String() + ")" }

// ParseURL applies the rules that need no look-up. Its error is a *URLError.
func (g *Guard) ParseURL(raw string) (*Target, error) {
	if err := checkBytes(raw); err != nil {
		return nil, err
	}
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return nil, refuse("scheme", "the URL must start with https://")
	}
	t := &Target{scheme: strings.ToLower(scheme), port: 443}
	switch {
	case t.scheme == "https":
	case t.scheme == "http" && len(g.allow) > 0:
		t.port, t.lifted = 80, true
	default:
		return nil, refuse("scheme", "the URL must start with https://")
	}
	end := strings.IndexAny(rest, "/?")
	if end < 0 {
		end = len(rest)
	}
	if err := g.authority(t, rest[:end]); err != nil {
		return nil, err
	}
	t.path = escape(rest[end:])
	if !strings.HasPrefix(t.path, "/") {
		t.path = "/" + t.path
	}
	return t, g.finish(t)
}

// checkBytes refuses what parsers are known to disagree about.
func checkBytes(raw string) error {
	switch {
	case raw == "":
		return refuse("empty", "the URL is empty")
	case len(raw) > MaxURL:
		return refuse("too_long", "the URL is longer than 2048 bytes")
	case !utf8.ValidString(raw):
		return refuse("encoding", "the URL isn't valid UTF-8")
	}
	for i := range len(raw) {
		switch c := raw[i]; {
		case c <= ' ' || c == 0x7f:
			return refuse("control", "the URL holds a space or a control character")
		case c == '\\':
			return refuse("backslash", "the URL holds a backslash")
		case c == '#':
			return refuse("fragment", "the URL has a fragment, which is never sent; remove it")
		}
	}
	return nil
}

func (g *Guard) authority(t *Target, auth string) error {
	switch {
	case auth == "":
		return refuse("no_host", "the URL has no host")
	case strings.Contains(auth, "@"):
		return refuse("userinfo", "the URL holds a user name or password; set a header instead")
	case strings.Contains(auth, "%"):
		return refuse("host", "the host holds a percent sign")
	}
	host, port, bracketed, err := splitPort(auth)
	if err != nil {
		return err
	}
	if port != "" {
		n, err := parsePort(port)
		if err != nil {
			return err
		}
		t.port = n
	}
	if err := g.host(t, host, bracketed); err != nil {
		return err
	}
	if t.scheme == "https" && !portAllowed(t.port) {
		if len(g.allow) == 0 {
			return refuse("port", "the port must be 443 or 1024–65535, and not one of a known service")
		}
		t.lifted = true
	}
	return nil
}

func splitPort(auth string) (host, port string, bracketed bool, err error) {
	bad := refuse("host", "the host is malformed")
	if auth[0] == '[' {
		host, rest, ok := strings.Cut(auth[1:], "]")
		if !ok || rest != "" && rest[0] != ':' {
			return "", "", true, bad
		}
		return host, strings.TrimPrefix(rest, ":"), true, nil
	}
	if strings.ContainsAny(auth, "[]") || strings.Count(auth, ":") > 1 {
		return "", "", false, bad
	}
	host, port, _ = strings.Cut(auth, ":")
	return host, port, false, nil
}

func parsePort(s string) (uint16, error) {
	bad := refuse("port", "the port is not a number from 1 to 65535")
	if s[0] == '0' || len(s) > 5 {
		return 0, bad
	}
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return 0, bad
		}
	}
	n, err := strconv.ParseUint(s, 10, 16)
	if err != nil {
		return 0, bad
	}
	return uint16(n), nil
}

// Ports from 1024 up that speak for themselves: a POST sent there is an attack
// on a service, never a webhook.
var servicePorts = map[uint16]bool{
	1433: true, 1521: true, 2049: true, 2375: true, 2376: true, 2379: true, 2380: true,
	3306: true, 3389: true, 5432: true, 5672: true, 5900: true, 5984: true, 6379: true,
	6443: true, 6667: true, 8500: true, 9042: true, 9092: true, 9200: true, 9300: true,
	10250: true, 10255: true, 11211: true, 27017: true, 32526: true,
}

func portAllowed(p uint16) bool { return p == 443 || p >= 1024 && !servicePorts[p] }

// host fills in the host: an IP literal, or a name.
func (g *Guard) host(t *Target, host string, bracketed bool) error {
	if host == "" {
		return refuse("no_host", "the URL has no host")
	}
	addr, err := netip.ParseAddr(host)
	if bracketed != (err == nil && addr.Is6()) {
		return refuse("host", "the host is malformed")
	}
	if err == nil {
		return g.literal(t, addr)
	}
	t.host, err = canonicalName(host)
	if err != nil {
		return err
	}
	t.auth = t.host
	if err := refusedName(t.host); err != nil {
		if len(g.allow) == 0 {
			return err
		}
		t.lifted = true
	}
	return nil
}

func (g *Guard) literal(t *Target, addr netip.Addr) error {
	switch {
	case len(g.allow) == 0:
		return refuse("ip_literal", "the host is an IP address; use a host name")
	case addr.Is4In6() || !g.allowed(addr):
		return refuse("ip_literal", "the host is an IP address outside the allowed networks (--allow-networks)")
	}
	t.addr, t.host, t.auth, t.lifted = addr, addr.String(), addr.String(), true
	if addr.Is6() {
		t.auth = "[" + t.auth + "]"
	}
	return nil
}

// finish derives what every attempt needs, and holds our reading of the URL
// against the standard library's.
func (g *Guard) finish(t *Target) error {
	port := strconv.Itoa(int(t.port))
	if g.own[t.host] || g.own[t.auth+":"+port] {
		return refuse("own_host", "the URL points at this service itself")
	}
	t.key = t.scheme + "://" + t.auth + ":" + port
	if t.scheme == "https" && t.port != 443 || t.scheme == "http" && t.port != 80 {
		t.auth += ":" + port
	}
	u, err := url.Parse(t.URL())
	if err != nil || u.Host != t.auth || u.User != nil || u.Scheme != t.scheme || u.Hostname() != t.host {
		return refuse("malformed", "the URL is malformed")
	}
	t.head = "POST " + t.path + " HTTP/1.1\r\nHost: " + t.auth + "\r\n"
	return nil
}

// escape percent-encodes what can't be on a request line; everything that can
// stays as it was registered.
func escape(s string) string {
	i := 0
	for i < len(s) && s[i] < utf8.RuneSelf {
		i++
	}
	if i == len(s) {
		return s
	}
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < utf8.RuneSelf {
			b.WriteByte(c)
		} else {
			b.Write([]byte{'%', hex[c>>4], hex[c&15]})
		}
	}
	return b.String()
}
