package sqlite

import (
	"context"

	"github.com/surehook/surehook"
)

// Counts implements surehook.Store. The index endpoints_failing has no others.
func (s *Store) Counts(ctx context.Context) (surehook.Counts, error) {
	out := surehook.Counts{Leases: 1}
	err := s.read(ctx, func(c *conn) (err error) {
		out.Failing, err = c.int64(`SELECT count(*) FROM endpoints WHERE consecutive_failures >= 10 AND enabled = 1 AND deleted = 0`)
		return err
	})
	return out, err
}
