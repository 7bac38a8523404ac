//go:build unix

package pgserver

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func standby(t *testing.T, s *Server, cfg Config) *Server {
	t.Helper()
	b, err := s.Standby(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Close(); err != nil {
			t.Error(err)
		}
	})
	return b
}

// Whatever was acknowledged while the standby was synchronous is on it when the
// primary dies.
func TestStandby(t *testing.T) {
	t.Parallel()
	a := start(t, Config{Settings: map[string]string{"fsync": "off", "work_mem": "5MB"}})
	do(t, a, "CREATE TABLE t (n int)")
	b := standby(t, a, Config{Settings: map[string]string{"work_mem": "6MB"}})
	expect(t, b, "SELECT pg_is_in_recovery()", true)
	expect(t, b, "SHOW work_mem", "6MB")
	if b.Name() != "standby1" || b.Port() == a.Port() {
		t.Error(b.Name(), b.Port())
	}
	if err := a.SetSettings(t.Context(), map[string]string{"synchronous_standby_names": b.Name()}); err != nil {
		t.Fatal(err)
	}

	// Without the standby, a commit waits; with it, it goes on.
	if err := b.Stop(Fast); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	c := connect(t, a.DSN("postgres"))
	go func() {
		_, err := c.Exec(t.Context(), "INSERT INTO t VALUES (1)")
		done <- err
	}()
	if err := a.until(t.Context(), time.Minute, "the commit to wait", func(c *pgx.Conn) (ok bool, err error) {
		err = c.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE wait_event = 'SyncRep')").Scan(&ok)
		return ok, err
	}); err != nil {
		t.Fatal(err)
	}
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if _, err := c.Exec(t.Context(), "INSERT INTO t VALUES (2)"); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := b.Promote(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, b, "SELECT pg_is_in_recovery()", false)
	expect(t, b, "SELECT count(*) FROM t", 101)
	do(t, b, "INSERT INTO t VALUES (3)")
	if err := b.Promote(t.Context()); err == nil {
		t.Error("promoted a primary")
	}
	if err := b.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, b, "SELECT count(*) FROM t", 102)
}

// A setting that SetSettings made before the copy doesn't stand above those of
// the standby, and commits wait from the moment that SetSettings returns.
func TestSecondStandby(t *testing.T) {
	t.Parallel()
	a := start(t, Config{Settings: fast})
	do(t, a, "CREATE TABLE t (n int)")
	if err := a.SetSettings(t.Context(), map[string]string{"synchronous_standby_names": "FIRST 1 (spare)", "work_mem": "5MB", "max_connections": "150"}); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := a.exec(ctx, "INSERT INTO t VALUES (1)"); err == nil {
		t.Error("a commit didn't wait for the standby that isn't there")
	}
	if err := a.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	b := standby(t, a, Config{Name: "spare", Settings: map[string]string{"work_mem": "6MB"}})
	expect(t, b, "SHOW work_mem", "6MB")
	expect(t, b, "SHOW synchronous_standby_names", "")
	expect(t, b, "SHOW max_connections", "150")
	do(t, a, "INSERT INTO t VALUES (2)")
	if _, err := a.Standby(t.Context(), Config{Name: "Stand by"}); err == nil || !strings.Contains(err.Error(), "lower-case") {
		t.Error(err)
	}

	// The primary comes back, and the standby with it.
	if err := a.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	do(t, a, "INSERT INTO t VALUES (3)")
	if err := a.streamsTo(t.Context(), "spare"); err != nil {
		t.Error(err)
	}
}
