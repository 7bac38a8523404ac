package receiver

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"regexp"
	"time"
)

// SQL keeps ids in a table of your database, in the transaction in which your
// handler works: the effect and the id are there together, or neither is. It
// speaks to PostgreSQL and SQLite through any of their drivers.
type SQL struct {
	db    *sql.DB
	table string
	now   func() time.Time
	err   error
}

var tableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)?$`)

// NewSQL keeps ids in the table of that name, one table for each sender.
// CreateTable makes it, or your own migration does:
//
//	CREATE TABLE webhook_ids (id TEXT PRIMARY KEY, done_at BIGINT NOT NULL)
func NewSQL(db *sql.DB, table string) *SQL {
	s := &SQL{db: db, table: table, now: time.Now}
	switch {
	case db == nil:
		s.err = errors.New("receiver: no database")
	case !tableName.MatchString(table):
		s.err = errors.New("receiver: the table's name must be an identifier, with its schema's before it at most")
	}
	return s
}

func (s *SQL) check(time.Duration) error { return s.err }

// CreateTable makes the table, if it isn't there.
func (s *SQL) CreateTable(ctx context.Context) error {
	if s.err != nil {
		return s.err
	}
	_, err := s.db.ExecContext(ctx, fmt.Sprintf(`CREATE TABLE IF NOT EXISTS %s (id TEXT PRIMARY KEY, done_at BIGINT NOT NULL)`, s.table))
	return err
}

// Prune forgets ids that were done longer ago than keep, which must cover the
// sender's retries and replays. Call it now and then.
func (s *SQL) Prune(ctx context.Context, keep time.Duration) (int64, error) {
	if s.err != nil {
		return 0, s.err
	}
	r, err := s.db.ExecContext(ctx, fmt.Sprintf(`DELETE FROM %s WHERE done_at < $1`, s.table), s.now().Add(-keep).Unix())
	if err != nil {
		return 0, err
	}
	return r.RowsAffected()
}

type txKey struct{}

// Tx gives the transaction in which the event's id is kept. Whatever the
// handler does in it is there exactly once. Don't end it: it is committed when
// the handler has returned without an error, and rolled back otherwise.
func Tx(ctx context.Context) (*sql.Tx, bool) {
	tx, ok := ctx.Value(txKey{}).(*sql.Tx)
	return tx, ok
}

// Do implements Dedupe. A second call with the same id waits at the insert for
// the first one's commit.
func (s *SQL) Do(ctx context.Context, id string, effect func(ctx context.Context) error) (duplicate bool, err error) {
	if s.err != nil {
		return false, s.err
	}
	tx, err := s.db.BeginTx(ctx, nil)
	if err != nil {
		return false, err
	}
	defer func() { _ = tx.Rollback() }() // after the commit it does nothing
	//nolint:gosec // the name was checked to be an identifier
	r, err := tx.ExecContext(ctx, fmt.Sprintf(`INSERT INTO %s (id, done_at) VALUES ($1, $2) ON CONFLICT (id) DO NOTHING`, s.table), id, s.now().Unix())
	if err != nil {
		return false, err
	}
	n, err := r.RowsAffected()
	if err != nil {
		return false, err
	}
	if n == 0 {
		return true, nil
	}
	if err := effect(context.WithValue(ctx, txKey{}, tx)); err != nil {
		return false, err
	}
	return false, tx.Commit()
}
