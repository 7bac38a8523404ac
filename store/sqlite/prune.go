package sqlite

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// pruneMost bounds a step more than its caller does. Others wait for as long as it
// takes, about a millisecond, and share its transaction. It weighs as one row: it is
// no load for which the next transaction should wait for company.
const pruneMost = 50

// Prune implements surehook.Retention: the oldest events first, those of one
// transaction. One that is being delivered right now stays until that is over.
// What tenants keep for longer is looked at once, and then passed over.
func (s *Store) Prune(_ context.Context, before time.Time, limit int) (int64, bool, error) {
	limit = min(limit, pruneMost)
	var n, from, to int64
	var more bool
	err := s.write(1, func(c *conn) error {
		n, more, from = 0, false, s.pruned.Load()
		old, seen, err := oldEvents(c, from, before, limit)
		if err != nil {
			return err
		}
		to = seen
		for _, key := range old {
			gone, err := s.prune(c, key, before)
			if err != nil {
				return err
			}
			if gone {
				n++
			} else {
				to = min(to, key-1) // it is looked at again
			}
		}
		given, err := s.giveUp(c, before, limit, `(tenant = '' OR tenant NOT IN (SELECT id FROM tenants WHERE events_days > 0))`)
		if err != nil {
			return err
		}
		n, more = n+given, seen > 0 && to > from || given == int64(limit)
		return pruneOrphans(c, before, limit)
	})
	if err == nil && to > from {
		s.pruned.CompareAndSwap(from, to)
	}
	return n, more, err
}

// pruneAnew has retention look at all events again. It marks that by another number
// below every key each time, so that a step that is under way can't take it for where
// it began itself.
func (s *Store) pruneAnew() { s.pruned.Store(-s.unpruned.Add(1)) }

// oldEvents lists keys above one, up to the first event that stays: those of tenants
// without days of their own. It also gives the last one that it looked at, if there
// may be more.
func oldEvents(c *conn, from int64, before time.Time, limit int) (old []int64, seen int64, err error) {
	bound, looked, young := millis(before), 0, false
	last := from
	err = c.each(`SELECT key, created_at, tenant <> '' AND EXISTS (SELECT 1 FROM tenants t WHERE t.id = events.tenant AND t.events_days > 0)
		FROM events WHERE key > ? ORDER BY key LIMIT ?`, []any{from, limit}, func(st *sqlite3.Stmt) error {
		if young = young || st.ColumnInt64(1) >= bound; young {
			return nil
		}
		looked, last = looked+1, st.ColumnInt64(0)
		if !st.ColumnBool(2) {
			old = append(old, last)
		}
		return nil
	})
	if looked < limit {
		return old, 0, err
	}
	return old, last, err
}

// PruneTenant implements surehook.Retention.
func (s *Store) PruneTenant(_ context.Context, tenant string, before time.Time, limit int) (int64, bool, error) {
	limit = min(limit, pruneMost)
	var n int64
	var more bool
	err := s.write(1, func(c *conn) error {
		n, more = 0, false
		var keys []int64
		bound, young := millis(before), false
		if err := c.each(`SELECT key, created_at FROM events WHERE tenant = ? AND tenant <> '' ORDER BY key LIMIT ?`, []any{tenant, limit}, func(st *sqlite3.Stmt) error {
			if young = young || st.ColumnInt64(1) >= bound; !young {
				keys = append(keys, st.ColumnInt64(0))
			}
			return nil
		}); err != nil {
			return err
		}
		for _, key := range keys {
			gone, err := s.prune(c, key, before)
			if err != nil {
				return err
			}
			if gone {
				n++
			}
		}
		more = len(keys) == limit && n > 0
		if !more {
			given, err := s.giveUp(c, before, limit, `tenant = ? AND tenant <> ''`, tenant)
			if err != nil {
				return err
			}
			n, more = n+given, given == int64(limit)
		}
		return pruneOrphans(c, before, limit)
	})
	return n, more, err
}

// prune removes one event. What is still to be delivered of it ends, with an
// attempt that says so and stays for as long again.
func (s *Store) prune(c *conn, key int64, before time.Time) (bool, error) {
	rows, held, err := pendingOf(c, key)
	if err != nil || held {
		return false, err
	}
	now := s.now()
	if err := s.end(c, rows, surehook.EventUnavailable, now, true, len(rows)); err != nil {
		return false, err
	}
	for _, sql := range []string{`DELETE FROM dead_letters WHERE event_key = ?`, `DELETE FROM events WHERE key = ?`} {
		if _, err := c.exec(sql, key); err != nil {
			return false, err
		}
	}
	if _, err := c.exec(`DELETE FROM attempts WHERE event_key = ? AND created_at < ?`, key, before); err != nil {
		return false, err
	}
	_, err = c.exec(`INSERT INTO orphans (event_key, at) SELECT ?1, ?2 WHERE EXISTS (SELECT 1 FROM attempts WHERE event_key = ?1)`, key, now)
	return err == nil, err
}

// pruneOrphans removes the attempts of events that went before those were old.
func pruneOrphans(c *conn, before time.Time, limit int) error {
	var keys []int64
	if err := c.each(`SELECT event_key FROM orphans WHERE at < ? ORDER BY at LIMIT ?`, []any{before, limit}, func(st *sqlite3.Stmt) error {
		keys = append(keys, st.ColumnInt64(0))
		return nil
	}); err != nil {
		return err
	}
	for _, key := range keys {
		for _, sql := range []string{`DELETE FROM attempts WHERE event_key = ?`, `DELETE FROM orphans WHERE event_key = ?`} {
			if _, err := c.exec(sql, key); err != nil {
				return err
			}
		}
	}
	return nil
}
