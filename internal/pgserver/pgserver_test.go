//go:build unix

package pgserver

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	if os.Getenv(orphan) != "" {
		beOrphaned()
	}
	goleak.VerifyTestMain(Suite{M: m})
}

// fast is for clusters that no test pulls the plug of.
var fast = map[string]string{"fsync": "off"}

func start(t *testing.T, cfg Config) *Server {
	t.Helper()
	if err := Install(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := Start(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s is still there: %v", s.dir, err)
		}
		if _, _, used := strings.Cut(processes(t), s.dir); used {
			t.Errorf("a process still uses %s", s.dir)
		}
	})
	return s
}

// processes lists the command lines of all processes, where the system shows
// them as files.
func processes(t *testing.T) string {
	t.Helper()
	files, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for _, f := range files {
		b, _ := os.ReadFile(f) // it may be gone
		all.WriteString(strings.ReplaceAll(string(b), "\x00", " ") + "\n")
	}
	return all.String()
}

func connect(t *testing.T, dsn string) *pgx.Conn {
	t.Helper()
	c, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close(context.Background()) }) // some tests end the server
	return c
}

// do runs statements over a connection of their own.
func do(t *testing.T, s *Server, statements ...string) {
	t.Helper()
	if err := s.exec(t.Context(), statements...); err != nil {
		t.Fatal(err)
	}
}

func expect[T comparable](t *testing.T, s *Server, sql string, want T) {
	t.Helper()
	var got T
	if err := connect(t, s.DSN("postgres")).QueryRow(t.Context(), sql).Scan(&got); err != nil {
		t.Fatal(sql, err)
	}
	if got != want {
		t.Errorf("%s: %v, want %v", sql, got, want)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	s := start(t, Config{})
	for name, want := range map[string]string{
		"fsync": "on", "synchronous_commit": "on", "full_page_writes": "on", "server_encoding": "UTF8",
		"listen_addresses": "127.0.0.1", "wal_level": "replica", "TimeZone": "UTC",
	} {
		expect(t, s, "SHOW "+name, want)
	}
	expect(t, s, "SELECT datcollate::text FROM pg_database WHERE datname = 'postgres'", "C")
	expect(t, s, "SHOW port", strconv.Itoa(s.Port()))
	if _, err := os.Stat(filepath.Join(s.dir, ".s.PGSQL."+strconv.Itoa(s.Port()))); err != nil {
		t.Error(err)
	}
}

func TestStopsAndRestarts(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Settings: map[string]string{"fsync": "off", "cluster_name": "it's"}})
	do(t, s, "CREATE TABLE t (n int)")
	port := s.Port()
	stops := []struct {
		name    string
		stop    func() error
		orderly bool
	}{
		{"nothing", func() error { return nil }, true},
		{"fast", func() error { return s.Stop(Fast) }, true},
		{"immediate", func() error { return s.Stop(Immediate) }, false},
		{"kill", s.Kill, false},
		{"kill and stop", func() error { return errors.Join(s.Kill(), s.Kill(), s.Stop(Fast)) }, false},
	}
	for n, c := range stops {
		do(t, s, "INSERT INTO t VALUES (1)")
		c0 := connect(t, s.DSN("postgres"))
		said := len(s.Log())
		if err := c.stop(); err != nil {
			t.Fatal(c.name, err)
		}
		if err := c0.Ping(t.Context()); err == nil && n > 0 {
			t.Error(c.name, "a connection survived")
		}
		if n > 0 && strings.Contains(processes(t), s.dir+"/data") {
			t.Error(c.name, "a process survived")
		}
		if err := s.Restart(t.Context()); err != nil {
			t.Fatal(c.name, err)
		}
		if s.Port() != port {
			t.Error(c.name, "another port")
		}
		expect(t, s, "SELECT count(*) FROM t", n+1)
		if recovered := strings.Contains(s.Log()[said:], "automatic recovery in progress"); recovered == c.orderly {
			t.Errorf("%s: recovered %v\n%s", c.name, recovered, s.Log()[said:])
		}
	}
	expect(t, s, "SHOW cluster_name", "it's")
}

// A backend that is busy doesn't notice that the postmaster is gone.
func TestKillEndsBusyBackends(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Settings: fast})
	c, err := pgx.Connect(t.Context(), s.DSN("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := c.Exec(t.Context(), "DO $$ BEGIN PERFORM set_config('application_name', 'busy', false); LOOP END LOOP; END $$")
		done <- err
	}()
	if err := s.until(t.Context(), time.Minute, "the query", func(c *pgx.Conn) (ok bool, err error) {
		err = c.QueryRow(t.Context(), "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE query LIKE 'DO %' AND state = 'active')").Scan(&ok)
		return ok, err
	}); err != nil {
		t.Fatal(err)
	}
	if err := s.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err == nil {
		t.Error("the query went on")
	}
	// Not restarted: Close has the litter to remove.
	if len(s.litter) == 0 {
		t.Error("no shared memory was found")
	}
	litter := s.litter
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	for _, file := range litter {
		if _, err := os.Stat(file); err == nil {
			t.Error(file, "is still there")
		}
	}
	if err := s.Restart(t.Context()); err == nil || !strings.Contains(err.Error(), "start another") {
		t.Error(err)
	}
}

func TestSetSettings(t *testing.T) {
	t.Parallel()
	s := start(t, Config{Settings: fast})
	if err := s.SetSettings(t.Context(), map[string]string{"work_mem": "5MB", "max_connections": "17", "log_line_prefix": "it's %m "}); err != nil {
		t.Fatal(err)
	}
	expect(t, s, "SHOW work_mem", "5MB")
	expect(t, s, "SHOW max_connections", "100")
	if err := s.SetSettings(t.Context(), map[string]string{"work_mem": "6MB", "wal_level": "nonsense"}); err == nil || !strings.Contains(err.Error(), "wal_level") {
		t.Error(err)
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	expect(t, s, "SHOW work_mem", "5MB")
	expect(t, s, "SHOW max_connections", "17")
	expect(t, s, "SHOW log_line_prefix", "it's %m ")
	if err := s.Stop(Fast); err != nil {
		t.Fatal(err)
	}
	if err := s.SetSettings(t.Context(), nil); err == nil {
		t.Error("set while stopped")
	}
}

func TestTakenPort(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	taken := l.Addr().(*net.TCPAddr).Port
	s := start(t, Config{Settings: fast, port: taken})
	if s.Port() == taken {
		t.Error("the port was taken")
	}
	expect(t, s, "SELECT 1", 1)
}

func TestRefusedStarts(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil {
		t.Fatal(err)
	}
	for settings, want := range map[string]string{
		"no_such_setting":          `unrecognized configuration parameter "no_such_setting"`,
		"shared_preload_libraries": `could not access file "x"`,
	} {
		s, err := Start(t.Context(), Config{Dir: dir, Settings: map[string]string{settings: "x"}})
		if err == nil || !strings.Contains(err.Error(), want) || s != nil {
			t.Errorf("%v, want %s", err, want)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Start(ctx, Config{Dir: dir}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if _, err := Start(t.Context(), Config{Dir: filepath.Join(dir, "missing")}); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 0 {
		t.Error(left, err)
	}
}

// The path of a Unix socket has a limit; a server in a deep folder does without.
func TestLongPath(t *testing.T) {
	t.Parallel()
	root, err := os.MkdirTemp("", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	dir := filepath.Join(root, strings.Repeat("a", 60), strings.Repeat("ü b'", 10))
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.Chmod(root, 0o755)); err != nil {
		t.Fatal(err)
	}
	s := start(t, Config{Dir: dir, Settings: fast})
	expect(t, s, "SHOW unix_socket_directories", "")
}
