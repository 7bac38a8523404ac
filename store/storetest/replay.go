package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var replayTests = map[string]func(*env){
	"Replay/of what succeeded is a new row":                 replaySucceeded,
	"Replay/of a dead letter takes it away":                 replayLetter,
	"Replay/of a waiting row starts a new run":              replayFree,
	"Replay/of a held row changes nothing":                  replayOwned,
	"Replay/of what never matched":                          replayFresh,
	"Replay/all or none":                                    replayRefused,
	"Replay/and again fails anew":                           replayDies,
	"Replayable/by the latest status":                       replayableStatus,
	"Replayable/by window and cursor":                       replayableWindow,
	"Replayable/by when it occurred, not when it came":      replayableOccurred,
	"Replayable/not past its window, nor its tenant's days": replayablePast,
	"Replayable/never tests":                                replayableTests,
	"DeadLetters/discarded ones are gone":                   lettersDiscard,
	"DeadLetters/counted by endpoint":                       lettersCount,
	"DeadLetters/filters":                                   lettersFilter,
	"DeadLetters/a discarded delivery stays dead":           lettersDead,
}

func (e *env) replay(ep *surehook.Endpoint, events ...int64) []surehook.ReplayResult {
	e.Helper()
	out, err := e.s.Replay(e.ctx, ep.Key, events, &surehook.AuditEntry{Actor: "key_1", Action: "webhook.replay", Target: ep.ID})
	e.ok(err)
	return out
}

func replaySucceeded(e *env) {
	ep := e.endpoint()
	old := e.publish(true, ep)[0]
	e.record(e.outcome(old, surehook.Finish))
	e.clock.Advance(time.Hour)
	e.same("result", e.replay(ep, old.EventKey), []surehook.ReplayResult{{EventKey: old.EventKey}})
	e.same("status", e.view(old).Status, surehook.Pending)
	d := e.claimOne(ep)
	if d.ID == old.ID {
		e.Fatal("the row's id was used again")
	}
	e.same("row", d, surehook.Delivery{ID: d.ID, Epoch: d.Epoch, EventKey: old.EventKey, EndpointKey: ep.Key, Attempt: 1, FirstAttempt: 2, Due: e.clock.Now()})
	e.record(e.outcome(d, surehook.Finish))
	e.same("attempts stay", len(e.attempts(old)), 2)
	e.same("status", e.view(old).Status, surehook.Succeeded)
}

func replayLetter(e *env) {
	ep := e.endpoint()
	old := e.publish(true, ep)[0]
	e.record(e.outcome(old, surehook.Again))
	e.clock.Advance(time.Hour)
	d := e.claimOne(ep)
	e.record(e.outcome(d, surehook.Bury))
	e.same("letters", len(e.letters()), 1)
	e.replay(ep, old.EventKey)
	e.same("letters", len(e.letters()), 0)
	d = e.claimOne(ep)
	e.same("attempt", []int{d.Attempt, d.FirstAttempt}, []int{2, 3})
	e.same("attempts stay", len(e.attempts(old)), 2)
}

func replayFree(e *env) {
	ep := e.endpoint()
	old := e.publish(true, ep)[0]
	o := e.outcome(old, surehook.Again)
	o.Wait = 10 * time.Hour
	e.record(o)
	e.same("waiting", len(e.claim(ep, 10).Rows), 0)
	e.same("result", e.replay(ep, old.EventKey)[0].InProgress, false)
	d := e.claimOne(ep)
	e.same("row", d, surehook.Delivery{ID: old.ID, Epoch: d.Epoch, EventKey: old.EventKey, EndpointKey: ep.Key, Attempt: 1, FirstAttempt: 2, Due: e.clock.Now()})
}

func replayOwned(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	e.same("result", e.replay(ep, d.EventKey), []surehook.ReplayResult{{EventKey: d.EventKey, InProgress: true}})
	e.same("rows", e.pending(), surehook.PendingCount{Owned: 1})
	e.same("not late", e.record(e.outcome(d, surehook.Finish)).Late, 0)
}

func replayFresh(e *env) {
	ep := e.endpoint()
	key := e.append(surehook.Append{Event: e.event()})[0].EventKey
	e.replay(ep, key)
	d := e.claimOne(ep)
	e.same("attempt", []int{d.Attempt, d.FirstAttempt}, []int{0, 1})
}

func replayRefused(e *env) {
	ep := e.endpoint()
	good := e.publish(true, ep)[0]
	e.record(e.outcome(good, surehook.Finish))
	_, err := e.s.Replay(e.ctx, ep.Key, []int64{good.EventKey, 1 << 40}, nil)
	e.code(err, surehook.NotFound)
	e.same("rows", e.pending(), surehook.PendingCount{})
	e.ok(e.s.DeleteEndpoint(e.ctx, ep.ID, nil))
	_, err = e.s.Replay(e.ctx, ep.Key, []int64{good.EventKey}, nil)
	e.code(err, surehook.NotFound)
	_, err = e.s.Replay(e.ctx, 1<<40, []int64{good.EventKey}, nil)
	e.code(err, surehook.NotFound)
}

func replayDies(e *env) {
	ep := e.endpoint()
	old := e.publish(true, ep)[0]
	e.record(e.outcome(old, surehook.Bury))
	e.replay(ep, old.EventKey)
	d := e.claimOne(ep)
	e.record(e.outcome(d, surehook.Bury))
	ls := e.letters()
	e.same("letters", len(ls), 1)
	e.same("attempts", ls[0].Attempts, 2)
	// The first run's late success isn't the second run's.
	e.record(e.outcome(old, surehook.Finish))
	e.same("letters", len(e.letters()), 1)
}

// fates publishes an event for each status; the result is by status.
func (e *env) fates(ep *surehook.Endpoint) map[string]int64 {
	e.Helper()
	out := make(map[string]int64)
	for _, f := range []struct {
		status   string
		decision surehook.Decision
	}{{"succeeded", surehook.Finish}, {"dead", surehook.Bury}, {"failed", surehook.Again}, {"waiting", surehook.Release}} {
		d := e.publish(true, ep)[0]
		e.record(e.outcome(d, f.decision))
		out[f.status] = d.EventKey
	}
	return out
}

func (e *env) replayable(ep *surehook.Endpoint, status string) []int64 {
	e.Helper()
	evs, err := e.s.Replayable(e.ctx, ep.Key, surehook.ReplayFilter{Status: status}, 0, 100)
	e.ok(err)
	return keysOf(evs)
}

func keysOf(evs []*surehook.Event) []int64 {
	var out []int64
	for _, ev := range evs {
		out = append(out, ev.Key)
	}
	return out
}

func replayableStatus(e *env) {
	ep, other := e.endpoint(), e.endpoint()
	f := e.fates(ep)
	elsewhere := e.fates(other)
	for _, status := range []string{"succeeded", "dead", "failed"} {
		e.same(status, e.replayable(ep, status), []int64{f[status]})
	}
	e.same("all", len(e.replayable(ep, "")), len(f)+len(elsewhere))
	e.replay(ep, f["succeeded"], f["dead"])
	e.same("one that died stays so until it succeeds", e.replayable(ep, "dead"), []int64{f["dead"]})
	e.same("one that succeeded did", e.replayable(ep, "succeeded"), []int64{f["succeeded"]})
	again := e.claim(ep, 10).Rows
	for _, r := range again {
		switch r.Event.Key {
		case f["dead"]:
			e.record(e.outcome(r.Delivery, surehook.Finish))
		case f["succeeded"]:
			e.record(e.outcome(r.Delivery, surehook.Bury))
		}
	}
	e.same("none is dead that ever succeeded", len(e.replayable(ep, "dead")), 0)
	e.same("both succeeded", e.replayable(ep, "succeeded"), []int64{f["succeeded"], f["dead"]})
	e.same("the latest failed", e.replayable(ep, "failed"), []int64{f["failed"]})
	_, err := e.s.Replayable(e.ctx, ep.Key, surehook.ReplayFilter{Status: "odd"}, 0, 10)
	e.code(err, surehook.InvalidRequest)
	evs, err := e.s.Replayable(e.ctx, ep.Key, surehook.ReplayFilter{Status: "failed"}, 0, 10)
	e.ok(err)
	e.same("without data", evs[0].Data, []byte(nil))
	e.same("not erased", evs[0].Erased, false)
}

func replayableWindow(e *env) {
	ep := e.endpoint()
	start := e.clock.Now()
	var keys []int64
	for _, d := range e.free(ep, 6) {
		keys = append(keys, d.EventKey)
	}
	window := func(since, until, after int, limit int) []int64 {
		e.Helper()
		cursor := int64(0)
		if after >= 0 {
			cursor = keys[after]
		}
		evs, err := e.s.Replayable(e.ctx, ep.Key, surehook.ReplayFilter{Since: start.Add(time.Duration(since) * time.Second), Until: start.Add(time.Duration(until) * time.Second)}, cursor, limit)
		e.ok(err)
		return keysOf(evs)
	}
	e.same("since is in, until is out", window(1, 4, -1, 10), keys[1:4])
	e.same("limit", window(1, 4, -1, 2), keys[1:3])
	e.same("after", window(1, 4, 2, 10), keys[3:4])
	e.same("past", window(1, 4, 5, 10), []int64(nil))
	e.same("none", window(100, 200, -1, 10), []int64(nil))
	for _, zone := range []*time.Location{time.UTC, time.FixedZone("w", -11*3600)} {
		evs, err := e.s.Replayable(e.ctx, ep.Key, surehook.ReplayFilter{Since: start.Add(time.Second).In(zone), Until: start.Add(4 * time.Second).In(zone)}, 0, 10)
		e.ok(err)
		e.same("in "+zone.String(), keysOf(evs), keys[1:4])
	}
}

func replayableTests(e *env) {
	ep := e.endpoint()
	ev := e.event()
	ev.Type = surehook.TypeTest
	key := e.append(surehook.Append{Event: ev})[0].EventKey
	e.same("listed", len(e.replayable(ep, "")), 0)
	_, err := e.s.Replay(e.ctx, ep.Key, []int64{key}, nil)
	e.code(err, surehook.NotFound)
}

func lettersDiscard(e *env) {
	ep := e.endpoint()
	e.fail(ep, surehook.HealthRule{}, 3)
	ls := e.letters()
	n, err := e.s.DiscardDeadLetters(e.ctx, []int64{ls[0].Key, ls[2].Key, 1 << 40}, &surehook.AuditEntry{Action: "dead_letter.discard"})
	e.ok(err)
	e.same("discarded", n, 2)
	left := e.letters()
	e.same("left", left, ls[1:2])
	_, err = e.s.DeadLetter(e.ctx, ls[0].Key)
	e.code(err, surehook.NotFound)
	audit, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("told", audit[0].Action, "dead_letter.discard")
}

func lettersCount(e *env) {
	a, b := e.endpoint(), e.endpoint()
	counts := func() map[int64]int64 {
		n, err := e.s.CountDeadLetters(e.ctx)
		e.ok(err)
		return n
	}
	e.same("none", counts(), map[int64]int64{})
	e.fail(a, surehook.HealthRule{}, 3)
	e.fail(b, surehook.HealthRule{}, 1)
	e.publish(true, b)
	e.same("some", counts(), map[int64]int64{a.Key: 3, b.Key: 1})
	_, err := e.s.DiscardDeadLetters(e.ctx, []int64{e.letters()[0].Key}, nil)
	e.ok(err)
	e.same("less", counts(), map[int64]int64{a.Key: 3})
}

func lettersFilter(e *env) {
	a := e.endpoint(func(ep *surehook.Endpoint) { ep.Tenant = "acme" })
	b := e.endpoint()
	ev := e.event()
	ev.Tenant = "acme"
	e.record(e.outcome(e.publishEvent(ev, true, a)[0], surehook.Bury))
	e.clock.Advance(time.Minute)
	e.fail(b, surehook.HealthRule{}, 1)
	at := e.clock.Now()
	for name, f := range map[string]surehook.DeadLetterFilter{
		"endpoint": {Endpoint: a.Key}, "tenant": {Tenant: "acme"}, "until": {Until: at}, "both": {Endpoint: a.Key, Tenant: "acme", Until: at},
	} {
		ls, err := e.s.ListDeadLetters(e.ctx, f, surehook.Page{Limit: 10})
		e.ok(err)
		e.same(name, len(ls), 1)
		e.same(name, ls[0].EndpointID, a.ID)
	}
	ls, err := e.s.ListDeadLetters(e.ctx, surehook.DeadLetterFilter{Since: at}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("since", len(ls), 1)
	e.same("since", ls[0].EndpointID, b.ID)
}

func lettersDead(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	e.record(e.outcome(d, surehook.Bury))
	_, err := e.s.DiscardDeadLetters(e.ctx, []int64{e.letters()[0].Key}, nil)
	e.ok(err)
	e.same("status", e.view(d).Status, surehook.Dead)
	e.replay(ep, d.EventKey)
	e.same("still replayable by hand", e.view(d).Status, surehook.Pending)
}

// Events that are accepted long after they occurred, or before, are found by when
// they occurred, in the order of their keys, page by page.
func replayableOccurred(e *env) {
	ep := e.endpoint()
	start := e.clock.Now()
	publish := func(occurred time.Duration) int64 {
		ev := e.event()
		ev.OccurredAt = start.Add(occurred)
		d := e.publishEvent(ev, true, ep)[0]
		e.record(e.outcome(d, surehook.Finish))
		return d.EventKey
	}
	early := publish(10 * days) // of what will be
	publish(0)
	e.clock.Advance(10 * days)
	now := publish(10*days + time.Minute)
	publish(5 * days)
	e.clock.Advance(10 * days)
	late := publish(10*days + time.Hour)
	publish(20 * days)
	for _, status := range []string{"", "succeeded"} {
		f := surehook.ReplayFilter{Since: start.Add(10 * days), Until: start.Add(11 * days), Status: status}
		evs, err := e.s.Replayable(e.ctx, ep.Key, f, 0, 100)
		e.ok(err)
		e.same("found", keysOf(evs), []int64{early, now, late})
		var paged []int64
		for after := int64(0); ; {
			evs, err := e.s.Replayable(e.ctx, ep.Key, f, after, 1)
			e.ok(err)
			if len(evs) == 0 {
				break
			}
			after = evs[0].Key
			paged = append(paged, after)
		}
		e.same("one by one", paged, []int64{early, now, late})
	}
}

func replayablePast(e *env) {
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "short", EventsDays: 7}, nil))
	ep := e.endpoint()
	var keys []int64
	for _, tenant := range []string{"", "short"} {
		for _, decision := range []surehook.Decision{surehook.Bury, surehook.Finish, surehook.Again} {
			ev := e.event()
			ev.Tenant = tenant
			d := e.publishEvent(ev, true, ep)[0]
			o := e.outcome(d, decision)
			o.Wait = 100 * days
			e.record(o)
			keys = append(keys, d.EventKey)
		}
	}
	find := func(status string) []int64 {
		evs, err := e.s.Replayable(e.ctx, ep.Key, surehook.ReplayFilter{Status: status, Window: surehook.Window{Most: 30 * days, Kept: 60 * days}}, 0, 100)
		e.ok(err)
		return keysOf(evs)
	}
	e.same("all", find(""), keys)
	e.clock.Advance(8 * days)
	for i, status := range []string{"dead", "succeeded", "failed"} {
		e.same(status, find(status), keys[i:i+1])
	}
	e.same("the tenant's are too old", find(""), keys[:3])
	e.clock.Advance(22 * days)
	e.same("just not too old", find(""), keys[:3])
	e.clock.Advance(time.Millisecond)
	e.same("too old", find(""), []int64(nil))
}
