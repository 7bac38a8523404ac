package engine

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/dispatch"
)

// Bounds of one pull.
const (
	MaxPullEvents = 1000
	MaxPullWait   = time.Minute
	maxPullBytes  = 1 << 20 // of events' data in one page, but at least one event
	ackStep       = 500     // deliveries that one transaction finishes
)

// PullRequest asks for a page of an inbox.
type PullRequest struct {
	// Cursor is that of the last event that was dealt with: it and all before it are
	// acknowledged, and what follows is given. Empty: from the first that isn't
	// acknowledged yet.
	Cursor string
	// From is as Cursor, and acknowledges nothing: where a reader goes on while what
	// it has read is still being dealt with.
	From  string
	Limit int           // 1 to MaxPullEvents; 0: 100
	Wait  time.Duration // for the first event, where there is none; at most MaxPullWait
}

// PulledEvent is an event out of an inbox.
type PulledEvent struct {
	Cursor     string // acknowledges it and all before it
	ID         string // the webhook-id: the same each time the event is delivered
	Type       string
	EndpointID string
	Urgency    string // as the endpoint has it
	Attempt    int    // the delivery's number of this attempt: 1, or more after a replay
	OccurredAt time.Time
	Body       []byte // what a request would hold, byte for byte
}

// PullPage is a page of an inbox, in order of arrival.
type PullPage struct {
	Items []PulledEvent
	Next  string // where to go on: passing it back acknowledges Items
	More  bool   // there are more now
}

// CursorError refuses a cursor, and says where to go on. Its code is cursor_expired.
type CursorError struct {
	Err     *surehook.Error
	Next    string
	Dropped int64 // events that left the inbox unread since the cursor was given; they are dead letters
}

func (e *CursorError) Error() string { return e.Err.Error() }

func (e *CursorError) Unwrap() error { return e.Err }

// inbox is one that somebody reads.
type inbox struct {
	key  int64
	held func() bool                // nothing is given out now
	over func(context.Context) bool // nil: never. Its session has ended, so nobody should wait
}

// Pull reads the inbox of an endpoint that is pulled. Each event is given to whoever
// asks, in order of arrival, until it is acknowledged: at least once. Readers of one
// inbox share it: what one acknowledges, no other gets any more.
//
// Events that leave the inbox without being read (retention, an erasure, its bound)
// become dead letters, and each reader is told once: with a *CursorError that says
// how many they are and where to go on.
func (e *Engine) Pull(ctx context.Context, id string, req PullRequest) (PullPage, error) {
	in, err := e.inboxOf(ctx, id)
	if err != nil {
		return PullPage{}, err
	}
	return e.pull(ctx, in, req)
}

// Ack acknowledges events up to a cursor: they are delivered. Doing it twice is fine.
// It tells how many it was that weren't before.
func (e *Engine) Ack(ctx context.Context, id, cursor string) (int, error) {
	in, err := e.inboxOf(ctx, id)
	if err != nil {
		return 0, err
	}
	return e.ackCursor(ctx, in, cursor)
}

// InboxState tells how full the inbox of an endpoint is.
func (e *Engine) InboxState(ctx context.Context, id string) (surehook.InboxState, error) {
	in, err := e.inboxOf(ctx, id)
	if err != nil {
		return surehook.InboxState{}, err
	}
	states, err := e.store.InboxStates(ctx, in.key)
	if err != nil || len(states) == 0 {
		return surehook.InboxState{Inbox: in.key}, err
	}
	return states[0], nil
}

func (e *Engine) inboxOf(ctx context.Context, id string) (inbox, error) {
	ep, err := e.store.Endpoint(ctx, id)
	switch {
	case err != nil:
		return inbox{}, err
	case !ep.Pulled():
		return inbox{}, surehook.Errorf(surehook.Conflict, "events are sent to this webhook's URL; only one with target pull can be pulled")
	case ep.Inbox != ep.Key:
		return inbox{}, surehook.Errorf(surehook.Conflict, "this webhook's events wait in the inbox of its session: pull that")
	}
	return inbox{key: ep.Key, held: func() bool {
		now := e.index.Endpoint(ep.Key)
		return now != nil && (now.Limits.Paused || e.suspended(now))
	}}, nil
}

func (r *PullRequest) check() error {
	switch {
	case r.Cursor != "" && r.From != "":
		return surehook.Invalid("from", "can't be given beside cursor")
	case r.Limit < 0 || r.Limit > MaxPullEvents:
		return surehook.Invalid("limit", fmt.Sprintf("must be 1 to %d", MaxPullEvents))
	case r.Wait < 0 || r.Wait > MaxPullWait:
		return surehook.Invalid("wait", fmt.Sprintf("must be 0 to %d seconds", int(MaxPullWait.Seconds())))
	}
	r.Limit = orDefault(r.Limit, 100)
	return nil
}

// pull waits for a page. The wait ends with the engine: who waits is told to come
// again, by an empty page.
func (e *Engine) pull(ctx context.Context, in inbox, req PullRequest) (PullPage, error) {
	if err := req.check(); err != nil {
		return PullPage{}, err
	}
	from := place{}
	if text := req.Cursor + req.From; text != "" {
		var err error
		if from, err = parsePlace(in.key, text); err != nil {
			return PullPage{}, err
		}
	}
	if req.Cursor != "" {
		if _, err := e.ack(ctx, in, from); err != nil {
			return PullPage{}, e.lost(ctx, in, from, err)
		}
	}
	rung, leave := e.inboxes.wait(in.key) // before the look, so that nothing comes between
	defer leave()
	wait := time.NewTimer(max(req.Wait, 1))
	defer wait.Stop()
	for {
		page, err := e.page(ctx, in, from, req.Cursor+req.From == "", req.Limit)
		if err != nil || len(page.Items) > 0 || req.Wait == 0 {
			return page, err
		}
		select {
		case <-rung:
			if in.over != nil && in.over(ctx) {
				req.Wait = 0
			}
		case <-e.ctx.Done():
			return page, nil
		case <-ctx.Done():
			return page, context.Cause(ctx)
		case <-wait.C:
			req.Wait = 0 // one last look: a call may have got lost
		}
	}
}

// page gives what is there. fresh: the reader hasn't been here, so nothing has passed
// it by.
func (e *Engine) page(ctx context.Context, in inbox, from place, fresh bool, limit int) (PullPage, error) {
	if in.held() {
		limit = 0
	}
	got, err := e.store.Pull(ctx, in.key, from.number, max(limit, 1), maxPullBytes)
	if err != nil {
		return PullPage{}, err
	}
	if !fresh {
		if err := from.expired(in.key, got); err != nil {
			return PullPage{}, err
		}
	}
	next := place{number: from.number, dropped: got.Dropped}
	page := PullPage{More: got.More}
	if limit == 0 {
		got.Items, page.More = nil, false
	}
	for _, it := range got.Items {
		next.number = it.Number
		ep, err := e.known(ctx, it.Delivery.EndpointKey)
		if err != nil {
			return PullPage{}, err
		}
		if ep == nil {
			continue // deleted just now: what waits goes with it
		}
		page.Items = append(page.Items, e.pulled(ep, it, next.text(in.key)))
	}
	page.Next = next.text(in.key)
	e.inboxes.gave.Add(int64(len(page.Items)))
	return page, nil
}

// known gives an endpoint, also one that was made elsewhere a moment ago; nil: there
// is none.
func (e *Engine) known(ctx context.Context, key int64) (*surehook.Endpoint, error) {
	if ep := e.index.Endpoint(key); ep != nil {
		return ep, nil
	}
	if err := e.reload(ctx); err != nil {
		return nil, err
	}
	return e.index.Endpoint(key), nil
}

func (e *Engine) pulled(ep *surehook.Endpoint, it surehook.Item, cursor string) PulledEvent {
	a := e.pullAttempt(it.Delivery)
	return PulledEvent{Cursor: cursor, ID: dispatch.WebhookID(ep, it.Event), Type: it.Event.Type, EndpointID: ep.ID, Urgency: ep.Urgency,
		Attempt: a.Number, OccurredAt: it.Event.OccurredAt, Body: dispatch.Body(ep, it.Event, a)}
}

func (e *Engine) pullAttempt(d surehook.Delivery) *surehook.Attempt {
	now := e.now()
	return &surehook.Attempt{ID: "dlv_" + e.newULID(now), EventKey: d.EventKey, EndpointKey: d.EndpointKey, Number: d.Attempt + 1,
		Status: surehook.AttemptSucceeded, CreatedAt: now}
}

func (e *Engine) ackCursor(ctx context.Context, in inbox, cursor string) (int, error) {
	if cursor == "" {
		return 0, surehook.Invalid("cursor", "is required")
	}
	to, err := parsePlace(in.key, cursor)
	if err != nil {
		return 0, err
	}
	n, err := e.ack(ctx, in, to)
	if err != nil {
		return n, e.lost(ctx, in, to, err)
	}
	return n, nil
}

// ack finishes the deliveries up to a place. One caller at a time does so at an
// inbox, so that each has one attempt.
func (e *Engine) ack(ctx context.Context, in inbox, to place) (n int, err error) {
	leave, err := e.enter()
	if err != nil {
		return 0, err
	}
	defer leave()
	defer e.inboxes.acking(in.key)()
	for {
		rows, err := e.store.Numbered(ctx, in.key, to.number, ackStep)
		if err != nil || len(rows) == 0 {
			return n, err
		}
		out := make([]surehook.Outcome, len(rows))
		for i, d := range rows {
			out[i] = surehook.Outcome{Delivery: d, Decision: surehook.Finish, Attempt: e.pullAttempt(d)}
		}
		if _, err := e.store.Record(ctx, out, nil); err != nil {
			return n, err
		}
		n += len(rows)
		e.inboxes.acked.Add(int64(len(rows)))
		if len(rows) < ackStep {
			return n, nil
		}
	}
}

// lost makes of an error that refuses a number one that says where to go on.
func (e *Engine) lost(ctx context.Context, in inbox, at place, err error) error {
	if surehook.CodeOf(err) != surehook.CursorExpired {
		return err
	}
	got, perr := e.store.Pull(ctx, in.key, 0, 1, 1)
	if perr != nil {
		return perr
	}
	if err := at.expired(in.key, got); err != nil {
		return err
	}
	return err
}

// place is what a cursor holds: the last number that was read, and how many events
// had left the inbox unread by then.
type place struct{ number, dropped int64 }

// expired refuses a place that an inbox has left behind, or hasn't come to: then the
// store was restored, and begins again with older numbers.
func (p place) expired(key int64, got surehook.Pulled) error {
	switch {
	case p.number > got.Last || p.dropped > got.Dropped:
		next := place{dropped: got.Dropped}
		return &CursorError{Err: surehook.Errorf(surehook.CursorExpired,
			"the cursor is from a later state of the store, which was restored since: go on with next_cursor, from the first event that isn't acknowledged"), Next: next.text(key)}
	case p.dropped < got.Dropped:
		next, n := place{number: p.number, dropped: got.Dropped}, got.Dropped-p.dropped
		return &CursorError{Err: surehook.Errorf(surehook.CursorExpired,
			"%d events left the inbox before they were acknowledged, by retention, an erasure or its bound: go on with next_cursor; they are among the dead letters as long as they are kept", n),
			Next: next.text(key), Dropped: n}
	}
	return nil
}

// A cursor is a version, its two numbers, and a check over them and the inbox, so that
// a mangled one, or one of another inbox, is refused and not misread.
const (
	placeVersion = 2
	placeLen     = 1 + 8 + 8 + 4
)

func (p place) text(key int64) string {
	b := binary.BigEndian.AppendUint64([]byte{placeVersion}, uint64(p.number))
	b = binary.BigEndian.AppendUint64(b, uint64(p.dropped))
	return base64.RawURLEncoding.EncodeToString(append(b, placeCheck(key, b)...))
}

func placeCheck(key int64, b []byte) []byte {
	sum := sha256.Sum256(append(binary.BigEndian.AppendUint64([]byte("inbox\x00"), uint64(key)), b...))
	return sum[:4]
}

func parsePlace(key int64, text string) (place, error) {
	b, err := base64.RawURLEncoding.Strict().DecodeString(text)
	if err != nil || len(b) != placeLen || b[0] != placeVersion || string(placeCheck(key, b[:17])) != string(b[17:]) {
		return place{}, surehook.Invalid("cursor", "isn't one that this inbox gave; without one, reading goes on with the first event that isn't acknowledged")
	}
	p := place{number: int64(binary.BigEndian.Uint64(b[1:])), dropped: int64(binary.BigEndian.Uint64(b[9:]))}
	if p.number < 0 || p.dropped < 0 {
		return place{}, surehook.Invalid("cursor", "isn't one that this inbox gave")
	}
	return p, nil
}
