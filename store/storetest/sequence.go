package storetest

import (
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/surehook/surehook"
)

var sequenceTests = map[string]func(*env){
	"Sequence/per tenant and owner, from 1, without gaps": sequenceOwners,
	"Sequence/what is refused or repeated takes none":     sequenceRepeats,
	"Sequence/goes on after a new start":                  sequenceReopen,
	"Sequence/never goes back, when events go":            sequencePrune,
	"Sequence/many at once leave no gap":                  sequenceMany,
	"Sequence/the API waits behind the outbox":            sequenceOutbox,
	"Sequence/while one waits, ids are the same":          sequenceWaiting,
	"Outbox/younger endpoints don't get it":               outboxNotFor,
	"Outbox/other content is refused and audited":         outboxConflict,
	"Outbox/the same twice is one":                        outboxTwice,
	"Outbox/what is put off waits, and no other does":     outboxPutOff,
}

// owned makes an event of an owner.
func (e *env) owned(tenant, owner string) *surehook.Event {
	ev := e.event()
	ev.Tenant, ev.Owner = tenant, owner
	return ev
}

// stored gives an event's sequence as the store has it, which must be the one
// that the caller was told.
func (e *env) stored(ev *surehook.Event) int64 {
	e.Helper()
	got, err := e.s.EventByKey(e.ctx, ev.Key)
	e.ok(err)
	e.same("sequence told and stored", got.Sequence, ev.Sequence)
	return got.Sequence
}

// enqueue puts events into the outbox as a caller's transaction would: in the one
// way that all stores have, which is that of webhook.disabled.
func (e *env) enqueue(events ...*surehook.Event) {
	e.Helper()
	for _, ev := range events {
		ep := e.endpoint()
		o := e.outcome(e.publish(true, ep)[0], surehook.Bury)
		o.Attempt.Code = surehook.Status410
		e.recordWith(surehook.HealthRule{Gone: true, Disabled: func(*surehook.Endpoint, string, *surehook.Attempt) *surehook.Event { return ev }}, o)
	}
}

func (e *env) waiting() []surehook.OutboxEvent {
	e.Helper()
	out, err := e.s.Outbox(e.ctx, 1000)
	e.ok(err)
	return out
}

// fanOut takes all events out of the outbox.
func (e *env) fanOut() (events []*surehook.Event, out []surehook.Appended) {
	e.Helper()
	var items []surehook.Append
	for _, w := range e.waiting() {
		items = append(items, surehook.Append{Event: w.Event, Outbox: w.ID})
		events = append(events, w.Event)
	}
	if len(items) == 0 {
		return nil, nil
	}
	return events, e.append(items...)
}

func sequencePrune(e *env) {
	for want := range int64(3) {
		ev := e.owned("t", "o")
		e.append(surehook.Append{Event: ev})
		e.same("sequence", e.stored(ev), want+1)
		e.clock.Advance(40 * days)
		e.same("removed", e.prune(10), int64(1))
	}
}

func sequenceOwners(e *env) {
	want := make(map[[2]string]int64)
	for range 3 { // batches
		var events []*surehook.Event
		var items []surehook.Append
		for _, o := range [][2]string{{"", "a"}, {"t", "a"}, {"t", "a"}, {"", "b"}, {"", ""}, {"t", ""}, {"", "a"}} {
			ev := e.owned(o[0], o[1])
			ev.Sequence = 41 // not the caller's to say
			events, items = append(events, ev), append(items, surehook.Append{Event: ev})
		}
		e.append(items...)
		for _, ev := range events {
			o := [2]string{ev.Tenant, ev.Owner}
			if ev.Owner != "" {
				want[o]++
			}
			e.same(fmt.Sprint("sequence of ", o), e.stored(ev), want[o])
		}
	}
}

func sequenceRepeats(e *env) {
	first, again, other, second := e.owned("", "o"), e.owned("", "o"), e.owned("", "o"), e.owned("", "o")
	again.ID, other.ID, other.Data = first.ID, first.ID, []byte(`2`)
	out := e.append(surehook.Append{Event: first}, surehook.Append{Event: again}, surehook.Append{Event: other}, surehook.Append{Event: second})
	e.same("a repeat", out[1].Duplicate, true)
	e.code(out[2].Err, surehook.Conflict)
	e.same("the first", e.stored(first), int64(1))
	e.same("the second", e.stored(second), int64(2))
	again.Sequence, again.Key = 0, 0
	e.same("a repeat later", e.append(surehook.Append{Event: again})[0].Duplicate, true)
	third := e.owned("", "o")
	e.append(surehook.Append{Event: third})
	e.same("the third", e.stored(third), int64(3))
}

func sequenceReopen(e *env) {
	for want := int64(1); want <= 3; want++ {
		ev := e.owned("t", "o")
		e.append(surehook.Append{Event: ev})
		e.same("sequence", e.stored(ev), want)
		e.reopen()
	}
}

func sequenceMany(e *env) {
	const callers, each, owners = 16, 15, 3
	v := e.version()
	var mu sync.Mutex
	got := make(map[string][]int64)
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			last := make(map[string]int64)
			for j := range each {
				// Owners in another order for each caller: none may wait for another for ever.
				var items []surehook.Append
				for k := range owners {
					items = append(items, surehook.Append{Event: &surehook.Event{ID: fmt.Sprintf("e-%d-%d-%d", i, j, k), Type: "a.b",
						Owner: strconv.Itoa((i + j + k) % owners), Data: []byte(`1`), OccurredAt: e.clock.Now()}})
				}
				if i%4 == 0 {
					items[1].Event.ID = "e-same" // of all owners: one gets it
				}
				out, err := e.s.Append(e.ctx, v, items)
				if err != nil {
					e.Error(err)
					return
				}
				mu.Lock()
				for k, a := range out {
					ev := items[k].Event
					if a.Err != nil || a.Duplicate {
						continue
					}
					got[ev.Owner] = append(got[ev.Owner], ev.Sequence)
					if ev.Sequence <= last[ev.Owner] {
						e.Errorf("owner %s: %d after %d", ev.Owner, ev.Sequence, last[ev.Owner])
					}
					last[ev.Owner] = ev.Sequence
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for owner, all := range got {
		slices.Sort(all)
		for i, n := range all {
			if n != int64(i+1) {
				e.Fatalf("owner %s: place %d has %d", owner, i+1, n)
			}
		}
	}
}

func sequenceOutbox(e *env) {
	x, y, z, other := e.owned("t", "o"), e.owned("t", "o"), e.owned("t", "o"), e.owned("", "o")
	ep := e.endpoint()
	e.enqueue(x)
	to := []surehook.Target{{EndpointKey: ep.Key}}
	out := e.append(surehook.Append{Event: y, Targets: to}, surehook.Append{Event: other, Targets: to})
	e.same("behind the outbox", out[0], surehook.Appended{Queued: true})
	e.same("another owner", len(out[1].Deliveries), 1)
	e.same("another owner's sequence", e.stored(other), int64(1))
	events, appended := e.fanOut()
	e.same("fanned out", len(events), 2)
	for i, want := range []*surehook.Event{x, y} {
		e.ok(appended[i].Err)
		e.same("order", events[i].ID, want.ID)
		e.same("sequence", e.stored(events[i]), int64(i+1))
	}
	out = e.append(surehook.Append{Event: z, Targets: to})
	e.same("nothing waits any more", len(out[0].Deliveries), 1)
	e.same("sequence", e.stored(z), int64(3))
}

func sequenceWaiting(e *env) {
	there, x, y := e.owned("", "o"), e.owned("", "o"), e.owned("", "o")
	e.append(surehook.Append{Event: there})
	e.enqueue(x)
	e.same("new", e.append(surehook.Append{Event: y})[0].Queued, true)
	for _, ev := range []*surehook.Event{there, x, y} {
		again := e.owned("", "o")
		again.ID = ev.ID
		out := e.append(surehook.Append{Event: again})[0]
		e.ok(out.Err)
		e.same("the same again", out.Duplicate, true)
		again.Data = []byte(`2`)
		e.code(e.append(surehook.Append{Event: again})[0].Err, surehook.Conflict)
	}
	e.same("waiting", len(e.waiting()), 2)
	if _, out := e.fanOut(); out[0].Err != nil || out[1].Err != nil || out[1].Duplicate {
		e.Fatalf("%+v", out)
	}
}

func outboxNotFor(e *env) {
	older := e.endpoint()
	x, y := e.event(), e.event()
	e.enqueue(x)
	e.clock.Advance(time.Second)
	between := e.endpoint()
	e.enqueue(y)
	younger := e.endpoint()
	w := e.waiting()
	e.same("waiting", len(w), 2)
	not := func(o surehook.OutboxEvent, ep *surehook.Endpoint) bool { return slices.Contains(o.NotFor, ep.Key) }
	e.same("x: the older", not(w[0], older), false)
	e.same("x: the one between", not(w[0], between), true)
	e.same("x: the younger", not(w[0], younger), true)
	e.same("y: the older", not(w[1], older), false)
	e.same("y: the one between", not(w[1], between), false)
	e.same("y: the younger", not(w[1], younger), true)
	e.reopen()
	w = e.waiting()
	e.same("after a new start", []bool{not(w[0], between), not(w[1], between), not(w[1], younger)}, []bool{true, false, true})
}

func outboxConflict(e *env) {
	there, bad, next := e.owned("t", "o"), e.owned("t", "o"), e.owned("t", "o")
	bad.ID, bad.Data = there.ID, []byte(`"other"`)
	e.enqueue(bad, next)
	free := *there  // takes the id by the API meanwhile
	free.Owner = "" // else it would wait behind them, and be refused itself
	e.append(surehook.Append{Event: &free})
	events, out := e.fanOut()
	e.same("fanned out", len(out), 2)
	e.code(out[0].Err, surehook.Conflict)
	e.ok(out[1].Err)
	e.same("nothing waits", len(e.waiting()), 0)
	e.same("the next one's sequence", e.stored(events[1]), int64(1))
	log, err := e.s.ListAudit(e.ctx, "t", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("entries", len(log), 1)
	e.same("entry", []string{log[0].Actor, log[0].Action, log[0].Target}, []string{"system", "event.refused", there.ID})
	got, err := e.s.Event(e.ctx, nil, there.ID)
	e.ok(err)
	e.same("what is stored", string(got.Data), string(there.Data))
	direct := e.owned("t", "o")
	e.same("the owner isn't blocked", e.append(surehook.Append{Event: direct})[0].Queued, false)
	e.same("its sequence", e.stored(direct), int64(2))
}

func outboxTwice(e *env) {
	x := e.owned("", "o")
	e.enqueue(x)
	same := *x
	e.same("by the API, while it waits", e.append(surehook.Append{Event: &same})[0].Duplicate, true)
	e.enqueue(x)
	_, out := e.fanOut()
	e.ok(out[0].Err)
	e.enqueue(x)
	for _, w := range e.waiting() {
		a := e.append(surehook.Append{Event: w.Event, Outbox: w.ID})[0]
		e.ok(a.Err)
		e.same("a repeat", a.Duplicate, true)
		e.same("key", a.EventKey, out[0].EventKey)
	}
	e.same("nothing waits", len(e.waiting()), 0)
	e.same("entries", len(e.ofEvents()), 0)
}

func outboxPutOff(e *env) {
	x, y := e.owned("t", "o"), e.owned("t", "o")
	x.OccurredAt = ms(e.clock.Now().Add(-time.Minute))
	e.enqueue(x, y)
	first := e.waiting()
	e.ok(e.s.PutOff(e.ctx, []surehook.PutOff{{ID: first[0].ID, Wait: 30 * time.Second}, {ID: first[1].ID + 1<<40, Wait: time.Hour}}))
	only := func(what string, refused []int, want ...*surehook.Event) {
		e.Helper()
		got := e.waiting()
		e.same(what, len(got), len(want))
		for i := range got {
			e.same(what, []any{got[i].Event.ID, got[i].Refused}, []any{want[i].ID, refused[i]})
		}
	}
	only("the other alone", []int{0}, y)
	counts, err := e.s.Counts(e.ctx)
	e.ok(err)
	e.same("the oldest counts all the same", counts.Undispatched, x.OccurredAt)
	e.ok(e.s.PutOff(e.ctx, []surehook.PutOff{{ID: first[0].ID, Wait: time.Hour}})) // another node's, which read it before
	e.clock.Advance(30*time.Second - time.Millisecond)
	e.reopen()
	only("until its time", []int{0}, y)
	e.clock.Advance(time.Millisecond)
	only("then it is there again, the oldest", []int{1, 0}, x, y)
	e.ok(e.s.PutOff(e.ctx, []surehook.PutOff{{ID: first[0].ID, Refused: 1, Wait: time.Minute}}))
	_, out := e.fanOut()
	e.ok(out[0].Err)
	e.same("its owner's next goes on", out[0].Duplicate, false)
	z := e.owned("t", "o")
	e.same("and by the API behind it", e.append(surehook.Append{Event: z})[0].Queued, true)
	e.clock.Advance(time.Minute)
	only("at its time", []int{2, 0}, x, z)
	events, out := e.fanOut()
	e.ok(out[0].Err)
	e.same("its place in the sequence", e.stored(events[0]), int64(2))
	counts, err = e.s.Counts(e.ctx)
	e.ok(err)
	e.same("none waits", counts.Undispatched, time.Time{})
}
