package sqlite

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// Replay implements surehook.Replays: all events are queued, or none.
func (s *Store) Replay(_ context.Context, endpoint int64, events []int64, a *surehook.AuditEntry) ([]surehook.ReplayResult, error) {
	var out []surehook.ReplayResult
	err := s.change(func(c *conn) error {
		out = make([]surehook.ReplayResult, 0, len(events))
		if err := replayTarget(c, endpoint); err != nil {
			return err
		}
		now := s.now()
		for _, event := range events {
			state, err := replayState(c, event)
			switch {
			case err != nil:
				return err
			case state == eventMissing:
				return notFound("event")
			case state == eventErased:
				return surehook.Errorf(surehook.Conflict, "the event's data was erased")
			}
			queued, err := s.requeue(c, event, endpoint, now)
			if err != nil {
				return err
			}
			out = append(out, surehook.ReplayResult{EventKey: event, InProgress: !queued})
		}
		return s.putAudit(c, a)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func replayTarget(c *conn, endpoint int64) error {
	n, err := c.int64(`SELECT count(*) FROM endpoints WHERE key = ? AND deleted = 0`, endpoint)
	if err == nil && n == 0 {
		err = notFound("webhook")
	}
	return err
}

// What can become of an event that is to be replayed.
const (
	eventMissing = iota // also webhook.test, which is never sent again
	eventErased
	eventThere
)

func replayState(c *conn, event int64) (int64, error) {
	return c.int64(`SELECT CASE WHEN type = 'webhook.test' THEN 0 WHEN data IS NULL THEN 1 ELSE 2 END FROM events WHERE key = ?`, event)
}

// requeue starts a new run of a delivery, due at once. It tells false, and
// changes nothing, when an attempt is being made right now.
func (s *Store) requeue(c *conn, event, endpoint int64, now time.Time) (bool, error) {
	owned := false
	found, err := c.one(`SELECT owner IS NOT NULL FROM pending WHERE event_key = ? AND endpoint_key = ?`, []any{event, endpoint}, func(st *sqlite3.Stmt) error {
		owned = st.ColumnBool(0)
		return nil
	})
	switch {
	case err != nil || owned:
		return false, err
	case found:
		_, err = c.exec(`UPDATE pending SET due = ?, first_attempt = attempt + 1 WHERE event_key = ? AND endpoint_key = ? AND owner IS NULL`, now, event, endpoint)
		return err == nil, err
	}
	attempt, err := c.int64(`SELECT ifnull(max(number), 0) FROM attempts WHERE event_key = ? AND endpoint_key = ?`, event, endpoint)
	if err != nil {
		return false, err
	}
	if _, err := c.exec(`DELETE FROM dead_letters WHERE event_key = ? AND endpoint_key = ?`, event, endpoint); err != nil {
		return false, err
	}
	order, sequence, err := s.place(c, event, endpoint)
	if err != nil {
		return false, err
	}
	_, err = c.exec(`INSERT INTO pending (event_key, endpoint_key, id, attempt, first_attempt, due, order_key, sequence) VALUES (?,?,?,?,?,?,nullif(?,0),?)`,
		event, endpoint, s.keys.take(1), attempt, attempt+1, now, order, sequence)
	return err == nil, err
}

// place gives an event's place in its owner's sequence, where the endpoint is
// ordered: a replayed event has its old one, before what waits behind it.
func (s *Store) place(c *conn, event, endpoint int64) (order, sequence int64, err error) {
	found, err := c.one(`SELECT e.tenant, e.owner, e.sequence FROM endpoints w, events e WHERE w.key = ? AND w.ordered = 1 AND e.key = ?`,
		[]any{endpoint, event}, func(st *sqlite3.Stmt) error {
			if sequence = st.ColumnInt64(2); sequence != 0 { // else it is older than sequences
				order = row.OrderKey(st.ColumnText(0), st.ColumnText(1))
			}
			return nil
		})
	if found && order != 0 {
		s.sequenced(endpoint)
	}
	return order, sequence, err
}

// replayChunk bounds the keys that one snapshot looks through, so that a search
// with few hits ends in time and holds no snapshot for long.
const replayChunk = 1 << 20

// replayableBy finds events of an endpoint by status: endpoint, after, up to,
// window, limit. Each walks one table in the order of its events.
var replayableBy = map[string]string{
	"":       replayable(` FROM events e`, `e.key`, `?1 = ?1`),
	"dead":   replayable(` FROM dead_letters d INDEXED BY dead_letters_delivery CROSS JOIN events e ON e.key = d.event_key`, `d.event_key`, `d.endpoint_key = ?1`),
	"failed": replayable(` FROM pending p CROSS JOIN events e ON e.key = p.event_key`, `p.event_key`, `p.endpoint_key = ?1 AND `+latestStatus+` = 2`),
	"succeeded": replayable(` FROM events e`, `e.key`, latestStatus+` = 1
		AND NOT EXISTS (SELECT 1 FROM pending y WHERE y.event_key = e.key AND y.endpoint_key = ?1)
		AND NOT EXISTS (SELECT 1 FROM dead_letters y WHERE y.event_key = e.key AND y.endpoint_key = ?1)`),
}

func replayable(from, key, cond string) string {
	return `SELECT ` + eventColumns + from + ` WHERE ` + key + ` > ?2 AND ` + key + ` <= ?3 AND ` + cond + `
		AND e.created_at >= ?4 AND e.created_at < ?5 AND e.data IS NOT NULL AND e.type <> 'webhook.test' ORDER BY ` + key + ` LIMIT ?6`
}

// latestStatus is that of the last attempt that counted.
const latestStatus = `(SELECT x.status FROM attempts x WHERE x.event_key = e.key AND x.endpoint_key = ?1 AND x.flags = 0 ORDER BY +x.key DESC LIMIT 1)`

// Replayable implements surehook.Replays.
func (s *Store) Replayable(ctx context.Context, endpoint int64, since, until time.Time, status string, after int64, limit int) ([]*surehook.Event, error) {
	sql, ok := replayableBy[status]
	if !ok {
		return nil, surehook.Invalid("status", "must be dead, failed or succeeded")
	}
	low, high, err := s.replayRange(ctx, since, until)
	if err != nil {
		return nil, err
	}
	first, last := int64(0), int64(1)<<62
	if !since.IsZero() {
		first = row.CeilMillis(since)
	}
	if !until.IsZero() {
		last = row.CeilMillis(until)
	}
	var out []*surehook.Event
	for after = max(after, low-1); after < high && len(out) < limit; after += replayChunk {
		err := s.read(ctx, func(c *conn) error {
			return c.each(sql, []any{endpoint, after, min(after+replayChunk, high), first, last, limit - len(out)}, func(st *sqlite3.Stmt) error {
				e, err := scanEvent(st, 0)
				out = append(out, e)
				return err
			})
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// replayRange bounds the keys of a window: low ≤ key ≤ high.
func (s *Store) replayRange(ctx context.Context, since, until time.Time) (low, high int64, err error) {
	err = s.read(ctx, func(c *conn) error {
		if low, high, err = eventRange(c, since, until); err != nil {
			return err
		}
		newest, err := c.int64(`SELECT ifnull(max(key), 0) FROM events`)
		high = min(high-1, newest)
		return err
	})
	return low, high, err
}
