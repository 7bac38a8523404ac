package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// beginWrite begins a transaction that writes. A node that stops in the middle
// of one must not keep its locks: its epoch can't end before. The limits are statements of the transaction,
// since a pooler in transaction mode knows no session. Statements aren't compiled: a
// way that is forbidden (see inOrder) counts as so dear that they would be, each time,
// which takes a hundred times as long as they do.
const beginWrite = `BEGIN; SET LOCAL statement_timeout = '30s'; SET LOCAL idle_in_transaction_session_timeout = '10s'; SET LOCAL jit = off`

// limits are those of beginWrite, where BEGIN has gone ahead.
const limits = `SELECT set_config('statement_timeout', '30s', true), set_config('idle_in_transaction_session_timeout', '10s', true), set_config('jit', 'off', true)`

// transaction runs f in a transaction, and commits.
func (s *Store) transaction(ctx context.Context, f func(tx pgx.Tx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if err := pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{BeginQuery: beginWrite}, f); err != nil {
		return err
	}
	return confirmed(conn)
}

// A commit that waits for a synchronous standby and is told not to wait any
// longer, by whom or what ever, is a success for the server, and a warning. To us
// it is a transaction whose end nobody knows: a standby that takes over may not
// have it.
var errUnconfirmed = unavailable("the database's standby didn't confirm the change", nil)

// unconfirmed is where a connection's data say that it got that warning.
const unconfirmed = "surehook_unconfirmed"

func noticed(conn *pgconn.PgConn, n *pgconn.Notice) {
	if n.Routine == "SyncRepWaitForLSN" { // texts are in the server's language
		conn.CustomData()[unconfirmed] = true
	}
}

// confirmed tells whether what conn committed last is where it is to be.
func confirmed(conn *pgxpool.Conn) error {
	data := conn.Conn().PgConn().CustomData()
	if data[unconfirmed] == nil {
		return nil
	}
	delete(data, unconfirmed)
	return errUnconfirmed
}

// terseTx is a transaction that travels little: it begins with its first batch
// and may end with its last.
type terseTx struct {
	c            *pgxpool.Conn
	begun, ended bool
}

// terse runs f in a terseTx, and commits unless f has done so.
func (s *Store) terse(ctx context.Context, f func(tx *terseTx) error) error {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	tx := &terseTx{c: conn}
	defer conn.Release() // in the middle of a transaction: the pool closes it
	if err := f(tx); err != nil {
		_ = tx.Rollback(ctx) // the error is f's
		return err
	}
	if err := tx.Commit(ctx); err != nil {
		return err
	}
	return confirmed(conn)
}

func (t *terseTx) begin(ctx context.Context) error {
	if t.begun {
		return nil
	}
	t.begun = true
	_, err := t.c.Exec(ctx, beginWrite)
	return err
}

// SendBatch sends the beginning along with the first batch.
func (t *terseTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if !t.begun {
		t.begun = true
		all := &pgx.Batch{}
		all.Queue(`begin`)
		all.QueuedQueries = append(all.QueuedQueries, b.QueuedQueries...)
		b = all
	}
	return t.c.SendBatch(ctx, b)
}

// last sends a batch and the commit behind it.
func (t *terseTx) last(ctx context.Context, b *pgx.Batch) error {
	b.Queue(`commit`)
	err := t.SendBatch(ctx, b).Close()
	t.ended = err == nil
	return err
}

// Exec implements pgx.Tx.
func (t *terseTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.begin(ctx); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.c.Exec(ctx, sql, args...)
}

// Query implements pgx.Tx.
func (t *terseTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.c.Query(ctx, sql, args...)
}

// QueryRow implements pgx.Tx.
func (t *terseTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	_ = t.begin(ctx) // the row's Scan meets the same error
	return t.c.QueryRow(ctx, sql, args...)
}

// Commit implements pgx.Tx. What the server turned into a rollback is an error.
func (t *terseTx) Commit(ctx context.Context) error {
	if !t.begun || t.ended {
		return nil
	}
	t.ended = true
	tag, err := t.c.Exec(ctx, `commit`)
	if err == nil && tag.String() == "ROLLBACK" {
		err = pgx.ErrTxCommitRollback
	}
	return err
}

// Rollback implements pgx.Tx.
func (t *terseTx) Rollback(ctx context.Context) error {
	if !t.begun || t.ended || t.c.Conn().IsClosed() {
		return nil
	}
	t.ended = true
	_, err := t.c.Exec(ctx, `rollback`)
	return err
}

// Begin implements pgx.Tx by a savepoint.
func (t *terseTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if err := t.begin(ctx); err != nil {
		return nil, err
	}
	return t.c.Begin(ctx)
}

// CopyFrom implements pgx.Tx.
func (t *terseTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource) (int64, error) {
	if err := t.begin(ctx); err != nil {
		return 0, err
	}
	return t.c.CopyFrom(ctx, table, columns, rows)
}

// Conn implements pgx.Tx.
func (t *terseTx) Conn() *pgx.Conn { return t.c.Conn() }

// LargeObjects implements pgx.Tx: there are none.
func (*terseTx) LargeObjects() pgx.LargeObjects { return pgx.LargeObjects{} }

// Prepare implements pgx.Tx.
func (t *terseTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	return t.c.Conn().Prepare(ctx, name, sql)
}

var _ pgx.Tx = (*terseTx)(nil)
