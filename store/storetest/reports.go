package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

// reportTests are faults that other senders had with their queues; see
// docs/field-reports.md.
var reportTests = map[string]func(*env){
	"Reports/what is exhausted is in nobody's way (C-16)":        reportExhausted,
	"Reports/rows of ended endpoints are in nobody's way (C-17)": reportOrphans,
}

// many publishes n events in one transaction, with a row each.
func (e *env) many(ep *surehook.Endpoint, n int, owned bool) []surehook.Delivery {
	e.Helper()
	items := make([]surehook.Append, n)
	for i := range items {
		items[i] = surehook.Append{Event: e.event(), Targets: []surehook.Target{{EndpointKey: ep.Key, Owned: owned}}}
	}
	out := make([]surehook.Delivery, 0, n)
	for _, a := range e.append(items...) {
		e.ok(a.Err)
		out = append(out, a.Deliveries...)
	}
	return out
}

// Rows that are at their limit are rows no more: a claim of ten finds the ten
// fresh ones behind a thousand of them.
func reportExhausted(e *env) {
	ep := e.endpoint()
	for range 4 {
		var batch []surehook.Outcome
		for _, d := range e.many(ep, 250, true) {
			batch = append(batch, e.outcome(d, surehook.Bury))
		}
		e.record(batch...)
	}
	e.clock.Advance(time.Second)
	var want []int64
	for _, d := range e.free(ep, 10) {
		want = append(want, d.ID)
	}
	c := e.claim(ep, 10)
	e.same("claimed", claimed(c), want)
	e.same("more", c.More, false)
	e.same("letters", len(e.letters()), 1000)
}

// Rows of an endpoint that was disabled end with a reason, those of one that was
// deleted just end; neither is found again, and the healthy one's row is.
func reportOrphans(e *env) {
	deleted, disabled, good := e.endpoint(), e.endpoint(), e.endpoint()
	e.many(deleted, 50, false)
	ended := e.many(disabled, 50, false)
	e.clock.Advance(time.Second)
	fresh := e.free(good, 1)[0]
	e.ok(e.s.DeleteEndpoint(e.ctx, deleted.ID, nil))
	e.enable(disabled, false)
	e.same("claimed of the deleted one", len(e.claim(deleted, 50).Rows), 0)
	e.same("claimed of the disabled one", len(e.claim(disabled, 50).Rows), 0)
	e.same("claimed of the good one", e.claimOne(good).ID, fresh.ID)
	for _, c := range []struct {
		ep      *surehook.Endpoint
		letters bool
	}{{deleted, false}, {disabled, true}} {
		n, err := e.s.End(e.ctx, c.ep.Key, surehook.EndpointDisabled, true, c.letters, 100)
		e.ok(err)
		e.same("ended", n, 50)
	}
	due, err := e.s.Due(e.ctx)
	e.ok(err)
	e.same("endpoints with something due", len(due), 0)
	letters := e.letters()
	e.same("letters", len(letters), 50)
	e.same("reason", letters[0].Code, surehook.EndpointDisabled)
	e.same("an attempt tells it", e.attempts(ended[0])[0].Code, surehook.EndpointDisabled)
}
