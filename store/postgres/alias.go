package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook/store/internal/row"
)

// sharedID is what stands in event_keys for an event whose id another tenant's
// has.
func sharedID(id, tenant string) string { return id + " " + tenant }

// appendAliased stores, in a transaction of their own, the events of a batch of
// one statement whose ids other tenants' events have. The others are committed, so
// a fault here is theirs alone, and answerTwins tells of it.
func (s *Store) appendAliased(ctx context.Context, epoch int64, b *appendBatch) {
	if b.careful || !b.twins() {
		return
	}
	var found *appendBatch
	err := s.again(ctx, func() (err error) {
		found, err = s.foreign(ctx, s.pool, b)
		return err
	})
	if err == nil && found != nil {
		err = s.again(ctx, func() error {
			found.reset()
			return s.transaction(ctx, func(tx pgx.Tx) error { return s.appendRows(ctx, tx, epoch, found) })
		})
	}
	switch {
	case err != nil:
		s.log.Warn("events with ids that other tenants' events have couldn't be stored", "error", err)
		if gone(err) {
			s.doubt(epoch)
		}
	case found != nil:
		b.take(found)
	}
}

// aliasForeign does it for a batch that has taken its outbox rows, or gives
// sequences: the whole transaction is made again, so that everything stays in its
// order.
func (s *Store) aliasForeign(ctx context.Context, tx pgx.Tx, b *appendBatch) error {
	if !b.twins() {
		return nil
	}
	found, err := s.foreign(ctx, tx, b)
	if err != nil || found == nil {
		return err
	}
	for i, n := range found.from {
		b.refs[n].alias = found.refs[i].alias
	}
	return errInTheWay
}

// twins tells whether ids of the batch were there.
func (b *appendBatch) twins() bool {
	for i := range b.refs {
		if b.refs[i].state == twin {
			return true
		}
	}
	return false
}

// foreign gives those of a batch's events whose ids were there, and of which
// their own tenant has none, each with an alias; nil: there are none.
func (s *Store) foreign(ctx context.Context, q rowsQuerier, b *appendBatch) (*appendBatch, error) {
	var at []int32
	var ids, tenants []string
	for i := range b.refs {
		if r := &b.refs[i]; r.state == twin {
			at, ids, tenants = append(at, int32(i)), append(ids, r.item.Event.ID), append(tenants, r.item.Event.Tenant)
		}
	}
	// A statement of its own, which sees what the one before has waited for.
	found, err := collect(ctx, q, pgx.RowTo[int32], s.q(`SELECT x.n FROM unnest($1::int[], $2::text[], $3::text[]) x(n, id, tenant)
		WHERE EXISTS (SELECT FROM surehook.event_keys k WHERE k.id = x.id AND k.tenant <> x.tenant)
		AND NOT EXISTS (SELECT FROM surehook.event_keys k WHERE k.id = x.id || ' ' || x.tenant) ORDER BY x.n`), at, ids, tenants)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	out := &appendBatch{config: b.config}
	for _, i := range found {
		r := b.refs[i]
		r.state, r.alias = left, row.Alias(r.item.Event.ID)
		out.refs, out.from = append(out.refs, r), append(out.from, i)
	}
	return out, nil
}

// take keeps what became of events that were stored apart.
func (b *appendBatch) take(part *appendBatch) {
	for i, n := range part.from {
		if part.refs[i].state == stored {
			b.refs[n] = part.refs[i]
		}
	}
}
