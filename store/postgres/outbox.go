package postgres

import (
	"bytes"
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// outboxSQL reads what waits, oldest first, each with the endpoints that are
// younger than the commit that brought it.
const outboxSQL = `SELECT b.id, b.tenant, b.event_id, b.type, b.identity, b.owner, b.subjects, b.occurred_at, b.trace, b.about, b.partner, b.data, b.refused,
	ARRAY(SELECT e.key FROM surehook.endpoints e WHERE e.made_at >= b.created_at AND pg_visible_in_snapshot(b.xid, e.made_in))
	FROM surehook.outbox b JOIN (SELECT id, sum(size) OVER (ORDER BY id) - size AS before
		FROM (SELECT id, length(data) AS size FROM surehook.outbox WHERE retry_at <= (SELECT surehook.clock()) ORDER BY id LIMIT $1) x) y ON y.id = b.id
	WHERE y.before < $2 ORDER BY b.id`

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
		rows, err := tx.Query(ctx, s.q(outboxSQL), limit, row.OutboxBytes)
		if err != nil {
			return err
		}
		out, err = pgx.CollectRows(rows, func(r pgx.CollectableRow) (surehook.OutboxEvent, error) {
			e := &surehook.Event{}
			o := surehook.OutboxEvent{Event: e}
			var subjects string
			var occurred int64
			err := r.Scan(&o.ID, &e.Tenant, &e.ID, &e.Type, &e.Identity, &e.Owner, &subjects, &occurred, &e.Trace, &e.About, &e.Partner, &e.Data, &o.Refused, &o.NotFor)
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

// PutOff implements surehook.Appender.
func (s *Store) PutOff(ctx context.Context, events []surehook.PutOff) error {
	ids, refused, waits := make([]int64, len(events)), make([]int32, len(events)), make([]int64, len(events))
	for i, p := range events {
		ids[i], refused[i], waits[i] = p.ID, int32(p.Refused), p.Wait.Milliseconds()
	}
	return wrap(s.do(ctx, s.q(`UPDATE surehook.outbox b SET refused = b.refused + 1, refused_at = CASE WHEN b.refused = 0 THEN c.now ELSE b.refused_at END,
		retry_at = c.now + x.wait
		FROM unnest($1::bigint[], $2::int[], $3::bigint[]) x(id, refused, wait), (SELECT surehook.clock() AS now OFFSET 0) c
		WHERE b.id = x.id AND b.refused = x.refused`), ids, refused, waits))
}

// giveUp removes events that the store has refused since before a time, at most
// limit of those that the condition selects; its arguments follow $2.
func (s *Store) giveUp(ctx context.Context, tx pgx.Tx, before time.Time, limit int, where string, args ...any) (int64, error) {
	type refused struct {
		tenant, id string
		times      int
	}
	all, err := collect(ctx, tx, func(r pgx.CollectableRow) (x refused, err error) {
		err = r.Scan(&x.tenant, &x.id, &x.times)
		return x, err
	},
		s.q(`DELETE FROM surehook.outbox WHERE id IN (SELECT id FROM surehook.outbox WHERE refused > 0 AND refused_at < $1 AND `+where+`
			ORDER BY refused_at LIMIT $2 FOR UPDATE SKIP LOCKED) RETURNING tenant, event_id, refused`), append([]any{millis(before), limit}, args...)...)
	if err != nil || len(all) == 0 {
		return 0, err
	}
	now, err := s.now(ctx, tx)
	if err != nil {
		return 0, err
	}
	for _, r := range all {
		if err := s.putAudit(ctx, tx, now, row.GivenUpEvent(r.tenant, r.id, r.times)); err != nil {
			return 0, err
		}
	}
	return int64(len(all)), nil
}

func (s *Store) markAsleep(ctx context.Context, asleep bool) error {
	value := 0
	if asleep {
		value = 1
	}
	err := s.do(ctx, s.q(`UPDATE surehook.counters SET value = $1 WHERE name = 'asleep'`), value)
	if err == nil {
		s.watch.asleep.Store(asleep)
	}
	return wrap(err)
}

// putOutbox leaves an event for the fan-out, unless one with its id is there or
// was, and tells whether it did.
func (s *Store) putOutbox(ctx context.Context, tx pgx.Tx, e *surehook.Event) (bool, error) {
	h := e.ContentHash()
	tag, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.outbox (tenant, event_id, type, identity, owner, subjects, occurred_at, trace, about, partner, hash, data)
		SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12
		WHERE NOT EXISTS (SELECT FROM surehook.event_keys k WHERE k.id IN ($2, $13) AND k.tenant = $1)
		AND NOT EXISTS (SELECT FROM surehook.outbox b WHERE b.event_id = $2 AND b.tenant = $1)`),
		e.Tenant, e.ID, e.Type, e.Identity, e.Owner, row.List(e.Subjects), millis(e.OccurredAt), e.Trace, e.About, e.Partner, h[:], orEmpty(e.Data), sharedID(e.ID, e.Tenant))
	return tag.RowsAffected() == 1, err
}

// joinOutbox puts an event behind others of its owner. One whose id is taken is
// answered as it would be without them.
func (s *Store) joinOutbox(ctx context.Context, tx pgx.Tx, r *ref) error {
	put, err := s.putOutbox(ctx, tx, r.item.Event)
	if err != nil || put {
		return err
	}
	var hash []byte
	err = tx.QueryRow(ctx, s.q(`SELECT x.key, x.hash FROM (
		SELECT k.key, k.hash, 0 AS place FROM surehook.event_keys k WHERE k.id IN ($1, $3) AND k.tenant = $2
		UNION ALL SELECT 0, b.hash, b.id FROM surehook.outbox b WHERE b.event_id = $1 AND b.tenant = $2) x ORDER BY x.place LIMIT 1`),
		r.item.Event.ID, r.item.Event.Tenant, sharedID(r.item.Event.ID, r.item.Event.Tenant)).Scan(&r.key, &hash)
	r.state = taken
	if bytes.Equal(hash, r.hash) {
		r.state = repeated
	}
	return err
}

// refuse leaves word, in the transaction that takes them out of the outbox, of
// events whose ids others have: nobody waits for an answer any more.
func (s *Store) refuse(ctx context.Context, tx pgx.Tx, b *appendBatch) error {
	var n []int32
	var ids, tenants []string
	var hashes [][]byte
	for i := range b.refs {
		if r := &b.refs[i]; r.state == twin && r.item.Outbox != 0 {
			n, ids, tenants, hashes = append(n, int32(i)), append(ids, r.item.Event.ID), append(tenants, r.item.Event.Tenant), append(hashes, r.hash)
		}
	}
	if n == nil {
		return nil
	}
	// A statement of its own, which sees what the one before has waited for.
	rows, err := tx.Query(ctx, s.q(`SELECT x.n, surehook.clock() FROM unnest($1::int[], $2::text[], $3::text[], $4::bytea[]) x(n, id, tenant, hash)
		JOIN surehook.event_keys k ON k.id IN (x.id, x.id || ' ' || x.tenant) AND k.tenant = x.tenant WHERE k.hash <> x.hash ORDER BY x.n`), n, ids, tenants, hashes)
	if err != nil {
		return err
	}
	var refused []int32
	var i int32
	var now int64
	if _, err := pgx.ForEachRow(rows, []any{&i, &now}, func() error {
		refused = append(refused, i)
		return nil
	}); err != nil {
		return err
	}
	for _, i := range refused {
		if err := s.putAudit(ctx, tx, now, row.RefusedEvent(b.refs[i].item.Event)); err != nil {
			return err
		}
	}
	return nil
}
