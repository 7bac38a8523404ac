package pgserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// Env names a server that runs already, as a DSN of a user who may create
// databases; the tests use it in place of one of their own.
const Env = "SUREHOOK_TEST_POSTGRES"

var (
	sharing  sync.Mutex
	server   *Server // the one of this test binary
	failed   error   // why there is none
	finished bool
)

var (
	making    sync.Mutex
	templates = map[string]string{} // databases to copy, by the name that Copy was given
)

// Shared is the one server of this test binary, started at the first call, or
// the one that Env names. It forgoes fsync and whole pages in its log, and lives
// in memory where there is room, since no test can pull the plug of the machine;
// what it does at a commit is as always. Where PostgreSQL is missing, it is
// installed, or the test fails; it is never skipped.
//
// Tests share it: one that stops or kills a server starts its own.
func Shared(t testing.TB) *Server {
	t.Helper()
	s, err := theOne()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func theOne() (*Server, error) {
	sharing.Lock()
	defer sharing.Unlock()
	if server == nil && failed == nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
		defer cancel()
		server, failed = startShared(ctx, os.Getenv(Env))
	}
	return server, failed
}

func startShared(ctx context.Context, dsn string) (*Server, error) {
	if finished {
		return nil, errors.New("pgserver: the suite is over: Shared is for tests")
	}
	if dsn != "" {
		return external(dsn)
	}
	if err := Install(ctx); err != nil {
		return nil, err
	}
	return Start(ctx, Config{Dir: memory(), Settings: map[string]string{"fsync": "off", "full_page_writes": "off", "max_connections": "200"}})
}

// external takes a DSN for a server.
func external(dsn string) (*Server, error) {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme != "postgres" && u.Scheme != "postgresql" {
		// The error of Parse has the DSN in it, and that may have a password.
		return nil, errors.New("pgserver: " + Env + " must look like postgres://user:password@host:5432/postgres")
	}
	return &Server{external: u}, nil
}

// Database is the DSN of a fresh, empty database on the shared server. When t
// ends, it is dropped, whoever is still connected.
func Database(t testing.TB) string {
	t.Helper()
	dsn, drop, err := Fresh()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := drop(); err != nil {
			t.Error(err)
		}
	})
	return dsn
}

// Fresh is Database for examples, which have no testing.TB.
func Fresh() (dsn string, drop func() error, err error) {
	s, err := theOne()
	if err != nil {
		return "", nil, err
	}
	// template0 has no visitors, which would stand in the way of a copy.
	name, err := s.create("template0")
	if err != nil {
		return "", nil, err
	}
	return s.DSN(name), func() error { return s.drop(name) }, nil
}

// Copy is like Database, but the database is a copy of one that fill made: the
// first call with a name has fill make it, and further ones spare the time that
// this takes. It is for what every test begins with, a schema above all. fill
// must leave no connection behind. Those databases go with the suite (Main).
func Copy(t testing.TB, name string, fill func(dsn string) error) string {
	t.Helper()
	s := Shared(t)
	template, err := s.template(name, fill)
	if err != nil {
		t.Fatal(err)
	}
	db, err := s.create(template)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.drop(db); err != nil {
			t.Error(err)
		}
	})
	return s.DSN(db)
}

// template makes the database to copy, once.
func (s *Server) template(name string, fill func(dsn string) error) (string, error) {
	making.Lock()
	defer making.Unlock()
	if db, ok := templates[name]; ok {
		return db, nil
	}
	db, err := s.create("template0")
	if err != nil {
		return "", err
	}
	if err := fill(s.DSN(db)); err != nil {
		return "", errors.Join(fmt.Errorf("pgserver: making the database %s: %w", name, err), s.drop(db))
	}
	templates[name] = db
	return db, nil
}

// create makes a database of a name of its own. Files are copied, rather than
// logged page by page: without fsync that is much faster.
func (s *Server) create(template string) (name string, err error) {
	name = "surehook_" + strings.ToLower(rand.Text())
	return name, s.exec(context.Background(), "CREATE DATABASE "+pgx.Identifier{name}.Sanitize()+
		" TEMPLATE "+pgx.Identifier{template}.Sanitize()+" STRATEGY file_copy")
}

func (s *Server) drop(name string) error {
	return s.exec(context.Background(), "DROP DATABASE IF EXISTS "+pgx.Identifier{name}.Sanitize()+" WITH (FORCE)")
}

// admin connects to the database that is always there.
func (s *Server) admin(ctx context.Context) (*pgx.Conn, error) {
	dsn := s.DSN("postgres")
	if s.external != nil {
		dsn = s.external.String()
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return nil, fmt.Errorf("pgserver: %w; the server said:\n%s", err, tail(s.Log()))
	}
	return conn, nil
}

// hangUp ends a connection. Whether the server heard it doesn't matter.
func hangUp(ctx context.Context, conn *pgx.Conn) { _ = conn.Close(ctx) }

// exec runs statements over a connection of its own.
func (s *Server) exec(ctx context.Context, statements ...string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	conn, err := s.admin(ctx)
	if err != nil {
		return err
	}
	defer hangUp(ctx, conn)
	for _, sql := range statements {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return fmt.Errorf("pgserver: %s: %w", sql, err)
		}
	}
	return nil
}

// Suite runs tests, and stops the shared server when they are done. It is for
// what takes a testing.M, like goleak.VerifyTestMain.
type Suite struct {
	M interface{ Run() int }
}

// Run gives the exit code: that of the tests, or 1 when they passed and the
// server couldn't be stopped.
func (s Suite) Run() int {
	code := s.M.Run()
	sharing.Lock()
	defer sharing.Unlock()
	finished = true
	if server == nil {
		return code
	}
	var err error
	if server.external == nil {
		err = server.Close()
		server = nil
	} else {
		for _, db := range templates {
			err = errors.Join(err, server.drop(db))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}

// Main runs the tests of a package and stops the shared server after them:
//
//	func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }
//
// Without it, the guard stops the server a moment after the tests have ended.
func Main(m *testing.M) int { return Suite{m}.Run() }
