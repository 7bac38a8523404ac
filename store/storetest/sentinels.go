package storetest

import (
	"fmt"
	"sync"
	"time"

	"github.com/surehook/surehook"
)

var sentinelTests = map[string]func(*env){
	"Sentinels/keep every field":                                sentinelFields,
	"Sentinels/are listed by what they are":                     sentinelFilter,
	"Sentinels/a bound counts one kind":                         sentinelLimit,
	"Sentinels/a count is exact":                                sentinelCount,
	"Sentinels/a count is exact when many come at once":         sentinelCountRace,
	"Sentinels/the last event ends them":                        sentinelTerminal,
	"Sentinels/time ends them":                                  sentinelAt,
	"Sentinels/those that are paused, or disabled, get nothing": sentinelPaused,
	"Sentinels/an event is theirs once":                         sentinelOnce,
	"Sentinels/at least the last 1,000 ids are known":           sentinelKnown,
	"Sentinels/a removed one leaves its watch to be cancelled":  sentinelRemoved,
	"Sentinels/an end cancels the watch":                        sentinelCancels,
	"Sentinels/what waits for a removed one ends":               sentinelLetters,
	"Sentinels/an update changes what isn't counted":            sentinelUpdate,
	"Sentinels/a late fan-out is as exact":                      sentinelSight,
	"Sentinels/what became of their events":                     sentinelDeliveries,
}

// sentinel creates one with an endpoint of its own.
func (e *env) sentinel(until surehook.Until, change ...func(*surehook.Sentinel)) *surehook.Endpoint {
	e.Helper()
	n := &surehook.Sentinel{Match: []surehook.Clause{{Subject: "github:o/r*", Types: []string{"a.*"}}}, Until: until, Status: surehook.SentinelActive, Provider: "webhook"}
	for _, f := range change {
		f(n)
	}
	return e.endpoint(func(ep *surehook.Endpoint) { ep.ID, ep.Profile, ep.Sentinel = e.id("sen"), "sentinel", n })
}

// sight publishes an event to sentinels, and gives the answer.
func (e *env) sight(what surehook.Sighting, eps ...*surehook.Endpoint) surehook.Appended {
	e.Helper()
	return e.sightEvent(e.event(), what, eps...)
}

func (e *env) sightEvent(ev *surehook.Event, what surehook.Sighting, eps ...*surehook.Endpoint) surehook.Appended {
	e.Helper()
	out := e.append(surehook.Append{Event: ev, Targets: sighted(what, eps...)})
	e.ok(out[0].Err)
	return out[0]
}

func sighted(what surehook.Sighting, eps ...*surehook.Endpoint) []surehook.Target {
	what.Sentinel = true
	out := make([]surehook.Target, len(eps))
	for i, ep := range eps {
		out[i] = surehook.Target{EndpointKey: ep.Key, Sighting: what}
	}
	return out
}

// took tells which targets' rows were made.
func took(a surehook.Appended) []bool {
	out := make([]bool, len(a.Deliveries))
	for i, d := range a.Deliveries {
		out[i] = d.ID != 0
	}
	return out
}

var (
	forever = surehook.Until{Kind: surehook.UntilNever}
	match   = surehook.Sighting{}
)

func sentinelFields(e *env) {
	ep := e.sentinel(surehook.Until{Kind: surehook.UntilAt, At: e.clock.Now().Add(time.Hour)}, func(n *surehook.Sentinel) {
		n.Match = append(n.Match, surehook.Clause{Subject: `a "b"`}, surehook.Clause{Subject: "ü*", Types: []string{"x", "y*"}})
		n.Provider, n.Watch, n.Group, n.Label, n.Session, n.Principal, n.LastError = "local-gh", `{"etag":"x"}`, "g", "l “q”", "s1", "key_1", "no answer"
		n.Status = surehook.SentinelError
	})
	want := *ep.Sentinel
	want.EndpointKey, want.ID, want.CreatedAt, want.Until.At = ep.Key, ep.ID, ep.CreatedAt, ms(want.Until.At)
	e.same("stored", e.reload(ep).Sentinel, want)
	all, _, err := e.s.Changes(e.ctx, 0)
	e.ok(err)
	e.same("in the configuration", all[0].Sentinel, want)
	e.reopen()
	e.same("after a new start", e.reload(ep).Sentinel, want)
	if plain := e.endpoint(); e.reload(plain).Sentinel != nil {
		e.Fatal("an endpoint without one has one")
	}
}

func sentinelFilter(e *env) {
	plain := e.endpoint()
	a := e.sentinel(forever, func(n *surehook.Sentinel) { n.Provider, n.Group, n.Session = "local-gh", "g", "s" })
	b := e.sentinel(forever)
	for _, c := range []struct {
		f    surehook.EndpointFilter
		want []*surehook.Endpoint
	}{
		{surehook.EndpointFilter{}, []*surehook.Endpoint{b, a, plain}},
		{surehook.EndpointFilter{Kind: surehook.Webhooks}, []*surehook.Endpoint{plain}},
		{surehook.EndpointFilter{Kind: surehook.SentinelsOnly}, []*surehook.Endpoint{b, a}},
		{surehook.EndpointFilter{Kind: surehook.SentinelsOnly, Provider: "local-gh", Group: "g", Session: "s"}, []*surehook.Endpoint{a}},
		{surehook.EndpointFilter{Session: "x"}, nil},
	} {
		got, err := e.s.ListEndpoints(e.ctx, c.f, surehook.Page{Limit: 10})
		e.ok(err)
		var ids, want []string
		for _, ep := range got {
			ids = append(ids, ep.ID)
		}
		for _, ep := range c.want {
			want = append(want, ep.ID)
		}
		e.same(fmt.Sprintf("%+v", c.f), ids, want)
	}
}

func sentinelLimit(e *env) {
	create := func(n *surehook.Sentinel) error {
		return e.s.CreateEndpoint(e.ctx, &surehook.Endpoint{ID: e.id("x"), Tenant: "acme", URL: "https://example.com/", Enabled: true, Sentinel: n}, 2, nil)
	}
	for range 2 {
		e.ok(create(nil))
		e.ok(create(&surehook.Sentinel{Until: forever, Status: surehook.SentinelActive}))
	}
	e.code(create(nil), surehook.LimitReached)
	e.code(create(&surehook.Sentinel{Until: forever, Status: surehook.SentinelActive}), surehook.LimitReached)
}

func sentinelCount(e *env) {
	ep, other := e.sentinel(surehook.Until{Kind: surehook.UntilCount, Count: 3}), e.sentinel(forever)
	plain := e.endpoint()
	targets := append(sighted(match, ep, other), surehook.Target{EndpointKey: plain.Key})
	items := make([]surehook.Append, 5)
	for i := range items {
		items[i] = surehook.Append{Event: e.event(), Targets: targets}
	}
	for i, a := range e.append(items...) {
		e.ok(a.Err)
		e.same(fmt.Sprintf("event %d", i), took(a), []bool{i < 3, true, true})
		if ended := len(a.Ended) == 1 && a.Ended[0] == ep.Key; ended != (i == 2) {
			e.Fatalf("event %d ended %v", i, a.Ended)
		}
	}
	got := e.reload(ep)
	e.same("status", []any{string(got.Sentinel.Status), string(got.Sentinel.Ended), got.Sentinel.Events, got.Enabled}, []any{"expired", "count", int64(3), true})
	e.same("of the other", e.reload(other).Sentinel.Events, int64(5))
	e.same("what was matched is still delivered", len(e.claim(ep, 10).Rows), 3)
	e.reopen()
	e.same("after a new start", took(e.sight(match, ep)), []bool{false})
}

func sentinelCountRace(e *env) {
	ep := e.sentinel(surehook.Until{Kind: surehook.UntilCount, Count: 20})
	v := e.version()
	var wg sync.WaitGroup
	var mu sync.Mutex
	got, ended := 0, 0
	for i := range 50 {
		ev := e.event()
		wg.Go(func() {
			out, err := e.s.Append(e.ctx, v, []surehook.Append{{Event: ev, Targets: sighted(match, ep)}})
			mu.Lock()
			defer mu.Unlock()
			switch {
			case err != nil || out[0].Err != nil:
				e.Errorf("event %d: %v %v", i, err, out)
			case out[0].Deliveries[0].ID != 0:
				got++
			}
			if err == nil {
				ended += len(out[0].Ended)
			}
		})
	}
	wg.Wait()
	e.same("took, ended", []int{got, ended}, []int{20, 1})
	e.same("rows", e.pending().Due, int64(20))
	e.same("counted", e.reload(ep).Sentinel.Events, int64(20))
}

func sentinelTerminal(e *env) {
	until := surehook.Until{Kind: surehook.UntilTerminal}
	ep, silent, stays := e.sentinel(until), e.sentinel(until), e.sentinel(forever)
	last := surehook.Sighting{Last: true}
	a := e.append(surehook.Append{Event: e.event(), Targets: append(append(sighted(last, ep), sighted(surehook.Sighting{Last: true, Silent: true}, silent)...), sighted(last, stays)...)})[0]
	e.same("took", took(a), []bool{true, false, true})
	e.same("ended", a.Ended, []int64{ep.Key, silent.Key})
	e.same("after that", took(e.sight(match, ep, silent, stays)), []bool{false, false, true})
	e.same("events of the one that got none", e.reload(silent).Sentinel.Events, int64(0))
	e.same("why", string(e.reload(silent).Sentinel.Ended), "subject_terminal")
	e.same("what was matched is still delivered", len(e.claim(ep, 10).Rows), 1)
}

func sentinelAt(e *env) {
	ep := e.sentinel(surehook.Until{Kind: surehook.UntilAt, At: e.clock.Now().Add(time.Minute)})
	d := e.sight(match, ep).Deliveries[0]
	e.clock.Advance(time.Minute)
	e.same("at the time, whoever has noticed", took(e.sight(match, ep)), []bool{false})
	v := e.version()
	n, more, err := e.s.EndSentinels(e.ctx, 10)
	e.ok(err)
	e.same("ended", []any{n, more}, []any{1, false})
	got := e.reload(ep)
	e.same("status", []any{string(got.Sentinel.Status), string(got.Sentinel.Ended), got.Enabled, got.DisabledReason}, []any{"expired", "at", false, surehook.ReasonExpired})
	changed, _, err := e.s.Changes(e.ctx, v)
	e.ok(err)
	e.same("others get to know", len(changed), 1)
	_, err = e.s.End(e.ctx, ep.Key, surehook.ExpiredSentinel, true, true, 10)
	e.ok(err)
	e.same("what waited", string(e.letters()[0].Code), "sentinel_expired")
	e.same("its delivery", string(e.view(d).Status), "dead")
	n, _, err = e.s.EndSentinels(e.ctx, 10)
	e.ok(err)
	e.same("once", n, 0)
}

func sentinelPaused(e *env) {
	ep, off := e.sentinel(forever), e.sentinel(forever)
	set := func(ep *surehook.Endpoint, status surehook.SentinelStatus, enabled bool) {
		_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error {
			ep.Sentinel.Status, ep.Enabled = status, enabled
			return nil
		}, nil)
		e.ok(err)
	}
	set(ep, surehook.SentinelPaused, true)
	set(off, surehook.SentinelActive, false)
	e.same("paused, disabled", took(e.sight(match, ep, off)), []bool{false, false})
	set(ep, surehook.SentinelError, true)
	set(off, surehook.SentinelActive, true)
	e.same("in error, enabled", took(e.sight(match, ep, off)), []bool{true, true})
}

func sentinelOnce(e *env) {
	ep := e.sentinel(surehook.Until{Kind: surehook.UntilCount, Count: 3})
	ev, again, theirs := e.event(), e.event(), e.event()
	again.ID, theirs.ID, theirs.Tenant = ev.ID, ev.ID, "acme"
	e.same("first", took(e.sightEvent(ev, match, ep)), []bool{true})
	e.same("again", e.sightEvent(again, match, ep).Duplicate, true)
	e.same("another tenant's with the id is another event", took(e.sightEvent(theirs, match, ep)), []bool{true})
	// Past retention nobody knows the event any more: the sentinel does.
	for _, r := range e.claim(ep, 10).Rows {
		e.record(e.outcome(r.Delivery, surehook.Finish))
	}
	e.clock.Advance(72 * time.Hour)
	for more := true; more; {
		var err error
		_, more, err = e.s.Prune(e.ctx, e.clock.Now().Add(-time.Hour), 100)
		e.ok(err)
	}
	if _, err := e.s.Event(e.ctx, nil, ev.ID); surehook.CodeOf(err) != surehook.NotFound {
		e.Fatalf("the event is still there: %v", err)
	}
	e.reopen()
	once := e.event()
	once.ID = ev.ID
	e.same("after it was pruned", took(e.sightEvent(once, match, ep)), []bool{false})
	e.same("counted", e.reload(ep).Sentinel.Events, int64(2))
}

func sentinelKnown(e *env) {
	ep := e.sentinel(forever)
	var events []*surehook.Event
	for range 9 {
		items := make([]surehook.Append, 250)
		var done []surehook.Outcome
		for i := range items {
			ev := e.event()
			events = append(events, ev)
			items[i] = surehook.Append{Event: ev, Targets: sighted(match, ep)}
		}
		for _, a := range e.append(items...) {
			e.same("took", took(a), []bool{true})
			done = append(done, e.outcome(surehook.Delivery{ID: a.Deliveries[0].ID, EventKey: a.EventKey, EndpointKey: ep.Key, FirstAttempt: 1}, surehook.Finish))
		}
		e.record(done...)
	}
	e.clock.Advance(72 * time.Hour)
	for more := true; more; {
		var err error
		_, more, err = e.s.Prune(e.ctx, e.clock.Now().Add(-time.Hour), 1000)
		e.ok(err)
	}
	known := func(ev *surehook.Event) bool {
		again := e.event()
		again.ID = ev.ID
		return !took(e.sightEvent(again, match, ep))[0]
	}
	n := len(events)
	for _, i := range []int{n - 1, n - 2, n - 500, n - 1000} {
		if !known(events[i]) {
			e.Errorf("the event %d before the last isn't known any more", n-1-i)
		}
	}
	if known(events[0]) {
		e.Error("the first of so many is still known: nothing is ever forgotten")
	}
}

func sentinelRemoved(e *env) {
	ep := e.sentinel(forever, func(n *surehook.Sentinel) { n.Provider, n.Watch = "local-gh", "w1" })
	quiet := e.sentinel(forever)
	e.sight(match, ep, quiet)
	e.ok(e.s.DeleteEndpoint(e.ctx, ep.ID, nil))
	e.ok(e.s.DeleteEndpoint(e.ctx, quiet.ID, nil))
	e.same("after that", took(e.sight(match, ep, quiet)), []bool{false, false})
	e.reopen()
	cancels, err := e.s.Cancels(e.ctx, 10)
	e.ok(err)
	e.same("watches", cancels, []surehook.WatchCancel{{Key: cancels[0].Key, Provider: "local-gh", Watch: "w1"}})
	e.ok(e.s.PutOffCancel(e.ctx, cancels[0], time.Minute))
	e.ok(e.s.PutOffCancel(e.ctx, cancels[0], time.Hour)) // another node's, late
	wait, err := e.s.Cancels(e.ctx, 10)
	e.ok(err)
	e.same("put off", len(wait), 0)
	e.clock.Advance(time.Minute)
	again, err := e.s.Cancels(e.ctx, 10)
	e.ok(err)
	cancels[0].Tries = 1
	e.same("due again", again, cancels)
	e.ok(e.s.Cancelled(e.ctx, again[0].Key))
	e.ok(e.s.Cancelled(e.ctx, again[0].Key))
	again, err = e.s.Cancels(e.ctx, 10)
	e.ok(err)
	e.same("struck off", len(again), 0)
	changed, _, err := e.s.Changes(e.ctx, 0)
	e.ok(err)
	for _, ep := range changed {
		if ep.Sentinel != nil {
			e.Error("a removed sentinel is there")
		}
	}
}

func sentinelCancels(e *env) {
	var eps []*surehook.Endpoint
	for i := range 5 {
		eps = append(eps, e.sentinel(surehook.Until{Kind: surehook.UntilCount, Count: 1}, func(n *surehook.Sentinel) { n.Watch = fmt.Sprint("w", i) }))
	}
	e.sight(match, eps...)
	v := e.version()
	total := 0
	for more := true; more; {
		n, m, err := e.s.EndSentinels(e.ctx, 2)
		e.ok(err)
		total, more = total+n, m
	}
	e.same("ended", total, 5)
	cancels, err := e.s.Cancels(e.ctx, 10)
	e.ok(err)
	e.same("watches", len(cancels), 5)
	changed, _, err := e.s.Changes(e.ctx, v)
	e.ok(err)
	e.same("others get to know", len(changed), 5)
	for _, ep := range changed {
		if ep.Sentinel.Watch != "" || !ep.Enabled {
			e.Errorf("%+v", ep.Sentinel)
		}
	}
}

func sentinelLetters(e *env) {
	ep := e.sentinel(forever)
	e.sight(match, ep)
	e.sight(match, ep)
	e.ok(e.s.DeleteEndpoint(e.ctx, ep.ID, nil))
	n, err := e.s.End(e.ctx, ep.Key, surehook.RemovedSentinel, false, true, 10)
	e.ok(err)
	e.same("ended", n, 2)
	for _, l := range e.letters() {
		e.same("letter", []any{string(l.Code), l.EndpointKey}, []any{"sentinel_removed", ep.Key})
	}
}

func sentinelUpdate(e *env) {
	ep := e.sentinel(forever)
	e.sight(match, ep)
	_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error {
		ep.Sentinel.Events, ep.Sentinel.Label, ep.Sentinel.Watch, ep.Sentinel.LastError = 99, "new", "w", "x"
		return nil
	}, nil)
	e.ok(err)
	got := e.reload(ep).Sentinel
	e.same("changed", []any{got.Events, got.Label, got.Watch, got.LastError}, []any{int64(1), "new", "w", "x"})
	_, err = e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error { ep.Sentinel = nil; return nil }, nil)
	e.ok(err)
	e.same("it can't be taken away", e.reload(ep).Sentinel, got)
}

func sentinelSight(e *env) {
	ep, once := e.sentinel(forever), e.sentinel(surehook.Until{Kind: surehook.UntilCount, Count: 1})
	ev := e.event()
	e.append(surehook.Append{Event: ev})
	a, err := e.s.Sight(e.ctx, ev, sighted(match, ep, once))
	e.ok(err)
	e.same("took", took(a), []bool{true, true})
	e.same("ended", a.Ended, []int64{once.Key})
	a, err = e.s.Sight(e.ctx, ev, sighted(match, ep, once))
	e.ok(err)
	e.same("a second time", took(a), []bool{false, false})
	rows := e.claim(ep, 10).Rows
	e.same("rows", len(rows), 1)
	e.same("its event", string(rows[0].Event.Data), string(ev.Data))
	e.same("counted", e.reload(ep).Sentinel.Events, int64(1))
	a, err = e.s.Sight(e.ctx, &surehook.Event{Key: ev.Key + 1_000_000, ID: "evt_gone"}, sighted(match, ep))
	e.ok(err)
	e.same("an event that is gone", len(a.Deliveries), 0)
}

func sentinelDeliveries(e *env) {
	ep, none := e.sentinel(forever), e.sentinel(forever)
	of := func() surehook.SentinelDelivery {
		e.Helper()
		all, err := e.s.SentinelDeliveries(e.ctx, []int64{none.Key, ep.Key})
		e.ok(err)
		if _, there := all[none.Key]; there {
			e.Error("one that never had any is there")
		}
		return all[ep.Key]
	}
	e.same("at first", of(), surehook.SentinelDelivery{})
	first := e.sight(match, ep).Deliveries[0]
	e.sight(match, ep)
	e.same("waiting", of(), surehook.SentinelDelivery{Any: true, Pending: 2})
	rows := e.claim(ep, 1).Rows
	e.record(e.outcome(rows[0].Delivery, surehook.Bury))
	got := of()
	e.same("one is dead", []any{got.Pending, got.Dead, string(got.Last.Status), got.Last.Number}, []any{int64(1), int64(1), "dead", 1})
	e.record(e.outcome(e.claim(ep, 1).Rows[0].Delivery, surehook.Finish))
	got = of()
	e.same("one arrived", []any{got.Pending, got.Dead, string(got.Last.Status)}, []any{int64(0), int64(1), "succeeded"})
	test := e.outcome(first, surehook.Note)
	test.Attempt.Test, test.Attempt.Status = true, surehook.AttemptDead
	e.record(test)
	e.same("a test says nothing", string(of().Last.Status), "succeeded")
}
