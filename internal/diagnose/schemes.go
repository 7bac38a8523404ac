package diagnose

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/surehook/surehook/signing"
)

// scheme is how one kind of sender signs.
type scheme struct {
	id, ts, sig string // header names; empty: it has none
	prefix      string // of a signature
	encode      func(mac []byte) string
	head        func(id, ts string) string // what is signed before the body
	textKey     bool                       // the secret's text is the key
	verify      func(in Input, tolerance time.Duration) error
}

var schemes = map[string]scheme{
	"standard": {id: signing.HeaderID, ts: signing.HeaderTimestamp, sig: signing.HeaderSignature, prefix: "v1,", encode: b64,
		head: func(id, ts string) string { return id + "." + ts + "." }, verify: verifyStandard},
	"purple-wolf": {ts: signing.PurpleWolfTimestamp, sig: signing.PurpleWolfSignature, prefix: "sha256=", encode: hex.EncodeToString, textKey: true,
		head: func(_, ts string) string { return ts + "." }, verify: func(in Input, tol time.Duration) error {
			return withRaw(in, func(k []signing.Secret) error {
				return signing.VerifyPurpleWolf(k, in.Header.Get(signing.PurpleWolfSignature), in.Header.Get(signing.PurpleWolfTimestamp), in.Body, in.Now, tol)
			})
		}},
	"github": {sig: signing.GitHubSignature, prefix: "sha256=", encode: hex.EncodeToString, textKey: true, head: func(_, _ string) string { return "" },
		verify: func(in Input, _ time.Duration) error {
			return withRaw(in, func(k []signing.Secret) error {
				return signing.VerifyGitHub(k, in.Header.Get(signing.GitHubSignature), in.Body)
			})
		}},
	"stripe": {ts: stripeTime, sig: signing.StripeSignature, prefix: "v1=", encode: hex.EncodeToString, textKey: true, head: func(_, ts string) string { return ts + "." },
		verify: func(in Input, tol time.Duration) error {
			return withRaw(in, func(k []signing.Secret) error {
				return signing.VerifyStripe(k, in.Header.Get(signing.StripeSignature), in.Body, in.Now, tol)
			})
		}},
	"shopify": {sig: signing.ShopifySignature, encode: b64, textKey: true, head: func(_, _ string) string { return "" },
		verify: func(in Input, _ time.Duration) error {
			return withRaw(in, func(k []signing.Secret) error {
				return signing.VerifyShopify(k, in.Header.Get(signing.ShopifySignature), in.Body)
			})
		}},
	"slack": {ts: signing.SlackTimestamp, sig: signing.SlackSignature, prefix: "v0=", encode: hex.EncodeToString, textKey: true,
		head: func(_, ts string) string { return "v0:" + ts + ":" }, verify: func(in Input, tol time.Duration) error {
			return withRaw(in, func(k []signing.Secret) error {
				return signing.VerifySlack(k, in.Header.Get(signing.SlackSignature), in.Header.Get(signing.SlackTimestamp), in.Body, in.Now, tol)
			})
		}},
}

// stripeTime stands for the t in Stripe's only header.
const stripeTime = "t"

// Schemes are the names that Input.Scheme takes.
func Schemes() []string {
	return []string{"standard", "purple-wolf", "github", "stripe", "shopify", "slack"}
}

func b64(mac []byte) string { return base64.StdEncoding.EncodeToString(mac) }

func verifyStandard(in Input, tolerance time.Duration) error {
	keys := make([]signing.Key, len(in.Secrets))
	for i, s := range in.Secrets {
		k, err := Key(s)
		if err != nil {
			return err
		}
		keys[i] = k
	}
	h := in.Header
	return signing.Verify(keys, h.Get(signing.HeaderSignature), h.Get(signing.HeaderID), h.Get(signing.HeaderTimestamp), in.Body, in.Now, tolerance)
}

// Key reads one key that can verify: whsec_… (v1), whsk_… or whpk_… (v1a).
func Key(s string) (signing.Key, error) {
	switch {
	case strings.HasPrefix(s, "whsk_"):
		return signing.ParsePrivateKey(s)
	case strings.HasPrefix(s, "whpk_"):
		return signing.ParsePublicKey(s)
	}
	return signing.ParseSecret(s)
}

func withRaw(in Input, verify func([]signing.Secret) error) error {
	keys := make([]signing.Secret, len(in.Secrets))
	for i, s := range in.Secrets {
		k, err := signing.RawSecret([]byte(s))
		if err != nil {
			return err
		}
		keys[i] = k
	}
	return verify(keys)
}

// names are the headers that must be there.
func (s scheme) names() []string {
	var names []string
	for _, n := range []string{s.id, s.ts, s.sig} {
		if n != "" && n != stripeTime {
			names = append(names, n)
		}
	}
	return names
}

func (s scheme) ident(h http.Header) string {
	if s.id == "" {
		return ""
	}
	return first(h, s.id)
}

func (s scheme) stamp(h http.Header) string {
	switch s.ts {
	case "":
		return ""
	case stripeTime:
		for part := range strings.SplitSeq(h.Get(s.sig), ",") {
			if ts, ok := strings.CutPrefix(strings.TrimSpace(part), "t="); ok {
				return ts
			}
		}
		return ""
	}
	return first(h, s.ts)
}

// first is the value of a header, or of the one that it may have become.
func first(h http.Header, name string) string {
	if v := h.Get(name); v != "" {
		return v
	}
	if other := lookalike(h, name); other != "" && len(h[other]) > 0 {
		return h[other][0]
	}
	return ""
}

// signatures is the signature header, and the ways to read it.
type signatures struct {
	text string // every signature, joined by blanks
	how  *Cause // nil: as it came
	more []*signatures
}

// first gives the first reading that fits; nil: none.
func (s *signatures) first(fits func(text string) bool) *signatures {
	for _, read := range append([]*signatures{s}, s.more...) {
		if fits(read.text) {
			return read
		}
	}
	return nil
}

// has tells whether one signature is among those of a text.
func has(text, one string) bool {
	const between = " ,;"
	for rest := text; ; {
		i := strings.Index(rest, one)
		if i < 0 {
			return false
		}
		before, after := rest[:i], rest[i+len(one):]
		if (before == "" || strings.ContainsAny(before[len(before)-1:], between)) && (after == "" || strings.ContainsAny(after[:1], between)) {
			return true
		}
		rest = rest[i+1:]
	}
}

func (s scheme) signatures(h http.Header) *signatures {
	values := h.Values(s.sig)
	if len(values) == 0 {
		values = []string{first(h, s.sig)}
	}
	base := &signatures{text: values[0]}
	add := func(code, text, advice, other string) {
		if other != base.text && other != "" {
			base.more = append(base.more, &signatures{text: other, how: &Cause{code, text, advice}})
		}
	}
	all := strings.Join(values, " ")
	add("repeated_header", "the signature header is there more than once, and the right one isn't the first", "a proxy split it: join the values with a blank", all)
	const fold = "a proxy or a mail-like tool wrapped the header: it must be one line"
	add("header_folded", "the signature header was folded: white space stands inside a signature", fold, strings.Join(strings.Fields(all), ""))
	add("signature_plus", "the + of the signature became a blank, as in a form", "take the header's value, not a decoded form's", strings.ReplaceAll(all, " ", "+"))
	if un, err := url.PathUnescape(all); err == nil {
		add("signature_percent", "the signature is percent-encoded", "take the header's value as it came", un)
	}
	add("signature_quoted", "the signature is quoted", "take it without the quotes", strings.Trim(strings.TrimSpace(all), `"'`))
	add("signature_case", "the signature's hex digits are in capitals", "they are sent in lower case", strings.ToLower(all))
	if s.prefix != "" && !strings.Contains(all, s.prefix) {
		add("signature_prefix", "the signature has lost its beginning "+s.prefix, "take the header's value, whole", s.prefix+strings.TrimSpace(all))
	}
	alphabet := strings.NewReplacer("-", "+", "_", "/").Replace(all)
	add("signature_alphabet", "the signature is in the URL-safe alphabet, or has lost its padding", "it is sent in standard base64 with padding", padded(alphabet))
	return base
}

func padded(s string) string {
	_, sig, _ := strings.Cut(s, ",")
	if n := len(sig) % 4; n > 0 {
		return s + strings.Repeat("=", 4-n)
	}
	return s
}

// withMAC tests under an HMAC key.
func (s scheme) withMAC(key []byte) tester {
	return func(sigs *signatures, id, ts string, body []byte) *signatures {
		m := hmac.New(sha256.New, key)
		m.Write([]byte(s.head(id, ts)))
		m.Write(body)
		want := s.prefix + s.encode(m.Sum(nil))
		return sigs.first(func(text string) bool { return has(text, want) })
	}
}

// withKey tests under a key of package signing.
func withKey(k signing.Key, now time.Time) tester {
	return func(sigs *signatures, id, ts string, body []byte) *signatures {
		return sigs.first(func(text string) bool {
			return signing.Verify([]signing.Key{k}, text, id, ts, body, now, anyAge) == nil
		})
	}
}
