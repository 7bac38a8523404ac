package sqlite

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// Prune implements surehook.Retention: the oldest events first, those of one
// transaction. One that is being delivered right now stays until that is over.
func (s *Store) Prune(_ context.Context, before time.Time, limit int) (int64, bool, error) {
	var n int64
	var more bool
	err := s.write(limit, func(c *conn) error {
		n, more = 0, false
		keys, err := oldEvents(c, before, limit)
		if err != nil {
			return err
		}
		more = len(keys) == limit
		now := s.now()
		for _, key := range keys {
			gone, err := s.prune(c, key, before, now)
			if err != nil {
				return err
			}
			if gone {
				n++
			}
		}
		more = more && n > 0
		return pruneOrphans(c, before, limit)
	})
	return n, more, err
}

// oldEvents lists keys from the oldest on, up to the first event that stays.
func oldEvents(c *conn, before time.Time, limit int) ([]int64, error) {
	var keys []int64
	bound, young := millis(before), false
	err := c.each(`SELECT key, created_at FROM events ORDER BY key LIMIT ?`, []any{limit}, func(st *sqlite3.Stmt) error {
		if young = young || st.ColumnInt64(1) >= bound; !young {
			keys = append(keys, st.ColumnInt64(0))
		}
		return nil
	})
	return keys, err
}

// prune removes one event. What is still to be delivered of it ends, with an
// attempt that says so.
func (s *Store) prune(c *conn, key int64, before, now time.Time) (bool, error) {
	rows, held, err := pendingOf(c, key)
	if err != nil || held {
		return false, err
	}
	if err := s.end(c, rows, surehook.EventUnavailable, now, true, len(rows)); err != nil {
		return false, err
	}
	for _, sql := range []string{`DELETE FROM dead_letters WHERE event_key = ?`, `DELETE FROM events WHERE key = ?`} {
		if _, err := c.exec(sql, key); err != nil {
			return false, err
		}
	}
	_, err = c.exec(`DELETE FROM attempts WHERE event_key = ? AND created_at < ?`, key, before)
	return err == nil, err
}

// pruneOrphans removes old attempts of events that went before they were old.
func pruneOrphans(c *conn, before time.Time, limit int) error {
	oldest, err := c.int64(`SELECT ifnull(min(key), 1 << 62) FROM events`)
	if err != nil {
		return err
	}
	_, err = c.exec(`DELETE FROM attempts WHERE (event_key, endpoint_key, number, key) IN (
		SELECT event_key, endpoint_key, number, key FROM attempts WHERE event_key < ? AND created_at < ? LIMIT ?)`, oldest, before, limit)
	return err
}
