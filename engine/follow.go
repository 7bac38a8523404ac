package engine

import (
	"context"
	"time"

	"github.com/surehook/surehook"
)

// heard takes a notice of the store's: something was changed by another node, or
// in a caller's own transaction.
func (e *Engine) heard(c surehook.Change) {
	if c.Config {
		signal(e.changed)
	}
	if c.Erased {
		signal(e.erased)
	}
	if c.Outbox {
		signal(e.outbox)
	}
	if c.Rows {
		e.disp.Look()
		e.inboxes.all()
	}
	for _, key := range c.Endpoints {
		e.wake(key)
	}
}

// reload brings the index and the lanes to the store's configuration version.
func (e *Engine) reload(ctx context.Context) error {
	e.refresh.Lock()
	defer e.refresh.Unlock()
	changed, version, err := e.store.Changes(ctx, e.index.Version())
	if err != nil {
		return err
	}
	if version != e.index.Version() {
		partners, err := e.store.Partners(ctx, e.index.Version())
		if err != nil {
			return err
		}
		for tenant, partner := range partners {
			e.index.SetPartner(tenant, partner)
		}
	}
	regate, err := e.followSuspensions(ctx, version)
	if err != nil {
		return err
	}
	for _, ep := range changed {
		e.disp.Update(ep) // before the index: a matched endpoint has its lane
	}
	e.index.Apply(changed, version)
	if regate {
		e.disp.Regate()
		e.inboxes.all()
	}
	return nil
}

// refreshed is reload after a change that is in the store already: whoever asked
// for it may be gone by now, and it must reach the lanes all the same. Where
// that fails, refreshLoop goes on.
func (e *Engine) refreshed() {
	ctx, cancel := context.WithTimeout(context.Background(), refreshLimit)
	defer cancel()
	if err := e.reload(ctx); err != nil {
		e.log.Warn("the configuration couldn't be read again; trying again", "error", err)
		signal(e.stale)
	}
}

const (
	refreshLimit = 5 * time.Second // on one reading of the configuration
	refreshEvery = 5 * time.Second // the oldest that a configuration gets, whoever changed it
	refreshRetry = 250 * time.Millisecond
)

// refreshLoop follows changes that were made past this engine, or that couldn't
// be read when they were made.
func (e *Engine) refreshLoop() {
	wait := time.NewTimer(refreshEvery)
	defer wait.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-e.stale:
			wait.Reset(refreshRetry)
		case <-e.changed:
			wait.Reset(1) // never 0: see lane.wake of internal/dispatch
		case <-e.erased:
			wait.Reset(1) // never 0: see lane.wake of internal/dispatch
		case <-wait.C:
			next := refreshEvery
			ctx, cancel := context.WithTimeout(e.ctx, refreshLimit)
			if err := e.follow(ctx); err != nil && e.ctx.Err() == nil {
				e.log.Warn("the configuration couldn't be read; trying again", "error", err)
				next = refreshRetry
			}
			cancel()
			wait.Reset(next)
		}
	}
}

// follow reads what others may have changed: the configuration, and which events
// are erased, so that no copy of one is sent from here.
func (e *Engine) follow(ctx context.Context) error {
	if err := e.reload(ctx); err != nil {
		return err
	}
	n, err := e.store.Erasures(ctx)
	if err != nil || n == e.erasures {
		return err
	}
	e.disp.Recall()
	e.erasures = n
	return nil
}

const (
	replayCheck = 30 * time.Second // between two looks for replays whose node is gone
	replayStale = time.Minute      // without progress
)

// replayLoop takes up background replays that a node left behind.
func (e *Engine) replayLoop() {
	tick := time.NewTicker(replayCheck)
	defer tick.Stop()
	for {
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
			if err := e.resumeReplays(e.ctx, replayStale); err != nil && e.ctx.Err() == nil {
				e.log.Warn("running replays couldn't be listed; trying again", "error", err)
			}
		}
	}
}
