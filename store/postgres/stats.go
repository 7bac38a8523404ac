package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// statsSQL sums attempts by step: endpoint, key bounds, time bounds, the window's
// start in ms and the ns beyond them, the step in ns. The quantiles are by the
// nearest rank. A test isn't counted.
const statsSQL = `SELECT ((created_at - $6) * 1000000 - $7) / $8 AS step, count(*), count(*) FILTER (WHERE status = 1), count(*) FILTER (WHERE status = 2),
	count(*) FILTER (WHERE status = 3), percentile_disc(0.5) WITHIN GROUP (ORDER BY duration_us), percentile_disc(0.99) WITHIN GROUP (ORDER BY duration_us)
	FROM surehook.attempts WHERE endpoint_key = $1 AND key >= $2 AND key < $3 AND created_at >= $4 AND created_at < $5 AND flags & 2 = 0
	GROUP BY step`

// Stats implements surehook.Endpoints. Every step of the window has its bucket.
func (s *Store) Stats(ctx context.Context, endpoint int64, since, until time.Time, step time.Duration) ([]surehook.StatsBucket, error) {
	out, err := row.Buckets(since, until, step)
	if err != nil {
		return nil, err
	}
	start := since.UnixMilli()
	err = s.read(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.q(statsSQL), endpoint, lowKey(since), highKey(until), row.CeilMillis(since), row.CeilMillis(until),
			start, since.Sub(time.UnixMilli(start)).Nanoseconds(), step.Nanoseconds())
		if err != nil {
			return err
		}
		var i int64
		var b surehook.StatsBucket
		_, err = pgx.ForEachRow(rows, []any{&i, &b.Attempts, &b.Succeeded, &b.Failed, &b.Dead, intoDuration{&b.P50}, intoDuration{&b.P99}}, func() error {
			to := &out[min(max(i, 0), int64(len(out)-1))]
			b.Start = to.Start
			*to = b
			return nil
		})
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}
