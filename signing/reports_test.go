package signing

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"strconv"
	"testing"
	"time"
)

// what verifies, verifies bytes: a secret and a body beyond ASCII are as
// good as any, in every scheme, and one byte of them more isn't.
func TestA10_VerifiersTakeBytes(t *testing.T) {
	const secret, body = "пароль-ñ-😊-пароль-ñ-😊", `{"m":"😊 ñ 👩‍👩‍👧 \u00e9"}`
	now := time.Unix(1614265330, 0)
	ts := strconv.FormatInt(now.Unix(), 10)
	sum := func(signed string) []byte {
		h := hmac.New(sha256.New, []byte(secret))
		h.Write([]byte(signed))
		return h.Sum(nil)
	}
	raw, err := RawSecret([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	key := mustSecret(t, "whsec_"+base64.StdEncoding.EncodeToString([]byte(secret)))
	raws := []Secret{raw}
	for name, verify := range map[string]func(body []byte) error{
		"standard": func(b []byte) error {
			return Verify([]Key{key}, "v1,"+base64.StdEncoding.EncodeToString(sum("evt_1."+ts+"."+body)), "evt_1", ts, b, now, Tolerance)
		},
		"purple-wolf": func(b []byte) error {
			return VerifyPurpleWolf(raws, "sha256="+hex.EncodeToString(sum(ts+"."+body)), ts, b, now, Tolerance)
		},
		"github":  func(b []byte) error { return VerifyGitHub(raws, "sha256="+hex.EncodeToString(sum(body)), b) },
		"shopify": func(b []byte) error { return VerifyShopify(raws, base64.StdEncoding.EncodeToString(sum(body)), b) },
		"stripe": func(b []byte) error {
			return VerifyStripe(raws, "t="+ts+",v1="+hex.EncodeToString(sum(ts+"."+body)), b, now, Tolerance)
		},
		"slack": func(b []byte) error {
			return VerifySlack(raws, "v0="+hex.EncodeToString(sum("v0:"+ts+":"+body)), ts, b, now, Tolerance)
		},
	} {
		if err := verify([]byte(body)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if err := verify([]byte(body + "é")); err == nil {
			t.Errorf("%s: another body passes", name)
		}
	}
}
