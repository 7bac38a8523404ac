package storetest

import (
	"sync"
	"time"

	"github.com/surehook/surehook"
)

var recordTests = map[string]func(*env){
	"Record/a success ends the delivery":               recordFinish,
	"Record/a failure is due again":                    recordAgain,
	"Record/a final failure becomes a dead letter":     recordBury,
	"Record/a release counts nothing":                  recordRelease,
	"Record/a test's attempt stands alone":             recordNote,
	"Record/keeps every field of an attempt":           recordFields,
	"Record/binary answers (H-02, H-03)":               recordBinary,
	"Record/a late writer changes nothing (C-04)":      recordLate,
	"Record/after a new start the old epoch is late":   recordOldEpoch,
	"Record/a success counts whoever holds the lease":  recordLateSuccess,
	"Record/a success takes the dead letter away":      recordSuccessAfterLetter,
	"Record/one retry for one attempt (G-04)":          recordTwice,
	"Record/a repeated batch changes nothing":          recordRepeat,
	"Record/one bad outcome doesn't hold others up":    recordPoison,
	"Record/many at once":                              recordConcurrent,
	"Record/nothing is nothing":                        func(e *env) { e.same("recorded", e.record(), surehook.Recorded{}) },
	"Record/an ended delivery doesn't come back to us": recordGone,
}

func recordFinish(e *env) {
	d := e.publish(true, e.endpoint())[0]
	e.same("recorded", e.record(e.outcome(d, surehook.Finish)), surehook.Recorded{})
	e.same("rows", e.pending(), surehook.PendingCount{})
	v := e.view(d)
	e.same("status", v.Status, surehook.Succeeded)
	e.same("attempts", v.Attempts, 1)
	e.same("last status", v.LastStatus, 200)
	e.same("last attempt", v.LastAttemptAt, ms(e.clock.Now()))
}

func recordAgain(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	o := e.outcome(d, surehook.Again)
	o.Wait = 90 * time.Second
	e.record(o)
	due := e.clock.Now().Add(o.Wait)
	c := e.claim(ep, 10)
	e.same("nothing is due", len(c.Rows), 0)
	e.same("more", c.More, false)
	e.same("next", c.Next, due)
	v := e.view(d)
	e.same("status", v.Status, surehook.Pending)
	e.same("next attempt", v.NextAttemptAt, due)
	e.same("the attempt tells it", e.attempts(d)[0].NextDue, due)
	e.clock.Advance(o.Wait - time.Millisecond)
	e.same("just before", len(e.claim(ep, 10).Rows), 0)
	e.clock.Advance(time.Millisecond)
	got := e.claimOne(ep)
	e.same("row", got, surehook.Delivery{ID: d.ID, Epoch: e.s.Lease().Epoch, EventKey: d.EventKey, EndpointKey: ep.Key, Attempt: 1, FirstAttempt: 1, Due: due})
	e.record(e.outcome(got, surehook.Finish))
	as := e.attempts(d)
	e.same("attempts", len(as), 2)
	e.same("numbers", []int{as[0].Number, as[1].Number}, []int{2, 1})
	e.same("status", e.view(d).Status, surehook.Succeeded)
}

func recordBury(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	e.record(e.outcome(d, surehook.Bury))
	e.same("rows", e.pending(), surehook.PendingCount{})
	ls := e.letters()
	e.same("letters", len(ls), 1)
	ev, err := e.s.EventByKey(e.ctx, d.EventKey)
	e.ok(err)
	e.same("letter", ls[0], surehook.DeadLetter{Key: ls[0].Key, EventKey: d.EventKey, EndpointKey: ep.Key, EventID: ev.ID, EventType: ev.Type,
		EndpointID: ep.ID, Code: surehook.Status5xx, HTTPStatus: 500, Attempts: 1, CreatedAt: ms(e.clock.Now())})
	got, err := e.s.DeadLetter(e.ctx, ls[0].Key)
	e.ok(err)
	e.same("by key", *got, ls[0])
	e.same("status", e.view(d).Status, surehook.Dead)
}

func recordRelease(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	e.record(e.outcome(d, surehook.Release))
	e.same("attempts", len(e.attempts(d)), 0)
	again := e.claimOne(ep)
	e.same("row", again, surehook.Delivery{ID: d.ID, Epoch: d.Epoch, EventKey: d.EventKey, EndpointKey: ep.Key, FirstAttempt: 1, Due: ms(d.Due)})
}

func recordNote(e *env) {
	ep := e.endpoint()
	ev := e.event()
	ev.Type = surehook.TypeTest
	d := surehook.Delivery{EventKey: e.append(surehook.Append{Event: ev})[0].EventKey, EndpointKey: ep.Key}
	o := e.outcome(d, surehook.Note)
	o.Attempt.Test, o.Attempt.Status, o.Attempt.Code = true, surehook.AttemptFailed, surehook.Timeout
	e.record(o)
	as := e.attempts(d)
	e.same("attempts", len(as), 1)
	e.same("marked", as[0].Test, true)
	e.same("health", e.reload(ep).Health, surehook.Health{})
	vs, err := e.s.EventDeliveries(e.ctx, d.EventKey, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("deliveries", len(vs), 0)
	e.same("rows", e.pending(), surehook.PendingCount{})
}

func recordFields(e *env) {
	ep := e.endpoint()
	ev := e.event()
	d := e.publishEvent(ev, true, ep)[0]
	us := time.Microsecond
	a := &surehook.Attempt{ID: e.attemptID(), EventKey: d.EventKey, EndpointKey: d.EndpointKey, Number: 1, Status: surehook.AttemptFailed,
		Code: surehook.TLS, HTTPStatus: 599, Error: "handshake: ünknown", Response: []byte("no"), CreatedAt: e.clock.Now(), Duration: 21 * us,
		Phases: surehook.Phases{Resolve: us, Connect: 2 * us, TLS: 3 * us, Write: 4 * us, Wait: 5 * us, Read: 6 * us}}
	e.record(surehook.Outcome{Delivery: d, Decision: surehook.Again, Attempt: a, Wait: time.Second, Version: 1})
	got := e.attempts(d)[0]
	want := *a
	want.EventID, want.EventType, want.EndpointID, want.NextDue = ev.ID, ev.Type, ep.ID, e.clock.Now().Add(time.Second)
	e.same("attempt", got, want)
	byEndpoint, err := e.s.EndpointAttempts(e.ctx, ep.Key, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("by endpoint", byEndpoint, []surehook.Attempt{want})
}

func recordBinary(e *env) {
	for _, body := range []string{"ok\x00ok", "\xff\xfe\x80", "\xe2\x82", "caf\xe9", ""} {
		d := e.publish(true, e.endpoint())[0]
		o := e.outcome(d, surehook.Bury)
		o.Attempt.Response, o.Attempt.Error = []byte(body), "no\x00pe \xff"
		e.record(o)
		got := e.attempts(d)
		e.same("attempts", len(got), 1)
		e.same("response", string(got[0].Response), body)
		e.same("status", e.view(d).Status, surehook.Dead)
	}
}

// A sweep or a slow worker that writes after the row went on finds nothing.
func recordLate(e *env) {
	ep := e.endpoint()
	old := e.publish(true, ep)[0]
	e.record(e.outcome(old, surehook.Again))
	e.clock.Advance(time.Hour)
	fresh := e.claimOne(ep)
	for _, decision := range []surehook.Decision{surehook.Again, surehook.Bury} {
		e.same("late", e.record(e.outcome(old, decision)).Late, 1)
		e.same("kept and marked", e.attempts(old)[0].Late, true)
		e.same("not scheduled", e.attempts(old)[0].NextDue, time.Time{})
	}
	e.record(e.outcome(old, surehook.Release))
	e.same("letters", len(e.letters()), 0)
	e.same("still ours", e.pending(), surehook.PendingCount{Owned: 1})
	e.record(e.outcome(fresh, surehook.Finish))
	e.record(e.outcome(old, surehook.Again))
	e.same("delivered stays delivered", e.view(old).Status, surehook.Succeeded)
	e.same("rows", e.pending(), surehook.PendingCount{})
}

func recordOldEpoch(e *env) {
	ep := e.endpoint()
	old := e.publish(true, ep)[0]
	e.reopen()
	e.same("late", e.record(e.outcome(old, surehook.Again)).Late, 1)
	d := e.claimOne(ep)
	e.same("attempt", d.Attempt, 0)
	e.same("late while another holds it", e.record(e.outcome(old, surehook.Bury)).Late, 1)
	e.same("letters", len(e.letters()), 0)
	e.record(e.outcome(d, surehook.Finish))
}

func recordLateSuccess(e *env) {
	ep := e.endpoint()
	old := e.publish(true, ep)[0]
	e.reopen()
	e.same("late", e.record(e.outcome(old, surehook.Finish)).Late, 0)
	e.same("rows", e.pending(), surehook.PendingCount{})
	e.same("nothing to claim", len(e.claim(ep, 10).Rows), 0)
	e.same("status", e.view(old).Status, surehook.Succeeded)
}

func recordSuccessAfterLetter(e *env) {
	ep := e.endpoint()
	old := e.publish(true, ep)[0]
	e.reopen()
	d := e.claimOne(ep)
	e.record(e.outcome(d, surehook.Bury))
	e.same("letters", len(e.letters()), 1)
	e.record(e.outcome(old, surehook.Finish))
	e.same("letters after the success", len(e.letters()), 0)
	e.same("status", e.view(old).Status, surehook.Succeeded)
}

func recordTwice(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	r := e.record(e.outcome(d, surehook.Again), e.outcome(d, surehook.Again))
	e.same("late", r.Late, 1)
	e.clock.Advance(time.Hour)
	e.same("attempt", e.claimOne(ep).Attempt, 1)
	e.same("rows", e.pending(), surehook.PendingCount{Owned: 1})
}

func recordRepeat(e *env) {
	ep := e.endpoint()
	var batch []surehook.Outcome
	for _, decision := range []surehook.Decision{surehook.Finish, surehook.Again, surehook.Bury, surehook.Release} {
		batch = append(batch, e.outcome(e.publish(true, ep)[0], decision))
	}
	rule := surehook.HealthRule{After: 3}
	e.recordWith(rule, batch...)
	health, count, letters := e.reload(ep).Health, e.pending(), e.letters()
	for range 2 {
		e.same("recorded again", e.recordWith(rule, batch...), surehook.Recorded{})
	}
	after := e.reload(ep)
	e.same("health", after.Health, health)
	e.same("enabled", after.Enabled, true)
	e.same("rows", e.pending(), count)
	e.same("letters", e.letters(), letters)
	as, err := e.s.EndpointAttempts(e.ctx, ep.Key, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("attempts", len(as), 3)
	e.same("failures", health.ConsecutiveFailures, 2)
}

// What can't be stored as it is must not keep its row, or the row would be
// sent again, nor its neighbours.
func recordPoison(e *env) {
	ep := e.endpoint()
	a, b, c := e.publish(true, ep)[0], e.publish(true, ep)[0], e.publish(true, ep)[0]
	bad := e.outcome(b, surehook.Bury)
	bad.Attempt.ID = "no id at all"
	e.record(e.outcome(a, surehook.Finish), bad, e.outcome(c, surehook.Finish))
	e.same("rows", e.pending(), surehook.PendingCount{})
	for _, d := range []surehook.Delivery{a, b, c} {
		e.same("attempts", len(e.attempts(d)), 1)
	}
	e.same("the bad one", e.view(b).Status, surehook.Dead)
}

func recordConcurrent(e *env) {
	ep := e.endpoint()
	var wg sync.WaitGroup
	for range 64 {
		o := e.outcome(e.publish(true, ep)[0], surehook.Finish)
		wg.Go(func() {
			if _, err := e.s.Record(e.ctx, []surehook.Outcome{o}, nil); err != nil {
				e.Error(err)
			}
		})
	}
	wg.Wait()
	e.same("rows", e.pending(), surehook.PendingCount{})
}

func recordGone(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	e.record(e.outcome(d, surehook.Finish))
	e.reopen()
	e.same("claimed", len(e.claim(ep, 10).Rows), 0)
	due, err := e.s.Due(e.ctx)
	e.ok(err)
	e.same("due", len(due), 0)
}
