package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var pruneTests = map[string]func(*env){
	"Prune/old events go with all that is theirs (G-10, O-06)": pruneOld,
	"Prune/what is being delivered stays (P-02)":               pruneHeld,
	"Prune/what isn't fanned out stays (P-02)":                 pruneOutbox,
	"Prune/what the store has refused for so long goes":        pruneRefused,
	"Prune/in bounded steps (P-01, P-03)":                      pruneSteps,
	"Prune/tenants keep theirs for their own days":             pruneOwnDays,
	"Prune/of one tenant: bounded, and never what is held":     pruneTenant,
}

const days = 24 * time.Hour

// prune removes what is older than 30 days.
func (e *env) prune(limit int) int64 {
	e.Helper()
	total := int64(0)
	for range 1000 {
		n, more, err := e.s.Prune(e.ctx, e.clock.Now().Add(-30*days), limit)
		e.ok(err)
		if total += n; !more {
			return total
		}
	}
	e.Fatal("there is always more to remove")
	return 0
}

func pruneOld(e *env) {
	ep := e.endpoint()
	done, dead, waiting := e.publish(true, ep)[0], e.publish(true, ep)[0], e.event()
	e.record(e.outcome(done, surehook.Finish), e.outcome(dead, surehook.Bury))
	late := e.publishEvent(waiting, false, ep)[0]
	e.clock.Advance(20 * days)
	young := e.publish(true, ep)[0]
	e.record(e.outcome(young, surehook.Bury))
	e.same("nothing is old", e.prune(100), int64(0))
	e.clock.Advance(12 * days)
	e.same("removed", e.prune(100), int64(3))
	for _, d := range []surehook.Delivery{done, dead, late} {
		_, err := e.s.EventByKey(e.ctx, d.EventKey)
		e.code(err, surehook.NotFound)
	}
	e.same("attempts of what was done", len(e.attempts(done)), 0)
	left := e.attempts(late)
	e.same("what was to do says why it isn't done", len(left), 1)
	e.same("code", []any{left[0].Status, left[0].Code, left[0].Number}, []any{surehook.AttemptDead, surehook.EventUnavailable, 1})
	e.same("rows", e.pending(), surehook.PendingCount{})
	ls := e.letters()
	e.same("letters", len(ls), 1)
	e.same("letter", ls[0].EventKey, young.EventKey)
	e.same("attempts of the young", len(e.attempts(young)), 1)
	e.same("an id is free again", e.append(surehook.Append{Event: &surehook.Event{ID: waiting.ID, Type: "other", Data: []byte(`2`), OccurredAt: e.clock.Now()}})[0].Duplicate, false)
	e.same("a second time", e.prune(100), int64(0))
	e.clock.Advance(31 * days)
	e.same("later", e.prune(100), int64(2))
	e.same("attempts without an event go too", len(e.attempts(late)), 0)
}

func pruneHeld(e *env) {
	ep := e.endpoint()
	held := e.publish(true, ep)[0]
	e.clock.Advance(40 * days)
	e.same("removed", e.prune(10), int64(0))
	e.same("row", e.pending().Owned, int64(1))
	e.record(e.outcome(held, surehook.Finish))
	e.same("removed after", e.prune(10), int64(1))
}

// What an application wrote and nobody has taken in yet is no event, however long
// that lasts, and its time begins when it is taken in.
func pruneOutbox(e *env) {
	ep := e.endpoint()
	e.enqueue(e.event())
	e.clock.Advance(40 * days)
	e.same("removed", e.prune(10), int64(1)) // the event that brought it
	events, out := e.fanOut()
	e.same("fanned out", len(events), 1)
	e.ok(out[0].Err)
	ev, err := e.s.EventByKey(e.ctx, out[0].EventKey)
	e.ok(err)
	e.same("event", ev.ID, events[0].ID)
	_, err = e.s.Replay(e.ctx, ep.Key, []int64{ev.Key}, nil)
	e.ok(err)
	e.clock.Advance(20 * days)
	e.same("removed after", e.prune(10), int64(0))
	e.same("rows", e.pending().Due, int64(1))
}

// What the store keeps refusing goes when that has lasted for the retention, or for
// its tenant's own days, and the audit log says so. What waits otherwise stays.
func pruneRefused(e *env) {
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "short", EventsDays: 7}, nil))
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "long", EventsDays: 90}, nil))
	byTenant := map[string]string{}
	for _, tenant := range []string{"", "acme", "short", "long"} {
		ev := e.person(tenant, "")
		e.enqueue(ev)
		byTenant[tenant] = ev.ID
	}
	waits := e.person("acme", "")
	e.enqueue(waits)
	left := func() (ids []string) {
		e.clock.Advance(time.Hour) // so that nothing is put off
		for _, o := range e.waiting() {
			ids = append(ids, o.Event.ID)
		}
		return ids
	}
	refuse := func() {
		var put []surehook.PutOff
		for _, o := range e.waiting() {
			if o.Event.ID != waits.ID {
				put = append(put, surehook.PutOff{ID: o.ID, Refused: o.Refused, Wait: time.Minute})
			}
		}
		e.ok(e.s.PutOff(e.ctx, put))
	}
	e.clock.Advance(40 * days) // as long as nobody refuses them, they stay
	e.prune(100)
	e.same("before the first refusal", len(left()), 5)
	refuse()
	e.clock.Advance(8 * days)
	refuse() // again: the time is the first one's
	e.prune(100)
	e.same("after eight days", len(left()), 5)
	e.same("of a tenant with fewer", e.pruneOf("short", 7*days, 10), int64(1))
	e.same("left", left(), []string{byTenant[""], byTenant["acme"], byTenant["long"], waits.ID})
	e.clock.Advance(23 * days)
	n, more, err := e.s.Prune(e.ctx, e.clock.Now().Add(-30*days), 1)
	for err == nil && more {
		var m int64
		m, more, err = e.s.Prune(e.ctx, e.clock.Now().Add(-30*days), 1)
		n += m
	}
	e.ok(err)
	e.same("after thirty, in steps of one", n, int64(2))
	e.same("left", left(), []string{byTenant["long"], waits.ID})
	e.same("of a tenant with more", e.pruneOf("long", 90*days, 10), int64(0))
	e.clock.Advance(60 * days)
	e.same("of a tenant with more, later", e.pruneOf("long", 90*days, 10), int64(1))
	e.same("left", left(), []string{waits.ID})
	audit := e.ofEvents()
	e.same("told", len(audit), 4)
	e.same("of the last", []any{audit[0].Action, audit[0].Actor, audit[0].Target, audit[0].Tenant}, []any{"event.refused", "system", byTenant["long"], "long"})
	e.same("why", audit[0].Details, `{"reason":"the store refused it until its retention was over","times":2}`)
}

func pruneSteps(e *env) {
	ep := e.endpoint()
	e.free(ep, 25)
	e.clock.Advance(40 * days)
	n, more, err := e.s.Prune(e.ctx, e.clock.Now().Add(-30*days), 10)
	e.ok(err)
	if n > 10 || !more {
		e.Fatalf("one step removed %d, more: %v", n, more)
	}
	e.same("removed by the others", n+e.prune(10), int64(25))
	e.same("rows", e.pending(), surehook.PendingCount{})
}

// pruneOf removes what is older than a tenant's days.
func (e *env) pruneOf(tenant string, old time.Duration, limit int) int64 {
	e.Helper()
	total := int64(0)
	for range 1000 {
		n, more, err := e.s.PruneTenant(e.ctx, tenant, e.clock.Now().Add(-old), limit)
		e.ok(err)
		if n > int64(limit) {
			e.Fatalf("one step removed %d", n)
		}
		if total += n; !more {
			return total
		}
	}
	e.Fatal("there is always more to remove")
	return 0
}

// A tenant with more days than everybody's keeps its events, attempts and dead
// letters, of the same days, while the others' go; one with fewer loses them early.
func pruneOwnDays(e *env) {
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "long", EventsDays: 90}, nil))
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "short", EventsDays: 7}, nil))
	ep := e.endpoint()
	by := make(map[string][]surehook.Delivery)
	for range 5 {
		for _, tenant := range []string{"long", "", "short", "acme"} {
			for _, decision := range []surehook.Decision{surehook.Finish, surehook.Bury, surehook.Again} {
				d := e.publishEvent(e.person(tenant, ""), true, ep)[0]
				o := e.outcome(d, decision)
				o.Wait = 100 * days
				e.record(o)
				by[tenant] = append(by[tenant], d)
			}
		}
	}
	there := func(tenant string) (n int) {
		for _, d := range by[tenant] {
			if _, err := e.s.EventByKey(e.ctx, d.EventKey); err == nil {
				n++
			}
		}
		return n
	}
	e.clock.Advance(10 * days)
	e.same("everybody's days aren't over", e.prune(4), int64(0))
	e.same("the short ones'", e.pruneOf("short", 7*days, 4), int64(15))
	e.same("short, again", e.pruneOf("short", 7*days, 4), int64(0))
	e.same("the long ones' aren't", e.pruneOf("long", 90*days, 4), int64(0))
	e.clock.Advance(22 * days)
	e.same("everybody's", e.prune(4), int64(30))
	e.same("a second time", e.prune(4), int64(0))
	for tenant, n := range map[string]int{"long": 15, "": 0, "acme": 0, "short": 0} {
		e.same("left of "+tenant, there(tenant), n)
	}
	for i, d := range by["long"] {
		e.same("its attempts", len(e.attempts(d)), 1)
		e.same("its status", e.view(d).Status, []surehook.DeliveryStatus{surehook.Succeeded, surehook.Dead, surehook.Pending}[i%3])
	}
	for _, tenant := range []string{"", "acme"} {
		e.same("attempts of what was done", len(e.attempts(by[tenant][0])), 0)
	}
	e.same("letters", len(e.letters()), 5)
	e.clock.Advance(60 * days)
	e.same("nothing else is left", e.prune(4), int64(0))
	e.same("at last", e.pruneOf("long", 90*days, 4), int64(15))
	e.same("rows", e.pending(), surehook.PendingCount{})
	e.same("letters", len(e.letters()), 0)
	e.same("left", there("long"), 0)
	e.prune(4)
	e.same("its attempts", len(e.attempts(by["long"][0])), 0)
}

func pruneTenant(e *env) {
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "short", EventsDays: 7}, nil))
	ep := e.endpoint()
	held := e.publishEvent(e.person("short", ""), true, ep)[0]
	other := e.publishEvent(e.person("solo", ""), false, ep)[0]
	var ev *surehook.Event
	for range 5 {
		ev = e.person("short", "")
		e.publishEvent(ev, false, ep)
	}
	e.clock.Advance(8 * days)
	young := e.publishEvent(e.person("short", ""), false, ep)[0]
	e.same("removed", e.pruneOf("short", 7*days, 2), int64(5))
	e.same("a delivery that ended says why", e.attempts(surehook.Delivery{EventKey: ev.Key, EndpointKey: ep.Key})[0].Code, surehook.EventUnavailable)
	e.same("what is held stays", e.pending(), surehook.PendingCount{Owned: 1, Due: 2, OldestDue: e.view(other).NextAttemptAt})
	e.same("an id is free again", e.append(surehook.Append{Event: &surehook.Event{ID: ev.ID, Tenant: "short", Type: "other", Data: []byte(`2`), OccurredAt: e.clock.Now()}})[0].Duplicate, false)
	e.record(e.outcome(held, surehook.Finish))
	e.same("removed after", e.pruneOf("short", 7*days, 2), int64(1))
	e.same("the young", e.view(young).Status, surehook.Pending)
}
