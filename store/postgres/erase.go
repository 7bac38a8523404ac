package postgres

import (
	"context"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// Erase implements surehook.Erasing. What is held is its node's to end: it hears of
// the erasure, and reads from the counter that there was one. The table's dead row
// versions go with the next vacuum.
func (s *Store) Erase(ctx context.Context, sel surehook.Erasure, limit int, a *surehook.AuditEntry) (surehook.Erased, error) {
	var out surehook.Erased
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		keys, next, err := s.erasing(ctx, tx, sel, limit)
		if err != nil {
			return err
		}
		out = surehook.Erased{Next: next}
		if len(keys) > 0 {
			if err := s.eraseKeys(ctx, tx, keys, now, &out); err != nil {
				return err
			}
		}
		return s.putAudit(ctx, tx, now, a)
	})
	return out, err
}

func (s *Store) eraseKeys(ctx context.Context, tx pgx.Tx, keys []int64, now int64, out *surehook.Erased) error {
	cleared, err := tx.Exec(ctx, s.q(`UPDATE surehook.events SET data = NULL WHERE key = ANY($1) AND data IS NOT NULL`), keys)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.attempts SET response = NULL WHERE event_key = ANY($1) AND key >= $2 AND response IS NOT NULL`),
		keys, keys[0]-hourOfKeys); err != nil {
		return err
	}
	// Whoever has a row locked takes it, and then finds out, or frees it for a claim
	// that does.
	rows, err := collect(ctx, tx, scanDelivery, s.q(`SELECT event_key, endpoint_key, id, attempt, first_attempt FROM surehook.pending
		WHERE event_key = ANY($1) AND owner IS NULL ORDER BY event_key, endpoint_key FOR UPDATE SKIP LOCKED`), keys)
	if err != nil {
		return err
	}
	if err := s.endRows(ctx, tx, rows, surehook.EventUnavailable, now); err != nil {
		return err
	}
	out.Events, out.Deliveries = int(cleared.RowsAffected()), len(rows)
	_, err = tx.Exec(ctx, s.q(`WITH n AS (SELECT pg_notify($1, 'erased')) UPDATE surehook.counters SET value = value + 1 FROM n WHERE name = 'erased'`), s.opt.Schema)
	return err
}

// erasing lists the events of one step, those that are erased already included,
// and tells where the next one goes on.
func (s *Store) erasing(ctx context.Context, tx pgx.Tx, sel surehook.Erasure, limit int) (keys []int64, next int64, err error) {
	if len(sel.Keys) > 0 {
		return slices.Compact(slices.Sorted(slices.Values(sel.Keys))), 0, nil
	}
	sql := `SELECT key, identity FROM surehook.events WHERE tenant = $1 AND tenant <> '' AND key > $2 ORDER BY key LIMIT $3`
	if sel.Tenant == "" {
		sql = `SELECT key, CASE WHEN tenant = $1 THEN identity ELSE '' END FROM surehook.events WHERE key > $2 ORDER BY key LIMIT $3`
	}
	rows, err := tx.Query(ctx, s.q(sql), sel.Tenant, sel.After, limit)
	if err != nil {
		return nil, 0, err
	}
	seen := 0
	var identity string
	_, err = pgx.ForEachRow(rows, []any{&next, &identity}, func() error {
		seen++
		if sel.Identity == "" || identity == sel.Identity {
			keys = append(keys, next)
		}
		return nil
	})
	if seen < limit {
		next = 0
	}
	return keys, next, err
}

// endRows ends locked rows of any endpoints.
func (s *Store) endRows(ctx context.Context, tx pgx.Tx, rows []surehook.Delivery, code surehook.Code, now int64) error {
	byEndpoint := make(map[int64][]surehook.Delivery)
	for _, d := range rows {
		byEndpoint[d.EndpointKey] = append(byEndpoint[d.EndpointKey], d)
	}
	for _, endpoint := range slices.Sorted(maps.Keys(byEndpoint)) {
		rows := byEndpoint[endpoint]
		if err := s.end(ctx, tx, endpoint, rows, code, now, true, len(rows)); err != nil {
			return err
		}
	}
	return nil
}

// inOutbox selects events of the outbox for an erasure.
func inOutbox(sel surehook.Erasure, ids []string) query {
	var q query
	if len(ids) > 0 {
		q.add(`event_id = ANY(?)`, ids)
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
func (s *Store) EraseRefused(ctx context.Context, sel surehook.Erasure, ids []string, limit int, a *surehook.AuditEntry) ([]string, error) {
	q := inOutbox(sel, ids)
	q.add(`refused > ?`, 0)
	var gone []string
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		gone, err = collect(ctx, tx, pgx.RowTo[string], s.q(`DELETE FROM surehook.outbox WHERE id IN (
			SELECT id FROM surehook.outbox`+q.where()+` ORDER BY id`+q.limit(surehook.Page{Limit: limit})+` FOR UPDATE SKIP LOCKED) RETURNING event_id`), q.args...)
		if err != nil || len(gone) == 0 {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		return s.putAudit(ctx, tx, now, a)
	})
	return gone, err
}

// ErasureWaits implements surehook.Erasing.
func (s *Store) ErasureWaits(ctx context.Context, sel surehook.Erasure, ids []string, before int64) (n int, last int64, err error) {
	q := inOutbox(sel, ids)
	if before > 0 {
		q.add(`id <= ?`, before)
	}
	err = s.read(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.q(`SELECT count(*), coalesce(max(id), 0) FROM surehook.outbox`+q.where()), q.args...).Scan(&n, &last)
	})
	return n, last, err
}

// ErasedAmong implements surehook.Erasing.
func (s *Store) ErasedAmong(ctx context.Context, events []int64) ([]int64, error) {
	return list(ctx, s, pgx.RowTo[int64], `SELECT x.key FROM unnest($1::bigint[]) x(key)
		WHERE NOT EXISTS (SELECT 1 FROM surehook.events e WHERE e.key = x.key AND e.data IS NOT NULL OFFSET 0)`, events)
}

// Erasures implements surehook.Erasing.
func (s *Store) Erasures(ctx context.Context) (int64, error) {
	return find(ctx, s, "counter", pgx.RowTo[int64], `SELECT value FROM surehook.counters WHERE name = 'erased'`)
}

// Scrub implements surehook.Erasing: what vacuum leaves to do is the database's.
func (s *Store) Scrub(context.Context) error { return nil }
