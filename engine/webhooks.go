package engine

import (
	"context"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/accept"
	"github.com/surehook/surehook/internal/dispatch"
	"github.com/surehook/surehook/profile"
	"github.com/surehook/surehook/signing"
)

// MaxOverlap bounds how long a rotated secret goes on signing, whatever the
// profile.
const MaxOverlap = 168 * time.Hour

// Actor is who asks for a change, for the audit log.
type Actor struct {
	ID        string // an API key's id; "" is "system"
	RequestID string
}

func (e *Engine) audit(by Actor, action, target, tenant, details string) *surehook.AuditEntry {
	if by.ID == "" {
		by.ID = "system"
	}
	return &surehook.AuditEntry{At: e.now(), Actor: by.ID, Action: action, Target: target, Tenant: tenant, RequestID: by.RequestID, Details: details}
}

// Webhook is an endpoint to be created. URL is required, unless its events are to be
// pulled.
type Webhook struct {
	Tenant, Partner string
	URL             string
	Description     string
	EventTypes      []string // nil: every type
	Subjects        []string
	Identities      []string
	Profile         string // "standard"
	Envelope        surehook.Envelope
	Signature       string // "v1", or "v1a" for ed25519
	Headers         map[string]string
	Limits          surehook.Limits
	Ordered         bool   // events of one owner go out one at a time, in sequence
	Secret          string // an existing whsec_… to go on with; empty: a new one
	Disabled        bool

	Pull    bool   // its events wait in an inbox until they are pulled
	Session string // with Pull: in that of its scope's session with this id, which lives
	Urgency string // with Pull: goes with each of its events
}

// CreateWebhook registers an endpoint and gives its secret, which can't be read
// again.
func (e *Engine) CreateWebhook(ctx context.Context, w Webhook, by Actor) (*surehook.Endpoint, string, error) {
	ep := e.endpoint(e.NewID("whk"), w)
	if err := e.checkEndpoint(ep); err != nil {
		return nil, "", err
	}
	if ep.Pulled() {
		if err := e.checkPulled(ctx, ep, w); err != nil {
			return nil, "", err
		}
	} else if err := e.checkURL(ctx, ep); err != nil {
		return nil, "", err
	}
	return e.create(ctx, ep, w.Secret, by)
}

// create stores an endpoint that was checked.
func (e *Engine) create(ctx context.Context, ep *surehook.Endpoint, given string, by Actor) (*surehook.Endpoint, string, error) {
	var shown string
	var err error
	if !ep.Pulled() {
		var raw []byte
		if raw, shown, err = e.secret(ep, given); err != nil {
			return nil, "", err
		}
		if ep.Secrets.Current, err = e.keys.Seal(dispatch.SecretTable, dispatch.CurrentColumn, ep.ID, raw); err != nil {
			return nil, "", err
		}
	}
	e.changes.RLock()
	err = e.store.CreateEndpoint(ctx, ep, max(e.opt.MaxWebhooks, 0), e.audit(by, "webhook.create", ep.ID, ep.Tenant, ""))
	e.changes.RUnlock()
	if err != nil {
		return nil, "", err
	}
	e.refreshed()
	return ep, shown, nil
}

// endpoint is what an endpoint is when nobody has changed it yet.
func (e *Engine) endpoint(id string, w Webhook) *surehook.Endpoint {
	now := e.now()
	ep := &surehook.Endpoint{ID: id, Version: 1, Tenant: w.Tenant, Partner: w.Partner, URL: w.URL, Description: w.Description,
		EventTypes: w.EventTypes, Subjects: w.Subjects, Identities: w.Identities, Profile: w.Profile, Envelope: w.Envelope,
		Signature: w.Signature, Headers: w.Headers, Limits: w.Limits, Ordered: w.Ordered, Enabled: !w.Disabled, CreatedAt: now, UpdatedAt: now}
	if w.Disabled {
		ep.DisabledReason = surehook.ReasonManual
	}
	if w.Pull {
		ep.Inbox, ep.Urgency = surehook.OwnInbox, w.Urgency
	}
	if ep.EventTypes == nil {
		ep.EventTypes = []string{"*"}
	}
	if ep.Profile == "" {
		ep.Profile = profile.Standard.Name
	}
	if ep.Envelope == "" {
		ep.Envelope = surehook.EnvelopeStandard
		if ep.Profile == profile.PurpleWolf.Name {
			ep.Envelope = profile.PurpleWolf.Envelope
		}
	}
	if ep.Signature == "" {
		ep.Signature = "v1"
	}
	return ep
}

// Effective gives the limits that hold for an endpoint: its own, or else its
// profile's.
func Effective(ep *surehook.Endpoint) surehook.Limits { return dispatch.Effective(ep) }

// Envelope gives the envelope that an endpoint's bodies have: its own, or the one
// that its profile sends for the standard one.
func Envelope(ep *surehook.Endpoint) surehook.Envelope { return dispatch.Envelope(ep) }

// secret makes a signing secret, or takes an existing one: its bytes, and how it
// is shown once.
func (e *Engine) secret(ep *surehook.Endpoint, given string) (raw []byte, shown string, err error) {
	if ep.Profile == profile.PurpleWolf.Name {
		return e.textSecret(given)
	}
	if ep.Signature == "v1a" {
		if given != "" {
			return nil, "", surehook.Invalid("secret", "can't be given for v1a; a new key is made")
		}
		key, err := signing.NewPrivateKey(e.opt.Entropy)
		if err != nil {
			return nil, "", err
		}
		raw, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(key.Encode(), "whsk_"))
		return raw, key.Public().Encode(), err // receivers need the public half alone
	}
	if given != "" {
		s, err := signing.ParseSecret(given)
		if err != nil {
			return nil, "", surehook.Invalid("secret", err.Error())
		}
		return s.Bytes(), given, nil
	}
	s, err := signing.NewSecret(e.opt.Entropy)
	if err != nil {
		return nil, "", err
	}
	return s.Bytes(), s.Encode(), nil
}

// textSecret makes a secret, or takes one, whose bytes are the key as they stand.
func (e *Engine) textSecret(given string) (raw []byte, shown string, err error) {
	switch {
	case len(given) > maxTextSecret:
		return nil, "", surehook.Invalid("secret", fmt.Sprintf("is over %d bytes", maxTextSecret))
	case given == "":
		fresh := make([]byte, 32)
		if _, err := io.ReadFull(e.opt.Entropy, fresh); err != nil {
			return nil, "", err
		}
		given = hex.EncodeToString(fresh)
	}
	return []byte(given), given, nil
}

const maxTextSecret = 16 << 10

// Patch changes an endpoint: nil fields stay. The next attempt of whatever is
// pending goes by the new settings. Filters choose among new events alone: what
// was queued before is finished, also of a type that isn't selected any more. So
// does Ordered: what was queued before has no place in a sequence.
type Patch struct {
	URL         *string
	Description *string
	EventTypes  *[]string
	Subjects    *[]string
	Identities  *[]string
	Profile     *string
	Envelope    *surehook.Envelope
	Headers     *map[string]string
	Limits      *surehook.Limits // Paused in it doesn't count
	Paused      *bool            // nothing is sent while it is; what is for the endpoint waits
	Ordered     *bool
	Enabled     *bool
}

// UpdateWebhook changes an endpoint. A new URL disables it until a test has
// passed; enabling it resets its count of failures.
func (e *Engine) UpdateWebhook(ctx context.Context, id string, p Patch, by Actor) (*surehook.Endpoint, error) {
	if p.URL != nil {
		ep, err := e.store.Endpoint(ctx, id)
		if err != nil {
			return nil, err
		}
		if ep.Pulled() {
			return nil, surehook.Invalid("url", "this webhook's events are pulled: create another one to have them sent")
		}
		ep.URL = *p.URL
		if err := e.checkURL(ctx, ep); err != nil {
			return nil, err
		}
		p.URL = &ep.URL // in its canonical form
	}
	return e.change(ctx, id, func(ep *surehook.Endpoint) error {
		if ep.Sentinel != nil {
			return errOfSentinel
		}
		if p.Profile != nil && (*p.Profile == profile.PurpleWolf.Name) != (ep.Profile == profile.PurpleWolf.Name) {
			return surehook.Invalid("profile", "signs in another way than the endpoint's, with another kind of secret: create a new endpoint")
		}
		p.apply(ep)
		if p.URL != nil && *p.URL != ep.URL {
			ep.URL, ep.Enabled, ep.DisabledReason = *p.URL, false, surehook.ReasonURLChanged
		}
		if err := p.enable(ep); err != nil {
			return err
		}
		ep.UpdatedAt = e.now()
		if err := checkUnsent(ep); err != nil {
			return err
		}
		return e.checkEndpoint(ep)
	}, e.audit(by, "webhook.update", id, "", ""))
}

func (p *Patch) apply(ep *surehook.Endpoint) {
	set(&ep.Description, p.Description)
	set(&ep.EventTypes, p.EventTypes)
	set(&ep.Subjects, p.Subjects)
	set(&ep.Identities, p.Identities)
	set(&ep.Profile, p.Profile)
	set(&ep.Envelope, p.Envelope)
	set(&ep.Headers, p.Headers)
	paused := ep.Limits.Paused
	set(&ep.Limits, p.Limits)
	ep.Limits.Paused = paused
	set(&ep.Limits.Paused, p.Paused)
	set(&ep.Ordered, p.Ordered)
}

func set[T any](to *T, from *T) {
	if from != nil {
		*to = *from
	}
}

func (p *Patch) enable(ep *surehook.Endpoint) error {
	switch {
	case p.Enabled == nil:
	case !*p.Enabled:
		if ep.Enabled {
			ep.Enabled, ep.DisabledReason = false, surehook.ReasonManual
		}
	case ep.DisabledReason == surehook.ReasonSession:
		return surehook.Invalid("enabled", "the session that pulled its events has ended: create another webhook")
	case ep.DisabledReason == surehook.ReasonURLChanged:
		return surehook.Invalid("enabled", "the URL changed: a passing test (POST …/test) enables it")
	default:
		ep.Enabled, ep.DisabledReason, ep.Health.ConsecutiveFailures, ep.Health.FirstFailureAt = true, "", 0, time.Time{}
	}
	return nil
}

func (e *Engine) change(ctx context.Context, id string, f func(*surehook.Endpoint) error, a *surehook.AuditEntry) (*surehook.Endpoint, error) {
	e.changes.RLock()
	ep, err := e.store.UpdateEndpoint(ctx, id, func(ep *surehook.Endpoint) error {
		a.Tenant = ep.Tenant
		was := *ep
		err := f(ep)
		if a.Action == "webhook.update" {
			a.Details = changes(&was, ep)
		}
		return err
	}, a)
	e.changes.RUnlock()
	if err != nil {
		return nil, err
	}
	e.refreshed()
	return ep, nil
}

// DeleteWebhook removes an endpoint; what waits for it is dropped.
func (e *Engine) DeleteWebhook(ctx context.Context, id string, by Actor) error {
	ep, err := e.store.Endpoint(ctx, id)
	if err == nil && ep.Sentinel != nil {
		err = errOfSentinel
	}
	if err != nil {
		return err
	}
	e.changes.RLock()
	err = e.store.DeleteEndpoint(ctx, id, e.audit(by, "webhook.delete", id, ep.Tenant, ""))
	e.changes.RUnlock()
	if err != nil {
		return err
	}
	e.refreshed()
	return nil
}

// RotateSecret gives an endpoint a new secret. The old one signs beside it for
// overlap; 0 ends it at once.
func (e *Engine) RotateSecret(ctx context.Context, id string, overlap time.Duration, by Actor) (*surehook.Endpoint, string, error) {
	return e.rotate(ctx, id, "", overlap, by)
}

// SetSecret gives an endpoint a secret that somebody else made, in place of the
// old one, at once.
func (e *Engine) SetSecret(ctx context.Context, id, secret string, by Actor) error {
	_, _, err := e.rotate(ctx, id, secret, 0, by)
	return err
}

func (e *Engine) rotate(ctx context.Context, id, given string, overlap time.Duration, by Actor) (*surehook.Endpoint, string, error) {
	if overlap < 0 || overlap > MaxOverlap {
		return nil, "", surehook.Invalid("overlap_hours", "must be 0 to 168")
	}
	var shown string
	ep, err := e.change(ctx, id, func(ep *surehook.Endpoint) error {
		if ep.Pulled() {
			return surehook.Errorf(surehook.Conflict, "this webhook's events are pulled: it has no secret")
		}
		if ep.Sentinel != nil && given == "" {
			return errOfSentinel // its callback wouldn't know the new secret
		}
		if p, ok := profile.ByName(ep.Profile); ok {
			if err := p.Overlap(overlap); err != nil {
				return err
			}
		}
		raw, s, err := e.secret(ep, given)
		if err != nil {
			return err
		}
		if shown = s; overlap > 0 && e.hasSecret(ep, raw) {
			return errHasSecret
		}
		sealed, err := e.keys.Seal(dispatch.SecretTable, dispatch.CurrentColumn, ep.ID, raw)
		if err != nil {
			return err
		}
		ep.Secrets, ep.UpdatedAt = e.overlapping(ep, sealed, overlap), e.now()
		return nil
	}, e.audit(by, "webhook.rotate_secret", id, "", fmt.Sprintf(`{"overlap_hours":%g}`, overlap.Hours())))
	return ep, shown, err
}

// overlapping moves the current secret to the previous one's column, sealed for
// that column. A secret that can't be unsealed can't overlap: rotation is the
// way out of that.
func (e *Engine) overlapping(ep *surehook.Endpoint, sealed string, overlap time.Duration) surehook.Secrets {
	s := surehook.Secrets{Current: sealed}
	if overlap == 0 {
		return s
	}
	raw, err := e.keys.Open(dispatch.SecretTable, dispatch.CurrentColumn, ep.ID, ep.Secrets.Current)
	if err == nil {
		s.Previous, err = e.keys.Seal(dispatch.SecretTable, dispatch.PreviousColumn, ep.ID, raw)
	}
	if err != nil {
		e.log.Warn("the old secret can't be unsealed, so it doesn't overlap", "webhook_id", ep.ID, "error", err)
		return s
	}
	s.PreviousUntil = e.now().Add(overlap)
	return s
}

// RevokePrevious ends a rotation's overlap at once. Doing it twice is fine.
func (e *Engine) RevokePrevious(ctx context.Context, id string, by Actor) (*surehook.Endpoint, error) {
	return e.change(ctx, id, func(ep *surehook.Endpoint) error {
		ep.Secrets.Previous, ep.Secrets.PreviousUntil, ep.UpdatedAt = "", time.Time{}, e.now()
		return nil
	}, e.audit(by, "webhook.revoke_previous_secret", id, "", ""))
}

// TestWebhook makes one attempt with a webhook.test event and gives it. It works
// on a disabled endpoint, is never retried, and enables one whose URL changed
// when it passes.
func (e *Engine) TestWebhook(ctx context.Context, id string, by Actor) (*surehook.Attempt, error) {
	ep, err := e.store.Endpoint(ctx, id)
	if err != nil {
		return nil, err
	}
	leave, err := e.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)() // a stop doesn't wait for the receiver
	ev := &surehook.Event{ID: e.NewID("evt"), Type: surehook.TypeTest, Tenant: ep.Tenant, Partner: e.index.PartnerOf(ep), OccurredAt: e.now(), About: ep.ID,
		Data: []byte(`{"message":"hello"}`)}
	if ep.Pulled() {
		return e.testInbox(ctx, ep, ev)
	}
	if _, _, err := e.append(ctx, []*surehook.Event{ev}, nil); err != nil {
		return nil, err
	}
	a, err := e.disp.Test(ctx, ep, ev)
	if err != nil || a.Status != surehook.AttemptSucceeded || ep.DisabledReason != surehook.ReasonURLChanged {
		return a, err
	}
	_, err = e.change(ctx, id, func(now *surehook.Endpoint) error {
		if now.URL == ep.URL && now.DisabledReason == surehook.ReasonURLChanged {
			now.Enabled, now.DisabledReason, now.UpdatedAt = true, "", e.now()
			now.Health.ConsecutiveFailures, now.Health.FirstFailureAt = 0, time.Time{}
		}
		return nil
	}, e.audit(by, "webhook.enable", id, ep.Tenant, `{"by":"test"}`))
	return a, err
}

func typePattern(p string) bool { return p == "*" || accept.Dotted(strings.TrimSuffix(p, ".*")) }

// checkEndpoint refuses settings out of bounds, all but the URL.
func (e *Engine) checkEndpoint(ep *surehook.Endpoint) error {
	switch {
	case len(ep.EventTypes) == 0:
		return surehook.Invalid("event_types", `must not be empty; leave it out, or give ["*"], for every type`)
	case len(ep.EventTypes) > 200 || len(ep.Subjects) > 200 || len(ep.Identities) > 1000:
		return surehook.Invalid("event_types", "a filter holds too many entries (200 types, 200 subjects, 1,000 identities)")
	case len(ep.Description) > 1000:
		return surehook.Invalid("description", "is over 1,000 bytes")
	case !accept.Printable(ep.Tenant):
		return surehook.Invalid("tenant_id", "must be at most 200 printable ASCII characters without spaces")
	case !accept.Printable(ep.Partner):
		return surehook.Invalid("partner_id", "must be at most 200 printable ASCII characters without spaces")
	case ep.Tenant != "" && ep.Partner != "":
		return surehook.Invalid("partner_id", "an endpoint belongs to a tenant or to a partner, not to both")
	case !slices.Contains([]string{profile.Standard.Name, profile.Pylota.Name, profile.Sentinel.Name, profile.PurpleWolf.Name}, ep.Profile):
		return surehook.Invalid("profile", `must be "standard", "pylota", "sentinel" or "purple-wolf"`)
	case ep.Profile == profile.PurpleWolf.Name && !ep.Envelope.PurpleWolf():
		return surehook.Invalid("envelope", "must be purple-wolf.audit/v1, or another version up to v99, with the purple-wolf profile; left out it is v1")
	case ep.Profile == profile.PurpleWolf.Name && ep.Signature != "v1":
		return surehook.Invalid("signature", "the purple-wolf profile has one of its own; leave it out")
	case ep.Profile != profile.PurpleWolf.Name && !slices.Contains([]surehook.Envelope{surehook.EnvelopeStandard, surehook.EnvelopePayload, surehook.EnvelopeThin, surehook.EnvelopeCloudEvents,
		surehook.EnvelopePylota}, ep.Envelope):
		return surehook.Invalid("envelope", "must be standard, payload, thin, cloudevents or pylota; purple-wolf's go with that profile")
	case ep.Signature != "v1" && ep.Signature != "v1a":
		return surehook.Invalid("signature", "must be v1 or v1a")
	}
	if i := slices.IndexFunc(ep.EventTypes, func(p string) bool { return !typePattern(p) }); i >= 0 {
		return surehook.Invalid(fmt.Sprintf("event_types[%d]", i), `must be "*", a type, or a type with a trailing ".*"`)
	}
	for name, list := range map[string][]string{"subjects": ep.Subjects, "identity_ids": ep.Identities} {
		if i := slices.IndexFunc(list, func(s string) bool { return s == "" || len(s) > 256 }); i >= 0 {
			return surehook.Invalid(fmt.Sprintf("%s[%d]", name, i), "must be 1 to 256 bytes")
		}
	}
	if err := checkHeaders(ep.Headers); err != nil {
		return err
	}
	return checkLimits(ep.Limits)
}
