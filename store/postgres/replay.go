package postgres

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// Replay implements surehook.Replays: all events are queued, or none.
func (s *Store) Replay(ctx context.Context, endpoint int64, events []int64, a *surehook.AuditEntry) ([]surehook.ReplayResult, error) {
	var out []surehook.ReplayResult
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.replayTarget(ctx, tx, endpoint); err != nil {
			return err
		}
		found, err := s.replayEvents(ctx, tx, events)
		if err != nil {
			return err
		}
		for _, event := range events {
			switch e, ok := found[event]; {
			case !ok:
				return notFound("event")
			case e.erased:
				return conflict("the event's data was erased")
			}
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		held, err := s.requeue(ctx, tx, endpoint, found, now)
		if err != nil {
			return err
		}
		out = make([]surehook.ReplayResult, 0, len(events))
		for _, event := range events {
			out = append(out, surehook.ReplayResult{EventKey: event, InProgress: held[event]})
		}
		return s.putAudit(ctx, tx, now, a)
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (s *Store) replayTarget(ctx context.Context, tx pgx.Tx, endpoint int64) error {
	_, err := one(ctx, tx, "webhook", pgx.RowTo[int64], s.q(`SELECT key FROM surehook.endpoints WHERE key = $1 AND NOT deleted`), endpoint)
	return err
}

// replayEvent is an event that is to be replayed.
type replayEvent struct {
	erased          bool
	size            int32
	order, sequence int64 // in its owner's sequence; 0: none
}

// replayEvents finds those of the events that can be replayed, and erased ones.
// A webhook.test is never sent again.
func (s *Store) replayEvents(ctx context.Context, tx pgx.Tx, events []int64) (map[int64]replayEvent, error) {
	rows, err := tx.Query(ctx, s.q(`SELECT key, data IS NULL, coalesce(octet_length(data), 0), tenant, owner, sequence FROM surehook.events
		WHERE key = ANY($1) AND type <> 'webhook.test'`), events)
	if err != nil {
		return nil, err
	}
	out := make(map[int64]replayEvent, len(events))
	var key int64
	var tenant, owner string
	var e replayEvent
	_, err = pgx.ForEachRow(rows, []any{&key, &e.erased, &e.size, &tenant, &owner, &e.sequence}, func() error {
		if e.order = 0; e.sequence != 0 { // else it is older than sequences, and was moved here
			e.order = row.OrderKey(tenant, owner)
		}
		out[key] = e
		return nil
	})
	return out, err
}

// requeueNew makes rows for deliveries that have none, and takes their dead
// letters away: endpoint, due, events, ids, sizes, the lowest key of their
// attempts, order keys, sequences. The rows go on where the attempts ended.
const requeueNew = `WITH a AS (
	SELECT event_key, max(number) AS number FROM surehook.attempts
	WHERE endpoint_key = $1 AND event_key = ANY($3) AND key >= $6 GROUP BY event_key
), n AS (
	INSERT INTO surehook.pending (event_key, endpoint_key, id, due, attempt, first_attempt, size, order_key, sequence)
	SELECT x.event_key, $1, x.id, $2, coalesce(a.number, 0), coalesce(a.number, 0) + 1, x.size, nullif(x.order_key, 0), x.sequence
	FROM unnest($3::bigint[], $4::bigint[], $5::int[], $7::bigint[], $8::bigint[]) x(event_key, id, size, order_key, sequence) LEFT JOIN a ON a.event_key = x.event_key
	ORDER BY x.event_key RETURNING event_key
) DELETE FROM surehook.dead_letters d USING n WHERE d.endpoint_key = $1 AND d.event_key = n.event_key`

// requeue starts new runs of deliveries, due at once. It gives those of which an
// attempt is being made right now; for them it changes nothing. At an ordered
// endpoint a replayed event has its old place, before what waits behind it.
//
// Only one transaction at a time replays for an endpoint, so a delivery that has
// no row can't get one from elsewhere, and no two wait for each other. Whoever
// ends a row has it locked: the lock is waited for, and then the row is gone, its
// last attempt and its dead letter are there.
func (s *Store) requeue(ctx context.Context, tx pgx.Tx, endpoint int64, found map[int64]replayEvent, now int64) (held map[int64]bool, err error) {
	events := slices.Sorted(maps.Keys(found))
	if len(events) == 0 {
		return nil, nil
	}
	if err := s.exclude(ctx, tx, "replays for "+strconv.FormatInt(endpoint, 10)); err != nil {
		return nil, err
	}
	rows, err := tx.Query(ctx, s.q(`SELECT event_key, owner IS NOT NULL FROM surehook.pending
		WHERE endpoint_key = $1 AND event_key = ANY($2) ORDER BY event_key FOR NO KEY UPDATE`), endpoint, events)
	if err != nil {
		return nil, err
	}
	held = make(map[int64]bool)
	var free []int64
	var event int64
	var owned bool
	if _, err := pgx.ForEachRow(rows, []any{&event, &owned}, func() error {
		if held[event] = owned; !owned {
			free = append(free, event)
		}
		return nil
	}); err != nil {
		return nil, err
	}
	if len(free) > 0 {
		if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.pending SET due = $3, first_attempt = attempt + 1, inbox = NULL, number = NULL
			WHERE endpoint_key = $1 AND event_key = ANY($2)`),
			endpoint, free, now); err != nil {
			return nil, err
		}
	}
	fresh := slices.DeleteFunc(events, func(e int64) bool { _, ok := held[e]; return ok })
	if err := s.requeueFresh(ctx, tx, endpoint, fresh, found, now); err != nil {
		return nil, err
	}
	if len(free)+len(fresh) > 0 { // other nodes may be the ones to send them
		_, err = tx.Exec(ctx, `SELECT pg_notify($1, $2)`, s.opt.Schema, "rows "+strconv.FormatInt(endpoint, 36))
	}
	return held, err
}

func (s *Store) requeueFresh(ctx context.Context, tx pgx.Tx, endpoint int64, events []int64, found map[int64]replayEvent, now int64) error {
	if len(events) == 0 {
		return nil
	}
	ids, err := s.ids.take(ctx, tx, len(events))
	if err != nil {
		return err
	}
	ordered, err := s.ordered(ctx, tx, endpoint)
	if err != nil {
		return err
	}
	size, orders, sequences := make([]int32, len(events)), make([]int64, len(events)), make([]int64, len(events))
	for i, event := range events {
		e := found[event]
		size[i], sequences[i] = e.size, e.sequence
		if ordered {
			orders[i] = e.order
		}
	}
	_, err = tx.Exec(ctx, s.q(requeueNew), endpoint, now, events, ids, size, events[0]-hourOfKeys, orders, sequences)
	return err
}

// replayChunk bounds the events that one snapshot looks through, so that a search
// with few hits ends in time and holds no snapshot for long.
const replayChunk = 20_000

// replayableBy finds events of an endpoint by status. Parameters are those of
// cutoff, the endpoint (3), the keys' bounds (4 and 5), the times' (6 and 7), and the
// limit (8). Each walks one table in the order of its events.
var replayableBy = map[string]string{
	"": replayable(fromEvents, `e.key`, `$3::bigint IS NOT NULL`),
	// Dead letters, and those that are on their way again.
	"dead": `(` + replayable(` FROM surehook.dead_letters d`+eventOf(`d`), `d.event_key`, `d.endpoint_key = $3 AND `+died) + `) UNION ALL (` +
		replayable(` FROM surehook.pending p`+eventOf(`p`), `p.event_key`, `p.endpoint_key = $3 AND p.first_attempt > 1 AND `+died) + `) ORDER BY 1 LIMIT $8`,
	"failed": replayable(` FROM surehook.pending p`+eventOf(`p`), `p.event_key`,
		`p.endpoint_key = $3 AND p.attempt > 0 AND `+latestStatus+` = 2`),
	"succeeded": replayable(` FROM (SELECT DISTINCT event_key FROM surehook.attempts WHERE endpoint_key = $3 AND event_key > $4 AND event_key <= $5
		AND key > $4 - `+keyHour+` AND status = 1 AND flags = 0) x`+eventOf(`x`), `x.event_key`, `true`),
}

var died = hasAttempt(3) + ` AND NOT ` + hasAttempt(1)

const fromEvents = ` FROM surehook.events e`

// oddBy finds likewise, of those statuses that ask every event, the events that
// occurred long before or after they were accepted.
var oddBy = map[string]string{
	"":          replayable(fromEvents, `e.key`, `$3::bigint IS NOT NULL`+odd),
	"succeeded": replayable(fromEvents, `e.key`, hasAttempt(1)+odd),
}

const (
	odd     = ` AND abs(e.occurred_at - e.created_at) > 3600000` // as the index has it
	oddness = time.Hour
)

// eventOf joins the event e to a row that has its key, by one probe for each.
func eventOf(of string) string {
	return ` CROSS JOIN LATERAL (SELECT * FROM surehook.events WHERE key = ` + of + `.event_key OFFSET 0) e`
}

func replayable(from, key, cond string) string {
	return `SELECT ` + eventColumns + from + ` LEFT JOIN surehook.tenants t ON t.id = e.tenant WHERE ` + key + ` > $4 AND ` + key + ` <= $5 AND ` + cond + `
		AND e.occurred_at >= $6 AND e.occurred_at < $7 AND e.occurred_at >= ` + cutoff + `
		AND e.data IS NOT NULL AND e.type <> 'webhook.test' ORDER BY ` + key + ` LIMIT $8`
}

// hasAttempt asks for an attempt of a status that counted.
func hasAttempt(status int) string {
	return fmt.Sprintf(`EXISTS (SELECT 1 FROM surehook.attempts x WHERE x.event_key = e.key AND x.endpoint_key = $3 AND x.status = %d AND x.flags = 0
		AND x.key >= e.key - %s OFFSET 0)`, status, keyHour)
}

// latestStatus is that of the last attempt that counted.
const latestStatus = `(SELECT x.status FROM surehook.attempts x WHERE x.event_key = e.key AND x.endpoint_key = $3 AND x.flags = 0
	AND x.key >= e.key - ` + keyHour + ` ORDER BY x.key DESC LIMIT 1)`

// Replayable implements surehook.Replays. An event is looked for where its key must
// be if it was accepted about when it occurred; before and behind that, by when it
// occurred, among those of which that isn't so.
func (s *Store) Replayable(ctx context.Context, endpoint int64, f surehook.ReplayFilter, after int64, limit int) ([]*surehook.Event, error) {
	sql, ok := replayableBy[f.Status]
	if !ok {
		return nil, surehook.Invalid("status", "must be dead, failed or succeeded")
	}
	q := replaySearch{s: s, args: append(windowArgs(f.Window), endpoint), first: -1 << 62, last: maxKey, after: after, limit: limit}
	low, high := int64(0), maxKey
	if !f.Since.IsZero() {
		low, q.first = lowKey(f.Since.Add(-oddness)), row.CeilMillis(f.Since)
	}
	if !f.Until.IsZero() {
		high, q.last = highKey(f.Until.Add(oddness)), row.CeilMillis(f.Until)
	}
	oddly := oddBy[f.Status]
	if oddly == "" { // few rows have this status: all are looked through
		err := q.find(ctx, sql, maxKey, false)
		return q.out, err
	}
	if err := q.find(ctx, oddly, low-1, false); err != nil {
		return nil, err
	}
	q.after = max(q.after, low-1)
	if err := q.find(ctx, sql, high, true); err != nil {
		return nil, err
	}
	q.after = max(q.after, high)
	err := q.find(ctx, oddly, maxKey, false)
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

// find goes on up to a key: at once, or a chunk of events in each snapshot.
func (q *replaySearch) find(ctx context.Context, sql string, upTo int64, chunked bool) error {
	for q.after < upTo && len(q.out) < q.limit {
		if err := q.s.read(ctx, func(tx pgx.Tx) error {
			end := upTo
			if chunked {
				if err := tx.QueryRow(ctx, q.s.q(`SELECT coalesce((SELECT key FROM surehook.events WHERE key > $1 AND key <= $2
					ORDER BY key OFFSET $3 LIMIT 1), $2)`), q.after, upTo, replayChunk-1).Scan(&end); err != nil {
					return err
				}
			}
			args := slices.Concat(q.args, []any{q.after, end, q.first, q.last, q.limit - len(q.out)})
			found, err := collect(ctx, tx, scanEvent, q.s.q(sql), args...)
			q.out, q.after = append(q.out, found...), end
			return err
		}); err != nil {
			return err
		}
	}
	return nil
}
