package sqlite

import (
	"cmp"
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// sentinelColumns are a sentinel, in the order of scanSentinel; all null where an
// endpoint has none.
const (
	sentinelColumns = `n.endpoint_key, n.clauses, n.until_kind, n.until_at, n.until_count, n.status, n.ended, n.provider, n.watch, n.grouping, n.label,
		n.session, n.principal, n.events, n.last_event_at, n.last_error, n.created_at, n.ended_at`
	fromSentinels = ` LEFT JOIN sentinels n ON n.endpoint_key = e.key`
)

// scanSentinel reads the columns from i on; nil: there is none.
func scanSentinel(st *sqlite3.Stmt, i int, id string) (*surehook.Sentinel, error) {
	if st.ColumnType(i) == sqlite3.NULL {
		return nil, nil
	}
	match, err := row.ParseClauses(st.ColumnRawText(i + 1))
	return &surehook.Sentinel{EndpointKey: st.ColumnInt64(i), ID: id, Match: match,
		Until:  surehook.Until{Kind: surehook.UntilKind(st.ColumnText(i + 2)), At: at(st.ColumnInt64(i + 3)), Count: st.ColumnInt64(i + 4)},
		Status: surehook.SentinelStatus(st.ColumnText(i + 5)), Ended: surehook.UntilKind(st.ColumnText(i + 6)), Provider: st.ColumnText(i + 7),
		Watch: st.ColumnText(i + 8), Group: st.ColumnText(i + 9), Label: st.ColumnText(i + 10), Session: st.ColumnText(i + 11), Principal: st.ColumnText(i + 12),
		Events: st.ColumnInt64(i + 13), LastEventAt: at(st.ColumnInt64(i + 14)), LastError: st.ColumnText(i + 15), CreatedAt: at(st.ColumnInt64(i + 16)),
		EndedAt: at(st.ColumnInt64(i + 17))}, err
}

// putSentinel stores the sentinel of an endpoint: a new one, or what may be changed
// of it.
func (s *Store) putSentinel(c *conn, e *surehook.Endpoint) error {
	n := e.Sentinel
	if n == nil {
		return nil
	}
	n.EndpointKey, n.ID = e.Key, e.ID
	if n.Plan != 0 {
		struck, err := c.exec(`DELETE FROM watch_cancels WHERE key = ? AND retry_at > ?`, n.Plan, s.now())
		if err != nil || struck == 0 {
			return cmp.Or(err, row.ErrPlan)
		}
	}
	_, err := c.exec(`INSERT INTO sentinels (endpoint_key, clauses, until_kind, until_at, until_count, status, ended, settled, provider, watch, grouping, label,
		session, principal, events, last_event_at, last_error, created_at) VALUES (?1,?2,?3,?4,?5,?6,?7,1,?8,?9,?10,?11,?12,?13,0,0,?14,?15)
		ON CONFLICT DO UPDATE SET status = ?6, ended = ?7, watch = ?9, grouping = ?10, label = ?11, last_error = ?14`,
		e.Key, row.Clauses(n.Match), string(n.Until.Kind), n.Until.At, n.Until.Count, string(n.Status), string(n.Ended), n.Provider, n.Watch, n.Group, n.Label,
		n.Session, n.Principal, n.LastError, e.CreatedAt)
	return err
}

// dropEndpoint removes an endpoint with what is its own. What goes with a sentinel is
// bounded, to about twice row.KnownEvents.
func (s *Store) dropEndpoint(c *conn, endpoint int64) error {
	if _, err := c.exec(`UPDATE endpoints SET deleted = 1, enabled = 0, version = version + 1, updated_at = ? WHERE key = ?`, s.now(), endpoint); err != nil {
		return err
	}
	if err := s.cancelWatch(c, endpoint); err != nil {
		return err
	}
	for _, table := range []string{`endpoint_secrets`, `sentinels`, `sentinel_events`} {
		if _, err := c.exec(`DELETE FROM `+table+` WHERE endpoint_key = ?`, endpoint); err != nil {
			return err
		}
	}
	return nil
}

// cancelWatch has a sentinel's watch cancelled.
func (s *Store) cancelWatch(c *conn, endpoint int64) error {
	n, err := c.exec(`INSERT INTO watch_cancels (key, provider, watch, tries, retry_at)
		SELECT ?, provider, watch, 0, 0 FROM sentinels WHERE endpoint_key = ? AND watch <> ''`, s.keys.take(1), endpoint)
	if err != nil || n == 0 {
		return err
	}
	_, err = c.exec(`UPDATE sentinels SET watch = '' WHERE endpoint_key = ?`, endpoint)
	return err
}

// see decides whether an event, which is new, is a sentinel's. It tells whether
// the event was its last.
func see(c *conn, e *surehook.Event, t *surehook.Target, now time.Time) (mine, ended bool, err error) {
	var n surehook.Sentinel
	found, err := c.one(`SELECT n.until_kind, n.until_at, n.until_count, n.status, n.events, n.last_event_at FROM sentinels n
		JOIN endpoints e ON e.key = n.endpoint_key WHERE n.endpoint_key = ? AND e.enabled = 1 AND e.deleted = 0`, []any{t.EndpointKey}, func(st *sqlite3.Stmt) error {
		n = surehook.Sentinel{Until: surehook.Until{Kind: surehook.UntilKind(st.ColumnText(0)), At: at(st.ColumnInt64(1)), Count: st.ColumnInt64(2)},
			Status: surehook.SentinelStatus(st.ColumnText(3)), Events: st.ColumnInt64(4), LastEventAt: at(st.ColumnInt64(5))}
		return nil
	})
	if err != nil || !found {
		return false, false, err
	}
	was := n
	if mine = n.See(t.Sighting, now); mine {
		fresh, err := c.exec(`INSERT INTO sentinel_events (endpoint_key, event_id, tenant, event_key) VALUES (?,?,?,?) ON CONFLICT DO NOTHING`,
			t.EndpointKey, e.ID, e.Tenant, e.Key)
		if err != nil || fresh == 0 {
			return false, false, err // it had this one before
		}
	}
	if n.Status == was.Status && !mine {
		return false, false, nil
	}
	ended = n.Status == surehook.SentinelExpired
	if _, err := c.exec(`UPDATE sentinels SET events = ?, last_event_at = ?, status = ?, ended = ?, settled = iif(?5, 0, settled), ended_at = iif(?5, ?6, ended_at) WHERE endpoint_key = ?7`,
		n.Events, n.LastEventAt, string(n.Status), string(n.Ended), ended, now, t.EndpointKey); err != nil {
		return false, false, err
	}
	if mine && n.Events%row.KnownEvents == 0 {
		err = forgetEvents(c, t.EndpointKey)
	}
	return mine, ended, err
}

// forgetEvents leaves a sentinel its last events, and those that it is still to get.
func forgetEvents(c *conn, endpoint int64) error {
	_, err := c.exec(`DELETE FROM sentinel_events WHERE endpoint_key = ?1 AND event_key <= ifnull((SELECT event_key FROM sentinel_events WHERE endpoint_key = ?1
		ORDER BY event_key DESC LIMIT 1 OFFSET ?2), 0) AND NOT EXISTS (SELECT 1 FROM pending p WHERE p.event_key = sentinel_events.event_key AND p.endpoint_key = ?1)`,
		endpoint, row.KnownEvents)
	return err
}

// Sight implements surehook.Sentinels.
func (s *Store) Sight(_ context.Context, ev *surehook.Event, targets []surehook.Target) (surehook.Appended, error) {
	var out surehook.Appended
	err := s.write(len(targets), func(c *conn) error {
		out = surehook.Appended{EventKey: ev.Key}
		state, err := replayState(c, ev.Key)
		if err != nil || state != eventThere {
			return err // it is gone, or erased: nothing is to be delivered of it
		}
		return s.putTargets(c, ev, targets, s.now(), &out)
	})
	return out, err
}

// EndSentinels implements surehook.Sentinels.
func (s *Store) EndSentinels(_ context.Context, limit int) (int, bool, error) {
	var ended []int64
	more := false
	err := s.change(func(c *conn) error {
		ended, more = ended[:0], false
		now := s.now()
		over, err := keys(c, `SELECT endpoint_key FROM sentinels WHERE until_kind = 'at' AND status <> 'expired' AND until_at <= ? ORDER BY until_at LIMIT ?`, now, limit)
		if err != nil {
			return err
		}
		for _, key := range over {
			if _, err := c.exec(`UPDATE sentinels SET status = 'expired', ended = 'at', settled = 0, ended_at = ? WHERE endpoint_key = ?`, now, key); err != nil {
				return err
			}
			if _, err := c.exec(`UPDATE endpoints SET enabled = 0, disabled_reason = ?, version = version + 1, updated_at = ? WHERE key = ? AND deleted = 0`,
				surehook.ReasonExpired, now, key); err != nil {
				return err
			}
		}
		if ended, err = keys(c, `SELECT endpoint_key FROM sentinels WHERE settled = 0 ORDER BY endpoint_key LIMIT ?`, limit); err != nil {
			return err
		}
		for _, key := range ended {
			if err := s.cancelWatch(c, key); err != nil {
				return err
			}
			if _, err := c.exec(`UPDATE sentinels SET settled = 1 WHERE endpoint_key = ?`, key); err != nil {
				return err
			}
		}
		more = len(over) == limit || len(ended) == limit
		return s.bumpAll(c, ended)
	})
	return len(ended), more, err
}

// ReapSentinels implements surehook.Sentinels.
func (s *Store) ReapSentinels(_ context.Context, ended time.Duration, limit int, a *surehook.AuditEntry) (int, bool, error) {
	var reaped []int64
	err := s.change(func(c *conn) error {
		var err error
		reaped, err = keys(c, `SELECT n.endpoint_key FROM sentinels n JOIN endpoints e ON e.key = n.endpoint_key AND e.deleted = 0
			WHERE n.ended_at > 0 AND n.ended_at <= ? AND n.settled = 1 AND NOT EXISTS (
				SELECT 1 FROM sentinel_events x JOIN pending p ON p.event_key = x.event_key AND p.endpoint_key = x.endpoint_key WHERE x.endpoint_key = n.endpoint_key)
			ORDER BY n.ended_at LIMIT ?`, s.now().Add(-ended), limit)
		if err != nil {
			return err
		}
		for _, key := range reaped {
			entry := *a
			if _, err := c.one(`SELECT id, tenant FROM endpoints WHERE key = ?`, []any{key}, func(st *sqlite3.Stmt) error {
				entry.Target, entry.Tenant = st.ColumnText(0), st.ColumnText(1)
				return nil
			}); err != nil {
				return err
			}
			if err := s.putAudit(c, &entry); err != nil {
				return err
			}
			if err := s.dropEndpoint(c, key); err != nil {
				return err
			}
		}
		return s.bumpAll(c, reaped)
	})
	return len(reaped), err == nil && len(reaped) == limit, err
}

// TrimSentinel implements surehook.Sentinels. Mostly a count says that there is nothing
// to do.
func (s *Store) TrimSentinel(_ context.Context, endpoint int64, most, limit int) (int, bool, error) {
	ended, more := 0, false
	err := s.write(limit, func(c *conn) error {
		ended, more = 0, false
		wait, err := c.int64(`SELECT count(*) FROM pending WHERE endpoint_key = ? AND owner IS NULL`, endpoint)
		if err != nil || wait <= int64(most) {
			return err
		}
		var rows []surehook.Delivery
		if err := c.each(`SELECT event_key, id, attempt, first_attempt FROM pending WHERE endpoint_key = ? AND owner IS NULL ORDER BY event_key LIMIT ?`,
			[]any{endpoint, min(int(wait)-most, limit)}, func(st *sqlite3.Stmt) error {
				rows = append(rows, surehook.Delivery{EventKey: st.ColumnInt64(0), EndpointKey: endpoint, ID: st.ColumnInt64(1), Attempt: st.ColumnInt(2), FirstAttempt: st.ColumnInt(3)})
				return nil
			}); err != nil {
			return err
		}
		ended, more = len(rows), int(wait)-most > limit
		return s.end(c, rows, surehook.SentinelFull, s.now(), true, len(rows))
	})
	return ended, more, err
}

// PlanWatch implements surehook.Sentinels.
func (s *Store) PlanWatch(_ context.Context, provider, watch string, wait time.Duration) (int64, error) {
	plan := s.keys.take(1)
	return plan, s.write(1, func(c *conn) error {
		_, err := c.exec(`INSERT INTO watch_cancels (key, provider, watch, tries, retry_at) VALUES (?, ?, ?, 0, ?)`, plan, provider, watch, s.now().Add(wait))
		return err
	})
}

// bumpAll marks endpoints as changed, under one new version.
func (s *Store) bumpAll(c *conn, endpoints []int64) error {
	if len(endpoints) == 0 {
		return nil
	}
	if err := s.bumpConfig(c, endpoints[0]); err != nil {
		return err
	}
	for _, key := range endpoints[1:] {
		if _, err := c.exec(`UPDATE endpoints SET changed = ? WHERE key = ?`, s.config.Load(), key); err != nil {
			return err
		}
	}
	return nil
}

func keys(c *conn, sql string, args ...any) ([]int64, error) {
	var out []int64
	err := c.each(sql, args, func(st *sqlite3.Stmt) error {
		out = append(out, st.ColumnInt64(0))
		return nil
	})
	return out, err
}

// Cancels implements surehook.Sentinels.
func (s *Store) Cancels(ctx context.Context, limit int) ([]surehook.WatchCancel, error) {
	var out []surehook.WatchCancel
	err := s.read(ctx, func(c *conn) error {
		out = out[:0]
		return c.each(`SELECT key, provider, watch, tries FROM watch_cancels WHERE retry_at <= ? ORDER BY retry_at, key LIMIT ?`, []any{s.now(), limit}, func(st *sqlite3.Stmt) error {
			out = append(out, surehook.WatchCancel{Key: st.ColumnInt64(0), Provider: st.ColumnText(1), Watch: st.ColumnText(2), Tries: st.ColumnInt(3)})
			return nil
		})
	})
	return out, err
}

// Cancelled implements surehook.Sentinels.
func (s *Store) Cancelled(_ context.Context, key int64) error {
	return s.write(1, func(c *conn) error {
		_, err := c.exec(`DELETE FROM watch_cancels WHERE key = ?`, key)
		return err
	})
}

// PutOffCancel implements surehook.Sentinels.
func (s *Store) PutOffCancel(_ context.Context, w surehook.WatchCancel, wait time.Duration) error {
	return s.write(1, func(c *conn) error {
		_, err := c.exec(`UPDATE watch_cancels SET tries = tries + 1, retry_at = ? WHERE key = ? AND tries = ?`, s.now().Add(wait), w.Key, w.Tries)
		return err
	})
}

// SentinelDeliveries implements surehook.Sentinels.
func (s *Store) SentinelDeliveries(ctx context.Context, endpoints []int64) (map[int64]surehook.SentinelDelivery, error) {
	out := make(map[int64]surehook.SentinelDelivery)
	err := s.read(ctx, func(c *conn) error {
		clear(out)
		for _, key := range endpoints {
			var d surehook.SentinelDelivery
			if _, err := c.one(`SELECT EXISTS (SELECT 1 FROM sentinel_events WHERE endpoint_key = ?1),
				(SELECT count(*) FROM sentinel_events x JOIN pending p ON p.event_key = x.event_key AND p.endpoint_key = x.endpoint_key WHERE x.endpoint_key = ?1),
				(SELECT count(*) FROM dead_letters WHERE endpoint_key = ?1)`, []any{key}, func(st *sqlite3.Stmt) error {
				d.Any, d.Pending, d.Dead = st.ColumnBool(0), st.ColumnInt64(1), st.ColumnInt64(2)
				return nil
			}); err != nil {
				return err
			}
			if !d.Any {
				continue
			}
			if _, err := c.one(`SELECT `+attemptColumns+` WHERE a.endpoint_key = ? AND a.flags & 2 = 0 ORDER BY a.key DESC LIMIT 1`, []any{key}, func(st *sqlite3.Stmt) error {
				a := scanAttempt(st)
				d.Last = &a
				return nil
			}); err != nil {
				return err
			}
			out[key] = d
		}
		return nil
	})
	return out, err
}
