package pgserver

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// reloadTimeout bounds the wait for settings to take hold.
const reloadTimeout = 30 * time.Second

var standbyName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// Standby makes a copy of this server and starts it as a hot standby. When it
// returns without an error, the standby accepts reads and streams from this
// server, under the name that Server.Name tells. It isn't synchronous until this
// server is told so:
//
//	err := primary.SetSettings(ctx, map[string]string{"synchronous_standby_names": standby.Name()})
//
// It has the settings of this server, except for synchronous_standby_names, and
// those of cfg. A standby that was down for long can't catch up, since this
// server keeps no log for it: set wal_keep_size for such a test.
func (s *Server) Standby(ctx context.Context, cfg Config) (*Server, error) {
	if s.external != nil {
		return nil, ErrExternal
	}
	s.mu.Lock()
	s.standbys++
	if cfg.Name == "" {
		cfg.Name = "standby" + strconv.Itoa(s.standbys)
	}
	settings := maps.Clone(s.settings)
	s.mu.Unlock()
	if !standbyName.MatchString(cfg.Name) {
		return nil, fmt.Errorf("pgserver: a standby can't be named %q: use lower-case letters, digits and _", cfg.Name)
	}
	delete(settings, "synchronous_standby_names")
	settings["wal_retrieve_retry_interval"] = "100ms" // back at a restarted primary soon
	maps.Copy(settings, cfg.Settings)
	conninfo := fmt.Sprintf("host=127.0.0.1 port=%d user=%s sslmode=disable", s.port, superuser)
	settings["primary_conninfo"] = conninfo + " application_name=" + cfg.Name
	standby, err := open(ctx, cfg, settings, func(b *Server) error {
		return b.copyFrom(ctx, conninfo)
	})
	if err != nil {
		return nil, err
	}
	if err := s.streamsTo(ctx, cfg.Name); err != nil {
		return nil, errors.Join(fmt.Errorf("%w; the standby said:\n%s", err, tail(standby.Log())), standby.Close())
	}
	return standby, nil
}

// copyFrom fills the folder with a copy of a running server's data, to start as
// its standby.
func (s *Server) copyFrom(ctx context.Context, conninfo string) error {
	if _, err := os.Stat(s.program("pg_basebackup")); err != nil {
		return fmt.Errorf("pgserver: a standby takes pg_basebackup, which isn't in %s: install the package postgresql-client of the same version", s.bin)
	}
	if err := s.run(ctx, "pg_basebackup", "--pgdata="+s.data(), "--dbname="+conninfo, "--wal-method=stream", "--checkpoint=fast", "--no-sync"); err != nil {
		return err
	}
	// What the primary was told by ALTER SYSTEM came with the copy, and would
	// stand above the settings here; those that the standby is to have are among
	// them already.
	for _, name := range []string{"postgresql.auto.conf", "standby.signal"} {
		path := filepath.Join(s.data(), name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), s.own(path)); err != nil {
			return err
		}
	}
	return nil
}

// streamsTo waits until a standby of that name receives the log as it grows.
func (s *Server) streamsTo(ctx context.Context, name string) error {
	return s.until(ctx, startTimeout, "standby "+name+" to stream", func(conn *pgx.Conn) (ok bool, err error) {
		err = conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_replication WHERE application_name = $1 AND state = 'streaming')", name).Scan(&ok)
		return ok, err
	})
}

// until asks the server, over a new connection each time, until the answer is
// yes.
func (s *Server) until(ctx context.Context, limit time.Duration, what string, ask func(*pgx.Conn) (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("pgserver: waited %v for %s; the server said:\n%s", limit, what, tail(s.Log())))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		ok, err := func() (bool, error) {
			conn, err := s.admin(ctx)
			if err != nil {
				return false, err
			}
			defer hangUp(ctx, conn)
			return ask(conn)
		}()
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// Name is a standby's application_name; empty for another server.
func (s *Server) Name() string { return s.name }

// Promote makes a primary of a standby. When it returns without an error, the
// server accepts writes. It is synchronous with nobody, until told so. What
// became of the old primary is the caller's affair: stop or kill it first.
func (s *Server) Promote(ctx context.Context) error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := s.admin(ctx)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn)
	var ok bool
	if err := conn.QueryRow(ctx, "SELECT pg_promote(true, $1)", int(startTimeout.Seconds())).Scan(&ok); err != nil {
		return fmt.Errorf("pgserver: promote: %w", err)
	}
	if !ok {
		return fmt.Errorf("pgserver: promote: still a standby after %v; the server said:\n%s", startTimeout, tail(s.Log()))
	}
	return nil
}

// SetSettings changes settings of a running server, by PostgreSQL's names. When
// it returns without an error, they hold for every new connection and in the
// server's own processes, and for an open connection from its next command on;
// those that PostgreSQL reads at the start only, like max_connections, hold
// after Restart. A setting that PostgreSQL refuses is an error, and none of the
// changes holds.
func (s *Server) SetSettings(ctx context.Context, settings map[string]string) error {
	if s.external != nil {
		return ErrExternal
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	conn, err := s.admin(ctx)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn)
	auto := filepath.Join(s.data(), "postgresql.auto.conf")
	before, err := os.ReadFile(auto)
	if err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		id := pgx.Identifier(strings.Split(name, ".")).Sanitize()
		if _, err := conn.Exec(ctx, "ALTER SYSTEM SET "+id+" = "+quote(settings[name])); err != nil {
			return errors.Join(fmt.Errorf("pgserver: setting %s to %q: %w", name, settings[name], err), os.WriteFile(auto, before, 0o600))
		}
	}
	if err := s.reload(ctx, conn); err != nil {
		return err
	}
	maps.Copy(s.settings, settings)
	return nil
}

// reload makes the server read its settings, and waits until it has.
func (s *Server) reload(ctx context.Context, conn *pgx.Conn) error {
	const loaded = "SELECT pg_conf_load_time()"
	var before time.Time
	if err := conn.QueryRow(ctx, loaded).Scan(&before); err != nil {
		return err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_reload_conf()"); err != nil {
		return err
	}
	// A new connection has what the postmaster has, which told its children
	// before it took the connection.
	err := s.until(ctx, reloadTimeout, "new settings to take hold", func(conn *pgx.Conn) (bool, error) {
		var now time.Time
		err := conn.QueryRow(ctx, loaded).Scan(&now)
		return now.After(before), err
	})
	if err != nil {
		return err
	}
	// That commits wait for a synchronous standby is what the checkpointer
	// switches on. It heeds its settings before it heeds a request.
	_, err = conn.Exec(ctx, "CHECKPOINT")
	return err
}
