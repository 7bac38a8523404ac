package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// Keys ascend with the time of recording. An attempt began up to a timeout and a
// stay in the recorder before that, and clocks are set back, so key bounds that
// stand for times are taken this much wider.
const keySlack = time.Hour

// Stats implements surehook.Endpoints. Tests aren't counted. Every step of the
// window has its bucket.
func (s *Store) Stats(ctx context.Context, f surehook.StatsFilter, since, until time.Time, step time.Duration) ([]surehook.StatsBucket, error) {
	out, err := row.Buckets(since, until, step)
	if err != nil {
		return nil, err
	}
	n := len(out)
	durations := make([][]uint32, n) // µs; a timeout is at most a minute
	err = s.read(ctx, func(c *conn) error {
		low, high, err := attemptRange(c, f.Endpoint, since, until)
		if err != nil {
			return err
		}
		at, args := statsOf(f)
		return c.each(`SELECT status, created_at, duration_us FROM attempts a
			WHERE `+at+` AND key >= ? AND key < ? AND created_at >= ? AND created_at < ? AND flags & 2 = 0`,
			append(args, low, high, row.CeilMillis(since), row.CeilMillis(until)), func(st *sqlite3.Stmt) error {
				i := int(time.UnixMilli(st.ColumnInt64(1)).Sub(since) / step)
				i = min(max(i, 0), n-1)
				count(&out[i], row.Statuses[st.ColumnInt(0)])
				durations[i] = append(durations[i], uint32(st.ColumnInt64(2)))
				return nil
			})
	})
	if err != nil {
		return nil, err
	}
	for i, d := range durations {
		slices.Sort(d)
		out[i].P50, out[i].P95, out[i].P99 = quantile(d, 50), quantile(d, 95), quantile(d, 99)
	}
	return out, nil
}

// statsOf names the endpoints whose attempts are summed: the index of attempts is
// read endpoint by endpoint.
func statsOf(f surehook.StatsFilter) (cond string, args []any) {
	seen, of := seenBy(f.For, `k.key`)
	if f.Endpoint != 0 && seen == "" {
		return `a.endpoint_key = ?`, []any{f.Endpoint}
	}
	if f.Endpoint != 0 {
		seen, of = seen+` AND k.key = ?`, append(of, f.Endpoint)
	}
	return `a.endpoint_key IN (SELECT k.key FROM endpoints k WHERE 1` + seen + `)`, of
}

// attemptRange bounds attempts' keys so that they hold every attempt of a window.
// One counter gives all keys: where attempts of several endpoints are asked for,
// those of events, which are in order of time, bound them as well.
func attemptRange(c *conn, endpoint int64, since, until time.Time) (low, high int64, err error) {
	if endpoint == 0 {
		if low, high, err = eventRange(c, since, until); err != nil {
			return 0, 0, err
		}
		later, err := c.int64(`SELECT 1 FROM events WHERE key >= ? LIMIT 1`, high)
		if later == 0 {
			high = 1 << 62 // attempts have keys above the last event's
		}
		return low, high, err
	}
	const probe = `SELECT created_at, key FROM attempts WHERE endpoint_key = ?1 AND key >= ?2 ORDER BY key LIMIT 1`
	if low, err = keyAt(c, probe, endpoint, since.Add(-keySlack)); err != nil {
		return 0, 0, err
	}
	high, err = keyAt(c, probe, endpoint, until.Add(keySlack))
	return low, high, err
}

// Standing implements surehook.Endpoints.
func (s *Store) Standing(ctx context.Context, of surehook.Viewer) (surehook.Standing, error) {
	var out surehook.Standing
	seen, args := seenBy(of, `k.key`)
	rows, rowArgs := seenBy(of, `x.endpoint_key`)
	err := s.read(ctx, func(c *conn) error {
		if _, err := c.one(`SELECT count(*) FILTER (WHERE NOT enabled), count(*) FILTER (WHERE enabled AND paused),
			count(*) FILTER (WHERE enabled AND NOT paused AND failing), count(*) FILTER (WHERE enabled AND NOT paused AND NOT failing)
			FROM (SELECT k.enabled, k.limits LIKE '%"paused":true%' AS paused, k.consecutive_failures > 0 AS failing FROM endpoints k WHERE k.deleted = 0`+seen+`)`, args,
			func(st *sqlite3.Stmt) error {
				out.Disabled, out.Paused, out.Failing, out.Healthy = st.ColumnInt64(0), st.ColumnInt64(1), st.ColumnInt64(2), st.ColumnInt64(3)
				return nil
			}); err != nil {
			return err
		}
		var err error
		if out.Pending, err = c.int64(`SELECT count(*) FROM pending x WHERE 1`+rows, rowArgs...); err != nil {
			return err
		}
		out.DeadLetters, err = c.int64(`SELECT count(*) FROM dead_letters x WHERE 1`+rows, rowArgs...)
		return err
	})
	return out, err
}

func count(b *surehook.StatsBucket, status surehook.AttemptStatus) {
	b.Attempts++
	switch status {
	case surehook.AttemptSucceeded:
		b.Succeeded++
	case surehook.AttemptFailed:
		b.Failed++
	case surehook.AttemptDead:
		b.Dead++
	}
}

// quantile of sorted µs by the nearest rank.
func quantile(sorted []uint32, percent int) time.Duration {
	if len(sorted) == 0 {
		return 0
	}
	rank := (len(sorted)*percent + 99) / 100
	return time.Duration(sorted[rank-1]) * time.Microsecond
}

// keyAt finds the first key whose row is not older than t, by bisection. probe
// gives time and key of the first row at or above ?2; ?1 is scope.
func keyAt(c *conn, probe string, scope int64, t time.Time) (int64, error) {
	bound := millis(t)
	low, high := int64(0), int64(1)<<62
	for low < high {
		mid := low + (high-low)/2
		var created, key int64
		found, err := c.one(probe, []any{scope, mid}, func(st *sqlite3.Stmt) error {
			created, key = st.ColumnInt64(0), st.ColumnInt64(1)
			return nil
		})
		switch {
		case err != nil:
			return 0, err
		case !found || created >= bound:
			high = mid
		default:
			low = key + 1
		}
	}
	return low, nil
}

// eventRange bounds event keys so that they hold every event accepted in a
// window: low ≤ key < high.
func eventRange(c *conn, since, until time.Time) (low, high int64, err error) {
	const probe = `SELECT created_at, key FROM events WHERE key >= ?2 AND ?1 = 0 ORDER BY key LIMIT 1`
	low, high = 0, 1<<62
	if !since.IsZero() {
		if low, err = keyAt(c, probe, 0, since.Add(-keySlack)); err != nil {
			return 0, 0, err
		}
	}
	if !until.IsZero() {
		high, err = keyAt(c, probe, 0, until.Add(keySlack))
	}
	return low, high, err
}
