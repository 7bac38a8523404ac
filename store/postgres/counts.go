package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// Counts implements surehook.Store. The index endpoints_failing has no others.
func (s *Store) Counts(ctx context.Context) (surehook.Counts, error) {
	var out surehook.Counts
	var oldest int64
	err := s.read(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.q(`SELECT
			(SELECT count(*) FROM surehook.endpoints WHERE consecutive_failures >= 10 AND enabled AND NOT deleted),
			count(*) FILTER (WHERE expires_at > c.now), count(*) FILTER (WHERE expires_at <= c.now),
			coalesce((SELECT occurred_at FROM surehook.outbox ORDER BY id LIMIT 1), 0)
			FROM surehook.nodes, (SELECT surehook.clock() AS now OFFSET 0) c`)).Scan(&out.Failing, &out.Leases, &out.ExpiredLeases, &oldest)
	})
	out.Undispatched = at(oldest)
	return out, err
}
