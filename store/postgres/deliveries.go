package postgres

import (
	"context"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// EventDeliveries implements surehook.History, by EndpointKey, which is also
// the cursor. A delivery is what has a pending row, a dead letter or an attempt.
func (s *Store) EventDeliveries(ctx context.Context, event int64, p surehook.Page) ([]surehook.DeliveryView, error) {
	var out []surehook.DeliveryView
	err := s.read(ctx, func(tx pgx.Tx) error {
		keys, err := collect(ctx, tx, pgx.RowTo[int64], s.q(`SELECT endpoint_key FROM surehook.pending WHERE event_key = $1 AND endpoint_key > $2
			UNION SELECT endpoint_key FROM surehook.dead_letters WHERE event_key = $1 AND endpoint_key > $2
			UNION SELECT endpoint_key FROM surehook.attempts WHERE event_key = $1 AND endpoint_key > $2 AND key >= $4 AND flags & 2 = 0
			ORDER BY endpoint_key LIMIT $3`), event, p.Cursor, row.PageSize(p), event-hourOfKeys)
		if err != nil {
			return err
		}
		out, err = s.viewDeliveries(ctx, tx, []int64{event}, keys)
		return err
	})
	return out, err
}

// deliveriesBy finds the events of an endpoint's deliveries in one status:
// endpoint, below, limit.
var deliveriesBy = map[surehook.DeliveryStatus]string{
	surehook.Pending: `SELECT event_key FROM surehook.pending WHERE endpoint_key = $1 AND event_key < $2 ORDER BY event_key DESC LIMIT $3`,
	surehook.Dead:    `SELECT event_key FROM surehook.dead_letters WHERE endpoint_key = $1 AND event_key < $2 ORDER BY event_key DESC LIMIT $3`,
	surehook.Succeeded: `SELECT DISTINCT x.event_key FROM surehook.attempts x WHERE x.endpoint_key = $1 AND x.event_key < $2 AND ` + succeeded + `
		ORDER BY x.event_key DESC LIMIT $3`,
	"": `(SELECT event_key FROM surehook.pending WHERE endpoint_key = $1 AND event_key < $2 ORDER BY event_key DESC LIMIT $3)
		UNION (SELECT event_key FROM surehook.dead_letters WHERE endpoint_key = $1 AND event_key < $2 ORDER BY event_key DESC LIMIT $3)
		UNION (SELECT DISTINCT event_key FROM surehook.attempts WHERE endpoint_key = $1 AND event_key < $2 AND flags & 2 = 0
			ORDER BY event_key DESC LIMIT $3)
		ORDER BY event_key DESC LIMIT $3`,
}

// ListDeliveries implements surehook.History; the cursor is the EventKey.
func (s *Store) ListDeliveries(ctx context.Context, f surehook.DeliveryFilter, p surehook.Page) ([]surehook.DeliveryView, error) {
	sql, ok := deliveriesBy[f.Status]
	if !ok {
		return nil, surehook.Invalid("status", "must be pending, succeeded or dead")
	}
	below := p.Cursor
	if below == 0 {
		below = maxKey
	}
	var out []surehook.DeliveryView
	err := s.read(ctx, func(tx pgx.Tx) error {
		keys, err := collect(ctx, tx, pgx.RowTo[int64], s.q(sql), f.Endpoint, below, row.PageSize(p))
		if err != nil {
			return err
		}
		out, err = s.viewDeliveries(ctx, tx, keys, []int64{f.Endpoint})
		return err
	})
	return out, err
}

// views are deliveries by event and endpoint.
type views map[[2]int64]*surehook.DeliveryView

// viewDeliveries puts deliveries together, in the order of their keys: those of
// one event at some endpoints, or of some events at one endpoint. A pending row
// counts first, then a dead letter, then what the attempts came to.
func (s *Store) viewDeliveries(ctx context.Context, tx pgx.Tx, events, endpoints []int64) ([]surehook.DeliveryView, error) {
	if len(events) == 0 || len(endpoints) == 0 {
		return nil, nil
	}
	out := make([]surehook.DeliveryView, 0, len(events)*len(endpoints))
	by := make(views)
	for _, event := range events {
		for _, endpoint := range endpoints {
			out = append(out, surehook.DeliveryView{EventKey: event, EndpointKey: endpoint, Status: surehook.Dead})
			by[[2]int64{event, endpoint}] = &out[len(out)-1]
		}
	}
	batch := &pgx.Batch{}
	batch.Queue(s.q(`SELECT key, id, type FROM surehook.events WHERE key = ANY($1)`), events).Query(by.events(endpoints))
	batch.Queue(s.q(`SELECT key, id FROM surehook.endpoints WHERE key = ANY($1)`), endpoints).Query(by.endpoints(events))
	batch.Queue(s.q(lastAttempts), events, endpoints, slices.Min(events)-hourOfKeys).Query(by.attempts)
	// Last, since what they say counts more.
	batch.Queue(s.q(`SELECT event_key, endpoint_key, 0 FROM surehook.dead_letters WHERE event_key = ANY($1) AND endpoint_key = ANY($2)`), events, endpoints).
		Query(by.rows(surehook.Dead))
	batch.Queue(s.q(`SELECT event_key, endpoint_key, due FROM surehook.pending WHERE event_key = ANY($1) AND endpoint_key = ANY($2)`), events, endpoints).
		Query(by.rows(surehook.Pending))
	return out, tx.SendBatch(ctx, batch).Close()
}

func (v views) events(endpoints []int64) func(rows pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var key int64
		var id, typ string
		_, err := pgx.ForEachRow(rows, []any{&key, &id, &typ}, func() error {
			for _, endpoint := range endpoints {
				d := v[[2]int64{key, endpoint}]
				d.EventID, d.EventType = id, typ
			}
			return nil
		})
		return err
	}
}

func (v views) endpoints(events []int64) func(rows pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var key int64
		var id string
		_, err := pgx.ForEachRow(rows, []any{&key, &id}, func() error {
			for _, event := range events {
				v[[2]int64{event, key}].EndpointID = id
			}
			return nil
		})
		return err
	}
}

// lastAttempts gives the attempt that each delivery ended with. That is the last
// by key, which is the order of recording: a success that was recorded after a
// failure of a higher number still ended the delivery. Late failures don't,
// unless there is nothing else.
const lastAttempts = `SELECT DISTINCT ON (event_key, endpoint_key) event_key, endpoint_key,
	max(number) OVER (PARTITION BY event_key, endpoint_key), status, code, http_status, created_at
	FROM surehook.attempts WHERE event_key = ANY($1) AND endpoint_key = ANY($2) AND key >= $3 AND flags & 2 = 0
	ORDER BY event_key, endpoint_key, flags & 1, key DESC`

func (v views) attempts(rows pgx.Rows) error {
	var key [2]int64
	var status surehook.AttemptStatus
	var last surehook.DeliveryView
	_, err := pgx.ForEachRow(rows, []any{&key[0], &key[1], &last.Attempts, intoStatus{&status}, &last.LastCode, &last.LastStatus, intoTime{&last.LastAttemptAt}}, func() error {
		d := v[key]
		d.Attempts, d.LastCode, d.LastStatus, d.LastAttemptAt = last.Attempts, last.LastCode, last.LastStatus, last.LastAttemptAt
		d.Status = surehook.Dead // given up without a letter, or the letter was discarded
		if status == surehook.AttemptSucceeded {
			d.Status = surehook.Succeeded
		}
		return nil
	})
	return err
}

// rows takes the status of deliveries that have a row in a table.
func (v views) rows(status surehook.DeliveryStatus) func(rows pgx.Rows) error {
	return func(rows pgx.Rows) error {
		var key [2]int64
		var due int64
		_, err := pgx.ForEachRow(rows, []any{&key[0], &key[1], &due}, func() error {
			d := v[key]
			d.Status = status
			if due < row.Parked {
				d.NextAttemptAt = at(due)
			}
			return nil
		})
		return err
	}
}
