package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

const partnerColumns = `key, id, name, suspended, created_at, updated_at FROM surehook.partners`

func scanPartner(r pgx.CollectableRow) (*surehook.Partner, error) {
	p := &surehook.Partner{}
	return p, r.Scan(&p.Key, &p.ID, &p.Name, &p.Suspended, intoTime{&p.CreatedAt}, intoTime{&p.UpdatedAt})
}

// PutPartner implements surehook.Tenants.
func (s *Store) PutPartner(ctx context.Context, p *surehook.Partner, keep bool, a *surehook.AuditEntry) error {
	var put surehook.Partner
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		put = *p
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		old, err := s.claimPartner(ctx, tx, put, now)
		if err != nil {
			return err
		}
		put.Key, put.CreatedAt, put.UpdatedAt = old.Key, old.CreatedAt, at(now)
		if keep {
			put.Suspended = old.Suspended
		}
		if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.partners SET name = $2, suspended = $3, updated_at = $4 WHERE key = $1`),
			put.Key, put.Name, put.Suspended, now); err != nil {
			return err
		}
		if err := s.putAudit(ctx, tx, now, a); err != nil || put.Suspended == old.Suspended {
			return err
		}
		_, err = s.nextConfig(ctx, tx)
		return err
	})
	if err == nil {
		*p = put
	}
	return err
}

// claimPartner locks a partner's row as it is. A new one is there first, and
// active, so that of two who make it at once the second sees the first's.
func (s *Store) claimPartner(ctx context.Context, tx pgx.Tx, p surehook.Partner, now int64) (*surehook.Partner, error) {
	key, err := s.key(ctx, tx, now)
	if err != nil {
		return nil, err
	}
	for {
		if _, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.partners (key, id, name, suspended, created_at, updated_at) VALUES ($1, $2, '', false, $3, $3)
			ON CONFLICT (id) DO NOTHING`), key, p.ID, now); err != nil {
			return nil, err
		}
		old, err := one(ctx, tx, "partner", scanPartner, s.q(`SELECT `+partnerColumns+` WHERE id = $1 FOR NO KEY UPDATE`), p.ID)
		if surehook.CodeOf(err) != surehook.NotFound {
			return old, err
		}
		// It was there, and was deleted before it could be locked.
	}
}

// Partner implements surehook.Tenants.
func (s *Store) Partner(ctx context.Context, id string) (*surehook.Partner, error) {
	return find(ctx, s, "partner", scanPartner, `SELECT `+partnerColumns+` WHERE id = $1`, id)
}

// ListPartners implements surehook.Tenants, newest first.
func (s *Store) ListPartners(ctx context.Context, p surehook.Page) ([]*surehook.Partner, error) {
	var q query
	q.before(`key`, p.Cursor)
	return list(ctx, s, scanPartner, `SELECT `+partnerColumns+q.where()+` ORDER BY key DESC`+q.limit(p), q.args...)
}

// DeletePartner implements surehook.Tenants.
func (s *Store) DeletePartner(ctx context.Context, id string, a *surehook.AuditEntry) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		suspended, err := one(ctx, tx, "partner", pgx.RowTo[bool], s.q(`DELETE FROM surehook.partners WHERE id = $1 RETURNING suspended`), id)
		if err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.putAudit(ctx, tx, now, a); err != nil || !suspended {
			return err
		}
		_, err = s.nextConfig(ctx, tx)
		return err
	})
}

// Suspended implements surehook.Tenants.
func (s *Store) Suspended(ctx context.Context) ([]string, error) {
	return list(ctx, s, pgx.RowTo[string], `SELECT id FROM surehook.partners WHERE suspended ORDER BY id`)
}
