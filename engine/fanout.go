package engine

import (
	"errors"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/retry"
)

const (
	fanOutRows  = 256 // of the outbox, in one go
	fanOutEvery = 250 * time.Millisecond
)

// refusedRetry says when an event is fanned out again that the store has refused.
var refusedRetry = surehook.RetryPolicy{Base: 30 * time.Second, Factor: 2, Max: 5 * time.Minute}

// fanOutLoop takes events out of the outbox: those that were written in
// somebody's transaction, ours (webhook.disabled) included.
func (e *Engine) fanOutLoop() {
	tick := time.NewTicker(fanOutEvery)
	defer tick.Stop()
	for {
		n, err := e.fanOut(fanOutRows)
		if err != nil && e.ctx.Err() == nil {
			e.log.Warn("the outbox couldn't be fanned out; trying again", "error", err)
		}
		if err == nil && n >= fanOutRows {
			continue
		}
		select {
		case <-e.ctx.Done():
			return
		case <-e.outbox:
		case <-tick.C:
		}
	}
}

// fanOut takes up to limit events out of the outbox, and tells how many. Those
// that the store refuses stay there for a while, and don't hold the others up. A
// store that is away refuses nothing: then all is tried again in a moment.
func (e *Engine) fanOut(limit int) (int, error) {
	rows, err := e.store.Outbox(e.ctx, limit)
	if err != nil {
		return 0, err
	}
	events := make([]*surehook.Event, len(rows))
	for i, r := range rows {
		events[i] = r.Event
	}
	done := 0
	for done < len(events) {
		out, _, err := e.append(e.ctx, events[done:], rows[done:])
		if err == nil {
			err = e.putOff(rows[done:], out)
		}
		if err != nil {
			return done, err
		}
		done += len(out)
	}
	return done, nil
}

// putOff has those of the outbox's events wait that were refused, each for itself.
// How long and how often is in the store, for all nodes and across starts.
func (e *Engine) putOff(rows []surehook.OutboxEvent, out []surehook.Appended) error {
	var put []surehook.PutOff
	var away error
	for i, a := range out {
		switch code := surehook.CodeOf(a.Err); {
		case a.Err == nil:
		case code == surehook.Conflict: // its row is gone, and the audit log tells of it
			e.log.Error("an event of the outbox is refused for good", "event_id", rows[i].Event.ID, "error", a.Err)
		case code == surehook.Unavailable || code == surehook.Stopping || errors.Is(a.Err, surehook.ErrConfigChanged):
			away = a.Err
		default:
			wait := retry.Table(refusedRetry, rows[i].Refused+1)
			put = append(put, surehook.PutOff{ID: rows[i].ID, Refused: rows[i].Refused, Wait: wait})
			e.log.Error("an event of the outbox is refused; it is tried again later", "event_id", rows[i].Event.ID, "times", rows[i].Refused+1, "retry_in", wait, "error", a.Err)
		}
	}
	if len(put) > 0 {
		if err := e.store.PutOff(e.ctx, put); err != nil {
			return err
		}
	}
	return away
}
