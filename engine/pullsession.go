package engine

import (
	"context"
	"sync"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/accept"
)

const (
	pullSessionEvery = 30 * time.Second   // between two looks for sessions that are idle
	pullSessionKept  = 7 * 24 * time.Hour // how long one that ended is remembered
	pullSessionStep  = 100                // sessions in one go
	pullSessionSeen  = 5 * time.Second    // after which one is written down as seen again
)

var errNotAlive = surehook.Errorf(surehook.NotAlive,
	"no such session is alive: it was never opened, was closed, or was idle for too long. The first pull opens it; one that has ended is opened by PUT /v1/sessions/{id} with {\"anew\": true}")

// SessionScope says whose session it is: a tenant's, a partner's, or the platform's.
type SessionScope struct{ Tenant, Partner string }

// OpenSession finds a scope's session, or begins one. Of one that has ended it tells
// session_not_alive, unless anew: then another one with this id begins, with an empty
// inbox.
func (e *Engine) OpenSession(ctx context.Context, of SessionScope, id string, anew bool, by Actor) (*surehook.PullSession, error) {
	if id == "" || !accept.Printable(id) {
		return nil, surehook.Invalid("session_id", "must be 1 to 200 printable ASCII characters without spaces")
	}
	if s := e.sessions.lately(of, id, e.now()); s != nil && !anew {
		return s, nil
	}
	s := &surehook.PullSession{ID: id, Tenant: of.Tenant, Partner: of.Partner}
	open := func() error {
		return e.store.OpenPullSession(ctx, s, e.opt.SessionIdle, anew, e.audit(by, "session.open", id, of.Tenant, ""))
	}
	err := open()
	if surehook.CodeOf(err) == surehook.NotAlive && anew { // it is idle for too long, and not ended yet
		if err = e.endIdle(ctx, of, id); err == nil {
			err = open()
		}
	}
	if surehook.CodeOf(err) == surehook.NotAlive {
		err = errNotAlive
	}
	if err != nil {
		return nil, err
	}
	e.sessions.saw(of, *s, e.now(), min(pullSessionSeen, e.opt.SessionIdle/10))
	return s, nil
}

// seen remembers sessions that were heard of a moment ago, so that not every pull
// writes.
type seen struct {
	mu   sync.Mutex
	last map[seenKey]seenAt
}

type seenKey struct {
	of SessionScope
	id string
}

type seenAt struct {
	session surehook.PullSession
	until   time.Time
}

const seenMost = 10_000

func (x *seen) lately(of SessionScope, id string, now time.Time) *surehook.PullSession {
	x.mu.Lock()
	defer x.mu.Unlock()
	if at, ok := x.last[seenKey{of, id}]; ok && now.Before(at.until) {
		return &at.session
	}
	return nil
}

func (x *seen) saw(of SessionScope, s surehook.PullSession, now time.Time, grain time.Duration) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.last == nil || len(x.last) >= seenMost {
		x.last = make(map[seenKey]seenAt)
	}
	x.last[seenKey{of, s.ID}] = seenAt{s, now.Add(grain)}
}

func (x *seen) forget(of SessionScope, id string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.last, seenKey{of, id})
}

// CloseSession ends a session. Its endpoints are disabled, and what wasn't pulled
// becomes dead letters.
func (e *Engine) CloseSession(ctx context.Context, of SessionScope, id string, by Actor) error {
	s, err := e.store.PullSession(ctx, of.Tenant, of.Partner, id)
	if err != nil {
		return err
	}
	if !s.EndedAt.IsZero() {
		return nil
	}
	return e.endSession(ctx, s, surehook.PullSessionClosed, 0, e.audit(by, "session.close", id, of.Tenant, ""))
}

func (e *Engine) endIdle(ctx context.Context, of SessionScope, id string) error {
	s, err := e.store.PullSession(ctx, of.Tenant, of.Partner, id)
	if err != nil || !s.EndedAt.IsZero() {
		return err
	}
	return e.endSession(ctx, s, surehook.PullSessionIdle, e.opt.SessionIdle, e.audit(Actor{}, "session.idle", id, of.Tenant, ""))
}

func (e *Engine) endSession(ctx context.Context, s *surehook.PullSession, why string, idle time.Duration, a *surehook.AuditEntry) error {
	e.changes.RLock()
	ended, err := e.store.EndPullSession(ctx, s.Key, why, idle, a)
	e.changes.RUnlock()
	if err != nil || !ended {
		return err
	}
	e.sessions.forget(SessionScope{s.Tenant, s.Partner}, s.ID)
	e.refreshed()
	signal(e.ended)       // of its sentinels
	e.inboxes.came(s.Key) // who waits there is told
	_ = e.trim(s.Key, nil, surehook.SessionEnded)
	return nil
}

// PullSession reads a session's inbox, as Pull an endpoint's. The first pull begins the
// session, and each one keeps it alive.
func (e *Engine) PullSession(ctx context.Context, of SessionScope, id string, req PullRequest, by Actor) (PullPage, error) {
	s, err := e.OpenSession(ctx, of, id, false, by)
	if err != nil {
		return PullPage{}, err
	}
	page, err := e.pull(ctx, e.sessionInbox(s), req)
	if err == nil && len(page.Items) == 0 && req.Wait > 0 {
		_, err = e.OpenSession(ctx, of, id, false, by) // it may have ended meanwhile; and whoever waits is there
	}
	if surehook.CodeOf(err) == surehook.NotFound {
		err = errNotAlive
	}
	return page, err
}

// AckSession acknowledges events of a session, as Ack an endpoint's.
func (e *Engine) AckSession(ctx context.Context, of SessionScope, id, cursor string, by Actor) (int, error) {
	if _, err := e.store.PullSession(ctx, of.Tenant, of.Partner, id); err != nil {
		return 0, err
	}
	s, err := e.OpenSession(ctx, of, id, false, by)
	if err != nil {
		return 0, err
	}
	return e.ackCursor(ctx, e.sessionInbox(s), cursor)
}

func (e *Engine) sessionInbox(s *surehook.PullSession) inbox {
	scope := &surehook.Endpoint{Tenant: s.Tenant, Partner: s.Partner}
	return inbox{key: s.Key, held: func() bool { return e.suspended(scope) }, over: func(ctx context.Context) bool {
		if e.sessions.lately(SessionScope{s.Tenant, s.Partner}, s.ID, e.now()) != nil {
			return false
		}
		now, err := e.store.PullSession(ctx, s.Tenant, s.Partner, s.ID)
		return err == nil && (now.Key != s.Key || !now.EndedAt.IsZero())
	}}
}

// pullSessionLoop ends sessions that are idle, with what waits for them. Of several
// nodes the one with the lowest epoch does it.
func (e *Engine) pullSessionLoop() {
	tick := time.NewTicker(min(pullSessionEvery, max(e.opt.SessionIdle/4, time.Second)))
	defer tick.Stop()
	for {
		if lease := e.store.Lease(); len(lease.Nodes) == 0 || lease.Nodes[0] == lease.Epoch {
			if err := e.endSessions(); err != nil && e.ctx.Err() == nil {
				e.log.Warn("idle sessions couldn't be ended; trying again", "error", err)
			}
		}
		select {
		case <-e.ctx.Done():
			return
		case <-tick.C:
		}
	}
}

func (e *Engine) endSessions() error {
	idle, err := e.store.IdlePullSessions(e.ctx, e.opt.SessionIdle, pullSessionStep)
	if err != nil {
		return err
	}
	for _, s := range idle {
		if err := e.endSession(e.ctx, s, surehook.PullSessionIdle, e.opt.SessionIdle, e.audit(Actor{}, "session.idle", s.ID, s.Tenant, "")); err != nil {
			return err
		}
	}
	ended, err := e.store.EndedPullSessions(e.ctx, pullSessionStep)
	if err != nil {
		return err
	}
	for _, s := range ended {
		if err := e.trim(s.Key, nil, surehook.SessionEnded); err != nil {
			return err
		}
	}
	_, err = e.store.ForgetPullSessions(e.ctx, pullSessionKept, pullSessionStep)
	return err
}
