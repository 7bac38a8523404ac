package sqlite

import (
	"context"
	"math"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// cutoff is before which time an event e of the tenant t must have occurred to be
// out of its window: the most of any, and what is kept of tenants without days of
// their own. In milliseconds; parameters ?1 (now), ?2 and ?3.
const cutoff = `(?1 - min(?2, iif(ifnull(t.events_days, 0) > 0, t.events_days * 86400000, ?3)))`

// windowArgs are the cutoff's parameters.
func windowArgs(now time.Time, w surehook.Window) []any {
	ms := func(d time.Duration) int64 {
		if d == 0 {
			return math.MaxInt64 / 4
		}
		return d.Milliseconds()
	}
	return []any{now, ms(w.Most), ms(w.Kept)}
}

// Expire implements surehook.Queue. It looks on a reader's connection, and asks
// the writer only where there is something to end.
func (s *Store) Expire(ctx context.Context, endpoint int64, w surehook.Window, after surehook.Place, limit int) (int, surehook.Place, error) {
	var next surehook.Place
	var out []surehook.Delivery
	now, seen := s.now(), 0
	args := append(windowArgs(now, w), endpoint, after.Due, after.Event, limit)
	if err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT p.event_key, p.id, p.attempt, p.first_attempt, p.due, ifnull(e.occurred_at < `+cutoff+`, 1)
			FROM pending p LEFT JOIN events e ON e.key = p.event_key LEFT JOIN tenants t ON t.id = e.tenant
			WHERE p.endpoint_key = ?4 AND p.owner IS NULL AND p.due >= ?5 AND (p.due, p.event_key) > (?5, ?6) ORDER BY p.due, p.event_key LIMIT ?7`,
			args, func(st *sqlite3.Stmt) error {
				seen++
				d := surehook.Delivery{EventKey: st.ColumnInt64(0), EndpointKey: endpoint, ID: st.ColumnInt64(1), Attempt: st.ColumnInt(2), FirstAttempt: st.ColumnInt(3)}
				next = surehook.Place{Due: at(st.ColumnInt64(4)), Event: d.EventKey}
				if st.ColumnBool(5) {
					out = append(out, d)
				}
				return nil
			})
	}); err != nil {
		return 0, after, err
	}
	if seen < limit {
		next = surehook.Place{}
	}
	if len(out) == 0 {
		return 0, next, nil
	}
	ended := 0
	err := s.write(len(out), func(c *conn) error {
		free := out[:0:0]
		for _, d := range out { // as they are now
			n, err := c.int64(`SELECT count(*) FROM pending WHERE event_key = ? AND endpoint_key = ? AND id = ? AND owner IS NULL AND attempt = ?`,
				d.EventKey, endpoint, d.ID, d.Attempt)
			if err != nil {
				return err
			}
			if n == 1 {
				free = append(free, d)
			}
		}
		ended = len(free)
		return s.end(c, free, surehook.EventUnavailable, now, true, len(free))
	})
	if err != nil {
		return 0, after, err
	}
	return ended, next, nil
}
