package egress

import (
	"strings"

	"golang.org/x/net/idna"
)

// Names are validated, never mapped: a mapping turns full-width digits into an
// address and drops invisible characters, so what a person registered and
// what would be resolved could differ.
var names = idna.New(
	idna.ValidateLabels(true),
	idna.VerifyDNSLength(true),
	idna.CheckHyphens(false),
	idna.CheckJoiners(true),
	idna.BidiRule(),
)

// canonicalName returns the host in lower case and in A-labels, without the
// root's dot.
func canonicalName(host string) (string, error) {
	bad := refuse("host", "the host is not a valid name")
	host = strings.ToLower(host)
	if !isASCII(host) || strings.Contains(host, "xn--") {
		ascii, err := names.ToASCII(strings.TrimSuffix(host, "."))
		if err != nil {
			return "", bad
		}
		back, err := names.ToUnicode(ascii)
		if err != nil || !sameName(back, strings.TrimSuffix(host, "."), ascii) {
			return "", bad
		}
		host = ascii
	} else {
		host = strings.TrimSuffix(host, ".")
	}
	if len(host) > 253 {
		return "", bad
	}
	last := ""
	for label := range strings.SplitSeq(host, ".") {
		if !validLabel(label) {
			return "", bad
		}
		last = label
	}
	if numeric(last) {
		return "", refuse("numeric_host", "the host is a number; use a host name")
	}
	return host, nil
}

// sameName reports whether a name survived the way to A-labels and back.
func sameName(unicode, given, ascii string) bool {
	return unicode == given || ascii == given
}

func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] >= 0x80 {
			return false
		}
	}
	return true
}

// validLabel allows the underscore, which real receivers have.
func validLabel(l string) bool {
	if l == "" || len(l) > 63 || l[0] == '-' || l[len(l)-1] == '-' {
		return false
	}
	for i := range len(l) {
		c := l[i]
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	if enc, ok := strings.CutPrefix(l, "xn--"); ok {
		// An A-label without any encoded character stands for plain ASCII.
		return enc != "" && !strings.HasSuffix(enc, "-")
	}
	return true
}

// numeric reports whether some C library would read a name ending in l as an
// IPv4 address, in whatever notation.
func numeric(l string) bool {
	digits := "0123456789"
	if h, ok := strings.CutPrefix(l, "0x"); ok {
		l, digits = h, "0123456789abcdef"
	}
	return strings.Trim(l, digits) == ""
}

// Suffixes that are special-use, private by convention, or only meaningful
// inside one machine, cluster or cloud.
var localSuffixes = []string{
	"localhost", "local", "internal", "invalid", "test", "example", "onion", "alt", "arpa",
	"localdomain", "intranet", "private", "corp", "home", "lan", "mail", "svc", "consul",
	"metadata.goog",
}

func refusedName(host string) error {
	if !strings.Contains(host, ".") {
		return refuse("single_label", "the host is a single label, which only a local network can resolve")
	}
	for _, s := range localSuffixes {
		if rest, ok := strings.CutSuffix(host, s); ok && (rest == "" || rest[len(rest)-1] == '.') {
			return refuse("local_name", "the host name is reserved for local use")
		}
	}
	return nil
}

// isLocalhost tells the names that never need a resolver.
func isLocalhost(host string) bool {
	return host == "localhost" || strings.HasSuffix(host, ".localhost")
}
