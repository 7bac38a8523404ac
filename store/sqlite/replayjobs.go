package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const replayColumns = `r.key, r.id, r.endpoint_key, r.since, r.until, r.status, r.state, r.cursor, r.scanned, r.queued, r.total, r.error,
	r.created_at, r.updated_at, ifnull(w.id, '') FROM replays r LEFT JOIN endpoints w ON w.key = r.endpoint_key`

func scanReplay(st *sqlite3.Stmt) *surehook.Replay {
	return &surehook.Replay{
		Key: st.ColumnInt64(0), ID: st.ColumnText(1), EndpointKey: st.ColumnInt64(2), Since: at(st.ColumnInt64(3)), Until: at(st.ColumnInt64(4)),
		Status: st.ColumnText(5), State: surehook.ReplayState(st.ColumnText(6)), Cursor: st.ColumnInt64(7), Scanned: st.ColumnInt64(8),
		Queued: st.ColumnInt64(9), Total: st.ColumnInt64(10), Error: st.ColumnText(11), CreatedAt: at(st.ColumnInt64(12)),
		UpdatedAt: at(st.ColumnInt64(13)), EndpointID: st.ColumnText(14),
	}
}

// CreateReplay implements surehook.Replays. It fills in Key and times, and
// Total unless it is set.
func (s *Store) CreateReplay(ctx context.Context, r *surehook.Replay, a *surehook.AuditEntry) error {
	row := *r
	if row.Total == 0 {
		total, err := s.estimate(ctx, r)
		if err != nil {
			return err
		}
		row.Total = total
	}
	if row.State == "" {
		row.State = surehook.ReplayRunning
	}
	err := s.change(func(c *conn) error {
		if err := replayTarget(c, row.EndpointKey); err != nil {
			return err
		}
		now := at(millis(s.now()))
		row.Key, row.CreatedAt, row.UpdatedAt = s.keys.take(1), now, now
		n, err := c.exec(`INSERT INTO replays (key, id, endpoint_key, since, until, status, state, cursor, scanned, queued, total, error, created_at, updated_at)
			VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
			row.Key, row.ID, row.EndpointKey, row.Since, row.Until, row.Status, string(row.State), row.Cursor, row.Scanned, row.Queued, row.Total,
			row.Error, row.CreatedAt, row.UpdatedAt)
		if err != nil || n == 0 {
			return orConflict(err, "a replay with this id exists")
		}
		return s.putAudit(c, a)
	})
	if err == nil {
		*r = row
	}
	return err
}

// estimate counts the events that were accepted about when a window was, up to a bound past which it takes
// them for evenly spread over the keys.
func (s *Store) estimate(ctx context.Context, r *surehook.Replay) (int64, error) {
	const bound = 50_000
	low, high, _, err := s.replayRange(ctx, surehook.ReplayFilter{Since: r.Since, Until: r.Until})
	if err != nil || low > high {
		return 0, err
	}
	var n, last int64
	err = s.read(ctx, func(c *conn) error {
		_, err := c.one(`SELECT count(*), ifnull(max(key), 0) FROM (SELECT key FROM events WHERE key >= ? AND key <= ? ORDER BY key LIMIT ?)`,
			[]any{low, high, bound}, func(st *sqlite3.Stmt) error {
				n, last = st.ColumnInt64(0), st.ColumnInt64(1)
				return nil
			})
		return err
	})
	if n == bound {
		n = int64(float64(n) * float64(high-low+1) / float64(last-low+1))
	}
	return n, err
}

// AdvanceReplay implements surehook.Replays. Events that are gone by now are
// left out. r gets what is stored after: a repeat adds nothing to Queued.
func (s *Store) AdvanceReplay(_ context.Context, r *surehook.Replay, events []int64) error {
	var row *surehook.Replay
	err := s.change(func(c *conn) (err error) {
		if row, err = replayByID(c, r.ID); err != nil || row.State != surehook.ReplayRunning || r.Cursor <= row.Cursor {
			return err
		}
		now := s.now()
		for _, event := range events {
			state, err := replayState(c, event)
			if err != nil {
				return err
			}
			if state != eventThere {
				continue
			}
			queued, err := s.requeue(c, event, row.EndpointKey, now)
			if err != nil {
				return err
			}
			if queued {
				row.Queued++
			}
		}
		row.Cursor, row.Scanned, row.UpdatedAt = r.Cursor, r.Scanned, at(millis(now))
		_, err = c.exec(`UPDATE replays SET cursor = ?, scanned = ?, queued = ?, updated_at = ? WHERE key = ?`,
			row.Cursor, row.Scanned, row.Queued, row.UpdatedAt, row.Key)
		return err
	})
	if err == nil {
		*r = *row
	}
	return err
}

func replayByID(c *conn, id string) (*surehook.Replay, error) {
	var r *surehook.Replay
	found, err := c.one(`SELECT `+replayColumns+` WHERE r.id = ?`, []any{id}, func(st *sqlite3.Stmt) error {
		r = scanReplay(st)
		return nil
	})
	if err == nil && !found {
		err = notFound("replay")
	}
	return r, err
}

// GetReplay implements surehook.Replays.
func (s *Store) GetReplay(ctx context.Context, id string) (*surehook.Replay, error) {
	var r *surehook.Replay
	err := s.read(ctx, func(c *conn) (err error) {
		r, err = replayByID(c, id)
		return err
	})
	return r, err
}

// ListReplays implements surehook.Replays.
func (s *Store) ListReplays(ctx context.Context, endpoint int64, of surehook.Viewer, p surehook.Page) ([]*surehook.Replay, error) {
	var q query
	q.before(`r.key`, p.Cursor)
	if endpoint != 0 {
		q.add(`r.endpoint_key = ?`, endpoint)
	}
	q.sees(of, `r.endpoint_key`)
	return s.replays(ctx, q.where()+` ORDER BY r.key DESC LIMIT ?`, q.with(row.PageSize(p)))
}

// RunningReplays implements surehook.Replays, oldest first.
func (s *Store) RunningReplays(ctx context.Context) ([]*surehook.Replay, error) {
	return s.replays(ctx, ` WHERE r.state = 'running' ORDER BY r.key`, nil)
}

func (s *Store) replays(ctx context.Context, rest string, args []any) ([]*surehook.Replay, error) {
	var out []*surehook.Replay
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT `+replayColumns+rest, args, func(st *sqlite3.Stmt) error {
			out = append(out, scanReplay(st))
			return nil
		})
	})
	return out, err
}

// EndReplay implements surehook.Replays.
func (s *Store) EndReplay(_ context.Context, id string, state surehook.ReplayState, errText string, a *surehook.AuditEntry) error {
	return s.change(func(c *conn) error {
		if _, err := replayByID(c, id); err != nil {
			return err
		}
		n, err := c.exec(`UPDATE replays SET state = ?, error = ?, updated_at = ? WHERE id = ? AND state = 'running'`, string(state), errText, s.now(), id)
		if err != nil || n == 0 {
			return err
		}
		return s.putAudit(c, a)
	})
}
