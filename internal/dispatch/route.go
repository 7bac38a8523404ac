package dispatch

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/internal/retry"
	"github.com/surehook/surehook/profile"
	"github.com/surehook/surehook/signing"
)

const (
	defaultConcurrency = 8
	// Unsealed secrets stay in memory for a minute at most, but for attempts in
	// flight: a lane uses them for secretTTL, and forgets them at the next look.
	secretTTL = 50 * time.Second
	shedEvery = 10 * time.Second
)

// Where a sealed secret stands; part of its associated data.
const (
	SecretTable    = "webhook_endpoints"
	CurrentColumn  = "secret_enc"
	PreviousColumn = "prev_secret_enc"
)

// route is an endpoint's configuration, compiled for sending: the checked URL,
// the unsealed secrets in a signer, the merged limits. What can't be compiled is
// the outcome of every attempt until it changes.
type route struct {
	*surehook.Endpoint
	live        bool // enabled and not deleted
	profile     profile.Profile
	envelope    surehook.Envelope // of the body: the endpoint's, or the profile's own
	retry       surehook.RetryPolicy
	timeout     time.Duration
	concurrency int
	target      *egress.Target
	signer      *signing.Signer
	header      []egress.Field // the same on every request
	broken      surehook.Code  // why no request can be made
	reason      string
	expires     time.Time // when to compile anew
}

// Effective gives the limits that hold for an endpoint: its own, or else its
// profile's.
func Effective(e *surehook.Endpoint) surehook.Limits {
	p, l := profileOf(e), e.Limits
	policy := p.Retry.With(l)
	l.Attempts = retry.Attempts(policy)
	if l.Waits = policy.Waits; len(l.Waits) == 0 {
		for k := 1; k < l.Attempts; k++ {
			l.Waits = append(l.Waits, retry.Table(policy, k))
		}
	}
	l.Timeout, l.Concurrency = cmp.Or(l.Timeout, p.Timeout), cmp.Or(l.Concurrency, defaultConcurrency)
	return l
}

func profileOf(e *surehook.Endpoint) profile.Profile {
	if p, ok := profile.ByName(e.Profile); ok {
		return p
	}
	return profile.Standard
}

// Envelope gives the one that an endpoint's bodies have: its own, or the one that its
// profile sends for the standard one.
func Envelope(e *surehook.Endpoint) surehook.Envelope {
	if own := profileOf(e).Envelope; own != "" && (e.Envelope == "" || e.Envelope == surehook.EnvelopeStandard) {
		return own
	}
	return e.Envelope
}

func (d *Dispatcher) compile(e *surehook.Endpoint) *route {
	p, l := profileOf(e), Effective(e)
	r := &route{Endpoint: e, live: e.Enabled && !e.Deleted, profile: p, envelope: Envelope(e), retry: p.Retry.With(e.Limits), timeout: l.Timeout, concurrency: l.Concurrency,
		expires: d.now().Add(secretTTL)}
	if length := d.store.Lease().Length; length > 0 {
		r.timeout = min(r.timeout, length*3/4-leaseMargin) // or a lease that is due to be renewed would never last for it
	}
	if e.Deleted || e.Pulled() {
		return r // nothing is sent
	}
	var err error
	if r.target, err = d.client.ParseURL(e.URL); err != nil {
		r.broken, r.reason = surehook.InvalidURL, err.Error()
		return r
	}
	if r.signer, err = d.signer(r); err != nil {
		r.broken, r.reason = surehook.SecretUnavailable, err.Error()
		d.log.Error("an endpoint's secret can't be used; its attempts fail until it is rotated or the master key is back",
			"webhook_id", e.ID, "error", err)
	}
	r.header = d.header(r)
	return r
}

// header lists the fields that don't change between attempts. The endpoint's
// own come last and lose against ours. One that is no valid field stays: egress
// refuses the request with that reason, where a request without it would be
// missing something that nobody knows of.
func (d *Dispatcher) header(r *route) []egress.Field {
	content := "application/json"
	if r.Envelope == surehook.EnvelopeCloudEvents {
		content = "application/cloudevents+json"
	}
	h := []egress.Field{{Name: "Content-Type", Value: content}, {Name: "User-Agent", Value: d.userAgent(r)}}
	for _, name := range slices.Sorted(maps.Keys(r.Headers)) {
		if !ReservedHeader(name) {
			h = append(h, egress.Field{Name: name, Value: r.Headers[name]})
		}
	}
	return h
}

// userAgent is the operator's where one is set, else the profile's.
func (d *Dispatcher) userAgent(r *route) string {
	if d.opt.UserAgent != "" {
		return d.opt.UserAgent
	}
	return r.profile.Agent(d.opt.Version)
}

// signer unseals the endpoint's secrets: the current one, then the previous
// while the overlap lasts.
func (d *Dispatcher) signer(r *route) (*signing.Signer, error) {
	current, err := d.key(r, CurrentColumn, r.Secrets.Current)
	if err != nil {
		return nil, err
	}
	if r.profile.Scheme == profile.PurpleWolfHMAC {
		return signing.NewPurpleWolf(current.(signing.Secret))
	}
	keys := []signing.Key{current}
	if left := r.Secrets.PreviousUntil.Sub(d.now()); r.Secrets.Previous != "" && left > 0 {
		previous, err := d.key(r, PreviousColumn, r.Secrets.Previous)
		if err != nil {
			return nil, err
		}
		keys = append(keys, previous)
		r.expires = d.now().Add(min(left, secretTTL))
	}
	return signing.NewSigner(keys...)
}

func (d *Dispatcher) key(r *route, column, sealed string) (signing.Key, error) {
	if sealed == "" {
		return nil, errors.New("the endpoint has no secret")
	}
	raw, err := d.opt.Keyring.Open(SecretTable, column, r.ID, sealed)
	if err != nil {
		return nil, fmt.Errorf("unsealing: %w", err)
	}
	switch {
	case r.profile.Scheme == profile.PurpleWolfHMAC:
		return signing.RawSecret(raw)
	case r.Signature == "v1a":
		return signing.PrivateKeyFromBytes(raw)
	}
	return signing.SecretFromBytes(raw)
}

// rule is what disables the endpoint.
func (r *route) rule(d *Dispatcher) surehook.HealthRule {
	return surehook.HealthRule{After: r.profile.Disable.After, Over: r.profile.Disable.Over, Gone: r.profile.Gone, Disabled: d.opt.DisabledEvent}
}

// sealed is what the dispatcher needs of a keyring.
type sealed interface {
	Open(table, column, row, sealed string) ([]byte, error)
}
