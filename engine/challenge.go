package engine

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"sync"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/profile"
	"github.com/surehook/surehook/signing"
)

// Reasons why a callback wasn't verified.
const (
	ChallengeFailed  = "challenge_failed" // the secret is malformed, or the answer didn't give the challenge back
	ChallengeTimeout = "timeout"          // no answer in time, or no connection
	ChallengeNoHTTPS = "non_https"        // the URL's scheme
	ChallengeBlocked = "ssrf_blocked"     // the URL or its address isn't public, or the answer was a redirect
	ChallengeStatus  = "non_2xx"
)

// ChallengeError says why a callback wasn't verified. It holds no part of its URL.
type ChallengeError struct {
	Reason string // one of those above
	Detail string // for people
	Secret bool   // it is the secret that was refused
}

func (e *ChallengeError) Error() string {
	return "the callback wasn't verified: " + e.Reason + ": " + e.Detail
}

// passedFor is how long a challenge that passed is good for the same principal, URL
// and secret.
const (
	passedFor  = 10 * time.Minute
	mostPassed = 10_000
)

// passed remembers challenges, by a hash of what they were about.
type passed struct {
	mu sync.Mutex
	at map[[32]byte]time.Time
}

func passedKey(principal, url string, secret []byte) [32]byte {
	sum := sha256.Sum256(secret)
	return sha256.Sum256([]byte(strconv.Itoa(len(principal)) + ":" + principal + "|" + url + "|" + string(sum[:])))
}

func (p *passed) fresh(key [32]byte, now time.Time) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	at, ok := p.at[key]
	return ok && !now.Before(at) && now.Sub(at) < passedFor
}

func (p *passed) note(key [32]byte, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.at == nil || len(p.at) >= mostPassed { // those that are left out are made again
		p.at = make(map[[32]byte]time.Time)
	}
	p.at[key] = now
}

// verify has the callback of a sentinel prove that it knows the secret: it is sent a
// challenge and must give it back. ep's URL becomes canonical.
func (e *Engine) verify(ctx context.Context, principal string, ep *surehook.Endpoint, given string) error {
	t, err := e.client.ParseURL(ep.URL)
	if err != nil {
		return urlReason(err)
	}
	ep.URL = t.URL()
	secret, err := signing.ParseSecret(given)
	if err != nil {
		return &ChallengeError{Reason: ChallengeFailed, Detail: "the secret must be whsec_ and base64 of 24 to 64 bytes", Secret: true}
	}
	key := passedKey(principal, ep.URL, secret.Bytes())
	if e.passed.fresh(key, e.now()) {
		return nil
	}
	leave, err := e.enter()
	if err != nil {
		return err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)() // a stop doesn't wait for the receiver
	if err := e.challenge(ctx, ep.ID, t, secret); err != nil {
		return err
	}
	e.passed.note(key, e.now())
	return nil
}

func (e *Engine) challenge(ctx context.Context, id string, to *egress.Target, secret signing.Secret) error {
	var fresh [32]byte
	if _, err := io.ReadFull(e.opt.Entropy, fresh[:]); err != nil {
		return err
	}
	word := hex.EncodeToString(fresh[:])
	signer, err := signing.NewSigner(secret)
	if err != nil {
		return err
	}
	body := []byte(`{"type":"verification","challenge":"` + word + `"}`)
	p, now, msg := profile.Sentinel, e.now().Unix(), e.NewID("msg_verification")
	agent := e.opt.UserAgent
	if agent == "" {
		agent = p.Agent(e.opt.Version)
	}
	res := e.client.Do(ctx, &egress.Request{Target: to, Answer: true, Body: body, Timeout: p.ChallengeTimeout, ConnectTimeout: p.ConnectTimeout, Header: []egress.Field{
		{Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: agent}, {Name: p.SubscriptionHeader, Value: id},
		{Name: p.IDHeader, Value: msg}, {Name: p.TimestampHeader, Value: strconv.FormatInt(now, 10)}, {Name: p.SignatureHeader, Value: signer.Sign(msg, now, body)}}})
	if res.Cancelled {
		if e.ctx.Err() != nil {
			return errStopping
		}
		return context.Cause(ctx)
	}
	return judge(res, word)
}

// judge says what an answer to a challenge is worth.
func judge(res egress.Result, word string) error {
	switch {
	case res.Code == surehook.SSRFBlocked:
		return &ChallengeError{Reason: ChallengeBlocked, Detail: res.Err}
	case res.Code == surehook.Redirect:
		return &ChallengeError{Reason: ChallengeBlocked, Detail: "the answer was a redirect, which is never followed"}
	case res.Code == surehook.Timeout, res.Code == surehook.Connect, res.Code == surehook.DNS, res.Code == surehook.TLS:
		return &ChallengeError{Reason: ChallengeTimeout, Detail: res.Err}
	case res.Status < 200 || res.Status > 299:
		return &ChallengeError{Reason: ChallengeStatus, Detail: "the answer was " + strconv.Itoa(res.Status)}
	}
	var answer map[string]any // a struct's field would take any case of its name
	d := json.NewDecoder(bytes.NewReader(res.Body))
	if res.Truncated || d.Decode(&answer) != nil || !errors.Is(extra(d), io.EOF) {
		return &ChallengeError{Reason: ChallengeFailed, Detail: "the answer isn't a JSON object of at most 4 KiB"}
	}
	if said, _ := answer["challenge"].(string); subtle.ConstantTimeCompare([]byte(said), []byte(word)) != 1 {
		return &ChallengeError{Reason: ChallengeFailed, Detail: "the answer doesn't give the challenge back"}
	}
	return nil
}

// extra is io.EOF where nothing follows the value.
func extra(d *json.Decoder) error {
	_, err := d.Token()
	return err
}

// urlReason is the guard's refusal of a URL as a challenge's failure.
func urlReason(err error) error {
	var refused *egress.URLError
	if !errors.As(err, &refused) {
		return err
	}
	if refused.Reason == "scheme" || refused.Reason == "empty" {
		return &ChallengeError{Reason: ChallengeNoHTTPS, Detail: refused.Message}
	}
	return &ChallengeError{Reason: ChallengeBlocked, Detail: refused.Message}
}
