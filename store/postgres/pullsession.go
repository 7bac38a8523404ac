package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

var errNotAlive = surehook.Errorf(surehook.NotAlive, "the session has ended")

const pullSessionColumns = `s.key, s.tenant, s.partner, s.id, s.created_at, s.seen_at, s.ended_at, s.end_reason FROM surehook.pull_sessions s`

func scanPullSession(r pgx.CollectableRow) (*surehook.PullSession, error) {
	s := &surehook.PullSession{}
	return s, r.Scan(&s.Key, &s.Tenant, &s.Partner, &s.ID, intoTime{&s.CreatedAt}, intoTime{&s.SeenAt}, intoTime{&s.EndedAt}, &s.EndReason)
}

const latestPullSession = `SELECT ` + pullSessionColumns + ` WHERE s.tenant = $1 AND s.partner = $2 AND s.id = $3 ORDER BY s.key DESC LIMIT 1`

// OpenPullSession implements surehook.PullSessions.
func (s *Store) OpenPullSession(ctx context.Context, session *surehook.PullSession, idle time.Duration, anew bool, a *surehook.AuditEntry) error {
	var out surehook.PullSession
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		// Locked by the update: it can't end before the commit, and if it did so before, it isn't found.
		live, err := collect(ctx, tx, scanPullSession, s.q(`UPDATE surehook.pull_sessions s SET seen_at = greatest(seen_at, $4) WHERE tenant = $1 AND partner = $2 AND id = $3 AND ended_at = 0 AND seen_at > $4 - $5::bigint
			RETURNING s.key, s.tenant, s.partner, s.id, s.created_at, s.seen_at, s.ended_at, s.end_reason`), session.Tenant, session.Partner, session.ID, now, idle.Milliseconds())
		if err != nil {
			return err
		}
		if len(live) == 1 {
			out = *live[0]
			return nil
		}
		switch latest, err := collect(ctx, tx, scanPullSession, s.q(latestPullSession), session.Tenant, session.Partner, session.ID); {
		case err != nil:
			return err
		case len(latest) > 0 && (!anew || latest[0].EndedAt.IsZero()):
			return errNotAlive
		}
		out = surehook.PullSession{ID: session.ID, Tenant: session.Tenant, Partner: session.Partner, CreatedAt: at(now), SeenAt: at(now)}
		if out.Key, err = s.key(ctx, tx, now); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.q(`WITH i AS (INSERT INTO surehook.pull_sessions (key, tenant, partner, id, created_at, seen_at, ended_at, end_reason)
				VALUES ($1, $2, $3, $4, $5, $5, 0, '') ON CONFLICT DO NOTHING RETURNING key)
			INSERT INTO surehook.inboxes (key) SELECT key FROM i`), out.Key, out.Tenant, out.Partner, out.ID, now)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 { // somebody was first
			return errInTheWay
		}
		return s.putAudit(ctx, tx, now, a)
	})
	if err == nil {
		*session = out
	}
	return err
}

// PullSession implements surehook.PullSessions.
func (s *Store) PullSession(ctx context.Context, tenant, partner, id string) (*surehook.PullSession, error) {
	return find(ctx, s, "session", scanPullSession, latestPullSession, tenant, partner, id)
}

// PullSessionOf implements surehook.PullSessions.
func (s *Store) PullSessionOf(ctx context.Context, inbox int64) (*surehook.PullSession, error) {
	return find(ctx, s, "session", scanPullSession, `SELECT `+pullSessionColumns+` WHERE s.key = $1`, inbox)
}

// ListPullSessions implements surehook.PullSessions.
func (s *Store) ListPullSessions(ctx context.Context, of surehook.Viewer, p surehook.Page) ([]*surehook.PullSession, error) {
	var q query
	switch {
	case of.Tenant != "":
		q.add(`s.tenant = ?`, of.Tenant)
	case of.Partner != "":
		q.add(`(s.partner = ? OR s.tenant IN (SELECT id FROM surehook.tenants WHERE partner = ?))`, of.Partner, of.Partner)
	}
	q.before(`s.key`, p.Cursor)
	return list(ctx, s, scanPullSession, `SELECT `+pullSessionColumns+q.where()+` ORDER BY s.key DESC`+q.limit(p), q.args...)
}

// IdlePullSessions implements surehook.PullSessions.
func (s *Store) IdlePullSessions(ctx context.Context, idle time.Duration, limit int) ([]*surehook.PullSession, error) {
	return list(ctx, s, scanPullSession, `SELECT `+pullSessionColumns+` WHERE s.ended_at = 0 AND s.seen_at <= surehook.clock() - $1::bigint ORDER BY s.seen_at LIMIT $2`,
		idle.Milliseconds(), limit)
}

// EndPullSession implements surehook.PullSessions. The endpoints' rows are locked by key, and
// the counter of the configuration last, as all do.
func (s *Store) EndPullSession(ctx context.Context, session int64, reason string, idle time.Duration, a *surehook.AuditEntry) (bool, error) {
	ended := false
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.q(`UPDATE surehook.pull_sessions SET ended_at = $2, end_reason = $3 WHERE key = $1 AND ended_at = 0 AND seen_at <= $2 - $4::bigint`),
			session, now, reason, idle.Milliseconds())
		if ended = err == nil && tag.RowsAffected() == 1; !ended {
			return err
		}
		keys, err := collect(ctx, tx, pgx.RowTo[int64], s.q(`SELECT key FROM surehook.endpoints WHERE inbox = $1 AND inbox <> 0 AND NOT deleted AND enabled
			ORDER BY key FOR NO KEY UPDATE`), session)
		if err != nil {
			return err
		}
		if len(keys) > 0 {
			if _, err := tx.Exec(ctx, s.q(`WITH n AS (SELECT endpoint_key FROM surehook.sentinels WHERE endpoint_key = ANY($1) ORDER BY endpoint_key FOR UPDATE)
				UPDATE surehook.sentinels x SET ended_at = $2, settled = false FROM n WHERE x.endpoint_key = n.endpoint_key AND x.ended_at = 0`), keys, now); err != nil {
				return err
			}
			v, err := s.nextConfig(ctx, tx)
			if err != nil {
				return err
			}
			if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.endpoints SET enabled = false, disabled_reason = $2, version = version + 1, updated_at = $3, changed = $4
				WHERE key = ANY($1)`), keys, surehook.ReasonSession, now, v); err != nil {
				return err
			}
		}
		return s.putAudit(ctx, tx, now, a)
	})
	return ended, err
}

// unfed tells of a session s that no endpoint feeds any more.
const unfed = `NOT EXISTS (SELECT 1 FROM surehook.endpoints e WHERE e.inbox = s.key AND e.inbox <> 0 AND NOT e.deleted)`

// EndedPullSessions implements surehook.PullSessions.
func (s *Store) EndedPullSessions(ctx context.Context, limit int) ([]*surehook.PullSession, error) {
	return list(ctx, s, scanPullSession, `SELECT `+pullSessionColumns+` WHERE s.ended_at > 0 AND `+holdsRows+` ORDER BY s.ended_at LIMIT $1`, limit)
}

// holdsRows tells of a session s whose inbox holds something, or is about to.
const holdsRows = `(EXISTS (SELECT 1 FROM surehook.pending p WHERE p.inbox = s.key)
	OR EXISTS (SELECT 1 FROM surehook.endpoints e JOIN surehook.pending p ON p.endpoint_key = e.key AND p.owner IS NULL WHERE e.inbox = s.key AND e.inbox <> 0 AND NOT e.deleted))`

// ForgetPullSessions implements surehook.PullSessions.
func (s *Store) ForgetPullSessions(ctx context.Context, ended time.Duration, limit int) (int, error) {
	n := 0
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.q(`WITH g AS (
				DELETE FROM surehook.pull_sessions WHERE key = ANY (ARRAY(SELECT s.key FROM surehook.pull_sessions s WHERE s.ended_at > 0 AND s.ended_at <= surehook.clock() - $1::bigint
					AND NOT `+holdsRows+` AND `+unfed+` ORDER BY s.ended_at LIMIT $2 FOR UPDATE SKIP LOCKED)) RETURNING key
			) DELETE FROM surehook.inboxes i USING g WHERE i.key = g.key`), ended.Milliseconds(), limit)
		n = int(tag.RowsAffected())
		return err
	})
	return n, err
}
