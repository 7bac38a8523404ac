package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// PutTenant implements surehook.Tenants. Which partner a tenant belongs to
// decides who sees its events, so appends must match again when that changes.
func (s *Store) PutTenant(_ context.Context, t *surehook.Tenant, a *surehook.AuditEntry) error {
	row := *t
	err := s.change(func(c *conn) error {
		row = *t
		old, err := tenantByID(c, t.ID)
		switch {
		case err == nil:
			row.Key, row.CreatedAt = old.Key, old.CreatedAt
		case surehook.CodeOf(err) == surehook.NotFound:
			old = &surehook.Tenant{}
			row.Key = s.keys.take(1)
			if row.CreatedAt.IsZero() {
				row.CreatedAt = at(millis(s.now()))
			}
		default:
			return err
		}
		if _, err := c.exec(`INSERT INTO tenants (key, id, name, partner, events_days, created_at) VALUES (?1,?2,?3,?4,?5,?6)
			ON CONFLICT (id) DO UPDATE SET name = ?3, partner = ?4, events_days = ?5`, row.Key, row.ID, row.Name, row.Partner, row.EventsDays, row.CreatedAt); err != nil {
			return err
		}
		if err := s.putAudit(c, a); err != nil || row.Partner == old.Partner {
			return err
		}
		return s.bumpConfig(c, 0)
	})
	if err == nil {
		*t = row
		s.pruneAnew() // its days may be others now
	}
	return err
}

func tenantByID(c *conn, id string) (*surehook.Tenant, error) {
	var t *surehook.Tenant
	found, err := c.one(`SELECT key, id, name, partner, events_days, created_at FROM tenants WHERE id = ?`, []any{id}, func(st *sqlite3.Stmt) error {
		t = scanTenant(st)
		return nil
	})
	if err == nil && !found {
		err = notFound("tenant")
	}
	return t, err
}

func scanTenant(st *sqlite3.Stmt) *surehook.Tenant {
	return &surehook.Tenant{Key: st.ColumnInt64(0), ID: st.ColumnText(1), Name: st.ColumnText(2), Partner: st.ColumnText(3),
		EventsDays: st.ColumnInt(4), CreatedAt: at(st.ColumnInt64(5))}
}

// Tenant implements surehook.Tenants.
func (s *Store) Tenant(ctx context.Context, id string) (*surehook.Tenant, error) {
	var t *surehook.Tenant
	err := s.read(ctx, func(c *conn) (err error) {
		t, err = tenantByID(c, id)
		return err
	})
	return t, err
}

// ListTenants implements surehook.Tenants, newest first.
func (s *Store) ListTenants(ctx context.Context, partner string, p surehook.Page) ([]*surehook.Tenant, error) {
	var q query
	q.before(`key`, p.Cursor)
	if partner != "" {
		q.add(`partner = ? AND partner <> ''`, partner)
	}
	var out []*surehook.Tenant
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT key, id, name, partner, events_days, created_at FROM tenants`+q.where()+` ORDER BY key DESC LIMIT ?`, q.with(row.PageSize(p)), func(st *sqlite3.Stmt) error {
			out = append(out, scanTenant(st))
			return nil
		})
	})
	return out, err
}

// DeleteTenant implements surehook.Tenants.
func (s *Store) DeleteTenant(_ context.Context, id string, a *surehook.AuditEntry) error {
	return s.change(func(c *conn) error {
		t, err := tenantByID(c, id)
		if err != nil {
			return err
		}
		if _, err := c.exec(`DELETE FROM tenants WHERE key = ?`, t.Key); err != nil {
			return err
		}
		s.pruneAnew()
		if err := s.putAudit(c, a); err != nil || t.Partner == "" {
			return err
		}
		return s.bumpConfig(c, 0)
	})
}

// Partners implements surehook.Tenants: nobody else changes the file.
func (s *Store) Partners(context.Context, int64) (map[string]string, error) { return nil, nil }

// putAudit stores an entry in the transaction of what it tells; nil is none.
func (s *Store) putAudit(c *conn, a *surehook.AuditEntry) error {
	if a == nil {
		return nil
	}
	a.Key = s.keys.take(1)
	if a.At.IsZero() {
		a.At = s.now()
	}
	_, err := c.exec(`INSERT INTO audit_log (key, at, actor, action, target, tenant, request_id, details) VALUES (?,?,?,?,?,?,?,?)`,
		a.Key, a.At, a.Actor, a.Action, a.Target, a.Tenant, a.RequestID, a.Details)
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
	var out []surehook.AuditEntry
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT key, at, actor, action, target, tenant, request_id, details FROM audit_log`+q.where()+` ORDER BY key DESC LIMIT ?`,
			q.with(row.PageSize(p)), func(st *sqlite3.Stmt) error {
				out = append(out, surehook.AuditEntry{Key: st.ColumnInt64(0), At: at(st.ColumnInt64(1)), Actor: st.ColumnText(2), Action: st.ColumnText(3),
					Target: st.ColumnText(4), Tenant: st.ColumnText(5), RequestID: st.ColumnText(6), Details: st.ColumnText(7)})
				return nil
			})
	})
	return out, err
}
