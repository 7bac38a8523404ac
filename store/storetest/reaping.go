package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var reapingTests = map[string]func(*env){
	"Reaping/removes sentinels that ended long ago":       reapEnded,
	"Reaping/removes those whose session ended":           reapOrphaned,
	"Reaping/leaves what is still to be delivered":        reapWaits,
	"Reaping/the oldest rows over a sentinel's bound end": trimSentinel,
	"Reaping/a planned watch is cancelled":                planCancelled,
	"Reaping/a sentinel keeps the watch that was planned": planKept,
	"Reaping/a sentinel that comes too late isn't stored": planLate,
	"Reaping/a tombstone tells what was deleted":          tombstone,
}

// reap removes what ended an hour ago, in steps, and tells how many it was.
func (e *env) reap(limit int) int {
	e.Helper()
	total := 0
	for more := true; more; {
		n, m, err := e.s.ReapSentinels(e.ctx, time.Hour, limit, &surehook.AuditEntry{Action: "sentinel.reap"})
		e.ok(err)
		total, more = total+n, m
	}
	return total
}

// settle does what follows ends.
func (e *env) settle() {
	e.Helper()
	_, _, err := e.s.EndSentinels(e.ctx, 100)
	e.ok(err)
}

func reapEnded(e *env) {
	once := surehook.Until{Kind: surehook.UntilCount, Count: 1}
	counted := e.sentinel(once, func(n *surehook.Sentinel) { n.Watch = "w" })
	timed := e.sentinel(surehook.Until{Kind: surehook.UntilAt, At: e.clock.Now().Add(time.Minute)})
	lives := e.sentinel(forever)
	a := e.sight(match, counted, lives)
	for _, d := range a.Deliveries {
		e.record(e.outcome(d, surehook.Finish))
	}
	ended := ms(e.clock.Now())
	e.same("when", e.reload(counted).Sentinel.EndedAt, ended)
	e.clock.Advance(time.Minute)
	e.settle()
	e.same("by time", e.reload(timed).Sentinel.EndedAt, ms(e.clock.Now()))
	e.clock.Advance(58 * time.Minute)
	e.same("too soon", e.reap(1), 0)
	e.clock.Advance(time.Minute)
	e.same("one", e.reap(1), 1)
	e.clock.Advance(time.Minute)
	e.same("the other", e.reap(1), 1)
	for _, ep := range []*surehook.Endpoint{counted, timed} {
		_, err := e.s.Endpoint(e.ctx, ep.ID)
		e.code(err, surehook.NotFound)
	}
	e.same("the one that lives", e.reload(lives).Sentinel.EndedAt.IsZero(), true)
	cancels, err := e.s.Cancels(e.ctx, 10)
	e.ok(err)
	e.same("its watch was cancelled at its end, once", len(cancels), 1)
	audit, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("told", []any{len(audit), audit[0].Target, audit[1].Target, audit[0].Action}, []any{2, timed.ID, counted.ID, "sentinel.reap"})
	e.clock.Advance(1000 * time.Hour)
	e.same("nothing more", e.reap(1), 0)
}

func reapOrphaned(e *env) {
	s := e.pullSession("", "agent")
	feeds := func(n *surehook.Sentinel) *surehook.Endpoint {
		return e.endpoint(func(ep *surehook.Endpoint) { ep.ID, ep.URL, ep.Inbox, ep.Sentinel = e.id("sen"), "", s.Key, n })
	}
	orphan := feeds(&surehook.Sentinel{Match: []surehook.Clause{{Subject: "a"}}, Until: forever, Status: surehook.SentinelActive, Provider: "p", Watch: "w", Session: "agent"})
	plain := e.feeding(s)
	e.same("ended", e.endPull(s, 0), true)
	got := e.reload(orphan)
	e.same("it ends with its session", []any{got.Sentinel.EndedAt, got.Enabled, string(got.Sentinel.Status)}, []any{ms(e.clock.Now()), false, "active"})
	e.settle()
	cancels, err := e.s.Cancels(e.ctx, 10)
	e.ok(err)
	e.same("nobody watches for it", len(cancels), 1)
	e.clock.Advance(time.Hour)
	e.same("reaped", e.reap(10), 1)
	e.same("an endpoint without a sentinel stays", e.reload(plain).Enabled, false)
}

func reapWaits(e *env) {
	ep := e.sentinel(surehook.Until{Kind: surehook.UntilCount, Count: 1})
	d := e.sight(match, ep).Deliveries[0]
	e.settle()
	e.clock.Advance(2 * time.Hour)
	e.same("while it waits", e.reap(10), 0)
	held := e.claim(ep, 1).Rows[0].Delivery
	e.same("while it is being sent", e.reap(10), 0)
	e.record(e.outcome(held, surehook.Finish))
	e.same("then", e.reap(10), 1)
	e.same("the delivery", string(e.view(d).Status), "succeeded")
}

func trimSentinel(e *env) {
	ep, other := e.sentinel(forever), e.sentinel(forever)
	var rows []surehook.Delivery
	for range 5 {
		rows = append(rows, e.sight(match, ep).Deliveries[0])
		e.sight(match, other)
		e.clock.Advance(time.Second)
	}
	trim := func(most, limit int) []any {
		e.Helper()
		n, more, err := e.s.TrimSentinel(e.ctx, ep.Key, most, limit)
		e.ok(err)
		return []any{n, more}
	}
	e.same("within the bound", trim(5, 10), []any{0, false})
	e.same("a step", trim(3, 1), []any{1, true})
	e.same("the rest", trim(3, 10), []any{1, false})
	for i, want := range []string{"dead", "dead", "pending", "pending", "pending"} {
		e.same("delivery", string(e.view(rows[i]).Status), want)
	}
	letters := e.letters()
	e.same("why", []any{len(letters), string(letters[0].Code), letters[0].EndpointKey}, []any{2, "sentinel_full", ep.Key})
	held := e.claim(ep, 2).Rows
	e.same("what is being sent doesn't wait", trim(1, 10), []any{0, false})
	for _, r := range held {
		e.record(e.outcome(r.Delivery, surehook.Finish))
	}
}

func (e *env) plan(wait time.Duration) int64 {
	e.Helper()
	plan, err := e.s.PlanWatch(e.ctx, "local-gh", "w", wait)
	e.ok(err)
	return plan
}

// planned makes a sentinel with a planned watch.
func (e *env) planned(plan int64) error {
	return e.s.CreateEndpoint(e.ctx, &surehook.Endpoint{ID: e.id("sen"), URL: "https://example.com/", Enabled: true,
		Sentinel: &surehook.Sentinel{Until: forever, Status: surehook.SentinelActive, Provider: "local-gh", Watch: "w", Plan: plan}}, 0, nil)
}

func (e *env) cancels() int {
	e.Helper()
	all, err := e.s.Cancels(e.ctx, 10)
	e.ok(err)
	return len(all)
}

func planCancelled(e *env) {
	plan := e.plan(time.Minute)
	e.same("at first", e.cancels(), 0)
	e.reopen()
	e.clock.Advance(time.Minute)
	all, err := e.s.Cancels(e.ctx, 10)
	e.ok(err)
	e.same("due", all, []surehook.WatchCancel{{Key: plan, Provider: "local-gh", Watch: "w"}})
	now := e.plan(time.Hour)
	e.ok(e.s.PutOffCancel(e.ctx, surehook.WatchCancel{Key: now}, 0))
	e.same("one that is given up is due now", e.cancels(), 2)
}

func planKept(e *env) {
	e.ok(e.planned(e.plan(time.Minute)))
	e.clock.Advance(time.Hour)
	e.same("nothing is due", e.cancels(), 0)
}

func planLate(e *env) {
	plan := e.plan(time.Minute)
	e.clock.Advance(time.Minute)
	e.code(e.planned(plan), surehook.Unavailable)
	all, err := e.s.ListEndpoints(e.ctx, surehook.EndpointFilter{}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("stored", len(all), 0)
	e.same("its watch is cancelled", e.cancels(), 1)
}

func tombstone(e *env) {
	ep := e.sentinel(forever)
	e.same("it has a secret", e.reload(ep).Secrets.Current != "", true)
	_, err := e.s.Tombstone(e.ctx, ep.Key)
	e.code(err, surehook.NotFound)
	e.ok(e.s.DeleteEndpoint(e.ctx, ep.ID, nil))
	got, err := e.s.Tombstone(e.ctx, ep.Key)
	e.ok(err)
	e.same("it", []any{got.ID, got.Deleted, got.Watches(), got.Secrets}, []any{ep.ID, true, true, surehook.Secrets{}})
}
