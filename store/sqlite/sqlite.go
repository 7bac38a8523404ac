// Package sqlite keeps everything in one SQLite file, for one machine.
//
// Guarantee: what a method answered without an error is on the disk (with
// synchronous FULL, the default) and survives a crash of the process, of the
// system and of the power. One process owns the file; a second one is refused.
//
// One writer goroutine gathers whatever is waiting, from appends to outcomes,
// into shared transactions; readers work beside it on connections of their own.
package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/gofrs/flock"
	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// Sync is SQLite's synchronous setting.
type Sync string

// The settings for Sync. NORMAL is faster, and can lose the last fraction of a
// second of answered events in a power cut or a crash of the operating system;
// a crash of the process alone loses nothing in either.
const (
	Full   Sync = "FULL"
	Normal Sync = "NORMAL"
)

const (
	walSoftLimit = 64 << 20 // past it the writer checkpoints between batches
	walKeep      = 32 << 20 // what a restarted log keeps of its file; well below the limit, or each batch would checkpoint
	walHardLimit = 1 << 30  // past it appends are refused until it shrinks
	readLimit    = 5 * time.Second
	readers      = 2
)

// Options of a store. The zero value is good.
type Options struct {
	Sync      Sync             // Full
	Now       func() time.Time // time.Now
	Logger    *slog.Logger     // discards
	TxLimit   time.Duration    // how long a Tx of the application's may keep the others waiting; 5 s
	FreeFloor int64            // bytes free on the disk below which new events are refused; 0: 64 MiB, negative: off
	OnBatch   func(BatchStats) // called after each transaction of the writer

	source bool // it is opened to be moved
}

// BatchStats describes one transaction of the writer.
type BatchStats struct {
	Jobs     int
	Duration time.Duration
	Err      error
}

// Store is a SQLite file. Make one with Open.
type Store struct {
	path  string
	opt   Options
	log   *slog.Logger
	now   func() time.Time
	lock  *flock.Flock
	w     *writer
	reads chan *conn
	open  int // connections of readers
	keys  allocator
	space space
	epoch atomic.Int64

	watch     atomic.Pointer[func(surehook.Change)]
	config    atomic.Int64   // the configuration version that appends are checked against
	aliased   atomic.Bool    // there may be events with an alias
	pruned    atomic.Int64   // up to this key, retention has left what tenants keep for longer alone
	unpruned  atomic.Int64   // times that was forgotten
	sequences map[int64]bool // endpoints that may have rows in sequences; the writer's alone

	closing chan struct{}
	once    sync.Once
	bg      sync.WaitGroup
}

// Open opens or creates the file, migrates its schema, and frees the rows that
// an earlier process held. It refuses a file that is damaged, that a newer
// version wrote, or that another process has open.
func Open(ctx context.Context, path string, opt Options) (*Store, error) {
	if opt.Sync == "" {
		opt.Sync = Full
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("sqlite: %w", err)
	}
	s := &Store{path: path, opt: opt, log: opt.Logger, now: opt.Now, closing: make(chan struct{})}
	s.lock = flock.New(path + ".lock")
	ok, err := s.lock.TryLock()
	if err != nil {
		return nil, fmt.Errorf("sqlite: locking %s: %w", filepath.Base(path), err)
	}
	if !ok {
		return nil, fmt.Errorf("sqlite: %s is open in another surehook process; stop that one first", filepath.Base(path))
	}
	s.space.makeRoom(path)
	if err := s.start(ctx); err != nil {
		if s.space.spent(path) {
			err = fmt.Errorf("the disk is full; free some space and start again: %w", err)
		}
		return nil, errors.Join(fmt.Errorf("sqlite: %w", err), s.lock.Unlock())
	}
	return s, nil
}

// private makes the file, or an old one, readable for its owner alone.
func private(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(f.Chmod(0o600), f.Close())
}

func (s *Store) start(ctx context.Context) error {
	if err := private(s.path); err != nil {
		return err
	}
	c, err := open(s.path, false, 6<<10, s.opt.Sync)
	if err != nil {
		return err
	}
	if err := s.prepare(ctx, c); err != nil {
		return closing(c, err)
	}
	s.reads = make(chan *conn, readers)
	for range readers {
		r, err := open(s.path, true, 1<<10, s.opt.Sync)
		if err != nil {
			return errors.Join(err, s.closeReaders(), c.close())
		}
		s.reads <- r
		s.open++
	}
	if err := privateLog(s.path); err != nil {
		return errors.Join(err, s.closeReaders(), c.close())
	}
	s.space.start(s)
	s.w = startWriter(s, c)
	return nil
}

// privateLog does the same for what SQLite keeps beside the file: the log holds
// events as the file does.
func privateLog(path string) error {
	for _, beside := range []string{"-wal", "-shm"} {
		if err := os.Chmod(path+beside, 0o600); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// prepare checks the file, migrates it, and takes over what an earlier process
// left.
func (s *Store) prepare(ctx context.Context, c *conn) error {
	if err := quickCheck(c); err != nil {
		return fmt.Errorf("%w; restore a backup, or salvage it with sqlite3's .recover", err)
	}
	if err := migrate(ctx, s.path); err != nil {
		return err
	}
	if !s.opt.source {
		if err := notMoved(c); err != nil {
			return err
		}
	}
	return s.takeOver(c, true)
}

// takeOver starts a new epoch: rows that an earlier one held are free again,
// and, after a crash, each one crash older. A clean stop leaves no held rows.
func (s *Store) takeOver(c *conn, crashed bool) error {
	if err := c.Exec(`BEGIN IMMEDIATE; UPDATE counters SET value = value + 1 WHERE name = 'epoch'`); err != nil {
		return err
	}
	epoch, err := c.int64(`SELECT value FROM counters WHERE name = 'epoch'`)
	if err != nil {
		return err
	}
	orders, err := outOf(c)
	if err != nil {
		return err
	}
	freed, err := c.exec(`UPDATE pending SET owner = NULL, lost = lost + ? WHERE owner IS NOT NULL`, crashed)
	if err != nil {
		return err
	}
	if err := unpark(c, orders, s.now(), 1); err != nil {
		return err
	}
	if err := s.loadSequenced(c); err != nil {
		return err
	}
	config, err := c.int64(`SELECT value FROM counters WHERE name = 'config'`)
	if err != nil {
		return err
	}
	aliased, err := c.int64(`SELECT EXISTS (SELECT 1 FROM events WHERE alias <> '')`)
	if err != nil {
		return err
	}
	if err := s.keys.load(c); err != nil {
		return err
	}
	if err := c.Exec(`COMMIT`); err != nil {
		return err
	}
	s.epoch.Store(epoch)
	s.config.Store(config)
	s.aliased.Store(aliased > 0)
	if freed > 0 {
		s.log.Info("rows of an earlier process are free again", "rows", freed)
	}
	return nil
}

// Lease of a file is its process's for as long as it runs.
func (s *Store) Lease() surehook.Lease {
	return surehook.Lease{Epoch: s.epoch.Load(), Until: s.now().Add(time.Hour)}
}

// Watch implements surehook.Store. Nobody else changes the file, but Tx adds
// events past the engine.
func (s *Store) Watch(f func(surehook.Change)) {
	if f == nil {
		f = func(surehook.Change) {}
	}
	s.watch.Store(&f)
}

func (s *Store) tell(c surehook.Change) {
	if f := s.watch.Load(); f != nil {
		(*f)(c)
	}
}

// MaxTargets implements surehook.Store: everybody waits for the one writer, so
// no transaction should be long.
func (s *Store) MaxTargets() int { return 2000 }

// Close waits for the writes that were asked for, and gives the file free.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closing)
		s.bg.Wait()
		// The writer goes last: only it can put the write-ahead log into the file,
		// which is then all there is to copy.
		err = errors.Join(s.closeReaders(), s.w.stop(), s.lock.Unlock())
	})
	return err
}

// closeReaders waits for the reads that run; none lasts longer than readLimit.
func (s *Store) closeReaders() error {
	var err error
	for ; s.open > 0; s.open-- {
		c := <-s.reads
		err = errors.Join(err, c.close())
	}
	return err
}

// read runs f on a reader's connection, in one snapshot, for at most readLimit.
func (s *Store) read(ctx context.Context, f func(c *conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return s.snapshot(ctx, f)
}

// snapshot is read for as long as it takes.
func (s *Store) snapshot(ctx context.Context, f func(c *conn) error) error {
	var c *conn
	select {
	case <-s.closing:
		return errClosed
	default:
	}
	select {
	case c = <-s.reads:
	case <-s.closing:
		return errClosed
	case <-ctx.Done():
		return unavailable("the store is busy reading", ctx.Err())
	}
	defer func() { s.reads <- c }()
	defer c.SetInterrupt(c.SetInterrupt(ctx))
	if err := c.Exec(`BEGIN`); err != nil {
		return wrap(err)
	}
	err := f(c)
	if errors.Is(err, sqlite3.INTERRUPT) && ctx.Err() != nil {
		err = unavailable("the store is busy reading", ctx.Err()) // the caller asks whether it was its own end
	}
	// A read-only transaction changes nothing; ending it can only repeat err.
	c.SetInterrupt(context.Background())
	if e := c.Exec(`ROLLBACK`); err == nil && e != nil {
		err = e
	}
	return wrap(err)
}

var errClosed = surehook.Errorf(surehook.Stopping, "the store is closed")

func unavailable(message string, cause error) error {
	return surehook.Errorf(surehook.Unavailable, "%s", message).WithCause(cause)
}

// wrap gives an error of the driver our code.
func wrap(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*surehook.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, sqlite3.FULL):
		return unavailable("the disk is full", err)
	case errors.Is(err, sqlite3.READONLY):
		return unavailable("the store's file is read-only", err)
	case errors.Is(err, sqlite3.IOERR), errors.Is(err, sqlite3.CANTOPEN),
		errors.Is(err, sqlite3.CORRUPT), errors.Is(err, sqlite3.NOTADB):
		return unavailable("the store's file can't be used", err)
	case errors.Is(err, sqlite3.BUSY), errors.Is(err, sqlite3.LOCKED), errors.Is(err, sqlite3.INTERRUPT):
		return unavailable("the store is busy", err)
	}
	return surehook.Errorf(surehook.Internal, "the store failed").WithCause(err)
}

func notFound(what string) error {
	return surehook.Errorf(surehook.NotFound, "no such %s", what)
}

// wal is the write-ahead log's file.
func (s *Store) wal() string { return strings.TrimPrefix(s.path, "file:") + "-wal" }
