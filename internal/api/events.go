package api

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base32"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/surehook/surehook"
)

// EventInput is an event to publish.
type EventInput struct {
	ID         string          `json:"id,omitempty" maxLength:"200" doc:"At most 200 of A-Z a-z 0-9 _ : -; the webhook-id. Made when absent. The same id twice in a tenant is one event"`
	Type       string          `json:"type" maxLength:"128" doc:"Dotted name; need not be in the catalogue" example:"order.paid"`
	Data       json.RawMessage `json:"data" doc:"Any JSON value; delivered byte for byte"`
	TenantID   string          `json:"tenant_id,omitempty" doc:"Absent: a platform event; with a tenant's key its own"`
	IdentityID string          `json:"identity_id,omitempty"`
	Owner      string          `json:"owner,omitempty" doc:"Names the ordered sequence that the event belongs to"`
	Subjects   []string        `json:"subjects,omitempty" maxItems:"16"`
	OccurredAt *time.Time      `json:"occurred_at,omitempty" doc:"RFC 3339; now when absent"`
}

// BatchInput is up to a thousand events.
type BatchInput struct {
	Events []EventInput `json:"events" maxItems:"1000" doc:"Each is accepted or refused by itself; those accepted share one transaction"`
}

// Receipt tells what became of an event.
type Receipt struct {
	ID         string `json:"id"`
	Duplicate  bool   `json:"duplicate" doc:"The id was there already, with the same content"`
	Deliveries int    `json:"deliveries" doc:"Endpoints that will get it; 0 for a duplicate"`
}

// BatchResult is a receipt, or why the event was refused.
type BatchResult struct {
	ID         string      `json:"id,omitempty"`
	Duplicate  bool        `json:"duplicate"`
	Deliveries int         `json:"deliveries"`
	Error      *BatchError `json:"error,omitempty"`
}

// BatchError is one event's refusal.
type BatchError struct {
	Code    surehook.ErrorCode    `json:"code"`
	Message string                `json:"message"`
	Errors  []surehook.FieldError `json:"errors,omitempty"`
}

type rawIn struct {
	RawBody        []byte `contentType:"application/json"`
	ContentType    string `header:"Content-Type"`
	IdempotencyKey string `header:"Idempotency-Key" maxLength:"255" doc:"Makes the ids of events that have none, so that a repeat is recognised"`
	Traceparent    string `header:"traceparent" doc:"Kept with the event (W3C Trace Context)"`
}

type receiptOut struct{ Body Receipt }
type batchOut struct {
	Body struct {
		Results []BatchResult `json:"results" doc:"In the order of the events"`
	}
}

func (s *server) events() {
	route(s, op{method: "POST", path: "/v1/events", id: "publishEvent", tag: "Events", perm: surehook.PermEventsWrite, status: http.StatusAccepted,
		summary: "Publish an event", about: "202 means that it is on the disk.", body: EventInput{}, max: int64(s.opt.MaxEventBytes) + 64<<10}, s.publish)
	route(s, op{method: "POST", path: "/v1/events/batch", id: "publishEvents", tag: "Events", perm: surehook.PermEventsWrite, status: http.StatusAccepted,
		summary: "Publish up to 1000 events", body: BatchInput{}, max: maxBatchBody}, s.publishBatch)
	route(s, op{method: "GET", path: "/v1/events", id: "listEvents", tag: "Events", perm: surehook.PermRead, summary: "List events, newest first",
		about: "Without their data."}, s.listEvents)
	route(s, op{method: "GET", path: "/v1/events/{id}", id: "getEvent", tag: "Events", perm: surehook.PermRead, summary: "Read an event",
		about: "Its data is as it was given."}, s.getEvent)
	route(s, op{method: "GET", path: "/v1/events/{id}/deliveries", id: "listEventDeliveries", tag: "Events", perm: surehook.PermRead,
		summary: "What became of an event at each endpoint"}, s.eventDeliveries)
	route(s, op{method: "GET", path: "/v1/events/{id}/attempts", id: "listEventAttempts", tag: "Events", perm: surehook.PermRead,
		summary: "Every request that an event caused"}, s.eventAttempts)
}

// isJSON refuses a body of another kind: it is never converted.
func (in *rawIn) isJSON() error {
	kind, _, err := mime.ParseMediaType(in.ContentType)
	if in.ContentType == "" || (err == nil && (kind == "application/json" || strings.HasSuffix(kind, "+json"))) {
		return nil
	}
	return surehook.Errorf(codeMedia, "send application/json")
}

// decode reads a body strictly: one value, no unknown field, nothing mended.
func decode(raw []byte, v any) error {
	switch {
	case len(bytes.TrimSpace(raw)) == 0:
		return surehook.Invalid("body", "is required")
	case !utf8.Valid(raw):
		return surehook.Invalid("body", "must be valid UTF-8")
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(v); err != nil {
		return decodeError(err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return surehook.Invalid("body", "must be one JSON value")
	}
	return nil
}

func decodeError(err error) error {
	if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
		return surehook.Invalid(clip(strings.Trim(name, `"`)), "is not a known field")
	}
	if _, ok := errors.AsType[*time.ParseError](err); ok {
		return surehook.Invalid("occurred_at", "must be a time as in RFC 3339, e.g. 2026-01-31T12:00:00Z")
	}
	path, message, found := strings.Cut(jsonError(err).Error(), pathMark)
	if !found {
		path, message = "body", path
	}
	if path == "" {
		path = "body"
	}
	return surehook.Invalid(clip(path), message)
}

func (s *server) publish(ctx context.Context, c *call, in *rawIn) (*receiptOut, error) {
	var ev EventInput
	if err := in.isJSON(); err != nil {
		return nil, err
	}
	if err := decode(in.RawBody, &ev); err != nil {
		return nil, err
	}
	event, err := s.event(ctx, c, &ev, in, 0)
	if err != nil {
		return nil, err
	}
	r, err := s.e.Publish(ctx, event)
	if err != nil {
		return nil, unknownOutcome(err, event)
	}
	return &receiptOut{Receipt{ID: r.ID, Duplicate: r.Duplicate, Deliveries: r.Deliveries}}, nil
}

// unknownOutcome adds the ids to publish with again, where the store can't tell.
func unknownOutcome(err error, events ...surehook.Event) error {
	if surehook.CodeOf(err) != surehook.Unavailable {
		return err
	}
	u := &unknown{error: err}
	for i := range events {
		u.ids = append(u.ids, events[i].ID)
	}
	return u
}

// event turns an input into an event of the caller's scope. Its id is fixed
// here, so that a repeat after an unknown outcome is recognised.
func (s *server) event(ctx context.Context, c *call, in *EventInput, raw *rawIn, n int) (surehook.Event, error) {
	tenant, err := c.scope(in.TenantID)
	if err != nil {
		return surehook.Event{}, err
	}
	ev := surehook.Event{ID: in.ID, Type: in.Type, Tenant: tenant, Identity: in.IdentityID, Owner: in.Owner, Subjects: in.Subjects,
		Data: in.Data, Trace: trace(raw.Traceparent)}
	if in.OccurredAt != nil {
		ev.OccurredAt = *in.OccurredAt
	}
	switch {
	case ev.ID != "":
	case raw.IdempotencyKey != "":
		sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", tenant, raw.IdempotencyKey, n))
		ev.ID = "evt_" + base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum[:])[:26]
	default:
		ev.ID = s.e.NewID("evt")
	}
	return ev, s.types.check(ctx, ev.Type, ev.Data)
}

// trace keeps a well-formed traceparent.
func trace(v string) string {
	if len(v) != 55 || v[2] != '-' || v[35] != '-' || v[52] != '-' || strings.Trim(v, "0123456789abcdef-") != "" {
		return ""
	}
	return v
}

func (s *server) publishBatch(ctx context.Context, c *call, in *rawIn) (*batchOut, error) {
	var batch struct {
		Events []json.RawMessage `json:"events"`
	}
	if err := in.isJSON(); err != nil {
		return nil, err
	}
	if err := decode(in.RawBody, &batch); err != nil {
		return nil, err
	}
	switch n := len(batch.Events); {
	case n == 0:
		return nil, surehook.Invalid("events", "is required and must not be empty")
	case n > maxBatch:
		return nil, surehook.Invalid("events", fmt.Sprintf("holds more than %d", maxBatch))
	}
	out := &batchOut{}
	out.Body.Results = make([]BatchResult, len(batch.Events))
	events, where := make([]surehook.Event, 0, len(batch.Events)), make([]int, 0, len(batch.Events))
	for i, raw := range batch.Events {
		var ev EventInput
		err := decode(raw, &ev)
		if err == nil {
			var event surehook.Event
			if event, err = s.event(ctx, c, &ev, in, i); err == nil {
				events, where = append(events, event), append(where, i)
				continue
			}
		}
		out.Body.Results[i].Error = s.batchError(ctx, i, err)
	}
	receipts, err := s.e.Enqueue(ctx, events...)
	if err != nil {
		return nil, unknownOutcome(err, events...)
	}
	for j, r := range receipts {
		i := where[j]
		if r.Err != nil {
			out.Body.Results[i].Error = s.batchError(ctx, i, r.Err)
			continue
		}
		out.Body.Results[i] = BatchResult{ID: r.ID, Duplicate: r.Duplicate, Deliveries: r.Deliveries}
	}
	return out, nil
}

func (s *server) batchError(ctx context.Context, i int, err error) *BatchError {
	p := s.describe(requestID(ctx), err)
	e := &BatchError{Code: p.Code, Message: p.Detail}
	for _, f := range p.Errors {
		path := fmt.Sprintf("events[%d].%s", i, f.Path)
		if f.Path == "body" {
			path = fmt.Sprintf("events[%d]", i)
		}
		e.Errors = append(e.Errors, surehook.FieldError{Path: path, Message: f.Message})
	}
	return e
}

// EventView is an event as it is shown.
type EventView struct {
	ID         string          `json:"id"`
	Type       string          `json:"type"`
	TenantID   text            `json:"tenant_id"`
	IdentityID text            `json:"identity_id"`
	Owner      text            `json:"owner"`
	Subjects   []string        `json:"subjects,omitempty"`
	OccurredAt stamp           `json:"occurred_at"`
	CreatedAt  stamp           `json:"created_at"`
	Erased     bool            `json:"erased,omitempty" doc:"Its data was erased"`
	Data       json.RawMessage `json:"data,omitempty" doc:"As it was given; absent in listings"`
}

func viewEvent(e *surehook.Event) EventView {
	return EventView{ID: e.ID, Type: e.Type, TenantID: text(e.Tenant), IdentityID: text(e.Identity), Owner: text(e.Owner), Subjects: e.Subjects,
		OccurredAt: stamp(e.OccurredAt), CreatedAt: stamp(e.CreatedAt), Erased: e.Erased}
}

type eventsIn struct {
	Listing
	TenantID string    `query:"tenant_id"`
	Type     string    `query:"type" doc:"Exact, or with a trailing .*"`
	Since    time.Time `query:"since" doc:"Accepted at or after (RFC 3339)"`
	Until    time.Time `query:"until" doc:"Accepted before"`
	Status   string    `query:"status" enum:"pending,succeeded,dead" doc:"Events with such a delivery"`
}

func (s *server) listEvents(ctx context.Context, c *call, in *eventsIn) (*listOut[EventView], error) {
	p, err := in.page("events")
	if err != nil {
		return nil, err
	}
	tenant, err := c.scope(in.TenantID)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListEvents(ctx, surehook.EventFilter{Tenant: tenant, Type: in.Type, Since: in.Since, Until: in.Until,
		Status: surehook.DeliveryStatus(in.Status)}, p)
	if err != nil {
		return nil, err
	}
	return paged("events", p, rows, func(e *surehook.Event) int64 { return e.Key },
		func(e *surehook.Event) (EventView, bool) { return viewEvent(e), c.sees(e.Tenant) }), nil
}

type ByEvent struct {
	ID       string `path:"id"`
	TenantID string `query:"tenant_id" doc:"Whose event, where two tenants use the same id"`
}

// findEvent reads an event that the caller may see.
func (s *server) findEvent(ctx context.Context, c *call, in ByEvent) (*surehook.Event, error) {
	tenant, err := c.scope(in.TenantID)
	if err != nil {
		return nil, err
	}
	var of *string
	if tenant != "" {
		of = &tenant
	}
	return s.store.Event(ctx, of, in.ID)
}

type eventOut struct{ Body EventView }

// ContentType and the raw data: the body is written by our own encoder, which
// leaves RawMessage's bytes as they are but for white space.
func (s *server) getEvent(ctx context.Context, c *call, in *ByEvent) (*rawOut, error) {
	ev, err := s.findEvent(ctx, c, *in)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(viewEvent(ev))
	if err != nil {
		return nil, err
	}
	if ev.Erased {
		return &rawOut{ContentType: "application/json", Body: head}, nil
	}
	body := append(head[:len(head)-1], `,"data":`...)
	return &rawOut{ContentType: "application/json", Body: append(append(body, ev.Data...), '}')}, nil
}

// rawOut is an answer whose bytes are ready.
type rawOut struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

type EventPage struct {
	ByEvent
	Listing
}

func (s *server) eventDeliveries(ctx context.Context, c *call, in *EventPage) (*listOut[DeliveryView], error) {
	p, err := in.page("event-deliveries")
	if err != nil {
		return nil, err
	}
	ev, err := s.findEvent(ctx, c, in.ByEvent)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.EventDeliveries(ctx, ev.Key, p)
	if err != nil {
		return nil, err
	}
	return paged("event-deliveries", p, rows, func(d surehook.DeliveryView) int64 { return d.EndpointKey }, s.deliveryFor(ctx, c)), nil
}

type eventAttemptsIn struct {
	EventPage
	WebhookID string `query:"webhook_id" doc:"At this endpoint only"`
}

func (s *server) eventAttempts(ctx context.Context, c *call, in *eventAttemptsIn) (*listOut[AttemptView], error) {
	p, err := in.page("event-attempts")
	if err != nil {
		return nil, err
	}
	ev, err := s.findEvent(ctx, c, in.ByEvent)
	if err != nil {
		return nil, err
	}
	endpoint := int64(0)
	if in.WebhookID != "" {
		ep, err := s.endpoint(ctx, c, in.WebhookID)
		if err != nil {
			return nil, err
		}
		endpoint = ep.Key
	}
	rows, err := s.store.EventAttempts(ctx, ev.Key, endpoint, p)
	if err != nil {
		return nil, err
	}
	visible := s.visibleEndpoints(ctx, c)
	return paged("event-attempts", p, rows, func(a surehook.Attempt) int64 { return a.Key },
		func(a surehook.Attempt) (AttemptView, bool) { return viewAttempt(&a), visible(a.EndpointID) }), nil
}
