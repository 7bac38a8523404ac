package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// DeadLetter is a delivery that ended dead.
type DeadLetter struct {
	ID         string  `json:"id"`
	EventID    string  `json:"event_id"`
	EventType  string  `json:"event_type"`
	WebhookID  string  `json:"webhook_id"`
	Error      *string `json:"error"`
	HTTPStatus int     `json:"http_status"`
	Attempts   int     `json:"attempts"`
	CreatedAt  string  `json:"created_at"`

	Data json.RawMessage `json:"data,omitempty"` // the event's, where the filter asked for it and it is still there
}

// DeadLetterFilter selects dead letters. Empty fields select all.
type DeadLetterFilter struct {
	WebhookID, TenantID string
	Since, Until        time.Time
	Data                bool // with the data of the events
	Page
}

// DeadLetters lists dead letters, newest first.
func (c *Client) DeadLetters(ctx context.Context, f DeadLetterFilter) iter.Seq2[DeadLetter, error] {
	q := values("webhook_id", f.WebhookID, "tenant_id", f.TenantID, "since", at(f.Since), "until", at(f.Until))
	if f.Data {
		q.Set("data", "true")
	}
	return pages[DeadLetter](ctx, c, "/v1/dead-letters", q, f.Page)
}

// DeadLetter reads one dead letter.
func (c *Client) DeadLetter(ctx context.Context, id string) (DeadLetter, error) {
	return get[DeadLetter](ctx, c, "/v1/dead-letters/"+seg(id), nil)
}

// ReplayDeadLetters delivers up to 100 dead letters again.
func (c *Client) ReplayDeadLetters(ctx context.Context, ids []string) (Queued, error) {
	return send[Queued](ctx, c, http.MethodPost, "/v1/dead-letters/replay", map[string][]string{"ids": ids})
}

// DiscardDeadLetters gives up to 100 dead letters up, and tells how many went.
func (c *Client) DiscardDeadLetters(ctx context.Context, ids []string) (int, error) {
	out, err := send[struct {
		Discarded int `json:"discarded"`
	}](ctx, c, http.MethodPost, "/v1/dead-letters/discard", map[string][]string{"ids": ids})
	return out.Discarded, err
}

// EventType is an entry of the catalogue.
type EventType struct {
	Name        string          `json:"name,omitempty"`
	Description string          `json:"description,omitempty"`
	Example     json.RawMessage `json:"example,omitempty"`
	Schema      json.RawMessage `json:"schema,omitempty"`
	Validate    bool            `json:"validate"`
	Requires    string          `json:"requires,omitempty"` // permission of a key that subscribes or replays
	CreatedAt   string          `json:"created_at,omitempty"`
	UpdatedAt   string          `json:"updated_at,omitempty"`
}

// EventTypes lists the catalogue.
func (c *Client) EventTypes(ctx context.Context) ([]EventType, error) {
	out, err := get[page[EventType]](ctx, c, "/v1/event-types", nil)
	return out.Items, err
}

// EventType reads one type.
func (c *Client) EventType(ctx context.Context, name string) (EventType, error) {
	return get[EventType](ctx, c, "/v1/event-types/"+seg(name), nil)
}

// PutEventType describes a type.
func (c *Client) PutEventType(ctx context.Context, t EventType) (EventType, error) {
	name := t.Name
	t.Name, t.CreatedAt, t.UpdatedAt = "", "", ""
	return send[EventType](ctx, c, http.MethodPut, "/v1/event-types/"+seg(name), t)
}

// DeleteEventType takes a type out of the catalogue.
func (c *Client) DeleteEventType(ctx context.Context, name string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, "/v1/event-types/"+seg(name), nil)
	return err
}

// Tenant is a named tenant.
type Tenant struct {
	ID         string  `json:"id"`
	Name       string  `json:"name"`
	PartnerID  *string `json:"partner_id"`
	EventsDays int     `json:"events_days"` // how long its events are kept; 0: as long as everybody's
	CreatedAt  string  `json:"created_at"`
}

// TenantInput is what is said of a tenant. Empty fields take away what was.
type TenantInput struct {
	Name       string `json:"name"`
	PartnerID  string `json:"partner_id,omitempty"`
	EventsDays int    `json:"events_days,omitempty"`
}

// Tenants lists tenants.
func (c *Client) Tenants(ctx context.Context) iter.Seq2[Tenant, error] {
	return pages[Tenant](ctx, c, "/v1/tenants", nil, Page{})
}

// Tenant reads a named tenant.
func (c *Client) Tenant(ctx context.Context, id string) (Tenant, error) {
	return get[Tenant](ctx, c, "/v1/tenants/"+seg(id), nil)
}

// PutTenant names a tenant, the partner that it belongs to, and how long its events
// are kept.
func (c *Client) PutTenant(ctx context.Context, id string, in TenantInput) (Tenant, error) {
	return send[Tenant](ctx, c, http.MethodPut, "/v1/tenants/"+seg(id), in)
}

// DeleteTenant forgets a tenant's name.
func (c *Client) DeleteTenant(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, "/v1/tenants/"+seg(id), nil)
	return err
}

// KeyInput is a key to make.
type KeyInput struct {
	Name        string   `json:"name,omitempty"`
	TenantID    string   `json:"tenant_id,omitempty"`
	PartnerID   string   `json:"partner_id,omitempty"`
	Permissions []string `json:"permissions"`
}

// Key is an API key. Key.Key is set in the answer to CreateKey alone.
type Key struct {
	ID          string   `json:"id"`
	Name        string   `json:"name"`
	Hint        string   `json:"hint"`
	TenantID    *string  `json:"tenant_id"`
	PartnerID   *string  `json:"partner_id"`
	Permissions []string `json:"permissions"`
	CreatedAt   string   `json:"created_at"`
	RevokedAt   *string  `json:"revoked_at"`
	LastUsedAt  *string  `json:"last_used_at"`
	Key         string   `json:"key,omitempty"`
}

// CreateKey makes an API key and gives it.
func (c *Client) CreateKey(ctx context.Context, in KeyInput) (Key, error) {
	return send[Key](ctx, c, http.MethodPost, "/v1/keys", in)
}

// Keys lists keys.
func (c *Client) Keys(ctx context.Context) iter.Seq2[Key, error] {
	return pages[Key](ctx, c, "/v1/keys", nil, Page{})
}

// RevokeKey revokes a key.
func (c *Client) RevokeKey(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, "/v1/keys/"+seg(id), nil)
	return err
}

// AuditEntry tells who changed what.
type AuditEntry struct {
	At        string          `json:"at"`
	Actor     string          `json:"actor"`
	Action    string          `json:"action"`
	Target    string          `json:"target"`
	TenantID  *string         `json:"tenant_id"`
	RequestID *string         `json:"request_id"`
	Details   json.RawMessage `json:"details,omitempty"`
}

// AuditLog lists changes, newest first.
func (c *Client) AuditLog(ctx context.Context, tenant string, p Page) iter.Seq2[AuditEntry, error] {
	return pages[AuditEntry](ctx, c, "/v1/audit-log", values("tenant_id", tenant), p)
}

// Ready asks whether the server takes and delivers events: nil when it does.
func (c *Client) Ready(ctx context.Context) error {
	return c.do(ctx, request{method: http.MethodGet, path: "/readyz"}, nil)
}

// Version asks the server for its version.
func (c *Client) Version(ctx context.Context) (string, error) {
	out, err := get[struct {
		Version string `json:"version"`
	}](ctx, c, "/version", nil)
	return out.Version, err
}
