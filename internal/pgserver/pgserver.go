package pgserver

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	superuser    = "postgres"
	startTimeout = 60 * time.Second // from launch to accepting, crash recovery included
	stopTimeout  = 60 * time.Second // of an orderly stop, before it is forced
	portTries    = 10
	maxSocket    = 107 // bytes in the path of a Unix socket
)

// Config says how a server is to run. The zero value is PostgreSQL as it comes:
// durable, with fsync and synchronous_commit on.
type Config struct {
	// Settings go to the server's configuration, by PostgreSQL's names.
	Settings map[string]string
	// Dir is where the server's own folder is made, the disk to measure; empty
	// means the system's folder for temporary files.
	Dir string
	// Name is a standby's application_name, as synchronous_standby_names has it;
	// empty means standby1, standby2 and so on.
	Name string

	port int // tried first
}

// Mode is how a server stops.
type Mode int

const (
	// Fast breaks the connections off, writes a checkpoint and ends in order.
	Fast Mode = iota
	// Immediate ends at once; the next start recovers from the log.
	Immediate
)

// ErrExternal is the error of what can't be done to a server that runs outside,
// named by the environment variable Env.
var ErrExternal = errors.New("pgserver: the server is not ours to stop or change: unset " + Env + " to have one that is")

// Server is a PostgreSQL server. Its methods may be called from many goroutines;
// those that stop, start or change it take turns.
type Server struct {
	external *url.URL // set: a server that isn't ours, and nothing below is
	bin      string
	dir      string
	port     int
	user     user
	guard    *guard

	mu       sync.Mutex
	settings map[string]string
	proc     *process
	litter   []string // what a killed server left in shared memory
	standbys int
	name     string
	closed   bool
}

// Start makes a cluster and starts a server on it. When it returns without an
// error, the server accepts connections; the error has the end of its log. ctx
// bounds the start only. Close the server when it is done with.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	return open(ctx, cfg, cfg.Settings, func(s *Server) error {
		err := s.run(ctx, "initdb", "--no-sync", "--encoding=UTF8", "--locale=C", "--auth=trust",
			"--username="+superuser, "--pgdata="+s.data())
		if err != nil {
			return err
		}
		return s.include()
	})
}

// open makes the folder, fills it and starts the server, or leaves nothing.
func open(ctx context.Context, cfg Config, settings map[string]string, fill func(*Server) error) (_ *Server, err error) {
	bin, err := Find()
	if err != nil {
		return nil, err
	}
	u, err := unprivileged()
	if err != nil {
		return nil, err
	}
	s := &Server{bin: bin, user: u, settings: maps.Clone(settings), port: cfg.port, name: cfg.Name}
	if s.settings == nil {
		s.settings = map[string]string{}
	}
	if s.dir, err = os.MkdirTemp(cfg.Dir, "surehook-pg-"); err != nil {
		return nil, fmt.Errorf("pgserver: the server's folder: %w", err)
	}
	if s.dir, err = absolute(s.dir); err != nil {
		return nil, err
	}
	if s.guard, err = newGuard(s.dir); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.dir))
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Close())
		}
	}()
	if err = s.own(s.dir); err != nil {
		return nil, err
	}
	if err = fill(s); err != nil {
		return nil, err
	}
	for range portTries {
		if s.port == 0 {
			s.port = randomPort()
		}
		if err = s.start(ctx); !errors.Is(err, errPort) {
			break
		}
		s.port = 0
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// absolute is the one name of a folder that the kernel knows.
func absolute(dir string) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	return filepath.EvalSymlinks(dir)
}

func (s *Server) data() string               { return filepath.Join(s.dir, "data") }
func (s *Server) logFile() string            { return filepath.Join(s.dir, "log") }
func (s *Server) program(name string) string { return filepath.Join(s.bin, name) }
func (s *Server) own(path string) error {
	if !s.user.change {
		return nil
	}
	return os.Chown(path, int(s.user.uid), int(s.user.gid))
}

// include makes the cluster's configuration end with ours.
func (s *Server) include() error {
	f, err := os.OpenFile(filepath.Join(s.data(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString("\ninclude 'pgserver.conf'\n")
	return errors.Join(err, f.Close())
}

// configure writes the settings down.
func (s *Server) configure() error {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(s.settings)) {
		fmt.Fprintf(&b, "%s = %s\n", name, quote(s.settings[name]))
	}
	path := filepath.Join(s.data(), "pgserver.conf")
	if err := os.WriteFile(path, []byte(b.String()), 0o600); err != nil {
		return err
	}
	return s.own(path)
}

// quote makes a literal of a value, for a configuration file and for SQL.
func quote(v string) string { return "'" + strings.ReplaceAll(v, "'", "''") + "'" }

// randomPort is one below those that systems give to outgoing connections, so
// that it is still free when the server restarts.
func randomPort() int {
	var b [2]byte
	_, _ = rand.Read(b[:]) // never fails
	return 15000 + int(binary.NativeEndian.Uint16(b[:]))%15000
}

var errPort = errors.New("the port is taken")

// start runs the postmaster and waits until it accepts connections.
func (s *Server) start(ctx context.Context) error {
	if err := s.configure(); err != nil {
		return err
	}
	log, err := os.OpenFile(s.logFile(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer log.Close()
	before, err := log.Stat()
	if err != nil {
		return err
	}
	sockets := s.dir
	if len(filepath.Join(s.dir, ".s.PGSQL.65535")) > maxSocket {
		sockets = "" // TCP does it
	}
	cmd := s.command(context.Background(), "postgres", "-D", s.data(), "-p", strconv.Itoa(s.port),
		"-c", "listen_addresses=127.0.0.1", "-c", "unix_socket_directories="+sockets)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd)
	if err != nil {
		return fmt.Errorf("pgserver: %w", err)
	}
	s.proc = p
	err = s.ready(ctx, p)
	if err == nil {
		s.litter = nil // the new one cleaned up
		return nil
	}
	said := s.Log()[before.Size():]
	if e := s.halt(Immediate); e != nil {
		err = errors.Join(err, e)
	}
	if strings.Contains(said, "could not bind") {
		err = fmt.Errorf("%w: %w: %d", err, errPort, s.port)
	}
	return fmt.Errorf("pgserver: start: %w; the server said:\n%s", err, tail(said))
}

// ready waits for the postmaster's own word, which can't be that of a stranger
// on the same port.
func (s *Server) ready(ctx context.Context, p *process) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("not ready within %v", startTimeout))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-p.died:
			return fmt.Errorf("it ended: %w", p.err)
		case <-tick.C:
		}
		if pid, status := s.status(); pid == p.cmd.Process.Pid && status == "ready" {
			return nil
		}
	}
}

// status reads what the postmaster says of itself.
func (s *Server) status() (pid int, status string) {
	b, err := os.ReadFile(filepath.Join(s.data(), "postmaster.pid"))
	if err != nil {
		return 0, ""
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 8 {
		return 0, ""
	}
	pid, _ = strconv.Atoi(lines[0]) // 0 is nobody's
	return pid, strings.TrimSpace(lines[7])
}

// DSN is the connection string of a database of the server, as its superuser.
func (s *Server) DSN(db string) string {
	if s.external != nil {
		u := *s.external
		u.Path = "/" + db
		return u.String()
	}
	u := url.URL{Scheme: "postgres", User: url.User(superuser), Host: "127.0.0.1:" + strconv.Itoa(s.port), Path: "/" + db, RawQuery: "sslmode=disable"}
	return u.String()
}

// Port is the loopback port, the same after a restart; 0 of an external server.
func (s *Server) Port() int { return s.port }

// Log is all that the server has said since its first start; empty when the
// server is closed or external.
func (s *Server) Log() string {
	if s.external != nil {
		return ""
	}
	b, _ := os.ReadFile(s.logFile()) // no file: nothing said
	return string(b)
}

// Stop stops the server and waits until its last process is gone. The data stay
// for Restart. Stopping a stopped server does nothing.
func (s *Server) Stop(mode Mode) error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.halt(mode)
}

func (s *Server) halt(mode Mode) error {
	p := s.proc
	if p == nil {
		return nil
	}
	if p.running() {
		if err := signalTo(p.cmd.Process, mode); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("pgserver: stop: %w", err)
		}
	}
	if p.await(stopTimeout) {
		s.proc = nil
		return nil
	}
	return errors.Join(fmt.Errorf("pgserver: the server didn't stop within %v and was killed; it said:\n%s", stopTimeout, tail(s.Log())), s.kill())
}

// Restart starts the server again on the same port and data, stopping it first
// (Fast) if it runs. After Stop(Immediate) or Kill it recovers as after a crash.
// When it returns without an error, the server accepts connections.
func (s *Server) Restart(ctx context.Context) error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return errors.New("pgserver: the server is closed and its data are gone: start another")
	}
	if err := s.halt(Fast); err != nil {
		return err
	}
	return s.start(ctx)
}

// Kill ends the postmaster with SIGKILL, as the system does when memory runs
// out, and waits until its children are gone; those that don't notice soon are
// killed too. Restart recovers from it.
func (s *Server) Kill() error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.kill()
}

// Close stops the server and removes its folder. A second call does nothing.
func (s *Server) Close() error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil
	}
	s.closed = true
	err := s.halt(Immediate)
	s.sweep()
	if e := os.RemoveAll(s.dir); e != nil {
		err = errors.Join(err, e)
	}
	return errors.Join(err, s.guard.dismiss())
}
