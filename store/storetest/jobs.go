package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var jobTests = map[string]func(*env){
	"ReplayJobs/are kept, listed and resumed":       jobKept,
	"ReplayJobs/advance with their events":          jobAdvance,
	"ReplayJobs/do nothing once ended":              jobEnded,
	"ReplayJobs/an endpoint that is gone is an end": jobNoEndpoint,
}

func (e *env) job(ep *surehook.Endpoint) *surehook.Replay {
	e.Helper()
	r := &surehook.Replay{ID: e.id("rpl"), EndpointKey: ep.Key, EndpointID: ep.ID, Since: e.clock.Now().Add(-time.Hour), Until: e.clock.Now().Add(time.Hour),
		Status: "dead", State: surehook.ReplayRunning}
	e.ok(e.s.CreateReplay(e.ctx, r, &surehook.AuditEntry{Action: "webhook.replay"}))
	return r
}

func jobKept(e *env) {
	ep, other := e.endpoint(), e.endpoint()
	e.free(ep, 5)
	a := e.job(ep)
	b := e.job(other)
	e.same("estimate", a.Total, int64(5))
	e.reopen()
	got, err := e.s.GetReplay(e.ctx, a.ID)
	e.ok(err)
	want := *a
	want.Since, want.Until = ms(want.Since), ms(want.Until)
	e.same("job", got, want)
	running, err := e.s.RunningReplays(e.ctx)
	e.ok(err)
	e.same("running", []string{running[0].ID, running[1].ID}, []string{a.ID, b.ID})
	all, err := e.s.ListReplays(e.ctx, 0, surehook.Viewer{}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("newest first", []string{all[0].ID, all[1].ID}, []string{b.ID, a.ID})
	of, err := e.s.ListReplays(e.ctx, ep.Key, surehook.Viewer{}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("of one endpoint", len(of), 1)
	_, err = e.s.GetReplay(e.ctx, "rpl_none")
	e.code(err, surehook.NotFound)
	e.code(e.s.CreateReplay(e.ctx, &surehook.Replay{ID: a.ID, EndpointKey: ep.Key}, nil), surehook.Conflict)
}

func jobAdvance(e *env) {
	ep := e.endpoint()
	f := e.fates(ep)
	held := e.publish(true, ep)[0]
	r := e.job(ep)
	r.Cursor, r.Scanned = held.EventKey, 3
	step := *r
	e.ok(e.s.AdvanceReplay(e.ctx, r, []int64{f["dead"], f["succeeded"], held.EventKey, 1 << 40}))
	got, err := e.s.GetReplay(e.ctx, r.ID)
	e.ok(err)
	e.same("cursor", []int64{got.Cursor, got.Scanned, got.Queued}, []int64{held.EventKey, 3, 2})
	e.same("letters", len(e.letters()), 0)
	e.same("rows", e.pending().Due, int64(3)) // and the one that was released
	// A repeat after an unknown answer adds nothing.
	e.ok(e.s.AdvanceReplay(e.ctx, &step, []int64{f["dead"], f["succeeded"]}))
	got, err = e.s.GetReplay(e.ctx, r.ID)
	e.ok(err)
	e.same("queued", got.Queued, int64(2))
}

func jobEnded(e *env) {
	ep := e.endpoint()
	f := e.fates(ep)
	r := e.job(ep)
	e.ok(e.s.EndReplay(e.ctx, r.ID, surehook.ReplayCancelled, "", &surehook.AuditEntry{Action: "replay.cancel", Target: r.ID}))
	r.Cursor = f["dead"]
	e.ok(e.s.AdvanceReplay(e.ctx, r, []int64{f["dead"]}))
	e.same("letters", len(e.letters()), 1)
	e.ok(e.s.EndReplay(e.ctx, r.ID, surehook.ReplayFailed, "too late", &surehook.AuditEntry{Action: "replay.late"}))
	got, err := e.s.GetReplay(e.ctx, r.ID)
	e.ok(err)
	e.same("as it ended", []any{got.State, got.Error, got.Cursor}, []any{surehook.ReplayCancelled, "", int64(0)})
	running, err := e.s.RunningReplays(e.ctx)
	e.ok(err)
	e.same("running", len(running), 0)
	e.code(e.s.EndReplay(e.ctx, "rpl_none", surehook.ReplayDone, "", &surehook.AuditEntry{Action: "replay.none"}), surehook.NotFound)
	audit, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("told once", []string{audit[0].Action, audit[0].Target, audit[1].Action}, []string{"replay.cancel", r.ID, "webhook.replay"})
}

func jobNoEndpoint(e *env) {
	ep := e.endpoint()
	e.ok(e.s.DeleteEndpoint(e.ctx, ep.ID, nil))
	e.code(e.s.CreateReplay(e.ctx, &surehook.Replay{ID: "rpl_x", EndpointKey: ep.Key, Since: e.clock.Now()}, nil), surehook.NotFound)
}
