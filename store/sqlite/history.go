package sqlite

import (
	"context"
	"strings"

	"github.com/ncruces/go-sqlite3"
	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// Event implements surehook.History.
func (s *Store) Event(ctx context.Context, tenant *string, id string) (*surehook.Event, error) {
	if tenant == nil {
		e, err := s.event(ctx, `e.id = ? AND e.alias = ''`, id)
		if of, aliased := row.Unalias(id); aliased && surehook.CodeOf(err) == surehook.NotFound {
			return s.event(ctx, `e.id = ? AND e.alias = ? AND e.alias <> ''`, of, id)
		}
		return e, err
	}
	return s.event(ctx, `e.key IN (`+eventKeyByID+`)`, id, *tenant)
}

// EventByKey implements surehook.History.
func (s *Store) EventByKey(ctx context.Context, key int64) (*surehook.Event, error) {
	return s.event(ctx, `e.key = ?`, key)
}

func (s *Store) event(ctx context.Context, where string, args ...any) (*surehook.Event, error) {
	var e *surehook.Event
	err := s.read(ctx, func(c *conn) error {
		found, err := c.one(`SELECT `+eventColumns+`, e.data FROM events e WHERE `+where, args, func(st *sqlite3.Stmt) (err error) {
			if e, err = scanEvent(st, 0); err == nil {
				e.Data = st.ColumnBlob(eventColumnCount, nil)
			}
			return err
		})
		if err == nil && !found {
			err = notFound("event")
		}
		return err
	})
	return e, err
}

// ListEvents implements surehook.History.
func (s *Store) ListEvents(ctx context.Context, f surehook.EventFilter, p surehook.Page) ([]*surehook.Event, error) {
	var out []*surehook.Event
	err := s.read(ctx, func(c *conn) error {
		low, high, err := eventRange(c, f.Since, f.Until)
		if err != nil {
			return err
		}
		if p.Cursor > 0 {
			high = min(high, p.Cursor)
		}
		sql, args := eventQuery(f, low, high, row.PageSize(p))
		return c.each(sql, args, func(st *sqlite3.Stmt) error {
			e, err := scanEvent(st, 0)
			out = append(out, e)
			return err
		})
	})
	return out, err
}

// eventQuery chooses where to start from: few deliveries are pending or dead,
// so those are looked through, in their own order, rather than the events.
func eventQuery(f surehook.EventFilter, low, high int64, limit int) (string, []any) {
	var q query
	from, key := ` FROM events e`, `e.key`
	switch f.Status {
	case surehook.Pending:
		from, key = q.startFrom(`pending`, f), `x.event_key`
	case surehook.Dead:
		from, key = q.startFrom(`dead_letters`, f), `x.event_key`
	case surehook.Succeeded:
		at, args := seenBy(f.For, `x.endpoint_key`)
		if f.Endpoint != 0 {
			at, args = at+` AND x.endpoint_key = ?`, append(args, f.Endpoint)
		}
		q.add(`EXISTS (SELECT 1 FROM attempts x WHERE x.event_key = e.key AND x.status = 1 AND x.flags & 2 = 0`+at+`
			AND NOT EXISTS (SELECT 1 FROM pending y WHERE y.event_key = x.event_key AND y.endpoint_key = x.endpoint_key)
			AND NOT EXISTS (SELECT 1 FROM dead_letters y WHERE y.event_key = x.event_key AND y.endpoint_key = x.endpoint_key))`, args...)
	}
	q.ofWindow(key, f, max(low, f.Above), high)
	if f.Subject != "" {
		q.add(`instr(e.subjects, ?) > 0`, row.Item(f.Subject))
	}
	switch prefix, ok := strings.CutSuffix(f.Type, ".*"); {
	case ok:
		q.add(`e.type >= ? AND e.type < ?`, prefix+".", prefix+"/") // '/' follows '.'
	case f.Type != "":
		q.add(`e.type = ?`, f.Type)
	}
	return `SELECT ` + eventColumns + from + q.where() + ` ORDER BY ` + key + ` DESC LIMIT ?`, q.with(limit)
}

// ofWindow asks for a filter's tenant and partner, in its window.
func (q *query) ofWindow(key string, f surehook.EventFilter, low, high int64) {
	q.add(key+` >= ? AND `+key+` < ?`, low, high)
	q.within(`e.created_at`, f.Since, f.Until)
	if f.Tenant != "" {
		q.add(`e.tenant = ? AND e.tenant <> ''`, f.Tenant) // the second half lets the partial index in
	}
	if f.Partner != "" {
		q.add(`e.partner = ? AND e.partner <> ''`, f.Partner)
	}
}

// EventBelow implements surehook.History.
func (s *Store) EventBelow(ctx context.Context, f surehook.EventFilter, cursor int64, n int) (key int64, err error) {
	err = s.read(ctx, func(c *conn) error {
		low, high, err := eventRange(c, f.Since, f.Until)
		if err != nil {
			return err
		}
		if cursor > 0 {
			high = min(high, cursor)
		}
		var q query
		q.ofWindow(`e.key`, f, low, high)
		key, err = c.int64(`SELECT e.key FROM events e`+q.where()+` ORDER BY e.key DESC LIMIT 1 OFFSET ?`, q.with(n-1)...)
		return err
	})
	return key, err
}

// startFrom reads events by way of a table of deliveries, each event once.
func (q *query) startFrom(table string, f surehook.EventFilter) string {
	q.sees(f.For, `x.endpoint_key`)
	if f.Endpoint != 0 {
		q.add(`x.endpoint_key = ?`, f.Endpoint)
	} else {
		seen, args := seenBy(f.For, `y.endpoint_key`)
		q.add(`NOT EXISTS (SELECT 1 FROM `+table+` y WHERE y.event_key = x.event_key AND y.endpoint_key < x.endpoint_key`+seen+`)`, args...)
	}
	return ` FROM ` + table + ` x CROSS JOIN events e ON e.key = x.event_key`
}

// attemptColumns are an attempt with the names of what it belongs to.
const attemptColumns = `a.key, a.id, a.event_key, a.endpoint_key, a.number, a.status, a.code, a.http_status, a.error, a.response,
	a.created_at, a.duration_us, a.resolve_us, a.connect_us, a.tls_us, a.write_us, a.wait_us, a.read_us, a.next_due, a.flags,
	ifnull(e.id, ''), ifnull(e.type, ''), ifnull(w.id, '')
	FROM attempts a LEFT JOIN events e ON e.key = a.event_key LEFT JOIN endpoints w ON w.key = a.endpoint_key`

func scanAttempt(st *sqlite3.Stmt) surehook.Attempt {
	var id ulid.ULID
	copy(id[:], st.ColumnRawBlob(1))
	flags := st.ColumnInt(19)
	return surehook.Attempt{
		Key: st.ColumnInt64(0), ID: "dlv_" + id.String(), EventKey: st.ColumnInt64(2), EndpointKey: st.ColumnInt64(3),
		Number: st.ColumnInt(4), Status: row.Statuses[st.ColumnInt(5)], Code: surehook.Code(st.ColumnText(6)), HTTPStatus: st.ColumnInt(7),
		Error: st.ColumnText(8), Response: st.ColumnBlob(9, nil), CreatedAt: at(st.ColumnInt64(10)), Duration: micros(st, 11),
		Phases: surehook.Phases{Resolve: micros(st, 12), Connect: micros(st, 13), TLS: micros(st, 14), Write: micros(st, 15),
			Wait: micros(st, 16), Read: micros(st, 17)},
		NextDue: at(st.ColumnInt64(18)), Late: flags&row.Late != 0, Test: flags&row.Test != 0,
		EventID: st.ColumnText(20), EventType: st.ColumnText(21), EndpointID: st.ColumnText(22),
	}
}

// EventAttempts implements surehook.History, newest first by Key.
func (s *Store) EventAttempts(ctx context.Context, event, endpoint int64, p surehook.Page) ([]surehook.Attempt, error) {
	var q query
	q.add(`a.event_key = ?`, event)
	if endpoint != 0 {
		q.add(`a.endpoint_key = ?`, endpoint)
	}
	// +: sorts the event's few, rather than walking the endpoint's many in order.
	return s.attempts(ctx, &q, `+a.key`, p)
}

// EndpointAttempts implements surehook.History.
func (s *Store) EndpointAttempts(ctx context.Context, endpoint int64, p surehook.Page) ([]surehook.Attempt, error) {
	var q query
	q.add(`a.endpoint_key = ?`, endpoint)
	return s.attempts(ctx, &q, `a.key`, p)
}

func (s *Store) attempts(ctx context.Context, q *query, key string, p surehook.Page) ([]surehook.Attempt, error) {
	q.before(key, p.Cursor)
	var out []surehook.Attempt
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT `+attemptColumns+q.where()+` ORDER BY `+key+` DESC LIMIT ?`, q.with(row.PageSize(p)), func(st *sqlite3.Stmt) error {
			out = append(out, scanAttempt(st))
			return nil
		})
	})
	return out, err
}
