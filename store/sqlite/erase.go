package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

const (
	scrubTries = 60                     // a reader stays for readLimit at most
	scrubWait  = 100 * time.Millisecond // between two
)

// Erase implements surehook.Erasing.
func (s *Store) Erase(_ context.Context, sel surehook.Erasure, limit int, a *surehook.AuditEntry) (surehook.Erased, error) {
	var out surehook.Erased
	err := s.write(limit, func(c *conn) error {
		keys, next, err := erasing(c, sel, limit)
		if err != nil {
			return err
		}
		out = surehook.Erased{Next: next}
		now := s.now()
		for _, key := range keys {
			n, err := c.exec(`UPDATE events SET data = NULL WHERE key = ? AND data IS NOT NULL`, key)
			if err != nil {
				return err
			}
			if _, err := c.exec(`UPDATE attempts SET response = NULL WHERE event_key = ? AND response IS NOT NULL`, key); err != nil {
				return err
			}
			rows, _, err := pendingOf(c, key)
			if err != nil {
				return err
			}
			if err := s.end(c, rows, surehook.EventUnavailable, now, true, len(rows)); err != nil {
				return err
			}
			out.Events, out.Deliveries = out.Events+int(n), out.Deliveries+len(rows)
		}
		return s.putAudit(c, a)
	})
	return out, err
}

// erasing lists the events of one step, those that are erased already included,
// and tells where the next one goes on.
func erasing(c *conn, sel surehook.Erasure, limit int) (keys []int64, next int64, err error) {
	if len(sel.Keys) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(sel.Keys))), 0, nil
	}
	seen := 0
	sql := `SELECT key, identity FROM events WHERE tenant = ?1 AND tenant <> '' AND key > ?2 ORDER BY key LIMIT ?3`
	if sel.Tenant == "" {
		sql = `SELECT key, iif(tenant = ?1, identity, NULL) FROM events WHERE key > ?2 ORDER BY key LIMIT ?3`
	}
	err = c.each(sql, []any{sel.Tenant, sel.After, limit}, func(st *sqlite3.Stmt) error {
		seen, next = seen+1, st.ColumnInt64(0)
		if sel.Identity == "" || st.ColumnText(1) == sel.Identity {
			keys = append(keys, next)
		}
		return nil
	})
	if seen < limit {
		next = 0
	}
	return keys, next, err
}

// pendingOf gives the free rows of an event, and tells whether others are held.
func pendingOf(c *conn, event int64) (free []surehook.Delivery, held bool, err error) {
	err = c.each(`SELECT endpoint_key, id, attempt, first_attempt, owner IS NOT NULL FROM pending WHERE event_key = ?`, []any{event}, func(st *sqlite3.Stmt) error {
		if st.ColumnBool(4) {
			held = true
			return nil
		}
		free = append(free, surehook.Delivery{EventKey: event, EndpointKey: st.ColumnInt64(0), ID: st.ColumnInt64(1), Attempt: st.ColumnInt(2), FirstAttempt: st.ColumnInt(3)})
		return nil
	})
	return free, held, err
}

// inOutbox selects events of the outbox for an erasure.
func inOutbox(sel surehook.Erasure, ids []string) query {
	var q query
	if len(ids) > 0 {
		q.add(`event_id IN (SELECT value FROM json_each(?))`, ids)
	}
	if len(ids) == 0 || sel.Tenant != "" {
		q.add(`tenant = ?`, sel.Tenant)
	}
	if sel.Identity != "" {
		q.add(`identity = ?`, sel.Identity)
	}
	return q
}

// EraseRefused implements surehook.Erasing.
func (s *Store) EraseRefused(_ context.Context, sel surehook.Erasure, ids []string, limit int, a *surehook.AuditEntry) ([]string, error) {
	q := inOutbox(sel, ids)
	q.add(`refused > ?`, 0)
	var gone []string
	err := s.write(limit, func(c *conn) error {
		gone = nil
		if err := c.each(`DELETE FROM outbox WHERE id IN (SELECT id FROM outbox`+q.where()+` ORDER BY id LIMIT ?) RETURNING event_id`, q.with(limit), func(st *sqlite3.Stmt) error {
			gone = append(gone, st.ColumnText(0))
			return nil
		}); err != nil || len(gone) == 0 {
			return err
		}
		return s.putAudit(c, a)
	})
	return gone, err
}

// ErasureWaits implements surehook.Erasing.
func (s *Store) ErasureWaits(ctx context.Context, sel surehook.Erasure, ids []string, before int64) (n int, last int64, err error) {
	q := inOutbox(sel, ids)
	if before > 0 {
		q.add(`id <= ?`, before)
	}
	err = s.read(ctx, func(c *conn) error {
		_, err := c.one(`SELECT count(*), ifnull(max(id), 0) FROM outbox`+q.where(), q.args, func(st *sqlite3.Stmt) error {
			n, last = st.ColumnInt(0), st.ColumnInt64(1)
			return nil
		})
		return err
	})
	return n, last, err
}

// ErasedAmong implements surehook.Erasing.
func (s *Store) ErasedAmong(ctx context.Context, events []int64) ([]int64, error) {
	var out []int64
	err := s.read(ctx, func(c *conn) error {
		for _, key := range events {
			there, err := c.int64(`SELECT count(*) FROM events WHERE key = ? AND data IS NOT NULL`, key)
			if err != nil {
				return err
			}
			if there == 0 {
				out = append(out, key)
			}
		}
		return nil
	})
	return out, err
}

// Erasures implements surehook.Erasing: nobody else has the file.
func (s *Store) Erasures(context.Context) (int64, error) { return 0, nil }

// Scrub implements surehook.Erasing. Pages that are freed, and what is deleted in
// others, are overwritten always (secure_delete); what is left is the write-ahead
// log, which holds the pages as they were. It is written back and cut to nothing,
// as soon as no reader needs it.
func (s *Store) Scrub(ctx context.Context) error {
	var err error
	for range scrubTries {
		err = s.ask(&job{bare: true, run: truncateLog, done: make(chan error, 1)})
		if surehook.CodeOf(err) != surehook.Unavailable {
			return err
		}
		select {
		case <-ctx.Done():
			return unavailable("what was erased may still be in the write-ahead log; erase it again", ctx.Err())
		case <-time.After(scrubWait):
		}
	}
	return unavailable("what was erased may still be in the write-ahead log, which somebody reads; erase it again", err)
}

func truncateLog(c *conn) error {
	if err := c.BusyTimeout(checkpointWait); err != nil {
		return err
	}
	_, _, err := c.WALCheckpoint("main", sqlite3.CHECKPOINT_TRUNCATE)
	if e := c.BusyTimeout(busyTimeout); err == nil {
		err = e
	}
	return err
}
