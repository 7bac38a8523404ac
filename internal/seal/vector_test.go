package seal

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"strings"
	"testing"
)

// The format, read by nothing of this package: AES-256-GCM under the master key,
// a 96-bit nonce, and associated data that names scheme, table, column and row.
func TestSealedValueByHand(t *testing.T) {
	plain := bytes.Repeat([]byte{0x5e}, 32)
	for _, column := range []string{"secret_enc", "prev_secret_enc"} {
		value := sealed(t, ring(t, key(1)), column, row, plain)
		parts := strings.Split(value, ".")
		if len(parts) != 4 || parts[0] != "pm1" {
			t.Fatal(value)
		}
		nonce, err1 := base64.RawURLEncoding.DecodeString(parts[2])
		text, err2 := base64.RawURLEncoding.DecodeString(parts[3])
		if err1 != nil || err2 != nil || len(nonce)*8 != 96 {
			t.Fatal(err1, err2, len(nonce))
		}
		block, err := aes.NewCipher(key(1))
		if err != nil {
			t.Fatal(err)
		}
		gcm, err := cipher.NewGCM(block)
		if err != nil {
			t.Fatal(err)
		}
		got, err := gcm.Open(nil, nonce, text, []byte("pm1|webhook_endpoints|"+column+"|"+row))
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: %v", column, err)
		}
	}
}

// Two seals of one value share no nonce.
func TestEverySealHasItsNonce(t *testing.T) {
	r := ring(t, key(1))
	seen := map[string]bool{}
	for range 1000 {
		nonce := strings.Split(sealed(t, r, current, row, []byte("x")), ".")[2]
		if seen[nonce] {
			t.Fatal("a nonce was used twice")
		}
		seen[nonce] = true
	}
}
