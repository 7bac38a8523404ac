package engine

import (
	"time"
)

const (
	pruneEvery = time.Minute
	pruneStep  = 500                   // events in one transaction
	prunePause = 20 * time.Millisecond // between two, so that nobody waits long
)

// pruneLoop removes events past retention, in small steps. Of several nodes the
// one with the lowest epoch does it.
func (e *Engine) pruneLoop() {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	for {
		if lease := e.store.Lease(); len(lease.Nodes) == 0 || lease.Nodes[0] == lease.Epoch {
			e.prune()
		}
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (e *Engine) prune() {
	total := int64(0)
	for more := true; more && e.ctx.Err() == nil; {
		n, again, err := e.store.Prune(e.ctx, e.now().Add(-e.opt.Retain), pruneStep)
		if err != nil {
			if e.ctx.Err() == nil {
				e.log.Warn("events past retention couldn't be removed; trying again", "error", err)
			}
			return
		}
		total, more = total+n, again
		select {
		case <-e.ctx.Done():
		case <-time.After(prunePause):
		}
	}
	if total > 0 {
		e.log.Info("events past retention were removed", "events", total)
	}
}
