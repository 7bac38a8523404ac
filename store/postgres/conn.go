package postgres

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/surehook/surehook"
)

// txTries is how often a transaction is begun again that another one got in the
// way of.
const txTries = 10

// beginRead begins a snapshot. The server bounds each of its statements too: it
// goes on with one whose caller is gone. Compiling them takes longer than they do.
const beginRead = `BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = '5s';
	SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL jit = off`

// read runs f in one snapshot; each of its statements takes at most readLimit.
func (s *Store) read(ctx context.Context, f func(tx pgx.Tx) error) error {
	if s.closed.Load() {
		return errClosed
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	return wrap(s.again(ctx, func() error { return pgx.BeginTxFunc(ctx, s.pool, pgx.TxOptions{BeginQuery: beginRead}, f) }))
}

// change runs f in a transaction and waits for its commit, whatever becomes of
// ctx: an answer "unknown" would be worse than a late one. f may run more than
// once, each time from the start. When the connection breaks during the commit
// the answer is unknown all the same, and an error.
func (s *Store) change(ctx context.Context, f func(ctx context.Context, tx pgx.Tx) error) error {
	return s.within(ctx, writeLimit, f)
}

// within is change with a limit of its own.
func (s *Store) within(ctx context.Context, limit time.Duration, f func(ctx context.Context, tx pgx.Tx) error) error {
	if s.closed.Load() {
		return errClosed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	return wrap(s.again(ctx, func() error {
		return s.transaction(ctx, func(tx pgx.Tx) error { return f(ctx, tx) })
	}))
}

// again runs f until no other transaction gets in its way, and no connection
// that broke while nobody looked: what it was to send last was never sent, so a
// transaction on it is over. A row for which
// there is no partition yet (the clock has jumped) waits for it to be made.
func (s *Store) again(ctx context.Context, f func() error) error {
	made := false
	for try := 1; ; try++ {
		err := f()
		if sqlState(err) == "23514" && !made {
			made = true
			if err := s.ensurePartitions(ctx); err != nil {
				return err
			}
			continue
		}
		if err == nil || try == txTries || !contended(err) && !s.unnamed(err) && !pgconn.SafeToRetry(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(time.Duration(try) * 5 * time.Millisecond):
		}
	}
}

// do runs one statement by itself.
func (s *Store) do(ctx context.Context, sql string, args ...any) error {
	return s.again(ctx, func() error {
		_, err := s.pool.Exec(ctx, sql, args...)
		return err
	})
}

// contended tells errors of transactions that another one got in the way of:
// nothing was changed, and the same may succeed now.
func contended(err error) bool {
	switch sqlState(err) {
	case "40001", "40P01": // serialization_failure, deadlock_detected
		return true
	}
	return errors.Is(err, errInTheWay)
}

// errInTheWay is our own word for it.
var errInTheWay = unavailable("the database is busy", nil)

// unnamed tells errors of prepared statements that a pooler in transaction mode
// has sent to another session, and does without them from then on: a statement
// is then described once and sent whole each time, which costs a quarter more.
func (s *Store) unnamed(err error) bool {
	switch sqlState(err) {
	case "26000", "42P05": // invalid_sql_statement_name, duplicate_prepared_statement
	default:
		return false
	}
	if !s.pooled.Swap(true) {
		s.log.Info("a pooler in transaction mode lies before the database: going on without prepared statements")
		s.pool.Reset()
	}
	return true
}

func sqlState(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return ""
}

// gone tells errors after which nobody knows what the server did.
func gone(err error) bool {
	if err == nil || pgconn.SafeToRetry(err) {
		return false
	}
	if errors.Is(err, errUnconfirmed) {
		return true
	}
	if _, never := errors.AsType[*pgconn.ConnectError](err); never {
		return false // nothing was asked of it
	}
	if state := sqlState(err); state != "" {
		// The server said it itself, and rolled back; but not when it was told to go.
		return strings.HasPrefix(state, "57P") || strings.HasPrefix(state, "08")
	}
	return broken(err)
}

// broken tells errors of the connection rather than of what went over it.
func broken(err error) bool {
	_, network := errors.AsType[net.Error](err)
	return network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, net.ErrClosed) ||
		errors.Is(err, pgconn.ErrConnClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) || pgconn.Timeout(err)
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
	state := sqlState(err)
	class := ""
	if len(state) == 5 {
		class = state[:2]
	}
	switch {
	case state == "25006":
		return unavailable("the database takes no writes: it is a standby, or read-only", err)
	case state == "22021":
		return surehook.Errorf(surehook.InvalidRequest, "the request is invalid: a text has U+0000 in it, or isn't UTF-8").WithCause(err)
	case state == "53100":
		return unavailable("the database's disk is full", err)
	case class == "40" || state == "55P03" || state == "57014" || class == "25":
		return unavailable("the database is busy", err)
	case class == "53":
		return unavailable("the database has no room for another connection", err)
	case class == "57" || class == "58" || class == "08" || class == "XX":
		return unavailable("the database is going away", err)
	case class == "28" || state == "42501":
		return unavailable("the database refuses this user", err)
	case state != "":
		return surehook.Errorf(surehook.Internal, "the store failed").WithCause(err)
	case errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return unavailable("the database doesn't answer", err)
	}
	if _, ok := errors.AsType[net.Error](err); ok {
		return unavailable("the database can't be reached", err)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok {
		return unavailable("the database can't be reached", err)
	}
	if broken(err) || pgconn.SafeToRetry(err) {
		return unavailable("the connection to the database broke", err)
	}
	return surehook.Errorf(surehook.Internal, "the store failed").WithCause(err)
}

func notFound(what string) error {
	return surehook.Errorf(surehook.NotFound, "no such %s", what)
}

func conflict(message string) error { return surehook.Errorf(surehook.Conflict, "%s", message) }

// millis is how times are stored; the zero time is 0.
func millis(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

func at(ms int64) time.Time {
	if ms == 0 {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// now is the database's time.
func (s *Store) now(ctx context.Context, tx pgx.Tx) (ms int64, err error) {
	err = tx.QueryRow(ctx, s.q(`SELECT surehook.clock()`)).Scan(&ms)
	return ms, err
}
