package postgres

import (
	"context"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/storetest"
)

func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }

func TestStore(t *testing.T) {
	if os.Getenv("SUREHOOK_PROOF") != "full" {
		few(t, "rapid.checks", "30") // each takes the server a second
	}
	storetest.Run(t, func(t *testing.T, clock *storetest.Clock) (surehook.Store, func() surehook.Store) {
		dsn := timed(t, clock)
		s := reopenable(t, dsn, Options{})
		return s(), func() surehook.Store { return s() }
	})
}

// migrated is the DSN of a database with the schema of today, and the days' partitions.
// Tests of how those come about begin with pgserver.Database.
func migrated(t testing.TB) string {
	t.Helper()
	return pgserver.Copy(t, "migrated", func(dsn string) error { return ready(dsn) })
}

// timed is a database like migrated, that reads the test's clock.
func timed(t testing.TB, clock *storetest.Clock) string {
	t.Helper()
	dsn := pgserver.Copy(t, "timed", func(dsn string) error {
		return ready(dsn, testClock(storetest.NewClock().Now()))
	})
	conn := connect(t, dsn)
	tell := func(now time.Time) {
		if _, err := conn.Exec(context.Background(), `UPDATE surehook.test_clock SET ms = $1`, now.UnixMilli()); err != nil {
			t.Error(err)
		}
	}
	tell(clock.Now())
	clock.Watch(tell)
	return dsn
}

// testClock has the database tell a time until it is told another.
func testClock(now time.Time) string {
	return `CREATE TABLE surehook.test_clock AS SELECT ` + itoa(now.UnixMilli()) + `::bigint AS ms;
		CREATE OR REPLACE FUNCTION surehook.clock() RETURNS bigint LANGUAGE sql VOLATILE AS 'SELECT ms FROM surehook.test_clock'`
}

// ready makes what a node finds at its start, when it isn't the first.
func ready(dsn string, statements ...string) error {
	ctx := context.Background()
	s, err := dial(ctx, dsn, Options{})
	if err != nil {
		return err
	}
	defer s.disconnect()
	for _, sql := range statements {
		if _, err := s.pool.Exec(ctx, sql, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
	}
	return s.ensurePartitions(ctx)
}

// reopenable gives a function that opens the store, after the death of the one
// before: it says no word to the database, and its lease has run out.
func reopenable(t *testing.T, dsn string, opt Options) func() *Store {
	t.Helper()
	var s *Store
	t.Cleanup(func() {
		if s != nil {
			s.die()
		}
	})
	return func() *Store {
		if s != nil {
			s.die()
			exec(t, dsn, `UPDATE surehook.nodes SET expires_at = 0`)
		}
		var err error
		if s, err = Open(t.Context(), dsn, opt); err != nil {
			t.Fatal(err)
		}
		return s
	}
}

// die ends the store as a crash would.
func (s *Store) die() {
	if s.closed.Swap(true) {
		return
	}
	s.append.stop()
	s.cancel()
	s.bg.Wait()
	s.pool.Close()
	s.leavePlace()
}

func exec(t *testing.T, dsn, sql string) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(t.Context(), sql); err != nil {
		t.Fatal(err)
	}
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }
