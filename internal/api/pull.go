package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// PullIn is what every reading of an inbox takes.
type PullIn struct {
	Cursor      string `query:"cursor" maxLength:"64" doc:"That of the last event that was dealt with: acknowledges it and all before it, and what follows is given. Absent: from the first that isn't acknowledged"`
	From        string `query:"from" maxLength:"64" doc:"As cursor, but nothing is acknowledged: to read on while events are still being dealt with"`
	Limit       int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"Events a page; a page may have fewer, since it holds about 1 MiB at most"`
	Wait        int    `query:"wait" minimum:"0" maximum:"60" doc:"Seconds to wait for the first event where there is none"`
	Accept      string `header:"Accept" doc:"text/event-stream: a stream of events, each with its cursor as id"`
	LastEventID string `header:"Last-Event-ID" doc:"Of a stream, as cursor: what a client sends by itself when it connects again"`
}

func (in *PullIn) request() engine.PullRequest {
	return engine.PullRequest{Cursor: in.Cursor, From: in.From, Limit: in.Limit, Wait: time.Duration(in.Wait) * time.Second}
}

func (in *PullIn) stream() bool { return strings.Contains(strings.ToLower(in.Accept), eventStream) }

const eventStream = "text/event-stream"

// PulledView is an event out of an inbox.
type PulledView struct {
	Cursor     string `json:"cursor" doc:"Acknowledges this event and all before it"`
	ID         string `json:"id" doc:"The webhook-id: the same each time the event is given"`
	Type       string `json:"type"`
	WebhookID  string `json:"webhook_id"`
	Attempt    int    `json:"attempt" doc:"1, or more where the event was replayed"`
	OccurredAt stamp  `json:"occurred_at"`
	Urgency    string `json:"urgency,omitempty" doc:"As the webhook has it"`
	Body       any    `json:"body" doc:"What a request would hold, byte for byte, in the webhook's envelope"`
}

// PullView is a page of an inbox.
type PullView struct {
	Items      []PulledView `json:"items" doc:"In order of arrival"`
	NextCursor string       `json:"next_cursor" doc:"Where to go on. Given back as cursor it acknowledges the items; as from, it doesn't"`
	More       bool         `json:"more" doc:"There are more events now"`
}

// putItem writes an item. Its body stands in it as it is.
func putItem(b []byte, it *engine.PulledEvent) []byte {
	head, err := json.Marshal(PulledView{Cursor: it.Cursor, ID: it.ID, Type: it.Type, WebhookID: it.EndpointID, Attempt: it.Attempt,
		OccurredAt: stamp(it.OccurredAt), Urgency: it.Urgency})
	if err != nil {
		return append(b, "null"...) // its fields always marshal
	}
	b = append(b, head[:len(head)-len("null}")]...) // the body is last
	b = append(b, it.Body...)
	return append(b, '}')
}

func putPage(p engine.PullPage) []byte {
	b := []byte(`{"items":[`)
	for i := range p.Items {
		if i > 0 {
			b = append(b, ',')
		}
		b = putItem(b, &p.Items[i])
	}
	b = append(append(b, `],"next_cursor":"`...), p.Next...)
	return append(strconv.AppendBool(append(b, `","more":`...), p.More), "}\n"...)
}

// pullFunc reads an inbox.
type pullFunc func(ctx context.Context, req engine.PullRequest) (engine.PullPage, error)

type pullOut = huma.StreamResponse

func (s *server) pulls() {
	const tag = "Pull"
	perm := surehook.PermEventsPull
	about := "With wait the answer may take that long. With Accept: text/event-stream it is a stream without end: see docs/pull.md."
	route(s, op{method: "GET", path: "/v1/webhooks/{id}/events", id: "pullEvents", tag: tag, perm: perm, out: PullView{}, stream: true,
		summary: "Pull a webhook's events, in order of arrival", about: about}, s.pullWebhook)
	route(s, op{method: "POST", path: "/v1/webhooks/{id}/ack", id: "ackEvents", tag: tag, perm: perm, summary: "Acknowledge events up to a cursor",
		about: "They are delivered then. Doing it twice is fine."}, s.ackWebhook)
	route(s, op{method: "GET", path: "/v1/webhooks/{id}/inbox", id: "getInbox", tag: tag, perm: surehook.PermRead, summary: "How full a webhook's inbox is"}, s.getInbox)
	route(s, op{method: "GET", path: "/v1/sessions", id: "listSessions", tag: tag, perm: perm, or: surehook.PermRead, summary: "List sessions, newest first"}, s.listSessions)
	route(s, op{method: "PUT", path: "/v1/sessions/{id}", id: "openSession", tag: tag, perm: perm, summary: "Open a session, or keep it alive",
		about: "One that has ended is session_not_alive, unless anew is true: then another one begins."}, s.openSession)
	route(s, op{method: "GET", path: "/v1/sessions/{id}", id: "getSession", tag: tag, perm: perm, or: surehook.PermRead, summary: "Read a session"}, s.getSession)
	route(s, op{method: "DELETE", path: "/v1/sessions/{id}", id: "closeSession", tag: tag, perm: perm, status: http.StatusNoContent, summary: "Close a session",
		about: "What wasn't pulled becomes dead letters, and what feeds it is disabled."}, s.closeSession)
	route(s, op{method: "GET", path: "/v1/sessions/{id}/events", id: "pullSession", tag: tag, perm: perm, out: PullView{}, stream: true,
		summary: "Pull a session's events, in order of arrival", about: "The first pull opens the session. " + about}, s.pullSession)
	route(s, op{method: "POST", path: "/v1/sessions/{id}/ack", id: "ackSession", tag: tag, perm: perm, summary: "Acknowledge a session's events up to a cursor"}, s.ackSession)
}

type pullWebhookIn struct {
	ByWebhook
	PullIn
}

func (s *server) pullWebhook(ctx context.Context, c *call, in *pullWebhookIn) (*pullOut, error) {
	if _, err := s.endpoint(ctx, c, in.ID); err != nil {
		return nil, err
	}
	return s.serveInbox(ctx, c, &in.PullIn, func(ctx context.Context, req engine.PullRequest) (engine.PullPage, error) {
		return s.e.Pull(ctx, in.ID, req)
	})
}

// permitted refuses pages with events whose type requires a permission that the key
// lacks. A page isn't acknowledged by being asked for, so they wait for another key.
func (s *server) permitted(c *call, pull pullFunc) pullFunc {
	return func(ctx context.Context, req engine.PullRequest) (engine.PullPage, error) {
		page, err := pull(ctx, req)
		if err != nil {
			return page, err
		}
		for i := range page.Items {
			if typ := page.Items[i].Type; i == 0 || typ != page.Items[i-1].Type {
				if err := s.types.permit(ctx, c, []string{typ}); err != nil {
					return engine.PullPage{}, err
				}
			}
		}
		return page, nil
	}
}

// serveInbox answers with a page, or with a stream.
func (s *server) serveInbox(ctx context.Context, c *call, in *PullIn, pull pullFunc) (*pullOut, error) {
	pull = s.permitted(c, pull)
	if in.stream() {
		return s.streamInbox(in, pull), nil
	}
	ctx, cancel := s.untilClosing(ctx)
	defer cancel()
	page, err := pull(ctx, in.request())
	if err != nil && !(s.isClosing() && errors.Is(err, context.Canceled)) {
		return nil, pullProblem(err)
	}
	return &pullOut{Body: func(hctx huma.Context) {
		body := putPage(page)
		hctx.SetHeader("Content-Type", "application/json")
		hctx.SetHeader("Content-Length", strconv.Itoa(len(body)))
		_, _ = hctx.BodyWriter().Write(body) // the reader may have gone: nothing is acknowledged by that
	}}, nil
}

// pullProblem says where to go on after a cursor that has expired.
func pullProblem(err error) error {
	gap, ok := errors.AsType[*engine.CursorError](err)
	if !ok {
		return err
	}
	p := newProblem(surehook.CursorExpired, gap.Error(), nil)
	p.Details = &ProblemDetails{NextCursor: gap.Next, Dropped: gap.Dropped}
	return p
}

// untilClosing ends with the request, or when the server stops taking requests.
func (s *server) untilClosing(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	stop := context.AfterFunc(s.closing, cancel)
	return ctx, func() { stop(); cancel() }
}

func (s *server) isClosing() bool { return s.closing.Err() != nil }

// EndWaits has requests answered that wait for events, and streams ended: the server
// is about to stop.
func (h *Handler) EndWaits() { h.close() }

type ackWebhookIn struct {
	ByWebhook
	Body struct {
		Cursor string `json:"cursor" maxLength:"64"`
	}
}

type ackedOut struct {
	Body struct {
		Acknowledged int `json:"acknowledged" doc:"Events that weren't before"`
	}
}

func acked(n int, err error) (*ackedOut, error) {
	if err != nil {
		return nil, pullProblem(err)
	}
	out := &ackedOut{}
	out.Body.Acknowledged = n
	return out, nil
}

func (s *server) ackWebhook(ctx context.Context, c *call, in *ackWebhookIn) (*ackedOut, error) {
	if _, err := s.endpoint(ctx, c, in.ID); err != nil {
		return nil, err
	}
	return acked(s.e.Ack(ctx, in.ID, in.Body.Cursor))
}

// InboxView is how full an inbox is.
type InboxView struct {
	Events   int64 `json:"events" doc:"That wait; those of the last moment may be missing"`
	Bytes    int64 `json:"bytes" doc:"Of their data"`
	OldestAt stamp `json:"oldest_at" doc:"When the first of them was accepted"`
	Dropped  int64 `json:"dropped" doc:"Events that ever left it unread: retention, erasure, its bound"`
}

func viewInbox(st surehook.InboxState) InboxView {
	return InboxView{Events: st.Events, Bytes: st.Bytes, OldestAt: stamp(st.Oldest), Dropped: st.Dropped}
}

// inboxes tells how full some are, by key.
func (s *server) inboxes(ctx context.Context, keys []int64) (map[int64]InboxView, error) {
	out := make(map[int64]InboxView, len(keys))
	if len(keys) == 0 {
		return out, nil // with none, the store would give all
	}
	states, err := s.store.InboxStates(ctx, keys...)
	for _, st := range states {
		out[st.Inbox] = viewInbox(st)
	}
	return out, err
}

type inboxOut struct{ Body InboxView }

func (s *server) getInbox(ctx context.Context, c *call, in *ByWebhook) (*inboxOut, error) {
	if _, err := s.endpoint(ctx, c, in.ID); err != nil {
		return nil, err
	}
	st, err := s.e.InboxState(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &inboxOut{viewInbox(st)}, nil
}

const toPull = "pull"

func target(e *surehook.Endpoint) string {
	if e.Pulled() {
		return toPull
	}
	return "webhook"
}

// missing refuses what doesn't go with a webhook's target.
func missing(b *WebhookInput) error {
	pull := b.Target == toPull
	switch {
	case !pull && b.URL == "":
		return surehook.Invalid("url", "is required")
	case !pull && b.SessionID != "":
		return surehook.Invalid("session_id", "goes with target pull alone")
	case !pull && b.Urgency != "":
		return surehook.Invalid("urgency", "goes with target pull alone")
	}
	return nil
}
