package sqlite

import (
	"context"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const partnerColumns = `SELECT key, id, name, suspended, created_at, updated_at FROM partners`

func scanPartner(st *sqlite3.Stmt) *surehook.Partner {
	return &surehook.Partner{Key: st.ColumnInt64(0), ID: st.ColumnText(1), Name: st.ColumnText(2), Suspended: st.ColumnBool(3),
		CreatedAt: at(st.ColumnInt64(4)), UpdatedAt: at(st.ColumnInt64(5))}
}

func partnerByID(c *conn, id string) (*surehook.Partner, error) {
	var p *surehook.Partner
	found, err := c.one(partnerColumns+` WHERE id = ?`, []any{id}, func(st *sqlite3.Stmt) error {
		p = scanPartner(st)
		return nil
	})
	if err == nil && !found {
		err = notFound("partner")
	}
	return p, err
}

// PutPartner implements surehook.Tenants.
func (s *Store) PutPartner(_ context.Context, p *surehook.Partner, keep bool, a *surehook.AuditEntry) error {
	var put surehook.Partner
	err := s.change(func(c *conn) error {
		put = *p
		now := at(millis(s.now()))
		old, err := partnerByID(c, p.ID)
		switch {
		case err == nil:
			put.Key, put.CreatedAt = old.Key, old.CreatedAt
		case surehook.CodeOf(err) == surehook.NotFound:
			old = &surehook.Partner{}
			put.Key, put.CreatedAt = s.keys.take(1), now
		default:
			return err
		}
		put.UpdatedAt = now
		if keep {
			put.Suspended = old.Suspended
		}
		if _, err := c.exec(`INSERT INTO partners (key, id, name, suspended, created_at, updated_at) VALUES (?1,?2,?3,?4,?5,?6)
			ON CONFLICT (id) DO UPDATE SET name = ?3, suspended = ?4, updated_at = ?6`,
			put.Key, put.ID, put.Name, put.Suspended, put.CreatedAt, put.UpdatedAt); err != nil {
			return err
		}
		if err := s.putAudit(c, a); err != nil || put.Suspended == old.Suspended {
			return err
		}
		return s.bumpConfig(c, 0)
	})
	if err == nil {
		*p = put
	}
	return err
}

// Partner implements surehook.Tenants.
func (s *Store) Partner(ctx context.Context, id string) (*surehook.Partner, error) {
	var p *surehook.Partner
	err := s.read(ctx, func(c *conn) (err error) {
		p, err = partnerByID(c, id)
		return err
	})
	return p, err
}

// ListPartners implements surehook.Tenants, newest first.
func (s *Store) ListPartners(ctx context.Context, p surehook.Page) ([]*surehook.Partner, error) {
	var q query
	q.before(`key`, p.Cursor)
	var out []*surehook.Partner
	err := s.read(ctx, func(c *conn) error {
		return c.each(partnerColumns+q.where()+` ORDER BY key DESC LIMIT ?`, q.with(row.PageSize(p)), func(st *sqlite3.Stmt) error {
			out = append(out, scanPartner(st))
			return nil
		})
	})
	return out, err
}

// DeletePartner implements surehook.Tenants.
func (s *Store) DeletePartner(_ context.Context, id string, a *surehook.AuditEntry) error {
	return s.change(func(c *conn) error {
		p, err := partnerByID(c, id)
		if err != nil {
			return err
		}
		if _, err := c.exec(`DELETE FROM partners WHERE key = ?`, p.Key); err != nil {
			return err
		}
		if err := s.putAudit(c, a); err != nil || !p.Suspended {
			return err
		}
		return s.bumpConfig(c, 0)
	})
}

// Suspended implements surehook.Tenants.
func (s *Store) Suspended(ctx context.Context) ([]string, error) {
	var out []string
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT id FROM partners WHERE suspended = 1 ORDER BY id`, nil, func(st *sqlite3.Stmt) error {
			out = append(out, st.ColumnText(0))
			return nil
		})
	})
	return out, err
}
