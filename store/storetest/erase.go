package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var eraseTests = map[string]func(*env){
	"Erase/by id: the bytes go, the record stays":          eraseKeys,
	"Erase/ends what is pending, but not what is out":      erasePending,
	"Erase/of a tenant or an identity, in bounded steps":   eraseSelected,
	"Erase/an id stays taken by the same content":          eraseTwin,
	"Erase/what waits for its fan-out is told":             eraseWaits,
	"Erase/what the store refuses goes from the outbox":    eraseRefused,
	"Erase/frees the next one of an ordered endpoint's":    eraseOrdered,
	"Erase/erased events can't be replayed (replay, jobs)": eraseReplay,
}

func (e *env) erase(sel surehook.Erasure, limit int) surehook.Erased {
	e.Helper()
	out, err := e.s.Erase(e.ctx, sel, limit, &surehook.AuditEntry{Actor: "key_1", Action: "event.erase"})
	e.ok(err)
	return out
}

// person makes an event of an identity of a tenant.
func (e *env) person(tenant, identity string) *surehook.Event {
	ev := e.event()
	ev.Tenant, ev.Identity = tenant, identity
	return ev
}

func eraseKeys(e *env) {
	ep := e.endpoint()
	d, other := e.publish(true, ep)[0], e.publish(true, ep)[0]
	o := e.outcome(d, surehook.Bury)
	o.Attempt.Response, o.Attempt.Error = []byte("it said: secret"), "500"
	e.record(o, e.outcome(other, surehook.Finish))
	before, err := e.s.EventByKey(e.ctx, d.EventKey)
	e.ok(err)
	e.same("erased", e.erase(surehook.Erasure{Keys: []int64{d.EventKey}}, 10), surehook.Erased{Events: 1})
	got, err := e.s.EventByKey(e.ctx, d.EventKey)
	e.ok(err)
	before.Data, before.Erased = nil, true
	e.same("all but the data stays", got, before)
	as := e.attempts(d)
	e.same("attempts", len(as), 1)
	e.same("attempt", []any{as[0].Code, as[0].Error, string(as[0].Response)}, []any{surehook.Status5xx, "500", ""})
	e.same("letters", len(e.letters()), 1)
	left, err := e.s.EventByKey(e.ctx, other.EventKey)
	e.ok(err)
	e.same("the other", string(left.Data), `{"n":1}`)
	e.same("again", e.erase(surehook.Erasure{Keys: []int64{d.EventKey}}, 10), surehook.Erased{})
	gone, err := e.s.ErasedAmong(e.ctx, []int64{d.EventKey, other.EventKey, 1 << 50})
	e.ok(err)
	e.same("erased among", gone, []int64{d.EventKey, 1 << 50})
	audit, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 1})
	e.ok(err)
	e.same("told", audit[0].Action, "event.erase")
	e.ok(e.s.Scrub(e.ctx))
}

func erasePending(e *env) {
	a, b, c := e.endpoint(), e.endpoint(), e.endpoint()
	ds := e.publish(false, a, b, c)
	out := e.claimOne(a)
	o := e.outcome(e.claimOne(b), surehook.Again)
	e.record(o)
	e.same("erased", e.erase(surehook.Erasure{Keys: []int64{ds[0].EventKey}}, 10), surehook.Erased{Events: 1, Deliveries: 2})
	for i, n := range []int{0, 2, 1} {
		as := e.attempts(ds[i])
		e.same("attempts", len(as), n)
		if n > 0 {
			e.same("the last", []any{as[0].Status, as[0].Code, as[0].Number}, []any{surehook.AttemptDead, surehook.EventUnavailable, n})
			e.same("status", e.view(ds[i]).Status, surehook.Dead)
		}
	}
	e.same("what is out", e.pending(), surehook.PendingCount{Owned: 1})
	again := e.outcome(out, surehook.Again)
	e.record(again) // it was on the wire, and failed
	e.clock.Advance(time.Hour)
	got := e.claim(a, 1)
	e.same("claimed again", len(got.Rows), 1)
	e.same("without its data", []any{got.Rows[0].Event.Erased, string(got.Rows[0].Event.Data)}, []any{true, ""})
}

func eraseSelected(e *env) {
	ep := e.endpoint()
	var ann, bob, other []int64
	for range 7 {
		ann = append(ann, e.publishEvent(e.person("acme", "ann"), false, ep)[0].EventKey)
		bob = append(bob, e.publishEvent(e.person("acme", "bob"), false, ep)[0].EventKey)
		other = append(other, e.publishEvent(e.person("solo", "ann"), false, ep)[0].EventKey, e.publishEvent(e.person("", "ann"), false, ep)[0].EventKey)
	}
	all := func(sel surehook.Erasure) (sum surehook.Erased) {
		for range 100 {
			step := e.erase(sel, 3)
			if step.Events > 3 {
				e.Fatalf("one step erased %d", step.Events)
			}
			sum.Events, sum.Deliveries = sum.Events+step.Events, sum.Deliveries+step.Deliveries
			if sel.After = step.Next; step.Next == 0 {
				return sum
			}
		}
		e.Fatal("no end")
		return sum
	}
	erased := func() int {
		gone, err := e.s.ErasedAmong(e.ctx, append(append(append([]int64{}, ann...), bob...), other...))
		e.ok(err)
		return len(gone)
	}
	e.same("an identity", all(surehook.Erasure{Tenant: "acme", Identity: "ann"}), surehook.Erased{Events: 7, Deliveries: 7})
	e.same("of all", erased(), 7)
	e.same("an identity without a tenant", all(surehook.Erasure{Identity: "ann"}), surehook.Erased{Events: 7, Deliveries: 7})
	e.same("the rest of the tenant", all(surehook.Erasure{Tenant: "acme"}), surehook.Erased{Events: 7, Deliveries: 7})
	e.same("of all", erased(), 21)
	e.same("rows", e.pending().Due, int64(7))
}

func eraseTwin(e *env) {
	ev := e.event()
	key := e.append(surehook.Append{Event: ev})[0].EventKey
	e.erase(surehook.Erasure{Keys: []int64{key}}, 1)
	again := &surehook.Event{ID: ev.ID, Type: ev.Type, OccurredAt: ev.OccurredAt, Data: []byte(`{"n":1}`)}
	out := e.append(surehook.Append{Event: again})[0]
	e.same("a repeat", []any{out.Duplicate, out.EventKey}, []any{true, key})
	again.Data = []byte(`2`)
	e.code(e.append(surehook.Append{Event: again})[0].Err, surehook.Conflict)
}

func eraseWaits(e *env) {
	ev := e.person("acme", "ann")
	e.enqueue(ev)
	count := func(sel surehook.Erasure, ids ...string) int {
		n, _, err := e.s.ErasureWaits(e.ctx, sel, ids, 0)
		e.ok(err)
		return n
	}
	e.same("by tenant", count(surehook.Erasure{Tenant: "acme"}), 1)
	e.same("by identity", count(surehook.Erasure{Tenant: "acme", Identity: "ann"}), 1)
	e.same("another identity", count(surehook.Erasure{Tenant: "acme", Identity: "bob"}), 0)
	e.same("by id", count(surehook.Erasure{}, ev.ID, "evt_x"), 1)
	e.same("another id", count(surehook.Erasure{}, "evt_x"), 0)
	n, last, err := e.s.ErasureWaits(e.ctx, surehook.Erasure{Tenant: "acme"}, nil, 0)
	e.ok(err)
	e.same("waits", n, 1)
	e.fanOut()
	e.enqueue(e.person("acme", "ann"))
	n, _, err = e.s.ErasureWaits(e.ctx, surehook.Erasure{Tenant: "acme"}, nil, last)
	e.ok(err)
	e.same("what came after isn't waited for", n, 0)
}

func eraseRefused(e *env) {
	ann, bob, other, waits := e.person("acme", "ann"), e.person("acme", "bob"), e.person("solo", "ann"), e.person("acme", "ann")
	for _, ev := range []*surehook.Event{ann, bob, other, waits} {
		e.enqueue(ev)
	}
	var put []surehook.PutOff
	for _, o := range e.waiting() {
		if o.Event.ID != waits.ID {
			put = append(put, surehook.PutOff{ID: o.ID, Wait: time.Minute})
		}
	}
	e.ok(e.s.PutOff(e.ctx, put))
	erase := func(sel surehook.Erasure, limit int, ids ...string) []string {
		gone, err := e.s.EraseRefused(e.ctx, sel, ids, limit, &surehook.AuditEntry{Actor: "key_1", Action: "event.erase"})
		e.ok(err)
		return gone
	}
	e.same("of nobody", len(erase(surehook.Erasure{Tenant: "nobody"}, 10)), 0)
	e.same("another tenant's id", len(erase(surehook.Erasure{Tenant: "solo"}, 10, bob.ID)), 0)
	e.same("what isn't refused", len(erase(surehook.Erasure{}, 10, waits.ID)), 0)
	audit := e.ofEvents()
	e.same("nothing, and nothing is told", len(audit), 0)
	e.same("by id, whichever tenant's", erase(surehook.Erasure{}, 10, other.ID, "evt_x"), []string{other.ID})
	e.same("of an identity", erase(surehook.Erasure{Tenant: "acme", Identity: "ann"}, 10), []string{ann.ID})
	e.same("of a tenant", erase(surehook.Erasure{Tenant: "acme"}, 1), []string{bob.ID})
	e.clock.Advance(time.Hour)
	left := e.waiting()
	e.same("left", []any{len(left), left[0].Event.ID}, []any{1, waits.ID})
	audit = e.ofEvents()
	e.same("told", []any{len(audit), audit[0].Action}, []any{3, "event.erase"})
	// A fan-out that has read one before finds it gone.
	out := e.append(surehook.Append{Event: ann, Outbox: put[0].ID})[0]
	e.same("no fan-out", []any{out.Duplicate, out.EventKey}, []any{true, int64(0)})
}

func eraseOrdered(e *env) {
	ep := e.endpoint(func(ep *surehook.Endpoint) { ep.Ordered = true })
	first := e.publishEvent(e.owned("acme", "o"), false, ep)[0]
	second := e.publishEvent(e.owned("acme", "o"), false, ep)[0]
	out := e.claimOne(ep) // and the second is parked
	e.same("only the first", out.EventKey, first.EventKey)
	again := e.outcome(out, surehook.Again)
	again.Wait = time.Hour
	e.record(again)
	e.same("it blocks", len(e.claim(ep, 10).Rows), 0)
	e.erase(surehook.Erasure{Keys: []int64{first.EventKey}}, 1)
	e.same("then the second", e.claimOne(ep).EventKey, second.EventKey)
}

func eraseReplay(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	e.record(e.outcome(d, surehook.Bury))
	e.erase(surehook.Erasure{Keys: []int64{d.EventKey}}, 1)
	_, err := e.s.Replay(e.ctx, ep.Key, []int64{d.EventKey}, nil)
	e.code(err, surehook.Conflict)
	for _, status := range []string{"", "dead"} {
		e.same("found for a replay", len(e.replayable(ep, status)), 0)
	}
}
