package engine

import (
	"context"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/accept"
)

// Receipt says what became of a published event.
type Receipt struct {
	ID         string
	Duplicate  bool // the id was there already, with the same content
	Deliveries int  // endpoints that will get it; unknown (0) for a duplicate, and for one that waits in the outbox behind others of its owner
	Err        error
}

// Publish stores one event and delivers it. Type and Data are required; an empty
// ID is made. When it returns without an error the event is on the disk.
func (e *Engine) Publish(ctx context.Context, ev surehook.Event) (Receipt, error) {
	rs, err := e.Enqueue(ctx, ev)
	if err != nil {
		return Receipt{}, err
	}
	return rs[0], rs[0].Err
}

// Matching counts the endpoints that an event is for now, among those that sees
// accepts.
func (e *Engine) Matching(ev surehook.Event, sees func(*surehook.Endpoint) bool) int {
	ev.Partner = e.index.Partner(ev.Tenant)
	n := 0
	matched, _ := e.index.Match(&ev)
	for _, ep := range matched {
		if sees(ep) {
			n++
		}
	}
	return n
}

// Enqueue stores events and delivers them. Each is accepted or refused by itself
// (Receipt.Err); those that are accepted share a transaction, or several if their
// deliveries are many thousands. An error means that none was accepted. With code
// store_unavailable, of Enqueue or of a receipt, that isn't known: publishing
// again with the same ids is safe.
func (e *Engine) Enqueue(ctx context.Context, events ...surehook.Event) ([]Receipt, error) {
	e.gate.RLock()
	defer e.gate.RUnlock()
	if e.stopped {
		return nil, errStopping
	}
	receipts := make([]Receipt, len(events))
	good := make([]*surehook.Event, 0, len(events))
	where := make([]int, 0, len(events))
	now := e.now()
	for i := range events {
		ev := events[i]
		if err := accept.Event(&ev, accept.Bounds{Bytes: e.opt.MaxEventBytes, Subjects: e.opt.MaxSubjects}, now, e.newULID); err != nil {
			receipts[i].Err = err
			continue
		}
		receipts[i].ID = ev.ID
		good, where = append(good, &ev), append(where, i)
	}
	if len(good) == 0 {
		return receipts, ctx.Err()
	}
	for done := 0; done < len(good); {
		stored, wide, err := e.append(ctx, good[done:], nil)
		if err != nil && done == 0 {
			return nil, err
		}
		if err != nil { // what was accepted before stays accepted
			for _, i := range where[done:] {
				receipts[i].Err = err
			}
			break
		}
		for i, a := range stored {
			r := &receipts[where[done+i]]
			r.Duplicate, r.Deliveries, r.Err = a.Duplicate, made(a.Deliveries), a.Err
			if job := wide[i]; job != nil {
				r.Deliveries += job.all
			}
		}
		done += len(stored)
	}
	return receipts, nil
}
