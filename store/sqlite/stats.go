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
func (s *Store) Stats(ctx context.Context, endpoint int64, since, until time.Time, step time.Duration) ([]surehook.StatsBucket, error) {
	out, err := row.Buckets(since, until, step)
	if err != nil {
		return nil, err
	}
	n := len(out)
	durations := make([][]uint32, n) // µs; a timeout is at most a minute
	err = s.read(ctx, func(c *conn) error {
		low, err := keyAt(c, `SELECT created_at, key FROM attempts WHERE endpoint_key = ?1 AND key >= ?2 ORDER BY key LIMIT 1`, endpoint, since.Add(-keySlack))
		if err != nil {
			return err
		}
		high, err := keyAt(c, `SELECT created_at, key FROM attempts WHERE endpoint_key = ?1 AND key >= ?2 ORDER BY key LIMIT 1`, endpoint, until.Add(keySlack))
		if err != nil {
			return err
		}
		return c.each(`SELECT status, created_at, duration_us FROM attempts
			WHERE endpoint_key = ? AND key >= ? AND key < ? AND created_at >= ? AND created_at < ? AND flags & 2 = 0`,
			[]any{endpoint, low, high, row.CeilMillis(since), row.CeilMillis(until)}, func(st *sqlite3.Stmt) error {
				i := int(at(st.ColumnInt64(1)).Sub(since) / step)
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
		out[i].P50, out[i].P99 = quantile(d, 50), quantile(d, 99)
	}
	return out, nil
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
