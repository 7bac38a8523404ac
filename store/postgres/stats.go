package postgres

import (
	"cmp"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// statsSQL sums attempts by step: key bounds, time bounds, the window's start in
// ms and the ns beyond them, the step in ns. The quantiles are by the nearest
// rank. A test isn't counted. What selects endpoints follows.
const statsSQL = `SELECT ((created_at - $5) * 1000000 - $6) / $7 AS step, count(*), count(*) FILTER (WHERE status = 1), count(*) FILTER (WHERE status = 2),
	count(*) FILTER (WHERE status = 3), percentile_disc(ARRAY[0.5, 0.95, 0.99]) WITHIN GROUP (ORDER BY duration_us)
	FROM surehook.attempts WHERE key >= $1 AND key < $2 AND created_at >= $3 AND created_at < $4 AND flags & 2 = 0`

// Stats implements surehook.Endpoints. Every step of the window has its bucket.
func (s *Store) Stats(ctx context.Context, f surehook.StatsFilter, since, until time.Time, step time.Duration) ([]surehook.StatsBucket, error) {
	out, err := row.Buckets(since, until, step)
	if err != nil {
		return nil, err
	}
	start := since.UnixMilli()
	err = s.read(ctx, func(tx pgx.Tx) error {
		late := cmp.Or(f.Late, keySlack)
		q := query{args: []any{timeKey(since.Add(-late)), timeKey(until.Add(late)), row.CeilMillis(since), row.CeilMillis(until),
			start, since.Sub(time.UnixMilli(start)).Nanoseconds(), step.Nanoseconds()}}
		if f.Endpoint != 0 {
			q.add(`endpoint_key = ?`, f.Endpoint)
		}
		q.sees(f.For, `endpoint_key`)
		if q.conds != "" {
			q.conds = and + q.conds
		}
		rows, err := tx.Query(ctx, s.q(statsSQL+q.conds+` GROUP BY step`), q.args...)
		if err != nil {
			return err
		}
		var i int64
		var b surehook.StatsBucket
		var micros []int64
		_, err = pgx.ForEachRow(rows, []any{&i, &b.Attempts, &b.Succeeded, &b.Failed, &b.Dead, &micros}, func() error {
			to := &out[min(max(i, 0), int64(len(out)-1))]
			b.Start = to.Start
			b.P50, b.P95, b.P99 = time.Duration(micros[0])*time.Microsecond, time.Duration(micros[1])*time.Microsecond, time.Duration(micros[2])*time.Microsecond
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

// Standing implements surehook.Endpoints.
func (s *Store) Standing(ctx context.Context, of surehook.Viewer) (surehook.Standing, error) {
	var out surehook.Standing
	var q query
	part := func(column string) string {
		q.conds = "true"
		q.sees(of, column)
		return q.conds
	}
	sql := `SELECT count(*) FILTER (WHERE NOT enabled), count(*) FILTER (WHERE enabled AND paused),
		count(*) FILTER (WHERE enabled AND NOT paused AND failing), count(*) FILTER (WHERE enabled AND NOT paused AND NOT failing),
		(SELECT count(*) FROM surehook.pending x WHERE ` + part(`x.endpoint_key`) + `), (SELECT count(*) FROM surehook.dead_letters x WHERE ` + part(`x.endpoint_key`) + `)
		FROM (SELECT k.enabled, k.limits LIKE '%"paused":true%' AS paused, k.consecutive_failures > 0 AS failing FROM surehook.endpoints k
			WHERE NOT k.deleted AND ` + part(`k.key`) + `) k`
	err := s.read(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.q(sql), q.args...).Scan(&out.Disabled, &out.Paused, &out.Failing, &out.Healthy, &out.Pending, &out.DeadLetters)
	})
	return out, err
}
