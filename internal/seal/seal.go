// Package seal keeps secrets at rest: AES-256-GCM, bound to table, column and
// row, under a master key that can be rotated.
//
// A sealed value is pm1.{kid}.{nonce}.{ciphertext}, its parts in unpadded
// base64url. The associated data is pm1|{table}|{column}|{row id}, so a value
// that was copied to another place doesn't open there.
//
// It guarantees that what opens is what was sealed, at the place it was sealed
// for, and that no error holds a byte of key, plain or sealed text.
package seal

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
)

const (
	scheme    = "pm1"
	keySize   = 32
	nonceSize = 12
	tagSize   = 16
	maxSealed = 64 << 10 // no secret is near it; a bound on what is decoded
)

// Why a value didn't open.
var (
	ErrUnknownKey = errors.New("sealed under a master key that isn't loaded")
	ErrTampered   = errors.New("the value was altered, or belongs to another row or column")
	ErrFormat     = errors.New("not a sealed value")
)

var b64 = base64.RawURLEncoding.Strict()

// Keyring seals under its current master key and opens under any that it
// holds. It may be used from many goroutines. It never prints its keys.
type Keyring struct {
	current string // kid
	keys    map[string]cipher.AEAD

	mu   sync.Mutex // a source of randomness need not be safe for concurrent use
	rand io.Reader
}

// NewKeyring takes the master keys, 32 bytes each: the first is current, the
// others only open. rand is the source of nonces.
func NewKeyring(rand io.Reader, keys ...[]byte) (*Keyring, error) {
	if rand == nil {
		return nil, errors.New("no source of randomness")
	}
	if len(keys) == 0 {
		return nil, errors.New("no master key")
	}
	r := &Keyring{rand: rand, keys: make(map[string]cipher.AEAD, len(keys)), current: kid(keys[0])}
	for i, key := range keys {
		if len(key) != keySize {
			return nil, fmt.Errorf("master key %d holds %d bytes; %d are needed", i+1, len(key), keySize)
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("master key %d: %w", i+1, err)
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			return nil, fmt.Errorf("master key %d: %w", i+1, err)
		}
		id := kid(key)
		if _, twice := r.keys[id]; twice {
			return nil, fmt.Errorf("master key %d is given twice", i+1)
		}
		r.keys[id] = gcm
	}
	return r, nil
}

// kid names a key by 64 bits of a hash: enough to tell keys apart, no help in
// finding one.
func kid(key []byte) string {
	sum := sha256.Sum256(append([]byte("surehook master key id\x00"), key...))
	return b64.EncodeToString(sum[:8])
}

// Current is the id of the key that seals.
func (r *Keyring) Current() string { return r.current }

// Seal encrypts plain for one place. The names must not hold "|": it separates
// them.
func (r *Keyring) Seal(table, column, row string, plain []byte) (string, error) {
	ad, err := place(table, column, row)
	if err != nil {
		return "", err
	}
	nonce := make([]byte, nonceSize)
	r.mu.Lock()
	_, err = io.ReadFull(r.rand, nonce)
	r.mu.Unlock()
	if err != nil {
		return "", fmt.Errorf("nonce: %w", err)
	}
	text := r.keys[r.current].Seal(nil, nonce, plain, ad)
	return strings.Join([]string{scheme, r.current, b64.EncodeToString(nonce), b64.EncodeToString(text)}, "."), nil
}

// Open decrypts a value that was sealed for this place.
func (r *Keyring) Open(table, column, row, sealed string) ([]byte, error) {
	ad, err := place(table, column, row)
	if err != nil {
		return nil, err
	}
	id, nonce, text, err := parse(sealed)
	if err != nil {
		return nil, err
	}
	key, ok := r.keys[id]
	if !ok {
		return nil, ErrUnknownKey
	}
	plain, err := key.Open(nil, nonce, text, ad)
	if err != nil {
		return nil, ErrTampered
	}
	return plain, nil
}

// Reseal brings a value under the current key. It reports whether the value
// changed; one that is current already is only checked.
func (r *Keyring) Reseal(table, column, row, sealed string) (string, bool, error) {
	plain, err := r.Open(table, column, row, sealed)
	if err != nil {
		return "", false, err
	}
	defer clear(plain)
	if id, err := KeyID(sealed); err == nil && id == r.current {
		return sealed, false, nil
	}
	fresh, err := r.Seal(table, column, row, plain)
	return fresh, err == nil, err
}

// KeyID tells which master key a value is sealed under.
func KeyID(sealed string) (string, error) {
	id, _, _, err := parse(sealed)
	return id, err
}

func parse(sealed string) (id string, nonce, text []byte, err error) {
	if len(sealed) > maxSealed {
		return "", nil, nil, ErrFormat
	}
	parts := strings.Split(sealed, ".")
	if len(parts) != 4 || parts[0] != scheme || parts[1] == "" || strings.ContainsAny(sealed, "\r\n") {
		return "", nil, nil, ErrFormat // the decoder would skip a line break
	}
	nonce, err1 := b64.DecodeString(parts[2])
	text, err2 := b64.DecodeString(parts[3])
	if err1 != nil || err2 != nil || len(nonce) != nonceSize || len(text) < tagSize {
		return "", nil, nil, ErrFormat
	}
	return parts[1], nonce, text, nil
}

func place(table, column, row string) ([]byte, error) {
	for _, s := range []string{table, column, row} {
		if s == "" || strings.Contains(s, "|") {
			return nil, errors.New(`a place is table, column and row id, none of them empty or with "|"`)
		}
	}
	return []byte(scheme + "|" + table + "|" + column + "|" + row), nil
}

// String hides the keys.
func (*Keyring) String() string { return "[redacted]" }

// GoString hides the keys.
func (*Keyring) GoString() string { return "[redacted]" }

// LogValue hides the keys.
func (*Keyring) LogValue() slog.Value { return slog.StringValue("[redacted]") }
