package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// OpenSession implements surehook.Sessions.
func (s *Store) OpenSession(ctx context.Context, n *surehook.Session, link []byte, a *surehook.AuditEntry) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if link != nil {
			tag, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.sessions WHERE hash = $1 AND kind = $2`), link, string(surehook.SessionLink))
			if err != nil {
				return err
			}
			if tag.RowsAffected() == 0 {
				return notFound("link")
			}
		}
		// Those that another transaction is at are its to forget.
		if _, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.sessions WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM surehook.sessions WHERE expires_at <= $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))`), millis(n.CreatedAt), forgetBatch); err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.sessions (hash, id, kind, key_hash, subject, tenant, permissions, created_at, used_at, expires_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING`),
			n.Hash, n.ID, string(n.Kind), n.KeyHash, n.Subject, n.Tenant, row.List(n.Permissions), millis(n.CreatedAt), millis(n.UsedAt), millis(n.ExpiresAt))
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return conflict("this session exists")
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		return s.putAudit(ctx, tx, now, a)
	})
}

// Session implements surehook.Sessions.
func (s *Store) Session(ctx context.Context, hash []byte) (*surehook.Session, error) {
	return find(ctx, s, "session", func(r pgx.CollectableRow) (*surehook.Session, error) {
		n := &surehook.Session{}
		return n, r.Scan(&n.Hash, &n.ID, &n.Kind, &n.KeyHash, &n.Subject, &n.Tenant, intoList{&n.Permissions}, intoTime{&n.CreatedAt}, intoTime{&n.UsedAt}, intoTime{&n.ExpiresAt})
	}, `SELECT hash, id, kind, key_hash, subject, tenant, permissions, created_at, used_at, expires_at FROM surehook.sessions WHERE hash = $1`, hash)
}

// UseSession implements surehook.Sessions.
func (s *Store) UseSession(ctx context.Context, hash []byte, at time.Time) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.q(`UPDATE surehook.sessions SET used_at = $2 WHERE hash = $1 AND used_at < $2`), hash, millis(at))
		return err
	})
}

// EndSession implements surehook.Sessions.
func (s *Store) EndSession(ctx context.Context, hash []byte) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.sessions WHERE hash = $1`), hash)
		return err
	})
}
