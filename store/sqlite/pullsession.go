package sqlite

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

var errNotAlive = surehook.Errorf(surehook.NotAlive, "the session has ended")

const pullSessionColumns = `s.key, s.tenant, s.partner, s.id, s.created_at, s.seen_at, s.ended_at, s.end_reason FROM pull_sessions s`

func (c *conn) pullSessions(sql string, args ...any) (out []*surehook.PullSession, err error) {
	err = c.each(`SELECT `+pullSessionColumns+sql, args, func(st *sqlite3.Stmt) error {
		out = append(out, &surehook.PullSession{Key: st.ColumnInt64(0), Tenant: st.ColumnText(1), Partner: st.ColumnText(2), ID: st.ColumnText(3),
			CreatedAt: at(st.ColumnInt64(4)), SeenAt: at(st.ColumnInt64(5)), EndedAt: at(st.ColumnInt64(6)), EndReason: st.ColumnText(7)})
		return nil
	})
	return out, err
}

func (s *Store) readPullSessions(ctx context.Context, sql string, args ...any) (out []*surehook.PullSession, err error) {
	err = s.read(ctx, func(c *conn) error {
		out, err = c.pullSessions(sql, args...)
		return err
	})
	return out, err
}

const latestPullSession = ` WHERE s.tenant = ? AND s.partner = ? AND s.id = ? ORDER BY s.key DESC LIMIT 1`

// OpenPullSession implements surehook.PullSessions.
func (s *Store) OpenPullSession(_ context.Context, session *surehook.PullSession, idle time.Duration, anew bool, a *surehook.AuditEntry) error {
	var out surehook.PullSession
	err := s.change(func(c *conn) error {
		now := at(millis(s.now()))
		latest, err := c.pullSessions(latestPullSession, session.Tenant, session.Partner, session.ID)
		switch {
		case err != nil:
			return err
		case len(latest) > 0 && latest[0].EndedAt.IsZero() && latest[0].SeenAt.After(now.Add(-idle)):
			if out = *latest[0]; now.After(out.SeenAt) {
				out.SeenAt = now
			}
			_, err := c.exec(`UPDATE pull_sessions SET seen_at = ? WHERE key = ?`, out.SeenAt, out.Key)
			return err
		case len(latest) > 0 && (!anew || latest[0].EndedAt.IsZero()):
			return errNotAlive
		}
		out = surehook.PullSession{Key: s.keys.take(1), ID: session.ID, Tenant: session.Tenant, Partner: session.Partner, CreatedAt: now, SeenAt: now}
		if _, err := c.exec(`INSERT INTO pull_sessions (key, tenant, partner, id, created_at, seen_at, ended_at, end_reason) VALUES (?,?,?,?,?,?,0,'')`,
			out.Key, out.Tenant, out.Partner, out.ID, now, now); err != nil {
			return err
		}
		if _, err := c.exec(`INSERT INTO inboxes (key) VALUES (?)`, out.Key); err != nil {
			return err
		}
		return s.putAudit(c, a)
	})
	if err == nil {
		*session = out
	}
	return err
}

// PullSession implements surehook.PullSessions.
func (s *Store) PullSession(ctx context.Context, tenant, partner, id string) (*surehook.PullSession, error) {
	return s.onePullSession(ctx, latestPullSession, tenant, partner, id)
}

// PullSessionOf implements surehook.PullSessions.
func (s *Store) PullSessionOf(ctx context.Context, inbox int64) (*surehook.PullSession, error) {
	return s.onePullSession(ctx, ` WHERE s.key = ?`, inbox)
}

func (s *Store) onePullSession(ctx context.Context, sql string, args ...any) (*surehook.PullSession, error) {
	out, err := s.readPullSessions(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return nil, notFound("session")
	}
	return out[0], nil
}

// ListPullSessions implements surehook.PullSessions.
func (s *Store) ListPullSessions(ctx context.Context, of surehook.Viewer, p surehook.Page) ([]*surehook.PullSession, error) {
	var q query
	switch {
	case of.Tenant != "":
		q.add(`s.tenant = ?`, of.Tenant)
	case of.Partner != "":
		q.add(`(s.partner = ? OR s.tenant IN (SELECT id FROM tenants WHERE partner = ?))`, of.Partner, of.Partner)
	}
	q.before(`s.key`, p.Cursor)
	return s.readPullSessions(ctx, q.where()+` ORDER BY s.key DESC LIMIT ?`, q.with(row.PageSize(p))...)
}

// IdlePullSessions implements surehook.PullSessions.
func (s *Store) IdlePullSessions(ctx context.Context, idle time.Duration, limit int) ([]*surehook.PullSession, error) {
	return s.readPullSessions(ctx, ` WHERE s.ended_at = 0 AND s.seen_at <= ? ORDER BY s.seen_at LIMIT ?`, s.now().Add(-idle), limit)
}

// EndPullSession implements surehook.PullSessions.
func (s *Store) EndPullSession(_ context.Context, session int64, reason string, idle time.Duration, a *surehook.AuditEntry) (bool, error) {
	ended := false
	err := s.change(func(c *conn) error {
		now := s.now()
		n, err := c.exec(`UPDATE pull_sessions SET ended_at = ?, end_reason = ? WHERE key = ? AND ended_at = 0 AND seen_at <= ?`, now, reason, session, now.Add(-idle))
		if ended = err == nil && n == 1; !ended {
			return err
		}
		keys, err := c.int64s(`SELECT key FROM endpoints WHERE inbox = ? AND inbox <> 0 AND deleted = 0 AND enabled = 1 ORDER BY key`, session)
		if err != nil {
			return err
		}
		for _, key := range keys {
			if _, err := c.exec(`UPDATE endpoints SET enabled = 0, disabled_reason = ?, version = version + 1, updated_at = ? WHERE key = ?`,
				surehook.ReasonSession, now, key); err != nil {
				return err
			}
			if _, err := c.exec(`UPDATE sentinels SET ended_at = ?, settled = 0 WHERE endpoint_key = ? AND ended_at = 0`, now, key); err != nil {
				return err
			}
			if err := s.bumpConfig(c, key); err != nil {
				return err
			}
		}
		return s.putAudit(c, a)
	})
	return ended, err
}

// holdsRows tells of a session s whose inbox holds something, or is about to.
const holdsRows = `(EXISTS (SELECT 1 FROM pending p WHERE p.inbox = s.key) OR EXISTS (SELECT 1 FROM endpoints e CROSS JOIN pending p ON p.endpoint_key = e.key AND p.owner IS NULL
	WHERE e.inbox = s.key AND e.inbox <> 0 AND e.deleted = 0))`

// unfed tells of a session s that no endpoint feeds any more.
const unfed = `NOT EXISTS (SELECT 1 FROM endpoints e WHERE e.inbox = s.key AND e.inbox <> 0 AND e.deleted = 0)`

// EndedPullSessions implements surehook.PullSessions.
func (s *Store) EndedPullSessions(ctx context.Context, limit int) ([]*surehook.PullSession, error) {
	return s.readPullSessions(ctx, ` WHERE s.ended_at > 0 AND `+holdsRows+` ORDER BY s.ended_at LIMIT ?`, limit)
}

// ForgetPullSessions implements surehook.PullSessions.
func (s *Store) ForgetPullSessions(_ context.Context, ended time.Duration, limit int) (int, error) {
	n := 0
	err := s.write(limit, func(c *conn) error {
		keys, err := c.int64s(`SELECT s.key FROM pull_sessions s WHERE s.ended_at > 0 AND s.ended_at <= ? AND NOT `+holdsRows+` AND `+unfed+` ORDER BY s.ended_at LIMIT ?`,
			s.now().Add(-ended), limit)
		n = len(keys)
		for _, key := range keys {
			for _, sql := range []string{`DELETE FROM pull_sessions WHERE key = ?`, `DELETE FROM inboxes WHERE key = ?`} {
				if err == nil {
					_, err = c.exec(sql, key)
				}
			}
		}
		return err
	})
	return n, err
}
