package dispatch

import (
	"context"
	"slices"
	"time"

	"github.com/surehook/surehook"
)

// lostAlone is from when on a row that crashes took with them is held alone.
const lostAlone = 3

const (
	claimRetry = time.Second            // until a claim that failed is tried again
	claimPause = 100 * time.Millisecond // at least, after a claim that found nothing: the store's clock may be behind ours
	endStep    = 1000                   // rows that are ended in one transaction
	heldLong   = time.Second            // that a suspect may wait in a lane; about how often others' are asked for
)

// claim takes due rows from the store, where they have waited since then.
func (l *lane) claim(since time.Time) {
	release := l.d.claimTurn()
	defer release()
	l.mu.Lock()
	limit := l.room - len(l.queue) - l.reserved
	if l.breaker.failures >= breakerOpens {
		limit = min(limit, 1)
	}
	if limit <= 0 || l.held || l.d.draining.Load() {
		l.claiming, l.more, l.moreAt = false, true, since
		if !l.route.live || l.held {
			l.kick()
		}
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	recalls := l.d.recalls.Load()
	// An error must mean that nothing was claimed, so the claim can't be cancelled.
	got, err := l.d.store.Claim(context.WithoutCancel(l.d.ctx), l.key, limit, l.d.memory.room())
	if err == nil {
		l.catchUp(got.Version)
	}
	parcels := make([]*parcel, len(got.Rows))
	for i, r := range got.Rows {
		parcels[i] = newParcel(r.Event)
	}
	l.lockRecalled(recalls, parcels)
	defer l.mu.Unlock()
	l.claiming = false
	if err != nil {
		l.d.log.Warn("due deliveries couldn't be claimed; trying again", "endpoint", l.route.ID, "error", err)
		l.expect(l.d.now().Add(claimRetry))
		l.more, l.moreAt = false, time.Time{} // until then
		l.again()
		return
	}
	for i, r := range got.Rows {
		p := parcels[i]
		l.d.memory.hold(p)
		if it := (item{Delivery: r.Delivery, parcel: p}); r.Delivery.Lost >= lostAlone {
			l.queue = slices.Insert(l.queue, 0, it) // all other suspects wait for it
		} else {
			l.queue = append(l.queue, it)
		}
	}
	if l.deep = got.More; l.deep {
		l.more, l.moreAt = true, since
	}
	if !got.More && !got.Next.IsZero() {
		next := got.Next
		if soon := l.d.now().Add(claimPause); len(got.Rows) == 0 && next.Before(soon) {
			next = soon
		}
		l.expect(next)
	}
	if l.d.draining.Load() {
		l.release() // the drain has been here
		return
	}
	l.again()
}

// catchUp reads the configuration when a claim met a newer one than the lane
// has: what was claimed after a change goes out by it, whatever notice of the
// change was lost.
func (l *lane) catchUp(version int64) {
	l.mu.Lock()
	behind := version > l.route.Version
	l.mu.Unlock()
	if !behind {
		return
	}
	if err := l.d.opt.Refresh(l.d.ctx); err != nil && !l.d.draining.Load() {
		l.d.log.Warn("the configuration couldn't be read again; the one from before holds until it can", "error", err)
	}
}

// endRows buries the due rows of a disabled endpoint, or all of a deleted one. What
// waits to be pulled may be so from a disabled one too. Callers hold mu.
func (l *lane) endRows() {
	l.release()
	if !l.more || l.ending || (l.route.Pulled() && !l.route.Deleted) {
		return
	}
	l.ending, l.more = true, false
	l.d.work.Go(func() {
		deleted, err := l.end()
		l.mu.Lock()
		l.ending = false
		if err != nil {
			l.d.log.Warn("rows of a disabled endpoint couldn't be ended; trying again", "endpoint", l.route.ID, "error", err)
			l.expect(l.d.now().Add(claimRetry))
		}
		l.kick() // rows may have come free meanwhile, or the endpoint be enabled again
		l.mu.Unlock()
		if deleted && err == nil {
			l.d.forget(l)
		}
	})
}

// end works in bounded steps, and only as long as the endpoint is to be ended:
// it may be enabled again at any time.
func (l *lane) end() (deleted bool, err error) {
	for {
		l.mu.Lock()
		live, deleted := l.route.live, l.route.Deleted
		code, letters := endCode(l.route.Endpoint)
		l.mu.Unlock()
		if live || l.d.draining.Load() {
			return false, nil
		}
		n, err := l.d.store.End(l.d.ctx, l.key, code, !deleted, letters, endStep)
		if letters {
			l.d.ended(code, n)
		}
		if err != nil || n < endStep {
			return deleted, err
		}
	}
}

// release frees the queued rows. Callers hold mu.
func (l *lane) release() {
	queue := l.queue
	l.queue = nil
	if len(queue) == 0 {
		return
	}
	l.d.work.Go(func() {
		for _, it := range queue {
			l.d.memory.drop(it.parcel)
			l.d.recorder.put(result{Outcome: surehook.Outcome{Delivery: it.Delivery, Decision: surehook.Release}, lane: l})
		}
	})
}

// handBack frees a suspect that would wait for long, first in the queue, for the
// lane's gate: while it is held, no other lane gets one. It is claimed again
// when the gate is open. Callers hold mu.
func (l *lane) handBack(now time.Time) {
	if len(l.queue) == 0 || l.queue[0].Lost < lostAlone || l.open(now) {
		return
	}
	long := now.Add(heldLong)
	if !l.pauseTo.After(long) && !l.breaker.until.After(long) && !l.breaker.probing {
		return
	}
	it := l.take()
	l.d.work.Go(func() {
		l.d.memory.drop(it.parcel)
		l.d.recorder.put(result{Outcome: surehook.Outcome{Delivery: it.Delivery, Decision: surehook.Release}, lane: l})
	})
}

// fresh gives the lane's route, compiled anew when its secrets have been in
// memory long enough. Callers hold mu.
func (l *lane) fresh(now time.Time) *route {
	if now.After(l.route.expires) || (l.route.signer == nil && l.route.broken == surehook.OK) {
		l.route = l.d.compile(l.route.Endpoint)
	}
	return l.route
}

// shed forgets the secrets of a lane that hasn't needed them for a while.
func (l *lane) shed(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.route.signer == nil || !now.After(l.route.expires) {
		return
	}
	r := *l.route // attempts in flight keep theirs
	r.signer = nil
	l.route = &r
}

// quiet tells a lane that nothing comes from any more. Callers hold mu.
func (l *lane) quiet() bool {
	return l.route.Deleted && len(l.queue) == 0 && l.reserved == 0 && l.running == 0 && !l.claiming && !l.ending && !l.looking && !l.more
}
