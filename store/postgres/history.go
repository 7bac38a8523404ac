package postgres

import (
	"context"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// Event implements surehook.History.
func (s *Store) Event(ctx context.Context, tenant *string, id string) (*surehook.Event, error) {
	var q query
	if tenant != nil {
		q.add(`id IN (?, ?) AND tenant = ?`, id, sharedID(id, *tenant), *tenant)
	} else {
		q.add(`id = ?`, id)
	}
	var e *surehook.Event
	err := s.read(ctx, func(tx pgx.Tx) error {
		key, err := one(ctx, tx, "event", pgx.RowTo[int64], s.q(`SELECT key FROM surehook.event_keys`+q.where()+` ORDER BY key DESC LIMIT 1`), q.args...)
		if of, aliased := row.Unalias(id); aliased && tenant == nil && surehook.CodeOf(err) == surehook.NotFound {
			e, err = s.eventByAlias(ctx, tx, of, id)
			return err
		}
		if err != nil {
			return err
		}
		// By a key that the server knows when it plans, it looks at one partition.
		e, err = one(ctx, tx, "event", scanEventData, s.q(eventByKey), key)
		return err
	})
	return e, err
}

// eventByAlias looks among the events that have the id behind other tenants.
func (s *Store) eventByAlias(ctx context.Context, tx pgx.Tx, id, alias string) (*surehook.Event, error) {
	const many = 1000
	keys, err := collect(ctx, tx, pgx.RowTo[int64], s.q(`SELECT key FROM surehook.event_keys WHERE id >= $1 AND id < $2 ORDER BY id LIMIT $3`), id+" ", id+"!", many)
	if err != nil {
		return nil, err
	}
	return one(ctx, tx, "event", scanEventData, s.q(`SELECT `+eventColumns+`, e.data FROM surehook.events e WHERE e.key = ANY($1) AND e.alias = $2`), keys, alias)
}

const eventByKey = `SELECT ` + eventColumns + `, e.data FROM surehook.events e WHERE e.key = $1`

// EventByKey implements surehook.History.
func (s *Store) EventByKey(ctx context.Context, key int64) (*surehook.Event, error) {
	return find(ctx, s, "event", scanEventData, eventByKey, key)
}

// ListEvents implements surehook.History.
func (s *Store) ListEvents(ctx context.Context, f surehook.EventFilter, p surehook.Page) ([]*surehook.Event, error) {
	sql, args := eventQuery(f, p)
	return list(ctx, s, scanEvent, sql, args...)
}

// eventQuery chooses where to start from: few deliveries are pending or dead,
// so those are looked through, in their own order, rather than the events. Each
// OFFSET 0 keeps the server from reading a whole table at once instead of a few
// rows by their key.
func eventQuery(f surehook.EventFilter, p surehook.Page) (string, []any) {
	var q query
	from, key := ` FROM surehook.events e`, `e.key`
	switch f.Status {
	case surehook.Pending:
		from, key = q.startFrom(`surehook.pending`, f), `x.event_key`
	case surehook.Dead:
		from, key = q.startFrom(`surehook.dead_letters`, f), `x.event_key`
	case surehook.Succeeded:
		if f.Endpoint != 0 {
			from, key = q.startFromAttempts(f, p), `x.event_key`
			break
		}
		seen, args := seenBy(f.For, `x.endpoint_key`)
		q.add(`EXISTS (SELECT 1 FROM surehook.attempts x WHERE x.event_key = e.key AND x.key >= e.key - `+keyHour+` AND `+succeeded+seen+` OFFSET 0)`, args...)
	}
	q.ofWindow(key, f, p.Cursor)
	if f.Above > 0 {
		q.add(key+` >= ?`, f.Above)
	}
	if f.Subject != "" {
		q.add(`position(? IN e.subjects) > 0`, row.Item(f.Subject))
	}
	switch prefix, ok := strings.CutSuffix(f.Type, ".*"); {
	case ok:
		q.add(`starts_with(e.type, ?)`, prefix+".")
	case f.Type != "":
		q.add(`e.type = ?`, f.Type)
	}
	return `SELECT ` + eventColumns + from + q.where() + ` ORDER BY ` + key + ` DESC` + q.limit(p), q.args
}

// ofWindow asks for a filter's tenant and partner, in its window, below a cursor.
func (q *query) ofWindow(key string, f surehook.EventFilter, cursor int64) {
	q.before(key, cursor)
	q.keysWithin(key, f.Since, f.Until)
	q.within(`e.created_at`, f.Since, f.Until)
	if f.Tenant != "" {
		q.add(`e.tenant = ? AND e.tenant <> ''`, f.Tenant) // the second half lets the partial index in
	}
	if f.Partner != "" {
		q.add(`e.partner = ? AND e.partner <> ''`, f.Partner)
	}
}

// EventBelow implements surehook.History.
func (s *Store) EventBelow(ctx context.Context, f surehook.EventFilter, cursor int64, n int) (int64, error) {
	var q query
	q.ofWindow(`e.key`, f, cursor)
	sql := `SELECT coalesce((SELECT e.key FROM surehook.events e` + q.where() + ` ORDER BY e.key DESC LIMIT 1 OFFSET ` + q.arg(n-1) + `), 0)`
	return find(ctx, s, "event", pgx.RowTo[int64], sql, q.args...)
}

// startFrom reads events by way of a table of deliveries, each event once.
func (q *query) startFrom(table string, f surehook.EventFilter) string {
	q.sees(f.For, `x.endpoint_key`)
	if f.Endpoint != 0 {
		q.add(`x.endpoint_key = ?`, f.Endpoint)
	} else {
		seen, args := seenBy(f.For, `y.endpoint_key`)
		q.add(`NOT EXISTS (SELECT 1 FROM `+table+` y WHERE y.event_key = x.event_key AND y.endpoint_key < x.endpoint_key`+seen+` OFFSET 0)`, args...)
	}
	return ` FROM ` + table + ` x` + eventOf(`x`)
}

// startFromAttempts reads events by way of an endpoint's attempts that succeeded.
func (q *query) startFromAttempts(f surehook.EventFilter, p surehook.Page) string {
	sub := query{args: q.args}
	sub.add(`x.endpoint_key = ? AND `+succeeded, f.Endpoint)
	sub.sees(f.For, `x.endpoint_key`)
	sub.before(`x.event_key`, p.Cursor)
	sub.keysWithin(`x.event_key`, f.Since, f.Until)
	if !f.Since.IsZero() {
		sub.add(`x.key >= ?`, lowKey(f.Since)-hourOfKeys)
	}
	q.args = sub.args
	return ` FROM (SELECT DISTINCT x.event_key FROM surehook.attempts x` + sub.where() + ` ORDER BY x.event_key DESC) x` + eventOf(`x`)
}

// succeeded is an attempt x that ended its delivery, unless a replay began it
// anew.
const succeeded = `x.status = 1 AND x.flags & 2 = 0
	AND NOT EXISTS (SELECT 1 FROM surehook.pending y WHERE y.event_key = x.event_key AND y.endpoint_key = x.endpoint_key OFFSET 0)
	AND NOT EXISTS (SELECT 1 FROM surehook.dead_letters y WHERE y.event_key = x.event_key AND y.endpoint_key = x.endpoint_key OFFSET 0)`

// names joins event e and endpoint w to a row that has their keys: by one probe
// for each row, in one partition, whatever the server thinks of the number of
// rows.
func names(of string) string {
	return ` LEFT JOIN LATERAL (SELECT id, type, tenant, partner FROM surehook.events WHERE key = ` + of + `.event_key OFFSET 0) e ON true
	LEFT JOIN surehook.endpoints w ON w.key = ` + of + `.endpoint_key`
}

// attemptColumns are an attempt a with the names of what it belongs to.
const attemptColumns = `a.key, a.id, a.event_key, a.endpoint_key, a.number, a.status, a.code, a.http_status, a.error, a.response,
	a.created_at, a.duration_us, a.resolve_us, a.connect_us, a.tls_us, a.write_us, a.wait_us, a.read_us, a.next_due, a.flags,
	coalesce(e.id, ''), coalesce(e.type, ''), coalesce(w.id, '')`

func scanAttempt(r pgx.CollectableRow) (surehook.Attempt, error) {
	var a surehook.Attempt
	var id ulid.ULID
	var flags int
	err := r.Scan(&a.Key, (*[16]byte)(&id), &a.EventKey, &a.EndpointKey, &a.Number, intoStatus{&a.Status}, &a.Code, &a.HTTPStatus, &a.Error, &a.Response,
		intoTime{&a.CreatedAt}, intoDuration{&a.Duration}, intoDuration{&a.Phases.Resolve}, intoDuration{&a.Phases.Connect},
		intoDuration{&a.Phases.TLS}, intoDuration{&a.Phases.Write}, intoDuration{&a.Phases.Wait}, intoDuration{&a.Phases.Read},
		intoTime{&a.NextDue}, &flags, &a.EventID, &a.EventType, &a.EndpointID)
	a.ID, a.Late, a.Test = "dlv_"+id.String(), flags&row.Late != 0, flags&row.Test != 0
	return a, err
}

// EventAttempts implements surehook.History, newest first by Key.
func (s *Store) EventAttempts(ctx context.Context, event, endpoint int64, p surehook.Page) ([]surehook.Attempt, error) {
	var q query
	q.add(`event_key = ? AND key >= ?`, event, event-hourOfKeys)
	if endpoint != 0 {
		q.add(`endpoint_key = ?`, endpoint)
	}
	return s.attempts(ctx, &q, p)
}

// EndpointAttempts implements surehook.History.
func (s *Store) EndpointAttempts(ctx context.Context, endpoint int64, p surehook.Page) ([]surehook.Attempt, error) {
	var q query
	q.add(`endpoint_key = ?`, endpoint)
	return s.attempts(ctx, &q, p)
}

// attempts finds the page first, and then the names for it alone.
func (s *Store) attempts(ctx context.Context, q *query, p surehook.Page) ([]surehook.Attempt, error) {
	q.before(`key`, p.Cursor)
	page := `(SELECT * FROM surehook.attempts` + q.where() + ` ORDER BY key DESC` + q.limit(p) + `) a`
	return list(ctx, s, scanAttempt, `SELECT `+attemptColumns+` FROM `+page+names(`a`)+` ORDER BY a.key DESC`, q.args...)
}
