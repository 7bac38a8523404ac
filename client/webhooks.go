package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"time"
)

// Limits override the profile's, within bounds.
type Limits struct {
	WaitsMS       []int   `json:"waits_ms,omitempty"`
	Attempts      int     `json:"attempts,omitempty"`
	TimeoutMS     int     `json:"timeout_ms,omitempty"`
	RatePerSecond float64 `json:"rate_per_second,omitempty"`
	Concurrency   int     `json:"concurrency,omitempty"`
}

// WebhookInput is an endpoint to create. URL is required, unless Target is "pull".
type WebhookInput struct {
	Target      string            `json:"target,omitempty"` // "webhook" by default, or "pull"
	URL         string            `json:"url,omitempty"`
	SessionID   string            `json:"session_id,omitempty"` // with "pull": into this session's inbox
	Urgency     string            `json:"urgency,omitempty"`    // with "pull": goes with each event
	Description string            `json:"description,omitempty"`
	EventTypes  []string          `json:"event_types,omitempty"`
	Subjects    []string          `json:"subjects,omitempty"`
	IdentityIDs []string          `json:"identity_ids,omitempty"`
	TenantID    string            `json:"tenant_id,omitempty"`
	PartnerID   string            `json:"partner_id,omitempty"`
	Profile     string            `json:"profile,omitempty"`
	Envelope    string            `json:"envelope,omitempty"`
	Signature   string            `json:"signature,omitempty"`
	Headers     map[string]string `json:"headers,omitempty"`
	Limits      *Limits           `json:"limits,omitempty"`
	Ordering    string            `json:"ordering,omitempty"` // "none" by default, or "sequence"
	Secret      string            `json:"secret,omitempty"`
	Enabled     *bool             `json:"enabled,omitempty"`
}

// WebhookPatch changes an endpoint: nil fields stay.
type WebhookPatch struct {
	URL         *string            `json:"url,omitempty"`
	Description *string            `json:"description,omitempty"`
	EventTypes  *[]string          `json:"event_types,omitempty"`
	Subjects    *[]string          `json:"subjects,omitempty"`
	IdentityIDs *[]string          `json:"identity_ids,omitempty"`
	Profile     *string            `json:"profile,omitempty"`
	Envelope    *string            `json:"envelope,omitempty"`
	Headers     *map[string]string `json:"headers,omitempty"`
	Limits      *Limits            `json:"limits,omitempty"`
	Ordering    *string            `json:"ordering,omitempty"`
	Enabled     *bool              `json:"enabled,omitempty"`
	Paused      *bool              `json:"paused,omitempty"` // nothing but tests is sent while it is, and what is for it waits

	// Clear names fields to set to null: event_types (every type), subjects and
	// identity_ids (no filter), headers (none), limits (the profile's), description.
	Clear []string `json:"-"`
}

// MarshalJSON implements json.Marshaler.
func (p WebhookPatch) MarshalJSON() ([]byte, error) {
	type fields WebhookPatch // without this method
	raw, err := encode(fields(p))
	if err != nil || len(p.Clear) == 0 {
		return raw, err
	}
	all := make(map[string]json.RawMessage)
	if err := json.Unmarshal(raw, &all); err != nil {
		return nil, err
	}
	for _, name := range p.Clear {
		all[name] = json.RawMessage("null")
	}
	return encode(all)
}

// Webhook is an endpoint. Secret is set in the answer to CreateWebhook alone.
type Webhook struct {
	ID                  string            `json:"id"`
	Scope               string            `json:"scope"`
	TenantID            *string           `json:"tenant_id"`
	PartnerID           *string           `json:"partner_id"`
	Target              string            `json:"target"`
	URL                 string            `json:"url"`
	Description         string            `json:"description"`
	EventTypes          []string          `json:"event_types"`
	Subjects            []string          `json:"subjects,omitempty"`
	IdentityIDs         []string          `json:"identity_ids,omitempty"`
	Profile             string            `json:"profile"`
	Envelope            string            `json:"envelope"`
	Signature           string            `json:"signature"`
	Headers             map[string]string `json:"headers,omitempty"`
	Limits              Limits            `json:"limits"`           // its own
	Effective           Limits            `json:"effective_limits"` // those that hold: its own, or else its profile's
	Ordering            string            `json:"ordering"`
	Enabled             bool              `json:"enabled"`
	Paused              bool              `json:"paused"`
	DisabledReason      *string           `json:"disabled_reason"`
	ConsecutiveFailures int               `json:"consecutive_failures"`
	FirstFailureAt      *string           `json:"first_failure_at"`
	LastFailureAt       *string           `json:"last_failure_at"`
	PreviousSecretUntil *string           `json:"previous_secret_until"`
	CreatedAt           string            `json:"created_at"`
	UpdatedAt           string            `json:"updated_at"`
	SessionID           *string           `json:"session_id"` // with target pull: in whose inbox its events wait
	Urgency             string            `json:"urgency,omitempty"`
	Inbox               *InboxState       `json:"inbox,omitempty"` // in lists, where it has its own
	Secret              string            `json:"secret,omitempty"`
}

// CreateWebhook registers an endpoint and gives its secret.
func (c *Client) CreateWebhook(ctx context.Context, w WebhookInput) (Webhook, error) {
	return send[Webhook](ctx, c, http.MethodPost, "/v1/webhooks", w)
}

// PauseWebhook has nothing but tests sent to an endpoint: what is for it waits, with
// no attempt and no failure, until ResumeWebhook.
func (c *Client) PauseWebhook(ctx context.Context, id string) (Webhook, error) {
	on := true
	return c.UpdateWebhook(ctx, id, WebhookPatch{Paused: &on})
}

// ResumeWebhook ends a pause: what waits goes out.
func (c *Client) ResumeWebhook(ctx context.Context, id string) (Webhook, error) {
	var off bool
	return c.UpdateWebhook(ctx, id, WebhookPatch{Paused: &off})
}

// Webhook reads an endpoint.
func (c *Client) Webhook(ctx context.Context, id string) (Webhook, error) {
	return get[Webhook](ctx, c, "/v1/webhooks/"+seg(id), nil)
}

// WebhookFilter selects endpoints. Empty fields select all.
type WebhookFilter struct {
	TenantID, PartnerID string
	Platform            bool
	Enabled             string // "", "true" or "false"
	SessionID           string // those that feed its inbox
	Page
}

// Webhooks lists endpoints.
func (c *Client) Webhooks(ctx context.Context, f WebhookFilter) iter.Seq2[Webhook, error] {
	q := values("tenant_id", f.TenantID, "partner_id", f.PartnerID, "enabled", f.Enabled, "session_id", f.SessionID)
	if f.Platform {
		q.Set("scope", "platform")
	}
	return pages[Webhook](ctx, c, "/v1/webhooks", q, f.Page)
}

// UpdateWebhook changes an endpoint.
func (c *Client) UpdateWebhook(ctx context.Context, id string, p WebhookPatch) (Webhook, error) {
	return send[Webhook](ctx, c, http.MethodPatch, "/v1/webhooks/"+seg(id), p)
}

// DeleteWebhook removes an endpoint; what waits for it is dropped.
func (c *Client) DeleteWebhook(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, "/v1/webhooks/"+seg(id), nil)
	return err
}

// Rotated is a new secret.
type Rotated struct {
	Secret              string  `json:"secret"`
	PreviousSecretUntil *string `json:"previous_secret_until"`
}

// RotateSecret gives an endpoint a new secret; the old one signs beside it for
// overlap.
func (c *Client) RotateSecret(ctx context.Context, id string, overlap time.Duration) (Rotated, error) {
	return send[Rotated](ctx, c, http.MethodPost, "/v1/webhooks/"+seg(id)+"/rotate-secret", map[string]float64{"overlap_hours": overlap.Hours()})
}

// RevokePreviousSecret ends a rotation's overlap at once.
func (c *Client) RevokePreviousSecret(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, "/v1/webhooks/"+seg(id)+"/previous-secret", nil)
	return err
}

// TestWebhook makes one attempt now and gives it.
func (c *Client) TestWebhook(ctx context.Context, id string) (Attempt, error) {
	return send[Attempt](ctx, c, http.MethodPost, "/v1/webhooks/"+seg(id)+"/test", nil)
}

// WebhookAttempts lists an endpoint's attempts, newest first.
func (c *Client) WebhookAttempts(ctx context.Context, id string, p Page) iter.Seq2[Attempt, error] {
	return pages[Attempt](ctx, c, "/v1/webhooks/"+seg(id)+"/attempts", nil, p)
}

// HistoryEntry is one thing that was done to an endpoint.
type HistoryEntry struct {
	At      time.Time       `json:"at"`
	Action  string          `json:"action"`
	Actor   string          `json:"actor"`
	Details json.RawMessage `json:"details"`
}

// WebhookHistory lists what was done to an endpoint, newest first.
func (c *Client) WebhookHistory(ctx context.Context, id string, p Page) iter.Seq2[HistoryEntry, error] {
	return pages[HistoryEntry](ctx, c, "/v1/webhooks/"+seg(id)+"/history", nil, p)
}

// ReplayInput says which events to deliver again: ids, or a window.
type ReplayInput struct {
	IDs        []string   `json:"ids,omitempty"`
	Since      *time.Time `json:"since,omitempty"`
	Until      *time.Time `json:"until,omitempty"`
	Status     string     `json:"status,omitempty"` // dead, failed, succeeded
	Background bool       `json:"background,omitempty"`
}

// Queued tells what a replay did.
type Queued struct {
	Queued     int     `json:"queued"`
	InProgress int     `json:"in_progress"`
	Replay     *Replay `json:"replay,omitempty"`
}

// Replay is a background replay.
type Replay struct {
	ID        string  `json:"id"`
	WebhookID string  `json:"webhook_id"`
	Since     *string `json:"since"`
	Until     *string `json:"until"`
	Status    *string `json:"status"`
	State     string  `json:"state"`
	Scanned   int64   `json:"scanned"`
	Queued    int64   `json:"queued"`
	Total     int64   `json:"total"`
	Error     *string `json:"error"`
	CreatedAt string  `json:"created_at"`
	UpdatedAt string  `json:"updated_at"`
}

// Replay delivers past events to an endpoint again.
func (c *Client) Replay(ctx context.Context, webhook string, in ReplayInput) (Queued, error) {
	return send[Queued](ctx, c, http.MethodPost, "/v1/webhooks/"+seg(webhook)+"/replay", in)
}

// Replays lists background replays, newest first; webhook "": all.
func (c *Client) Replays(ctx context.Context, webhook string) iter.Seq2[Replay, error] {
	return pages[Replay](ctx, c, "/v1/replays", values("webhook_id", webhook), Page{})
}

// GetReplay reads a background replay's progress.
func (c *Client) GetReplay(ctx context.Context, id string) (Replay, error) {
	return get[Replay](ctx, c, "/v1/replays/"+seg(id), nil)
}

// CancelReplay ends a background replay.
func (c *Client) CancelReplay(ctx context.Context, id string) (Replay, error) {
	return send[Replay](ctx, c, http.MethodPost, "/v1/replays/"+seg(id)+"/cancel", nil)
}
