package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var queueTests = map[string]func(*env){
	"Claim/oldest due first, up to a limit":     claimOrder,
	"Claim/bounded by bytes, at least one":      claimBytes,
	"Claim/only of enabled endpoints":           claimDisabled,
	"Claim/tells of more and of next":           claimMore,
	"Claim/what was lost often is taken alone":  claimLost,
	"Claim/what was lost too often is given up": claimCrashed,
	"Claim/one suspect is out at a time":        claimSuspects,
	"Claim/a crash loop finds its culprit":      claimCulprit,
	"Claim/one row isn't claimed twice":         claimOnce,
	"Due/each endpoint with its first due time": dueScan,
	"End/only what is due, with letters":        endDue,
	"End/everything, without letters":           endAll,
	"End/up to a limit, never held rows":        endLimit,
	"Crash/a new start frees rows (C-03)":       crashFrees,
	"Pending/counts by state":                   pendingCounts,
}

// free publishes n events with a free row each, a second apart.
func (e *env) free(ep *surehook.Endpoint, n int) []surehook.Delivery {
	e.Helper()
	var out []surehook.Delivery
	for range n {
		out = append(out, e.publish(false, ep)[0])
		e.clock.Advance(time.Second)
	}
	return out
}

func claimed(c surehook.Claim) []int64 {
	var out []int64
	for _, r := range c.Rows {
		out = append(out, r.Delivery.ID)
	}
	return out
}

func claimOrder(e *env) {
	ep, other := e.endpoint(), e.endpoint()
	late := e.publish(true, ep)[0]
	o := e.outcome(late, surehook.Again)
	o.Wait = time.Minute
	e.record(o)
	ds := e.free(ep, 3)
	e.free(other, 2)
	e.clock.Advance(time.Hour)
	c := e.claim(ep, 2)
	e.same("first two", claimed(c), []int64{ds[0].ID, ds[1].ID})
	e.same("more", c.More, true)
	c = e.claim(ep, 10)
	e.same("the rest, by due time", claimed(c), []int64{ds[2].ID, late.ID})
	e.same("more", c.More, false)
	e.same("next", c.Next, time.Time{})
	e.same("the other's are untouched", len(e.claim(other, 10).Rows), 2)
}

func claimBytes(e *env) {
	ep := e.endpoint()
	for range 4 {
		ev := e.event()
		ev.Data = make([]byte, 1000)
		e.publishEvent(ev, false, ep)
		e.clock.Advance(time.Second)
	}
	for _, step := range []struct{ bytes, want int }{{1, 1}, {1500, 2}, {1 << 20, 1}} {
		c, err := e.s.Claim(e.ctx, ep.Key, 10, step.bytes)
		e.ok(err)
		e.same("rows", len(c.Rows), step.want)
	}
}

func claimDisabled(e *env) {
	ep := e.endpoint()
	e.free(ep, 1)
	off := func(ep *surehook.Endpoint) error { ep.Enabled = false; return nil }
	on := func(ep *surehook.Endpoint) error { ep.Enabled = true; return nil }
	_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, off, nil)
	e.ok(err)
	e.same("disabled", e.claim(ep, 10), surehook.Claim{})
	_, err = e.s.UpdateEndpoint(e.ctx, ep.ID, on, nil)
	e.ok(err)
	again := e.claim(ep, 10)
	e.same("enabled again", len(again.Rows), 1)
	e.same("by a newer version", again.Version, e.reload(ep).Version)
	e.free(ep, 1)
	e.ok(e.s.DeleteEndpoint(e.ctx, ep.ID, nil))
	e.same("deleted", e.claim(ep, 10), surehook.Claim{})
	e.same("unknown", e.claim(&surehook.Endpoint{Key: 1 << 40}, 10), surehook.Claim{})
}

func claimMore(e *env) {
	ep := e.endpoint()
	e.same("none at all", e.claim(ep, 10), surehook.Claim{Version: e.reload(ep).Version})
	d := e.publish(true, ep)[0]
	o := e.outcome(d, surehook.Again)
	o.Wait = time.Hour
	e.record(o)
	due := e.clock.Now().Add(time.Hour)
	e.free(ep, 2)
	c := e.claim(ep, 1)
	e.same("more", c.More, true)
	c = e.claim(ep, 1)
	e.same("more", c.More, false)
	e.same("next", c.Next, due)
}

// lose takes a row into crashes.
func (e *env) lose(ep *surehook.Endpoint, times int) {
	e.Helper()
	for range times {
		e.claim(ep, 10)
		e.reopen()
	}
}

func claimLost(e *env) {
	ep := e.endpoint()
	bad := e.publish(true, ep)[0]
	e.reopen()
	e.lose(ep, 2)
	e.clock.Advance(time.Second)
	good := e.free(ep, 2)
	c := e.claim(ep, 10)
	e.same("alone", claimed(c), []int64{bad.ID})
	e.same("lost", c.Rows[0].Delivery.Lost, 3)
	e.same("more", c.More, true)
	e.same("then the others", claimed(e.claim(ep, 10)), []int64{good[0].ID, good[1].ID})
	// Behind others it waits for a claim of its own.
	e.record(e.outcome(c.Rows[0].Delivery, surehook.Release))
	e.clock.Advance(time.Second)
	next := e.free(ep, 1)[0]
	e.replay(ep, bad.EventKey) // due last now
	e.same("without it", claimed(e.claim(ep, 10)), []int64{next.ID})
	e.same("again alone", claimed(e.claim(ep, 10)), []int64{bad.ID})
	again := e.outcome(c.Rows[0].Delivery, surehook.Again)
	again.Wait = 0
	e.record(again)
	e.same("an attempt that came back ends the suspicion", e.claimOne(ep).Lost, 0)
}

// suspects makes two rows suspects of a crash: one at each endpoint.
func (e *env) suspects(a, b *surehook.Endpoint) (ofA, ofB surehook.Delivery) {
	e.Helper()
	rows := e.publish(true, a, b)
	e.reopen()
	for range lostAlone - 1 {
		e.same("held", len(e.claim(a, 10).Rows)+len(e.claim(b, 10).Rows), 2)
		e.reopen()
	}
	return rows[0], rows[1]
}

// A suspect of another endpoint waits until the one that is held comes back;
// nothing else does.
func claimSuspects(e *env) {
	a, b := e.endpoint(), e.endpoint()
	ofA, ofB := e.suspects(a, b)
	held := e.claim(a, 10)
	e.same("a suspect", claimed(held), []int64{ofA.ID})
	now := e.clock.Now()
	c := e.claim(b, 10)
	e.same("the other one", len(c.Rows), 0)
	e.same("more", c.More, false)
	if !c.Next.After(now) || c.Next.After(now.Add(time.Second)) {
		e.Errorf("next is %v from now, want a moment that is at most a second away", c.Next.Sub(now))
	}
	e.clock.Advance(time.Second)
	good := e.free(b, 2)
	c = e.claim(b, 1)
	e.same("rows behind it", claimed(c), []int64{good[0].ID})
	e.same("more", c.More, true)
	c = e.claim(b, 10)
	e.same("rows behind it", claimed(c), []int64{good[1].ID})
	e.same("more", c.More, false)
	again := e.outcome(held.Rows[0].Delivery, surehook.Again) // it didn't crash: it is none any more
	e.record(again)
	c = e.claim(b, 10)
	e.same("its turn", claimed(c), []int64{ofB.ID})
	e.clock.Advance(again.Wait)
	e.same("no suspect has no turn", claimed(e.claim(a, 10)), []int64{ofA.ID})
	e.record(e.outcome(c.Rows[0].Delivery, surehook.Release))
	e.same("freed, its turn again", claimed(e.claim(b, 10)), []int64{ofB.ID})
}

// The process goes down whenever the culprit is out. Rows that were only beside
// it are delivered in the end, though they were lost often enough to be suspects.
func claimCulprit(e *env) {
	var eps []*surehook.Endpoint
	for range 4 {
		eps = append(eps, e.endpoint())
	}
	rows := e.publish(true, eps...)
	e.reopen()
	culprit, done := rows[2].ID, 0
	for round := 0; done < len(rows)-1 || len(e.letters()) == 0; round++ {
		if round > 50 {
			e.Fatalf("no end: %d delivered, letters %v", done, e.letters())
		}
		e.clock.Advance(time.Second)
		var suspects []surehook.Outcome
		crash := false
		for i := range eps {
			for _, r := range e.claim(eps[(i+round)%len(eps)], 10).Rows {
				crash = crash || r.Delivery.ID == culprit
				if r.Delivery.Lost >= lostAlone {
					suspects = append(suspects, e.outcome(r.Delivery, surehook.Finish))
				}
			}
		}
		if crash { // before anything comes back
			e.reopen()
			continue
		}
		e.record(suspects...)
		done += len(suspects)
	}
	ls := e.letters()
	e.same("letters", len(ls), 1)
	e.same("the culprit's", []any{ls[0].EndpointKey, ls[0].Code}, []any{rows[2].EndpointKey, surehook.Crashed})
}

func claimCrashed(e *env) {
	ep := e.endpoint()
	bad := e.publish(true, ep)[0]
	e.reopen()
	e.lose(ep, 7)
	good := e.free(ep, 1)[0]
	c := e.claim(ep, 10)
	e.same("claimed", claimed(c), []int64{good.ID})
	ls := e.letters()
	e.same("letters", len(ls), 1)
	e.same("code", ls[0].Code, surehook.Crashed)
	as := e.attempts(bad)
	e.same("an attempt tells why", len(as), 1)
	e.same("status", as[0].Status, surehook.AttemptDead)
	e.same("code", as[0].Code, surehook.Crashed)
	e.same("view", e.view(bad).Status, surehook.Dead)
	e.same("health", e.reload(ep).Health.ConsecutiveFailures, 0)
}

func claimOnce(e *env) {
	ep := e.endpoint()
	e.free(ep, 20)
	rows := make(chan int64, 40)
	done := make(chan error)
	for range 8 {
		go func() {
			for range 5 {
				c, err := e.s.Claim(e.ctx, ep.Key, 3, 1<<20)
				if err != nil {
					done <- err
					return
				}
				for _, id := range claimed(c) {
					rows <- id
				}
			}
			done <- nil
		}()
	}
	for range 8 {
		e.ok(<-done)
	}
	close(rows)
	seen := make(map[int64]bool)
	for id := range rows {
		if seen[id] {
			e.Errorf("row %d was claimed twice", id)
		}
		seen[id] = true
	}
	e.same("claimed", len(seen), 20)
}

func dueScan(e *env) {
	a, b, c := e.endpoint(), e.endpoint(), e.endpoint()
	first := e.clock.Now()
	e.free(a, 2)
	o := e.outcome(e.publish(true, b)[0], surehook.Again)
	o.Wait = time.Hour
	e.record(o)
	e.publish(true, c)
	got, err := e.s.Due(e.ctx)
	e.ok(err)
	want := map[int64]time.Time{a.Key: ms(first), b.Key: ms(e.clock.Now().Add(time.Hour))}
	e.same("endpoints", len(got), len(want))
	for _, d := range got {
		e.same("first due", d.Due, want[d.EndpointKey])
	}
}

// enable turns an endpoint on or off.
func (e *env) enable(ep *surehook.Endpoint, on bool) {
	e.Helper()
	_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error { ep.Enabled = on; return nil }, nil)
	e.ok(err)
}

func endDue(e *env) {
	ep := e.endpoint()
	due := e.free(ep, 2)
	o := e.outcome(e.publish(true, ep)[0], surehook.Again)
	o.Wait = time.Hour
	e.record(o)
	n, err := e.s.End(e.ctx, ep.Key, surehook.EndpointDisabled, true, true, 100)
	e.ok(err)
	e.same("ended of an enabled endpoint", n, 0) // F-12: it may have been enabled again meanwhile
	e.enable(ep, false)
	n, err = e.s.End(e.ctx, ep.Key, surehook.EndpointDisabled, true, true, 100)
	e.ok(err)
	e.same("ended", n, 2)
	ls := e.letters()
	e.same("letters", len(ls), 2)
	e.same("code", ls[0].Code, surehook.EndpointDisabled)
	e.same("attempts", ls[0].Attempts, 1)
	a := e.attempts(due[0])[0]
	e.same("attempt", []any{a.Status, a.Code, a.Number}, []any{surehook.AttemptDead, surehook.EndpointDisabled, 1})
	e.same("waiting", e.pending().Waiting, int64(1))
	n, err = e.s.End(e.ctx, ep.Key, surehook.EndpointDisabled, false, true, 100)
	e.ok(err)
	e.same("ended", n, 1)
	e.same("attempts before it", e.letters()[0].Attempts, 2)
}

func endAll(e *env) {
	ep := e.endpoint()
	e.free(ep, 2)
	o := e.outcome(e.publish(true, ep)[0], surehook.Again)
	o.Wait = 1000 * time.Hour
	e.record(o)
	e.enable(ep, false)
	n, err := e.s.End(e.ctx, ep.Key, "", false, false, 100)
	e.ok(err)
	e.same("ended", n, 3)
	e.same("letters", len(e.letters()), 0)
	e.same("rows", e.pending(), surehook.PendingCount{})
	e.same("what was tried is kept", len(e.attempts(o.Delivery)), 1)
}

func endLimit(e *env) {
	ep, other := e.endpoint(), e.endpoint()
	e.free(ep, 5)
	e.free(other, 1)
	held := e.publish(true, ep)[0]
	e.enable(ep, false)
	for _, want := range []int{2, 2, 1, 0} {
		n, err := e.s.End(e.ctx, ep.Key, surehook.EndpointDisabled, false, true, 2)
		e.ok(err)
		e.same("ended", n, want)
	}
	e.same("letters", len(e.letters()), 5)
	e.same("the held row", e.pending().Owned, int64(1))
	e.same("the other's", e.pending().Due, int64(1))
	e.record(e.outcome(held, surehook.Finish))
}

func crashFrees(e *env) {
	ep := e.endpoint()
	held := e.publish(true, ep)[0]
	done := e.publish(true, ep)[0]
	o := e.outcome(e.publish(true, ep)[0], surehook.Again)
	e.record(o, e.outcome(done, surehook.Finish))
	before := e.s.Lease().Epoch
	e.reopen()
	if now := e.s.Lease().Epoch; now == before {
		e.Fatal("the epoch is the old one")
	}
	got := e.claimOne(ep)
	e.same("row", got, surehook.Delivery{ID: held.ID, Epoch: e.s.Lease().Epoch, EventKey: held.EventKey, EndpointKey: ep.Key, FirstAttempt: 1, Due: ms(held.Due), Lost: 1})
	e.same("what waits isn't older", e.pending(), surehook.PendingCount{Owned: 1, Waiting: 1})
	e.record(e.outcome(got, surehook.Release))
	e.reopen()
	e.same("a free row isn't lost by a stop", e.claimOne(ep).Lost, 1)
	fresh := e.publish(true, ep)[0]
	if fresh.ID <= o.Delivery.ID || fresh.EventKey <= o.Delivery.ID {
		e.Fatal("keys were given out again")
	}
}

func pendingCounts(e *env) {
	ep := e.endpoint()
	e.publish(true, ep)
	o := e.outcome(e.publish(true, ep)[0], surehook.Again)
	o.Wait = time.Hour
	e.record(o)
	oldest := e.clock.Now()
	e.free(ep, 2)
	e.same("count", e.pending(), surehook.PendingCount{Owned: 1, Due: 2, Waiting: 1, OldestDue: ms(oldest)})
}
