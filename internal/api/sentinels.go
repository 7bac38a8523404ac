package api

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/sentinel"
)

// SentinelInput asks for a sentinel: in full (match, until, target), or in short for a
// session (subject or prUrl, and sessionId).
type SentinelInput struct {
	Match    []sentinel.MatchClause `json:"match,omitempty" maxItems:"50" doc:"An event matches when it fits one of them"`
	Until    until                  `json:"until,omitempty" required:"false"`
	Target   *sentinel.Target       `json:"target,omitempty"`
	Provider string                 `json:"provider,omitempty" maxLength:"64" doc:"webhook (default), local-gh or agentpush"`
	Group    string                 `json:"group,omitempty" maxLength:"200"`
	Label    string                 `json:"label,omitempty" maxLength:"200"`
	TenantID string                 `json:"tenant_id,omitempty" doc:"Whose sentinel it is; absent: the key's scope's"`

	Subject   string   `json:"subject,omitempty" maxLength:"256" example:"github:octocat/hello-world#7" doc:"In short: what to watch"`
	PRURL     string   `json:"prUrl,omitempty" maxLength:"512" example:"https://github.com/octocat/hello-world/pull/7" doc:"In short: a pull request, in place of subject"`
	SessionID string   `json:"sessionId,omitempty" maxLength:"200" doc:"In short: the session that pulls the events"`
	Types     []string `json:"types,omitempty" maxItems:"50"`
	Urgency   string   `json:"urgency,omitempty" enum:"fyi,next-turn,steer,interrupt" doc:"next-turn when absent"`
}

// until is an object, or in short a word.
type until struct {
	sentinel.Until
	word string
	set  bool
}

// untilForms says what fits, where neither form does.
const untilForms = "must be subject_terminal or never, or an object: kind is subject_terminal, at (with ms, a whole number), count (with n, a whole number) or never"

// UnmarshalJSON implements json.Unmarshaler.
func (u *until) UnmarshalJSON(data []byte) error {
	u.set = string(data) != "null"
	if len(data) > 0 && data[0] == '"' {
		return json.Unmarshal(data, &u.word)
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	return d.Decode(&u.Until)
}

// MarshalJSON implements json.Marshaler, for the hash of a repeated request.
func (u until) MarshalJSON() ([]byte, error) {
	if u.word != "" {
		return json.Marshal(u.word)
	}
	return json.Marshal(u.Until)
}

// Schema implements huma.SchemaProvider.
func (until) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Description: "When watching stops. In full {kind: subject_terminal | at (with ms, Unix milliseconds) | count (with n) | never}; in short the word subject_terminal (default) or never",
		OneOf: []*huma.Schema{
			{Type: huma.TypeString, Enum: []any{"subject_terminal", "never"}},
			{Type: huma.TypeObject, Properties: map[string]*huma.Schema{
				"kind": {Type: huma.TypeString, Enum: []any{"subject_terminal", "at", "count", "never"}},
				"ms":   {Type: huma.TypeInteger, Format: "int64"}, "n": {Type: huma.TypeInteger, Format: "int64"}},
				Required: []string{"kind"}, AdditionalProperties: false}}}
}

// spec reads either form.
func (in *SentinelInput) spec() (sentinel.Spec, error) {
	if in.Target == nil && in.Match == nil {
		if in.Until.Kind != "" {
			return sentinel.Spec{}, surehook.Invalid("until", "must be a word here: subject_terminal or never")
		}
		return sentinel.Short{Subject: in.Subject, PRURL: in.PRURL, SessionID: in.SessionID, Types: in.Types, Urgency: in.Urgency, Until: in.Until.word,
			Provider: in.Provider, Group: in.Group, Label: in.Label}.Spec()
	}
	for _, x := range [...]struct {
		path  string
		given bool
	}{{"subject", in.Subject != ""}, {"prUrl", in.PRURL != ""}, {"sessionId", in.SessionID != ""}, {"types", in.Types != nil}, {"urgency", in.Urgency != ""}} {
		if x.given {
			return sentinel.Spec{}, surehook.Invalid(x.path, "belongs to the short form, without match and target")
		}
	}
	switch {
	case in.Target == nil:
		return sentinel.Spec{}, surehook.Invalid("target", "is required")
	case in.Until.word != "":
		in.Until.Kind = in.Until.word
	case !in.Until.set:
		return sentinel.Spec{}, surehook.Invalid("until", "is required")
	}
	return sentinel.Spec{Match: in.Match, Until: in.Until.Until, Target: *in.Target, Provider: in.Provider, Group: in.Group, Label: in.Label}, nil
}

// SentinelPatch changes a sentinel.
type SentinelPatch struct {
	Secret *string `json:"secret,omitempty" maxLength:"200" doc:"whsec_…; the callback is challenged with it first, and the old one signs beside it for 10 minutes"`
	Status *string `json:"status,omitempty" enum:"active,paused" doc:"paused: nothing matches until it is active again"`
}

type sentinelOut struct{ Body sentinel.View }

type sentinelsOut struct {
	Body struct {
		Sentinels []sentinel.View `json:"sentinels"`
		Next      string          `json:"next,omitempty" doc:"The cursor of the next page; absent on the last one"`
	}
}

type sentinelGone struct {
	Body struct {
		OK bool   `json:"ok"`
		ID string `json:"id"`
	}
}

func (s *server) sentinels() {
	const tag = "Sentinels"
	manage, read := surehook.PermWebhooksManage, surehook.PermRead
	route(s, op{method: "POST", path: "/sentinels", id: "createSentinel", tag: tag, perm: manage, status: http.StatusCreated, summary: "Watch subjects for a time",
		about: "A webhook's callback is sent a challenge first, and must give it back within 10 s; nothing else is sent to it before."}, s.createSentinel)
	route(s, op{method: "GET", path: "/sentinels", id: "listSentinels", tag: tag, perm: read, summary: "List sentinels, newest first"}, s.listSentinels)
	route(s, op{method: "GET", path: "/sentinels/{id}", id: "getSentinel", tag: tag, perm: read, summary: "Read a sentinel"}, s.getSentinel)
	route(s, op{method: "PATCH", path: "/sentinels/{id}", id: "updateSentinel", tag: tag, perm: manage, summary: "Change a sentinel's secret, or pause it"}, s.updateSentinel)
	route(s, op{method: "DELETE", path: "/sentinels/{id}", id: "deleteSentinel", tag: tag, perm: manage, summary: "Remove a sentinel",
		about: "Its secret goes, its provider stops watching, and what waits for it ends as dead letters with sentinel_removed."}, s.deleteSentinel)
	route(s, op{method: "POST", path: "/sentinels/{id}/poll", id: "pollSentinel", tag: tag, perm: manage, summary: "Have a sentinel's provider look now"}, s.pollSentinel)
	route(s, op{method: "GET", path: "/v1/sentinel-providers", id: "listSentinelProviders", tag: tag, perm: read, summary: "Who can watch, and whether they are ready"}, s.sentinelProviders)
	route(s, op{method: "GET", path: "/v1/sentinel-providers/{slug}", id: "getSentinelProvider", tag: tag, perm: read, summary: "One provider"}, s.sentinelProvider)
}

// watcher is the caller as the sentinels' service knows it.
func (c *call) watcher(tenant string) sentinel.Caller {
	w := sentinel.Caller{Principal: c.key.ID, Tenant: tenant, Manages: c.may(surehook.PermWebhooksManage), Sees: c.seesEndpoint, Actor: c.actor()}
	if tenant == "" {
		w.Partner = c.partner()
	}
	return w
}

type createSentinelIn struct {
	Once
	Body SentinelInput
}

func (s *server) createSentinel(ctx context.Context, c *call, in *createSentinelIn) (*sentinelOut, error) {
	return once(ctx, s, c, "createSentinel", in.IdempotencyKey, in.Body, func() (*sentinelOut, error) {
		tenant, err := c.scope(in.Body.TenantID)
		if err != nil {
			return nil, err
		}
		spec, err := in.Body.spec()
		if err != nil {
			return nil, err
		}
		for _, m := range spec.Match {
			if err := s.types.permit(ctx, c, orAll(m.Types)); err != nil {
				return nil, err
			}
		}
		v, err := s.opt.Sentinels.Create(ctx, c.watcher(tenant), spec)
		if err != nil {
			return nil, err
		}
		return &sentinelOut{v}, nil
	})
}

type sentinelsIn struct {
	Listing
	TenantID string `query:"tenant_id"`
	Session  string `query:"session"`
	Group    string `query:"group"`
	Provider string `query:"provider"`
	Status   string `query:"status" enum:"active,paused,expired,orphaned,error"`
}

func (s *server) listSentinels(ctx context.Context, c *call, in *sentinelsIn) (*sentinelsOut, error) {
	p, err := in.page("sentinels")
	if err != nil {
		return nil, err
	}
	tenant, err := c.scope(in.TenantID)
	if err != nil {
		return nil, err
	}
	views, next, err := s.opt.Sentinels.List(ctx, c.watcher(tenant), sentinel.Page{Cursor: p.Cursor, Limit: p.Limit, Session: in.Session, Group: in.Group,
		Provider: in.Provider, Status: in.Status})
	if err != nil {
		return nil, err
	}
	out := &sentinelsOut{}
	if out.Body.Sentinels = views; next != 0 {
		out.Body.Next = cursor("sentinels", next)
	}
	return out, nil
}

func (s *server) getSentinel(ctx context.Context, c *call, in *ByID) (*sentinelOut, error) {
	v, err := s.opt.Sentinels.Get(ctx, c.watcher(c.tenant()), in.ID)
	if err != nil {
		return nil, err
	}
	return &sentinelOut{v}, nil
}

type updateSentinelIn struct {
	ByID
	Body SentinelPatch
}

func (s *server) updateSentinel(ctx context.Context, c *call, in *updateSentinelIn) (*sentinelOut, error) {
	b, who := &in.Body, c.watcher(c.tenant())
	var v sentinel.View
	var err error
	switch {
	case b.Secret != nil && b.Status != nil:
		return nil, surehook.Invalid("status", "can't be changed together with the secret: send two requests")
	case b.Secret != nil:
		v, err = s.opt.Sentinels.ChangeSecret(ctx, who, in.ID, *b.Secret)
	case b.Status != nil:
		v, err = s.opt.Sentinels.Pause(ctx, who, in.ID, *b.Status == string(surehook.SentinelPaused))
	default:
		return nil, surehook.Invalid("body", "must hold secret or status")
	}
	if err != nil {
		return nil, err
	}
	return &sentinelOut{v}, nil
}

func (s *server) deleteSentinel(ctx context.Context, c *call, in *ByID) (*sentinelGone, error) {
	if err := s.opt.Sentinels.Remove(ctx, c.watcher(c.tenant()), in.ID); err != nil {
		return nil, err
	}
	out := &sentinelGone{}
	out.Body.OK, out.Body.ID = true, in.ID
	return out, nil
}

type polledOut struct {
	Body struct {
		ID     string `json:"id"`
		Events int    `json:"events" doc:"That were new"`
	}
}

func (s *server) pollSentinel(ctx context.Context, c *call, in *ByID) (*polledOut, error) {
	n, err := s.opt.Sentinels.PollNow(ctx, c.watcher(c.tenant()), in.ID)
	if err != nil {
		return nil, err
	}
	out := &polledOut{}
	out.Body.ID, out.Body.Events = in.ID, n
	return out, nil
}

// SentinelProviderView is a way by which events come.
type SentinelProviderView struct {
	Slug    string `json:"slug"`
	Default bool   `json:"default" doc:"It serves when a sentinel names none"`
	sentinel.Readiness
}

type providersOut struct {
	Body struct {
		Providers []SentinelProviderView `json:"providers"`
	}
}

func viewProvider(ctx context.Context, p sentinel.Provider) SentinelProviderView {
	return SentinelProviderView{Slug: p.Slug(), Default: p.Slug() == sentinel.DefaultProvider, Readiness: p.Readiness(ctx)}
}

func (s *server) sentinelProviders(ctx context.Context, _ *call, _ *none) (*providersOut, error) {
	out := &providersOut{}
	out.Body.Providers = []SentinelProviderView{}
	for _, p := range s.opt.Sentinels.Providers().All() {
		out.Body.Providers = append(out.Body.Providers, viewProvider(ctx, p))
	}
	return out, nil
}

type bySlug struct {
	Slug string `path:"slug"`
}

type providerOut struct{ Body SentinelProviderView }

func (s *server) sentinelProvider(ctx context.Context, _ *call, in *bySlug) (*providerOut, error) {
	p, err := s.opt.Sentinels.Providers().ByName(in.Slug)
	if err != nil {
		return nil, surehook.Errorf(surehook.NotFound, "no such provider")
	}
	return &providerOut{viewProvider(ctx, p)}, nil
}

// challengeReason says why a callback wasn't verified, for programs.
func challengeReason(err error) string {
	if r, ok := errors.AsType[*sentinel.CallbackError](err); ok {
		return r.Reason
	}
	return ""
}
