package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Prune implements surehook.Retention by whole days: an event goes when its day
// is over and past. First its rows in the other tables go, in steps of limit;
// when nothing points into the day any more, its partitions are detached, beside
// everything that runs, and dropped.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int64, bool, error) {
	day := before.UnixMilli() / dayMs // the first that stays
	days, err := s.daysBefore(ctx, day)
	if err != nil || len(days) == 0 {
		return 0, false, wrap(err)
	}
	// The oldest day first, and one step of it.
	oldest := days[0]
	n, more, over, err := s.pruneRows(ctx, oldest, limit)
	if err == nil && over {
		more, err = true, s.dropDay(ctx, oldest)
	}
	switch sqlState(err) {
	case "42P01", "55000": // undefined_table, object_not_in_prerequisite_state: another node is at the same day
		return n, false, nil
	}
	return n, more && err == nil, wrap(err)
}

// daysBefore lists the days before one that have partitions, or what is left of
// them, oldest first.
func (s *Store) daysBefore(ctx context.Context, day int64) ([]int64, error) {
	rows, err := s.pool.Query(ctx, `SELECT c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
		WHERE n.nspname = $1 AND c.relkind = 'r'`, s.opt.Schema)
	if err != nil {
		return nil, err
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		return nil, err
	}
	var out []int64
	for _, name := range names {
		table, date, _ := strings.Cut(name, "_")
		at, err := time.Parse("20060102", date)
		if err != nil || !slices.Contains(partitioned, table) {
			continue
		}
		if d := at.UnixMilli() / dayMs; d < day && !slices.Contains(out, d) {
			out = append(out, d)
		}
	}
	slices.Sort(out)
	return out, nil
}

// pruneRows removes some of what points to a day's events from the tables that
// have no days. more: another step would find something; over: nothing is left.
// While a row is held, neither is true, and its event keeps its id.
func (s *Store) pruneRows(ctx context.Context, day int64, limit int) (n int64, more, over bool, err error) {
	below := keyAt((day + 1) * dayMs)
	err = s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		n, more, over = 0, false, false
		ended, err := s.pruneDeliveries(ctx, tx, below, limit)
		if err != nil {
			return err
		}
		letters, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.dead_letters WHERE key IN (
			SELECT key FROM surehook.dead_letters WHERE event_key < $1 ORDER BY event_key LIMIT $2 FOR UPDATE SKIP LOCKED)`), below, limit)
		if err != nil {
			return err
		}
		more = ended == limit || letters.RowsAffected() == int64(limit)
		var pending bool
		if err := tx.QueryRow(ctx, s.q(`SELECT EXISTS (SELECT 1 FROM surehook.pending WHERE event_key < $1)`), below).Scan(&pending); err != nil || pending {
			return err
		}
		there, err := s.hasDay(ctx, tx, "events", day)
		if err != nil {
			return err
		}
		if there {
			// By way of the day's events: the ids have no index by key.
			ids, err := tx.Exec(ctx, s.q(fmt.Sprintf(`DELETE FROM surehook.event_keys k USING (SELECT y.id FROM surehook.%s x
				JOIN surehook.event_keys y ON y.id = CASE WHEN x.alias <> '' THEN x.id || ' ' || x.tenant ELSE x.id END AND y.key = x.key LIMIT $1) e
				WHERE k.id = e.id`, partition{"events", day}.name())), limit)
			if err != nil {
				return err
			}
			n = ids.RowsAffected()
			more = more || n == int64(limit)
		}
		over = !more
		return nil
	})
	return n, more, over, err
}

// pruneDeliveries ends free rows of events that go, with an attempt that says so.
func (s *Store) pruneDeliveries(ctx context.Context, tx pgx.Tx, below int64, limit int) (int, error) {
	all, err := collect(ctx, tx, scanDelivery, s.q(`SELECT event_key, endpoint_key, id, attempt, first_attempt FROM surehook.pending
		WHERE event_key < $1 AND owner IS NULL ORDER BY event_key, endpoint_key LIMIT $2 FOR UPDATE SKIP LOCKED`), below, limit)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	now, err := s.now(ctx, tx)
	if err != nil {
		return 0, err
	}
	return len(all), s.endRows(ctx, tx, all, now)
}

func (s *Store) hasDay(ctx context.Context, tx pgx.Tx, table string, day int64) (there bool, err error) {
	err = tx.QueryRow(ctx, `SELECT to_regclass($1) IS NOT NULL`, s.schema+"."+partition{table, day}.name()).Scan(&there)
	return there, err
}

// dropDay removes a day's partitions. Each step may be the first one after a
// crash: what is half detached is finished, what is detached is dropped.
func (s *Store) dropDay(ctx context.Context, day int64) error {
	for _, table := range partitioned {
		p := partition{table, day}
		var attached, halfway bool
		err := s.pool.QueryRow(ctx, `SELECT true, i.inhdetachpending FROM pg_inherits i WHERE i.inhrelid = to_regclass($1)`,
			s.schema+"."+p.name()).Scan(&attached, &halfway)
		if err != nil && err != pgx.ErrNoRows { //nolint:errorlint // pgx gives it as it is
			return err
		}
		how := "CONCURRENTLY"
		if halfway {
			how = "FINALIZE"
		}
		if attached {
			if _, err := s.pool.Exec(ctx, fmt.Sprintf(`ALTER TABLE %[1]s.%[2]s DETACH PARTITION %[1]s.%[3]s %[4]s`, s.schema, table, p.name(), how)); err != nil {
				return err
			}
		}
		if _, err := s.pool.Exec(ctx, fmt.Sprintf(`DROP TABLE IF EXISTS %s.%s`, s.schema, p.name())); err != nil {
			return err
		}
	}
	return nil
}
