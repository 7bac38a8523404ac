package api

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// Limits override the profile's, within bounds.
type Limits struct {
	WaitsMS       []int64 `json:"waits_ms,omitempty" maxItems:"100" doc:"Between attempts, 1 to 86400000"`
	Attempts      int     `json:"attempts,omitempty" minimum:"0" maximum:"100"`
	TimeoutMS     int64   `json:"timeout_ms,omitempty" minimum:"0" maximum:"60000" doc:"Of one attempt, from 100"`
	RatePerSecond float64 `json:"rate_per_second,omitempty" minimum:"0"`
	Concurrency   int     `json:"concurrency,omitempty" minimum:"0" maximum:"256" doc:"Requests in flight; 8 by default"`
}

func (l *Limits) domain() surehook.Limits {
	if l == nil {
		return surehook.Limits{}
	}
	out := surehook.Limits{Attempts: l.Attempts, Timeout: time.Duration(l.TimeoutMS) * time.Millisecond, Rate: l.RatePerSecond, Concurrency: l.Concurrency}
	for _, ms := range l.WaitsMS {
		out.Waits = append(out.Waits, time.Duration(min(ms, 1<<40))*time.Millisecond)
	}
	return out
}

func viewLimits(l surehook.Limits) Limits {
	out := Limits{Attempts: l.Attempts, TimeoutMS: l.Timeout.Milliseconds(), RatePerSecond: l.Rate, Concurrency: l.Concurrency}
	for _, w := range l.Waits {
		out.WaitsMS = append(out.WaitsMS, w.Milliseconds())
	}
	return out
}

// WebhookInput is an endpoint to create.
type WebhookInput struct {
	Target      string            `json:"target,omitempty" enum:"webhook,pull" doc:"webhook (default): events are sent to url. pull: they wait in an inbox, without url and secret"`
	URL         string            `json:"url,omitempty" maxLength:"2048" doc:"https, a public host name; required unless target is pull" example:"https://hooks.example.com/in"`
	SessionID   string            `json:"session_id,omitempty" maxLength:"200" doc:"With target pull: they wait in the inbox of this session, which lives"`
	Urgency     string            `json:"urgency,omitempty" maxLength:"100" doc:"With target pull: goes with each event"`
	Description string            `json:"description,omitempty" maxLength:"1000"`
	EventTypes  opt[[]string]     `json:"event_types,omitempty" required:"false" doc:"Exact names, a trailing .*, or *; absent or null: every type. An empty list is refused"`
	Subjects    []string          `json:"subjects,omitempty" doc:"Absent or null: no filter. A trailing * is a prefix. An empty list is refused"`
	IdentityIDs []string          `json:"identity_ids,omitempty" doc:"Absent or null: no filter; else events without an identity don't match. An empty list is refused"`
	TenantID    string            `json:"tenant_id,omitempty" doc:"A tenant's endpoint"`
	PartnerID   string            `json:"partner_id,omitempty" doc:"A partner's endpoint; neither: the platform's, or that of the key's tenant or partner"`
	Profile     string            `json:"profile,omitempty" doc:"standard (default), pylota, sentinel or purple-wolf"`
	Envelope    string            `json:"envelope,omitempty" enum:"standard,payload,thin,cloudevents,pylota,purple-wolf.audit/v1,purple-wolf.audit/v2"`
	Signature   string            `json:"signature,omitempty" enum:"v1,v1a"`
	Headers     map[string]string `json:"headers,omitempty" doc:"Added to each request. Names differ by more than case; surehook's own and those of the connection can't be set"`
	Limits      *Limits           `json:"limits,omitempty"`
	Ordering    string            `json:"ordering,omitempty" enum:"none,sequence" doc:"sequence: of each owner's events one at a time, in their order; the first one blocks those behind it until it succeeds or is dead. none (default): as they come"`
	Secret      string            `json:"secret,omitempty" maxLength:"200" doc:"An existing whsec_ secret to go on with, or with purple-wolf any text; absent: a new one"`
	Enabled     *bool             `json:"enabled,omitempty"`
}

// WebhookPatch changes an endpoint: what is absent stays.
type WebhookPatch struct {
	URL         *string                `json:"url,omitempty" maxLength:"2048" doc:"Another URL disables the endpoint until a test has passed"`
	Description opt[string]            `json:"description,omitempty" required:"false"`
	EventTypes  opt[[]string]          `json:"event_types,omitempty" required:"false" doc:"null: every type"`
	Subjects    opt[[]string]          `json:"subjects,omitempty" required:"false" doc:"null: no filter"`
	IdentityIDs opt[[]string]          `json:"identity_ids,omitempty" required:"false" doc:"null: no filter"`
	Profile     *string                `json:"profile,omitempty"`
	Envelope    *string                `json:"envelope,omitempty" enum:"standard,payload,thin,cloudevents,pylota,purple-wolf.audit/v1,purple-wolf.audit/v2"`
	Headers     opt[map[string]string] `json:"headers,omitempty" required:"false" doc:"null: none"`
	Limits      opt[Limits]            `json:"limits,omitempty" required:"false" doc:"null: the profile's"`
	Ordering    *string                `json:"ordering,omitempty" enum:"none,sequence" doc:"sequence orders the events that are accepted from then on"`
	Enabled     *bool                  `json:"enabled,omitempty" doc:"true resets the count of failures"`
	Paused      *bool                  `json:"paused,omitempty" doc:"true: nothing but tests is sent, and what is for the endpoint waits, until false"`
}

// WebhookView is an endpoint as it is shown: never with a secret.
type WebhookView struct {
	ID                  string            `json:"id"`
	Scope               string            `json:"scope"`
	TenantID            text              `json:"tenant_id"`
	PartnerID           text              `json:"partner_id"`
	Target              string            `json:"target" enum:"webhook,pull" doc:"pull: events wait in an inbox until they are pulled"`
	URL                 string            `json:"url" doc:"Empty with target pull; with its query hidden from keys that can't manage webhooks"`
	Description         string            `json:"description"`
	EventTypes          []string          `json:"event_types"`
	Subjects            []string          `json:"subjects,omitempty"`
	IdentityIDs         []string          `json:"identity_ids,omitempty"`
	Profile             string            `json:"profile"`
	Envelope            string            `json:"envelope" doc:"Of the bodies that it gets; profile pylota has its own for standard"`
	Signature           string            `json:"signature"`
	Headers             map[string]string `json:"headers,omitempty"`
	Limits              Limits            `json:"limits" doc:"Its own"`
	Effective           Limits            `json:"effective_limits" doc:"Those that hold: its own, or else its profile's"`
	Ordering            string            `json:"ordering" enum:"none,sequence"`
	Enabled             bool              `json:"enabled"`
	Paused              bool              `json:"paused" doc:"Nothing is sent; deliveries wait"`
	DisabledReason      text              `json:"disabled_reason"`
	ConsecutiveFailures int               `json:"consecutive_failures"`
	FirstFailureAt      stamp             `json:"first_failure_at"`
	LastFailureAt       stamp             `json:"last_failure_at"`
	LastSuccessAt       stamp             `json:"last_success_at" doc:"Of a healthy endpoint it is from when its last trouble ended: its attempts tell the latest"`
	PreviousSecretUntil stamp             `json:"previous_secret_until" doc:"A rotated secret signs beside the new one until then"`
	CreatedAt           stamp             `json:"created_at"`
	UpdatedAt           stamp             `json:"updated_at"`
	SessionID           text              `json:"session_id" doc:"With target pull: the session in whose inbox its events wait; null: it has its own"`
	Urgency             string            `json:"urgency,omitempty" doc:"With target pull: goes with each event"`
	Inbox               *InboxView        `json:"inbox,omitempty" doc:"In lists, with target pull and an inbox of its own"`
}

// WebhookCreated is a new endpoint with its secret.
type WebhookCreated struct {
	WebhookView
	Secret string `json:"secret,omitempty" doc:"Shown this once; for v1a the public key that receivers verify with"`
}

// inSequence is the ordering that isn't the default.
const inSequence = "sequence"

func ordering(ordered bool) string {
	if ordered {
		return inSequence
	}
	return "none"
}

const hidden = "[hidden]"

// viewWebhook shows an endpoint. A URL's query and headers may hold the
// receiver's own secrets, so only keys that manage webhooks see them.
func viewWebhook(c *call, e *surehook.Endpoint) WebhookView {
	v := WebhookView{ID: e.ID, Scope: string(e.Scope()), TenantID: text(e.Tenant), PartnerID: text(e.Partner), Target: target(e), URL: e.URL, Description: e.Description,
		EventTypes: e.EventTypes, Subjects: e.Subjects, IdentityIDs: e.Identities, Profile: e.Profile, Envelope: string(engine.Envelope(e)),
		Signature: e.Signature, Headers: e.Headers, Limits: viewLimits(e.Limits), Effective: viewLimits(engine.Effective(e)), Ordering: ordering(e.Ordered), Enabled: e.Enabled, Paused: e.Limits.Paused, DisabledReason: text(e.DisabledReason),
		ConsecutiveFailures: e.Health.ConsecutiveFailures, FirstFailureAt: stamp(e.Health.FirstFailureAt), LastFailureAt: stamp(e.Health.LastFailureAt), LastSuccessAt: stamp(e.Health.LastSuccessAt),
		PreviousSecretUntil: stamp(e.Secrets.PreviousUntil), CreatedAt: stamp(e.CreatedAt), UpdatedAt: stamp(e.UpdatedAt), Urgency: e.Urgency}
	if c.may(surehook.PermWebhooksManage) {
		return v
	}
	if u, err := url.Parse(e.URL); err == nil && (u.RawQuery != "" || u.User != nil) {
		u.RawQuery, u.User = hidden, nil
		v.URL = u.String()
	}
	if v.Headers != nil {
		v.Headers = make(map[string]string, len(e.Headers))
		for name := range e.Headers {
			v.Headers[name] = hidden
		}
	}
	return v
}

// ByWebhook names an endpoint.
type ByWebhook struct {
	ID string `path:"id"`
}

type webhookOut struct{ Body WebhookView }
type createdOut struct{ Body WebhookCreated }
type none struct{}

func (s *server) webhooks() {
	const tag = "Webhooks"
	manage, read := surehook.PermWebhooksManage, surehook.PermRead
	route(s, op{method: "POST", path: "/v1/webhooks", id: "createWebhook", tag: tag, perm: manage, status: http.StatusCreated, summary: "Register an endpoint",
		about: "The secret is in this answer and in no other."}, s.createWebhook)
	route(s, op{method: "GET", path: "/v1/webhooks", id: "listWebhooks", tag: tag, perm: read, summary: "List endpoints"}, s.listWebhooks)
	route(s, op{method: "GET", path: "/v1/webhooks/{id}", id: "getWebhook", tag: tag, perm: read, summary: "Read an endpoint"}, s.getWebhook)
	route(s, op{method: "PATCH", path: "/v1/webhooks/{id}", id: "updateWebhook", tag: tag, perm: manage, summary: "Change an endpoint"}, s.updateWebhook)
	route(s, op{method: "DELETE", path: "/v1/webhooks/{id}", id: "deleteWebhook", tag: tag, perm: manage, status: http.StatusNoContent,
		summary: "Remove an endpoint", about: "What waits for it is dropped."}, s.deleteWebhook)
	route(s, op{method: "POST", path: "/v1/webhooks/{id}/rotate-secret", id: "rotateSecret", tag: tag, perm: manage, summary: "Give an endpoint a new secret",
		about: "The old one signs beside it for the overlap, new first."}, s.rotateSecret)
	route(s, op{method: "DELETE", path: "/v1/webhooks/{id}/previous-secret", id: "revokePreviousSecret", tag: tag, perm: manage, status: http.StatusNoContent,
		summary: "End a rotation's overlap at once"}, s.revokeSecret)
	route(s, op{method: "POST", path: "/v1/webhooks/{id}/test", id: "testWebhook", tag: tag, perm: manage, summary: "Make one attempt now",
		about: "Sends webhook.test, waits for the answer and gives the attempt. Works on a disabled endpoint."}, s.testWebhook)
	route(s, op{method: "POST", path: "/v1/check-url", id: "checkURL", tag: tag, perm: manage, summary: "Would this URL be taken?",
		about: "Judged as when an endpoint is made, its name looked up; nothing is sent there, and nothing is stored."}, s.checkURL)
	route(s, op{method: "GET", path: "/v1/webhooks/{id}/attempts", id: "listAttempts", tag: tag, perm: read, summary: "An endpoint's attempts, newest first"}, s.webhookAttempts)
	route(s, op{method: "GET", path: "/v1/webhooks/{id}/history", id: "webhookHistory", tag: tag, perm: read, summary: "What was done to an endpoint, newest first",
		about: "What the audit log has of it: changes, by people and by the server itself."}, s.webhookHistory)
	route(s, op{method: "GET", path: "/v1/webhooks/{id}/stats", id: "webhookStats", tag: tag, perm: read, summary: "Counts and latency over time"}, s.stats)
}

// endpoint reads an endpoint that the caller may see.
func (s *server) endpoint(ctx context.Context, c *call, id string) (*surehook.Endpoint, error) {
	ep, err := s.store.Endpoint(ctx, id)
	if err == nil && !c.seesEndpoint(ep) {
		err = surehook.Errorf(surehook.NotFound, "no such webhook")
	}
	return ep, err
}

type createIn struct {
	Once
	Body WebhookInput
}

func (s *server) createWebhook(ctx context.Context, c *call, in *createIn) (*createdOut, error) {
	return once(ctx, s, c, "createWebhook", in.IdempotencyKey, in.Body, func() (*createdOut, error) {
		b := &in.Body
		tenant, err := c.scope(b.TenantID)
		if err != nil {
			return nil, err
		}
		if err := noFilter(b.Subjects, b.IdentityIDs); err != nil {
			return nil, err
		}
		partner := b.PartnerID
		switch {
		case partner != "" && !c.platform() && partner != c.partner():
			return nil, &denied{scope: "platform"}
		case partner == "" && tenant == "":
			partner = c.partner()
		}
		w := engine.Webhook{Tenant: tenant, Partner: partner, URL: b.URL, Description: b.Description, Subjects: b.Subjects, Identities: b.IdentityIDs,
			Profile: b.Profile, Envelope: surehook.Envelope(b.Envelope), Signature: b.Signature, Headers: b.Headers, Limits: b.Limits.domain(),
			Ordered: b.Ordering == inSequence, Secret: b.Secret, Disabled: b.Enabled != nil && !*b.Enabled,
			Pull: b.Target == toPull, Session: b.SessionID, Urgency: b.Urgency}
		if err := missing(b); err != nil {
			return nil, err
		}
		if b.EventTypes.Set && !b.EventTypes.Null {
			w.EventTypes = append([]string{}, b.EventTypes.Value...)
		}
		if err := s.types.permit(ctx, c, orAll(w.EventTypes)); err != nil {
			return nil, err
		}
		ep, secret, err := s.e.CreateWebhook(ctx, w, c.actor())
		if err != nil {
			return nil, err
		}
		v, err := s.views(ctx, c, ep)
		if err != nil {
			return nil, err
		}
		return &createdOut{WebhookCreated{WebhookView: v[0], Secret: secret}}, nil
	})
}

// orAll gives an endpoint's patterns; none given are all types.
func orAll(patterns []string) []string {
	if patterns == nil {
		return []string{"*"}
	}
	return patterns
}

// noFilter refuses an empty list: it might mean all or none. Leaving it out, or
// null, is how to say that there is no filter.
func noFilter(subjects, identities []string) error {
	const why = "must not be empty; leave it out, or give null, for no filter"
	switch {
	case subjects != nil && len(subjects) == 0:
		return surehook.Invalid("subjects", why)
	case identities != nil && len(identities) == 0:
		return surehook.Invalid("identity_ids", why)
	}
	return nil
}

func (s *server) getWebhook(ctx context.Context, c *call, in *ByWebhook) (*webhookOut, error) {
	ep, err := s.endpoint(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	return s.oneWebhook(ctx, c, ep)
}

type updateIn struct {
	ByWebhook
	Body WebhookPatch
}

func (s *server) updateWebhook(ctx context.Context, c *call, in *updateIn) (*webhookOut, error) {
	ep, err := s.endpoint(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	b := &in.Body
	if err := noFilter(b.Subjects.Value, b.IdentityIDs.Value); err != nil {
		return nil, err
	}
	if err := s.mayUpdate(ctx, c, ep, b); err != nil {
		return nil, err
	}
	p := engine.Patch{URL: b.URL, Description: b.Description.patch(""), EventTypes: b.EventTypes.patch([]string{"*"}), Subjects: b.Subjects.patch(nil),
		Identities: b.IdentityIDs.patch(nil), Profile: b.Profile, Headers: b.Headers.patch(nil), Enabled: b.Enabled, Paused: b.Paused}
	if b.Envelope != nil {
		env := surehook.Envelope(*b.Envelope)
		p.Envelope = &env
	}
	if l := b.Limits.patch(Limits{}); l != nil {
		d := l.domain()
		p.Limits = &d
	}
	if b.Ordering != nil {
		ordered := *b.Ordering == inSequence
		p.Ordered = &ordered
	}
	ep, err = s.e.UpdateWebhook(ctx, in.ID, p, c.actor())
	if err != nil {
		return nil, err
	}
	return s.oneWebhook(ctx, c, ep)
}

// mayUpdate refuses what brings events of types that require a permission to an
// endpoint, or more of them, or more of what they say, or brings them elsewhere.
func (s *server) mayUpdate(ctx context.Context, c *call, ep *surehook.Endpoint, b *WebhookPatch) error {
	types := ep.EventTypes
	if given := b.EventTypes.patch([]string{"*"}); given != nil {
		types = *given
	} else if on := b.Enabled != nil && *b.Enabled && !ep.Enabled; !on && b.URL == nil && b.Profile == nil && b.Envelope == nil && !b.Subjects.Set && !b.IdentityIDs.Set {
		return nil
	}
	return s.types.permit(ctx, c, types)
}

func (s *server) deleteWebhook(ctx context.Context, c *call, in *ByWebhook) (*none, error) {
	if _, err := s.endpoint(ctx, c, in.ID); err != nil {
		return nil, err
	}
	return nil, s.e.DeleteWebhook(ctx, in.ID, c.actor())
}

type rotateIn struct {
	ByWebhook
	Once
	Body struct {
		OverlapHours float64 `json:"overlap_hours,omitempty" minimum:"0" maximum:"168" doc:"How long the old secret goes on signing; 0 ends it at once"`
	}
}

type secretOut struct {
	Body struct {
		Secret              string `json:"secret" doc:"Shown this once"`
		PreviousSecretUntil stamp  `json:"previous_secret_until"`
	}
}

func (s *server) rotateSecret(ctx context.Context, c *call, in *rotateIn) (*secretOut, error) {
	if _, err := s.endpoint(ctx, c, in.ID); err != nil {
		return nil, err
	}
	return once(ctx, s, c, "rotateSecret:"+in.ID, in.IdempotencyKey, in.Body, func() (*secretOut, error) {
		ep, secret, err := s.e.RotateSecret(ctx, in.ID, time.Duration(in.Body.OverlapHours*float64(time.Hour)), c.actor())
		if err != nil {
			return nil, err
		}
		out := &secretOut{}
		out.Body.Secret, out.Body.PreviousSecretUntil = secret, stamp(ep.Secrets.PreviousUntil)
		return out, nil
	})
}

func (s *server) revokeSecret(ctx context.Context, c *call, in *ByWebhook) (*none, error) {
	if _, err := s.endpoint(ctx, c, in.ID); err != nil {
		return nil, err
	}
	_, err := s.e.RevokePrevious(ctx, in.ID, c.actor())
	return nil, err
}

type checkURLIn struct {
	Body struct {
		URL string `json:"url" maxLength:"2048"`
	}
}

type checkURLOut struct {
	Body struct {
		URL     string `json:"url,omitempty" doc:"In the form that is stored"`
		Allowed bool   `json:"allowed"`
		Reason  string `json:"reason,omitempty" doc:"Why not, for people"`
	}
}

func (s *server) checkURL(ctx context.Context, _ *call, in *checkURLIn) (*checkURLOut, error) {
	out := &checkURLOut{}
	canonical, err := s.e.CheckURL(ctx, in.Body.URL)
	if e, ok := errors.AsType[*surehook.Error](err); ok && e.Code == surehook.InvalidRequest {
		out.Body.Reason = e.Message
		if len(e.Fields) > 0 {
			out.Body.Reason = e.Fields[0].Message
		}
		return out, nil
	}
	out.Body.URL, out.Body.Allowed = canonical, err == nil
	return out, err
}

type testIn struct {
	ByWebhook
	Once
}

type attemptOut struct{ Body AttemptView }

func (s *server) testWebhook(ctx context.Context, c *call, in *testIn) (*attemptOut, error) {
	ep, err := s.endpoint(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	if ep.DisabledReason == surehook.ReasonURLChanged { // a test that passes enables it
		if err := s.types.permit(ctx, c, ep.EventTypes); err != nil {
			return nil, err
		}
	}
	return once(ctx, s, c, "testWebhook:"+in.ID, in.IdempotencyKey, nil, func() (*attemptOut, error) {
		a, err := s.e.TestWebhook(ctx, in.ID, c.actor())
		if err != nil {
			return nil, err
		}
		return &attemptOut{viewAttempt(a)}, nil
	})
}

type webhookPageIn struct {
	ByWebhook
	Listing
}

func (s *server) webhookAttempts(ctx context.Context, c *call, in *webhookPageIn) (*listOut[AttemptView], error) {
	p, err := in.page("attempts")
	if err != nil {
		return nil, err
	}
	ep, err := s.endpoint(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.EndpointAttempts(ctx, ep.Key, p)
	if err != nil {
		return nil, err
	}
	return paged("attempts", p, rows, func(a surehook.Attempt) int64 { return a.Key },
		func(a surehook.Attempt) (AttemptView, bool) { return viewAttempt(&a), true }), nil
}
