package api

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"

	"github.com/surehook/surehook"
)

func (s *server) admin() {
	admin, read := surehook.PermAdmin, surehook.PermRead
	const types, tenants, keys = "Event types", "Tenants", "API keys"
	route(s, op{method: "PUT", path: "/v1/event-types/{name}", id: "putEventType", tag: types, perm: admin, platform: true, summary: "Describe an event type",
		about: "With validate, published data that the schema refuses is refused."}, s.putType)
	route(s, op{method: "GET", path: "/v1/event-types", id: "listEventTypes", tag: types, perm: read, summary: "The catalogue"}, s.listTypes)
	route(s, op{method: "GET", path: "/v1/event-types/{name}", id: "getEventType", tag: types, perm: read, summary: "One event type"}, s.getType)
	route(s, op{method: "DELETE", path: "/v1/event-types/{name}", id: "deleteEventType", tag: types, perm: admin, platform: true, status: http.StatusNoContent,
		summary: "Take an event type out of the catalogue"}, s.deleteType)
	route(s, op{method: "PUT", path: "/v1/tenants/{id}", id: "putTenant", tag: tenants, perm: admin, platform: true, summary: "Name a tenant",
		about: "Tenants need not be named before they are used."}, s.putTenant)
	route(s, op{method: "GET", path: "/v1/tenants", id: "listTenants", tag: tenants, perm: read, platform: true, partner: true, summary: "Named tenants", about: "A partner's key gets its own."}, s.listTenants)
	route(s, op{method: "GET", path: "/v1/tenants/{id}", id: "getTenant", tag: tenants, perm: read, platform: true, partner: true, summary: "One tenant"}, s.getTenant)
	route(s, op{method: "DELETE", path: "/v1/tenants/{id}", id: "deleteTenant", tag: tenants, perm: admin, platform: true, status: http.StatusNoContent,
		summary: "Forget a tenant's name", about: "Its endpoints and events stay."}, s.deleteTenant)
	route(s, op{method: "POST", path: "/v1/keys", id: "createKey", tag: keys, perm: admin, platform: true, status: http.StatusCreated, summary: "Make an API key",
		about: "The key is in this answer and in no other."}, s.createKey)
	route(s, op{method: "GET", path: "/v1/keys", id: "listKeys", tag: keys, perm: admin, platform: true, summary: "List keys"}, s.listKeys)
	route(s, op{method: "DELETE", path: "/v1/keys/{id}", id: "revokeKey", tag: keys, perm: admin, platform: true, status: http.StatusNoContent, summary: "Revoke a key"}, s.revokeKey)
	route(s, op{method: "GET", path: "/v1/audit-log", id: "listAudit", tag: "Audit log", perm: admin, platform: true, summary: "Who changed what, newest first"}, s.listAudit)
}

// EventTypeInput describes an event type.
type EventTypeInput struct {
	Description string          `json:"description,omitempty" maxLength:"4000"`
	Example     json.RawMessage `json:"example,omitempty" doc:"Any JSON value"`
	Schema      json.RawMessage `json:"schema,omitempty" doc:"JSON Schema of the data; no remote references"`
	Validate    bool            `json:"validate,omitempty" doc:"Refuse published data that the schema refuses"`
	Requires    string          `json:"requires,omitempty" maxLength:"64" doc:"Permission of a key that has events of the type sent, e.g. mail:read: that subscribes to it, switches on, redirects or widens what subscribes to it, or replays it. What was subscribed before goes on"`
}

// EventTypeView is an entry of the catalogue.
type EventTypeView struct {
	Name string `json:"name"`
	EventTypeInput
	CreatedAt stamp `json:"created_at"`
	UpdatedAt stamp `json:"updated_at"`
}

func viewType(t *surehook.EventType) EventTypeView {
	return EventTypeView{Name: t.Name, EventTypeInput: EventTypeInput{Description: t.Description, Example: t.Example, Schema: t.Schema, Validate: t.Validate, Requires: t.Requires},
		CreatedAt: stamp(t.CreatedAt), UpdatedAt: stamp(t.UpdatedAt)}
}

// ByName names a thing by its name.
type ByName struct {
	Name string `path:"name" maxLength:"128"`
}

type putTypeIn struct {
	ByName
	Body EventTypeInput
}

type typeOut struct{ Body EventTypeView }

var typeName = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)

func (s *server) putType(ctx context.Context, c *call, in *putTypeIn) (*typeOut, error) {
	b := &in.Body
	if !typeName.MatchString(in.Name) {
		return nil, surehook.Invalid("name", "must be dotted names of letters, digits, - and _")
	}
	if b.Validate && len(b.Schema) == 0 {
		return nil, surehook.Invalid("validate", "needs a schema")
	}
	if b.Requires != "" && !permission(b.Requires) {
		return nil, surehook.Invalid("requires", badPermission)
	}
	if len(b.Schema) > 0 {
		if _, err := compileSchema(b.Schema); err != nil {
			return nil, surehook.Invalid("schema", "isn't a JSON Schema that can be used: "+err.Error())
		}
	}
	now := s.now()
	t := &surehook.EventType{Name: in.Name, Description: b.Description, Example: b.Example, Schema: b.Schema, Validate: b.Validate, Requires: b.Requires, CreatedAt: now, UpdatedAt: now}
	if err := s.store.PutEventType(ctx, t, s.audit(c, "event_type.put", in.Name, "")); err != nil {
		return nil, err
	}
	s.types.forget()
	return s.getType(ctx, c, &in.ByName)
}

type typesOut struct {
	Body struct {
		Items []EventTypeView `json:"items"`
	}
}

func (s *server) listTypes(ctx context.Context, _ *call, _ *none) (*typesOut, error) {
	rows, err := s.store.EventTypes(ctx)
	if err != nil {
		return nil, err
	}
	out := &typesOut{}
	out.Body.Items = make([]EventTypeView, len(rows))
	for i, t := range rows {
		out.Body.Items[i] = viewType(t)
	}
	return out, nil
}

func (s *server) getType(ctx context.Context, _ *call, in *ByName) (*typeOut, error) {
	rows, err := s.store.EventTypes(ctx)
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(rows, func(t *surehook.EventType) bool { return t.Name == in.Name })
	if i < 0 {
		return nil, surehook.Errorf(surehook.NotFound, "no such event type")
	}
	return &typeOut{viewType(rows[i])}, nil
}

func (s *server) deleteType(ctx context.Context, c *call, in *ByName) (*none, error) {
	if err := s.store.DeleteEventType(ctx, in.Name, s.audit(c, "event_type.delete", in.Name, "")); err != nil {
		return nil, err
	}
	s.types.forget()
	return nil, nil
}

// TenantInput names a tenant.
type TenantInput struct {
	Name       string `json:"name,omitempty" maxLength:"200"`
	PartnerID  string `json:"partner_id,omitempty" maxLength:"200"`
	EventsDays int    `json:"events_days,omitempty" minimum:"0" maximum:"3650" doc:"How long its events are kept, with their attempts and dead letters; 0: as long as everybody's (30 days, settable)"`
}

// TenantView is a tenant.
type TenantView struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	PartnerID  text   `json:"partner_id"`
	EventsDays int    `json:"events_days" doc:"0: as long as everybody's"`
	CreatedAt  stamp  `json:"created_at"`
}

func viewTenant(t *surehook.Tenant) TenantView {
	return TenantView{ID: t.ID, Name: t.Name, PartnerID: text(t.Partner), EventsDays: t.EventsDays, CreatedAt: stamp(t.CreatedAt)}
}

type tenantIn struct {
	ByID
	Body TenantInput
}

type tenantOut struct{ Body TenantView }

var tenantName = regexp.MustCompile(`^[\x21-\x7e]{1,200}$`)

func (s *server) putTenant(ctx context.Context, c *call, in *tenantIn) (*tenantOut, error) {
	if !tenantName.MatchString(in.ID) {
		return nil, surehook.Invalid("id", "must be at most 200 printable ASCII characters without spaces")
	}
	t := &surehook.Tenant{ID: in.ID, Name: in.Body.Name, Partner: in.Body.PartnerID, EventsDays: in.Body.EventsDays, CreatedAt: s.now()}
	if err := s.e.PutTenant(ctx, t, "tenant.put", c.actor()); err != nil {
		return nil, err
	}
	return s.getTenant(ctx, c, &in.ByID)
}

func (s *server) listTenants(ctx context.Context, c *call, in *Listing) (*listOut[TenantView], error) {
	p, err := in.page("tenants")
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListTenants(ctx, c.partner(), p)
	if err != nil {
		return nil, err
	}
	return paged("tenants", p, rows, func(t *surehook.Tenant) int64 { return t.Key },
		func(t *surehook.Tenant) (TenantView, bool) { return viewTenant(t), true }), nil
}

func (s *server) getTenant(ctx context.Context, c *call, in *ByID) (*tenantOut, error) {
	t, err := s.store.Tenant(ctx, in.ID)
	if err == nil && c.partner() != "" && t.Partner != c.partner() {
		err = surehook.Errorf(surehook.NotFound, "no such tenant")
	}
	if err != nil {
		return nil, err
	}
	return &tenantOut{viewTenant(t)}, nil
}

func (s *server) deleteTenant(ctx context.Context, c *call, in *ByID) (*none, error) {
	return nil, s.e.DeleteTenant(ctx, in.ID, c.actor())
}

// KeyInput is a key to make.
type KeyInput struct {
	Name        string   `json:"name,omitempty" maxLength:"200"`
	TenantID    string   `json:"tenant_id,omitempty" maxLength:"200" doc:"Bound to a tenant"`
	PartnerID   string   `json:"partner_id,omitempty" maxLength:"200" doc:"Bound to a partner: its endpoints, its tenants and theirs; neither: a platform key"`
	Permissions []string `json:"permissions" minItems:"1" maxItems:"50" doc:"events:write, events:pull, webhooks:manage, read, admin (platform keys), and what event types require"`
}

// KeyView is a key as it is shown: never itself.
type KeyView struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Hint        string   `json:"hint" doc:"The key's last four characters"`
	TenantID    text     `json:"tenant_id"`
	PartnerID   text     `json:"partner_id"`
	Permissions []string `json:"permissions"`
	CreatedAt   stamp    `json:"created_at"`
	RevokedAt   stamp    `json:"revoked_at"`
	LastUsedAt  stamp    `json:"last_used_at" doc:"Up to a minute late; null: never"`
}

// KeyCreated is a new key.
type KeyCreated struct {
	KeyView
	Key string `json:"key" doc:"Shown this once"`
}

func viewKey(k *surehook.APIKey) KeyView {
	return KeyView{ID: k.ID, Name: k.Name, Hint: k.Hint, TenantID: text(k.Tenant), PartnerID: text(k.Partner), Permissions: k.Permissions, CreatedAt: stamp(k.CreatedAt),
		RevokedAt: stamp(k.RevokedAt), LastUsedAt: stamp(k.LastUsedAt)}
}

type keyIn struct {
	Once
	Body KeyInput
}

type keyOut struct{ Body KeyCreated }

func (s *server) createKey(ctx context.Context, c *call, in *keyIn) (*keyOut, error) {
	b := &in.Body
	if err := checkKey(b); err != nil {
		return nil, err
	}
	return once(ctx, s, c, "createKey", in.IdempotencyKey, in.Body, func() (*keyOut, error) { return s.makeKey(ctx, c, b) })
}

const badPermission = "must be events:write, events:pull, webhooks:manage, read or admin, or one that an event type requires: names with colons between them, such as mail:read"

var (
	otherPermission = regexp.MustCompile(`^[a-z][a-z0-9_-]*(:[a-z0-9_.-]+)+$`)
	ourPermission   = regexp.MustCompile(`^(events|webhooks):`) // where a name that isn't known is a slip
)

// permission tells names that a permission can have.
func permission(name string) bool {
	return slices.Contains(permissions, name) || len(name) <= 64 && otherPermission.MatchString(name) && !ourPermission.MatchString(name)
}

func checkKey(b *KeyInput) error {
	bound := b.TenantID != "" || b.PartnerID != ""
	const name = "must be at most 200 printable ASCII characters without spaces"
	switch {
	case b.TenantID != "" && b.PartnerID != "":
		return surehook.Invalid("partner_id", "a key belongs to a tenant or to a partner, not to both")
	case bound && slices.Contains(b.Permissions, surehook.PermAdmin):
		return surehook.Invalid("permissions", "a tenant's or a partner's key can't have admin")
	case b.TenantID != "" && !tenantName.MatchString(b.TenantID):
		return surehook.Invalid("tenant_id", name)
	case b.PartnerID != "" && !tenantName.MatchString(b.PartnerID):
		return surehook.Invalid("partner_id", name)
	}
	if i := slices.IndexFunc(b.Permissions, func(p string) bool { return !permission(p) }); i >= 0 {
		return surehook.Invalid(fmt.Sprintf("permissions[%d]", i), badPermission)
	}
	return nil
}

func (s *server) makeKey(ctx context.Context, c *call, b *KeyInput) (*keyOut, error) {
	token := newKeyText()
	k := newKey(s.e.NewID("key"), b.Name, token, slices.Compact(slices.Sorted(slices.Values(b.Permissions))), s.now())
	k.Tenant, k.Partner = b.TenantID, b.PartnerID
	a := s.audit(c, "key.create", k.ID, "")
	a.Tenant = k.Tenant
	if err := s.store.CreateKey(ctx, k, a); err != nil {
		return nil, err
	}
	return &keyOut{KeyCreated{KeyView: viewKey(k), Key: token}}, nil
}

func (s *server) listKeys(ctx context.Context, _ *call, in *Listing) (*listOut[KeyView], error) {
	p, err := in.page("keys")
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListKeys(ctx, p)
	if err != nil {
		return nil, err
	}
	return paged("keys", p, rows, func(k *surehook.APIKey) int64 { return k.Key },
		func(k *surehook.APIKey) (KeyView, bool) { return viewKey(k), true }), nil
}

func (s *server) revokeKey(ctx context.Context, c *call, in *ByID) (*none, error) {
	err := s.store.RevokeKey(ctx, in.ID, s.audit(c, "key.revoke", in.ID, ""))
	s.keys.forget()
	return nil, err
}

// AuditView is one change.
type AuditView struct {
	At        stamp           `json:"at"`
	Actor     string          `json:"actor" doc:"A key's id, or system"`
	Action    string          `json:"action"`
	Target    string          `json:"target"`
	TenantID  text            `json:"tenant_id"`
	RequestID text            `json:"request_id"`
	Details   json.RawMessage `json:"details,omitempty"`
}

type auditIn struct {
	Listing
	TenantID string `query:"tenant_id"`
}

func (s *server) listAudit(ctx context.Context, _ *call, in *auditIn) (*listOut[AuditView], error) {
	p, err := in.page("audit")
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListAudit(ctx, in.TenantID, p)
	if err != nil {
		return nil, err
	}
	return paged("audit", p, rows, func(a surehook.AuditEntry) int64 { return a.Key }, func(a surehook.AuditEntry) (AuditView, bool) {
		v := AuditView{At: stamp(a.At), Actor: a.Actor, Action: a.Action, Target: a.Target, TenantID: text(a.Tenant), RequestID: text(a.RequestID)}
		if a.Details != "" {
			v.Details = json.RawMessage(a.Details)
		}
		return v, true
	}), nil
}
