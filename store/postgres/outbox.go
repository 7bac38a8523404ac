package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// outboxSQL reads what waits, oldest first, each with the endpoints that are
// younger than the commit that brought it.
const outboxSQL = `SELECT b.id, b.tenant, b.event_id, b.type, b.identity, b.owner, b.subjects, b.occurred_at, b.trace, b.about, b.data,
	ARRAY(SELECT e.key FROM surehook.endpoints e WHERE e.made_at >= b.created_at AND pg_visible_in_snapshot(b.xid, e.made_in))
	FROM surehook.outbox b ORDER BY b.id LIMIT $1`

// Outbox implements surehook.Appender. It also keeps the mark by which the
// callers' transactions know whether anybody must be woken.
func (s *Store) Outbox(ctx context.Context, limit int) ([]surehook.OutboxEvent, error) {
	out, err := s.readOutbox(ctx, limit)
	if err != nil || (len(out) == 0) == s.watch.asleep.Load() {
		return out, err
	}
	if err := s.markAsleep(ctx, len(out) == 0); err != nil {
		return nil, err
	}
	if len(out) == 0 {
		return s.readOutbox(ctx, limit) // what came before the mark woke nobody
	}
	return out, nil
}

func (s *Store) readOutbox(ctx context.Context, limit int) ([]surehook.OutboxEvent, error) {
	var out []surehook.OutboxEvent
	err := s.read(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.q(outboxSQL), limit)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (surehook.OutboxEvent, error) {
			e := &surehook.Event{}
			o := surehook.OutboxEvent{Event: e}
			var subjects string
			var occurred int64
			err := r.Scan(&o.ID, &e.Tenant, &e.ID, &e.Type, &e.Identity, &e.Owner, &subjects, &occurred, &e.Trace, &e.About, &e.Data, &o.NotFor)
			if err == nil {
				e.OccurredAt = at(occurred)
				e.Subjects, err = row.ParseList(subjects)
			}
			return o, err
		})
		return err
	})
	return out, err
}

func (s *Store) markAsleep(ctx context.Context, asleep bool) error {
	value := 0
	if asleep {
		value = 1
	}
	_, err := s.pool.Exec(ctx, s.q(`UPDATE surehook.counters SET value = $1 WHERE name = 'asleep'`), value)
	if err == nil {
		s.watch.asleep.Store(asleep)
	}
	return wrap(err)
}

// putOutbox leaves an event for the fan-out. A repeat changes nothing.
func (s *Store) putOutbox(ctx context.Context, tx pgx.Tx, e *surehook.Event) error {
	_, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.outbox (tenant, event_id, type, identity, owner, subjects, occurred_at, trace, about, data)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`),
		e.Tenant, e.ID, e.Type, e.Identity, e.Owner, row.List(e.Subjects), millis(e.OccurredAt), e.Trace, e.About, orEmpty(e.Data))
	return err
}
