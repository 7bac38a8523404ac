package storetest

import (
	"time"

	"github.com/surehook/surehook"
)

func (e *env) pullSession(tenant, id string) *surehook.PullSession {
	e.Helper()
	s := &surehook.PullSession{ID: id, Tenant: tenant}
	e.ok(e.s.OpenPullSession(e.ctx, s, time.Hour, false, nil))
	return s
}

// feeding is an endpoint that feeds a session's inbox.
func (e *env) feeding(s *surehook.PullSession) *surehook.Endpoint {
	e.Helper()
	return e.endpoint(func(ep *surehook.Endpoint) { ep.URL, ep.Inbox, ep.Tenant, ep.Partner = "", s.Key, s.Tenant, s.Partner })
}

func (e *env) endPull(s *surehook.PullSession, idle time.Duration) bool {
	e.Helper()
	ended, err := e.s.EndPullSession(e.ctx, s.Key, surehook.PullSessionClosed, idle, &surehook.AuditEntry{Action: "session.close", Target: s.ID})
	e.ok(err)
	return ended
}

func pullLife(e *env) {
	created := ms(e.clock.Now())
	s := e.pullSession("acme", "agent-1")
	e.same("made", *s, surehook.PullSession{Key: s.Key, ID: "agent-1", Tenant: "acme", CreatedAt: created, SeenAt: created})
	e.clock.Advance(time.Minute)
	again := e.pullSession("acme", "agent-1")
	e.same("the same one, seen now", *again, surehook.PullSession{Key: s.Key, ID: "agent-1", Tenant: "acme", CreatedAt: created, SeenAt: ms(e.clock.Now())})
	e.same("ended", e.endPull(s, 0), true)
	ended := ms(e.clock.Now())
	e.same("once", e.endPull(s, 0), false)
	got, err := e.s.PullSession(e.ctx, "acme", "", "agent-1")
	e.ok(err)
	e.same("remembered", []any{got.EndedAt, got.EndReason}, []any{ended, surehook.PullSessionClosed})
	e.code(e.s.OpenPullSession(e.ctx, &surehook.PullSession{ID: "agent-1", Tenant: "acme"}, time.Hour, false, nil), surehook.NotAlive)
	anew := &surehook.PullSession{ID: "agent-1", Tenant: "acme"}
	e.ok(e.s.OpenPullSession(e.ctx, anew, time.Hour, true, &surehook.AuditEntry{Action: "session.open", Target: "agent-1"}))
	if anew.Key <= s.Key {
		e.Fatal("the new one isn't another")
	}
	e.same("goes on", e.pullSession("acme", "agent-1").Key, anew.Key)
	all, err := e.s.ListPullSessions(e.ctx, surehook.Viewer{Tenant: "acme"}, surehook.Page{Limit: 1})
	e.ok(err)
	e.same("newest first", all[0].Key, anew.Key)
	all, err = e.s.ListPullSessions(e.ctx, surehook.Viewer{Tenant: "acme"}, surehook.Page{Limit: 5, Cursor: all[0].Key})
	e.ok(err)
	e.same("the next page", []any{len(all), all[0].Key}, []any{1, s.Key})
	audit, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("told", []any{len(audit), audit[0].Action, audit[1].Action}, []any{2, "session.open", "session.close"})
}

func pullInbox(e *env) {
	s := e.pullSession("", "agent")
	a, b := e.feeding(s), e.feeding(s)
	e.same("its inbox", a.Inbox, s.Key)
	var want []int64
	for _, ep := range []*surehook.Endpoint{a, b, a} {
		want = append(want, e.publish(false, ep)[0].EventKey)
		e.clock.Advance(time.Millisecond)
	}
	p := e.pull(s.Key, 0, 10)
	e.same("in order of arrival", eventsOf(p), want)
	e.same("one series of numbers", numbersOf(p), []int64{1, 2, 3})
	e.same("whose it is", []int64{p.Items[0].Delivery.EndpointKey, p.Items[1].Delivery.EndpointKey}, []int64{a.Key, b.Key})
	v := e.version()
	e.publish(false, a)
	e.same("ended", e.endPull(s, 0), true)
	if e.version() == v {
		e.Fatal("nobody hears of it")
	}
	for _, ep := range []*surehook.Endpoint{a, b} {
		got := e.reload(ep)
		e.same("disabled", []any{got.Enabled, got.DisabledReason, got.Version}, []any{false, surehook.ReasonSession, ep.Version + 1})
	}
	left, err := e.s.EndedPullSessions(e.ctx, 10)
	e.ok(err)
	e.same("holds something", []any{len(left), left[0].Key}, []any{1, s.Key})
	n, more, err := e.s.Trim(e.ctx, s.Key, nil, surehook.SessionEnded, 10)
	e.ok(err)
	e.same("ended with it", []any{n, more}, []any{4, false})
	left, err = e.s.EndedPullSessions(e.ctx, 10)
	e.ok(err)
	e.same("holds nothing", len(left), 0)
	e.code(e.s.CreateEndpoint(e.ctx, &surehook.Endpoint{ID: e.id("whk"), Inbox: s.Key, Enabled: true}, 0, nil), surehook.NotAlive)
}

func pullIdle(e *env) {
	a, b := e.pullSession("", "a"), e.pullSession("", "b")
	e.clock.Advance(time.Hour - time.Millisecond)
	e.pullSession("", "b")
	e.clock.Advance(time.Millisecond)
	for _, anew := range []bool{false, true} {
		e.code(e.s.OpenPullSession(e.ctx, &surehook.PullSession{ID: "a"}, time.Hour, anew, nil), surehook.NotAlive)
	}
	idle, err := e.s.IdlePullSessions(e.ctx, time.Hour, 10)
	e.ok(err)
	e.same("idle", []any{len(idle), idle[0].Key}, []any{1, a.Key})
	e.same("one that was heard of stays", e.endPull(b, time.Hour), false)
	e.same("ended", e.endPull(a, time.Hour), true)
	idle, err = e.s.IdlePullSessions(e.ctx, time.Hour, 10)
	e.ok(err)
	e.same("idle", len(idle), 0)
}

func pullScope(e *env) {
	acme, globex := e.pullSession("acme", "x"), e.pullSession("globex", "x")
	if acme.Key == globex.Key {
		e.Fatal("one session of two tenants")
	}
	_, err := e.s.PullSession(e.ctx, "", "", "x")
	e.code(err, surehook.NotFound)
	all, err := e.s.ListPullSessions(e.ctx, surehook.Viewer{Tenant: "globex"}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("its own", []any{len(all), all[0].Key}, []any{1, globex.Key})
	e.tenant("acme", "north")
	north := &surehook.PullSession{ID: "x", Partner: "north"}
	e.ok(e.s.OpenPullSession(e.ctx, north, time.Hour, false, nil))
	for _, of := range []struct {
		who  surehook.Viewer
		want []int64
	}{{surehook.Viewer{Partner: "north"}, []int64{north.Key, acme.Key}}, {surehook.Viewer{Partner: "south"}, nil}, {surehook.Viewer{}, []int64{north.Key, globex.Key, acme.Key}}} {
		var keys []int64
		all, err := e.s.ListPullSessions(e.ctx, of.who, surehook.Page{Limit: 10})
		e.ok(err)
		for _, s := range all {
			keys = append(keys, s.Key)
		}
		e.same("what they see", keys, of.want)
	}
	got, err := e.s.PullSessionOf(e.ctx, globex.Key)
	e.ok(err)
	e.same("by its inbox", *got, *globex)
	_, err = e.s.PullSessionOf(e.ctx, -1)
	e.code(err, surehook.NotFound)
	ep := e.feeding(acme)
	eps, err := e.s.ListEndpoints(e.ctx, surehook.EndpointFilter{Inbox: acme.Key}, surehook.Page{Limit: 10})
	e.ok(err)
	e.same("what feeds it", []any{len(eps), eps[0].ID}, []any{1, ep.ID})
	e.code(e.s.CreateEndpoint(e.ctx, &surehook.Endpoint{ID: e.id("whk"), Tenant: "acme", Inbox: globex.Key, Enabled: true}, 0, nil), surehook.NotFound)
}

func pullForget(e *env) {
	s := e.pullSession("", "a")
	ep := e.feeding(s)
	e.publish(false, ep)
	e.endPull(s, 0)
	e.clock.Advance(48 * time.Hour)
	forget := func() int {
		n, err := e.s.ForgetPullSessions(e.ctx, 24*time.Hour, 10)
		e.ok(err)
		return n
	}
	e.same("holds something", forget(), 0)
	_, _, err := e.s.Trim(e.ctx, s.Key, nil, surehook.SessionEnded, 10)
	e.ok(err)
	e.same("is fed", forget(), 0)
	e.ok(e.s.DeleteEndpoint(e.ctx, ep.ID, nil))
	e.pullSession("", "b")
	e.same("one", forget(), 1)
	_, err = e.s.PullSession(e.ctx, "", "", "a")
	e.code(err, surehook.NotFound)
	e.same("from the start", e.pullSession("", "a").EndedAt.IsZero(), true)
	_, err = e.s.Pull(e.ctx, s.Key, 0, 1, 1)
	e.code(err, surehook.NotFound)
}
