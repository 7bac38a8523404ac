package engine_test

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// both runs a test on an engine over each of the stores. Time is the test's on
// both: see leap.
func both(t *testing.T, f func(t *testing.T, b *bed), change ...func(*engine.Options)) {
	onBoth(t, func(t *testing.T, dsn string) {
		b := prepare(t, change...)
		b.dsn = dsn
		b.open()
		f(t, b)
	})
}

// onBoth runs a test on each of the stores: dsn is that of a PostgreSQL database
// that is ready, or "" for SQLite. A short run, which the race detector's is, has
// SQLite alone.
func onBoth(t *testing.T, f func(t *testing.T, dsn string)) {
	t.Run("SQLite", func(t *testing.T) { f(t, "") })
	if testing.Short() {
		return
	}
	t.Run("PostgreSQL", func(t *testing.T) { f(t, database(t)) }) // it outlives the engine
}

// database is the DSN of a database of its own, with the schema of today.
func database(t testing.TB) string {
	t.Helper()
	return pgserver.Copy(t, "migrated", func(dsn string) error {
		s, err := postgres.Open(context.Background(), dsn, postgres.Options{})
		if err != nil {
			return err
		}
		return s.Close()
	})
}

// openStore opens the store at dsn, or a file where that is "".
func openStore(t *testing.T, dsn string) surehook.Store {
	t.Helper()
	var s surehook.Store
	var err error
	if dsn == "" {
		s, err = sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "surehook.db"), sqlite.Options{})
	} else {
		s, err = postgres.Open(t.Context(), dsn, postgres.Options{})
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// openDatabase opens the store, whose clock then is the test's.
func (b *bed) openDatabase() (surehook.Store, error) {
	s, err := postgres.Open(b.t.Context(), b.dsn, postgres.Options{Logger: b.opt.Logger})
	if err == nil {
		b.sql(`CREATE TABLE IF NOT EXISTS surehook.test_clock (ahead bigint); INSERT INTO surehook.test_clock SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM surehook.test_clock);
			CREATE OR REPLACE FUNCTION surehook.clock() RETURNS bigint LANGUAGE sql VOLATILE
			AS 'SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint + (SELECT ahead FROM surehook.test_clock)'`)
	}
	return ahead{s, b}, err
}

// ahead is a store whose lease runs by the test's clock, as the engine does.
type ahead struct {
	surehook.Store
	b *bed
}

// Lease implements surehook.Queue.
func (a ahead) Lease() surehook.Lease {
	l := a.Store.Lease()
	l.Until = l.Until.Add(time.Until(a.b.now()))
	return l
}

// leapDatabase brings the database's clock to the test's. The node lives on: no
// lease runs out by a leap.
func (b *bed) leapDatabase() {
	b.sql(fmt.Sprintf(`UPDATE surehook.nodes SET expires_at = expires_at + %[1]d - (SELECT ahead FROM surehook.test_clock);
		UPDATE surehook.test_clock SET ahead = %[1]d`, b.clock.Milliseconds()))
}

func (b *bed) sql(text string) {
	b.t.Helper()
	conn, err := pgx.Connect(context.Background(), b.dsn)
	if err != nil {
		b.t.Error(err)
		return
	}
	defer func() { _ = conn.Close(context.Background()) }()
	if _, err := conn.Exec(context.Background(), text); err != nil {
		b.t.Error(err)
	}
}
