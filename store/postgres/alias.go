package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook/store/internal/row"
)

// sharedID is what stands in event_keys for an event whose id another tenant's
// has.
func sharedID(id, tenant string) string { return id + " " + tenant }

// foreign gives the places of those of a batch's events whose ids were there, and
// of which their own tenant has none, and gives each an alias.
func (s *Store) foreign(ctx context.Context, tx pgx.Tx, b *appendBatch) ([]int, error) {
	var at []int
	var ids, tenants []string
	for _, i := range b.byID {
		if r := &b.refs[i]; r.state == twin {
			at, ids, tenants = append(at, i), append(ids, r.item.Event.ID), append(tenants, r.item.Event.Tenant)
		}
	}
	if at == nil {
		return nil, nil
	}
	// A statement of its own, which sees what the one before has waited for.
	found, err := collect(ctx, tx, pgx.RowTo[int], s.q(`SELECT x.n FROM unnest($1::int[], $2::text[], $3::text[]) WITH ORDINALITY x(n, id, tenant, place)
		WHERE EXISTS (SELECT FROM surehook.event_keys k WHERE k.id = x.id AND k.tenant <> x.tenant)
		AND NOT EXISTS (SELECT FROM surehook.event_keys k WHERE k.id = x.id || ' ' || x.tenant) ORDER BY x.place`), at, ids, tenants)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	for _, i := range found {
		b.refs[i].alias = row.Alias(b.refs[i].item.Event.ID)
	}
	_, err = tx.Exec(ctx, s.q(`UPDATE surehook.counters SET value = 1 WHERE name = 'aliases' AND value = 0`))
	return found, err
}
