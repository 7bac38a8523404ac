package receiver

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/surehook/surehook/signing"
)

// Message is a request that was verified.
type Message struct {
	// ID is what a duplicate is recognised by, the same on every attempt. Empty:
	// the request has none, and can't be recognised.
	ID string
	// Time is when the sender signed this attempt. Zero: the scheme signs no time.
	Time time.Time
	// Attempt counts from 1. 0: the sender doesn't tell.
	Attempt int
	// Body is what was signed, byte for byte.
	Body []byte
}

// Scheme is how a sender signs, with the secrets that it may sign with.
type Scheme struct {
	name    string
	headers []string // that must not be there twice: which one was checked?
	err     error    // of the constructor; New tells it
	verify  func(r request) (Message, error)
}

// request is what a scheme judges.
type request struct {
	header    http.Header
	body      []byte
	now       time.Time
	tolerance time.Duration
}

// The header by which senders other than Surehook and purple-wolf name an event.
const (
	GitHubDelivery = "X-GitHub-Delivery"
	ShopifyEvent   = "X-Shopify-Event-Id"
	shopifyTopic   = "X-Shopify-Topic"
	slackRetry     = "X-Slack-Retry-Num"
	attemptHeader  = "Surehook-Attempt"
)

// Standard is Standard Webhooks, as Surehook's profiles standard, pylota and
// sentinel sign: v1 with whsec_ secrets, v1a with whpk_ public keys. During a
// rotation give the new and the previous one.
func Standard(secrets ...string) Scheme {
	s := Scheme{name: "standard", headers: []string{signing.HeaderID, signing.HeaderTimestamp, signing.HeaderSignature}}
	keys := make([]signing.Key, len(secrets))
	for i, text := range secrets {
		var err error
		switch {
		case strings.HasPrefix(text, "whpk_"):
			keys[i], err = signing.ParsePublicKey(text)
		case strings.HasPrefix(text, "whsk_"):
			keys[i], err = signing.ParsePrivateKey(text)
		default:
			keys[i], err = signing.ParseSecret(text)
		}
		if err != nil {
			s.err = fmt.Errorf("receiver: secret %d: %w", i+1, err)
			return s
		}
	}
	s.err = counted(len(keys))
	s.verify = func(r request) (Message, error) {
		id, ts := r.header.Get(signing.HeaderID), r.header.Get(signing.HeaderTimestamp)
		err := signing.Verify(keys, r.header.Get(signing.HeaderSignature), id, ts, r.body, r.now, r.tolerance)
		return Message{ID: id, Time: unix(ts), Attempt: number(r.header.Get(attemptHeader))}, err
	}
	return s
}

// PurpleWolf is the purple-wolf relay's contract, major version 1. The key is
// the text itself. Only the time and the body are signed, so the event's id is
// taken from the body; a request whose header names another one is refused.
func PurpleWolf(secrets ...string) Scheme {
	s, keys := raw("purple-wolf", secrets, signing.PurpleWolfTimestamp, signing.PurpleWolfSignature, signing.PurpleWolfEventID)
	s.verify = func(r request) (Message, error) {
		ts, sig, id := r.header.Get(signing.PurpleWolfTimestamp), r.header.Get(signing.PurpleWolfSignature), r.header.Get(signing.PurpleWolfEventID)
		if id == "" {
			return Message{}, signing.ErrMissingHeader
		}
		if err := signing.VerifyPurpleWolf(keys, sig, ts, r.body, r.now, r.tolerance); err != nil {
			return Message{ID: id}, err
		}
		var envelope struct {
			Schema  string `json:"schema"`
			EventID string `json:"event_id"`
			Attempt int    `json:"attempt"`
		}
		if err := json.Unmarshal(r.body, &envelope); err != nil {
			return Message{ID: id}, ErrEnvelope
		}
		if envelope.Schema != purpleWolfSchema {
			return Message{ID: id}, ErrSchema
		}
		if envelope.EventID == "" || envelope.EventID != id {
			return Message{ID: id}, ErrEventID
		}
		return Message{ID: id, Time: unix(ts), Attempt: envelope.Attempt}, nil
	}
	return s
}

const purpleWolfSchema = "purple-wolf.audit/v1"

// GitHub is X-Hub-Signature-256. GitHub signs neither a time nor its
// X-GitHub-Delivery, by which duplicates are recognised: whoever captured a
// request can send it again under another id. Make the effect itself safe to
// repeat where that matters.
func GitHub(secrets ...string) Scheme {
	s, keys := raw("github", secrets, signing.GitHubSignature, GitHubDelivery)
	s.verify = func(r request) (Message, error) {
		id := r.header.Get(GitHubDelivery)
		if id == "" {
			return Message{}, signing.ErrMissingHeader
		}
		return Message{ID: id}, signing.VerifyGitHub(keys, r.header.Get(signing.GitHubSignature), r.body)
	}
	return s
}

// Stripe is Stripe-Signature. The key is the whole text of the secret, whsec_
// included; the id is the event's, in the body.
func Stripe(secrets ...string) Scheme {
	s, keys := raw("stripe", secrets, signing.StripeSignature)
	s.verify = func(r request) (Message, error) {
		sig := r.header.Get(signing.StripeSignature)
		if err := signing.VerifyStripe(keys, sig, r.body, r.now, r.tolerance); err != nil {
			return Message{}, err
		}
		id, err := member(r.body, "id")
		return Message{ID: id, Time: stripeTime(sig)}, err
	}
	return s
}

// Shopify is X-Shopify-Hmac-Sha256. Shopify signs no time. One action of a
// merchant has one X-Shopify-Event-Id in webhooks of several topics, so the ID
// is topic and event id together; neither is signed.
func Shopify(secrets ...string) Scheme {
	s, keys := raw("shopify", secrets, signing.ShopifySignature, ShopifyEvent, shopifyTopic)
	s.verify = func(r request) (Message, error) {
		id := r.header.Get(ShopifyEvent)
		if id == "" {
			return Message{}, signing.ErrMissingHeader
		}
		return Message{ID: r.header.Get(shopifyTopic) + " " + id}, signing.VerifyShopify(keys, r.header.Get(signing.ShopifySignature), r.body)
	}
	return s
}

// Slack is X-Slack-Signature. The id is an event's event_id; other requests,
// such as the challenge of a new URL or a slash command, have none.
func Slack(secrets ...string) Scheme {
	s, keys := raw("slack", secrets, signing.SlackTimestamp, signing.SlackSignature)
	s.verify = func(r request) (Message, error) {
		ts := r.header.Get(signing.SlackTimestamp)
		if err := signing.VerifySlack(keys, r.header.Get(signing.SlackSignature), ts, r.body, r.now, r.tolerance); err != nil {
			return Message{}, err
		}
		m := Message{Time: unix(ts), Attempt: 1}
		m.ID, _ = member(r.body, "event_id") // a form has none
		if n := number(r.header.Get(slackRetry)); n > 0 {
			m.Attempt = n + 1
		}
		return m, nil
	}
	return s
}

// raw is a scheme whose key is the secret's text.
func raw(name string, secrets []string, headers ...string) (Scheme, []signing.Secret) {
	s := Scheme{name: name, headers: headers}
	keys := make([]signing.Secret, len(secrets))
	for i, text := range secrets {
		var err error
		if keys[i], err = signing.RawSecret([]byte(text)); err != nil {
			s.err = fmt.Errorf("receiver: secret %d: %w", i+1, err)
			return s, nil
		}
	}
	s.err = counted(len(keys))
	return s, keys
}

func counted(n int) error {
	switch {
	case n == 0:
		return fmt.Errorf("receiver: %w", signing.ErrNoKey)
	case n > signing.MaxKeys:
		return fmt.Errorf("receiver: %w", signing.ErrTooManyKeys)
	}
	return nil
}

// member is a text member of a JSON object.
func member(body []byte, name string) (string, error) {
	var object map[string]json.RawMessage
	var text string
	if json.Unmarshal(body, &object) != nil || json.Unmarshal(object[name], &text) != nil || text == "" {
		return "", ErrEnvelope
	}
	return text, nil
}

func unix(ts string) time.Time {
	sec, err := strconv.ParseInt(ts, 10, 64)
	if err != nil {
		return time.Time{}
	}
	return time.Unix(sec, 0).UTC()
}

func number(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return 0
	}
	return n
}

// stripeTime is the t of a header that was verified.
func stripeTime(header string) time.Time {
	for part := range strings.SplitSeq(header, ",") {
		if ts, ok := strings.CutPrefix(part, "t="); ok {
			return unix(ts)
		}
	}
	return time.Time{}
}
