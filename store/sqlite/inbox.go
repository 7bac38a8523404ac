package sqlite

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// A row that is to be pulled is due from its commit on, as any other, until it has
// its number in an inbox; then it is due never, as parked ones are. The writer is one,
// so numbers ascend in the order of commits.

// feed sees to the inbox of an endpoint that is being made: its own, or that of a
// session that lives.
func feed(c *conn, e *surehook.Endpoint) error {
	switch e.Inbox {
	case 0:
		return nil
	case surehook.OwnInbox:
		e.Inbox = e.Key
		_, err := c.exec(`INSERT INTO inboxes (key) VALUES (?)`, e.Key)
		return err
	}
	var ended int64
	found, err := c.one(`SELECT ended_at FROM pull_sessions WHERE key = ? AND tenant = ? AND partner = ?`, []any{e.Inbox, e.Tenant, e.Partner}, func(st *sqlite3.Stmt) error {
		ended = st.ColumnInt64(0)
		return nil
	})
	switch {
	case err != nil:
		return err
	case !found:
		return notFound("session")
	case ended != 0:
		return errNotAlive
	}
	return nil
}

const (
	// newOf are rows of an inbox that have no number yet.
	newOf = ` FROM endpoints e CROSS JOIN pending p ON p.endpoint_key = e.key AND p.owner IS NULL AND p.due <= ?2
		WHERE e.inbox = ?1 AND e.inbox <> 0 AND e.deleted = 0`
	newRows = `SELECT p.event_key, p.due, ifnull((SELECT length(v.data) FROM events v WHERE v.key = p.event_key), 0)
		FROM pending p WHERE p.endpoint_key = ? AND p.owner IS NULL AND p.due <= ? ORDER BY p.due, p.event_key LIMIT ?`
	numberRow = `UPDATE pending SET inbox = ?, number = ?, size = ?, due = ? WHERE event_key = ? AND endpoint_key = ?`

	inboxPage = `SELECT p.number, p.id, p.endpoint_key, p.attempt, p.first_attempt, ` + eventColumns + `, e.data
		FROM pending p CROSS JOIN events e ON e.key = p.event_key WHERE p.inbox = ? AND p.number > ? ORDER BY p.number LIMIT ?`
)

// Pull implements surehook.Inboxes. Where enough has its number already, nothing is
// written.
func (s *Store) Pull(ctx context.Context, inbox, after int64, limit, maxBytes int) (surehook.Pulled, error) {
	var out surehook.Pulled
	var fresh int64
	page := func(c *conn) (err error) {
		out, err = pullPage(c, inbox, after, limit, maxBytes)
		return err
	}
	err := s.read(ctx, func(c *conn) error {
		err := page(c)
		if err == nil && !out.More {
			fresh, err = c.int64(`SELECT EXISTS (SELECT 1`+newOf+`)`, inbox, s.now())
		}
		return err
	})
	if err == nil && fresh == 1 {
		err = s.write(limit, func(c *conn) error {
			_, err := s.number(c, inbox, max(limit, row.NumberStep))
			return err
		})
		if err == nil {
			err = s.read(ctx, page)
		}
	}
	if err != nil {
		return surehook.Pulled{}, err
	}
	return out, nil
}

// number gives numbers to what has arrived, and tells to how many.
func (s *Store) number(c *conn, inbox int64, limit int) (int, error) {
	last, err := lastNumber(c, inbox)
	if err != nil {
		return 0, err
	}
	rows, err := unnumbered(c, inbox, s.now(), limit)
	if err != nil || len(rows) == 0 {
		return 0, err
	}
	for i, r := range rows {
		if _, err := c.exec(numberRow, inbox, last+1+int64(i), r.size, row.Parked, r.event, r.endpoint); err != nil {
			return 0, err
		}
	}
	_, err = c.exec(`UPDATE inboxes SET last = ? WHERE key = ?`, last+int64(len(rows)), inbox)
	return len(rows), err
}

// fresh is a row without a number.
type fresh struct{ event, endpoint, due, size int64 }

// unnumbered gives the first rows that have no number yet, of all endpoints that feed
// an inbox: of each as many, by its index.
func unnumbered(c *conn, inbox int64, now time.Time, limit int) ([]fresh, error) {
	endpoints, err := c.int64s(`SELECT key FROM endpoints WHERE inbox = ? AND inbox <> 0 AND deleted = 0`, inbox)
	if err != nil {
		return nil, err
	}
	var rows []fresh
	for _, endpoint := range endpoints {
		if err := c.each(newRows, []any{endpoint, now, limit}, func(st *sqlite3.Stmt) error {
			rows = append(rows, fresh{event: st.ColumnInt64(0), endpoint: endpoint, due: st.ColumnInt64(1), size: st.ColumnInt64(2)})
			return nil
		}); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(rows, func(a, b fresh) int {
		return cmp.Or(cmp.Compare(a.due, b.due), cmp.Compare(a.event, b.event), cmp.Compare(a.endpoint, b.endpoint))
	})
	return rows[:min(limit, len(rows))], nil
}

func lastNumber(c *conn, inbox int64) (last int64, err error) {
	found, err := c.one(`SELECT last FROM inboxes WHERE key = ?`, []any{inbox}, func(st *sqlite3.Stmt) error {
		last = st.ColumnInt64(0)
		return nil
	})
	if err == nil && !found {
		err = notFound("inbox")
	}
	return last, err
}

func pullPage(c *conn, inbox, after int64, limit, maxBytes int) (surehook.Pulled, error) {
	var out surehook.Pulled
	found, err := c.one(`SELECT dropped, last FROM inboxes WHERE key = ?`, []any{inbox}, func(st *sqlite3.Stmt) error {
		out.Dropped, out.Last = st.ColumnInt64(0), st.ColumnInt64(1)
		return nil
	})
	if err == nil && !found {
		err = notFound("inbox")
	}
	if err != nil {
		return out, err
	}
	size := 0
	err = c.each(inboxPage, []any{inbox, after, limit + 1}, func(st *sqlite3.Stmt) error {
		if len(out.Items) == limit || (size >= maxBytes && len(out.Items) > 0) {
			out.More = true
			return errEnough
		}
		e, err := scanEvent(st, 5)
		if err != nil {
			return err
		}
		e.Data = st.ColumnBlob(5+eventColumnCount, nil)
		size += len(e.Data)
		out.Items = append(out.Items, surehook.Item{Number: st.ColumnInt64(0), Event: e, Delivery: surehook.Delivery{ID: st.ColumnInt64(1), EventKey: e.Key,
			EndpointKey: st.ColumnInt64(2), Attempt: st.ColumnInt(3), FirstAttempt: st.ColumnInt(4)}})
		return nil
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return out, err
}

// Numbered implements surehook.Inboxes.
func (s *Store) Numbered(ctx context.Context, inbox, upTo int64, limit int) ([]surehook.Delivery, error) {
	var out []surehook.Delivery
	err := s.read(ctx, func(c *conn) error {
		last, err := lastNumber(c, inbox)
		if err == nil && upTo > last {
			err = row.ErrNumber
		}
		if err == nil {
			out, err = numbered(c, inbox, upTo, limit)
		}
		return err
	})
	return out, err
}

func numbered(c *conn, inbox, upTo int64, limit int) (out []surehook.Delivery, err error) {
	err = c.each(`SELECT event_key, endpoint_key, id, attempt, first_attempt FROM pending WHERE inbox = ? AND number <= ? ORDER BY number LIMIT ?`,
		[]any{inbox, upTo, limit}, func(st *sqlite3.Stmt) error {
			out = append(out, surehook.Delivery{EventKey: st.ColumnInt64(0), EndpointKey: st.ColumnInt64(1), ID: st.ColumnInt64(2), Attempt: st.ColumnInt(3), FirstAttempt: st.ColumnInt(4)})
			return nil
		})
	return out, err
}

// overBound finds the highest number of what is over an inbox's bound.
const overBound = `SELECT ifnull(max(number), 0) FROM (SELECT number, row_number() OVER w AS events, sum(size) OVER w AS bytes
	FROM pending WHERE inbox = ? WINDOW w AS (ORDER BY number DESC ROWS UNBOUNDED PRECEDING)) WHERE events > ? OR bytes > ?`

// Trim implements surehook.Inboxes.
func (s *Store) Trim(_ context.Context, inbox int64, b *surehook.InboxBound, code surehook.Code, limit int) (ended int, more bool, err error) {
	err = s.write(2*limit, func(c *conn) error {
		ended, more = 0, false
		n, err := s.number(c, inbox, limit)
		if err != nil {
			return err
		}
		if more = b != nil && n == limit; more {
			return nil // the bound is looked at once all have their numbers
		}
		upTo := int64(math.MaxInt64)
		if b != nil {
			if upTo, err = c.overBound(inbox, b); err != nil || upTo == 0 {
				return err
			}
		}
		rows, err := numbered(c, inbox, upTo, limit)
		if err != nil {
			return err
		}
		ended, more = len(rows), n == limit || len(rows) == limit
		return s.end(c, rows, code, s.now(), true, 1)
	})
	return ended, more, err
}

// overBound finds the highest number of what is over an inbox's bound; 0: nothing is.
// Mostly the sums say so.
func (c *conn) overBound(inbox int64, b *surehook.InboxBound) (int64, error) {
	within, err := c.int64(`SELECT count(*) <= ? AND ifnull(sum(size), 0) <= ? FROM pending WHERE inbox = ?`, orMost(b.Events), orMost(b.Bytes), inbox)
	if err != nil || within == 1 {
		return 0, err
	}
	return c.int64(overBound, inbox, orMost(b.Events), orMost(b.Bytes))
}

func orMost(bound int64) int64 {
	if bound <= 0 {
		return math.MaxInt64
	}
	return bound
}

// dropping counts a row that is about to leave its inbox unfinished.
func dropping(c *conn, d *surehook.Delivery) error {
	_, err := c.exec(`UPDATE inboxes SET dropped = dropped + 1 WHERE key = (SELECT nullif(e.inbox, 0) FROM pending p JOIN endpoints e ON e.key = p.endpoint_key
		WHERE p.event_key = ? AND p.endpoint_key = ?)`, d.EventKey, d.EndpointKey)
	return err
}

// InboxStates implements surehook.Inboxes.
func (s *Store) InboxStates(ctx context.Context, inboxes ...int64) ([]surehook.InboxState, error) {
	var out []surehook.InboxState
	err := s.read(ctx, func(c *conn) error {
		if len(inboxes) == 0 {
			keys, err := c.int64s(`SELECT i.key FROM inboxes i WHERE EXISTS (SELECT 1 FROM pending p WHERE p.inbox = i.key) ORDER BY i.key`)
			if err != nil {
				return err
			}
			inboxes = keys
		}
		for _, key := range inboxes {
			if err := c.each(`SELECT i.dropped, count(p.number), ifnull(sum(p.size), 0), ifnull((SELECT e.created_at FROM pending f JOIN events e ON e.key = f.event_key
					WHERE f.inbox = i.key ORDER BY f.number LIMIT 1), 0)
				FROM inboxes i LEFT JOIN pending p ON p.inbox = i.key WHERE i.key = ? GROUP BY i.key`, []any{key}, func(st *sqlite3.Stmt) error {
				out = append(out, surehook.InboxState{Inbox: key, Dropped: st.ColumnInt64(0), Events: st.ColumnInt64(1), Bytes: st.ColumnInt64(2), Oldest: at(st.ColumnInt64(3))})
				return nil
			}); err != nil {
				return err
			}
		}
		return nil
	})
	return out, err
}
