package postgres

import (
	"cmp"
	"context"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook/store/internal/row"
)

// An ordered endpoint's rows of one owner go out one at a time, the first first.
// Claims find rows by when they are due, so those that can't go are parked: due
// never, until one of their sequence is removed or comes free. Then the first of
// the sequence is made due, whoever it was that made room; the next claim looks
// whether it really can go. So this holds after every transaction:
//
//	of a parked row's sequence, an earlier one is pending or one is out
//
// Claims of an ordered endpoint and those who make room there keep each other out
// until their commits. Else a claim could find a row that was just appended, and
// park it behind one that is going, after that one's transaction has looked for
// rows to be made due.
//
// Locks are taken in one order by all, so that no two wait for each other: nodes,
// claims of endpoints by key, an endpoint's row, pending rows by event and
// endpoint. Whoever comes to need an earlier one later on doesn't wait for it, but
// begins again.

const claimsOf = " claims of "

func (s *Store) excludeClaims(ctx context.Context, tx pgx.Tx, endpoint int64) error {
	return s.exclude(ctx, tx, claimsOf[1:]+strconv.FormatInt(endpoint, 10))
}

// excludeAll is excludeClaims for those endpoints that are ordered: keys, and
// what the locks' names begin with.
const excludeAll = `SELECT pg_advisory_xact_lock(hashtextextended($2 || key, 0)) FROM (
	SELECT key FROM surehook.endpoints WHERE key = ANY($1) AND ordered ORDER BY key OFFSET 0) x`

// claimsOut tells whether claims of all these endpoints are kept out, now if not
// before.
func (s *Store) claimsOut(ctx context.Context, tx pgx.Tx, endpoints []int64) (out bool, err error) {
	err = tx.QueryRow(ctx, `SELECT bool_and(pg_try_advisory_xact_lock(hashtextextended($2 || key, 0))) FROM unnest($1::bigint[]) key`,
		endpoints, s.opt.Schema+claimsOf).Scan(&out)
	return out, err
}

// ordered tells whether the endpoint is, now.
func (s *Store) ordered(ctx context.Context, tx pgx.Tx, endpoint int64) (ordered bool, err error) {
	err = tx.QueryRow(ctx, s.q(`SELECT coalesce((SELECT ordered FROM surehook.endpoints WHERE key = $1), false)`), endpoint).Scan(&ordered)
	return ordered, err
}

// heads keeps of an ordered endpoint's rows those that can go, and parks the
// others. One that is out already is waited for whatever its place: a replay may
// come before it.
func (s *Store) heads(ctx context.Context, tx pgx.Tx, endpoint int64, rows []candidate) ([]candidate, error) {
	events := make([]int64, 0, len(rows))
	for _, c := range rows {
		if c.order != 0 {
			events = append(events, c.EventKey)
		}
	}
	blocked, err := tx.Query(ctx, s.q(`UPDATE surehook.pending p SET due = $3 WHERE p.endpoint_key = $1 AND p.event_key = ANY($2)
		AND (EXISTS (SELECT 1 FROM surehook.pending b WHERE b.endpoint_key = $1 AND b.order_key = p.order_key AND b.sequence < p.sequence)
			OR EXISTS (SELECT 1 FROM surehook.pending b WHERE b.endpoint_key = $1 AND b.order_key = p.order_key AND b.owner IS NOT NULL))
		RETURNING p.event_key`), endpoint, events, row.Parked)
	if err != nil {
		return nil, err
	}
	behind := make(map[int64]bool)
	var key int64
	if _, err := pgx.ForEachRow(blocked, []any{&key}, func() error { behind[key] = true; return nil }); err != nil {
		return nil, err
	}
	return slices.DeleteFunc(rows, func(c candidate) bool { return behind[c.EventKey] }), nil
}

// unpark makes the first rows of sequences due that were waiting: about as many
// as most, and of each sequence one at least.
func (s *Store) unpark(ctx context.Context, tx pgx.Tx, q row.Sequences, now int64, most int) error {
	if len(q) == 0 {
		return nil
	}
	q = q.Once()
	endpoints, orders := make([]int64, len(q)), make([]int64, len(q))
	for i, s := range q {
		endpoints[i], orders[i] = s.Endpoint, s.Order
	}
	if out, err := s.claimsOut(ctx, tx, slices.Compact(slices.Clone(endpoints))); err != nil || !out {
		return cmp.Or(err, errInTheWay)
	}
	// A row that is locked all the same is being removed, by one who will have to
	// keep claims out too and then see to its sequence, or made due.
	rows, err := tx.Query(ctx, s.q(`SELECT h.endpoint_key, h.event_key FROM unnest($1::bigint[], $2::bigint[]) x(endpoint_key, order_key)
		CROSS JOIN LATERAL (SELECT p.endpoint_key, p.event_key FROM surehook.pending p WHERE p.endpoint_key = x.endpoint_key
			AND p.order_key = x.order_key ORDER BY p.sequence LIMIT $3 FOR UPDATE SKIP LOCKED) h`), endpoints, orders, max(most/len(q), 1))
	if err != nil {
		return err
	}
	var firstOf, first []int64
	var endpoint, event int64
	if _, err := pgx.ForEachRow(rows, []any{&endpoint, &event}, func() error {
		firstOf, first = append(firstOf, endpoint), append(first, event)
		return nil
	}); err != nil || len(first) == 0 {
		return err
	}
	// A statement of its own: it sees what whoever held the lock has written.
	_, err = tx.Exec(ctx, s.q(`UPDATE surehook.pending p SET due = $3 FROM unnest($1::bigint[], $2::bigint[]) x(endpoint_key, event_key)
		WHERE p.endpoint_key = x.endpoint_key AND p.event_key = x.event_key AND p.due = $4`), firstOf, first, now, row.Parked)
	return err
}

// disorder makes every parked row of an endpoint due that isn't ordered any
// more. Claims are kept out already: one that runs may be parking more.
func (s *Store) disorder(ctx context.Context, tx pgx.Tx, endpoint, now int64) error {
	_, err := tx.Exec(ctx, s.q(`UPDATE surehook.pending p SET due = $2 FROM (SELECT event_key FROM surehook.pending
		WHERE endpoint_key = $1 AND owner IS NULL AND due = $3 ORDER BY event_key FOR UPDATE) x
		WHERE p.endpoint_key = $1 AND p.event_key = x.event_key`), endpoint, now, row.Parked)
	return err
}
