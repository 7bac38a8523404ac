// Package postgres keeps everything in PostgreSQL, shared by any number of
// nodes, in a schema of its own that may lie in the application's database.
//
// Guarantee: what a method answered without an error is committed, with the
// durability that the server's synchronous_commit gives, and survives a crash of
// any node and of the server. Where a connection breaks during a commit, nobody
// can say what became of it: that is an error with code store_unavailable, and
// this node gives its epoch up, so that nothing it may have written stays held.
//
// Times that decide something are the database's, read through one function of
// the schema (surehook.clock).
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/surehook/surehook"
)

const (
	defaultSchema  = "surehook"
	defaultConns   = 12
	readLimit      = 5 * time.Second
	writeLimit     = 30 * time.Second // of one transaction, on both sides
	connectTimeout = 5 * time.Second
	defaultLease   = 90 * time.Second
	shortLease     = 10 * time.Second
)

// Options of a store. The zero value is good.
type Options struct {
	Schema    string       // "surehook"
	MaxConns  int          // connections at once; 12
	Name      string       // of this node, for people; the host's
	APIOnly   bool         // this node delivers nothing
	Logger    *slog.Logger // discards
	OnBatch   func(BatchStats)
	ListenDSN string // for LISTEN, past a pooler that can't do that; the store's own
	// Lease is how long the rows of a node that is gone without a word stay its
	// own: 10 s at least; 90 s. An attempt takes 3/4 of it less 5 s at most.
	Lease time.Duration
	// Dir is a directory of this node's own. What a process held that had it before
	// is free when this one starts, and not only with its lease; none: "".
	Dir string

	dial        pgconn.DialFunc // of tests
	listenCheck time.Duration   // tests have less time for it
}

// BatchStats describes one transaction that writes events or outcomes.
type BatchStats struct {
	Jobs     int
	Duration time.Duration
	Err      error
}

// Store is a schema in a PostgreSQL database. Make one with Open.
type Store struct {
	opt    Options
	log    *slog.Logger
	pool   *pgxpool.Pool
	schema string // quoted
	sql    sync.Map
	ids    allocator
	lease  atomic.Pointer[surehook.Lease]
	append *appender
	watch  watchers
	calls  calls

	days days

	renewing sync.Mutex
	ctx      context.Context // ends with the store
	cancel   context.CancelFunc
	bg       sync.WaitGroup
	closed   atomic.Bool
	lock     *flock.Flock // on opt.Dir
	place    string       // this host and directory; empty: none of its own
	doubted  atomic.Int64 // the epoch that is being given up, or was last
	pooled   atomic.Bool  // a pooler in transaction mode is in the way
}

var schemaName = regexp.MustCompile(`^[a-z_][a-z0-9_]{0,62}$`)

// Open connects, migrates the schema, and takes a lease on a new epoch. Any
// number of processes may have one schema open.
func Open(ctx context.Context, dsn string, opt Options) (*Store, error) {
	s, err := dial(ctx, dsn, opt)
	if err != nil {
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		s.disconnect()
		return nil, fmt.Errorf("postgres: %w", err)
	}
	return s, nil
}

// dial opens the database and brings its schema up to date.
func dial(ctx context.Context, dsn string, opt Options) (*Store, error) {
	setDefaults(&opt)
	if !schemaName.MatchString(opt.Schema) {
		return nil, errors.New("postgres: schema: must be lower-case letters, digits and _, at most 63")
	}
	cfg, err := poolConfig(dsn, opt)
	if err != nil {
		return nil, err
	}
	s := &Store{opt: opt, log: opt.Logger, schema: pgx.Identifier{opt.Schema}.Sanitize()}
	cfg.BeforeConnect = func(_ context.Context, c *pgx.ConnConfig) error {
		if s.pooled.Load() {
			c.DefaultQueryExecMode = pgx.QueryExecModeCacheDescribe
		}
		return nil
	}
	cfg.ConnConfig.OnNotice = noticed
	if err := migrate(ctx, cfg.ConnConfig, opt.Schema); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	if s.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return nil, fmt.Errorf("postgres: %w", err)
	}
	s.ids.s = s
	s.calls.ring = make(chan struct{}, 1)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	return s, nil
}

// disconnect is what a store that didn't start needs in place of Close.
func (s *Store) disconnect() {
	s.cancel()
	s.pool.Close()
	s.leavePlace()
}

func setDefaults(o *Options) {
	if o.Schema == "" {
		o.Schema = defaultSchema
	}
	if o.MaxConns == 0 {
		o.MaxConns = defaultConns
	}
	if o.Name == "" {
		o.Name, _ = os.Hostname() // "" is a name too
	}
	if o.Lease == 0 {
		o.Lease = defaultLease
	}
	o.Lease = max(o.Lease, shortLease)
	if o.listenCheck == 0 {
		o.listenCheck = listenCheck
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// poolConfig reads the DSN. Statements are prepared, until it shows that a pooler
// in transaction mode is in the way; see unnamed.
func poolConfig(dsn string, opt Options) (*pgxpool.Config, error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		// The driver's message may repeat the DSN, and with it the password.
		return nil, errors.New("postgres: the database's address can't be read; it must look like postgres://user:password@host:5432/database")
	}
	if !strings.Contains(dsn, "pool_max_conns") {
		cfg.MaxConns = int32(opt.MaxConns)
	}
	if opt.dial != nil {
		cfg.ConnConfig.DialFunc = opt.dial
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = connectTimeout
	}
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "surehook"
	}
	return cfg, nil
}

// start takes a lease and begins the background work.
func (s *Store) start(ctx context.Context) error {
	if err := s.notFilling(ctx); err != nil {
		return err
	}
	if err := s.ensurePartitions(ctx); err != nil {
		return err
	}
	if err := s.takePlace(); err != nil {
		s.log.Warn("the node's directory can't be used; what it holds waits for its lease if it dies", "dir", s.opt.Dir, "error", err)
	}
	if err := s.succeed(ctx); err != nil {
		return err
	}
	if err := s.newEpoch(ctx, 0); err != nil {
		return err
	}
	if err := s.reap(ctx); err != nil {
		return err
	}
	s.append = startAppender(s)
	s.bg.Go(s.renewLoop)
	s.bg.Go(s.partitionLoop)
	s.bg.Go(s.listenLoop)
	s.bg.Go(s.callLoop)
	return nil
}

// Close waits for the writes that were asked for, frees what the node holds, and
// disconnects.
func (s *Store) Close() error {
	if s.closed.Swap(true) {
		return nil
	}
	s.append.stop()
	s.cancel()
	s.bg.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), readLimit)
	defer cancel()
	err := s.endEpoch(ctx)
	s.pool.Close()
	s.leavePlace()
	return err
}

// q puts the schema's name into a statement that says surehook.
func (s *Store) q(sql string) string {
	if s.opt.Schema == defaultSchema {
		return sql
	}
	if out, ok := s.sql.Load(sql); ok {
		return out.(string)
	}
	out := inSchema(sql, s.schema)
	s.sql.Store(sql, out)
	return out
}

func inSchema(sql, schema string) string { return strings.ReplaceAll(sql, "surehook.", schema+".") }

var _ surehook.Store = (*Store)(nil)

// MaxTargets implements surehook.Store: a long transaction keeps nobody waiting
// here.
func (s *Store) MaxTargets() int { return 1 << 20 }

// Backup implements surehook.Store by refusing: the server's own tools do that,
// while it runs.
func (s *Store) Backup(context.Context, string, func(done, total int)) error {
	return surehook.Errorf(surehook.Conflict, "a PostgreSQL store is backed up by PostgreSQL's own tools, such as pg_dump or pg_basebackup")
}
