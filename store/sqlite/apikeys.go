package sqlite

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const keyColumns = `key, id, name, hash, hint, tenant, partner, permissions, created_at, revoked_at, last_used_at FROM api_keys`

func scanKey(st *sqlite3.Stmt) (*surehook.APIKey, error) {
	permissions, err := unlist(st.ColumnRawText(7))
	return &surehook.APIKey{
		Key: st.ColumnInt64(0), ID: st.ColumnText(1), Name: st.ColumnText(2), Hash: st.ColumnBlob(3, nil), Hint: st.ColumnText(4),
		Tenant: st.ColumnText(5), Partner: st.ColumnText(6), Permissions: permissions, CreatedAt: at(st.ColumnInt64(8)), RevokedAt: at(st.ColumnInt64(9)),
		LastUsedAt: at(st.ColumnInt64(10)),
	}, err
}

// CreateKey implements surehook.Keys.
func (s *Store) CreateKey(_ context.Context, k *surehook.APIKey, a *surehook.AuditEntry) error {
	row := *k
	err := s.change(func(c *conn) error {
		row = *k
		row.Key = s.keys.take(1)
		if row.CreatedAt.IsZero() {
			row.CreatedAt = at(millis(s.now()))
		}
		n, err := c.exec(`INSERT INTO api_keys (key, id, name, hash, hint, tenant, partner, permissions, created_at, revoked_at, last_used_at)
			VALUES (?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
			row.Key, row.ID, row.Name, row.Hash, row.Hint, row.Tenant, row.Partner, row.Permissions, row.CreatedAt, row.RevokedAt, row.LastUsedAt)
		if err != nil || n == 0 {
			return orConflict(err, "this API key exists")
		}
		return s.putAudit(c, a)
	})
	if err == nil {
		*k = row
	}
	return err
}

// KeyByHash implements surehook.Keys.
func (s *Store) KeyByHash(ctx context.Context, hash []byte) (*surehook.APIKey, error) {
	var k *surehook.APIKey
	err := s.read(ctx, func(c *conn) error {
		found, err := c.one(`SELECT `+keyColumns+` WHERE hash = ?`, []any{hash}, func(st *sqlite3.Stmt) (err error) {
			k, err = scanKey(st)
			return err
		})
		if err == nil && !found {
			err = notFound("API key")
		}
		return err
	})
	return k, err
}

// ListKeys implements surehook.Keys, newest first.
func (s *Store) ListKeys(ctx context.Context, p surehook.Page) ([]*surehook.APIKey, error) {
	var q query
	q.before(`key`, p.Cursor)
	var out []*surehook.APIKey
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT `+keyColumns+q.where()+` ORDER BY key DESC LIMIT ?`, q.with(row.PageSize(p)), func(st *sqlite3.Stmt) error {
			k, err := scanKey(st)
			out = append(out, k)
			return err
		})
	})
	return out, err
}

// RevokeKey implements surehook.Keys. A key that was revoked stays so, since
// then.
func (s *Store) RevokeKey(_ context.Context, id string, a *surehook.AuditEntry) error {
	return s.change(func(c *conn) error {
		var k *surehook.APIKey
		others := false
		if err := c.each(`SELECT `+keyColumns, nil, func(st *sqlite3.Stmt) error {
			x, err := scanKey(st)
			if err != nil {
				return err
			}
			if x.ID == id {
				k = x
			} else {
				others = others || row.Admin(x)
			}
			return nil
		}); err != nil {
			return err
		}
		switch {
		case k == nil:
			return notFound("API key")
		case !k.RevokedAt.IsZero():
			return nil
		case row.Admin(k) && !others:
			return row.ErrLastAdmin
		}
		if _, err := c.exec(`UPDATE api_keys SET revoked_at = ? WHERE id = ?`, s.now(), id); err != nil {
			return err
		}
		return s.putAudit(c, row.OfTenant(a, k.Tenant))
	})
}

// KeysUsed implements surehook.Keys.
func (s *Store) KeysUsed(_ context.Context, used map[int64]time.Time) error {
	return s.change(func(c *conn) error {
		for key, at := range used {
			if _, err := c.exec(`UPDATE api_keys SET last_used_at = ? WHERE key = ? AND last_used_at < ?`, at, key, at); err != nil {
				return err
			}
		}
		return nil
	})
}
