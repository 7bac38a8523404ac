package postgres

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// cutoff is before which time an event e of the tenant t must have occurred to be
// out of its window: the most of any, and what is kept of tenants without days of
// their own. In milliseconds; parameters $1 and $2.
const cutoff = `(surehook.clock() - least($1::bigint, CASE WHEN t.events_days > 0 THEN t.events_days * 86400000::bigint ELSE $2::bigint END))`

// windowArgs are the cutoff's parameters.
func windowArgs(w surehook.Window) []any {
	ms := func(d time.Duration) int64 {
		if d == 0 {
			return math.MaxInt64 / 4
		}
		return d.Milliseconds()
	}
	return []any{ms(w.Most), ms(w.Kept)}
}

// expired finds rows after a place, and tells which are out of their window.
const expired = `SELECT p.event_key, p.id, p.attempt, p.first_attempt, p.due, coalesce(e.occurred_at < ` + cutoff + `, true)
	FROM (SELECT * FROM surehook.pending WHERE endpoint_key = $3 AND owner IS NULL AND (due, event_key) > ($4, $5) ORDER BY due, event_key LIMIT $6) p
	LEFT JOIN LATERAL (SELECT * FROM surehook.events WHERE key = p.event_key OFFSET 0) e ON true
	LEFT JOIN surehook.tenants t ON t.id = e.tenant ORDER BY p.due, p.event_key`

// Expire implements surehook.Queue. It looks without a lock, and takes locks only
// where there is something to end.
func (s *Store) Expire(ctx context.Context, endpoint int64, w surehook.Window, after surehook.Place, limit int) (int, surehook.Place, error) {
	var next surehook.Place
	var events []int64
	seen := 0
	err := s.read(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.q(expired), append(windowArgs(w), endpoint, millis(after.Due), after.Event, limit)...)
		if err != nil {
			return err
		}
		var d surehook.Delivery
		var due int64
		var gone bool
		_, err = pgx.ForEachRow(rows, []any{&d.EventKey, &d.ID, &d.Attempt, &d.FirstAttempt, &due, &gone}, func() error {
			seen++
			next = surehook.Place{Due: at(due), Event: d.EventKey}
			if gone {
				events = append(events, d.EventKey)
			}
			return nil
		})
		return err
	})
	if err != nil {
		return 0, after, err
	}
	if seen < limit {
		next = surehook.Place{}
	}
	if len(events) == 0 {
		return 0, next, nil
	}
	ended, err := s.endEvents(ctx, endpoint, events, surehook.EventUnavailable)
	if err != nil {
		return 0, after, err
	}
	return ended, next, nil
}

// endEvents buries the free rows of some events at an endpoint.
func (s *Store) endEvents(ctx context.Context, endpoint int64, events []int64, code surehook.Code) (int, error) {
	n := 0
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		n = 0
		if _, err := tx.Exec(ctx, s.q(excludeAll), []int64{endpoint}, s.opt.Schema+claimsOf); err != nil {
			return err
		}
		rows, err := collect(ctx, tx, scanDelivery, s.q(`SELECT event_key, endpoint_key, id, attempt, first_attempt FROM surehook.pending
			WHERE endpoint_key = $1 AND event_key = ANY($2) AND owner IS NULL ORDER BY event_key FOR UPDATE SKIP LOCKED`), endpoint, events)
		if err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		n = len(rows)
		return s.end(ctx, tx, endpoint, rows, code, now, true, n)
	})
	return n, err
}

func scanDelivery(r pgx.CollectableRow) (surehook.Delivery, error) {
	var d surehook.Delivery
	err := r.Scan(&d.EventKey, &d.EndpointKey, &d.ID, &d.Attempt, &d.FirstAttempt)
	return d, err
}
