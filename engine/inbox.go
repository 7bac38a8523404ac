package engine

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook"
)

const (
	trimEvery = 2 * time.Second // inboxes that got something are looked at
	trimAll   = time.Minute     // and all
	trimStep  = 1000            // rows in one transaction
)

// inboxes know who waits for events, and where some have come.
type inboxes struct {
	mu      sync.Mutex
	readers map[int64]map[chan struct{}]struct{}
	fresh   map[int64]bool // got something since they were last looked at
	acks    [64]sync.Mutex // by inbox

	gave, acked, dropped atomic.Int64
}

// wait gives a channel that is rung when something may have come; leave ends that.
func (x *inboxes) wait(inbox int64) (rung <-chan struct{}, leave func()) {
	c := make(chan struct{}, 1)
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.readers == nil {
		x.readers = make(map[int64]map[chan struct{}]struct{})
	}
	if x.readers[inbox] == nil {
		x.readers[inbox] = make(map[chan struct{}]struct{})
	}
	x.readers[inbox][c] = struct{}{}
	return c, func() {
		x.mu.Lock()
		defer x.mu.Unlock()
		if delete(x.readers[inbox], c); len(x.readers[inbox]) == 0 {
			delete(x.readers, inbox)
		}
	}
}

// came notes that something may have come to an inbox, and rings who waits there.
func (x *inboxes) came(inbox int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.fresh == nil {
		x.fresh = make(map[int64]bool)
	}
	x.fresh[inbox] = true
	for c := range x.readers[inbox] {
		signal(c)
	}
}

// all rings everybody.
func (x *inboxes) all() {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, readers := range x.readers {
		for c := range readers {
			signal(c)
		}
	}
}

// take gives the inboxes that got something.
func (x *inboxes) take() []int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	keys := slices.Sorted(maps.Keys(x.fresh))
	clear(x.fresh)
	return keys
}

func (x *inboxes) waiting() (n int) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, readers := range x.readers {
		n += len(readers)
	}
	return n
}

// acking keeps others from acknowledging at an inbox until done is called.
func (x *inboxes) acking(inbox int64) (done func()) {
	m := &x.acks[uint64(inbox)%uint64(len(x.acks))]
	m.Lock()
	return m.Unlock
}

// PullStats counts what was pulled here since the start.
type PullStats struct {
	Readers int   // that wait for events now
	Given   int64 // events, each time that they were given out
	Acked   int64 // events that were acknowledged
	Dropped int64 // events that this process dropped from full inboxes and those of ended sessions
}

// PullStats tells how reading goes on this node.
func (e *Engine) PullStats() PullStats {
	return PullStats{Readers: e.inboxes.waiting(), Given: e.inboxes.gave.Load(), Acked: e.inboxes.acked.Load(), Dropped: e.inboxes.dropped.Load()}
}

// wake tells whoever delivers to an endpoint that rows came free or due there: its
// lane, or the readers of its inbox.
func (e *Engine) wake(endpoint int64) {
	e.disp.Wake(endpoint)
	if ep := e.index.Endpoint(endpoint); ep != nil && ep.Pulled() {
		e.inboxes.came(ep.Inbox)
	}
}

// tellReaders rings the readers of the inboxes that events came to.
func (e *Engine) tellReaders(items []surehook.Append, appended []surehook.Appended) {
	for i := range items {
		if len(appended[i].Deliveries) == 0 {
			continue
		}
		for _, t := range items[i].Targets {
			if t.Inbox != 0 {
				e.inboxes.came(t.Inbox)
			}
		}
	}
}

// bound is what an inbox may hold.
func (o *Options) inboxBound() *surehook.InboxBound {
	return &surehook.InboxBound{Events: int64(max(o.InboxEvents, 0)), Bytes: max(o.InboxBytes, 0)}
}

// inboxLoop keeps inboxes within their bounds. What arrived is looked at soon, by the
// node that it came to; and all inboxes each minute, by one node.
func (e *Engine) inboxLoop() {
	tick := time.NewTicker(trimEvery)
	defer tick.Stop()
	var all time.Time
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
		for _, key := range e.inboxes.take() {
			if err := e.trim(key, e.opt.inboxBound(), surehook.InboxFull); err != nil {
				e.inboxes.came(key)
				break // the store is away: all is looked at again
			}
		}
		if lease := e.store.Lease(); e.now().Sub(all) >= trimAll && (len(lease.Nodes) == 0 || lease.Nodes[0] == lease.Epoch) {
			all = e.now()
			e.trimAll()
		}
	}
}

// trimAll looks at the inboxes that hold more than they may: those whose rows came by
// a node that has died since.
func (e *Engine) trimAll() {
	states, err := e.store.InboxStates(e.ctx)
	if err != nil {
		if e.ctx.Err() == nil {
			e.log.Warn("inboxes couldn't be looked at; trying again", "error", err)
		}
		return
	}
	b := e.opt.inboxBound()
	for _, st := range states {
		if (b.Events > 0 && st.Events > b.Events) || (b.Bytes > 0 && st.Bytes > b.Bytes) {
			_ = e.trim(st.Inbox, b, surehook.InboxFull) // logged; it comes again
		}
	}
}

// trim ends what is over an inbox's bound, in steps; bound nil: all of it.
func (e *Engine) trim(inbox int64, b *surehook.InboxBound, why surehook.Code) error {
	total := 0
	for more := true; more && e.ctx.Err() == nil; {
		var n int
		var err error
		if n, more, err = e.store.Trim(e.ctx, inbox, b, why, trimStep); err != nil {
			if surehook.CodeOf(err) == surehook.NotFound {
				return nil // deleted
			}
			if e.ctx.Err() == nil {
				e.log.Warn("an inbox couldn't be kept within its bound; trying again", "error", err)
			}
			return err
		}
		total += n
		if e.inboxes.dropped.Add(int64(n)); n > 0 && e.opt.Ended != nil {
			e.opt.Ended(why, n)
		}
	}
	if total > 0 {
		e.log.Warn("events left an inbox unread; they are dead letters", "inbox", inbox, "events", total, "reason", string(why))
	}
	return nil
}
