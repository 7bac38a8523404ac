package sqlite

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// A row that was lost with its process this often is a suspect: it is claimed
// alone, and only while no other suspect is held, so that a crash tells which of
// them it was. And this often, it is given up.
const (
	lostAlone = 3 // as in the statements below, and in the index pending_suspects
	lostDead  = 8
)

// suspectRetry is the time until an endpoint whose suspects wait for another
// one to come back should look again.
const suspectRetry = time.Second

const (
	claimRows = `SELECT p.event_key, p.id, p.attempt, p.first_attempt, p.due, p.lost, ` + eventColumns + `, e.data
		FROM pending p JOIN events e ON e.key = p.event_key
		WHERE p.endpoint_key = ? AND p.owner IS NULL AND p.due <= ?`
	claimOrder = ` ORDER BY p.due, p.event_key LIMIT ?`
	claimAny   = claimRows + claimOrder
	claimOther = claimRows + ` AND (p.lost < 3 OR p.lost >= 8)` + claimOrder // while a suspect is held

	nextAny     = `SELECT due FROM pending WHERE endpoint_key = ? AND owner IS NULL ORDER BY due LIMIT 1`
	nextOther   = `SELECT due FROM pending WHERE endpoint_key = ? AND owner IS NULL AND lost < 3 ORDER BY due LIMIT 1`
	nextSuspect = `SELECT due FROM pending WHERE lost >= 3 AND owner IS NULL AND endpoint_key = ? ORDER BY due LIMIT 1`
	heldSuspect = `SELECT EXISTS (SELECT 1 FROM pending WHERE lost >= 3 AND owner = ?)`
)

// errEnough ends a query that has given what was wanted.
var errEnough = errors.New("enough")

// Claim implements surehook.Queue.
func (s *Store) Claim(_ context.Context, endpoint int64, limit, maxBytes int) (surehook.Claim, error) {
	var out surehook.Claim
	err := s.write(limit, func(c *conn) error {
		out = surehook.Claim{}
		ordered := false
		if _, err := c.one(`SELECT version, ordered FROM endpoints WHERE key = ? AND enabled = 1 AND deleted = 0`, []any{endpoint}, func(st *sqlite3.Stmt) error {
			out.Version, ordered = st.ColumnInt64(0), st.ColumnBool(1)
			return nil
		}); err != nil || out.Version == 0 {
			return err
		}
		held, err := c.int64(heldSuspect, s.epoch.Load())
		if err != nil {
			return err
		}
		now, left := s.now(), limit
		if ordered {
			n, err := park(c, endpoint, limit, now, held == 1)
			if err != nil {
				return err
			}
			left -= n
		}
		if err := s.claim(c, endpoint, left, maxBytes, now, held == 1, &out); err != nil {
			return err
		}
		if len(out.Rows) > 0 && out.Rows[0].Delivery.Lost >= lostAlone {
			held = 1
		}
		return claimNext(c, endpoint, now, held == 1, &out)
	})
	return out, err
}

// claimNext says when the endpoint should ask again. While a suspect is held,
// the others that are due count as due in a moment: only they wait for it.
func claimNext(c *conn, endpoint int64, now time.Time, held bool, out *surehook.Claim) error {
	first := func(sql string) (due time.Time, err error) {
		_, err = c.one(sql, []any{endpoint}, func(st *sqlite3.Stmt) error {
			if ms := st.ColumnInt64(0); ms < row.Parked {
				due = at(ms)
			}
			return nil
		})
		return due, err
	}
	sql := nextAny
	if held {
		sql = nextOther
	}
	var err error
	if out.Next, err = first(sql); err != nil {
		return err
	}
	out.More = !out.Next.IsZero() && !out.Next.After(now)
	if !held || out.More {
		return nil
	}
	suspect, err := first(nextSuspect)
	if err != nil || suspect.IsZero() {
		return err
	}
	if !suspect.After(now) {
		suspect = now.Add(suspectRetry)
	}
	if out.Next.IsZero() || suspect.Before(out.Next) {
		out.Next = suspect
	}
	return nil
}

func (s *Store) claim(c *conn, endpoint int64, limit, maxBytes int, now time.Time, held bool, out *surehook.Claim) error {
	var crashed []surehook.Delivery
	epoch, size, full := s.epoch.Load(), 0, false
	sql := claimAny
	if held {
		sql = claimOther
	}
	err := c.each(sql, []any{endpoint, now, limit}, func(st *sqlite3.Stmt) error {
		d := surehook.Delivery{EventKey: st.ColumnInt64(0), EndpointKey: endpoint, ID: st.ColumnInt64(1), Epoch: epoch,
			Attempt: st.ColumnInt(2), FirstAttempt: st.ColumnInt(3), Due: at(st.ColumnInt64(4)), Lost: st.ColumnInt(5)}
		switch {
		case full:
			return errEnough
		case d.Lost >= lostDead:
			crashed = append(crashed, d)
			return nil
		case d.Lost >= lostAlone && len(out.Rows) > 0:
			return errEnough
		}
		e, err := scanEvent(st, 6)
		if err != nil {
			return err
		}
		e.Data = st.ColumnBlob(6+eventColumnCount, nil)
		out.Rows = append(out.Rows, surehook.Claimed{Delivery: d, Event: e})
		size += len(e.Data)
		full = size >= maxBytes || d.Lost >= lostAlone
		return nil
	})
	if err != nil && !errors.Is(err, errEnough) {
		return err
	}
	for i := range out.Rows {
		d := &out.Rows[i].Delivery
		if _, err := c.exec(`UPDATE pending SET owner = ? WHERE event_key = ? AND endpoint_key = ?`, epoch, d.EventKey, endpoint); err != nil {
			return err
		}
	}
	return s.end(c, crashed, surehook.Crashed, now, true, 1)
}

// end removes free rows; with letters each leaves a dead letter, and an attempt
// that tells why no request was made. Of the rows that waited for them, about as
// many as more come due: of each sequence one at least.
func (s *Store) end(c *conn, rows []surehook.Delivery, code surehook.Code, now time.Time, letters bool, more int) error {
	var orders row.Sequences
	for i := range rows {
		d := &rows[i]
		order, err := s.orderOf(c, d.EventKey, d.EndpointKey)
		if err != nil {
			return err
		}
		orders.Add(d.EndpointKey, order)
		if err := dropping(c, d); err != nil {
			return err
		}
		if _, err := c.exec(`DELETE FROM pending WHERE event_key = ? AND endpoint_key = ? AND owner IS NULL`, d.EventKey, d.EndpointKey); err != nil {
			return err
		}
		if !letters {
			continue
		}
		a := surehook.Attempt{Key: s.keys.take(1), ID: newAttemptID(now), EventKey: d.EventKey, EndpointKey: d.EndpointKey, Number: d.Attempt + 1,
			Status: surehook.AttemptDead, Code: code, CreatedAt: now}
		if _, err := s.insertAttempt(c, &a); err != nil {
			return err
		}
		if err := s.bury(c, d, code, 0, a.Number, now); err != nil {
			return err
		}
	}
	return unpark(c, orders, now, more)
}

// End implements surehook.Queue.
func (s *Store) End(_ context.Context, endpoint int64, code surehook.Code, dueOnly, letters bool, limit int) (int, error) {
	var n int
	err := s.write(limit, func(c *conn) error {
		n = 0
		// It may have been enabled again since the caller looked.
		if live, err := c.int64(`SELECT count(*) FROM endpoints WHERE key = ? AND enabled = 1 AND deleted = 0`, endpoint); err != nil || live > 0 {
			return err
		}
		now, before := s.now(), int64(math.MaxInt64)
		if dueOnly {
			before = millis(now)
		}
		// Of an ordered endpoint, more rows come due as those before them end.
		for n < limit {
			rows, err := ending(c, endpoint, before, limit-n)
			if err != nil || len(rows) == 0 {
				return err
			}
			n += len(rows)
			if err := s.end(c, rows, code, now, letters, limit-n); err != nil {
				return err
			}
		}
		return nil
	})
	return n, err
}

// ending finds free rows that are to be ended.
func ending(c *conn, endpoint, before int64, limit int) ([]surehook.Delivery, error) {
	var rows []surehook.Delivery
	err := c.each(`SELECT event_key, id, attempt, first_attempt FROM pending
		WHERE endpoint_key = ? AND owner IS NULL AND due <= ? ORDER BY due, event_key LIMIT ?`, []any{endpoint, before, limit}, func(st *sqlite3.Stmt) error {
		rows = append(rows, surehook.Delivery{EventKey: st.ColumnInt64(0), EndpointKey: endpoint, ID: st.ColumnInt64(1),
			Attempt: st.ColumnInt(2), FirstAttempt: st.ColumnInt(3)})
		return nil
	})
	return rows, err
}

// Due implements surehook.Queue by a skip scan: one index probe an endpoint,
// whatever the number of rows.
func (s *Store) Due(ctx context.Context) ([]surehook.EndpointDue, error) {
	var out []surehook.EndpointDue
	err := s.read(ctx, func(c *conn) error {
		out = out[:0]
		last := int64(-1)
		for {
			found, err := c.one(`SELECT endpoint_key, due FROM pending WHERE owner IS NULL AND endpoint_key > ?
				ORDER BY endpoint_key, due LIMIT 1`, []any{last}, func(st *sqlite3.Stmt) error {
				last = st.ColumnInt64(0)
				if due := st.ColumnInt64(1); due < row.Parked {
					out = append(out, surehook.EndpointDue{EndpointKey: last, Due: at(due)})
				}
				return nil
			})
			if err != nil || !found {
				return err
			}
		}
	})
	return out, err
}

// heldSQL finds the endpoints that are paused, or whose partners are suspended.
const heldSQL = `SELECT e.key FROM partners p CROSS JOIN endpoints e ON e.tenant = '' AND e.partner = p.id AND e.deleted = 0 WHERE p.suspended = 1 AND e.enabled = 1
	UNION ALL SELECT e.key FROM partners p CROSS JOIN tenants t ON t.partner = p.id AND t.partner <> '' CROSS JOIN endpoints e ON e.tenant = t.id AND e.deleted = 0
	WHERE p.suspended = 1 AND e.enabled = 1
	UNION ALL SELECT e.key FROM endpoints e WHERE e.limits LIKE '%"paused":true%' AND e.deleted = 0 AND e.enabled = 1`

// PendingCount implements surehook.Queue.
func (s *Store) PendingCount(ctx context.Context) (surehook.PendingCount, error) {
	var n surehook.PendingCount
	err := s.read(ctx, func(c *conn) error {
		_, err := c.one(`SELECT count(*) FILTER (WHERE owned), count(*) FILTER (WHERE ready AND NOT held), count(*) FILTER (WHERE NOT owned AND NOT ready),
			count(*) FILTER (WHERE ready AND held), ifnull(min(due) FILTER (WHERE ready AND NOT held), 0)
			FROM (SELECT owner IS NOT NULL AS owned, owner IS NULL AND due <= ? AS ready, endpoint_key IN (`+heldSQL+`) AS held, due FROM pending)`,
			[]any{s.now()}, func(st *sqlite3.Stmt) error {
				n = surehook.PendingCount{Owned: st.ColumnInt64(0), Due: st.ColumnInt64(1), Waiting: st.ColumnInt64(2), Held: st.ColumnInt64(3), OldestDue: at(st.ColumnInt64(4))}
				return nil
			})
		return err
	})
	return n, err
}
