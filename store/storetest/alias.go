package storetest

import (
	"fmt"
	"strings"
	"sync"

	"github.com/surehook/surehook"
)

// Ids are a tenant's own, and webhook-ids are unique over all tenants.

var aliasTests = map[string]func(*env){
	"Alias/an id that another tenant has":     aliasOne,
	"Alias/in one batch, and repeated":        aliasBatch,
	"Alias/by way of the outbox":              aliasOutbox,
	"Alias/tenants at once: one has it alone": aliasAtOnce,
	"Alias/the first one may go":              aliasAfterPrune,
}

// of makes events with one id, each of a tenant.
func (e *env) of(id string, tenants ...string) []surehook.Append {
	items := make([]surehook.Append, len(tenants))
	for i, t := range tenants {
		ev := e.event()
		ev.ID, ev.Tenant = id, t
		items[i] = surehook.Append{Event: ev}
	}
	return items
}

// aliased checks that an event has an alias, the same wherever it is read.
func (e *env) aliased(ev *surehook.Event) string {
	e.Helper()
	got, err := e.s.Event(e.ctx, &ev.Tenant, ev.ID)
	e.ok(err)
	tail, ok := strings.CutPrefix(got.Alias, ev.ID+":")
	if !ok || len(tail) != 16 || strings.ContainsAny(got.Alias, ". ") {
		e.Fatalf("alias %q", got.Alias)
	}
	if ev.Key != 0 {
		e.same("alias as it was handed over", ev.Alias, got.Alias)
	}
	byAlias, err := e.s.Event(e.ctx, nil, got.Alias)
	e.ok(err)
	e.same("found by alias", byAlias.Key, got.Key)
	e.same("webhook-id for the tenant", got.WebhookID(surehook.ScopeTenant), ev.ID)
	e.same("webhook-id for all", got.WebhookID(surehook.ScopePlatform), got.Alias)
	return got.Alias
}

func (e *env) plain(ev *surehook.Event) {
	e.Helper()
	got, err := e.s.Event(e.ctx, nil, ev.ID)
	e.ok(err)
	e.same("tenant", got.Tenant, ev.Tenant)
	e.same("alias", got.Alias, "")
}

func aliasOne(e *env) {
	ep := e.endpoint()
	id := e.id("order")
	items := e.of(id, "acme", "globex", "")
	for i := range items {
		items[i].Targets = []surehook.Target{{EndpointKey: ep.Key, Owned: true}}
		out := e.append(items[i])[0]
		e.ok(out.Err)
		if out.Duplicate || len(out.Deliveries) != 1 {
			e.Fatalf("%+v", out)
		}
	}
	e.plain(items[0].Event)
	if e.aliased(items[1].Event) == e.aliased(items[2].Event) {
		e.Error("two events have one alias")
	}
	e.same("rows", e.pending().Owned, int64(3))
	_, err := e.s.Event(e.ctx, nil, id+":0000000000000000")
	e.code(err, surehook.NotFound)
}

func aliasBatch(e *env) {
	id := e.id("order")
	items := e.of(id, "acme", "globex", "acme", "globex")
	for i := range items {
		items[i].Event.Data = items[i%2].Event.Data
	}
	out := e.append(items...)
	e.same("repeats", []bool{out[0].Duplicate, out[1].Duplicate, out[2].Duplicate, out[3].Duplicate}, []bool{false, false, true, true})
	e.same("is the same event", out[3].EventKey, out[1].EventKey)
	e.plain(items[0].Event)
	alias := e.aliased(items[1].Event)
	other := e.of(id, "globex")
	other[0].Event.Data = []byte(`"other"`)
	e.code(e.append(other...)[0].Err, surehook.Conflict)
	again := e.of(id, "globex")
	again[0].Event.Data = items[1].Event.Data
	if out := e.append(again...)[0]; !out.Duplicate || out.Err != nil {
		e.Errorf("%+v", out)
	}
	e.same("alias", e.aliased(items[1].Event), alias)
}

// The outbox keeps order and sequences, so its events take another way.
func aliasOutbox(e *env) {
	ep := e.endpoint()
	id := e.id("order")
	items := e.of(id, "acme", "globex", "globex")
	items[2].Event.ID = e.id("next")
	for i := range items {
		items[i].Event.Owner = "o"
	}
	e.ok(e.append(items[0])[0].Err)
	e.enqueue(items[1].Event, items[2].Event)
	var all []surehook.Append
	for _, w := range e.waiting() {
		all = append(all, surehook.Append{Event: w.Event, Outbox: w.ID, Targets: []surehook.Target{{EndpointKey: ep.Key}}})
	}
	for i, out := range e.append(all...) {
		e.ok(out.Err)
		e.same("deliveries", len(out.Deliveries), 1)
		e.same("sequence", all[i].Event.Sequence, int64(i+1))
	}
	e.aliased(items[1].Event)
	e.plain(items[2].Event)
	e.same("waiting", len(e.waiting()), 0)
	e.same("rows", e.pending().Due, int64(2))
}

func aliasAtOnce(e *env) {
	const tenants, rounds = 6, 10
	for range rounds {
		id := e.id("order")
		var wg sync.WaitGroup
		for i := range tenants {
			item := e.of(id, fmt.Sprint("t", i))[0]
			item.Event.Data = []byte(`1`)
			v := e.version()
			wg.Go(func() {
				if out, err := e.s.Append(e.ctx, v, []surehook.Append{item}); err != nil || out[0].Err != nil || out[0].Duplicate {
					e.Errorf("%+v, %v", out, err)
				}
			})
		}
		wg.Wait()
		seen := map[string]bool{}
		for i := range tenants {
			tenant := fmt.Sprint("t", i)
			ev, err := e.s.Event(e.ctx, &tenant, id)
			e.ok(err)
			seen[ev.WebhookID(surehook.ScopePartner)] = true
		}
		if len(seen) != tenants || !seen[id] {
			e.Fatalf("%d tenants, webhook-ids %v", tenants, seen)
		}
	}
}

// When the event that had the id first is gone, the other's repeats are still
// repeats.
func aliasAfterPrune(e *env) {
	id := e.id("order")
	items := e.of(id, "acme", "globex")
	e.append(items[0])
	e.clock.Advance(20 * days)
	e.append(items[1])
	alias := e.aliased(items[1].Event)
	e.clock.Advance(15 * days)
	e.same("removed", e.prune(10), int64(1))
	_, err := e.s.Event(e.ctx, &items[0].Event.Tenant, id)
	e.code(err, surehook.NotFound)
	again := e.of(id, "globex")
	again[0].Event.Data = items[1].Event.Data
	if out := e.append(again...)[0]; !out.Duplicate {
		e.Errorf("%+v", out)
	}
	e.same("alias", e.aliased(items[1].Event), alias)
}
