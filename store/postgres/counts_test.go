package postgres

import (
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// A node that is gone without a word counts as an expired lease until somebody
// frees what it held.
func TestExpiredLeasesAreCounted(t *testing.T) {
	dsn := migrated(t)
	open := reopenable(t, dsn, Options{})
	s := open()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context()) //nolint:errcheck // the database goes with the test
	if _, err := conn.Exec(t.Context(), `INSERT INTO surehook.nodes (epoch, name, delivers, started_at, expires_at, place) VALUES (999999, 'gone', true, 0, 1, '')`); err != nil {
		t.Fatal(err)
	}
	tx, err := conn.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	// While the row is locked, nobody can bury the node.
	if _, err := tx.Exec(t.Context(), `SELECT 1 FROM surehook.nodes WHERE epoch = 999999 FOR UPDATE`); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Counts(t.Context()); err != nil || c != (surehook.Counts{Leases: 1, ExpiredLeases: 1}) {
		t.Errorf("%+v, %v", c, err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := s.reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c, err := s.Counts(t.Context()); err != nil || c != (surehook.Counts{Leases: 1}) {
		t.Errorf("after it was buried: %+v, %v", c, err)
	}
}
