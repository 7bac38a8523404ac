package seal

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"
)

const (
	table    = "webhook_endpoints"
	current  = "secret_enc"
	previous = "prev_secret_enc"
	row      = "whk_01HXYZ7F8GZG23P4M2RKN9Y4QF"
)

func key(b byte) []byte { return bytes.Repeat([]byte{b}, keySize) }

func source() *rand.ChaCha8 { return rand.NewChaCha8([32]byte{1}) }

func ring(t testing.TB, keys ...[]byte) *Keyring {
	t.Helper()
	r, err := NewKeyring(source(), keys...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func sealed(t testing.TB, r *Keyring, column, row string, plain []byte) string {
	t.Helper()
	s, err := r.Seal(table, column, row, plain)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// K-13: each field opens, before and after the master key changed.
func TestK13_EachSecretFieldRoundTripsAndSurvivesRotation(t *testing.T) {
	for _, column := range []string{current, previous} {
		plain := []byte("the secret of " + column)
		before := ring(t, key(1))
		old := sealed(t, before, column, row, plain)
		after := ring(t, key(2), key(1))
		for name, r := range map[string]*Keyring{"same key": before, "rotated": after} {
			if got, err := r.Open(table, column, row, old); err != nil || !bytes.Equal(got, plain) {
				t.Errorf("%s, %s: %v", column, name, err)
			}
		}
		fresh, changed, err := after.Reseal(table, column, row, old)
		if err != nil || !changed {
			t.Fatalf("%s: changed %v, %v", column, changed, err)
		}
		if id, err := KeyID(fresh); err != nil || id != after.Current() {
			t.Errorf("%s: under %s, %v", column, id, err)
		}
		if same, changed, err := after.Reseal(table, column, row, fresh); err != nil || changed || same != fresh {
			t.Errorf("%s: a current value was sealed again: %v", column, err)
		}
		// With the old key gone what was resealed opens, what wasn't says why.
		alone := ring(t, key(2))
		if got, err := alone.Open(table, column, row, fresh); err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%s: %v", column, err)
		}
		if _, err := alone.Open(table, column, row, old); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("%s: %v", column, err)
		}
		if _, _, err := alone.Reseal(table, column, row, old); !errors.Is(err, ErrUnknownKey) {
			t.Errorf("%s: %v", column, err)
		}
	}
}

func TestValueOpensAtItsPlaceAlone(t *testing.T) {
	r := ring(t, key(1))
	s := sealed(t, r, current, row, []byte("secret"))
	for name, p := range map[string][3]string{
		"row":    {table, current, "whk_other"},
		"column": {table, previous, row},
		"table":  {"tenants", current, row},
	} {
		if _, err := r.Open(p[0], p[1], p[2], s); !errors.Is(err, ErrTampered) {
			t.Errorf("another %s: %v", name, err)
		}
	}
	// Without this, ("a|b", "c") and ("a", "b|c") would be one place.
	for _, p := range [][3]string{{"a|b", "c", "d"}, {"a", "b|c", "d"}, {"a", "b", "c|d"}, {"", "b", "c"}, {"a", "", "c"}, {"a", "b", ""}} {
		if _, err := r.Seal(p[0], p[1], p[2], nil); err == nil {
			t.Errorf("%q is a place", p)
		}
		if _, err := r.Open(p[0], p[1], p[2], s); err == nil {
			t.Errorf("%q is a place", p)
		}
	}
}

func TestFormatIsTheDocumentedOne(t *testing.T) {
	r := ring(t, key(1))
	s := sealed(t, r, current, row, []byte("secret"))
	parts := strings.Split(s, ".")
	if len(parts) != 4 || parts[0] != "pm1" || parts[1] != r.Current() {
		t.Fatal(s)
	}
	for i, n := range map[int]int{1: 8, 2: 12, 3: 6 + 16} {
		if b, err := base64.RawURLEncoding.DecodeString(parts[i]); err != nil || len(b) != n {
			t.Errorf("part %d: %d bytes, %v", i, len(b), err)
		}
	}
	if again := sealed(t, r, current, row, []byte("secret")); again == s {
		t.Error("a nonce was used twice")
	}
}

func TestAnyChangeIsNoticed(t *testing.T) {
	r := ring(t, key(1))
	rapid.Check(t, func(t *rapid.T) {
		plain := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "plain")
		s, err := r.Seal(table, current, row, plain)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := r.Open(table, current, row, s); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("round trip: %v", err)
		}
		b := []byte(s)
		b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= rapid.ByteRange(1, 255).Draw(t, "by")
		if got, err := r.Open(table, current, row, string(b)); err == nil {
			t.Fatalf("altered, yet it opens as %q", got)
		}
	})
}

func TestErrorsAreTypedAndSilent(t *testing.T) {
	r := ring(t, key(1))
	good := sealed(t, r, current, row, []byte("attack at dawn"))
	parts := strings.Split(good, ".")
	with := func(i int, s string) string {
		p := slices.Clone(parts)
		p[i] = s
		return strings.Join(p, ".")
	}
	for _, c := range []struct {
		name, in string
		want     error
	}{
		{"empty", "", ErrFormat},
		{"plain text", "attack at dawn", ErrFormat},
		{"another scheme", with(0, "pm2"), ErrFormat},
		{"no key id", with(1, ""), ErrFormat},
		{"unknown key", with(1, "AAAAAAAAAAA"), ErrUnknownKey},
		{"short nonce", with(2, "AAAA"), ErrFormat},
		{"short text", with(3, "AAAA"), ErrFormat},
		{"five parts", good + ".AAAA", ErrFormat},
		{"line break", good[:len(good)-2] + "\n" + good[len(good)-2:], ErrFormat},
		{"padded", good + "=", ErrFormat},
		{"huge", good + strings.Repeat("A", maxSealed), ErrFormat},
		{"other nonce", with(2, "AAAAAAAAAAAAAAAA"), ErrTampered},
	} {
		_, err := r.Open(table, current, row, c.in)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
		}
		if err != nil && (strings.Contains(err.Error(), "dawn") || strings.Contains(err.Error(), parts[3][:6])) {
			t.Errorf("%s: the error shows bytes: %v", c.name, err)
		}
	}
}

func TestNewKeyringRefusesBadKeys(t *testing.T) {
	for name, keys := range map[string][][]byte{
		"none": nil, "short": {key(1)[:31]}, "long": {append(key(1), 1)}, "short second": {key(1), key(2)[:16]}, "twice": {key(1), key(1)},
	} {
		_, err := NewKeyring(source(), keys...)
		if err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewKeyring(nil, key(1)); err == nil {
		t.Error("no source, yet accepted")
	}
}

func TestFailingSourceSealsNothing(t *testing.T) {
	r, err := NewKeyring(bytes.NewReader(make([]byte, nonceSize+3)), key(1), key(2))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Seal(table, current, row, nil); err != nil {
		t.Fatal(err)
	}
	if s, err := r.Seal(table, current, row, nil); err == nil || s != "" {
		t.Fatal("sealed with half a nonce")
	}
}

func TestKeyringNeverPrintsItsKeys(t *testing.T) {
	k := []byte("an easily recognised master key!")
	r := ring(t, k)
	var out bytes.Buffer
	slog.New(slog.NewJSONHandler(&out, nil)).Info("x", "ring", r)
	type holder struct{ r *Keyring }
	for _, v := range []any{r, holder{r}, &holder{r}, []*Keyring{r}} {
		for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%d"} {
			fmt.Fprintf(&out, verb, v)
		}
		if b, err := json.Marshal(v); err == nil {
			out.Write(b)
		}
	}
	for _, form := range []string{"recognised", fmt.Sprintf("%x", k[:4]), strings.Trim(fmt.Sprint(k[:4]), "[]"), base64.StdEncoding.EncodeToString(k)[:9]} {
		if strings.Contains(out.String(), form) {
			t.Errorf("shows %q", form)
		}
	}
}

func TestKeyringIsSafeForConcurrentUse(t *testing.T) {
	r := ring(t, key(1))
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 100 {
				plain := fmt.Appendf(nil, "%d/%d", g, i)
				s, err := r.Seal(table, current, row, plain)
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := r.Open(table, current, row, s); err != nil || !bytes.Equal(got, plain) {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
}

// Whatever opens was sealed here: nothing made up gets through.
func FuzzOpen(f *testing.F) {
	r := ring(f, key(1))
	good := sealed(f, r, current, row, []byte("secret"))
	f.Add(good)
	f.Add("pm1..." + good)
	f.Add(good + "\n")
	f.Fuzz(func(t *testing.T, s string) {
		plain, err := r.Open(table, current, row, s)
		if err == nil && (s != good || string(plain) != "secret") {
			t.Fatalf("%q opens", s)
		}
		if err != nil && !errors.Is(err, ErrFormat) && !errors.Is(err, ErrUnknownKey) && !errors.Is(err, ErrTampered) {
			t.Fatalf("untyped: %v", err)
		}
	})
}

func BenchmarkOpen(b *testing.B) {
	r := ring(b, key(1))
	s := sealed(b, r, current, row, key(9))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := r.Open(table, current, row, s); err != nil {
			b.Fatal(err)
		}
	}
}
