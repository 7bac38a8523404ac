package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"time"

	"github.com/surehook/surehook"
)

// EventInput is an event to publish.
type EventInput struct {
	ID         string          `json:"id,omitempty" maxLength:"200" doc:"At most 200 of A-Z a-z 0-9 _ : -; the webhook-id. Made when absent. The same id twice in a tenant is one event; in two tenants it is two, and see alias"`
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
	Deliveries int    `json:"deliveries" doc:"Endpoints that will get it, of those that the key sees; 0 for a duplicate, and while events of its owner wait in the outbox"`
}

// BatchResult is a receipt, or why the event was refused.
type BatchResult struct {
	ID         string      `json:"id,omitempty"`
	Duplicate  bool        `json:"duplicate,omitempty"`
	Deliveries int         `json:"deliveries,omitempty"`
	Error      *BatchError `json:"error,omitempty" doc:"Alone, when the event was refused"`
}

// BatchOutput is what became of a batch.
type BatchOutput struct {
	Results []BatchResult `json:"results" doc:"In the order of the events"`
}

// BatchError is one event's refusal.
type BatchError struct {
	Code    surehook.ErrorCode    `json:"code"`
	Message string                `json:"message"`
	Errors  []surehook.FieldError `json:"errors,omitempty"`
}

func (s *server) events() {
	raw(s, op{method: "POST", path: "/v1/events", id: "publishEvent", tag: "Events", perm: surehook.PermEventsWrite, status: http.StatusAccepted,
		summary: "Publish an event", about: "202 means that it is on the disk. A CloudEvent 1.0 is taken too, structured or in binary mode (headers ce-*).",
		also: map[string]any{mediaCloudEvent: CloudEventInput{}}}, EventInput{}, Receipt{}, s.publishOne)
	raw(s, op{method: "POST", path: "/v1/events/batch", id: "publishEvents", tag: "Events", perm: surehook.PermEventsWrite, status: http.StatusAccepted,
		summary: "Publish up to 1000 events", about: "Each is accepted or refused by itself.",
		also: map[string]any{mediaBatch: []CloudEventInput{}}}, BatchInput{}, BatchOutput{}, s.publishMany)
	route(s, op{method: "GET", path: "/v1/events", id: "listEvents", tag: "Events", perm: surehook.PermRead, summary: "List events, newest first",
		about: "Without their data. With type or subject a page looks through 50,000 events: it may be short, or empty, while `next` leads on to older ones."}, s.listEvents)
	route(s, op{method: "GET", path: "/v1/events/{id}", id: "getEvent", tag: "Events", perm: surehook.PermRead, summary: "Read an event",
		about: "Its data is as it was given.", out: EventView{}}, s.getEvent)
	route(s, op{method: "GET", path: "/v1/events/{id}/deliveries", id: "listEventDeliveries", tag: "Events", perm: surehook.PermRead,
		summary: "What became of an event at each endpoint"}, s.eventDeliveries)
	route(s, op{method: "GET", path: "/v1/events/{id}/attempts", id: "listEventAttempts", tag: "Events", perm: surehook.PermRead,
		summary: "Every request that an event caused"}, s.eventAttempts)
}

// EventView is an event as it is shown.
type EventView struct {
	ID         string          `json:"id"`
	Alias      string          `json:"alias,omitempty" doc:"Its webhook-id at endpoints of a partner or of the platform, where another tenant's event had its id before; the event is found by it too, and a partner's key finds it by that or with tenant_id"`
	Type       string          `json:"type"`
	TenantID   text            `json:"tenant_id"`
	IdentityID text            `json:"identity_id"`
	Owner      text            `json:"owner"`
	Sequence   ordinal         `json:"sequence" doc:"Its place among the owner's events, from 1 without gaps; null without an owner"`
	Subjects   []string        `json:"subjects,omitempty"`
	OccurredAt stamp           `json:"occurred_at"`
	CreatedAt  stamp           `json:"created_at"`
	Erased     bool            `json:"erased,omitempty" doc:"Its data was erased"`
	CloudEvent json.RawMessage `json:"cloudevent,omitempty" doc:"What a CloudEvent said beside this: an object with its source, subject, time, datacontenttype, dataschema and extensions; absent in listings"`
	Data       json.RawMessage `json:"data,omitempty" doc:"As it was given; a CloudEvent's own, a string where it is base64; absent in listings"`
}

func viewEvent(c *call, e *surehook.Event) EventView {
	v := EventView{ID: e.ID, Type: e.Type, TenantID: text(e.Tenant), IdentityID: text(e.Identity), Owner: text(e.Owner), Sequence: ordinal(e.Sequence), Subjects: e.Subjects,
		OccurredAt: stamp(e.OccurredAt), CreatedAt: stamp(e.CreatedAt), Erased: e.Erased}
	if c.tenant() == "" { // no tenant need know that another one has its id
		v.Alias = e.Alias
	}
	v.CloudEvent, _, _, _ = surehook.SplitCloudEvent(e.Data)
	return v
}

type eventsIn struct {
	Listing
	TenantID string    `query:"tenant_id"`
	Type     string    `query:"type" doc:"Exact, or with a trailing .*"`
	Subject  string    `query:"subject" maxLength:"256" doc:"With this one among its subjects; give a window of time with it where there are many events"`
	Since    time.Time `query:"since" doc:"Accepted at or after (RFC 3339)"`
	Until    time.Time `query:"until" doc:"Accepted before"`
	Status   string    `query:"status" enum:"pending,succeeded,dead" doc:"Events with such a delivery, at an endpoint that the key sees"`
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
	f := surehook.EventFilter{Tenant: tenant, Partner: c.partner(), Type: in.Type, Subject: in.Subject, Since: in.Since, Until: in.Until,
		Status: surehook.DeliveryStatus(in.Status), For: c.viewer()}
	if (f.Type != "" || f.Subject != "") && (f.Status == "" || f.Status == surehook.Succeeded) { // no index has these
		if f.Above, err = s.store.EventBelow(ctx, f, p.Cursor, s.opt.LookThrough); err != nil {
			return nil, err
		}
	}
	rows, err := s.store.ListEvents(ctx, f, p)
	if err != nil {
		return nil, err
	}
	out := paged("events", p, rows, func(e *surehook.Event) int64 { return e.Key },
		func(e *surehook.Event) (EventView, bool) { return viewEvent(c, e), c.seesEvent(e) })
	if out.Body.Next == "" && f.Above > 0 {
		out.Body.Next = cursor("events", f.Above)
	}
	return out, nil
}

// ByEvent names an event.
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
	ev, err := s.store.Event(ctx, of, in.ID)
	if err == nil && !c.seesEvent(ev) {
		err = surehook.Errorf(surehook.NotFound, "no such event")
	}
	return ev, err
}

// getEvent writes its answer by hand: encoding/json would compact the data.
func (s *server) getEvent(ctx context.Context, c *call, in *ByEvent) (*rawOut, error) {
	ev, err := s.findEvent(ctx, c, *in)
	if err != nil {
		return nil, err
	}
	head, err := json.Marshal(viewEvent(c, ev))
	if err != nil {
		return nil, err
	}
	if ev.Erased {
		return &rawOut{ContentType: "application/json", Body: head}, nil
	}
	body := slices.Concat(head[:len(head)-1], []byte(`,"data":`), ev.Content(), []byte{'}'})
	return &rawOut{ContentType: "application/json", Body: body}, nil
}

// rawOut is an answer whose bytes are ready.
type rawOut struct {
	ContentType string `header:"Content-Type"`
	Body        []byte
}

// EventPage asks for a page of what belongs to an event.
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
	read := func(p surehook.Page) ([]surehook.DeliveryView, error) { return s.store.EventDeliveries(ctx, ev.Key, p) }
	return sifted("event-deliveries", p, read, func(d surehook.DeliveryView) int64 { return d.EndpointKey }, s.deliveryFor(ctx, c))
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
	read := func(p surehook.Page) ([]surehook.Attempt, error) {
		return s.store.EventAttempts(ctx, ev.Key, endpoint, p)
	}
	visible := s.visibleEndpoints(ctx, c)
	return sifted("event-attempts", p, read, func(a surehook.Attempt) int64 { return a.Key },
		func(a surehook.Attempt) (AttemptView, bool) { return viewAttempt(&a), visible(a.EndpointID) })
}
