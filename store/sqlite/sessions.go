package sqlite

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// OpenSession implements surehook.Sessions.
func (s *Store) OpenSession(_ context.Context, n *surehook.Session, link []byte, a *surehook.AuditEntry) error {
	return s.change(func(c *conn) error {
		if link != nil {
			gone, err := c.exec(`DELETE FROM sessions WHERE hash = ? AND kind = ?`, link, string(surehook.SessionLink))
			if err != nil {
				return err
			}
			if gone == 0 {
				return notFound("link")
			}
		}
		if _, err := c.exec(`DELETE FROM sessions WHERE hash IN (SELECT hash FROM sessions WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)`,
			n.CreatedAt, forgetBatch); err != nil {
			return err
		}
		made, err := c.exec(`INSERT INTO sessions (hash, id, kind, key_hash, subject, tenant, permissions, created_at, used_at, expires_at)
			VALUES (?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
			n.Hash, n.ID, string(n.Kind), n.KeyHash, n.Subject, n.Tenant, n.Permissions, n.CreatedAt, n.UsedAt, n.ExpiresAt)
		if err != nil || made == 0 {
			return orConflict(err, "this session exists")
		}
		return s.putAudit(c, a)
	})
}

// Session implements surehook.Sessions.
func (s *Store) Session(ctx context.Context, hash []byte) (*surehook.Session, error) {
	var out *surehook.Session
	err := s.read(ctx, func(c *conn) error {
		found, err := c.one(`SELECT hash, id, kind, key_hash, tenant, permissions, created_at, used_at, expires_at, subject FROM sessions WHERE hash = ?`,
			[]any{hash}, func(st *sqlite3.Stmt) error {
				permissions, err := unlist(st.ColumnRawText(5))
				out = &surehook.Session{Hash: st.ColumnBlob(0, nil), ID: st.ColumnText(1), Kind: surehook.SessionKind(st.ColumnText(2)), KeyHash: st.ColumnBlob(3, nil),
					Tenant: st.ColumnText(4), Permissions: permissions, CreatedAt: at(st.ColumnInt64(6)), UsedAt: at(st.ColumnInt64(7)), ExpiresAt: at(st.ColumnInt64(8)), Subject: st.ColumnText(9)}
				return err
			})
		if err == nil && !found {
			err = notFound("session")
		}
		return err
	})
	return out, err
}

// UseSession implements surehook.Sessions.
func (s *Store) UseSession(_ context.Context, hash []byte, at time.Time) error {
	return s.change(func(c *conn) error {
		_, err := c.exec(`UPDATE sessions SET used_at = ? WHERE hash = ? AND used_at < ?`, at, hash, at)
		return err
	})
}

// EndSession implements surehook.Sessions.
func (s *Store) EndSession(_ context.Context, hash []byte) error {
	return s.change(func(c *conn) error {
		_, err := c.exec(`DELETE FROM sessions WHERE hash = ?`, hash)
		return err
	})
}
