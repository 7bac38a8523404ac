//go:build unix

package pgserver

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func TestDatabase(t *testing.T) {
	t.Parallel()
	s := Shared(t)
	var dropped string
	t.Run("use", func(t *testing.T) {
		dsn := Database(t)
		if other := Database(t); other == dsn {
			t.Error("the same database twice")
		}
		c := connect(t, dsn)
		var tables int
		if err := c.QueryRow(t.Context(), "SELECT count(*) FROM pg_class WHERE relnamespace = 'public'::regnamespace").Scan(&tables); err != nil || tables != 0 {
			t.Error(tables, err)
		}
		if err := c.QueryRow(t.Context(), "SELECT current_database()").Scan(&dropped); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(dsn, "/"+dropped) {
			t.Error(dsn, dropped)
		}
	})
	expect(t, s, "SELECT count(*) FROM pg_database WHERE datname = "+quote(dropped), 0)
	if os.Getenv(Env) == "" {
		expect(t, s, "SHOW synchronous_commit", "on")
	}
	if Shared(t) != s {
		t.Error("two shared servers")
	}
}

// Copies have what the first was filled with, and nothing of each other.
func TestCopy(t *testing.T) {
	t.Parallel()
	s := Shared(t)
	filled := 0
	fill := func(dsn string) error {
		filled++
		c, err := pgx.Connect(t.Context(), dsn)
		if err != nil {
			return err
		}
		_, err = c.Exec(t.Context(), "CREATE TABLE t AS SELECT 7 AS n")
		return errors.Join(err, c.Close(t.Context()))
	}
	if _, err := s.template("filled", func(string) error { return errors.New("no room") }); err == nil || !strings.Contains(err.Error(), "filled: no room") {
		t.Error(err)
	}
	var dropped []string
	t.Run("use", func(t *testing.T) {
		for range 3 {
			c := connect(t, Copy(t, "filled", fill))
			var n int
			var name string
			if err := c.QueryRow(t.Context(), "UPDATE t SET n = n + 1 RETURNING n, current_database()").Scan(&n, &name); err != nil || n != 8 {
				t.Error(n, err)
			}
			dropped = append(dropped, quote(name))
		}
	})
	if filled != 1 {
		t.Errorf("filled %d times", filled)
	}
	expect(t, s, "SELECT count(*) FROM pg_database WHERE datname IN ("+strings.Join(dropped, ", ")+")", 0)
}

func TestExternal(t *testing.T) {
	t.Parallel()
	dsn := Shared(t).DSN("postgres")
	s, err := startShared(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	expect(t, s, "SELECT 1", 1)
	if err := s.exec(t.Context(), "SELECT 1"); err != nil {
		t.Error(err)
	}
	if a, b := s.DSN("x"), Shared(t).DSN("x"); a != b {
		t.Error(a, b)
	}
	_, standby := s.Standby(t.Context(), Config{})
	for i, err := range []error{
		s.Stop(Fast), s.Kill(), s.Close(), s.Restart(t.Context()), s.Promote(t.Context()), s.SetSettings(t.Context(), nil), standby,
	} {
		if !errors.Is(err, ErrExternal) {
			t.Error(i, err)
		}
	}
	for _, dsn := range []string{"host=x password=hush", "mysql://x:hush@y", "postgres://x:hush@y:z/"} {
		if _, err := external(dsn); err == nil || strings.Contains(err.Error(), "hush") || !strings.Contains(err.Error(), Env) {
			t.Error(dsn, err)
		}
	}
}

// orphan makes the test binary start a server, say where, and wait to be killed.
const orphan = "PGSERVER_TEST_ORPHAN"

func beOrphaned() {
	s, err := Start(context.Background(), Config{Settings: fast})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	fmt.Println(s.proc.cmd.Process.Pid, s.dir)
	select {}
}

// Whatever ends the process that started a server, the server and its folder go
// too.
func TestOrphanedServerEnds(t *testing.T) {
	t.Parallel()
	if err := Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), orphan+"=1")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, dir, ok := strings.Cut(strings.TrimSpace(line), " ")
	if n, err := strconv.Atoi(pid); !ok || err != nil || n == 0 {
		t.Fatal(line)
	}
	if _, err := os.Stat(filepath.Join(dir, "data", "postmaster.pid")); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // killed
	deadline := time.After(30 * time.Second)
	for {
		_, err := os.Stat(dir)
		if errors.Is(err, os.ErrNotExist) && !strings.Contains(processes(t), dir) {
			return
		}
		select {
		case <-deadline:
			t.Fatalf("still there: %v\n%s", err, processes(t))
		case <-time.After(20 * time.Millisecond):
		}
	}
}

type fakeM func() int

func (f fakeM) Run() int { return f() }

func TestSuiteKeepsTheCode(t *testing.T) {
	defer func(s *Server, f bool) { server, finished = s, f }(server, finished)
	server = nil
	if code := (Suite{fakeM(func() int { return 3 })}).Run(); code != 3 {
		t.Error(code)
	}
	if _, err := startShared(t.Context(), ""); err == nil || !strings.Contains(err.Error(), "over") {
		t.Error(err)
	}
}
