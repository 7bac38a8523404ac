package signing

import (
	"crypto/ed25519"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// Tolerance is how far a timestamp may be from now, by custom of the schemes
// here.
const Tolerance = 5 * time.Minute

// Why a request was refused. None of them says anything about the key.
var (
	ErrMissingHeader      = errors.New("signing: a signature header is missing")
	ErrMalformedID        = errors.New("signing: the webhook id holds a dot")
	ErrMalformedTimestamp = errors.New("signing: the timestamp is not a number of Unix seconds")
	ErrTooOld             = errors.New("signing: the timestamp is too old")
	ErrTooNew             = errors.New("signing: the timestamp is too far in the future")
	ErrNoKnownVersion     = errors.New("signing: no signature of a version that the keys can verify")
	ErrNoMatch            = errors.New("signing: no signature matches")
	ErrTolerance          = errors.New("signing: the tolerance must be positive")
)

// maxSignatures bounds the work that one hostile header can cause. A sender in
// the middle of a rotation needs two.
const maxSignatures = 32

// Verify checks a request by Standard Webhooks. header, id and ts are the
// values of webhook-signature, webhook-id and webhook-timestamp; body is the
// raw body. Signatures of unknown versions are skipped; one match under one
// key is enough. During a rotation give both keys.
//
// An id with a dot is refused: "a.1" and "2" would sign the same bytes as "a"
// and "1" with a longer body.
func Verify(keys []Key, header, id, ts string, body []byte, now time.Time, tolerance time.Duration) error {
	if err := checkKeys(keys); err != nil {
		return err
	}
	if header == "" || id == "" || ts == "" {
		return ErrMissingHeader
	}
	if strings.Contains(id, ".") {
		return ErrMalformedID
	}
	sec, err := checkTime(ts, now, tolerance)
	if err != nil {
		return err
	}
	w := borrow()
	defer w.giveBack()
	w.setHead(id, sec)
	known := false
	for _, key := range keys {
		found, match := w.anyMatch(key, header, body)
		if match {
			return nil
		}
		known = known || found
	}
	if !known {
		return ErrNoKnownVersion
	}
	return ErrNoMatch
}

func checkKeys(keys []Key) error {
	if len(keys) == 0 {
		return ErrNoKey
	}
	if len(keys) > MaxKeys {
		return ErrTooManyKeys
	}
	for _, k := range keys {
		if k == nil || k.IsZero() {
			return ErrNoKey
		}
		if s, ok := k.(Secret); ok {
			if err := checkSecret(s.Len()); err != nil {
				return err
			}
		}
	}
	return nil
}

// anyMatch tries key on each signature of its version in header.
func (s *scratch) anyMatch(key Key, header string, body []byte) (found, match bool) {
	check := s.checker(key, body)
	want := key.version()
	for n := 0; header != "" && n < maxSignatures; n++ {
		var one string
		one, header, _ = strings.Cut(header, " ")
		version, sig, ok := strings.Cut(one, ",")
		if !ok || version != want {
			continue
		}
		found = true
		if check(sig) {
			return true, true
		}
	}
	return found, false
}

// checker returns the comparison for one key; what doesn't depend on the
// signature is computed once.
func (s *scratch) checker(key Key, body []byte) func(sig string) bool {
	switch key := key.(type) {
	case Secret:
		s.out = base64.StdEncoding.AppendEncode(s.out[:0], s.mac(key.k.v, s.head, body))
		return func(sig string) bool { return sameText(s.out, sig) }
	case PrivateKey:
		return s.checker(key.Public(), body)
	case PublicKey:
		msg := s.message(body)
		return func(sig string) bool {
			b, err := base64.StdEncoding.Strict().DecodeString(sig)
			return err == nil && len(b) == ed25519.SignatureSize && ed25519.Verify(key.k, msg, b)
		}
	}
	return func(string) bool { return false }
}

// sameText compares in a time that depends on the lengths alone.
func sameText(want []byte, got string) bool {
	return subtle.ConstantTimeCompare(want, []byte(got)) == 1
}

// checkTime parses a timestamp and holds it against now.
func checkTime(ts string, now time.Time, tolerance time.Duration) (int64, error) {
	if tolerance <= 0 {
		return 0, ErrTolerance
	}
	sec, err := strconv.ParseInt(ts, 10, 64)
	// What was signed is the text, so there must be one text per number: no
	// sign, no leading zero.
	if err != nil || sec < 0 || ts[0] == '+' || ts[0] == '-' || (ts[0] == '0' && len(ts) > 1) {
		return 0, ErrMalformedTimestamp
	}
	// Seconds first: a Duration holds 292 years at most, an int64 more.
	const far = 1 << 32
	switch d := sec - now.Unix(); {
	case d > far:
		return 0, ErrTooNew
	case d < -far:
		return 0, ErrTooOld
	}
	switch d := time.Unix(sec, 0).Sub(now); {
	case d > tolerance:
		return 0, ErrTooNew
	case d < -tolerance:
		return 0, ErrTooOld
	}
	return sec, nil
}
