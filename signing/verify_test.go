package signing

import (
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

type vector struct {
	Name, Why, Secret, ID, Body, Signature string
	SecretKey                              string `json:"secret_key"`
	PublicKey                              string `json:"public_key"`
	Timestamp                              int64
}

type vectors struct {
	V1     []vector `json:"standard_v1"`
	V1a    []vector `json:"standard_v1a"`
	GitHub []vector `json:"github"`
	Reject []vector `json:"standard_v1_reject"`
}

func load(t *testing.T) (v vectors) {
	t.Helper()
	b, err := os.ReadFile("testdata/signing.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &v); err != nil {
		t.Fatal(err)
	}
	if len(v.V1) == 0 || len(v.V1a) == 0 || len(v.GitHub) == 0 || len(v.Reject) == 0 {
		t.Fatal("a group of vectors is empty")
	}
	return v
}

func (v vector) verify(keys ...Key) error {
	return Verify(keys, v.Signature, v.ID, strconv.FormatInt(v.Timestamp, 10), []byte(v.Body), time.Unix(v.Timestamp, 0), Tolerance)
}

func TestVectors(t *testing.T) {
	all := load(t)
	for _, v := range all.V1 {
		k := mustSecret(t, v.Secret)
		if got := mustSigner(t, k).Sign(v.ID, v.Timestamp, []byte(v.Body)); got != v.Signature {
			t.Errorf("%s: signed %s", v.Name, got)
		}
		if err := v.verify(k); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
	}
	for _, v := range all.V1a {
		private, err := ParsePrivateKey(v.SecretKey)
		if err != nil {
			t.Fatal(err)
		}
		public, err := ParsePublicKey(v.PublicKey)
		if err != nil {
			t.Fatal(err)
		}
		if got := mustSigner(t, private).Sign(v.ID, v.Timestamp, []byte(v.Body)); got != v.Signature {
			t.Errorf("%s: signed %s", v.Name, got)
		}
		if err := v.verify(public); err != nil {
			t.Errorf("%s: %v", v.Name, err)
		}
		v.Body += " "
		if err := v.verify(public); !errors.Is(err, ErrNoMatch) {
			t.Errorf("%s with another body: %v", v.Name, err)
		}
	}
	for _, v := range all.GitHub {
		k, err := RawSecret([]byte(v.Secret))
		if err != nil {
			t.Fatal(err)
		}
		if err := VerifyGitHub([]Secret{k}, v.Signature, []byte(v.Body)); err != nil {
			t.Error(err)
		}
	}
	for _, v := range all.Reject {
		if err := v.verify(mustSecret(t, v.Secret)); err == nil {
			t.Errorf("%s: accepted", v.Why)
		}
	}
}

func TestVerifyNamesWhatIsWrong(t *testing.T) {
	k := mustSecret(t, sample)
	now := time.Unix(1614265330, 0)
	good := oracle(k.Bytes(), "evt_1", now.Unix(), nil)
	short, err := RawSecret([]byte("short"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, header, id, ts string
		now                  time.Time
		keys                 []Key
		tolerance            time.Duration
		want                 error
	}{
		{name: "good", want: nil},
		{name: "unknown versions around it", header: "v9,zz " + good + " v1a,AA==", want: nil},
		{name: "second of two", header: "v1,AAAA " + good, want: nil},
		{name: "second key", keys: []Key{mustSecret(t, "whsec_"+encoded(32)), k}, want: nil},
		{name: "exactly at the tolerance, old", now: now.Add(Tolerance), want: nil},
		{name: "exactly at the tolerance, new", now: now.Add(-Tolerance), want: nil},
		{name: "older by a nanosecond", now: now.Add(Tolerance + 1), want: ErrTooOld},
		{name: "newer by a nanosecond", now: now.Add(-Tolerance - 1), want: ErrTooNew},
		{name: "no signature", header: "-", want: ErrMissingHeader},
		{name: "no id", id: "-", want: ErrMissingHeader},
		{name: "no timestamp", ts: "-", want: ErrMissingHeader},
		{name: "dot in id", id: "evt_1.1", want: ErrMalformedID},
		{name: "word for a time", ts: "soon", want: ErrMalformedTimestamp},
		{name: "signed time", ts: "+1614265330", want: ErrMalformedTimestamp},
		{name: "negative time", ts: "-1614265330", want: ErrMalformedTimestamp},
		{name: "minus zero", ts: "-0", want: ErrMalformedTimestamp},
		{name: "leading zero", ts: "01614265330", want: ErrMalformedTimestamp},
		{name: "fraction", ts: "1614265330.5", want: ErrMalformedTimestamp},
		{name: "space", ts: " 1614265330", want: ErrMalformedTimestamp},
		{name: "too many digits", ts: "99999999999999999999", want: ErrMalformedTimestamp},
		{name: "milliseconds", ts: "1614265330000", want: ErrTooNew},
		{name: "end of time", ts: "9223372036854775807", want: ErrTooNew},
		{name: "epoch", ts: "0", want: ErrTooOld},
		{name: "unknown version only", header: "v2," + good[3:], want: ErrNoKnownVersion},
		{name: "other family only", header: "v1a," + good[3:], want: ErrNoKnownVersion},
		{name: "no version", header: good[3:], want: ErrNoKnownVersion},
		{name: "empty signature", header: "v1,", want: ErrNoMatch},
		{name: "cut", header: good[:len(good)-1], want: ErrNoMatch},
		{name: "longer", header: good + "=", want: ErrNoMatch},
		{name: "other id", id: "evt_2", want: ErrNoMatch},
		{name: "other time", ts: "1614265331", want: ErrNoMatch},
		{name: "behind a wall of signatures", header: strings.Repeat("v1,AAAA ", maxSignatures) + good, want: ErrNoMatch},
		{name: "tolerance 0", tolerance: -Tolerance, want: ErrTolerance},
		{name: "no key", keys: []Key{}, want: ErrNoKey},
		{name: "zero key", keys: []Key{Secret{}}, want: ErrNoKey},
		{name: "short key", keys: []Key{short}, want: ErrLength},
		{name: "too many keys", keys: []Key{k, k, k, k, k}, want: ErrTooManyKeys},
	} {
		t.Run(c.name, func(t *testing.T) {
			keys, at, tolerance := c.keys, c.now, c.tolerance+Tolerance
			if keys == nil {
				keys = []Key{k}
			}
			if at.IsZero() {
				at = now
			}
			err := Verify(keys, or(c.header, good), or(c.id, "evt_1"), or(c.ts, "1614265330"), nil, at, tolerance)
			if !errors.Is(err, c.want) {
				t.Errorf("got %v, want %v", err, c.want)
			}
		})
	}
}

// or gives the default for an empty value, and nothing for "-".
func or(v, usual string) string {
	switch v {
	case "":
		return usual
	case "-":
		return ""
	}
	return v
}

func raw(t testing.TB, s string) Secret {
	t.Helper()
	k, err := RawSecret([]byte(s))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// hexMAC is the hex form of the oracle, over the joined parts.
func hexMAC(key string, parts ...string) string {
	w := borrow()
	defer w.giveBack()
	return hex.EncodeToString(w.mac(newKeyed([]byte(key)), nil, []byte(strings.Join(parts, ""))))
}

func TestPurpleWolf(t *testing.T) {
	now := time.Unix(1748194202, 0)
	good := "sha256=" + hexMAC("s3cret", "1748194202.", "{}")
	check := func(header, ts, body string, want error) {
		t.Helper()
		if err := VerifyPurpleWolf([]Secret{raw(t, "old"), raw(t, "s3cret")}, header, ts, []byte(body), now, Tolerance); !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
	}
	check(good, "1748194202", "{}", nil)
	check(good, "1748194202", "{ }", ErrNoMatch)
	check(strings.ToUpper(good[7:]), "1748194202", "{}", ErrNoKnownVersion)
	check("sha256="+strings.ToUpper(good[7:]), "1748194202", "{}", ErrNoMatch)
	check("", "1748194202", "{}", ErrMissingHeader)
	check(good, "1748193901", "{}", ErrTooOld)
	check(good, "", "{}", ErrMissingHeader)
}

// Stripe's own prefix is whsec_ too, and the whole text is the key: nothing
// here may infer the scheme from it.
func TestStripe(t *testing.T) {
	now := time.Unix(1614265330, 0)
	secret := sample
	sig := hexMAC(secret, "1614265330.", "{}")
	check := func(header, body string, want error) {
		t.Helper()
		if err := VerifyStripe([]Secret{raw(t, secret)}, header, []byte(body), now, Tolerance); !errors.Is(err, want) {
			t.Errorf("%s: got %v, want %v", header, err, want)
		}
	}
	check("t=1614265330,v1="+sig, "{}", nil)
	check("t=1614265330,v1=00,v1="+sig+",v0=x", "{}", nil)
	check("v1="+sig+",t=1614265330", "{}", nil)
	check("t=1614265330,v1="+sig, "[]", ErrNoMatch)
	check("t=1614265330,v0="+sig, "{}", ErrNoKnownVersion)
	check("t=1614265330,t=1614265330,v1="+sig, "{}", ErrMalformedTimestamp)
	check("t=1614264330,v1="+sig, "{}", ErrTooOld)
	check("t=x,v1="+sig, "{}", ErrMalformedTimestamp)
	check("v1="+sig, "{}", ErrMissingHeader)
	check("", "{}", ErrMissingHeader)
	if err := VerifyStripe([]Secret{mustSecret(t, secret)}, "t=1614265330,v1="+sig, []byte("{}"), now, Tolerance); !errors.Is(err, ErrNoMatch) {
		t.Errorf("the decoded secret verified Stripe's signature: %v", err)
	}
}

func TestSlackShopifyGitHub(t *testing.T) {
	now := time.Unix(1531420618, 0)
	// The example of Slack's documentation.
	body := "token=xyzz0WbapA4vBCDEFasx0q6G&team_id=T1DC2JH3J&team_domain=testteamnow&channel_id=G8PSS9T3V&channel_name=foobar&user_id=U2CERLKJA&user_name=roadrunner&command=%2Fwebhook-collect&text=&response_url=https%3A%2F%2Fhooks.slack.com%2Fcommands%2FT1DC2JH3J%2F397700885554%2F96rGlfmibIGlgcZRskXaIFfN&trigger_id=398738663015.47445629121.803a0bc887a14d10d2c447fce8b6703c"
	slack := []Secret{raw(t, "8f742231b10e8888abcd99yyyzzz85a5")}
	sig := "v0=a2114d57b48eac39b9ad189dd8316235a7b4a8d21a10bd27519666489c69b503"
	k := []Secret{raw(t, "key")}
	for name, c := range map[string]struct{ err, want error }{
		"slack":            {VerifySlack(slack, sig, "1531420618", []byte(body), now, Tolerance), nil},
		"slack body":       {VerifySlack(slack, sig, "1531420618", []byte(body+"x"), now, Tolerance), ErrNoMatch},
		"slack version":    {VerifySlack(slack, "v1=00", "1531420618", nil, now, Tolerance), ErrNoKnownVersion},
		"slack old":        {VerifySlack(slack, sig, "1531420018", nil, now, Tolerance), ErrTooOld},
		"slack missing":    {VerifySlack(slack, "", "1531420618", nil, now, Tolerance), ErrMissingHeader},
		"shopify":          {VerifyShopify(k, oracleShopify("key", "{}"), []byte("{}")), nil},
		"shopify body":     {VerifyShopify(k, oracleShopify("key", "{}"), []byte("[]")), ErrNoMatch},
		"shopify missing":  {VerifyShopify(k, "", nil), ErrMissingHeader},
		"shopify no key":   {VerifyShopify(nil, "x", nil), ErrNoKey},
		"shopify zero key": {VerifyShopify([]Secret{{}}, "x", nil), ErrNoKey},
		"shopify keys":     {VerifyShopify(make([]Secret, 5), "x", nil), ErrTooManyKeys},
		"github missing":   {VerifyGitHub(k, "", nil), ErrMissingHeader},
		"github sha1":      {VerifyGitHub(k, "sha1=00", nil), ErrNoKnownVersion},
		"github no match":  {VerifyGitHub(k, "sha256=00", nil), ErrNoMatch},
	} {
		if !errors.Is(c.err, c.want) {
			t.Errorf("%s: got %v, want %v", name, c.err, c.want)
		}
	}
}

func BenchmarkVerify(b *testing.B) {
	k := mustSecret(b, sample)
	now := time.Unix(1614265330, 0)
	body := []byte(strings.Repeat("x", 1<<10))
	header := oracle(k.Bytes(), "evt_1", now.Unix(), body)
	keys := []Key{k}
	b.SetBytes(int64(len(body)))
	b.ReportAllocs()
	for b.Loop() {
		if err := Verify(keys, header, "evt_1", "1614265330", body, now, Tolerance); err != nil {
			b.Fatal(err)
		}
	}
}
