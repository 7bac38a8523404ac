package signing

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	reference "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"pgregory.net/rapid"
)

func mustSigner(t testing.TB, keys ...Key) *Signer {
	t.Helper()
	s, err := NewSigner(keys...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// oracle computes a v1 header with crypto/hmac and nothing of this package.
func oracle(key []byte, id string, ts int64, body []byte) string {
	m := hmac.New(sha256.New, key)
	fmt.Fprintf(m, "%s.%d.", id, ts)
	m.Write(body)
	return "v1," + base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// Bodies that senders were seen to change between signing and sending.
var awkward = map[string]string{
	"A-01 html-unsafe":      `{"q":"a<b>&c=d"}`,
	"A-02 raw separators":   "{\"s\":\"\u2028\u2029\"}",
	"A-02 escaped":          `{"s":"\u2028\u2029"}`,
	"A-04 numbers":          `[-1.7976931348623157e+308,1e400,0.10,1E2,-0]`,
	"A-06 big integer":      `{"id":7615917337495251231,"a":1.0}`,
	"A-09 emoji":            `{"m":"😊 ñ 👩‍👩‍👧"}`,
	"A-09 at a buffer edge": strings.Repeat("x", 4094) + "😊",
	"A-12 control":          "{\"m\":\"\x1b[31m\\u0000\"}",
	"A-15 slashes":          `{"a":"/","b":"\/","c":"é"}`,
	"A-16 form":             "a=1&b=%2B+x",
	"A-16 byte-order mark":  "\ufeff{}",
	"A-16 empty":            "",
	"A-17 invalid UTF-8":    "{\"m\":\"\xff\xfe\"}",
	"white space":           "{ \"b\" : 1,\r\n\t\"a\":2 }\n",
}

func TestA01_SignatureCoversTheBytesAsGiven(t *testing.T) {
	k := mustSecret(t, sample)
	s := mustSigner(t, k)
	for name, body := range awkward {
		t.Run(name, func(t *testing.T) {
			got := s.Sign("evt_1", 1614265330, []byte(body))
			if want := oracle(k.Bytes(), "evt_1", 1614265330, []byte(body)); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

// B-01: a strict receiver takes the second attempt's, hours later, and not the
// first one's any more.
func TestB01_EachAttemptHasItsOwnSignature(t *testing.T) {
	k := mustSecret(t, sample)
	s := mustSigner(t, k)
	first := time.Unix(1614265330, 0)
	second := first.Add(6 * time.Hour)
	one, two := s.Sign("evt_1", first.Unix(), nil), s.Sign("evt_1", second.Unix(), nil)
	if one == two {
		t.Fatal("two attempts, one signature")
	}
	ts := fmt.Sprint(second.Unix())
	if err := Verify([]Key{k}, two, "evt_1", ts, nil, second, Tolerance); err != nil {
		t.Error(err)
	}
	if err := Verify([]Key{k}, one, "evt_1", fmt.Sprint(first.Unix()), nil, second, Tolerance); !errors.Is(err, ErrTooOld) {
		t.Errorf("a strict receiver took a signature of six hours ago: %v", err)
	}
}

// L-01: the key is what the text of the secret stands for.
func TestL01_ReferenceLibraryAgreesBothWays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), MinSecret, MaxSecret).Draw(t, "key")
		id := rapid.StringMatching(`[A-Za-z0-9_:\-]{1,200}`).Draw(t, "id")
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		now := time.Unix(rapid.Int64Range(0, 1<<40).Draw(t, "ts"), 0)
		k, err := SecretFromBytes(key)
		if err != nil {
			t.Fatal(err)
		}
		// L-02: what Encode reveals is what the other library reads.
		ref, err := reference.NewWebhook(k.Encode())
		if err != nil {
			t.Fatal(err)
		}
		s, err := NewSigner(k)
		if err != nil {
			t.Fatal(err)
		}
		h := http.Header{}
		h.Set(reference.HeaderWebhookID, id)
		h.Set(reference.HeaderWebhookTimestamp, fmt.Sprint(now.Unix()))
		h.Set(reference.HeaderWebhookSignature, s.Sign(id, now.Unix(), body))
		if err := ref.VerifyIgnoringTimestamp(body, h); err != nil {
			t.Fatalf("the reference refuses ours: %v", err)
		}
		theirs, err := ref.Sign(id, now, body)
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify([]Key{k}, theirs, id, fmt.Sprint(now.Unix()), body, now, Tolerance); err != nil {
			t.Fatalf("we refuse the reference's: %v", err)
		}
		if err := Verify([]Key{k}, theirs, id, fmt.Sprint(now.Unix()), append(body, 'x'), now, Tolerance); !errors.Is(err, ErrNoMatch) {
			t.Fatalf("a longer body: %v", err)
		}
	})
}

// The pad arithmetic is ours, so crypto/hmac is its oracle, keys longer than a
// block included.
func TestMACEqualsTheStandardLibrarys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SliceOfN(rapid.Byte(), 1, 200).Draw(t, "key")
		head := rapid.SliceOf(rapid.Byte()).Draw(t, "head")
		body := rapid.SliceOf(rapid.Byte()).Draw(t, "body")
		m := hmac.New(sha256.New, key)
		m.Write(head)
		m.Write(body)
		w := borrow()
		defer w.giveBack()
		if got := w.mac(newKeyed(key), head, body); !bytes.Equal(got, m.Sum(nil)) {
			t.Fatalf("key of %d bytes: %x", len(key), got)
		}
	})
}

// L-07: both, the new one first, and then the new one alone.
func TestL07_OverlapSignsWithBothNewFirst(t *testing.T) {
	older, newer := mustSecret(t, sample), mustSecret(t, "whsec_"+encoded(32))
	now := time.Unix(1614265330, 0)
	ts, body := fmt.Sprint(now.Unix()), []byte("{}")
	both := mustSigner(t, newer, older).Sign("evt_1", now.Unix(), body)
	want := oracle(newer.Bytes(), "evt_1", now.Unix(), body) + " " + oracle(older.Bytes(), "evt_1", now.Unix(), body)
	if both != want {
		t.Fatalf("got %s, want %s", both, want)
	}
	for _, k := range []Key{older, newer} {
		if err := Verify([]Key{k}, both, "evt_1", ts, body, now, Tolerance); err != nil {
			t.Error(err)
		}
	}
	after := mustSigner(t, newer).Sign("evt_1", now.Unix(), body)
	if err := Verify([]Key{older}, after, "evt_1", ts, body, now, Tolerance); !errors.Is(err, ErrNoMatch) {
		t.Errorf("the old key still signs: %v", err)
	}
}

func TestL08_SignaturesAreBounded(t *testing.T) {
	k := mustSecret(t, sample)
	if _, err := NewSigner(k, k, k, k, k); !errors.Is(err, ErrTooManyKeys) {
		t.Error(err)
	}
}

func TestV1aSignsBesideV1(t *testing.T) {
	private, err := NewPrivateKey(bytes.NewReader(bytes.Repeat([]byte{5}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	secret := mustSecret(t, sample)
	now := time.Unix(1614265330, 0)
	h := mustSigner(t, private, secret).Sign("evt_1", now.Unix(), []byte("{}"))
	for _, k := range []Key{private, private.Public(), secret} {
		if err := Verify([]Key{k}, h, "evt_1", "1614265330", []byte("{}"), now, Tolerance); err != nil {
			t.Errorf("%T: %v", k, err)
		}
	}
}

func TestNewSignerRefusesWhatCantSign(t *testing.T) {
	private, err := NewPrivateKey(bytes.NewReader(bytes.Repeat([]byte{5}, 32)))
	if err != nil {
		t.Fatal(err)
	}
	short, err := RawSecret([]byte("short"))
	if err != nil {
		t.Fatal(err)
	}
	for name, keys := range map[string][]Key{
		"none": {}, "nil": {nil}, "zero secret": {Secret{}}, "zero key": {PrivateKey{}},
		"public": {private.Public()}, "short": {short},
	} {
		if _, err := NewSigner(keys...); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := NewPurpleWolf(Secret{}); !errors.Is(err, ErrNoKey) {
		t.Error(err)
	}
}

func TestPurpleWolfHeader(t *testing.T) {
	k, err := RawSecret([]byte("short")) // the relay's secrets are any raw bytes
	if err != nil {
		t.Fatal(err)
	}
	s, err := NewPurpleWolf(k)
	if err != nil {
		t.Fatal(err)
	}
	body := []byte(`{"schema":"purple-wolf.audit/v1"}`)
	m := hmac.New(sha256.New, []byte("short"))
	m.Write([]byte("1748194202."))
	m.Write(body)
	if got, want := s.Sign("ignored", 1748194202, body), "sha256="+hex.EncodeToString(m.Sum(nil)); got != want {
		t.Fatalf("got %s, want %s", got, want)
	}
}

func TestSignIsSafeForConcurrentUse(t *testing.T) {
	k := mustSecret(t, sample)
	s := mustSigner(t, k)
	var wg sync.WaitGroup
	for g := range 8 {
		wg.Go(func() {
			for i := range 200 {
				body := fmt.Appendf(nil, "%d/%d", g, i)
				if s.Sign("evt_1", int64(i), body) != oracle(k.Bytes(), "evt_1", int64(i), body) {
					t.Error("a signature was mixed up with another")
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestSignAllocatesTheStringAlone(t *testing.T) {
	k := mustSecret(t, sample)
	pw, err := NewPurpleWolf(k)
	if err != nil {
		t.Fatal(err)
	}
	body := bytes.Repeat([]byte{'x'}, 1024)
	for name, s := range map[string]*Signer{"one": mustSigner(t, k), "two": mustSigner(t, k, k), "purple-wolf": pw} {
		if n := testing.AllocsPerRun(200, func() { s.Sign("evt_01HXYZ7F8GZG23P4M2RKN9Y4QF", 1614265330, body) }); n > signAllocs {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}

func BenchmarkSign(b *testing.B) {
	k := mustSecret(b, sample)
	private, err := NewPrivateKey(bytes.NewReader(bytes.Repeat([]byte{5}, 32)))
	if err != nil {
		b.Fatal(err)
	}
	for _, c := range []struct {
		name string
		keys []Key
	}{{"v1", []Key{k}}, {"v1x2", []Key{k, k}}, {"v1a", []Key{private}}} {
		for _, size := range []int{1 << 10, 64 << 10} {
			b.Run(fmt.Sprintf("%s/%dKB", c.name, size>>10), func(b *testing.B) {
				s, body := mustSigner(b, c.keys...), bytes.Repeat([]byte{'x'}, size)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					s.Sign("evt_01HXYZ7F8GZG23P4M2RKN9Y4QF", 1614265330, body)
				}
			})
		}
	}
}
