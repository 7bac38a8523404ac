package signing_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"time"

	"github.com/surehook/surehook/signing"
)

// A sender signs the very bytes that it sends.
func ExampleSigner_Sign() {
	secret, err := signing.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	if err != nil {
		panic(err)
	}
	signer, err := signing.NewSigner(secret)
	if err != nil {
		panic(err)
	}
	fmt.Println(signer.Sign("msg_p5jXN8AQM9LWM0D4loKWxJek", 1614265330, []byte(`{"test": 2432232314}`)))
	// Output: v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=
}

// While a rotation's overlap lasts, both secrets sign, the new one first; a
// receiver with either of them accepts.
func ExampleNewSigner_rotation() {
	older, _ := signing.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	newer, _ := signing.ParseSecret("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
	signer, _ := signing.NewSigner(newer, older)
	header := signer.Sign("evt_1", 1614265330, []byte("{}"))
	now := time.Unix(1614265330, 0)
	for _, k := range []signing.Key{older, newer} {
		fmt.Println(signing.Verify([]signing.Key{k}, header, "evt_1", "1614265330", []byte("{}"), now, signing.Tolerance))
	}
	// Output:
	// <nil>
	// <nil>
}

// A receiver reads the raw body and verifies before it parses.
func ExampleVerify() {
	secret, _ := signing.ParseSecret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	clock := func() time.Time { return time.Unix(1614265400, 0) }
	handle := func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 1<<20))
		if err != nil {
			return
		}
		err = signing.Verify([]signing.Key{secret}, r.Header.Get(signing.HeaderSignature),
			r.Header.Get(signing.HeaderID), r.Header.Get(signing.HeaderTimestamp), body, clock(), signing.Tolerance)
		if err != nil {
			http.Error(w, "refused", http.StatusUnauthorized)
		}
	}
	r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(`{"test": 2432232314}`))
	r.Header.Set(signing.HeaderID, "msg_p5jXN8AQM9LWM0D4loKWxJek")
	r.Header.Set(signing.HeaderTimestamp, "1614265330")
	r.Header.Set(signing.HeaderSignature, "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=")
	w := httptest.NewRecorder()
	handle(w, r)
	fmt.Println(w.Code)
	// Output: 200
}

// A secret that can't be read for certain is refused with the reason.
func ExampleParseSecret() {
	_, err := signing.ParseSecret("v1,whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
	fmt.Println(err)
	fmt.Println(errors.Is(err, signing.ErrPrefix))
	// Output:
	// signing: bad secret: wrong prefix: it begins with a signature's version; the key begins with whsec_ after the comma
	// true
}

// A receiver of v1a needs the sender's public key alone.
func ExampleParsePublicKey() {
	public, err := signing.ParsePublicKey("whpk_1SiA4o9hyqTCpIqC5V9HUakiiaeACeqfZTInDBbOir4=")
	if err != nil {
		panic(err)
	}
	fmt.Println(signing.Verify([]signing.Key{public},
		"v1a,hnO3f9T8Ytu9HwrXslvumlUpqtNVqkhqw/enGzPCXe5BdqzCInXqYXFymVJaA7AZdpXwVLPo3mNl8EM+m7TBAg==",
		"msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`), time.Unix(1614265330, 0), signing.Tolerance))
	// Output: <nil>
}

// GitHub, Stripe, Shopify and Slack use the text of the secret as the key.
func ExampleVerifyGitHub() {
	secret, err := signing.RawSecret([]byte("It's a Secret to Everybody"))
	if err != nil {
		panic(err)
	}
	fmt.Println(signing.VerifyGitHub([]signing.Secret{secret},
		"sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17", []byte("Hello, World!")))
	// Output: <nil>
}

// The purple-wolf relay's format has its own header, time and prefix.
func ExampleNewPurpleWolf() {
	secret, _ := signing.RawSecret([]byte("shared with the subscriber"))
	signer, _ := signing.NewPurpleWolf(secret)
	body := []byte(`{"schema":"purple-wolf.audit/v1"}`)
	header := signer.Sign("", 1748194202, body)
	fmt.Println(signing.VerifyPurpleWolf([]signing.Secret{secret}, header, "1748194202", body, time.Unix(1748194202, 0), signing.Tolerance))
	// Output: <nil>
}
