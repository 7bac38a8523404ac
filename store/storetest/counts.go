package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var countTests = map[string]func(*env){
	"Counts/failing endpoints":                        countFailing,
	"Record/a delivery arrives once":                  arriveOnce,
	"Record/a replay of what had arrived is none":     arriveReplayed,
	"Record/the replay of a dead letter arrives":      arriveAfterDeath,
	"Record/a late success arrives, the next doesn't": arriveLate,
	"Record/a poisoned batch arrives as well":         arrivePoisoned,
}

func countFailing(e *env) {
	counts := func() surehook.Counts {
		c, err := e.s.Counts(e.ctx)
		e.ok(err)
		return c
	}
	e.same("nothing", counts(), surehook.Counts{Leases: 1})
	eps := []*surehook.Endpoint{e.endpoint(), e.endpoint(), e.endpoint()}
	for n := 1; n <= surehook.FailingFrom; n++ {
		e.clock.Advance(time.Second)
		for _, d := range e.publish(true, eps...) {
			e.record(e.outcome(d, surehook.Bury))
		}
		want := surehook.Counts{Leases: 1}
		if n == surehook.FailingFrom {
			want.Failing = 3
		}
		e.same("failing", counts(), want)
	}
	e.clock.Advance(time.Second)
	e.record(e.outcome(e.publish(true, eps[0])[0], surehook.Finish))
	e.same("one is well again", counts().Failing, int64(2))
	_, err := e.s.UpdateEndpoint(e.ctx, eps[1].ID, func(ep *surehook.Endpoint) error { ep.Enabled = false; return nil }, nil)
	e.ok(err)
	e.same("one is disabled", counts().Failing, int64(1))
	e.ok(e.s.DeleteEndpoint(e.ctx, eps[2].ID, nil))
	e.same("one is deleted", counts().Failing, int64(0))
}

// arrived records outcomes, and tells which of them were arrivals.
func (e *env) arrived(outcomes ...surehook.Outcome) []bool {
	e.Helper()
	_, err := e.s.Record(e.ctx, outcomes, nil)
	e.ok(err)
	out := make([]bool, len(outcomes))
	for i, o := range outcomes {
		out[i] = o.Arrived
	}
	return out
}

func arriveOnce(e *env) {
	ep := e.endpoint()
	d, other := e.publish(true, ep)[0], e.publish(true, ep)[0]
	e.same("a failure", e.arrived(e.outcome(d, surehook.Again), e.outcome(other, surehook.Release)), []bool{false, false})
	e.clock.Advance(time.Hour)
	for _, r := range e.claim(ep, 10).Rows {
		o := e.outcome(r.Delivery, surehook.Finish)
		o.Arrived = true // what a caller left there counts for nothing
		e.same("a success", e.arrived(o), []bool{true})
		e.same("written twice", e.arrived(o), []bool{false})
	}
	note := e.outcome(surehook.Delivery{EventKey: d.EventKey, EndpointKey: ep.Key}, surehook.Note)
	note.Attempt.Test = true
	e.same("a test", e.arrived(note), []bool{false})
}

func arriveReplayed(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	e.same("at first", e.arrived(e.outcome(d, surehook.Finish)), []bool{true})
	_, err := e.s.Replay(e.ctx, ep.Key, []int64{d.EventKey}, nil)
	e.ok(err)
	e.same("again", e.arrived(e.outcome(e.claimOne(ep), surehook.Finish)), []bool{false})
}

func arriveAfterDeath(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	e.same("dead", e.arrived(e.outcome(d, surehook.Bury)), []bool{false})
	_, err := e.s.Replay(e.ctx, ep.Key, []int64{d.EventKey}, nil)
	e.ok(err)
	got := e.claimOne(ep)
	e.same("number", got.FirstAttempt, 2)
	e.same("the replay", e.arrived(e.outcome(got, surehook.Finish)), []bool{true})
}

func arriveLate(e *env) {
	ep := e.endpoint()
	old := e.publish(true, ep)[0]
	e.reopen()
	fresh := e.claimOne(ep)
	e.same("both at once", e.arrived(e.outcome(old, surehook.Finish), e.outcome(fresh, surehook.Finish)), []bool{true, false})
}

func arrivePoisoned(e *env) {
	ep := e.endpoint()
	ds := append(e.publish(true, ep), e.publish(true, ep)...)
	bad, good := e.outcome(ds[0], surehook.Finish), e.outcome(ds[1], surehook.Finish)
	bad.Attempt.ID = "dlv_no ULID"
	e.same("the good and the bad", e.arrived(bad, good), []bool{true, true})
}
