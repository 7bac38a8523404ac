package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/surehook/surehook"
)

// Bounds of one erasure.
const (
	MaxEraseIDs = 100
	eraseStep   = 500              // events in one transaction
	erasePause  = time.Millisecond // between two, for others to come in
	eraseTime   = 10 * time.Second // then the caller goes on
	eraseWait   = 5 * time.Second  // for events that wait for their fan-out
	eraseLook   = 20 * time.Millisecond
)

// EraseRequest says whose events lose their data: those with some ids, those of one
// identity, or all of a tenant. Tenant names whose ids and whose identity are meant;
// empty, the events without a tenant are (and of ids, whichever tenant's).
type EraseRequest struct {
	IDs              []string
	Tenant, Identity string
	After            int64 // where an earlier request stopped
}

// EraseReceipt tells what an erasure did.
type EraseReceipt struct {
	Events     int   // whose data went; those that had none any more aren't counted
	Deliveries int   // that ended by it, as event_unavailable
	Next       int64 // not 0: there is more to do, from here
}

// Erase removes events' data, and what receivers answered to it, for ever: from the
// store, and from the lanes of this node at once; other nodes hear of it in a moment,
// within 5 seconds at the latest. What is on the wire is on the wire. Pending
// deliveries end as dead letters with event_unavailable, and no replay brings them
// back; that the events were, and what became of them, is kept.
//
// Events that are published while it runs may be missed. An erasure of many events
// stops after some seconds: the next request goes on from Next.
func (e *Engine) Erase(ctx context.Context, req EraseRequest, by Actor) (EraseReceipt, error) {
	leave, err := e.enter()
	if err != nil {
		return EraseReceipt{}, err
	}
	defer leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(e.ctx, cancel)() // a stop doesn't wait for it
	sel, refused, err := e.selectErasure(ctx, req, e.eraseAudit(req, by))
	if err != nil {
		return EraseReceipt{Events: refused}, err
	}
	var out EraseReceipt
	if len(req.IDs) == 0 || len(sel.Keys) > 0 { // without either it would be all of the tenant's
		out, err = e.erase(ctx, sel, e.eraseAudit(req, by))
	}
	if out.Events += refused; out.Events > 0 || out.Deliveries > 0 {
		e.disp.Recall()
	}
	if err != nil {
		return out, err
	}
	return out, e.store.Scrub(ctx)
}

func (e *Engine) eraseAudit(req EraseRequest, by Actor) *surehook.AuditEntry {
	switch {
	case len(req.IDs) == 1:
		return e.audit(by, "event.erase", req.IDs[0], req.Tenant, "")
	case len(req.IDs) > 1:
		ids, err := json.Marshal(map[string][]string{"ids": req.IDs})
		if err != nil {
			ids = nil // a list of strings always marshals
		}
		return e.audit(by, "event.erase", "", req.Tenant, string(ids))
	case req.Identity != "":
		return e.audit(by, "event.erase", req.Identity, req.Tenant, `{"by":"identity"}`)
	}
	return e.audit(by, "event.erase", req.Tenant, req.Tenant, `{"by":"tenant"}`)
}

func (e *Engine) erase(ctx context.Context, sel surehook.Erasure, a *surehook.AuditEntry) (EraseReceipt, error) {
	var out EraseReceipt
	until := time.Now().Add(eraseTime)
	for {
		step, err := e.store.Erase(ctx, sel, eraseStep, a)
		if err != nil {
			return out, err
		}
		out.Events, out.Deliveries, out.Next = out.Events+step.Events, out.Deliveries+step.Deliveries, step.Next
		if step.Next == 0 || time.Now().After(until) {
			return out, nil
		}
		sel.After, a = step.Next, nil
		select {
		case <-ctx.Done():
			return out, ctx.Err()
		case <-time.After(erasePause):
		}
	}
}

// selectErasure finds what a request is about, and takes those of it out of the
// outbox that the store refuses to let into the events: it tells how many.
func (e *Engine) selectErasure(ctx context.Context, req EraseRequest, a *surehook.AuditEntry) (surehook.Erasure, int, error) {
	sel := surehook.Erasure{Tenant: req.Tenant, Identity: req.Identity, After: req.After}
	switch {
	case len(req.IDs) > MaxEraseIDs:
		return sel, 0, surehook.Invalid("ids", fmt.Sprintf("holds more than %d", MaxEraseIDs))
	case len(req.IDs) > 0 && req.Identity != "":
		return sel, 0, surehook.Invalid("identity_id", "can't be given together with ids")
	case len(req.IDs) > 0:
		return e.eraseIDs(ctx, req, a)
	case req.Identity == "" && req.Tenant == "":
		return sel, 0, surehook.Invalid("tenant_id", "is required without ids or identity_id")
	}
	gone, err := e.fannedOut(ctx, sel, nil, a)
	return sel, len(gone), err
}

// eraseIDs finds the events with the ids of a request, all of them before anything
// goes.
func (e *Engine) eraseIDs(ctx context.Context, req EraseRequest, a *surehook.AuditEntry) (surehook.Erasure, int, error) {
	sel := surehook.Erasure{Tenant: req.Tenant}
	var waiting []string
	for i, id := range req.IDs {
		found, err := e.eraseID(ctx, &sel, id)
		if err == nil && !found {
			var n int
			if n, _, err = e.store.ErasureWaits(ctx, surehook.Erasure{Tenant: req.Tenant}, []string{id}, 0); n > 0 {
				waiting = append(waiting, id)
				continue
			}
		}
		if err == nil && !found {
			found, err = e.eraseID(ctx, &sel, id) // it was fanned out between the looks
		}
		if err == nil && !found {
			err = surehook.Invalid(fmt.Sprintf("ids[%d]", i), "is unknown")
		}
		if err != nil {
			return sel, 0, err
		}
	}
	if len(waiting) == 0 {
		return sel, 0, nil
	}
	gone, err := e.fannedOut(ctx, surehook.Erasure{Tenant: req.Tenant}, waiting, a)
	for _, id := range waiting {
		if err == nil && !slices.Contains(gone, id) {
			_, err = e.eraseID(ctx, &sel, id)
		}
	}
	return sel, len(gone), err
}

// eraseID adds the key of an event to a selection, if there is one with that id.
func (e *Engine) eraseID(ctx context.Context, sel *surehook.Erasure, id string) (bool, error) {
	var tenant *string
	if sel.Tenant != "" {
		tenant = &sel.Tenant
	}
	ev, err := e.store.Event(ctx, tenant, id)
	if surehook.CodeOf(err) == surehook.NotFound {
		return false, nil
	}
	if err == nil {
		sel.Keys = append(sel.Keys, ev.Key)
	}
	return err == nil, err
}

// fannedOut waits until those of the selected events that were accepted by now are
// out of the outbox: there they could be neither erased nor kept as erased ones.
// Those that the store refuses may stay there for long, so they go at once: it
// gives their ids.
func (e *Engine) fannedOut(ctx context.Context, sel surehook.Erasure, ids []string, a *surehook.AuditEntry) (gone []string, err error) {
	limit := time.After(eraseWait)
	for last := int64(0); ; {
		refused, err := e.store.EraseRefused(ctx, sel, ids, eraseStep, a)
		gone = append(gone, refused...)
		if err != nil {
			return gone, err
		}
		n, newest, err := e.store.ErasureWaits(ctx, sel, ids, last)
		if err != nil || n == 0 {
			return gone, err
		}
		if last == 0 {
			last = newest
		}
		if len(refused) == eraseStep {
			continue
		}
		signal(e.outbox)
		select {
		case <-ctx.Done():
			return gone, ctx.Err()
		case <-limit:
			return gone, surehook.Errorf(surehook.Unavailable, "%d of the events wait for their fan-out and can't be erased yet: try again in a moment", n)
		case <-time.After(eraseLook):
		}
	}
}
