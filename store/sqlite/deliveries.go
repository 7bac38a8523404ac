package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// EventDeliveries implements surehook.History, by EndpointKey, which is also
// the cursor. A delivery is what has a pending row, a dead letter or an attempt.
func (s *Store) EventDeliveries(ctx context.Context, event int64, p surehook.Page) ([]surehook.DeliveryView, error) {
	var out []surehook.DeliveryView
	err := s.read(ctx, func(c *conn) error {
		keys, err := c.int64s(`SELECT endpoint_key FROM pending WHERE event_key = ?1 AND endpoint_key > ?2
			UNION SELECT endpoint_key FROM dead_letters WHERE event_key = ?1 AND endpoint_key > ?2
			UNION SELECT endpoint_key FROM attempts WHERE event_key = ?1 AND endpoint_key > ?2 AND flags & 2 = 0
			ORDER BY endpoint_key LIMIT ?3`, event, p.Cursor, row.PageSize(p))
		if err != nil {
			return err
		}
		for _, k := range keys {
			v, err := viewDelivery(c, event, k)
			if err != nil {
				return err
			}
			out = append(out, v)
		}
		return nil
	})
	return out, err
}

// deliveriesBy finds the events of an endpoint's deliveries in one status.
// Those that succeeded are sought among the endpoint's attempts alone, in an
// index that holds all that is asked for.
var deliveriesBy = map[surehook.DeliveryStatus]string{
	surehook.Pending: `SELECT event_key FROM pending WHERE endpoint_key = ? AND event_key < ? ORDER BY event_key DESC LIMIT ?`,
	surehook.Dead:    `SELECT event_key FROM dead_letters WHERE endpoint_key = ? AND event_key < ? ORDER BY event_key DESC LIMIT ?`,
	surehook.Succeeded: `SELECT DISTINCT a.event_key FROM attempts a INDEXED BY attempts_endpoint
		WHERE a.endpoint_key = ? AND a.event_key < ? AND a.status = 1 AND a.flags & 2 = 0
		AND NOT EXISTS (SELECT 1 FROM pending y WHERE y.event_key = a.event_key AND y.endpoint_key = a.endpoint_key)
		AND NOT EXISTS (SELECT 1 FROM dead_letters y WHERE y.event_key = a.event_key AND y.endpoint_key = a.endpoint_key)
		ORDER BY a.event_key DESC LIMIT ?`,
	"": `SELECT event_key FROM pending WHERE endpoint_key = ?1 AND event_key < ?2
		UNION SELECT event_key FROM dead_letters WHERE endpoint_key = ?1 AND event_key < ?2
		UNION SELECT event_key FROM attempts INDEXED BY attempts_endpoint WHERE endpoint_key = ?1 AND event_key < ?2 AND flags & 2 = 0
		ORDER BY event_key DESC LIMIT ?3`,
}

// ListDeliveries implements surehook.History; the cursor is the EventKey.
func (s *Store) ListDeliveries(ctx context.Context, f surehook.DeliveryFilter, p surehook.Page) ([]surehook.DeliveryView, error) {
	sql, ok := deliveriesBy[f.Status]
	if !ok {
		return nil, surehook.Invalid("status", "must be pending, succeeded or dead")
	}
	below := p.Cursor
	if below == 0 {
		below = 1 << 62
	}
	var out []surehook.DeliveryView
	err := s.read(ctx, func(c *conn) error {
		keys, err := c.int64s(sql, f.Endpoint, below, row.PageSize(p))
		if err != nil {
			return err
		}
		for _, k := range keys {
			v, err := viewDelivery(c, k, f.Endpoint)
			if err != nil {
				return err
			}
			out = append(out, v)
		}
		return nil
	})
	return out, err
}

// viewDelivery puts a delivery together: a pending row counts first, then a
// dead letter, then what its attempts came to.
func viewDelivery(c *conn, event, endpoint int64) (surehook.DeliveryView, error) {
	v := surehook.DeliveryView{EventKey: event, EndpointKey: endpoint, Status: surehook.Dead}
	if _, err := c.one(`SELECT ifnull((SELECT id FROM events WHERE key = ?1), ''), ifnull((SELECT type FROM events WHERE key = ?1), ''),
		ifnull((SELECT id FROM endpoints WHERE key = ?2), '')`, []any{event, endpoint}, func(st *sqlite3.Stmt) error {
		v.EventID, v.EventType, v.EndpointID = st.ColumnText(0), st.ColumnText(1), st.ColumnText(2)
		return nil
	}); err != nil {
		return v, err
	}
	// By key, which is the order of recording: a success that was recorded after
	// a failure of a higher number still ended the delivery. Late failures don't.
	counted := false
	if err := c.each(`SELECT number, status, code, http_status, created_at, flags & 1 FROM attempts
		WHERE event_key = ? AND endpoint_key = ? AND flags & 2 = 0 ORDER BY +key`, []any{event, endpoint}, func(st *sqlite3.Stmt) error {
		v.Attempts = max(v.Attempts, st.ColumnInt(0))
		late := st.ColumnBool(5)
		if late && counted {
			return nil
		}
		counted = counted || !late
		v.Status = surehook.Dead // given up without a letter, or the letter was discarded
		if row.Statuses[st.ColumnInt(1)] == surehook.AttemptSucceeded {
			v.Status = surehook.Succeeded
		}
		v.LastCode, v.LastStatus, v.LastAttemptAt = surehook.Code(st.ColumnText(2)), st.ColumnInt(3), at(st.ColumnInt64(4))
		return nil
	}); err != nil {
		return v, err
	}
	pending, err := c.one(`SELECT due, owner IS NULL FROM pending WHERE event_key = ? AND endpoint_key = ?`, []any{event, endpoint}, func(st *sqlite3.Stmt) error {
		v.Status = surehook.Pending
		if due := st.ColumnInt64(0); due < row.Parked {
			v.NextAttemptAt = at(due)
		}
		return nil
	})
	if err != nil || pending {
		return v, err
	}
	_, err = c.one(`SELECT 1 FROM dead_letters WHERE event_key = ? AND endpoint_key = ?`, []any{event, endpoint}, func(*sqlite3.Stmt) error {
		v.Status = surehook.Dead
		return nil
	})
	return v, err
}

// int64s runs a query for a column of numbers.
func (c *conn) int64s(sql string, args ...any) ([]int64, error) {
	var out []int64
	err := c.each(sql, args, func(st *sqlite3.Stmt) error {
		out = append(out, st.ColumnInt64(0))
		return nil
	})
	return out, err
}
