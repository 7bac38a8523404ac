package postgres

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

const (
	daysAhead      = 3 // partitions that are there before their day
	partitionEvery = time.Hour
	dayMs          = 24 * 60 * 60 * 1000
)

// partitioned are the tables that have one partition a day.
var partitioned = []string{"events", "attempts"}

func (s *Store) partitionLoop() {
	tick := time.NewTicker(partitionEvery)
	defer tick.Stop()
	for {
		select {
		case <-s.ctx.Done():
			return
		case <-tick.C:
			if err := s.ensurePartitions(s.ctx); err != nil && s.ctx.Err() == nil {
				s.log.Error("partitions for the coming days couldn't be made; trying again", "error", err)
			}
		}
	}
}

// ensurePartitions makes the partitions of yesterday (clocks differ) and of the
// days to come. Each is made apart and then attached: that waits for no insert,
// and no insert waits for it.
func (s *Store) ensurePartitions(ctx context.Context) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		today := now / dayMs
		missing, err := s.missingPartitions(ctx, tx, today-1, today+daysAhead)
		if err != nil || len(missing) == 0 {
			return err
		}
		// Two nodes would make the same ones.
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrateLock)); err != nil {
			return err
		}
		if missing, err = s.missingPartitions(ctx, tx, today-1, today+daysAhead); err != nil {
			return err
		}
		for _, p := range missing {
			if err := p.make(ctx, tx, s.schema); err != nil {
				return err
			}
		}
		return nil
	})
}

// partition is one day of a table.
type partition struct {
	table string
	day   int64 // since 1970
}

func (p partition) name() string {
	return p.table + "_" + time.UnixMilli(p.day*dayMs).UTC().Format("20060102")
}

func (p partition) make(ctx context.Context, tx pgx.Tx, schema string) error {
	from, to := keyAt(p.day*dayMs), keyAt((p.day+1)*dayMs)
	for _, sql := range []string{
		fmt.Sprintf(`CREATE TABLE %[1]s.%[2]s (LIKE %[1]s.%[3]s INCLUDING DEFAULTS INCLUDING CONSTRAINTS)`, schema, p.name(), p.table),
		fmt.Sprintf(`ALTER TABLE %s.%s ADD CONSTRAINT day CHECK (key >= %d AND key < %d)`, schema, p.name(), from, to), // spares the scan
		fmt.Sprintf(`ALTER TABLE %[1]s.%[3]s ATTACH PARTITION %[1]s.%[2]s FOR VALUES FROM (%[4]d) TO (%[5]d)`, schema, p.name(), p.table, from, to),
		fmt.Sprintf(`ALTER TABLE %s.%s DROP CONSTRAINT day`, schema, p.name()),
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) missingPartitions(ctx context.Context, tx pgx.Tx, from, to int64) ([]partition, error) {
	rows, err := tx.Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relispartition`, s.opt.Schema)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	there := make(map[string]bool, len(names))
	for _, n := range names {
		there[n] = true
	}
	var out []partition
	for day := from; day <= to; day++ {
		for _, table := range partitioned {
			if p := (partition{table, day}); !there[p.name()] {
				out = append(out, p)
			}
		}
	}
	return out, nil
}
