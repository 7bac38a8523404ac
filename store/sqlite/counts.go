package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// Counts implements surehook.Store. The index endpoints_failing has no others.
func (s *Store) Counts(ctx context.Context) (surehook.Counts, error) {
	out := surehook.Counts{Leases: 1}
	err := s.read(ctx, func(c *conn) error {
		var err error
		if out.Failing, err = c.int64(`SELECT count(*) FROM endpoints WHERE consecutive_failures >= 10 AND enabled = 1 AND deleted = 0`); err != nil {
			return err
		}
		_, err = c.one(`SELECT occurred_at FROM outbox ORDER BY id LIMIT 1`, nil, func(st *sqlite3.Stmt) error {
			out.Undispatched = at(st.ColumnInt64(0))
			return nil
		})
		return err
	})
	return out, err
}
