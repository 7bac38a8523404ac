package signing

import (
	"encoding/base64"
	"encoding/hex"
	"strings"
	"time"
)

// The signature headers of other senders.
const (
	GitHubSignature  = "X-Hub-Signature-256"
	StripeSignature  = "Stripe-Signature"
	ShopifySignature = "X-Shopify-Hmac-Sha256"
	SlackSignature   = "X-Slack-Signature"
	SlackTimestamp   = "X-Slack-Request-Timestamp"
)

// VerifyPurpleWolf checks X-PurpleWolf-Signature over X-PurpleWolf-Timestamp
// and the raw body.
func VerifyPurpleWolf(secrets []Secret, header, ts string, body []byte, now time.Time, tolerance time.Duration) error {
	if header == "" || ts == "" {
		return ErrMissingHeader
	}
	if _, err := checkTime(ts, now, tolerance); err != nil {
		return err
	}
	sig, ok := strings.CutPrefix(header, sha256is)
	if !ok {
		return ErrNoKnownVersion
	}
	return matchHex(secrets, sig, body, ts, ".")
}

// VerifyGitHub checks X-Hub-Signature-256 over the raw body. GitHub signs no
// time: remember X-GitHub-Delivery to refuse repeats.
func VerifyGitHub(secrets []Secret, header string, body []byte) error {
	if header == "" {
		return ErrMissingHeader
	}
	sig, ok := strings.CutPrefix(header, sha256is)
	if !ok {
		return ErrNoKnownVersion
	}
	return matchHex(secrets, sig, body)
}

// VerifyStripe checks Stripe-Signature over its own timestamp and the raw
// body. Stripe's key is the whole text of its secret, "whsec_" included: make
// it with RawSecret.
func VerifyStripe(secrets []Secret, header string, body []byte, now time.Time, tolerance time.Duration) error {
	if header == "" {
		return ErrMissingHeader
	}
	var ts string
	var sigs []string
	for n := 0; header != "" && n < maxSignatures; n++ {
		var part string
		part, header, _ = strings.Cut(header, ",")
		switch name, value, _ := strings.Cut(part, "="); {
		case name == "t" && ts == "":
			ts = value
		case name == "t":
			return ErrMalformedTimestamp // two times: which one was checked?
		case name == "v1":
			sigs = append(sigs, value)
		}
	}
	if ts == "" {
		return ErrMissingHeader
	}
	if _, err := checkTime(ts, now, tolerance); err != nil {
		return err
	}
	if len(sigs) == 0 {
		return ErrNoKnownVersion
	}
	err := ErrNoMatch
	for _, sig := range sigs {
		if err = matchHex(secrets, sig, body, ts, "."); err == nil {
			return nil
		}
	}
	return err
}

// VerifyShopify checks X-Shopify-Hmac-Sha256 over the raw body. Shopify signs
// no time: remember X-Shopify-Event-Id to refuse repeats.
func VerifyShopify(secrets []Secret, header string, body []byte) error {
	if header == "" {
		return ErrMissingHeader
	}
	return match(secrets, header, base64.StdEncoding.AppendEncode, body)
}

// VerifySlack checks X-Slack-Signature over X-Slack-Request-Timestamp and the
// raw body.
func VerifySlack(secrets []Secret, header, ts string, body []byte, now time.Time, tolerance time.Duration) error {
	if header == "" || ts == "" {
		return ErrMissingHeader
	}
	if _, err := checkTime(ts, now, tolerance); err != nil {
		return err
	}
	sig, ok := strings.CutPrefix(header, "v0=")
	if !ok {
		return ErrNoKnownVersion
	}
	return matchHex(secrets, sig, body, "v0:", ts, ":")
}

func matchHex(secrets []Secret, sig string, body []byte, head ...string) error {
	return match(secrets, sig, hex.AppendEncode, body, head...)
}

// match compares sig with the encoded HMAC of head and body under each secret.
func match(secrets []Secret, sig string, encode func(dst, src []byte) []byte, body []byte, head ...string) error {
	if len(secrets) == 0 {
		return ErrNoKey
	}
	if len(secrets) > MaxKeys {
		return ErrTooManyKeys
	}
	w := borrow()
	defer w.giveBack()
	w.head = w.head[:0]
	for _, h := range head {
		w.head = append(w.head, h...)
	}
	found := false
	for _, s := range secrets {
		if s.IsZero() {
			return ErrNoKey
		}
		w.out = encode(w.out[:0], w.mac(s.k.v, w.head, body))
		found = sameText(w.out, sig) || found
	}
	if !found {
		return ErrNoMatch
	}
	return nil
}
