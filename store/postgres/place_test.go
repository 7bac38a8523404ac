package postgres

import (
	"path/filepath"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
)

// Whoever comes after a process that died in its place needn't wait for that
// one's lease; but one that lives keeps what it holds.
func TestAPlaceIsTakenOver(t *testing.T) {
	dsn, dir := pgserver.Database(t), filepath.Join(t.TempDir(), "data")
	open := func(dir string) *Store {
		t.Helper()
		s, err := Open(t.Context(), dsn, Options{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.die)
		return s
	}
	free := func(s *Store) int64 {
		t.Helper()
		n, err := s.PendingCount(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return n.Due
	}
	first := open(dir)
	e := &surehook.Endpoint{ID: "whk", Enabled: true}
	if err := first.CreateEndpoint(t.Context(), e, 0, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := first.Append(t.Context(), 1, []surehook.Append{{Event: &surehook.Event{ID: "e", Type: "a.b", Data: []byte(`{}`)},
		Targets: []surehook.Target{{EndpointKey: e.Key, Owned: true}}}}); err != nil {
		t.Fatal(err)
	}
	beside := open(dir)
	if n := free(beside); n != 0 {
		t.Fatal("a living node's row was taken")
	}
	beside.die()
	elsewhere := open(t.TempDir())
	if n := free(elsewhere); n != 0 {
		t.Fatal("a living node's row was taken")
	}
	first.die()
	if n := free(elsewhere); n != 0 {
		t.Fatal("the row of a node that may live was taken")
	}
	second := open(dir)
	c, err := second.Claim(t.Context(), e.Key, 1, 1)
	if err != nil || len(c.Rows) != 1 || c.Rows[0].Delivery.Lost != 1 {
		t.Errorf("%+v, %v", c, err)
	}
}

// A lease that was written while the database's clock was a day ahead must not
// hold a dead node's rows for a day.
func TestALeaseFarAheadIsOver(t *testing.T) {
	dsn := pgserver.Database(t)
	s, err := Open(t.Context(), dsn, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	exec(t, dsn, `INSERT INTO surehook.nodes (epoch, name, place, delivers, started_at, expires_at)
		SELECT nextval('surehook.epochs'), 'dead', 'elsewhere', true, ms, ms + 86400000 FROM surehook.clock() ms`)
	if err := s.reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	var n int
	if err := s.pool.QueryRow(t.Context(), `SELECT count(*) FROM surehook.nodes`).Scan(&n); err != nil || n != 1 {
		t.Errorf("%d nodes, want this one: %v", n, err)
	}
}
