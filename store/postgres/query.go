package postgres

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// collect runs a query for all its rows.
func collect[T any](ctx context.Context, q rowsQuerier, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, scan)
}

// one runs a query for its first row; without one, what was asked for doesn't
// exist.
func one[T any](ctx context.Context, q rowsQuerier, what string, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	rows, err := q.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, err
	}
	out, err := pgx.CollectOneRow(rows, scan)
	if errors.Is(err, pgx.ErrNoRows) {
		err = notFound(what)
	}
	return out, err
}

// list runs a query for all its rows, in a snapshot of its own.
func list[T any](ctx context.Context, s *Store, scan pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	var out []T
	err := s.read(ctx, func(tx pgx.Tx) (err error) {
		out, err = collect(ctx, tx, scan, s.q(sql), args...)
		return err
	})
	return out, err
}

// find is list for one row.
func find[T any](ctx context.Context, s *Store, what string, scan pgx.RowToFunc[T], sql string, args ...any) (T, error) {
	var out T
	err := s.read(ctx, func(tx pgx.Tx) (err error) {
		out, err = one(ctx, tx, what, scan, s.q(sql), args...)
		return err
	})
	return out, err
}

// query gathers the conditions of a listing, and the values of its parameters.
type query struct {
	conds string
	args  []any
}

// arg adds a value and gives its parameter.
func (q *query) arg(v any) string {
	q.args = append(q.args, v)
	return "$" + strconv.Itoa(len(q.args))
}

// add adds a condition in which each ? stands for the next value.
func (q *query) add(cond string, args ...any) {
	if q.conds != "" {
		q.conds += " AND "
	}
	for _, a := range args {
		cond = strings.Replace(cond, "?", q.arg(a), 1)
	}
	q.conds += cond
}

// before asks for rows below a cursor; 0 is the top.
func (q *query) before(column string, cursor int64) {
	if cursor > 0 {
		q.add(column+` < ?`, cursor)
	}
}

// within asks for since ≤ column < until; a zero time is no bound.
func (q *query) within(column string, since, until time.Time) {
	if !since.IsZero() {
		q.add(column+` >= ?`, row.CeilMillis(since))
	}
	if !until.IsZero() {
		q.add(column+` < ?`, row.CeilMillis(until))
	}
}

// keysWithin bounds keys so that all rows of a window are among them.
func (q *query) keysWithin(column string, since, until time.Time) {
	if !since.IsZero() {
		q.add(column+` >= ?`, lowKey(since))
	}
	if !until.IsZero() {
		q.add(column+` < ?`, highKey(until))
	}
}

func (q *query) where() string {
	if q.conds == "" {
		return ""
	}
	return " WHERE " + q.conds
}

func (q *query) limit(p surehook.Page) string { return " LIMIT " + q.arg(row.PageSize(p)) }

// keySlack is how much wider than a time's key bounds are taken: an attempt
// began up to a timeout and a stay in the recorder before it got its key, and
// clocks are set back.
const keySlack = time.Hour

// An attempt is recorded after its event, so the conditions that name an event's
// attempts name its key less an hour's as well: that leaves out the partitions of
// the days before it.
const (
	hourOfKeys = int64(time.Hour/time.Millisecond) << keyBits
	keyHour    = `(3600000::bigint << 22)` // the same in SQL
)

// lowKey is below the keys of all rows since t.
func lowKey(t time.Time) int64 { return timeKey(t.Add(-keySlack)) }

// highKey is above the keys of all rows until t.
func highKey(t time.Time) int64 { return timeKey(t.Add(keySlack)) }

// timeKey is keyAt for times that others choose: keys have room for 69 years.
func timeKey(t time.Time) int64 { return keyAt(min(t.UnixMilli(), keyEpoch+maxKey>>keyBits)) }
