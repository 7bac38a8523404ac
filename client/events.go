package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/oklog/ulid/v2"
)

// Event is an event to publish, or one that was read. Data is sent and given
// byte for byte.
type Event struct {
	ID         string          `json:"id,omitempty"`
	Type       string          `json:"type"`
	TenantID   string          `json:"tenant_id,omitempty"`
	IdentityID string          `json:"identity_id,omitempty"`
	Owner      string          `json:"owner,omitempty"`
	Sequence   int64           `json:"sequence,omitempty"` // place among the owner's events; read only
	Subjects   []string        `json:"subjects,omitempty"`
	OccurredAt string          `json:"occurred_at,omitempty"` // RFC 3339
	CreatedAt  string          `json:"created_at,omitempty"`  // read only
	Erased     bool            `json:"erased,omitempty"`      // its data was erased; read only
	Data       json.RawMessage `json:"data,omitempty"`
}

// Receipt tells what became of an event.
type Receipt struct {
	ID         string `json:"id"`
	Duplicate  bool   `json:"duplicate"`
	Deliveries int    `json:"deliveries"`
}

// BatchResult is a receipt, or why the event was refused.
type BatchResult struct {
	Receipt
	Error *BatchError `json:"error,omitempty"`
}

// BatchError says why one event of a batch was refused.
type BatchError struct {
	Code    string       `json:"code"`
	Message string       `json:"message"`
	Errors  []FieldError `json:"errors,omitempty"`
}

// newID makes an id, so that a repeat after a lost answer is recognised.
func newID() string { return "evt_" + ulid.MustNew(ulid.Now(), rand.Reader).String() }

// encode writes an event with its data untouched: encoding/json would compact
// and escape it.
func (e Event) encode() ([]byte, error) {
	data := e.Data
	e.Data, e.CreatedAt, e.Sequence, e.Erased = nil, "", 0, false
	if e.ID == "" {
		e.ID = newID()
	}
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errors.New("an event needs data: any JSON value")
	}
	head, err := encode(e)
	if err != nil {
		return nil, err
	}
	head = append(head[:len(head)-1], `,"data":`...)
	return append(append(head, data...), '}'), nil
}

// Publish stores one event. A nil error means that it is on the server's disk.
func (c *Client) Publish(ctx context.Context, e Event) (Receipt, error) {
	var out Receipt
	raw, err := e.encode()
	if err != nil {
		return out, err
	}
	err = c.do(ctx, request{method: http.MethodPost, path: "/v1/events", body: raw, repeat: true}, &out)
	return out, err
}

// PublishBatch stores up to 1000 events, each accepted or refused by itself.
func (c *Client) PublishBatch(ctx context.Context, events []Event) ([]BatchResult, error) {
	b := []byte(`{"events":[`)
	for i, e := range events {
		raw, err := e.encode()
		if err != nil {
			return nil, fmt.Errorf("event %d: %w", i, err)
		}
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, raw...)
	}
	var out struct {
		Results []BatchResult `json:"results"`
	}
	err := c.do(ctx, request{method: http.MethodPost, path: "/v1/events/batch", body: append(b, "]}"...), repeat: true}, &out)
	return out.Results, err
}

// EventFilter selects events. Empty fields select all.
type EventFilter struct {
	TenantID, Type, Status, Subject string
	Since, Until                    time.Time
	Page
}

// Events lists events, newest first, without their data.
func (c *Client) Events(ctx context.Context, f EventFilter) iter.Seq2[Event, error] {
	return pages[Event](ctx, c, "/v1/events", values("tenant_id", f.TenantID, "type", f.Type, "status", f.Status, "subject", f.Subject, "since", at(f.Since), "until", at(f.Until)), f.Page)
}

// Event reads an event.
func (c *Client) Event(ctx context.Context, id string) (Event, error) {
	return get[Event](ctx, c, "/v1/events/"+seg(id), nil)
}

// Delivery is an event at an endpoint.
type Delivery struct {
	EventID        string  `json:"event_id"`
	EventType      string  `json:"event_type"`
	WebhookID      string  `json:"webhook_id"`
	Status         string  `json:"status"`
	Attempts       int     `json:"attempts"`
	NextAttemptAt  *string `json:"next_attempt_at"`
	LastError      *string `json:"last_error"`
	LastHTTPStatus int     `json:"last_http_status"`
	LastAttemptAt  *string `json:"last_attempt_at"`
}

// EventDeliveries lists what became of an event at each endpoint.
func (c *Client) EventDeliveries(ctx context.Context, id string) iter.Seq2[Delivery, error] {
	return pages[Delivery](ctx, c, "/v1/events/"+seg(id)+"/deliveries", nil, Page{})
}

// Deliveries lists an endpoint's deliveries by status: pending, succeeded, dead.
func (c *Client) Deliveries(ctx context.Context, webhook, status string, p Page) iter.Seq2[Delivery, error] {
	return pages[Delivery](ctx, c, "/v1/deliveries", values("webhook_id", webhook, "status", status), p)
}

// Attempt is one request and its outcome.
type Attempt struct {
	ID             string  `json:"id"`
	EventID        string  `json:"event_id"`
	EventType      string  `json:"event_type"`
	WebhookID      string  `json:"webhook_id"`
	Attempt        int     `json:"attempt"`
	Status         string  `json:"status"`
	HTTPStatus     int     `json:"http_status"`
	Error          *string `json:"error"`
	Message        *string `json:"message"`
	Response       *string `json:"response"`
	ResponseBase64 []byte  `json:"response_base64,omitempty"`
	DurationMS     float64 `json:"duration_ms"`
	NextAttemptAt  *string `json:"next_attempt_at"`
	CreatedAt      string  `json:"created_at"`
	Late           bool    `json:"late,omitempty"`
	Test           bool    `json:"test,omitempty"`
}

// Delivery reads what became of an event at an endpoint.
func (c *Client) Delivery(ctx context.Context, webhook, event string) (Delivery, error) {
	return get[Delivery](ctx, c, "/v1/webhooks/"+seg(webhook)+"/deliveries/"+seg(event), nil)
}

// ReplayDelivery delivers one event to an endpoint again.
func (c *Client) ReplayDelivery(ctx context.Context, webhook, event string) (Queued, error) {
	return send[Queued](ctx, c, http.MethodPost, "/v1/webhooks/"+seg(webhook)+"/deliveries/"+seg(event)+"/replay", nil)
}

// EventAttempts lists every request that an event caused.
func (c *Client) EventAttempts(ctx context.Context, id string) iter.Seq2[Attempt, error] {
	return pages[Attempt](ctx, c, "/v1/events/"+seg(id)+"/attempts", nil, Page{})
}

// StatsBucket sums an endpoint's attempts in one step of time.
type StatsBucket struct {
	Start     string  `json:"start"`
	Attempts  int64   `json:"attempts"`
	Succeeded int64   `json:"succeeded"`
	Failed    int64   `json:"failed"`
	Dead      int64   `json:"dead"`
	P50MS     float64 `json:"p50_ms"`
	P95MS     float64 `json:"p95_ms"`
	P99MS     float64 `json:"p99_ms"`
}

// Stats sums an endpoint's attempts over time.
func (c *Client) Stats(ctx context.Context, webhook string, since, until time.Time, step time.Duration) ([]StatsBucket, error) {
	out, err := get[page[StatsBucket]](ctx, c, "/v1/webhooks/"+seg(webhook)+"/stats", window(since, until, step))
	return out.Items, err
}

func window(since, until time.Time, step time.Duration) url.Values {
	q := values("since", at(since), "until", at(until))
	if step > 0 {
		q.Set("step_s", strconv.Itoa(int(step.Seconds())))
	}
	return q
}
