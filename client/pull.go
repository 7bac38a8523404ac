package client

import (
	"context"
	"encoding/json"
	"iter"
	"net/http"
	"strconv"
	"time"
)

// Inbox is where events wait until they are pulled: a webhook's, or a session's.
type Inbox struct{ path, tenant string }

// WebhookInbox is that of a webhook with target pull.
func WebhookInbox(id string) Inbox { return Inbox{path: "/v1/webhooks/" + seg(id)} }

// SessionInbox is that of a session. tenant says whose; empty: the key's.
func SessionInbox(id, tenant string) Inbox {
	return Inbox{path: "/v1/sessions/" + seg(id), tenant: tenant}
}

// PullInput asks for a page of an inbox.
type PullInput struct {
	Cursor string        // of the last event that was dealt with: acknowledges it and all before it
	From   string        // as Cursor, but acknowledges nothing
	Limit  int           // 0: the server's 100
	Wait   time.Duration // for the first event; whole seconds, at most a minute
}

// Pulled is an event out of an inbox.
type Pulled struct {
	Cursor     string          `json:"cursor"` // acknowledges it and all before it
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	WebhookID  string          `json:"webhook_id"`
	Attempt    int             `json:"attempt"`
	OccurredAt string          `json:"occurred_at"`
	Urgency    string          `json:"urgency,omitempty"`
	Body       json.RawMessage `json:"body"` // what a request would hold, byte for byte
}

// PullPage is a page of an inbox.
type PullPage struct {
	Items []Pulled `json:"items"`
	Next  string   `json:"next_cursor"` // where to go on
	More  bool     `json:"more"`
}

// Pull reads a page of an inbox, in order of arrival. A *Problem with the code
// cursor_expired has in its Details where to go on.
func (c *Client) Pull(ctx context.Context, in Inbox, p PullInput) (PullPage, error) {
	q := values("cursor", p.Cursor, "from", p.From, "tenant_id", in.tenant)
	if p.Limit > 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	if s := int(p.Wait.Seconds()); s > 0 {
		q.Set("wait", strconv.Itoa(min(s, 60)))
	}
	return get[PullPage](ctx, c, in.path+"/events", q)
}

// Ack acknowledges events up to a cursor, and tells how many weren't before.
func (c *Client) Ack(ctx context.Context, in Inbox, cursor string) (int, error) {
	path := in.path + "/ack"
	if in.tenant != "" {
		path += "?" + values("tenant_id", in.tenant).Encode()
	}
	out, err := send[struct {
		Acknowledged int `json:"acknowledged"`
	}](ctx, c, http.MethodPost, path, map[string]string{"cursor": cursor})
	return out.Acknowledged, err
}

// InboxState is how full a webhook's inbox is.
type InboxState struct {
	Events   int64   `json:"events"`
	Bytes    int64   `json:"bytes"`
	OldestAt *string `json:"oldest_at"`
	Dropped  int64   `json:"dropped"` // events that ever left it unread
}

// InboxState tells how full the inbox of a webhook with target pull is.
func (c *Client) InboxState(ctx context.Context, webhook string) (InboxState, error) {
	return get[InboxState](ctx, c, "/v1/webhooks/"+seg(webhook)+"/inbox", nil)
}

// Session is a reader with an inbox of its own.
type Session struct {
	ID        string  `json:"id"`
	TenantID  *string `json:"tenant_id"`
	PartnerID *string `json:"partner_id"`
	Alive     bool    `json:"alive"`
	CreatedAt string  `json:"created_at"`
	SeenAt    string  `json:"seen_at"`
	EndedAt   *string `json:"ended_at"`
	EndReason *string `json:"end_reason"`

	Inbox InboxState `json:"inbox"` // what waits for it
}

// OpenSession opens a session of the key's scope, or keeps it alive; anew begins
// another one where it has ended.
func (c *Client) OpenSession(ctx context.Context, id string, anew bool) (Session, error) {
	return send[Session](ctx, c, http.MethodPut, "/v1/sessions/"+seg(id), map[string]bool{"anew": anew})
}

// Session reads a session of the key's scope.
func (c *Client) Session(ctx context.Context, id string) (Session, error) {
	return get[Session](ctx, c, "/v1/sessions/"+seg(id), nil)
}

// Sessions lists sessions, the newest first: a tenant's, or with none named all that
// the key sees.
func (c *Client) Sessions(ctx context.Context, tenant string) iter.Seq2[Session, error] {
	return pages[Session](ctx, c, "/v1/sessions", values("tenant_id", tenant), Page{})
}

// CloseSession ends a session of the key's scope.
func (c *Client) CloseSession(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, "/v1/sessions/"+seg(id), nil)
	return err
}
