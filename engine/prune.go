package engine

import (
	"time"

	"github.com/surehook/surehook"
)

const (
	pruneEvery   = time.Minute
	tenantsEvery = time.Hour // of tenants with days of their own, unless those change here
	pruneStep    = 500       // events in one transaction, at most
	pruneRest    = 4         // times as long as a step took: so much of its time the store has for others
	pruneBehind  = time.Hour // who has had to do for so long rests less
)

// pruneLoop removes events past retention, in small steps. Of several nodes the
// one with the lowest epoch does it.
func (e *Engine) pruneLoop() {
	tick := time.NewTicker(pruneEvery)
	defer tick.Stop()
	var tenants time.Time // when theirs were looked at
	for {
		if lease := e.store.Lease(); len(lease.Nodes) == 0 || lease.Nodes[0] == lease.Epoch {
			if e.opt.Retain > 0 {
				e.prune()
			}
			if time.Since(tenants) >= tenantsEvery {
				tenants = time.Now()
				e.pruneTenants()
			}
		}
		select {
		case <-e.ctx.Done():
			return
		case <-e.kept:
			tenants = time.Time{}
		case <-tick.C:
		}
	}
}

func (e *Engine) prune() {
	total, err := e.pruneSteps(func() (int64, bool, error) { return e.store.Prune(e.ctx, e.now().Add(-e.opt.Retain), pruneStep) })
	e.pruned(total, err, "")
}

// pruneTenants goes through the tenants that say themselves how long their events
// are kept.
func (e *Engine) pruneTenants() {
	for p := (surehook.Page{Limit: 1000}); ; {
		ts, err := e.store.ListTenants(e.ctx, "", p)
		if err != nil {
			e.pruned(0, err, "")
			return
		}
		for _, t := range ts {
			if t.EventsDays == 0 {
				continue
			}
			before := e.now().Add(-time.Duration(t.EventsDays) * 24 * time.Hour)
			total, err := e.pruneSteps(func() (int64, bool, error) { return e.store.PruneTenant(e.ctx, t.ID, before, pruneStep) })
			if e.pruned(total, err, t.ID); err != nil {
				return
			}
		}
		if len(ts) < p.Limit {
			return
		}
		p.Cursor = ts[len(ts)-1].Key
	}
}

// pruneSteps makes steps until there is nothing more to do. Between two it rests by
// how long the last one took: longer, the more there is to do besides. Who is still
// not done after an hour comes too slowly, and rests for as long as it works.
func (e *Engine) pruneSteps(step func() (int64, bool, error)) (total int64, err error) {
	began := time.Now()
	for more := true; more && e.ctx.Err() == nil; {
		var n int64
		start, rest := time.Now(), pruneRest
		if start.Sub(began) > pruneBehind {
			rest = 1
		}
		if n, more, err = step(); err != nil {
			return total, err
		}
		total += n
		if !more {
			break
		}
		select {
		case <-e.ctx.Done():
		case <-time.After(time.Duration(rest) * time.Since(start)):
		}
	}
	return total, nil
}

func (e *Engine) pruned(total int64, err error, tenant string) {
	if err != nil && e.ctx.Err() == nil {
		e.log.Warn("events past retention couldn't be removed; trying again", "error", err)
	}
	if total > 0 {
		e.log.Info("events past retention were removed", "events", total, "tenant_id", tenant)
	}
}
