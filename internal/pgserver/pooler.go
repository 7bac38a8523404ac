package pgserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"
)

const poolerPlace = "/usr/sbin/pgbouncer" // where Debian's package puts it, off many a PATH

func findPooler() (string, error) {
	for _, name := range []string{"pgbouncer", poolerPlace} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("pgserver: pgbouncer is needed: install the package pgbouncer")
}

// Pooler runs pgbouncer before a server, in transaction mode and without
// prepared statements, as it came before version 1.21. It gives the DSN that
// leads through it to the same database. Where pgbouncer is missing, it is
// installed, or the test fails. It ends with the test.
func Pooler(t testing.TB, dsn string) string {
	t.Helper()
	var path string
	if err := installed(context.Background(), "pgbouncer", func() (err error) { path, err = findPooler(); return err }); err != nil {
		t.Fatal(err)
	}
	to, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u, err := unprivileged() // it doesn't run as root either
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "surehook-pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	s := &Server{bin: filepath.Dir(path), dir: dir, user: u}
	for range portTries {
		port := randomPort()
		if err = s.pool(t, to, path, port); err == nil {
			to.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
			return to.String()
		}
	}
	t.Fatal(err)
	return ""
}

// pool starts pgbouncer on a port.
func (s *Server) pool(t testing.TB, to *url.URL, path string, port int) error {
	password, _ := to.User.Password()
	conf := fmt.Sprintf("[databases]\n* = host=%s port=%s\n[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = %d\nunix_socket_dir =\nauth_type = trust\n"+
		"auth_file = %s\npool_mode = transaction\ndefault_pool_size = 20\nmax_client_conn = 500\n", to.Hostname(), to.Port(), port, filepath.Join(s.dir, "users"))
	if knowsPrepared(path) {
		conf += "max_prepared_statements = 0\n"
	}
	for name, text := range map[string]string{"conf": conf, "users": fmt.Sprintf("%q %q\n", to.User.Username(), password)} {
		file := filepath.Join(s.dir, name)
		if err := errors.Join(os.WriteFile(file, []byte(text), 0o600), s.own(file)); err != nil {
			return err
		}
	}
	if err := s.own(s.dir); err != nil {
		return err
	}
	log, err := os.Create(s.logFile())
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := s.command(context.Background(), filepath.Base(path), filepath.Join(s.dir, "conf"))
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	t.Cleanup(func() {
		_ = p.cmd.Process.Kill() // it may have ended
		<-p.died
	})
	for end := time.Now().Add(10 * time.Second); p.running() && time.Now().Before(end); {
		if conn, err := (&net.Dialer{}).DialContext(context.Background(), "tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			return conn.Close()
		}
		<-time.After(5 * time.Millisecond)
	}
	return fmt.Errorf("pgserver: pgbouncer isn't there; it said:\n%s", tail(s.Log()))
}

// knowsPrepared tells a pgbouncer that can keep statements; older ones refuse
// its setting.
func knowsPrepared(path string) bool {
	out, err := exec.CommandContext(context.Background(), path, "--version").Output()
	if err != nil {
		return false
	}
	line, _, _ := strings.Cut(strings.TrimPrefix(string(out), "PgBouncer "), "\n")
	major, rest, _ := strings.Cut(line, ".")
	minor, _, _ := strings.Cut(rest, ".")
	a, _ := strconv.Atoi(major) // nonsense is old
	b, _ := strconv.Atoi(minor)
	return a > 1 || a == 1 && b >= 21
}
