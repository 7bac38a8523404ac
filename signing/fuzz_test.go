package signing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"
)

func oracleShopify(key, body string) string {
	m := hmac.New(sha256.New, []byte(key))
	m.Write([]byte(body))
	return base64.StdEncoding.EncodeToString(m.Sum(nil))
}

// There is one text for each key: whatever is accepted is written back as it
// came.
func FuzzParseKeys(f *testing.F) {
	f.Add(sample)
	f.Add("v1," + sample)
	f.Add(sample + "\n")
	f.Add("whsk_6Xb/dCcHpPea21PS1N9VY/NZW723CEc77N4rJCubMbfVKIDij2HKpMKkioLlX0dRqSKJp4AJ6p9lMicMFs6Kvg==")
	f.Add("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=")
	f.Fuzz(func(t *testing.T, s string) {
		secret, err := ParseSecret(s)
		check(t, s, err, secret.Encode)
		private, err := ParsePrivateKey(s)
		check(t, s, err, private.Encode)
		public, err := ParsePublicKey(s)
		check(t, s, err, public.Encode)
	})
}

func check(t *testing.T, in string, err error, encode func() string) {
	t.Helper()
	if err == nil {
		if encode() != in {
			t.Fatal("what was read is not what is written")
		}
		return
	}
	if _, ok := errors.AsType[*KeyError](err); !ok {
		t.Fatalf("%T is no KeyError", err)
	}
	if len(in) > 24 && strings.Contains(err.Error(), in[6:]) {
		t.Fatal("the error repeats the key")
	}
}

// A header is accepted only if it holds the signature of these very bytes.
func FuzzVerify(f *testing.F) {
	k := mustSecret(f, sample)
	now := time.Unix(1614265330, 0)
	good := oracle(k.Bytes(), "evt_1", now.Unix(), nil)
	f.Add(good, "evt_1", "1614265330")
	f.Add("v1, v1a, , v2,x", "a.b", "-1")
	f.Add("t=1614265330,v1=00,v1=", "x", "01")
	f.Fuzz(func(t *testing.T, header, id, ts string) {
		if Verify([]Key{k}, header, id, ts, nil, now, Tolerance) == nil &&
			!strings.Contains(" "+header+" ", " "+good+" ") && id == "evt_1" && ts == "1614265330" {
			t.Fatal("accepted without the signature")
		}
		s := []Secret{k}
		for _, err := range []error{
			VerifyStripe(s, header, nil, now, Tolerance), VerifySlack(s, header, ts, nil, now, Tolerance),
			VerifyGitHub(s, header, nil), VerifyShopify(s, header, nil), VerifyPurpleWolf(s, header, ts, nil, now, Tolerance),
		} {
			if err == nil && !strings.ContainsAny(header, "0123456789abcdef+/=") {
				t.Fatal("accepted without a signature")
			}
		}
	})
}
