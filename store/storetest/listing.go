package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var listingTests = map[string]func(*env){
	"Listings/events":             listEvents,
	"Listings/attempts":           listAttempts,
	"Listings/dead letters":       listLetters,
	"Listings/deliveries":         listDeliveries,
	"Listings/event's deliveries": listEventDeliveries,
	"Listings/endpoints":          listEndpoints,
	"Listings/tenants and keys":   listAdmin,
	"Listings/audit log":          listAudit,
	"Listings/bounds":             listBounds,
}

const listed = 10

// page reads a listing in pages of three while rows come in, and checks that
// each row that was there at the start comes once, in order.
func page[T any](e *env, what string, fetch func(surehook.Page) ([]T, error), key func(T) int64, insert func()) {
	e.Helper()
	all, err := fetch(surehook.Page{Limit: 1000})
	e.ok(err)
	if len(all) < listed {
		e.Fatalf("%s: %d rows", what, len(all))
	}
	want := make(map[int64]bool)
	for _, row := range all {
		want[key(row)] = true
	}
	e.same(what+": keys differ", len(want), len(all))
	up := key(all[0]) < key(all[1])
	var last int64
	seen := make(map[int64]bool)
	for p, inserts := (surehook.Page{Limit: 3}), 0; ; inserts++ {
		rows, err := fetch(p)
		e.ok(err)
		for _, row := range rows {
			k := key(row)
			if seen[k] || (last != 0 && (k > last) != up) {
				e.Fatalf("%s: %d after %d", what, k, last)
			}
			seen[k], last = true, k
		}
		if len(rows) < p.Limit {
			break
		}
		p.Cursor = last
		if inserts < 5 {
			insert()
		}
	}
	for k := range want {
		if !seen[k] {
			e.Fatalf("%s: %d was missed", what, k)
		}
	}
}

func listEvents(e *env) {
	ep := e.endpoint()
	acme := func() {
		for range 2 {
			ev := e.event()
			ev.Tenant = "acme"
			e.publishEvent(ev, false, ep)
			e.publish(false, ep)
		}
	}
	for range listed {
		acme()
	}
	since := e.clock.Now().Add(-time.Hour)
	for name, f := range map[string]surehook.EventFilter{
		"all": {}, "tenant": {Tenant: "acme"}, "type": {Type: "order.*"}, "window": {Since: since}, "pending": {Status: surehook.Pending, Endpoint: ep.Key},
		"everything": {Since: since, Tenant: "acme", Type: "order.paid", Status: surehook.Pending},
	} {
		page(e, name, func(p surehook.Page) ([]*surehook.Event, error) { return e.s.ListEvents(e.ctx, f, p) },
			func(ev *surehook.Event) int64 { return ev.Key }, acme)
	}
}

func listAttempts(e *env) {
	ep := e.endpoint()
	fill := func() { e.fail(ep, surehook.HealthRule{}, 2) }
	for range listed {
		fill()
	}
	page(e, "attempts", func(p surehook.Page) ([]surehook.Attempt, error) { return e.s.EndpointAttempts(e.ctx, ep.Key, p) },
		func(a surehook.Attempt) int64 { return a.Key }, fill)
	d := e.publish(true, ep)[0]
	again := func() {
		o := e.outcome(d, surehook.Again)
		o.Wait = 0
		e.record(o)
		d = e.claimOne(ep)
	}
	for range listed {
		again()
	}
	page(e, "event's attempts", func(p surehook.Page) ([]surehook.Attempt, error) { return e.s.EventAttempts(e.ctx, d.EventKey, 0, p) },
		func(a surehook.Attempt) int64 { return a.Key }, again)
}

func listLetters(e *env) {
	ep := e.endpoint(func(ep *surehook.Endpoint) { ep.Tenant = "acme" })
	fill := func() {
		for range 2 {
			ev := e.event()
			ev.Tenant = "acme"
			e.record(e.outcome(e.publishEvent(ev, true, ep)[0], surehook.Bury))
		}
	}
	for range listed {
		fill()
	}
	for name, f := range map[string]surehook.DeadLetterFilter{"all": {}, "endpoint": {Endpoint: ep.Key}, "tenant": {Tenant: "acme", Since: e.clock.Now().Add(-time.Hour)}} {
		page(e, name, func(p surehook.Page) ([]surehook.DeadLetter, error) { return e.s.ListDeadLetters(e.ctx, f, p) },
			func(d surehook.DeadLetter) int64 { return d.Key }, fill)
	}
}

func listDeliveries(e *env) {
	ep := e.endpoint()
	fill := func() { e.fates(ep) }
	for range listed {
		fill()
	}
	for _, status := range []surehook.DeliveryStatus{"", surehook.Pending, surehook.Succeeded, surehook.Dead} {
		page(e, string(status), func(p surehook.Page) ([]surehook.DeliveryView, error) {
			return e.s.ListDeliveries(e.ctx, surehook.DeliveryFilter{Endpoint: ep.Key, Status: status}, p)
		}, func(v surehook.DeliveryView) int64 { return v.EventKey }, fill)
	}
}

func listEventDeliveries(e *env) {
	var eps []*surehook.Endpoint
	for range 2 * listed {
		eps = append(eps, e.endpoint())
	}
	ds := e.publish(true, eps...)
	next := 0
	step := func() { // rows move on meanwhile
		e.record(e.outcome(ds[next], []surehook.Decision{surehook.Finish, surehook.Bury, surehook.Again}[next%3]))
		next++
	}
	page(e, "deliveries", func(p surehook.Page) ([]surehook.DeliveryView, error) {
		return e.s.EventDeliveries(e.ctx, ds[0].EventKey, p)
	},
		func(v surehook.DeliveryView) int64 { return v.EndpointKey }, step)
}

func listEndpoints(e *env) {
	for range listed {
		e.endpoint()
	}
	page(e, "endpoints", func(p surehook.Page) ([]*surehook.Endpoint, error) {
		return e.s.ListEndpoints(e.ctx, surehook.EndpointFilter{}, p)
	},
		func(ep *surehook.Endpoint) int64 { return ep.Key }, func() { e.endpoint() })
	ep := e.endpoint()
	job := func() { e.job(ep) }
	for range listed {
		job()
	}
	page(e, "replays", func(p surehook.Page) ([]*surehook.Replay, error) {
		return e.s.ListReplays(e.ctx, ep.Key, surehook.Viewer{}, p)
	},
		func(r *surehook.Replay) int64 { return r.Key }, job)
}

func listAdmin(e *env) {
	tenant := func() { e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: e.id("t")}, nil)) }
	key := func() { e.key("") }
	for range listed {
		tenant()
		key()
	}
	page(e, "tenants", func(p surehook.Page) ([]*surehook.Tenant, error) { return e.s.ListTenants(e.ctx, "", p) },
		func(t *surehook.Tenant) int64 { return t.Key }, tenant)
	page(e, "keys", func(p surehook.Page) ([]*surehook.APIKey, error) { return e.s.ListKeys(e.ctx, p) },
		func(k *surehook.APIKey) int64 { return k.Key }, key)
}

func listAudit(e *env) {
	act := func() {
		e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "acme"}, &surehook.AuditEntry{Action: "tenant.put", Tenant: "acme"}))
		e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "globex"}, &surehook.AuditEntry{Action: "tenant.put", Tenant: "globex"}))
	}
	for range listed {
		act()
	}
	for _, tenant := range []string{"", "acme"} {
		page(e, "audit of "+tenant, func(p surehook.Page) ([]surehook.AuditEntry, error) { return e.s.ListAudit(e.ctx, tenant, p) },
			func(a surehook.AuditEntry) int64 { return a.Key }, act)
	}
	of := func() {
		for _, target := range []string{"whk_a", "whk_b"} {
			e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "acme"}, &surehook.AuditEntry{Action: "x", Target: target, Tenant: "acme"}))
		}
	}
	for range listed {
		of()
	}
	page(e, "audit of a target", func(p surehook.Page) ([]surehook.AuditEntry, error) { return e.s.AuditOf(e.ctx, "whk_a", p) },
		func(a surehook.AuditEntry) int64 { return a.Key }, of)
	told, err := e.s.AuditOf(e.ctx, "whk_b", surehook.Page{Limit: 3})
	e.ok(err)
	e.same("whose", []string{told[0].Target, told[1].Target, told[2].Target}, []string{"whk_b", "whk_b", "whk_b"})
}

func listBounds(e *env) {
	ep := e.endpoint()
	e.free(ep, 3)
	for _, limit := range []int{-1, 0, 1} {
		evs, err := e.s.ListEvents(e.ctx, surehook.EventFilter{}, surehook.Page{Limit: limit})
		e.ok(err)
		e.same("at least one", len(evs), 1)
	}
	all, err := e.s.ListEvents(e.ctx, surehook.EventFilter{}, surehook.Page{Limit: 3})
	e.ok(err)
	for n, want := range map[int]int64{1: all[0].Key, 3: all[2].Key, 4: 0} {
		got, err := e.s.EventBelow(e.ctx, surehook.EventFilter{Type: "of no account"}, 0, n)
		e.ok(err)
		e.same("the n-th event", got, want)
	}
	below, err := e.s.EventBelow(e.ctx, surehook.EventFilter{}, all[0].Key, 1)
	e.ok(err)
	e.same("below a cursor", below, all[1].Key)
	above, err := e.s.ListEvents(e.ctx, surehook.EventFilter{Above: all[1].Key}, surehook.Page{Limit: 3})
	e.ok(err)
	e.same("at a key and above", []int64{above[0].Key, above[len(above)-1].Key, int64(len(above))}, []int64{all[0].Key, all[1].Key, 2})
	for f, want := range map[surehook.EventFilter]int64{{Tenant: "nobody"}: 0, {Since: e.clock.Now().Add(time.Hour)}: 0, {Until: e.clock.Now().Add(time.Hour)}: all[0].Key} {
		got, err := e.s.EventBelow(e.ctx, f, 0, 1)
		e.ok(err)
		e.same("of a filter", got, want)
	}
	evs, err := e.s.ListEvents(e.ctx, surehook.EventFilter{}, surehook.Page{Limit: 1, Cursor: 1})
	e.ok(err)
	e.same("past the end", len(evs), 0)
}
