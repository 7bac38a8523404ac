package signing

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"strconv"
)

// The headers of Standard Webhooks.
const (
	HeaderID        = "webhook-id"
	HeaderTimestamp = "webhook-timestamp"
	HeaderSignature = "webhook-signature"
)

// The headers of the purple-wolf relay.
const (
	PurpleWolfSchema     = "X-PurpleWolf-Schema"
	PurpleWolfEventID    = "X-PurpleWolf-Event-Id"
	PurpleWolfDeliveryID = "X-PurpleWolf-Delivery-Id"
	PurpleWolfAttempt    = "X-PurpleWolf-Attempt"
	PurpleWolfTimestamp  = "X-PurpleWolf-Timestamp"
	PurpleWolfSignature  = "X-PurpleWolf-Signature"
)

// MaxKeys is how many keys may sign one request: a rotation needs two.
const MaxKeys = 4

const (
	v1       = "v1"
	v1a      = "v1a"
	sha256is = "sha256="
)

// Errors of the constructors.
var (
	ErrNoKey       = errors.New("signing: no key")
	ErrTooManyKeys = errors.New("signing: too many keys")
)

// Key is a Secret, a PrivateKey or a PublicKey.
type Key interface {
	IsZero() bool
	version() string
}

func (Secret) version() string     { return v1 }
func (PrivateKey) version() string { return v1a }
func (PublicKey) version() string  { return v1a }

// Signer makes the value of a signature header. Build it once for an endpoint;
// it may be used from many goroutines at once.
type Signer struct {
	keys       []Key
	purpleWolf bool
}

// NewSigner signs by Standard Webhooks with every key, in the order given: the
// current one first, then the previous while a rotation's overlap lasts. A
// Secret signs v1, a PrivateKey v1a.
func NewSigner(keys ...Key) (*Signer, error) {
	if len(keys) == 0 {
		return nil, ErrNoKey
	}
	if len(keys) > MaxKeys {
		return nil, ErrTooManyKeys
	}
	for _, k := range keys {
		if k == nil || k.IsZero() {
			return nil, ErrNoKey
		}
		switch k := k.(type) {
		case PublicKey:
			return nil, errors.New("signing: a public key can't sign")
		case Secret:
			if err := checkSecret(k.Len()); err != nil {
				return nil, err
			}
		}
	}
	return &Signer{keys: append([]Key(nil), keys...)}, nil
}

// NewPurpleWolf signs as the purple-wolf relay does: "sha256=" and lower-case
// hex over "{timestamp}.{body}". Its header has room for one signature, so
// there is one secret and no overlap.
func NewPurpleWolf(secret Secret) (*Signer, error) {
	if secret.IsZero() {
		return nil, ErrNoKey
	}
	return &Signer{keys: []Key{secret}, purpleWolf: true}, nil
}

// Sign makes the header value for one attempt: id is the webhook-id (it must
// hold no "."; purple-wolf doesn't sign it), ts the attempt's time in Unix
// seconds, and body the very bytes that will be sent.
func (s *Signer) Sign(id string, ts int64, body []byte) string {
	w := borrow()
	defer w.giveBack()
	if s.purpleWolf {
		w.head = append(strconv.AppendInt(w.head[:0], ts, 10), '.')
		w.out = append(w.out[:0], sha256is...)
		w.out = hex.AppendEncode(w.out, w.mac(s.keys[0].(Secret).k.v, w.head, body))
		return string(w.out)
	}
	w.setHead(id, ts)
	w.out = w.out[:0]
	for i, key := range s.keys {
		if i > 0 {
			w.out = append(w.out, ' ')
		}
		switch key := key.(type) {
		case Secret:
			w.out = append(w.out, v1+","...)
			w.out = base64.StdEncoding.AppendEncode(w.out, w.mac(key.k.v, w.head, body))
		case PrivateKey:
			w.out = append(w.out, v1a+","...)
			w.out = base64.StdEncoding.AppendEncode(w.out, ed25519.Sign(*key.k.v, w.message(body)))
		}
	}
	return string(w.out)
}
