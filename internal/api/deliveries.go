package api

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// AttemptView is one request and its outcome.
type AttemptView struct {
	ID             string  `json:"id"`
	EventID        string  `json:"event_id"`
	EventType      string  `json:"event_type"`
	WebhookID      string  `json:"webhook_id"`
	Attempt        int     `json:"attempt" doc:"1 for a delivery's first"`
	Status         string  `json:"status" doc:"succeeded, failed (another follows) or dead (it was the last)"`
	HTTPStatus     int     `json:"http_status" doc:"0: no answer"`
	Error          text    `json:"error" doc:"The outcome's code; null after a success"`
	Message        text    `json:"message" doc:"In words; names the host at most"`
	Response       text    `json:"response" doc:"The start of what a failing receiver answered"`
	ResponseBase64 []byte  `json:"response_base64,omitempty" doc:"In its place, when it isn't text"`
	DurationMS     float64 `json:"duration_ms"`
	Phases         Phases  `json:"phases"`
	NextAttemptAt  stamp   `json:"next_attempt_at"`
	CreatedAt      stamp   `json:"created_at"`
	Late           bool    `json:"late,omitempty" doc:"Recorded after the delivery had gone on without it"`
	Test           bool    `json:"test,omitempty"`
}

// Phases are the parts of an attempt's time.
type Phases struct {
	ResolveMS float64 `json:"resolve_ms"`
	ConnectMS float64 `json:"connect_ms"`
	TLSMS     float64 `json:"tls_ms"`
	WriteMS   float64 `json:"write_ms"`
	WaitMS    float64 `json:"wait_ms"`
	ReadMS    float64 `json:"read_ms"`
}

func viewAttempt(a *surehook.Attempt) AttemptView {
	v := AttemptView{ID: a.ID, EventID: a.EventID, EventType: a.EventType, WebhookID: a.EndpointID, Attempt: a.Number, Status: string(a.Status),
		HTTPStatus: a.HTTPStatus, Error: text(a.Code), Message: text(a.Error), DurationMS: millis(a.Duration), NextAttemptAt: stamp(a.NextDue),
		CreatedAt: stamp(a.CreatedAt), Late: a.Late, Test: a.Test,
		Phases: Phases{ResolveMS: millis(a.Phases.Resolve), ConnectMS: millis(a.Phases.Connect), TLSMS: millis(a.Phases.TLS),
			WriteMS: millis(a.Phases.Write), WaitMS: millis(a.Phases.Wait), ReadMS: millis(a.Phases.Read)}}
	if utf8.Valid(a.Response) {
		v.Response = text(a.Response)
	} else {
		v.ResponseBase64 = a.Response
	}
	return v
}

// DeliveryView is an event at an endpoint.
type DeliveryView struct {
	EventID       string `json:"event_id"`
	EventType     string `json:"event_type"`
	WebhookID     string `json:"webhook_id"`
	Status        string `json:"status" doc:"pending, succeeded or dead"`
	Attempts      int    `json:"attempts"`
	NextAttemptAt stamp  `json:"next_attempt_at"`
	LastError     text   `json:"last_error" doc:"The last outcome's code"`
	LastStatus    int    `json:"last_http_status"`
	LastAttemptAt stamp  `json:"last_attempt_at"`
}

func viewDelivery(d *surehook.DeliveryView) DeliveryView {
	return DeliveryView{EventID: d.EventID, EventType: d.EventType, WebhookID: d.EndpointID, Status: string(d.Status), Attempts: d.Attempts,
		NextAttemptAt: stamp(d.NextAttemptAt), LastError: text(d.LastCode), LastStatus: d.LastStatus, LastAttemptAt: stamp(d.LastAttemptAt)}
}

// visibleEndpoints tells which endpoints' deliveries the caller may see: a
// tenant sees its own, and not that platform endpoints get its events too.
func (s *server) visibleEndpoints(ctx context.Context, c *call) func(id string) bool {
	if c.platform() {
		return func(string) bool { return true }
	}
	known := map[string]bool{}
	return func(id string) bool {
		v, ok := known[id]
		if !ok {
			_, err := s.endpoint(ctx, c, id)
			v = err == nil
			known[id] = v
		}
		return v
	}
}

func (s *server) deliveryFor(ctx context.Context, c *call) func(surehook.DeliveryView) (DeliveryView, bool) {
	visible := s.visibleEndpoints(ctx, c)
	return func(d surehook.DeliveryView) (DeliveryView, bool) { return viewDelivery(&d), visible(d.EndpointID) }
}

func (s *server) deliveries() {
	const tag, dead = "Deliveries", "Dead letters"
	manage, read := surehook.PermWebhooksManage, surehook.PermRead
	route(s, op{method: "GET", path: "/v1/deliveries", id: "listDeliveries", tag: tag, perm: read, summary: "An endpoint's deliveries by status, newest event first"}, s.listDeliveries)
	route(s, op{method: "GET", path: "/v1/webhooks/{id}/deliveries/{event_id}", id: "getDelivery", tag: tag, perm: read, summary: "One delivery"}, s.getDelivery)
	route(s, op{method: "POST", path: "/v1/webhooks/{id}/deliveries/{event_id}/replay", id: "replayDelivery", tag: tag, perm: manage, status: http.StatusAccepted,
		summary: "Deliver an event again"}, s.replayDelivery)
	route(s, op{method: "GET", path: "/v1/dead-letters", id: "listDeadLetters", tag: dead, perm: read, summary: "Deliveries that ended dead, newest first"}, s.listDead)
	route(s, op{method: "GET", path: "/v1/dead-letters/{id}", id: "getDeadLetter", tag: dead, perm: read, summary: "One dead letter"}, s.getDead)
	route(s, op{method: "POST", path: "/v1/dead-letters/replay", id: "replayDeadLetters", tag: dead, perm: manage, status: http.StatusAccepted, summary: "Deliver dead letters again"}, s.replayDead)
	route(s, op{method: "POST", path: "/v1/dead-letters/discard", id: "discardDeadLetters", tag: dead, perm: manage, summary: "Give dead letters up",
		about: "Their attempts stay."}, s.discardDead)
}

type deliveriesIn struct {
	Listing
	WebhookID string `query:"webhook_id" required:"true"`
	Status    string `query:"status" enum:"pending,succeeded,dead" default:"pending"`
}

func (s *server) listDeliveries(ctx context.Context, c *call, in *deliveriesIn) (*listOut[DeliveryView], error) {
	p, err := in.page("deliveries")
	if err != nil {
		return nil, err
	}
	ep, err := s.endpoint(ctx, c, in.WebhookID)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListDeliveries(ctx, surehook.DeliveryFilter{Endpoint: ep.Key, Status: surehook.DeliveryStatus(in.Status)}, p)
	if err != nil {
		return nil, err
	}
	return paged("deliveries", p, rows, func(d surehook.DeliveryView) int64 { return d.EventKey },
		func(d surehook.DeliveryView) (DeliveryView, bool) { return viewDelivery(&d), true }), nil
}

// ByDelivery names an event at an endpoint.
type ByDelivery struct {
	ByWebhook
	EventID  string `path:"event_id"`
	TenantID string `query:"tenant_id" doc:"Whose event, where two tenants use the same id"`
}

// delivery finds an endpoint and one of its events.
func (s *server) delivery(ctx context.Context, c *call, in ByDelivery) (*surehook.Endpoint, *surehook.Event, error) {
	ep, err := s.endpoint(ctx, c, in.ID)
	if err != nil {
		return nil, nil, err
	}
	ev, err := s.findEvent(ctx, c, ByEvent{ID: in.EventID, TenantID: cmp.Or(ep.Tenant, in.TenantID)})
	return ep, ev, err
}

type deliveryOut struct{ Body DeliveryView }

func (s *server) getDelivery(ctx context.Context, c *call, in *ByDelivery) (*deliveryOut, error) {
	ep, ev, err := s.delivery(ctx, c, *in)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.EventDeliveries(ctx, ev.Key, surehook.Page{Cursor: ep.Key - 1, Limit: 1})
	if err != nil {
		return nil, err
	}
	if len(rows) == 0 || rows[0].EndpointKey != ep.Key {
		return nil, surehook.Errorf(surehook.NotFound, "the event has no delivery at this endpoint")
	}
	return &deliveryOut{viewDelivery(&rows[0])}, nil
}

type replayDeliveryIn struct {
	ByDelivery
	Once
}

func (s *server) replayDelivery(ctx context.Context, c *call, in *replayDeliveryIn) (*queuedOut, error) {
	ep, ev, err := s.delivery(ctx, c, in.ByDelivery)
	if err == nil {
		err = s.types.permit(ctx, c, []string{ev.Type})
	}
	if err != nil {
		return nil, err
	}
	return once(ctx, s, c, fmt.Sprintf("replayDelivery:%s:%d", ep.ID, ev.Key), in.IdempotencyKey, nil, func() (*queuedOut, error) {
		r, err := s.e.ReplayEvents(ctx, ep.ID, []int64{ev.Key}, func(int) string { return "event_id" }, c.actor())
		if err != nil {
			return nil, err
		}
		return queued(r), nil
	})
}

// DeadLetterView is a delivery that ended dead.
type DeadLetterView struct {
	ID         string `json:"id"`
	EventID    string `json:"event_id"`
	EventType  string `json:"event_type"`
	WebhookID  string `json:"webhook_id"`
	Error      text   `json:"error" doc:"Why: the last outcome's code"`
	HTTPStatus int    `json:"http_status"`
	Attempts   int    `json:"attempts"`
	CreatedAt  stamp  `json:"created_at"`

	Data json.RawMessage `json:"data,omitempty" doc:"The event's, where it was asked for and is still there"`
}

func viewDead(d *surehook.DeadLetter) DeadLetterView {
	return DeadLetterView{ID: deadID(d.Key), EventID: d.EventID, EventType: d.EventType, WebhookID: d.EndpointID, Error: text(d.Code),
		HTTPStatus: d.HTTPStatus, Attempts: d.Attempts, CreatedAt: stamp(d.CreatedAt)}
}

func deadID(key int64) string { return fmt.Sprintf("ded_%d", key) }

func deadKey(id string) int64 {
	var key int64
	if _, err := fmt.Sscanf(id, "ded_%d", &key); err != nil || deadID(key) != id {
		return 0
	}
	return key
}

type deadIn struct {
	Listing
	WebhookID string    `query:"webhook_id"`
	TenantID  string    `query:"tenant_id"`
	Since     time.Time `query:"since"`
	Until     time.Time `query:"until"`
	Data      bool      `query:"data" doc:"With the data of the events; at most 50 rows a page"`
}

// deadWithData bounds a page that has the events' data.
const deadWithData = 50

func (s *server) listDead(ctx context.Context, c *call, in *deadIn) (*listOut[DeadLetterView], error) {
	p, err := in.page("dead-letters")
	if err != nil {
		return nil, err
	}
	f := surehook.DeadLetterFilter{For: c.viewer(), Since: in.Since, Until: in.Until}
	if f.Tenant, err = c.scope(in.TenantID); err != nil {
		return nil, err
	}
	if in.WebhookID != "" {
		ep, err := s.endpoint(ctx, c, in.WebhookID)
		if err != nil {
			return nil, err
		}
		f.Endpoint = ep.Key
	}
	if in.Data {
		p.Limit = min(p.Limit, deadWithData)
	}
	rows, err := s.store.ListDeadLetters(ctx, f, p)
	if err != nil {
		return nil, err
	}
	out := paged("dead-letters", p, rows, func(d surehook.DeadLetter) int64 { return d.Key },
		func(d surehook.DeadLetter) (DeadLetterView, bool) {
			v := viewDead(&d)
			if !in.Data {
				return v, true
			}
			ev, failed := s.store.EventByKey(ctx, d.EventKey)
			switch {
			case failed == nil && !ev.Erased:
				v.Data = ev.Content()
			case surehook.CodeOf(failed) != surehook.NotFound:
				err = failed
			}
			return v, true
		})
	return out, err
}

// ByID names a thing by its id.
type ByID struct {
	ID string `path:"id"`
}

type deadOut struct{ Body DeadLetterView }

func (s *server) deadLetter(ctx context.Context, c *call, id string) (*surehook.DeadLetter, error) {
	d, err := s.store.DeadLetter(ctx, deadKey(id))
	if err == nil && !s.visibleEndpoints(ctx, c)(d.EndpointID) {
		err = surehook.Errorf(surehook.NotFound, "no such dead letter")
	}
	return d, err
}

func (s *server) getDead(ctx context.Context, c *call, in *ByID) (*deadOut, error) {
	d, err := s.deadLetter(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	return &deadOut{viewDead(d)}, nil
}

type idsIn struct {
	Once
	Body struct {
		IDs []string `json:"ids" minItems:"1" maxItems:"100"`
	}
}

// letters reads the dead letters that a request names, all or none.
func (s *server) letters(ctx context.Context, c *call, ids []string) ([]*surehook.DeadLetter, error) {
	out := make([]*surehook.DeadLetter, len(ids))
	for i, id := range ids {
		d, err := s.deadLetter(ctx, c, id)
		if surehook.CodeOf(err) == surehook.NotFound && err != nil {
			return nil, surehook.Invalid(fmt.Sprintf("ids[%d]", i), "is unknown")
		}
		if err != nil {
			return nil, err
		}
		out[i] = d
	}
	return out, nil
}

// batchOf is one endpoint's part of a request.
type batchOf struct {
	hook string
	keys []int64
	at   []int // where they stood in the request
}

func (b *batchOf) path(i int) string { return fmt.Sprintf("ids[%d]", b.at[min(i, len(b.at)-1)]) }

func byHook(letters []*surehook.DeadLetter) []*batchOf {
	var out []*batchOf
	found := make(map[string]*batchOf)
	for i, d := range letters {
		b := found[d.EndpointID]
		if b == nil {
			b = &batchOf{hook: d.EndpointID}
			found[d.EndpointID], out = b, append(out, b)
		}
		if !slices.Contains(b.keys, d.EventKey) {
			b.keys, b.at = append(b.keys, d.EventKey), append(b.at, i)
		}
	}
	return out
}

func (s *server) replayDead(ctx context.Context, c *call, in *idsIn) (*queuedOut, error) {
	return once(ctx, s, c, "replayDead", in.IdempotencyKey, in.Body, func() (*queuedOut, error) {
		letters, err := s.letters(ctx, c, in.Body.IDs)
		if err != nil {
			return nil, err
		}
		for _, d := range letters {
			if err := s.types.permit(ctx, c, []string{d.EventType}); err != nil {
				return nil, err
			}
		}
		batches := byHook(letters)
		for _, b := range batches { // nothing is queued unless everything can be
			if _, err := s.e.CheckReplay(ctx, b.hook, b.keys, b.path); err != nil {
				return nil, err
			}
		}
		var sum engine.ReplayReceipt
		for _, b := range batches {
			r, err := s.e.ReplayEvents(ctx, b.hook, b.keys, b.path, c.actor())
			if err != nil {
				return nil, err
			}
			sum.Queued += r.Queued
			sum.InProgress += r.InProgress
		}
		return queued(sum), nil
	})
}

type discardOut struct {
	Body struct {
		Discarded int `json:"discarded"`
	}
}

func (s *server) discardDead(ctx context.Context, c *call, in *idsIn) (*discardOut, error) {
	return once(ctx, s, c, "discardDead", in.IdempotencyKey, in.Body, func() (*discardOut, error) {
		letters, err := s.letters(ctx, c, in.Body.IDs)
		if err != nil {
			return nil, err
		}
		keys := make([]int64, len(letters))
		for i, d := range letters {
			keys[i] = d.Key
		}
		n, err := s.store.DiscardDeadLetters(ctx, keys, s.audit(c, "dead_letter.discard", "", fmt.Sprintf(`{"dead_letters":%d}`, len(keys))))
		out := &discardOut{}
		out.Body.Discarded = n
		return out, err
	})
}

// audit makes an entry for a change that doesn't pass through the engine.
func (s *server) audit(c *call, action, target, details string) *surehook.AuditEntry {
	return &surehook.AuditEntry{At: s.now(), Actor: c.key.ID, Action: action, Target: target, Tenant: c.tenant(), RequestID: c.requestID, Details: details}
}
