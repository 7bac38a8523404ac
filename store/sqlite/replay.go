package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"
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
		_, err = c.exec(`UPDATE pending SET due = ?, first_attempt = attempt + 1, inbox = NULL, number = NULL WHERE event_key = ? AND endpoint_key = ? AND owner IS NULL`, now, event, endpoint)
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

// replayableBy finds events of an endpoint by status. Parameters are those of
// cutoff, the endpoint (4), the keys' bounds (5 and 6), the times' (7 and 8), and the
// limit (9). Each walks one table in the order of its events.
var replayableBy = map[string]string{
	"": replayable(fromEvents, `e.key`, `?4 = ?4`),
	"dead": died(` FROM dead_letters d INDEXED BY dead_letters_delivery CROSS JOIN events e ON e.key = d.event_key`, `d`, ``) +
		` UNION ALL ` + died(` FROM pending p CROSS JOIN events e ON e.key = p.event_key`, `p`, ` AND p.first_attempt > 1`) + ` ORDER BY 1 LIMIT ?9`,
	"failed":    replayable(` FROM pending p CROSS JOIN events e ON e.key = p.event_key`, `p.event_key`, `p.endpoint_key = ?4 AND `+latestStatus+` = 2`),
	"succeeded": replayable(fromEvents, `e.key`, hasAttempt(1)),
}

const fromEvents = ` FROM events e`

// oddBy finds likewise, of those statuses that ask every event, the events that
// occurred long before or after they were accepted.
var oddBy = map[string]string{
	"":          replayable(fromOdd, `e.key`, `?4 = ?4`+odd),
	"succeeded": replayable(fromOdd, `e.key`, hasAttempt(1)+odd),
}

const (
	fromOdd = ` FROM events e INDEXED BY events_odd`
	odd     = ` AND abs(e.occurred_at - e.created_at) > 3600000` // as the index has it
	oddness = time.Hour
)

func replayable(from, key, cond string) string {
	return `SELECT ` + eventColumns + replayableIn(from, key, cond) + ` ORDER BY ` + key + ` LIMIT ?9`
}

func replayableIn(from, key, cond string) string {
	return from + ` LEFT JOIN tenants t ON t.id = e.tenant WHERE ` + key + ` > ?5 AND ` + key + ` <= ?6 AND ` + cond + `
		AND e.occurred_at >= ?7 AND e.occurred_at < ?8 AND e.occurred_at >= ` + cutoff + `
		AND e.data IS NOT NULL AND e.type <> 'webhook.test'`
}

// died finds deliveries that died and never succeeded, by way of the rows of a
// table: dead letters, and those that are on their way again.
func died(from, row, cond string) string {
	return `SELECT ` + strings.Replace(eventColumns, `e.key`, row+`.event_key`, 1) +
		replayableIn(from, row+`.event_key`, row+`.endpoint_key = ?4 AND `+hasAttempt(3)+` AND NOT `+hasAttempt(1)+cond)
}

// hasAttempt asks for an attempt of a status that counted.
func hasAttempt(status int) string {
	return fmt.Sprintf(`EXISTS (SELECT 1 FROM attempts x WHERE x.event_key = e.key AND x.endpoint_key = ?4 AND x.status = %d AND x.flags = 0)`, status)
}

// latestStatus is that of the last attempt that counted.
const latestStatus = `(SELECT x.status FROM attempts x WHERE x.event_key = e.key AND x.endpoint_key = ?4 AND x.flags = 0 ORDER BY +x.key DESC LIMIT 1)`

// Replayable implements surehook.Replays. An event is looked for where its key must
// be if it was accepted about when it occurred; before and behind that, by when it
// occurred, among those of which that isn't so.
func (s *Store) Replayable(ctx context.Context, endpoint int64, f surehook.ReplayFilter, after int64, limit int) ([]*surehook.Event, error) {
	sql, ok := replayableBy[f.Status]
	if !ok {
		return nil, surehook.Invalid("status", "must be dead, failed or succeeded")
	}
	low, high, newest, err := s.replayRange(ctx, f)
	if err != nil {
		return nil, err
	}
	q := replaySearch{s: s, args: append(windowArgs(s.now(), f.Window), endpoint), first: -1 << 62, last: 1 << 62, after: after, limit: limit}
	if !f.Since.IsZero() {
		q.first = row.CeilMillis(f.Since)
	}
	if !f.Until.IsZero() {
		q.last = row.CeilMillis(f.Until)
	}
	oddly := oddBy[f.Status]
	if oddly == "" { // few rows have this status: all are looked through
		low, high = 0, newest
	} else if err := q.find(ctx, oddly, low-1, low); err != nil {
		return nil, err
	}
	q.after = max(q.after, low-1)
	if err := q.find(ctx, sql, high, replayChunk); err != nil {
		return nil, err
	}
	if q.after = max(q.after, high); oddly != "" && q.after < newest {
		err = q.find(ctx, oddly, newest, newest)
	}
	return q.out, err
}

// replaySearch gathers events in the order of their keys.
type replaySearch struct {
	s           *Store
	args        []any // but for the bounds
	first, last int64 // of the time
	after       int64
	limit       int
	out         []*surehook.Event
}

// find goes on up to a key, a chunk in each snapshot.
func (q *replaySearch) find(ctx context.Context, sql string, upTo, chunk int64) error {
	for ; q.after < upTo && len(q.out) < q.limit; q.after += min(chunk, upTo-q.after) {
		args := slices.Concat(q.args, []any{q.after, q.after + min(chunk, upTo-q.after), q.first, q.last, q.limit - len(q.out)})
		if err := q.s.read(ctx, func(c *conn) error {
			return c.each(sql, args, func(st *sqlite3.Stmt) error {
				e, err := scanEvent(st, 0)
				q.out = append(q.out, e)
				return err
			})
		}); err != nil {
			return err
		}
	}
	return nil
}

// replayRange bounds the keys of those events of a window that were accepted about
// when they occurred, low ≤ key ≤ high, and gives the newest key of all.
func (s *Store) replayRange(ctx context.Context, f surehook.ReplayFilter) (low, high, newest int64, err error) {
	since, until := f.Since, f.Until
	if !since.IsZero() {
		since = since.Add(-oddness)
	}
	if !until.IsZero() {
		until = until.Add(oddness)
	}
	err = s.read(ctx, func(c *conn) error {
		if low, high, err = eventRange(c, since, until); err != nil {
			return err
		}
		newest, err = c.int64(`SELECT ifnull(max(key), 0) FROM events`)
		high = min(high-1, newest)
		return err
	})
	return low, high, newest, err
}
