package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var timeTests = map[string]func(*env){
	"Times/are instants, whatever the zones (M-02, M-03)": timeZones,
	"Times/are kept to the millisecond":                   timeGrain,
}

// The whole suite runs in a zone that nothing else is in; set here, before there
// is a second goroutine to see it change.
func init() { time.Local = time.FixedZone("local", -9*3600-1800) }

// timeZones writes in one zone, runs in another, and asks in a third.
func timeZones(e *env) {
	ep := e.endpoint()
	ev := e.event()
	ev.OccurredAt = time.Date(2026, 2, 28, 23, 59, 59, 0, time.FixedZone("tz", 5*3600+2700))
	d := e.publishEvent(ev, true, ep)[0]
	e.record(e.outcome(d, surehook.Bury))
	now := e.clock.Now()
	got, err := e.s.EventByKey(e.ctx, d.EventKey)
	e.ok(err)
	e.same("occurred", got.OccurredAt, ev.OccurredAt)
	e.same("created", got.CreatedAt, ms(now))
	e.reopen()
	for _, zone := range []*time.Location{time.UTC, time.Local, time.FixedZone("east", 14*3600)} {
		since, until := now.Add(-15*time.Minute).In(zone), now.Add(time.Millisecond).In(zone)
		e.same("last 15 minutes", len(e.events(surehook.EventFilter{Since: since, Until: until})), 1)
		e.same("the 15 before", len(e.events(surehook.EventFilter{Since: since.Add(-15 * time.Minute), Until: since})), 0)
		ls, err := e.s.ListDeadLetters(e.ctx, surehook.DeadLetterFilter{Since: since, Until: until}, surehook.Page{Limit: 10})
		e.ok(err)
		e.same("letters", len(ls), 1)
		bs, err := e.s.Stats(e.ctx, surehook.StatsFilter{Endpoint: ep.Key}, since, until, time.Hour)
		e.ok(err)
		e.same("attempts", bs[0].Attempts, int64(1))
	}
}

func timeGrain(e *env) {
	e.clock.Advance(123_456_789 * time.Nanosecond)
	ep := e.endpoint()
	ev := e.event()
	ev.OccurredAt = e.clock.Now()
	key := e.publishEvent(ev, false, ep)[0].EventKey
	got, err := e.s.EventByKey(e.ctx, key)
	e.ok(err)
	e.same("occurred", got.OccurredAt, ms(e.clock.Now()))
	e.same("due at once", len(e.claim(ep, 10).Rows), 1)
	zero := e.event()
	zero.OccurredAt = time.Time{}
	got, err = e.s.EventByKey(e.ctx, e.append(surehook.Append{Event: zero})[0].EventKey)
	e.ok(err)
	e.same("none is none", got.OccurredAt, time.Time{})
	old := e.event()
	old.OccurredAt = time.Date(1969, 7, 20, 20, 17, 40, 0, time.UTC)
	got, err = e.s.EventByKey(e.ctx, e.append(surehook.Append{Event: old})[0].EventKey)
	e.ok(err)
	e.same("before 1970", got.OccurredAt, old.OccurredAt)
}
