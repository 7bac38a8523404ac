package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var orderTests = map[string]func(*env){
	"Order/one at a time, in sequence, of each owner":          orderKept,
	"Order/a head that waits blocks, one that is dead doesn't": orderRetry,
	"Order/events without an owner go as they come":            orderNoOwner,
	"Order/it holds at each endpoint by itself":                orderByEndpoint,
	"Order/a crash frees the head, and it stays the head":      orderCrash,
	"Order/given up after crashes, the next one goes":          orderCrashed,
	"Order/a suspect blocks its own sequence alone":            orderSuspect,
	"Order/a release keeps the place":                          orderRelease,
	"Order/a late success lets the next one go":                orderLate,
	"Order/a replay has its old place":                         orderReplay,
	"Order/a replay waits for one that is out":                 orderReplayBehind,
	"Order/a disabled endpoint ends them all":                  orderEnd,
	"Order/what waits isn't due, and is shown as pending":      orderShown,
	"Order/a deleted endpoint leaves none":                     orderDeleted,
	"Order/an endpoint that becomes ordered":                   orderOn,
	"Order/an endpoint that is ordered no more":                orderOff,
	"Order/an endpoint keeps it":                               orderStored,
}

func (e *env) orderedEndpoint() *surehook.Endpoint {
	e.Helper()
	return e.endpoint(func(ep *surehook.Endpoint) { ep.Ordered = true })
}

// ordered publishes n events of an owner, a second apart.
func (e *env) ordered(owner string, n int, eps ...*surehook.Endpoint) []surehook.Delivery {
	e.Helper()
	var out []surehook.Delivery
	for range n {
		ev := e.event()
		ev.Owner = owner
		if owner != "" {
			e.sequences[owner]++
			ev.Sequence = e.sequences[owner]
		}
		out = append(out, e.publishEvent(ev, false, eps...)...)
		e.clock.Advance(time.Second)
	}
	return out
}

// heads claims until no more rows are due.
func (e *env) heads(ep *surehook.Endpoint) []surehook.Delivery {
	e.Helper()
	var out []surehook.Delivery
	for range 100 {
		c := e.claim(ep, 3)
		for _, r := range c.Rows {
			out = append(out, r.Delivery)
		}
		if !c.More {
			return out
		}
	}
	e.Fatal("no end of rows that are due")
	return nil
}

// head expects the row to be the one that is claimed.
func (e *env) head(what string, ep *surehook.Endpoint, want surehook.Delivery) surehook.Delivery {
	e.Helper()
	got := e.heads(ep)
	e.same(what, ids(got), ids([]surehook.Delivery{want}))
	return got[0]
}

func (e *env) noHead(what string, ep *surehook.Endpoint) {
	e.Helper()
	e.same(what, len(e.heads(ep)), 0)
}

// ids are the rows' events.
func ids(ds []surehook.Delivery) []int64 {
	var out []int64
	for _, d := range ds {
		out = append(out, d.EventKey)
	}
	return out
}

func orderKept(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 5, ep)
	b := e.ordered("b", 5, ep)
	for i := range 5 {
		got := e.heads(ep)
		e.same("the first of each", ids(got), ids([]surehook.Delivery{a[i], b[i]}))
		e.noHead("no second one", ep)
		e.record(e.outcome(got[1], surehook.Finish), e.outcome(got[0], surehook.Finish))
	}
	e.same("left", e.pending(), surehook.PendingCount{})
}

func orderRetry(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 3, ep)
	again := e.outcome(e.head("first", ep, a[0]), surehook.Again)
	again.Wait = time.Hour
	due := ms(e.clock.Now().Add(again.Wait))
	e.record(again)
	c := e.claim(ep, 10)
	e.same("while it waits", []any{len(c.Rows), c.More, c.Next}, []any{0, false, due})
	e.clock.Advance(time.Hour)
	e.record(e.outcome(e.head("its retry", ep, a[0]), surehook.Bury))
	e.record(e.outcome(e.head("after its end", ep, a[1]), surehook.Finish))
	e.record(e.outcome(e.head("and on", ep, a[2]), surehook.Finish))
}

func orderNoOwner(e *env) {
	ep := e.orderedEndpoint()
	e.ordered("", 4, ep)
	e.same("all", len(e.heads(ep)), 4)
}

func orderByEndpoint(e *env) {
	one, two, free := e.orderedEndpoint(), e.orderedEndpoint(), e.endpoint()
	ds := e.ordered("a", 2, one, two, free)
	first := e.head("at one", one, ds[0])
	e.record(e.outcome(first, surehook.Finish))
	e.head("next at one", one, ds[3])
	e.head("still the first at the other", two, ds[1])
	e.same("all where there is no order", len(e.heads(free)), 2)
}

func orderCrash(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 3, ep)
	for lost := range 2 {
		e.same("lost", e.head("the head", ep, a[0]).Lost, lost)
		e.noHead("the others wait", ep)
		e.reopen()
	}
	e.record(e.outcome(e.head("the head", ep, a[0]), surehook.Finish))
	e.reopen()
	e.head("the next", ep, a[1])
}

func orderCrashed(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 3, ep)
	for range lostDead {
		e.head("the head", ep, a[0])
		e.reopen()
	}
	e.head("it was given up", ep, a[1])
	e.same("letters", len(e.letters()), 1)
}

func orderSuspect(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 2, ep)
	for range lostAlone {
		e.head("the head", ep, a[0])
		e.reopen()
	}
	b := e.ordered("b", 2, ep)
	got := e.heads(ep)
	e.same("a suspect, and others' heads", ids(got), ids([]surehook.Delivery{a[0], b[0]}))
	e.record(e.outcome(got[0], surehook.Finish))
	e.head("behind it", ep, a[1])
}

func orderRelease(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 2, ep)
	for range 3 {
		d := e.head("the head", ep, a[0])
		e.noHead("nothing else", ep)
		e.record(e.outcome(d, surehook.Release))
	}
	e.head("the head", ep, a[0])
}

// A success counts whoever holds the row by now.
func orderLate(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 3, ep)
	d := e.head("the head", ep, a[0])
	e.reopen()
	e.head("again", ep, a[0])
	e.noHead("the others wait", ep)
	e.record(e.outcome(d, surehook.Finish))
	e.head("the next", ep, a[1])
}

func orderReplay(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 5, ep)
	e.record(e.outcome(e.head("first", ep, a[0]), surehook.Finish))
	e.record(e.outcome(e.head("second", ep, a[1]), surehook.Bury))
	again := e.outcome(e.head("third", ep, a[2]), surehook.Again)
	e.record(again)
	e.noHead("it waits", ep)
	e.replay(ep, a[1].EventKey, a[0].EventKey, a[3].EventKey) // one that succeeded, one that is dead, one that waits
	e.same("letters", len(e.letters()), 0)
	e.clock.Advance(again.Wait)
	for i := range a {
		e.record(e.outcome(e.head("in their order", ep, a[i]), surehook.Finish))
	}
	e.same("left", e.pending(), surehook.PendingCount{})
}

// However the one that is out comes back, the replayed one before it goes next.
func orderReplayBehind(e *env) {
	for what, back := range map[string]func(*surehook.Endpoint, surehook.Delivery){
		"finish":  func(_ *surehook.Endpoint, d surehook.Delivery) { e.record(e.outcome(d, surehook.Finish)) },
		"again":   func(_ *surehook.Endpoint, d surehook.Delivery) { e.record(e.outcome(d, surehook.Again)) },
		"bury":    func(_ *surehook.Endpoint, d surehook.Delivery) { e.record(e.outcome(d, surehook.Bury)) },
		"release": func(_ *surehook.Endpoint, d surehook.Delivery) { e.record(e.outcome(d, surehook.Release)) },
		"crash":   func(*surehook.Endpoint, surehook.Delivery) { e.reopen() },
	} {
		ep := e.orderedEndpoint()
		a := e.ordered(what, 2, ep)
		e.record(e.outcome(e.head(what+": first", ep, a[0]), surehook.Finish))
		out := e.head(what+": second", ep, a[1])
		e.replay(ep, a[0].EventKey)
		e.noHead(what+": one is out", ep)
		e.noHead(what+": one is out", ep)
		back(ep, out)
		e.head(what+": the replay", ep, a[0])
		e.noHead(what+": the other one waits", ep)
	}
}

func orderEnd(e *env) {
	ep := e.orderedEndpoint()
	e.ordered("a", 30, ep)
	b := e.ordered("b", 5, ep)
	c := e.ordered("c", 5, ep)
	heads := e.heads(ep)
	again := e.outcome(heads[1], surehook.Again) // b's
	again.Wait = time.Hour
	e.record(e.outcome(heads[0], surehook.Finish), again) // c's is out
	e.enable(ep, false)
	total := 0
	for range 20 {
		n, err := e.s.End(e.ctx, ep.Key, surehook.EndpointDisabled, true, true, 7)
		e.ok(err)
		if total += n; n < 7 {
			break
		}
	}
	e.same("ended of those that are due, and what waited for them", total, 29)
	e.same("left", e.pending(), surehook.PendingCount{Owned: 1, Waiting: 9})
	e.record(e.outcome(heads[2], surehook.Bury))
	n, err := e.s.End(e.ctx, ep.Key, surehook.EndpointDisabled, true, true, 100)
	e.ok(err)
	e.same("ended behind the one that was out", n, len(c)-1)
	e.enable(ep, true)
	e.clock.Advance(time.Hour)
	for i := range b {
		e.record(e.outcome(e.head("of an endpoint that is back", ep, b[i]), surehook.Finish))
	}
}

func orderShown(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 3, ep)
	e.head("the head", ep, a[0])
	e.same("count", e.pending(), surehook.PendingCount{Owned: 1, Waiting: 2})
	due, err := e.s.Due(e.ctx)
	e.ok(err)
	e.same("due", len(due), 0)
	v := e.view(a[1])
	e.same("view", []any{v.Status, v.NextAttemptAt}, []any{surehook.Pending, time.Time{}})
	ds, err := e.s.ListDeliveries(e.ctx, surehook.DeliveryFilter{Endpoint: ep.Key, Status: surehook.Pending}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("listed", len(ds), 3)
	e.same("next", e.claim(ep, 10).Next, time.Time{})
}

func orderDeleted(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 10, ep)
	d := e.head("the head", ep, a[0])
	e.ok(e.s.DeleteEndpoint(e.ctx, ep.ID, nil))
	n, err := e.s.End(e.ctx, ep.Key, surehook.EndpointDisabled, false, false, 100)
	e.ok(err)
	e.same("ended", n, 9)
	e.record(e.outcome(d, surehook.Release))
	n, err = e.s.End(e.ctx, ep.Key, surehook.EndpointDisabled, false, false, 100)
	e.ok(err)
	e.same("ended", n, 1)
	e.same("left", e.pending(), surehook.PendingCount{})
}

// What is there already is in no sequence; what comes is.
func orderOn(e *env) {
	ep := e.endpoint()
	before := e.ordered("a", 2, ep)
	e.order(ep, true)
	after := e.ordered("a", 2, ep)
	e.same("heads", ids(e.heads(ep)), ids([]surehook.Delivery{before[0], before[1], after[0]}))
}

func orderOff(e *env) {
	ep := e.orderedEndpoint()
	a := e.ordered("a", 4, ep)
	e.head("the head", ep, a[0])
	e.noHead("the others are parked", ep)
	e.order(ep, false)
	e.same("due", e.pending().Due, int64(3))
	e.same("the others", len(e.heads(ep)), 3)
	b := e.ordered("a", 2, ep)
	e.same("new ones", ids(e.heads(ep)), ids(b))
}

func orderStored(e *env) {
	ep := e.orderedEndpoint()
	e.same("made", e.reload(ep).Ordered, true)
	e.enable(ep, false)
	e.same("kept", e.reload(ep).Ordered, true)
	e.order(ep, false)
	e.same("changed", e.reload(ep).Ordered, false)
	all, _, err := e.s.Changes(e.ctx, 0)
	e.ok(err)
	e.same("among the changes", all[0].Ordered, false)
	e.same("default", e.reload(e.endpoint()).Ordered, false)
}
