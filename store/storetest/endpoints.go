package storetest

import (
	"errors"
	"time"

	"github.com/surehook/surehook"
)

var endpointTests = map[string]func(*env){
	"Endpoints/keep every field":                 endpointFields,
	"Endpoints/are bounded by scope":             endpointLimit,
	"Endpoints/one id, one endpoint":             endpointConflict,
	"Endpoints/an update goes up a version":      endpointUpdate,
	"Endpoints/an update that refuses is none":   endpointRefuse,
	"Endpoints/updates at once don't get lost":   endpointRace,
	"Endpoints/a deleted one leaves a tombstone": endpointDelete,
	"Endpoints/changes since a version":          endpointChanges,
	"Endpoints/filters":                          endpointFilter,
	"Endpoints/statistics":                       endpointStats,
}

// full is an endpoint with every field set.
func (e *env) full() *surehook.Endpoint {
	now := e.clock.Now()
	return &surehook.Endpoint{
		ID: e.id("whk"), Tenant: "acme", URL: "https://example.com:8443/a?b=c%20d", Description: "ours, “quoted”",
		EventTypes: []string{"order.*", "user.created"}, Subjects: []string{"a*", "b,c"}, Identities: []string{"ali"},
		Profile: "pylota", Envelope: surehook.EnvelopeThin, Signature: "v1a", Headers: map[string]string{"X-A": "1", "X-B": "\"2\""},
		Limits:  surehook.Limits{Waits: []time.Duration{time.Millisecond, time.Hour}, Attempts: 3, Timeout: 1500 * time.Millisecond, Rate: 0.5, Concurrency: 4, Paused: true},
		Enabled: true, Secrets: surehook.Secrets{Current: "sealed:1", Previous: "sealed:0", PreviousUntil: now.Add(time.Hour)},
	}
}

func endpointFields(e *env) {
	ep := e.full()
	want := *ep
	e.ok(e.s.CreateEndpoint(e.ctx, ep, 0, &surehook.AuditEntry{Actor: "key_1", Action: "webhook.create", Target: ep.ID, Tenant: "acme"}))
	if ep.Key == 0 {
		e.Fatal("no key was filled in")
	}
	want.Key, want.Version, want.CreatedAt, want.UpdatedAt = ep.Key, 1, ms(e.clock.Now()), ms(e.clock.Now())
	e.same("filled in", ep, want)
	want.Secrets.PreviousUntil = ms(want.Secrets.PreviousUntil)
	e.same("stored", e.reload(ep), want)
	e.reopen()
	e.same("after a new start", e.reload(ep), want)
	audit, err := e.s.ListAudit(e.ctx, "acme", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("audit", audit, []surehook.AuditEntry{{Key: audit[0].Key, At: ms(e.clock.Now()), Actor: "key_1", Action: "webhook.create", Target: ep.ID, Tenant: "acme"}})
}

func endpointLimit(e *env) {
	create := func(tenant, partner string) error {
		return e.s.CreateEndpoint(e.ctx, &surehook.Endpoint{ID: e.id("whk"), Tenant: tenant, Partner: partner, URL: "https://example.com/", Enabled: true}, 2, nil)
	}
	for _, scope := range [][2]string{{"acme", ""}, {"globex", ""}, {"", "p1"}, {"", ""}} {
		e.ok(create(scope[0], scope[1]))
		e.ok(create(scope[0], scope[1]))
		e.code(create(scope[0], scope[1]), surehook.LimitReached)
	}
	acme, err := e.s.ListEndpoints(e.ctx, surehook.EndpointFilter{Tenant: "acme"}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("endpoints", len(acme), 2)
	e.ok(e.s.DeleteEndpoint(e.ctx, acme[0].ID, nil))
	e.ok(create("acme", ""))
}

func endpointConflict(e *env) {
	ep := e.endpoint()
	again := &surehook.Endpoint{ID: ep.ID, URL: "https://example.net/"}
	e.code(e.s.CreateEndpoint(e.ctx, again, 0, &surehook.AuditEntry{Action: "webhook.create"}), surehook.Conflict)
	e.same("stored", e.reload(ep).URL, ep.URL)
	audit, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("what didn't happen isn't told", len(audit), 0)
}

func endpointUpdate(e *env) {
	ep := e.endpoint()
	e.clock.Advance(time.Minute)
	change := e.full()
	got, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error {
		*ep = *change // even what isn't the caller's to change
		ep.Health.ConsecutiveFailures, ep.Version, ep.Deleted = 7, 99, true
		return nil
	}, &surehook.AuditEntry{Action: "webhook.update", Target: ep.ID})
	e.ok(err)
	want := *change
	want.Key, want.ID, want.Version, want.CreatedAt, want.UpdatedAt = ep.Key, ep.ID, 2, ep.CreatedAt, ms(e.clock.Now())
	want.Health.ConsecutiveFailures = 7
	want.Secrets.PreviousUntil = ms(want.Secrets.PreviousUntil)
	e.same("answered", got, want)
	e.same("stored", e.reload(ep), want)
	audit, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("told", audit[0].Action, "webhook.update")
	_, err = e.s.UpdateEndpoint(e.ctx, "whk_none", func(*surehook.Endpoint) error { return nil }, nil)
	e.code(err, surehook.NotFound)
}

func endpointRefuse(e *env) {
	ep := e.endpoint()
	before, version := e.reload(ep), e.version()
	refusal := errors.New("the caller's own")
	_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error { ep.URL = "x"; return refusal }, &surehook.AuditEntry{Action: "webhook.update"})
	if !errors.Is(err, refusal) {
		e.Fatalf("got %v", err)
	}
	e.same("stored", e.reload(ep), before)
	e.same("version", e.version(), version)
}

func endpointRace(e *env) {
	ep := e.endpoint()
	done := make(chan error)
	for range 20 {
		go func() {
			_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error { ep.Limits.Attempts++; return nil }, nil)
			done <- err
		}()
	}
	for range 20 {
		e.ok(<-done)
	}
	after := e.reload(ep)
	e.same("attempts", after.Limits.Attempts, 20)
	e.same("version", after.Version, int64(21))
}

func endpointDelete(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	before := e.version()
	e.ok(e.s.DeleteEndpoint(e.ctx, ep.ID, &surehook.AuditEntry{Action: "webhook.delete"}))
	_, err := e.s.Endpoint(e.ctx, ep.ID)
	e.code(err, surehook.NotFound)
	e.code(e.s.DeleteEndpoint(e.ctx, ep.ID, nil), surehook.NotFound)
	_, err = e.s.UpdateEndpoint(e.ctx, ep.ID, func(*surehook.Endpoint) error { return nil }, nil)
	e.code(err, surehook.NotFound)
	list, err := e.s.ListEndpoints(e.ctx, surehook.EndpointFilter{}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("listed", len(list), 0)
	changed, _, err := e.s.Changes(e.ctx, before)
	e.ok(err)
	e.same("told", len(changed), 1)
	e.same("tombstone", []any{changed[0].ID, changed[0].Deleted, changed[0].Enabled}, []any{ep.ID, true, false})
	e.same("secrets", changed[0].Secrets, surehook.Secrets{})
	// An attempt that was on its way is still recorded, and judges nobody.
	o := e.outcome(d, surehook.Bury)
	e.recordWith(surehook.HealthRule{After: 1}, o)
	e.same("its name stays", e.attempts(d)[0].EndpointID, ep.ID)
}

func endpointChanges(e *env) {
	none, v0, err := e.s.Changes(e.ctx, 0)
	e.ok(err)
	e.same("none", len(none), 0)
	a, b := e.endpoint(), e.endpoint()
	all, v1, err := e.s.Changes(e.ctx, v0)
	e.ok(err)
	e.same("both", []string{all[0].ID, all[1].ID}, []string{a.ID, b.ID})
	_, err = e.s.UpdateEndpoint(e.ctx, a.ID, func(ep *surehook.Endpoint) error { ep.Enabled = false; return nil }, nil)
	e.ok(err)
	some, v2, err := e.s.Changes(e.ctx, v1)
	e.ok(err)
	e.same("one", len(some), 1)
	e.same("as it is", some[0], e.reload(a))
	if v0 > v1 || v1 >= v2 {
		e.Fatalf("versions %d, %d, %d", v0, v1, v2)
	}
	again, v3, err := e.s.Changes(e.ctx, v2)
	e.ok(err)
	e.same("nothing more", len(again), 0)
	e.same("version", v3, v2)
	// Which partner sees a tenant's events is configuration too.
	e.ok(e.s.PutTenant(e.ctx, &surehook.Tenant{ID: "acme", Partner: "p1"}, nil))
	if e.version() <= v2 {
		e.Fatal("a tenant's new partner didn't change the version")
	}
}

func endpointFilter(e *env) {
	t := e.endpoint(func(ep *surehook.Endpoint) { ep.Tenant = "acme" })
	p := e.endpoint(func(ep *surehook.Endpoint) { ep.Partner = "p1"; ep.Enabled = false })
	plain := e.endpoint()
	yes, no := true, false
	for _, c := range []struct {
		f    surehook.EndpointFilter
		want []string
	}{
		{surehook.EndpointFilter{}, []string{plain.ID, p.ID, t.ID}},
		{surehook.EndpointFilter{Tenant: "acme"}, []string{t.ID}},
		{surehook.EndpointFilter{Partner: "p1"}, []string{p.ID}},
		{surehook.EndpointFilter{Platform: true}, []string{plain.ID}},
		{surehook.EndpointFilter{Enabled: &yes}, []string{plain.ID, t.ID}},
		{surehook.EndpointFilter{Enabled: &no}, []string{p.ID}},
		{surehook.EndpointFilter{Tenant: "acme", Enabled: &no}, nil},
		{surehook.EndpointFilter{Tenant: "acm%"}, nil},
	} {
		got, err := e.s.ListEndpoints(e.ctx, c.f, surehook.Page{Limit: 10})
		e.ok(err)
		var ids []string
		for _, ep := range got {
			ids = append(ids, ep.ID)
		}
		e.same("endpoints", ids, c.want)
	}
}

func endpointStats(e *env) {
	ep, other := e.endpoint(), e.endpoint()
	start := e.clock.Now()
	put := func(ep *surehook.Endpoint, decision surehook.Decision, took time.Duration) {
		o := e.outcome(e.publish(true, ep)[0], decision)
		o.Attempt.Duration = took
		e.record(o)
	}
	for i := range 100 {
		put(ep, surehook.Finish, time.Duration(i+1)*time.Millisecond)
	}
	put(other, surehook.Finish, time.Hour)
	e.clock.Advance(2 * time.Minute)
	put(ep, surehook.Again, time.Second)
	put(ep, surehook.Bury, 3*time.Second)
	test := e.outcome(surehook.Delivery{EventKey: e.append(surehook.Append{Event: e.event()})[0].EventKey, EndpointKey: ep.Key}, surehook.Note)
	test.Attempt.Test = true
	e.record(test)
	e.clock.Advance(time.Minute)
	put(ep, surehook.Finish, time.Millisecond) // at the end of the window: out
	got, err := e.s.Stats(e.ctx, surehook.StatsFilter{Endpoint: ep.Key}, start, start.Add(3*time.Minute), time.Minute)
	e.ok(err)
	e.same("buckets", got, []surehook.StatsBucket{
		{Start: start, Attempts: 100, Succeeded: 100, P50: 50 * time.Millisecond, P95: 95 * time.Millisecond, P99: 99 * time.Millisecond},
		{Start: start.Add(time.Minute)},
		{Start: start.Add(2 * time.Minute), Attempts: 2, Failed: 1, Dead: 1, P50: time.Second, P95: 3 * time.Second, P99: 3 * time.Second},
	})
	got, err = e.s.Stats(e.ctx, surehook.StatsFilter{Endpoint: ep.Key}, start.Add(-48*time.Hour), start.Add(-47*time.Hour), time.Hour)
	e.ok(err)
	e.same("before", got[0].Attempts, int64(0))
	_, err = e.s.Stats(e.ctx, surehook.StatsFilter{Endpoint: ep.Key}, start, start, time.Minute)
	e.code(err, surehook.InvalidRequest)
}
