package storetest

import (
	"slices"

	"github.com/surehook/surehook"
)

// What listings show to who sees some endpoints only.

var viewerTests = map[string]func(*env){
	"Scopes/a viewer's dead letters":     viewerLetters,
	"Scopes/a viewer's replays":          viewerReplays,
	"Scopes/a viewer's events by status": viewerEvents,
}

// world is an endpoint of each scope, by what it belongs to, and one that is deleted.
func (e *env) world() map[string]*surehook.Endpoint {
	e.Helper()
	e.tenant("t1", "p")
	e.tenant("t2", "q")
	eps := map[string]*surehook.Endpoint{"platform": e.endpoint()}
	for _, of := range []string{"p", "q"} {
		eps[of] = e.endpoint(func(ep *surehook.Endpoint) { ep.Partner = of })
	}
	for _, of := range []string{"t1", "t2", "t3"} {
		eps[of] = e.endpoint(func(ep *surehook.Endpoint) { ep.Tenant = of })
	}
	eps["deleted"] = e.endpoint(func(ep *surehook.Endpoint) { ep.Tenant = "t1" })
	return eps
}

// views are viewers, and what they see of a world.
var views = map[surehook.Viewer][]string{
	{}:                      {"deleted", "p", "platform", "q", "t1", "t2", "t3"},
	{Tenant: "t1"}:          {"t1"},
	{Tenant: "t3"}:          {"t3"},
	{Tenant: "nobody"}:      nil,
	{Partner: "p"}:          {"p", "t1"},
	{Partner: "q"}:          {"q", "t2"},
	{Partner: "none of it"}: nil,
}

// viewed holds the endpoints that a listing tells of against each view.
func (e *env) viewed(eps map[string]*surehook.Endpoint, list func(surehook.Viewer) []int64) {
	e.Helper()
	for v, want := range views {
		var got []string
		for _, key := range list(v) {
			for name, ep := range eps {
				if ep.Key == key {
					got = append(got, name)
				}
			}
		}
		slices.Sort(got)
		e.same(v.Tenant+v.Partner, got, want)
	}
}

func viewerLetters(e *env) {
	eps := e.world()
	for _, ep := range eps {
		e.record(e.outcome(e.publish(true, ep)[0], surehook.Bury))
	}
	e.ok(e.s.DeleteEndpoint(e.ctx, eps["deleted"].ID, nil))
	e.viewed(eps, func(v surehook.Viewer) (keys []int64) {
		got, err := e.s.ListDeadLetters(e.ctx, surehook.DeadLetterFilter{For: v}, surehook.Page{Limit: 10})
		e.ok(err)
		for _, l := range got {
			keys = append(keys, l.EndpointKey)
		}
		return keys
	})
}

func viewerReplays(e *env) {
	eps := e.world()
	for _, ep := range eps {
		e.job(ep)
	}
	e.ok(e.s.DeleteEndpoint(e.ctx, eps["deleted"].ID, nil))
	e.viewed(eps, func(v surehook.Viewer) (keys []int64) {
		got, err := e.s.ListReplays(e.ctx, 0, v, surehook.Page{Limit: 10})
		e.ok(err)
		for _, r := range got {
			keys = append(keys, r.EndpointKey)
		}
		return keys
	})
	got, err := e.s.ListReplays(e.ctx, eps["q"].Key, surehook.Viewer{Partner: "p"}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("of another's endpoint", len(got), 0)
}

// Of one event at all endpoints each viewer is told by what became of it at those
// that it sees, and once, wherever others stand among them.
func viewerEvents(e *env) {
	eps := e.world()
	at := []*surehook.Endpoint{eps["platform"], eps["p"], eps["t1"], eps["q"], eps["t2"]}
	decide := map[string]surehook.Decision{"t1": surehook.Finish, "t2": surehook.Bury, "p": surehook.Bury, "q": surehook.Again}
	ds := e.publish(true, at...)
	for name, decision := range decide {
		for i, ep := range at {
			if ep == eps[name] {
				e.record(e.outcome(ds[i], decision))
			}
		}
	}
	for v, want := range map[surehook.Viewer][]surehook.DeliveryStatus{
		{}:                 {surehook.Pending, surehook.Succeeded, surehook.Dead},
		{Tenant: "t1"}:     {surehook.Succeeded},
		{Tenant: "t2"}:     {surehook.Dead},
		{Tenant: "t3"}:     nil,
		{Partner: "p"}:     {surehook.Succeeded, surehook.Dead},
		{Partner: "q"}:     {surehook.Pending, surehook.Dead},
		{Partner: "other"}: nil,
	} {
		var got []surehook.DeliveryStatus
		for _, status := range []surehook.DeliveryStatus{surehook.Pending, surehook.Succeeded, surehook.Dead} {
			n := len(e.events(surehook.EventFilter{Status: status, For: v}))
			if n > 1 {
				e.Errorf("%v: listed %d times", v, n)
			}
			if n > 0 {
				got = append(got, status)
			}
		}
		e.same("status "+v.Tenant+v.Partner, got, want)
	}
	e.same("at one endpoint", len(e.events(surehook.EventFilter{Status: surehook.Succeeded, Endpoint: eps["t1"].Key, For: surehook.Viewer{Tenant: "t1"}})), 1)
	e.same("at another's", len(e.events(surehook.EventFilter{Status: surehook.Succeeded, Endpoint: eps["t1"].Key, For: surehook.Viewer{Tenant: "t2"}})), 0)
}
