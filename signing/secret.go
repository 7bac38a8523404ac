package signing

import (
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// The bounds that Standard Webhooks sets for a secret.
const (
	MinSecret = 24 // bytes
	MaxSecret = 64 // bytes
	newSecret = 32 // bytes
)

const (
	secretPrefix = "whsec_"
	redacted     = "[redacted]"
)

// Why a key was refused. They come wrapped in a *KeyError.
var (
	ErrPrefix   = errors.New("wrong prefix")
	ErrEncoding = errors.New("not standard padded base64")
	ErrLength   = errors.New("wrong length")
	ErrMismatch = errors.New("the public half doesn't belong to the private half")
)

// KeyError says what is wrong with the text or bytes of a key, without
// repeating any of it.
type KeyError struct {
	Kind   string // "secret", "private key" or "public key"
	Reason error  // ErrPrefix, ErrEncoding, ErrLength or ErrMismatch
	Detail string
}

func (e *KeyError) Error() string {
	return "signing: bad " + e.Kind + ": " + e.Reason.Error() + ": " + e.Detail
}

func (e *KeyError) Unwrap() error { return e.Reason }

// Secret is a symmetric signing key. It prints as "[redacted]" wherever it is
// formatted, logged or marshalled; only Encode and Bytes reveal it. The zero
// Secret is no key.
type Secret struct {
	k *hidden[keyed]
}

// hidden keeps a key out of fmt's sight. For an unexported field fmt asks no
// methods; it prints the address of a pointer, but follows one level when the
// verb doesn't suit it (%s, %q). So there are two.
type hidden[T any] struct{ v *T }

func hide[T any](v *T) *hidden[T] { return &hidden[T]{v} }

// ParseSecret reads "whsec_" and standard padded base64 of 24 to 64 bytes, and
// refuses everything else: no white space is trimmed, no prefix added, no other
// alphabet tried. Each of those would sometimes yield another key in silence.
func ParseSecret(s string) (Secret, error) {
	b, err := decodeKey("secret", secretPrefix, s)
	if err != nil {
		return Secret{}, err
	}
	return SecretFromBytes(b)
}

// NewSecret makes a secret of 32 bytes from rand.
func NewSecret(rand io.Reader) (Secret, error) {
	b := make([]byte, newSecret)
	if _, err := io.ReadFull(rand, b); err != nil {
		return Secret{}, fmt.Errorf("signing: new secret: %w", err)
	}
	return SecretFromBytes(b)
}

// SecretFromBytes takes the 24 to 64 bytes of a Standard Webhooks secret.
func SecretFromBytes(b []byte) (Secret, error) {
	if err := checkSecret(len(b)); err != nil {
		return Secret{}, err
	}
	return Secret{hide(newKeyed(b))}, nil
}

// RawSecret takes the bytes of a secret of any other scheme as they are, of
// any length but none: purple-wolf, GitHub, Stripe (the whole string, its
// prefix included), Shopify and Slack use the text itself as the key.
func RawSecret(b []byte) (Secret, error) {
	if len(b) == 0 {
		return Secret{}, &KeyError{"secret", ErrLength, "it is empty"}
	}
	return Secret{hide(newKeyed(b))}, nil
}

func checkSecret(n int) error {
	if n < MinSecret || n > MaxSecret {
		return &KeyError{"secret", ErrLength, fmt.Sprintf("it holds %d bytes; %d to %d are allowed", n, MinSecret, MaxSecret)}
	}
	return nil
}

// Encode reveals the secret in the form that ParseSecret reads.
func (s Secret) Encode() string {
	return secretPrefix + base64.StdEncoding.EncodeToString(s.Bytes())
}

// Bytes reveals a copy of the key.
func (s Secret) Bytes() []byte {
	if s.k == nil {
		return nil
	}
	return append([]byte(nil), s.k.v.raw...)
}

// Len is the length of the key in bytes: safe to show.
func (s Secret) Len() int {
	if s.k == nil {
		return 0
	}
	return len(s.k.v.raw)
}

// IsZero reports whether s holds no key.
func (s Secret) IsZero() bool { return s.k == nil }

// Equal compares two secrets in constant time.
func (s Secret) Equal(t Secret) bool {
	return s.k != nil && t.k != nil && subtle.ConstantTimeCompare(s.k.v.raw, t.k.v.raw) == 1
}

// String hides the secret.
func (Secret) String() string { return redacted }

// GoString hides the secret from %#v.
func (Secret) GoString() string { return redacted }

// Format hides the secret from every other verb.
func (Secret) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue hides the secret from slog.
func (Secret) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the secret from encoders of text.
func (Secret) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON hides the secret from JSON.
func (Secret) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// decodeKey strips the prefix and decodes, strictly.
func decodeKey(kind, prefix, s string) ([]byte, error) {
	text, ok := strings.CutPrefix(s, prefix)
	if !ok {
		return nil, &KeyError{kind, ErrPrefix, prefixDetail(prefix, s)}
	}
	// The decoder skips line breaks, even in strict mode, so look for any
	// foreign character first.
	if at := strings.IndexFunc(text, notBase64); at >= 0 {
		return nil, &KeyError{kind, ErrEncoding, charDetail(rune(text[at]), len(prefix)+at)}
	}
	b, err := base64.StdEncoding.Strict().DecodeString(text)
	if err != nil {
		if len(text)%4 != 0 {
			return nil, &KeyError{kind, ErrEncoding, fmt.Sprintf("%d characters follow the prefix, not a multiple of four: the padding is missing, or the text was cut", len(text))}
		}
		return nil, &KeyError{kind, ErrEncoding, "the padding is misplaced, or bits that it doesn't use are set"}
	}
	return b, nil
}

func notBase64(r rune) bool {
	switch {
	case r >= 'A' && r <= 'Z', r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '+', r == '/', r == '=':
		return false
	}
	return true
}

// prefixDetail names the usual slips, so that nobody loses hours to them.
func prefixDetail(want, s string) string {
	switch t := strings.TrimSpace(s); {
	case t == "":
		return "it is empty"
	case t != s && strings.HasPrefix(t, want):
		return "white space stands before " + want
	case strings.HasPrefix(t, "v1,") || strings.HasPrefix(t, "v1a,"):
		return "it begins with a signature's version; the key begins with " + want + " after the comma"
	case strings.HasPrefix(t, `"`) || strings.HasPrefix(t, "'"):
		return "it is quoted; give it without the quotes"
	case strings.HasPrefix(strings.ToLower(t), want):
		return "the prefix must be written " + want
	}
	for _, other := range []string{secretPrefix, privatePrefix, publicPrefix} {
		if other != want && strings.HasPrefix(s, other) {
			return "it begins with " + other + " where " + want + " is needed: it is another kind of key"
		}
	}
	return "it must begin with " + want
}

func charDetail(r rune, at int) string {
	switch r {
	case ' ', '\t', '\n', '\r', '\v', '\f':
		return fmt.Sprintf("white space at position %d", at+1)
	case '-', '_':
		return fmt.Sprintf("position %d uses the URL-safe alphabet; + and / are the standard one", at+1)
	}
	return fmt.Sprintf("the character at position %d doesn't belong to base64", at+1)
}
