package storetest

import (
	"slices"

	"github.com/surehook/surehook"
)

// What a partner's keys see.

var scopeTests = map[string]func(*env){
	"Scopes/a partner's events":              scopeEvents,
	"Scopes/a partner's endpoints":           scopeEndpoints,
	"Scopes/a partner's tenants":             scopeTenants,
	"Scopes/keys and permissions are kept":   scopeKeys,
	"Scopes/what fixes a body is kept":       scopeBody,
	"Scopes/the outbox keeps who is told":    scopeOutbox,
	"Scopes/a cut event is told by what was": scopeGiven,
}

func (e *env) tenant(id, partner string) {
	e.Helper()
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: id, Partner: partner}, nil))
}

func (e *env) seenBy(partner string) *surehook.Event {
	ev := e.event()
	ev.Tenant, ev.Partner = "t-"+partner, partner
	return ev
}

func scopeEvents(e *env) {
	mine, other, nobodys, news := e.seenBy("p"), e.seenBy("q"), e.event(), e.event()
	news.Partner, news.About = "p", "whk_1" // of the partner itself, without a tenant
	for _, ev := range []*surehook.Event{mine, other, nobodys, news} {
		e.append(surehook.Append{Event: ev})
	}
	got, err := e.s.ListEvents(e.ctx, surehook.EventFilter{Partner: "p"}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("events", len(got), 2)
	e.same("newest first", []string{got[0].ID, got[1].ID}, []string{news.ID, mine.ID})
	e.same("partner", got[0].Partner, "p")
	got, err = e.s.ListEvents(e.ctx, surehook.EventFilter{Partner: "p", Tenant: mine.Tenant}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("of one tenant", len(got), 1)
	got, err = e.s.ListEvents(e.ctx, surehook.EventFilter{Partner: "p", Tenant: other.Tenant}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("of another's tenant", len(got), 0)
	got, err = e.s.ListEvents(e.ctx, surehook.EventFilter{Partner: "p"}, surehook.Page{Limit: 1, Cursor: news.Key})
	e.ok(err)
	e.same("second page", got[0].ID, mine.ID)
}

func scopeEndpoints(e *env) {
	e.tenant("t1", "p")
	e.tenant("t2", "q")
	own := e.endpoint(func(ep *surehook.Endpoint) { ep.Partner = "p" })
	tenants := e.endpoint(func(ep *surehook.Endpoint) { ep.Tenant = "t1" })
	e.endpoint(func(ep *surehook.Endpoint) { ep.Tenant = "t2" })
	e.endpoint(func(ep *surehook.Endpoint) { ep.Tenant = "t3" })
	e.endpoint(func(ep *surehook.Endpoint) { ep.Partner = "q" })
	e.endpoint()
	got, err := e.s.ListEndpoints(e.ctx, surehook.EndpointFilter{Of: "p"}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("endpoints", len(got), 2)
	e.same("newest first", []string{got[0].ID, got[1].ID}, []string{tenants.ID, own.ID})
	e.tenant("t1", "")
	got, err = e.s.ListEndpoints(e.ctx, surehook.EndpointFilter{Of: "p"}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("after the tenant left", len(got), 1)
}

func scopeTenants(e *env) {
	for _, t := range [][2]string{{"a", "p"}, {"b", "q"}, {"c", "p"}, {"d", ""}, {"e", "p"}} {
		e.tenant(t[0], t[1])
	}
	var seen []string
	for p := (surehook.Page{Limit: 2}); ; {
		ts, err := e.s.ListTenants(e.ctx, "p", p)
		e.ok(err)
		for _, t := range ts {
			seen = append(seen, t.ID)
		}
		if len(ts) < p.Limit {
			break
		}
		p.Cursor = ts[len(ts)-1].Key
	}
	slices.Sort(seen)
	e.same("tenants", seen, []string{"a", "c", "e"})
}

func scopeKeys(e *env) {
	k := &surehook.APIKey{ID: e.id("key"), Hash: []byte("h"), Partner: "p", Permissions: []string{"mail:read", "read"}}
	e.ok(e.s.CreateKey(e.ctx, k, nil))
	got, err := e.s.KeyByHash(e.ctx, k.Hash)
	e.ok(err)
	e.same("key", []any{got.Tenant, got.Partner, got.Permissions}, []any{"", "p", []string{"mail:read", "read"}})
	for _, requires := range []string{"mail:read", ""} {
		e.ok(e.s.PutEventType(e.ctx, &surehook.EventType{Name: "mail.received", Requires: requires}, nil))
		types, err := e.s.EventTypes(e.ctx)
		e.ok(err)
		e.same("requires", types[0].Requires, requires)
	}
}

func scopeBody(e *env) {
	ep := e.endpoint()
	ev := e.seenBy("p")
	ev.APIVersion = "2030-01-01"
	e.publishEvent(ev, false, ep)
	c := e.claim(ep, 1)
	e.same("as claimed", []string{c.Rows[0].Event.APIVersion, c.Rows[0].Event.Partner}, []string{"2030-01-01", "p"})
	e.s = e.opener()
	got, err := e.s.EventByKey(e.ctx, ev.Key)
	e.ok(err)
	e.same("as stored", []string{got.APIVersion, got.Partner}, []string{"2030-01-01", "p"})
}

func scopeOutbox(e *env) {
	ev := e.event()
	ev.Partner, ev.About = "p", "whk_1"
	e.enqueue(ev)
	e.same("partner", e.waiting()[0].Event.Partner, "p")
}

// An event whose texts were cut is told from others by what its caller gave.
func scopeGiven(e *env) {
	whole, cut := e.event(), e.event()
	cut.ID, cut.Type, cut.Given, cut.Data = whole.ID, whole.Type, whole.ContentHash(), []byte(`"cut"`)
	e.append(surehook.Append{Event: cut})
	out := e.append(surehook.Append{Event: whole})[0]
	e.same("a repeat of the whole", out.Duplicate, true)
	again := e.event()
	again.ID, again.Type, again.Data = whole.ID, whole.Type, cut.Data
	e.code(e.append(surehook.Append{Event: again})[0].Err, surehook.Conflict)
	got, err := e.s.EventByKey(e.ctx, cut.Key)
	e.ok(err)
	e.same("bytes", string(got.Data), `"cut"`)
}
