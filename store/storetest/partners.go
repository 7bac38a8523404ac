package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

var partnerTests = map[string]func(*env){
	"Partners/are put, found and deleted":                partnerCRUD,
	"Partners/what is held isn't due":                    partnerHeld,
	"Pending/what is paused isn't due":                   pausedHeld,
	"Expire/what left the window, the tenant's own days": expireWindow,
	"Expire/in bounded steps, and only what is free":     expireSteps,
}

func partnerCRUD(e *env) {
	v := e.version()
	p := &surehook.Partner{ID: "hub", Name: "The “Hub”"}
	e.ok(e.s.PutPartner(e.ctx, p, false, &surehook.AuditEntry{Action: "partner.put"}))
	created := ms(e.clock.Now())
	e.same("filled in", *p, surehook.Partner{Key: p.Key, ID: "hub", Name: "The “Hub”", CreatedAt: created, UpdatedAt: created})
	e.same("one that is active changes nothing", e.version(), v)
	e.clock.Advance(time.Hour)
	e.ok(e.s.PutPartner(e.ctx, &surehook.Partner{ID: "hub", Name: "Hub", Suspended: true}, false, nil))
	if e.version() == v {
		e.Fatal("nobody hears of the suspension")
	}
	got, err := e.s.Partner(e.ctx, "hub")
	e.ok(err)
	e.same("partner", *got, surehook.Partner{Key: p.Key, ID: "hub", Name: "Hub", Suspended: true, CreatedAt: created, UpdatedAt: ms(e.clock.Now())})
	e.ok(e.s.PutPartner(e.ctx, &surehook.Partner{ID: "abc", Suspended: true}, false, nil))
	suspended, err := e.s.Suspended(e.ctx)
	e.ok(err)
	e.same("suspended", suspended, []string{"abc", "hub"})
	v = e.version()
	kept, fresh := &surehook.Partner{ID: "hub", Name: "Hub"}, &surehook.Partner{ID: "new", Suspended: true}
	e.ok(e.s.PutPartner(e.ctx, kept, true, nil))
	e.ok(e.s.PutPartner(e.ctx, fresh, true, nil))
	e.same("kept as it was, and a new one", []any{kept.Suspended, fresh.Suspended, e.version()}, []any{true, false, v})
	suspended, err = e.s.Suspended(e.ctx)
	e.ok(err)
	e.same("still suspended", suspended, []string{"abc", "hub"})
	e.ok(e.s.DeletePartner(e.ctx, "new", nil))
	all, err := e.s.ListPartners(e.ctx, surehook.Page{Limit: 1})
	e.ok(err)
	e.same("newest first", []any{len(all), all[0].ID}, []any{1, "abc"})
	all, err = e.s.ListPartners(e.ctx, surehook.Page{Limit: 1, Cursor: all[0].Key})
	e.ok(err)
	e.same("the next page", []any{len(all), all[0].ID}, []any{1, "hub"})
	v = e.version()
	e.ok(e.s.DeletePartner(e.ctx, "hub", &surehook.AuditEntry{Action: "partner.delete"}))
	if e.version() == v {
		e.Fatal("nobody hears of the end of the suspension")
	}
	_, err = e.s.Partner(e.ctx, "hub")
	e.code(err, surehook.NotFound)
	e.code(e.s.DeletePartner(e.ctx, "hub", nil), surehook.NotFound)
	audit, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("told", []any{len(audit), audit[0].Action}, []any{2, "partner.delete"})
}

// expireAll looks through all rows of an endpoint.
func (e *env) expireAll(ep *surehook.Endpoint, w surehook.Window, step int) (ended int) {
	e.Helper()
	var at surehook.Place
	for range 1000 {
		n, next, err := e.s.Expire(e.ctx, ep.Key, w, at, step)
		e.ok(err)
		ended += n
		if at = next; at == (surehook.Place{}) {
			return ended
		}
	}
	e.Fatal("no end")
	return 0
}

func expireWindow(e *env) {
	for _, t := range []surehook.Tenant{{ID: "short", EventsDays: 7}, {ID: "long", EventsDays: 90}} {
		e.ok(e.s.PutTenant(e.ctx, &t, nil))
	}
	ep := e.endpoint()
	row := func(tenant string, occurred time.Duration) surehook.Delivery {
		ev := e.event()
		ev.Tenant, ev.OccurredAt = tenant, e.clock.Now().Add(occurred)
		return e.publishEvent(ev, false, ep)[0]
	}
	late := row("", -29*days) // accepted now
	plain, short, long := row("", 0), row("short", 0), row("long", 0)
	w := surehook.Window{Most: 30 * days, Kept: 60 * days}
	e.same("all are in", e.expireAll(ep, w, 10), 0)
	e.clock.Advance(8 * days)
	e.same("by when it occurred, and by the tenant's days", e.expireAll(ep, w, 10), 2)
	for _, d := range []surehook.Delivery{late, short} {
		e.same("dead", e.view(d).Status, surehook.Dead)
		as := e.attempts(d)
		e.same("why", []any{len(as), as[0].Status, as[0].Code, as[0].Number}, []any{1, surehook.AttemptDead, surehook.EventUnavailable, 1})
	}
	e.same("a longer keep is no longer window", e.view(long).Status, surehook.Pending)
	e.clock.Advance(23 * days)
	e.same("the most", e.expireAll(ep, w, 10), 2)
	e.same("letters", len(e.letters()), 4)
	e.same("dead", e.view(plain).Status, surehook.Dead)
	row("", -1000*days)
	e.same("no bound", e.expireAll(ep, surehook.Window{}, 10), 0)
}

func expireSteps(e *env) {
	ep, other := e.endpoint(), e.endpoint()
	for range 9 { // at one moment: the place tells them apart
		e.publish(false, ep)
	}
	e.publish(false, other)
	held := e.claim(ep, 1).Rows[0].Delivery
	e.clock.Advance(31 * days)
	n, next, err := e.s.Expire(e.ctx, ep.Key, surehook.Window{Most: 30 * days}, surehook.Place{}, 3)
	e.ok(err)
	e.same("ended", n, 3)
	if next == (surehook.Place{}) {
		e.Fatal("more is to come")
	}
	e.same("the others", e.expireAll(ep, surehook.Window{Most: 30 * days}, 3), 5)
	e.same("rows", e.pending().Owned, int64(1))
	e.same("what is out stays", e.view(held).Status, surehook.Pending)
	e.same("another endpoint's stay", len(e.claim(other, 10).Rows), 1)
}

func partnerHeld(e *env) {
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "acme", Partner: "hub"}, nil))
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "solo"}, nil))
	of := func(tenant, partner string) *surehook.Endpoint {
		return e.endpoint(func(ep *surehook.Endpoint) { ep.Tenant, ep.Partner = tenant, partner })
	}
	acme, hub, solo, platform := of("acme", ""), of("", "hub"), of("solo", ""), of("", "")
	e.publish(false, acme, hub)
	oldest := ms(e.clock.Now())
	e.clock.Advance(time.Minute)
	e.publish(false, acme, hub, solo, platform)
	o := e.outcome(e.publish(true, acme)[0], surehook.Again)
	o.Wait = time.Hour
	e.record(o)
	e.publish(true, hub)
	now := ms(e.clock.Now())
	e.same("active", e.pending(), surehook.PendingCount{Owned: 1, Due: 6, Waiting: 1, OldestDue: oldest})
	e.ok(e.s.PutPartner(e.ctx, &surehook.Partner{ID: "hub", Suspended: true}, false, nil))
	e.same("suspended", e.pending(), surehook.PendingCount{Owned: 1, Due: 2, Waiting: 1, Held: 4, OldestDue: now})
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "acme"}, nil))
	e.same("a tenant that left it", e.pending(), surehook.PendingCount{Owned: 1, Due: 4, Waiting: 1, Held: 2, OldestDue: oldest})
	e.ok(e.s.PutPartner(e.ctx, &surehook.Partner{ID: "hub"}, false, nil))
	e.same("active again", e.pending(), surehook.PendingCount{Owned: 1, Due: 6, Waiting: 1, OldestDue: oldest})
}

func pausedHeld(e *env) {
	ep, other := e.endpoint(), e.endpoint()
	e.publish(false, ep, other)
	due := ms(e.clock.Now())
	pause := func(on bool) {
		_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error {
			ep.Limits.Paused = on
			return nil
		}, nil)
		e.ok(err)
	}
	pause(true)
	e.same("paused", e.pending(), surehook.PendingCount{Due: 1, Held: 1, OldestDue: due})
	pause(false)
	e.same("resumed", e.pending(), surehook.PendingCount{Due: 2, OldestDue: due})
}
