package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/fanout"
)

// Bounds of one replay request; a background job has none.
const (
	MaxReplayIDs    = 100
	MaxReplayEvents = 1000
	// A window with few events that match may be wide.
	maxReplayScan = 20_000 // events looked at
	maxReplayTime = 3 * time.Second
)

// ReplayRequest says which events to deliver again: by their ids, or by when they
// occurred and, optionally, what became of them at the endpoint. None is older than
// the replay window, and none is erased.
type ReplayRequest struct {
	IDs          []string
	Since, Until time.Time
	Status       string // "", dead, failed, succeeded
	// Permit is asked about the type of each event that would be queued; its error
	// ends the request, and nothing is queued. nil: all are permitted.
	Permit func(eventType string) error
}

func (r *ReplayRequest) permit(eventType string) error {
	if r.Permit == nil {
		return nil
	}
	return r.Permit(eventType)
}

// ReplayReceipt tells what a replay did.
type ReplayReceipt struct {
	Queued     int
	InProgress int // an attempt is being made right now: left alone
}

// Replay queues past events for an endpoint again, each with a new run of
// attempts and the same webhook-id. All are queued, or none.
func (e *Engine) Replay(ctx context.Context, id string, req ReplayRequest, by Actor) (ReplayReceipt, error) {
	ep, err := e.replayTarget(ctx, id)
	if err != nil {
		return ReplayReceipt{}, err
	}
	events, err := e.selectEvents(ctx, ep, req)
	if err != nil || len(events) == 0 {
		return ReplayReceipt{}, err
	}
	return e.replay(ctx, ep, events, e.audit(by, "webhook.replay", id, ep.Tenant, fmt.Sprintf(`{"events":%d}`, len(events))))
}

func (e *Engine) replay(ctx context.Context, ep *surehook.Endpoint, events []int64, a *surehook.AuditEntry) (ReplayReceipt, error) {
	results, err := e.store.Replay(ctx, ep.Key, events, a)
	if err != nil {
		return ReplayReceipt{}, err
	}
	var r ReplayReceipt
	for _, res := range results {
		if res.InProgress {
			r.InProgress++
		} else {
			r.Queued++
		}
	}
	e.wake(ep.Key)
	return r, nil
}

func (e *Engine) replayTarget(ctx context.Context, id string) (*surehook.Endpoint, error) {
	ep, err := e.store.Endpoint(ctx, id)
	if err != nil {
		return nil, err
	}
	if !ep.Enabled {
		return nil, surehook.Errorf(surehook.Conflict, "the endpoint is disabled (%s); enable it first", ep.DisabledReason)
	}
	return ep, nil
}

func (e *Engine) selectEvents(ctx context.Context, ep *surehook.Endpoint, req ReplayRequest) ([]int64, error) {
	if len(req.IDs) > 0 {
		return e.selectIDs(ctx, ep, req)
	}
	if err := checkWindow(req); err != nil {
		return nil, err
	}
	return e.selectWindow(ctx, ep, req)
}

func (e *Engine) selectWindow(ctx context.Context, ep *surehook.Endpoint, req ReplayRequest) ([]int64, error) {
	const step = 500
	bound, cancel := context.WithTimeout(ctx, maxReplayTime)
	defer cancel()
	f := e.replayFilter(req.Since, req.Until, req.Status)
	var keys []int64
	for after, seen := int64(0), 0; ; {
		page, err := e.store.Replayable(bound, ep.Key, f, after, step)
		if err != nil && bound.Err() != nil && ctx.Err() == nil {
			return nil, errReplayWide
		}
		if err != nil {
			return nil, err
		}
		for _, ev := range page {
			if after = ev.Key; !fanout.Wants(ep, ev) {
				continue
			}
			if err := req.permit(ev.Type); err != nil {
				return nil, err
			}
			keys = append(keys, ev.Key)
		}
		if len(keys) > MaxReplayEvents {
			return nil, surehook.Invalid("since", fmt.Sprintf("more than %d events match: narrow the window, or start a background replay", MaxReplayEvents))
		}
		if len(page) < step {
			return keys, nil
		}
		if seen += len(page); seen >= maxReplayScan {
			return nil, errReplayWide
		}
	}
}

// replayFilter looks no further back than events may be replayed.
func (e *Engine) replayFilter(since, until time.Time, status string) surehook.ReplayFilter {
	w := e.opt.window()
	if w.Most > 0 {
		if oldest := e.now().Add(-w.Most); since.Before(oldest) {
			since = oldest
		}
	}
	return surehook.ReplayFilter{Since: since, Until: until, Status: status, Window: w}
}

// replayable tells why an event can't be delivered again at an endpoint; nil: it can.
func (e *Engine) replayable(ctx context.Context, ep *surehook.Endpoint, ev *surehook.Event, path string) error {
	switch {
	case ev.Erased:
		return surehook.Invalid(path, "is event_unavailable: its data was erased")
	case ev.Type == surehook.TypeTest:
		return surehook.Invalid(path, "is a test, which is sent once and never again")
	case !fanout.Wants(ep, ev):
		return surehook.Invalid(path, "is an event that the endpoint isn't subscribed to")
	}
	days := 0
	if ev.Tenant != "" {
		t, err := e.store.Tenant(ctx, ev.Tenant)
		switch {
		case err == nil:
			days = t.EventsDays
		case surehook.CodeOf(err) != surehook.NotFound:
			return err
		}
	}
	if w := e.opt.window().Of(days); w > 0 && ev.OccurredAt.Before(e.now().Add(-w)) {
		return surehook.Invalid(path, fmt.Sprintf("is event_unavailable: it occurred more than %d days ago", int(w.Hours()/24)))
	}
	return nil
}

var errReplayWide = surehook.Invalid("since", "the window holds more events than one request can look through: narrow it, or start a background replay")

func checkWindow(req ReplayRequest) error {
	switch {
	case req.Since.IsZero():
		return surehook.Invalid("since", "is required without ids")
	case !req.Until.IsZero() && !req.Since.Before(req.Until):
		return surehook.Invalid("until", "must be after since")
	case req.Status != "" && req.Status != "dead" && req.Status != "failed" && req.Status != "succeeded":
		return surehook.Invalid("status", "must be dead, failed or succeeded")
	}
	return nil
}

func (e *Engine) selectIDs(ctx context.Context, ep *surehook.Endpoint, req ReplayRequest) ([]int64, error) {
	ids := req.IDs
	if len(ids) > MaxReplayIDs {
		return nil, surehook.Invalid("ids", fmt.Sprintf("holds more than %d", MaxReplayIDs))
	}
	var tenant *string
	if ep.Tenant != "" {
		tenant = &ep.Tenant
	}
	seen := make(map[int64]bool)
	var keys []int64
	for i, id := range ids {
		path := fmt.Sprintf("ids[%d]", i)
		ev, err := e.store.Event(ctx, tenant, id)
		switch {
		case surehook.CodeOf(err) == surehook.NotFound, err == nil && ep.Partner != "" && ev.Partner != ep.Partner:
			return nil, surehook.Invalid(path, "is unknown") // another's doesn't exist for a partner
		case err != nil:
			return nil, err
		}
		if err := e.replayable(ctx, ep, ev, path); err != nil {
			return nil, err
		}
		if err := req.permit(ev.Type); err != nil {
			return nil, err
		}
		if !seen[ev.Key] {
			seen[ev.Key] = true
			keys = append(keys, ev.Key)
		}
	}
	return keys, nil
}

// StartReplay begins a background replay of a window, without a bound on the
// number of events. It goes on after a restart.
func (e *Engine) StartReplay(ctx context.Context, id string, req ReplayRequest, by Actor) (*surehook.Replay, error) {
	if len(req.IDs) > 0 {
		return nil, surehook.Invalid("ids", "a background replay takes a window")
	}
	if err := checkWindow(req); err != nil {
		return nil, err
	}
	ep, err := e.replayTarget(ctx, id)
	if err != nil {
		return nil, err
	}
	now := e.now()
	if req.Until.IsZero() || req.Until.After(now) {
		req.Until = now // never events that come later
	}
	r := &surehook.Replay{ID: e.NewID("rpl"), EndpointKey: ep.Key, EndpointID: ep.ID, Since: req.Since, Until: req.Until, Status: req.Status,
		State: surehook.ReplayRunning, CreatedAt: now, UpdatedAt: now}
	leave, err := e.enter()
	if err != nil {
		return nil, err
	}
	defer leave()
	if err := e.store.CreateReplay(ctx, r, e.audit(by, "webhook.replay", id, ep.Tenant, `{"job":"`+r.ID+`"}`)); err != nil {
		return nil, err
	}
	job := *r
	e.bg.Go(func() { e.runReplay(&job) })
	return r, nil
}

// CancelReplay ends a background replay; what it queued stays queued.
func (e *Engine) CancelReplay(ctx context.Context, id string, by Actor) error {
	r, err := e.store.GetReplay(ctx, id)
	if err != nil {
		return err
	}
	tenant := ""
	if ep := e.index.Endpoint(r.EndpointKey); ep != nil {
		tenant = ep.Tenant
	}
	return e.store.EndReplay(ctx, id, surehook.ReplayCancelled, "", e.audit(by, "replay.cancel", id, tenant, `{"webhook":"`+r.EndpointID+`"}`))
}

// resumeReplays goes on with jobs that made no progress for a while: their
// process is gone. Where it isn't, both work on the job, and each step counts
// once.
func (e *Engine) resumeReplays(ctx context.Context, stale time.Duration) error {
	jobs, err := e.store.RunningReplays(ctx)
	if err != nil {
		return err
	}
	for _, r := range jobs {
		if _, here := e.replays.Load(r.ID); !here && e.now().Sub(r.UpdatedAt) >= stale {
			e.bg.Go(func() { e.runReplay(r) })
		}
	}
	return nil
}

// runReplay queues a job's events step by step; its cursor is stored with each.
func (e *Engine) runReplay(r *surehook.Replay) {
	if _, here := e.replays.LoadOrStore(r.ID, true); here {
		return
	}
	defer e.replays.Delete(r.ID)
	for wait := time.Second; e.ctx.Err() == nil; {
		more, err := e.stepReplay(r)
		switch {
		case err == nil && !more:
			return
		case err == nil:
			wait = time.Second
			continue
		case e.ctx.Err() != nil:
			return // a stop ends no job: it goes on after the next start
		case surehook.CodeOf(err) != surehook.Unavailable:
			e.log.Error("a replay failed", "replay_id", r.ID, "error", err)
			if err := e.store.EndReplay(e.ctx, r.ID, surehook.ReplayFailed, string(surehook.CodeOf(err)), nil); err != nil {
				e.log.Error("a failed replay couldn't be marked", "replay_id", r.ID, "error", err)
			}
			return
		}
		select {
		case <-e.ctx.Done():
		case <-time.After(wait):
			wait = min(2*wait, time.Minute)
		}
	}
}

func (e *Engine) stepReplay(r *surehook.Replay) (more bool, err error) {
	const step = 500
	ep := e.index.Endpoint(r.EndpointKey)
	if ep == nil || !ep.Enabled {
		return false, e.store.EndReplay(e.ctx, r.ID, surehook.ReplayFailed, "the endpoint was disabled or deleted", nil)
	}
	page, err := e.store.Replayable(e.ctx, r.EndpointKey, e.replayFilter(r.Since, r.Until, r.Status), r.Cursor, step)
	if err != nil {
		return false, err
	}
	next := *r // a step that isn't written must be made again from where it began
	var keys []int64
	for _, ev := range page {
		next.Cursor = ev.Key
		next.Scanned++
		if fanout.Wants(ep, ev) {
			keys = append(keys, ev.Key)
		}
	}
	next.Queued += int64(len(keys))
	next.UpdatedAt = e.now()
	if err := e.store.AdvanceReplay(e.ctx, &next, keys); err != nil {
		return false, err
	}
	*r = next
	e.wake(r.EndpointKey)
	if now, err := e.store.GetReplay(e.ctx, r.ID); err != nil || now.State != surehook.ReplayRunning {
		return false, err // cancelled meanwhile
	}
	if len(page) < step {
		return false, e.store.EndReplay(e.ctx, r.ID, surehook.ReplayDone, "", nil)
	}
	return true, nil
}
