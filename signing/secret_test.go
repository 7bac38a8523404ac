package signing

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
)

const sample = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

func mustSecret(t testing.TB, s string) Secret {
	t.Helper()
	k, err := ParseSecret(s)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func encoded(n int) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, n))
}

// Every form that people paste is either the one true form or refused with a
// reason. None is silently another key.
func TestL03_PastedSecretForms(t *testing.T) {
	for _, c := range []struct {
		name, in string
		want     error
		says     string
	}{
		{"the one form", sample, nil, ""},
		{"24 bytes", "whsec_" + encoded(24), nil, ""},
		{"64 bytes", "whsec_" + encoded(64), nil, ""},
		{"empty", "", ErrPrefix, "empty"},
		{"only a prefix", "whsec_", ErrLength, "0 bytes"},
		{"unprefixed", sample[6:], ErrPrefix, "must begin with whsec_"},
		{"signature version before it", "v1," + sample, ErrPrefix, "after the comma"},
		{"quoted", `"` + sample + `"`, ErrPrefix, "quotes"},
		{"upper-case prefix", "WHSEC_" + sample[6:], ErrPrefix, "must be written whsec_"},
		{"private key", "whsk_" + encoded(64), ErrPrefix, "another kind of key"},
		{"leading space", " " + sample, ErrPrefix, "white space"},
		{"URL-safe alphabet", "whsec_" + base64.URLEncoding.EncodeToString(bytes.Repeat([]byte{0xfb}, 24)), ErrEncoding, "URL-safe"},
		{"unpadded", "whsec_" + strings.TrimRight(encoded(25), "="), ErrEncoding, "multiple of four"},
		{"misplaced padding", "whsec_=" + encoded(24)[1:], ErrEncoding, "padding"},
		{"stray bits", "whsec_" + strings.Repeat("A", 33) + "B==", ErrEncoding, ""},
		{"8 bytes", "whsec_" + encoded(8), ErrLength, "8 bytes"},
		{"23 bytes", "whsec_" + encoded(23), ErrLength, "23 bytes"},
		{"65 bytes", "whsec_" + encoded(65), ErrLength, "65 bytes"},
		{"200 bytes", "whsec_" + encoded(200), ErrLength, "200 bytes"},
		{"not base64", "whsec_p@ssw0rd-that-somebody-made-up", ErrEncoding, "position 8"},
		{"not ASCII", "whsec_" + strings.Repeat("ü", 16), ErrEncoding, "position 7"},
	} {
		t.Run(c.name, func(t *testing.T) { checkRefusal(t, c.in, c.want, c.says) })
	}
}

func checkRefusal(t *testing.T, in string, want error, says string) {
	t.Helper()
	k, err := ParseSecret(in)
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
	if want == nil {
		if k.Encode() != in {
			t.Fatal("what was read is not what is written")
		}
		return
	}
	if !k.IsZero() {
		t.Fatal("a refused secret left a key")
	}
	if _, ok := errors.AsType[*KeyError](err); !ok {
		t.Fatalf("%T is no KeyError", err)
	}
	if !strings.Contains(err.Error(), says) {
		t.Errorf("%q doesn't say %q", err, says)
	}
	if text := strings.TrimPrefix(in, "whsec_"); len(text) > 6 && strings.Contains(err.Error(), text) {
		t.Errorf("the error repeats the secret: %q", err)
	}
}

func TestL04_TypoedSecretIsRefused(t *testing.T) {
	checkRefusal(t, "whsec_xyz!", ErrEncoding, "position 10")
	checkRefusal(t, "whsec_xyz=", ErrEncoding, "padding")
	checkRefusal(t, "whsec_xyzz", ErrLength, "3 bytes")
}

func TestL06_NewlineInSecretIsRefused(t *testing.T) {
	for _, end := range []string{"\n", "\r\n", " ", "\t"} {
		checkRefusal(t, sample+end, ErrEncoding, "white space at position 39")
	}
	// The decoder of the standard library would skip this one in silence.
	checkRefusal(t, sample[:20]+"\n"+sample[20:], ErrEncoding, "white space at position 21")
}

func TestNewSecretIsReadFromTheGivenSource(t *testing.T) {
	src := bytes.Repeat([]byte{7}, 40)
	k, err := NewSecret(bytes.NewReader(src))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(k.Bytes(), src[:32]) || k.Len() != 32 {
		t.Fatal("not the 32 bytes of the source")
	}
	if !k.Equal(mustSecret(t, k.Encode())) {
		t.Fatal("round trip")
	}
	if _, err := NewSecret(bytes.NewReader(src[:31])); err == nil {
		t.Fatal("a short source made a secret")
	}
}

func TestBytesIsACopy(t *testing.T) {
	in := bytes.Repeat([]byte{1}, 32)
	k, err := SecretFromBytes(in)
	if err != nil {
		t.Fatal(err)
	}
	in[0] = 9
	k.Bytes()[1] = 9
	if !bytes.Equal(k.Bytes(), bytes.Repeat([]byte{1}, 32)) {
		t.Fatal("a caller's slice reaches into the key")
	}
	if _, err := SecretFromBytes(in[:23]); !errors.Is(err, ErrLength) {
		t.Fatal(err)
	}
	if _, err := RawSecret(nil); !errors.Is(err, ErrLength) {
		t.Fatal(err)
	}
}

func TestZeroValuesAreNoKeys(t *testing.T) {
	var s Secret
	if !s.IsZero() || s.Bytes() != nil || s.Len() != 0 || s.Equal(s) { //nolint:gocritic // a zero key equals nothing, itself included
		t.Error("zero Secret")
	}
	var p PrivateKey
	if !p.IsZero() || !p.Public().IsZero() || p.Encode() != "whsk_" {
		t.Error("zero PrivateKey")
	}
}

// Keys must not reach logs, errors or dumps by any road, nested ones included.
func TestKeysNeverPrint(t *testing.T) {
	secret := mustSecret(t, sample)
	private, err := NewPrivateKey(bytes.NewReader(bytes.Repeat([]byte{0x4d}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := NewSigner(secret, private)
	if err != nil {
		t.Fatal(err)
	}
	type hidden struct {
		s Secret
		p PrivateKey
	}
	var logs bytes.Buffer
	for _, h := range []slog.Handler{slog.NewTextHandler(&logs, nil), slog.NewJSONHandler(&logs, nil)} {
		slog.New(h).Info("x", "secret", secret, "private", private, "signer", signer, "hidden", hidden{secret, private})
	}
	for _, v := range []any{secret, &secret, private, &private, signer, hidden{secret, private}, &hidden{secret, private},
		[]Secret{secret}, map[string]any{"s": secret, "p": private}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d"} {
			fmt.Fprintf(&logs, verb, v)
		}
		b, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		logs.Write(b)
	}
	out := strings.ToLower(logs.String())
	for _, key := range [][]byte{secret.Bytes(), private.Bytes()} {
		for _, form := range []string{
			base64.StdEncoding.EncodeToString(key)[:12], fmt.Sprintf("%x", key[:4]), string(key[:4]),
			fmt.Sprintf("%#v", key)[7:25], strings.Trim(fmt.Sprint(key[:4]), "[]"),
		} {
			if strings.Contains(out, strings.ToLower(form)) {
				t.Errorf("a key shows as %q", form)
			}
		}
	}
	if !strings.Contains(out, redacted) {
		t.Error("nothing was redacted")
	}
	if secret.String() != redacted || private.String() != redacted || secret.GoString() != redacted || private.GoString() != redacted {
		t.Error("String or GoString")
	}
}

func TestPrivateKeyForms(t *testing.T) {
	k, err := NewPrivateKey(bytes.NewReader(bytes.Repeat([]byte{3}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := NewPrivateKey(bytes.NewReader(nil)); err == nil {
		t.Error("a short source made a key")
	}
	again, err := ParsePrivateKey(k.Encode())
	if err != nil || again.Encode() != k.Encode() {
		t.Fatalf("round trip: %v", err)
	}
	pub, err := ParsePublicKey(k.Public().Encode())
	if err != nil || pub.String() != k.Public().Encode() {
		t.Fatalf("round trip: %v", err)
	}
	raw := k.Bytes()
	raw[63] ^= 1
	for _, c := range []struct {
		in   string
		want error
	}{
		{"whsk_" + base64.StdEncoding.EncodeToString(raw), ErrMismatch},
		{"whsk_" + encoded(32), ErrLength},
		{"whpk_" + encoded(64), ErrPrefix},
		{k.Encode() + "\n", ErrEncoding},
	} {
		if _, err := ParsePrivateKey(c.in); !errors.Is(err, c.want) {
			t.Errorf("got %v, want %v", err, c.want)
		}
	}
	for _, c := range []struct {
		in   string
		want error
	}{{"whpk_" + encoded(31), ErrLength}, {k.Encode(), ErrPrefix}, {"whpk_" + encoded(31) + "*", ErrEncoding}} {
		if _, err := ParsePublicKey(c.in); !errors.Is(err, c.want) {
			t.Errorf("got %v, want %v", err, c.want)
		}
	}
}
