package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

const tenantColumns = `key, id, name, partner, events_days, created_at FROM surehook.tenants`

func scanTenant(r pgx.CollectableRow) (*surehook.Tenant, error) {
	t := &surehook.Tenant{}
	return t, r.Scan(&t.Key, &t.ID, &t.Name, &t.Partner, &t.EventsDays, intoTime{&t.CreatedAt})
}

// PutTenant implements surehook.Tenants. Which partner a tenant belongs to
// decides who sees its events, so appends must match again when that changes.
func (s *Store) PutTenant(ctx context.Context, t *surehook.Tenant, a *surehook.AuditEntry) error {
	var put surehook.Tenant
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		put = *t
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		old, err := s.claimTenant(ctx, tx, put, now)
		if err != nil {
			return err
		}
		put.Key, put.CreatedAt = old.Key, old.CreatedAt
		if err := s.putAudit(ctx, tx, now, a); err != nil {
			return err
		}
		if put.Partner == old.Partner {
			_, err = tx.Exec(ctx, s.q(`UPDATE surehook.tenants SET name = $2, events_days = $3 WHERE key = $1`), put.Key, put.Name, put.EventsDays)
			return err
		}
		if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.tenants SET name = $2, events_days = $3, partner = $4 WHERE key = $1`), put.Key, put.Name, put.EventsDays, put.Partner); err != nil {
			return err
		}
		return s.partnerChanged(ctx, tx, put.ID)
	})
	if err == nil {
		*t = put
		s.days.forget() // its days may be others now
	}
	return err
}

// claimTenant locks a tenant's row as it is. A new one is there first without a
// partner, so that of two who make it at once the second sees the first's.
func (s *Store) claimTenant(ctx context.Context, tx pgx.Tx, t surehook.Tenant, now int64) (*surehook.Tenant, error) {
	key, err := s.key(ctx, tx, now)
	if err != nil {
		return nil, err
	}
	created := millis(t.CreatedAt)
	if created == 0 {
		created = now
	}
	for {
		if _, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.tenants (key, id, name, partner, created_at) VALUES ($1, $2, '', '', $3)
			ON CONFLICT (id) DO NOTHING`), key, t.ID, created); err != nil {
			return nil, err
		}
		old, err := one(ctx, tx, "tenant", scanTenant, s.q(`SELECT `+tenantColumns+` WHERE id = $1 FOR NO KEY UPDATE`), t.ID)
		if surehook.CodeOf(err) != surehook.NotFound {
			return old, err
		}
		// It was there, and was deleted before it could be locked.
	}
}

// Tenant implements surehook.Tenants.
func (s *Store) Tenant(ctx context.Context, id string) (*surehook.Tenant, error) {
	return find(ctx, s, "tenant", scanTenant, `SELECT `+tenantColumns+` WHERE id = $1`, id)
}

// ListTenants implements surehook.Tenants, newest first.
func (s *Store) ListTenants(ctx context.Context, partner string, p surehook.Page) ([]*surehook.Tenant, error) {
	var q query
	q.before(`key`, p.Cursor)
	if partner != "" {
		q.add(`partner = ? AND partner <> ''`, partner)
	}
	return list(ctx, s, scanTenant, `SELECT `+tenantColumns+q.where()+` ORDER BY key DESC`+q.limit(p), q.args...)
}

// DeleteTenant implements surehook.Tenants.
func (s *Store) DeleteTenant(ctx context.Context, id string, a *surehook.AuditEntry) error {
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		partner, err := one(ctx, tx, "tenant", pgx.RowTo[string], s.q(`DELETE FROM surehook.tenants WHERE id = $1 RETURNING partner`), id)
		if err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.putAudit(ctx, tx, now, a); err != nil || partner == "" {
			return err
		}
		return s.partnerChanged(ctx, tx, id)
	})
	if err == nil {
		s.days.forget() // its days are everybody's now
	}
	return err
}

// partnerChanged marks a tenant for the nodes that follow.
func (s *Store) partnerChanged(ctx context.Context, tx pgx.Tx, tenant string) error {
	v, err := s.nextConfig(ctx, tx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, s.q(`INSERT INTO surehook.partner_changes (tenant, changed) VALUES ($1, $2)
		ON CONFLICT (tenant) DO UPDATE SET changed = $2`), tenant, v)
	return err
}

// Partners implements surehook.Tenants.
func (s *Store) Partners(ctx context.Context, version int64) (map[string]string, error) {
	out := make(map[string]string)
	err := s.read(ctx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, s.q(`SELECT p.tenant, coalesce(t.partner, '') FROM surehook.partner_changes p
			LEFT JOIN surehook.tenants t ON t.id = p.tenant WHERE p.changed > $1`), version)
		if err != nil {
			return err
		}
		var tenant, partner string
		_, err = pgx.ForEachRow(rows, []any{&tenant, &partner}, func() error {
			out[tenant] = partner
			return nil
		})
		return err
	})
	return out, err
}

// putAudit stores an entry in the transaction of what it tells; nil is none.
func (s *Store) putAudit(ctx context.Context, tx pgx.Tx, now int64, a *surehook.AuditEntry) (err error) {
	if a == nil {
		return nil
	}
	if a.Key, err = s.key(ctx, tx, now); err != nil {
		return err
	}
	if a.At.IsZero() {
		a.At = at(now)
	}
	_, err = tx.Exec(ctx, s.q(`INSERT INTO surehook.audit_log (key, at, actor, action, target, tenant, request_id, details) VALUES ($1, $2, $3, $4, $5, $6, $7, $8)`),
		a.Key, millis(a.At), a.Actor, a.Action, a.Target, a.Tenant, a.RequestID, a.Details)
	return err
}

// ListAudit implements surehook.Tenants.
func (s *Store) ListAudit(ctx context.Context, tenant string, p surehook.Page) ([]surehook.AuditEntry, error) {
	var q query
	if tenant != "" {
		q.add(`tenant = ?`, tenant)
	}
	return s.listAudit(ctx, q, p)
}

// AuditOf implements surehook.Tenants.
func (s *Store) AuditOf(ctx context.Context, target string, p surehook.Page) ([]surehook.AuditEntry, error) {
	var q query
	q.add(`target = ?`, target)
	return s.listAudit(ctx, q, p)
}

func (s *Store) listAudit(ctx context.Context, q query, p surehook.Page) ([]surehook.AuditEntry, error) {
	q.before(`key`, p.Cursor)
	return list(ctx, s, scanAudit, `SELECT key, at, actor, action, target, tenant, request_id, details FROM surehook.audit_log`+q.where()+
		` ORDER BY key DESC`+q.limit(p), q.args...)
}

func scanAudit(r pgx.CollectableRow) (surehook.AuditEntry, error) {
	var a surehook.AuditEntry
	err := r.Scan(&a.Key, intoTime{&a.At}, &a.Actor, &a.Action, &a.Target, &a.Tenant, &a.RequestID, &a.Details)
	return a, err
}
