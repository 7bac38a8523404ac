package sqlite

import (
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook/store/internal/row"
)

// An ordered endpoint's rows of one owner go out one at a time, the first first.
// Claims find rows by when they are due, so those that can't go are parked: due
// never, until one of their sequence is removed or comes free. Then the first of
// the sequence is made due, and the next claim looks whether it really can go. So
// this holds after every transaction:
//
//	of a parked row's sequence, an earlier one is pending or one is out

const (
	// parkRows parks those of the rows that a claim would find which can't go. One
	// that is out is waited for whatever its place: a replay may come before it.
	parkRows = `UPDATE pending SET due = ?1 WHERE +order_key IS NOT NULL AND endpoint_key = ?2 AND event_key IN (
			SELECT c.event_key FROM pending c WHERE c.endpoint_key = ?2 AND c.owner IS NULL AND c.due <= ?3`
	parkBlocked = ` ORDER BY c.due, c.event_key LIMIT ?4)
		AND (EXISTS (SELECT 1 FROM pending b WHERE b.endpoint_key = ?2 AND b.order_key = pending.order_key AND b.sequence < pending.sequence)
			OR EXISTS (SELECT 1 FROM pending b WHERE b.endpoint_key = ?2 AND b.order_key = pending.order_key AND b.owner IS NOT NULL))`
	parkAny   = parkRows + parkBlocked
	parkOther = parkRows + ` AND (c.lost < 3 OR c.lost >= 8)` + parkBlocked // while a suspect is held

	unparkFirst = `UPDATE pending SET due = ?1 WHERE due = ?2 AND endpoint_key = ?3 AND event_key IN (
		SELECT c.event_key FROM pending c WHERE c.endpoint_key = ?3 AND c.order_key = ?4 ORDER BY c.sequence LIMIT ?5)`
)

// park parks what a claim would find and can't have, and gives its number.
func park(c *conn, endpoint int64, limit int, now time.Time, held bool) (int, error) {
	sql := parkAny
	if held {
		sql = parkOther
	}
	n, err := c.exec(sql, row.Parked, endpoint, now, limit)
	return int(n), err
}

// unpark makes the first rows of sequences due that were waiting: about as many
// as most, and of each sequence one at least.
func unpark(c *conn, q row.Sequences, now time.Time, most int) error {
	q = q.Once()
	for _, s := range q {
		if _, err := c.exec(unparkFirst, now, row.Parked, s.Endpoint, s.Order, max(most/len(q), 1)); err != nil {
			return err
		}
	}
	return nil
}

// disorder makes every parked row of an endpoint due that isn't ordered any more.
func disorder(c *conn, endpoint int64, now time.Time) error {
	_, err := c.exec(`UPDATE pending SET due = ? WHERE endpoint_key = ? AND owner IS NULL AND due = ?`, now, endpoint, row.Parked)
	return err
}

// sequenced notes that rows of the endpoint may be in sequences. Only then is it
// worth a query at each outcome; most endpoints never are.
func (s *Store) sequenced(endpoint int64) { s.sequences[endpoint] = true }

// loadSequenced finds the endpoints whose rows are in sequences.
func (s *Store) loadSequenced(c *conn) error {
	s.sequences = make(map[int64]bool)
	return c.each(`SELECT DISTINCT endpoint_key FROM pending WHERE order_key IS NOT NULL`, nil, func(st *sqlite3.Stmt) error {
		s.sequenced(st.ColumnInt64(0))
		return nil
	})
}

// orderOf gives the sequence that a row is in; 0: none.
func (s *Store) orderOf(c *conn, event, endpoint int64) (int64, error) {
	if !s.sequences[endpoint] {
		return 0, nil
	}
	return c.int64(`SELECT ifnull(order_key, 0) FROM pending WHERE event_key = ? AND endpoint_key = ?`, event, endpoint)
}

// outOf gives the sequences that rows are out of.
func outOf(c *conn) (q row.Sequences, err error) {
	err = c.each(`SELECT endpoint_key, order_key FROM pending WHERE order_key IS NOT NULL AND owner IS NOT NULL`, nil, func(st *sqlite3.Stmt) error {
		q.Add(st.ColumnInt64(0), st.ColumnInt64(1))
		return nil
	})
	return q, err
}
