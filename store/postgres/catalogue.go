package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// PutEventType implements surehook.Catalogue.
func (s *Store) PutEventType(ctx context.Context, t *surehook.EventType, a *surehook.AuditEntry) error {
	var put surehook.EventType
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		put = *t
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		put.UpdatedAt = at(now)
		if put.CreatedAt.IsZero() {
			put.CreatedAt = put.UpdatedAt
		}
		if err := tx.QueryRow(ctx, s.q(`INSERT INTO surehook.event_types (name, description, example, schema, validate, created_at, updated_at, requires)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
			ON CONFLICT (name) DO UPDATE SET description = $2, example = $3, schema = $4, validate = $5, updated_at = $7, requires = $8 RETURNING created_at`),
			put.Name, put.Description, put.Example, put.Schema, put.Validate, millis(put.CreatedAt), now, put.Requires).Scan(intoTime{&put.CreatedAt}); err != nil {
			return err
		}
		return s.putAudit(ctx, tx, now, a)
	})
	if err == nil {
		*t = put
	}
	return err
}

// EventTypes implements surehook.Catalogue, by name.
func (s *Store) EventTypes(ctx context.Context) ([]*surehook.EventType, error) {
	return list(ctx, s, func(r pgx.CollectableRow) (*surehook.EventType, error) {
		t := &surehook.EventType{}
		return t, r.Scan(&t.Name, &t.Description, &t.Example, &t.Schema, &t.Validate, intoTime{&t.CreatedAt}, intoTime{&t.UpdatedAt}, &t.Requires)
	}, `SELECT name, description, example, schema, validate, created_at, updated_at, requires FROM surehook.event_types ORDER BY name`)
}

// DeleteEventType implements surehook.Catalogue.
func (s *Store) DeleteEventType(ctx context.Context, name string, a *surehook.AuditEntry) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.event_types WHERE name = $1`), name)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return notFound("event type")
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		return s.putAudit(ctx, tx, now, a)
	})
}
