package signing

import (
	"bytes"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
)

const (
	privatePrefix = "whsk_"
	publicPrefix  = "whpk_"
	privateKind   = "private key"
)

// PrivateKey signs v1a. Like a Secret it prints as "[redacted]"; only Encode
// and Bytes reveal it. The zero PrivateKey is no key.
type PrivateKey struct {
	k *hidden[ed25519.PrivateKey]
}

// ParsePrivateKey reads "whsk_" and standard padded base64 of the 32-byte seed
// followed by the 32-byte public key, and checks that the two belong together:
// signing with a foreign public half gives the seed away.
func ParsePrivateKey(s string) (PrivateKey, error) {
	b, err := decodeKey(privateKind, privatePrefix, s)
	if err != nil {
		return PrivateKey{}, err
	}
	return PrivateKeyFromBytes(b)
}

// PrivateKeyFromBytes takes seed and public key, and checks that they belong
// together.
func PrivateKeyFromBytes(b []byte) (PrivateKey, error) {
	if len(b) != ed25519.PrivateKeySize {
		return PrivateKey{}, &KeyError{privateKind, ErrLength, fmt.Sprintf("it holds %d bytes; %d are needed", len(b), ed25519.PrivateKeySize)}
	}
	k := ed25519.NewKeyFromSeed(b[:ed25519.SeedSize])
	if !bytes.Equal(k[ed25519.SeedSize:], b[ed25519.SeedSize:]) {
		return PrivateKey{}, &KeyError{privateKind, ErrMismatch, "the text was altered, or joined from two keys"}
	}
	return PrivateKey{hide(&k)}, nil
}

// NewPrivateKey makes a key from 32 bytes of rand.
func NewPrivateKey(rand io.Reader) (PrivateKey, error) {
	seed := make([]byte, ed25519.SeedSize)
	if _, err := io.ReadFull(rand, seed); err != nil {
		return PrivateKey{}, fmt.Errorf("signing: new private key: %w", err)
	}
	k := ed25519.NewKeyFromSeed(seed)
	return PrivateKey{hide(&k)}, nil
}

// Public is the key that receivers verify with. It is no secret.
func (p PrivateKey) Public() PublicKey {
	if p.k == nil {
		return PublicKey{}
	}
	return PublicKey{ed25519.PublicKey((*p.k.v)[ed25519.SeedSize:])}
}

// Encode reveals the key in the form that ParsePrivateKey reads.
func (p PrivateKey) Encode() string {
	return privatePrefix + base64.StdEncoding.EncodeToString(p.Bytes())
}

// Bytes reveals a copy of seed and public key.
func (p PrivateKey) Bytes() []byte {
	if p.k == nil {
		return nil
	}
	return append([]byte(nil), *p.k.v...)
}

// IsZero reports whether p holds no key.
func (p PrivateKey) IsZero() bool { return p.k == nil }

// String hides the key.
func (PrivateKey) String() string { return redacted }

// GoString hides the key from %#v.
func (PrivateKey) GoString() string { return redacted }

// Format hides the key from every other verb.
func (PrivateKey) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, redacted) }

// LogValue hides the key from slog.
func (PrivateKey) LogValue() slog.Value { return slog.StringValue(redacted) }

// MarshalText hides the key from encoders of text.
func (PrivateKey) MarshalText() ([]byte, error) { return []byte(redacted), nil }

// MarshalJSON hides the key from JSON.
func (PrivateKey) MarshalJSON() ([]byte, error) { return []byte(`"` + redacted + `"`), nil }

// PublicKey verifies v1a. The zero PublicKey is no key.
type PublicKey struct {
	k ed25519.PublicKey
}

// ParsePublicKey reads "whpk_" and standard padded base64 of 32 bytes.
func ParsePublicKey(s string) (PublicKey, error) {
	const kind = "public key"
	b, err := decodeKey(kind, publicPrefix, s)
	if err != nil {
		return PublicKey{}, err
	}
	if len(b) != ed25519.PublicKeySize {
		return PublicKey{}, &KeyError{kind, ErrLength, fmt.Sprintf("it holds %d bytes; %d are needed", len(b), ed25519.PublicKeySize)}
	}
	return PublicKey{b}, nil
}

// Encode writes the key in the form that ParsePublicKey reads.
func (p PublicKey) Encode() string {
	return publicPrefix + base64.StdEncoding.EncodeToString(p.k)
}

// String is Encode.
func (p PublicKey) String() string { return p.Encode() }

// IsZero reports whether p holds no key.
func (p PublicKey) IsZero() bool { return p.k == nil }
