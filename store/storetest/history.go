package storetest

import (
	"slices"
	"time"

	"github.com/surehook/surehook"
)

var historyTests = map[string]func(*env){
	"History/events by tenant and type":   historyEvents,
	"History/events by subject":           historySubject,
	"History/events by window":            historyWindow,
	"History/events by delivery's status": historyStatus,
	"History/deliveries of an event":      historyDeliveries,
	"History/deliveries of an endpoint":   historyEndpoint,
	"History/attempts":                    historyAttempts,
}

func (e *env) events(f surehook.EventFilter) []int64 {
	e.Helper()
	evs, err := e.s.ListEvents(e.ctx, f, surehook.Page{Limit: 1000})
	e.ok(err)
	for _, ev := range evs {
		e.same("data", ev.Data, []byte(nil))
		e.same("erased", ev.Erased, false)
	}
	return keysOf(evs)
}

func historyEvents(e *env) {
	keys := make(map[string]int64)
	for _, c := range []struct{ name, tenant, typ string }{
		{"a", "acme", "order.paid"}, {"b", "acme", "order.line.added"}, {"c", "acme", "orders"}, {"d", "globex", "order.paid"}, {"e", "", "order"},
		{"f", "acme", "order_x"}, {"g", "acme", "order%"}, {"h", "acme", "ORDER.paid"}, {"i", "acme", "order/x"},
	} {
		ev := e.event()
		ev.Tenant, ev.Type = c.tenant, c.typ
		keys[c.name] = e.append(surehook.Append{Event: ev})[0].EventKey
	}
	for _, c := range []struct {
		f    surehook.EventFilter
		want string
	}{
		{surehook.EventFilter{}, "abcdefghi"},
		{surehook.EventFilter{Tenant: "acme"}, "abcfghi"},
		{surehook.EventFilter{Tenant: "acm_"}, ""},
		{surehook.EventFilter{Type: "order.paid"}, "ad"},
		{surehook.EventFilter{Type: "order.*"}, "abd"},
		{surehook.EventFilter{Type: "order"}, "e"},
		{surehook.EventFilter{Type: "order%"}, "g"},
		{surehook.EventFilter{Type: "order.*", Tenant: "acme"}, "ab"},
	} {
		var want []int64
		for _, name := range c.want {
			want = append(want, keys[string(name)])
		}
		slices.Reverse(want) // newest first
		e.same("events of "+c.f.Type+"@"+c.f.Tenant, e.events(c.f), want)
	}
}

func historySubject(e *env) {
	keys := make(map[string]int64)
	for name, subjects := range map[string][]string{"a": {"order:1"}, "b": {"x", "order:1", "y"}, "c": {"order:12", "my order:1"}, "d": nil, "e": {`quote"order:1"`, `[order:1]`, "<&>"}} {
		ev := e.event()
		ev.Subjects = subjects
		keys[name] = e.append(surehook.Append{Event: ev})[0].EventKey
	}
	for subject, want := range map[string]string{"order:1": "ab", "order:12": "c", "order": "", "x": "b", `quote"order:1"`: "e", "[order:1]": "e", "<&>": "e", "order:_": "", `"`: ""} {
		got := e.events(surehook.EventFilter{Subject: subject})
		e.same("number of events about "+subject, len(got), len(want))
		for _, name := range want {
			e.same("events about "+subject, slices.Contains(got, keys[string(name)]), true)
		}
	}
}

func historyWindow(e *env) {
	ep := e.endpoint()
	start := e.clock.Now()
	var keys []int64
	for range 4 {
		keys = append(keys, e.free(ep, 1)[0].EventKey)
		e.clock.Advance(3 * time.Hour)
	}
	got := e.events(surehook.EventFilter{Since: start.Add(time.Hour), Until: start.Add(8 * time.Hour)})
	e.same("window", got, []int64{keys[2], keys[1]})
	e.same("since is in", e.events(surehook.EventFilter{Since: start, Until: start.Add(time.Millisecond)}), keys[:1])
	e.same("until is out", e.events(surehook.EventFilter{Until: start}), []int64(nil))
	e.same("last 15 minutes", e.events(surehook.EventFilter{Since: e.clock.Now().Add(-15 * time.Minute)}), []int64(nil))
}

func historyStatus(e *env) {
	ep, other := e.endpoint(), e.endpoint()
	f := e.fates(ep)
	g := e.fates(other)
	list := func(status surehook.DeliveryStatus, at *surehook.Endpoint) []int64 {
		e.Helper()
		f := surehook.EventFilter{Status: status}
		if at != nil {
			f.Endpoint = at.Key
		}
		return e.events(f)
	}
	e.same("pending", list(surehook.Pending, ep), []int64{f["waiting"], f["failed"]})
	e.same("dead", list(surehook.Dead, ep), []int64{f["dead"]})
	e.same("succeeded", list(surehook.Succeeded, ep), []int64{f["succeeded"]})
	e.same("pending anywhere", list(surehook.Pending, nil), []int64{g["waiting"], g["failed"], f["waiting"], f["failed"]})
	e.same("dead anywhere", list(surehook.Dead, nil), []int64{g["dead"], f["dead"]})
	e.same("succeeded anywhere", list(surehook.Succeeded, nil), []int64{g["succeeded"], f["succeeded"]})
	both := e.publish(false, ep, other)[0].EventKey
	e.same("once each", list(surehook.Pending, nil)[0], both)
	e.same("count", len(list(surehook.Pending, nil)), 5)
}

func historyDeliveries(e *env) {
	a, b, c, d := e.endpoint(), e.endpoint(), e.endpoint(), e.endpoint()
	ev := e.event()
	ds := e.publishEvent(ev, true, a, b, c, d)
	e.record(e.outcome(ds[0], surehook.Finish), e.outcome(ds[1], surehook.Bury), e.outcome(ds[2], surehook.Again))
	got, err := e.s.EventDeliveries(e.ctx, ds[0].EventKey, surehook.Page{Limit: 10})
	e.ok(err)
	now := ms(e.clock.Now())
	want := []surehook.DeliveryView{
		{EndpointID: a.ID, EndpointKey: a.Key, Status: surehook.Succeeded, Attempts: 1, LastStatus: 200, LastAttemptAt: now},
		{EndpointID: b.ID, EndpointKey: b.Key, Status: surehook.Dead, Attempts: 1, LastCode: surehook.Status5xx, LastStatus: 500, LastAttemptAt: now},
		{EndpointID: c.ID, EndpointKey: c.Key, Status: surehook.Pending, Attempts: 1, LastCode: surehook.Status5xx, LastStatus: 503, LastAttemptAt: now,
			NextAttemptAt: e.clock.Now().Add(time.Minute)},
		{EndpointID: d.ID, EndpointKey: d.Key, Status: surehook.Pending, NextAttemptAt: now},
	}
	for i := range want {
		want[i].EventKey, want[i].EventID, want[i].EventType = ds[0].EventKey, ev.ID, ev.Type
	}
	e.same("deliveries", got, want)
	none, err := e.s.EventDeliveries(e.ctx, 1<<40, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("of no event", len(none), 0)
}

func historyEndpoint(e *env) {
	ep := e.endpoint()
	f := e.fates(ep)
	e.fates(e.endpoint())
	for status, want := range map[surehook.DeliveryStatus][]int64{
		surehook.Pending: {f["waiting"], f["failed"]}, surehook.Dead: {f["dead"]}, surehook.Succeeded: {f["succeeded"]},
		"": {f["waiting"], f["failed"], f["dead"], f["succeeded"]},
	} {
		vs, err := e.s.ListDeliveries(e.ctx, surehook.DeliveryFilter{Endpoint: ep.Key, Status: status}, surehook.Page{Limit: 10})
		e.ok(err)
		var got []int64
		for _, v := range vs {
			got = append(got, v.EventKey)
			if status != "" {
				e.same("status", v.Status, status)
			}
		}
		e.same("deliveries "+string(status), got, want)
	}
	_, err := e.s.ListDeliveries(e.ctx, surehook.DeliveryFilter{Endpoint: ep.Key, Status: "odd"}, surehook.Page{Limit: 10})
	e.code(err, surehook.InvalidRequest)
}

func historyAttempts(e *env) {
	a, b := e.endpoint(), e.endpoint()
	ds := e.publish(true, a, b)
	e.record(e.outcome(ds[0], surehook.Again), e.outcome(ds[1], surehook.Finish))
	e.clock.Advance(time.Hour)
	e.record(e.outcome(e.claimOne(a), surehook.Finish))
	all, err := e.s.EventAttempts(e.ctx, ds[0].EventKey, 0, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("all, newest first", []string{all[0].EndpointID, all[1].EndpointID, all[2].EndpointID}, []string{a.ID, b.ID, a.ID})
	e.same("of one", len(e.attempts(ds[0])), 2)
	of, err := e.s.EndpointAttempts(e.ctx, b.Key, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("of an endpoint", len(of), 1)
}
