package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var pruneTests = map[string]func(*env){
	"Prune/old events go with all that is theirs (G-10, O-06)": pruneOld,
	"Prune/what is being delivered stays (P-02)":               pruneHeld,
	"Prune/what isn't fanned out stays (P-02)":                 pruneOutbox,
	"Prune/in bounded steps (P-01, P-03)":                      pruneSteps,
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
