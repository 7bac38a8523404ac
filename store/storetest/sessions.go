package storetest

import (
	"bytes"
	"crypto/sha256"
	"sync"
	"time"

	"github.com/surehook/surehook"
)

var sessionTests = map[string]func(*env){
	"Sessions/what is stored":           sessionKept,
	"Sessions/a link is taken up once":  sessionLink,
	"Sessions/use never goes back":      sessionUsed,
	"Sessions/expired ones are let go":  sessionExpired,
	"Standing/by viewer":                standing,
	"Stats/of all that a viewer sees":   statsOfAll,
	"Sessions/they outlive the process": sessionReopened,
}

func hashOf(token string) []byte {
	sum := sha256.Sum256([]byte(token))
	return sum[:]
}

func (e *env) session(token string, kind surehook.SessionKind) *surehook.Session {
	e.Helper()
	now := e.clock.Now()
	return &surehook.Session{ID: e.id("ses"), Kind: kind, Hash: hashOf(token), KeyHash: hashOf("key"), Subject: "oidc:ann@example.com", Tenant: "acme", Permissions: []string{"read"},
		CreatedAt: now, UsedAt: now, ExpiresAt: now.Add(time.Hour)}
}

// heldSession reads a session as it is kept: times are in milliseconds.
func (e *env) heldSession(token string) *surehook.Session {
	e.Helper()
	s, err := e.s.Session(e.ctx, hashOf(token))
	e.ok(err)
	return s
}

func sessionKept(e *env) {
	want := e.session("a", surehook.SessionPortal)
	e.ok(e.s.OpenSession(e.ctx, want, nil, &surehook.AuditEntry{Action: "session.open", Target: want.ID}))
	e.same("read", e.heldSession("a"), want)
	e.code(e.s.OpenSession(e.ctx, want, nil, nil), surehook.Conflict)
	log, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 10})
	e.ok(err)
	e.same("audited", len(log) == 1 && log[0].Target == want.ID, true)
	for range 2 { // twice is fine
		e.ok(e.s.EndSession(e.ctx, want.Hash))
	}
	_, err = e.s.Session(e.ctx, want.Hash)
	e.code(err, surehook.NotFound)
}

func sessionReopened(e *env) {
	want := e.session("a", surehook.SessionConsole)
	e.ok(e.s.OpenSession(e.ctx, want, nil, nil))
	e.reopen()
	e.same("read", e.heldSession("a"), want)
}

func sessionLink(e *env) {
	link := e.session("link", surehook.SessionLink)
	e.ok(e.s.OpenSession(e.ctx, link, nil, nil))
	e.ok(e.s.OpenSession(e.ctx, e.session("other", surehook.SessionConsole), nil, nil))
	e.code(e.s.OpenSession(e.ctx, e.session("x", surehook.SessionPortal), hashOf("other"), nil), surehook.NotFound) // it is no link

	// Of many at once, one gets it.
	var wg sync.WaitGroup
	var mu sync.Mutex
	got := 0
	for _, token := range []string{"1", "2", "3", "4", "5", "6", "7", "8"} {
		s := e.session(token, surehook.SessionPortal)
		wg.Go(func() {
			if err := e.s.OpenSession(e.ctx, s, link.Hash, nil); err == nil {
				mu.Lock()
				got++
				mu.Unlock()
			} else if surehook.CodeOf(err) != surehook.NotFound {
				e.Errorf("%v", err)
			}
		})
	}
	wg.Wait()
	e.same("sessions of one link", got, 1)
	_, err := e.s.Session(e.ctx, link.Hash)
	e.code(err, surehook.NotFound)
	e.same("the other one", bytes.Equal(e.heldSession("other").Hash, hashOf("other")), true)
}

func sessionUsed(e *env) {
	s := e.session("a", surehook.SessionConsole)
	e.ok(e.s.OpenSession(e.ctx, s, nil, nil))
	later := e.clock.Now().Add(time.Minute)
	e.ok(e.s.UseSession(e.ctx, s.Hash, later))
	e.ok(e.s.UseSession(e.ctx, s.Hash, later.Add(-time.Second)))
	e.ok(e.s.UseSession(e.ctx, hashOf("nobody's"), later))
	e.same("used", e.heldSession("a").UsedAt, later)
}

func sessionExpired(e *env) {
	e.ok(e.s.OpenSession(e.ctx, e.session("old", surehook.SessionConsole), nil, nil))
	e.clock.Advance(59 * time.Minute)
	e.ok(e.s.OpenSession(e.ctx, e.session("young", surehook.SessionConsole), nil, nil))
	e.heldSession("old")
	e.clock.Advance(time.Minute)
	e.ok(e.s.OpenSession(e.ctx, e.session("new", surehook.SessionConsole), nil, nil))
	_, err := e.s.Session(e.ctx, hashOf("old"))
	e.code(err, surehook.NotFound)
	e.heldSession("young")
}

func standing(e *env) {
	eps := e.world() // one deleted endpoint of t1's among them
	e.ok(e.s.DeleteEndpoint(e.ctx, eps["deleted"].ID, nil))
	change := func(name string, f func(*surehook.Endpoint)) {
		_, err := e.s.UpdateEndpoint(e.ctx, eps[name].ID, func(ep *surehook.Endpoint) error { f(ep); return nil }, nil)
		e.ok(err)
	}
	d := e.publish(true, eps["t1"], eps["t2"], eps["platform"], eps["p"])
	e.record(e.outcome(d[0], surehook.Again), e.outcome(d[1], surehook.Bury), e.outcome(d[2], surehook.Finish))
	change("q", func(ep *surehook.Endpoint) { ep.Limits.Paused = true })
	change("t3", func(ep *surehook.Endpoint) { ep.Enabled, ep.Limits.Paused = false, true })
	for of, want := range map[surehook.Viewer]surehook.Standing{
		{}:                {Healthy: 2, Failing: 2, Paused: 1, Disabled: 1, Pending: 2, DeadLetters: 1},
		{Tenant: "t1"}:    {Failing: 1, Pending: 1},
		{Tenant: "t2"}:    {Failing: 1, DeadLetters: 1},
		{Tenant: "t3"}:    {Disabled: 1},
		{Partner: "p"}:    {Healthy: 1, Failing: 1, Pending: 2},
		{Partner: "q"}:    {Paused: 1, Failing: 1, DeadLetters: 1},
		{Tenant: "other"}: {},
	} {
		got, err := e.s.Standing(e.ctx, of)
		e.ok(err)
		e.same("standing of "+of.Tenant+of.Partner, got, want)
	}
}

func statsOfAll(e *env) {
	eps := e.world()
	start := e.clock.Now()
	d := e.publish(true, eps["t1"], eps["t2"], eps["platform"])
	e.record(e.outcome(d[0], surehook.Again), e.outcome(d[1], surehook.Bury), e.outcome(d[2], surehook.Finish))
	note := e.outcome(surehook.Delivery{EventKey: d[0].EventKey, EndpointKey: eps["t1"].Key}, surehook.Note)
	note.Attempt.Test = true
	e.record(note)
	e.clock.Advance(90 * time.Minute)
	e.record(e.outcome(e.claimOne(eps["t1"]), surehook.Finish))
	for _, c := range []struct {
		f           surehook.StatsFilter
		first, then int64
	}{
		{surehook.StatsFilter{}, 3, 1},
		{surehook.StatsFilter{For: surehook.Viewer{Tenant: "t1"}}, 1, 1},
		{surehook.StatsFilter{For: surehook.Viewer{Tenant: "t2"}}, 1, 0},
		{surehook.StatsFilter{For: surehook.Viewer{Partner: "p"}}, 1, 1},
		{surehook.StatsFilter{For: surehook.Viewer{Tenant: "t3"}}, 0, 0},
		{surehook.StatsFilter{Endpoint: eps["t1"].Key, For: surehook.Viewer{Tenant: "t1"}}, 1, 1},
		{surehook.StatsFilter{Endpoint: eps["t1"].Key, For: surehook.Viewer{Tenant: "t2"}}, 0, 0},
	} {
		got, err := e.s.Stats(e.ctx, c.f, start, start.Add(2*time.Hour), time.Hour)
		e.ok(err)
		e.same("buckets", len(got), 2)
		e.same("attempts", []int64{got[0].Attempts, got[1].Attempts}, []int64{c.first, c.then})
	}
}
