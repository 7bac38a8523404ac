package postgres

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const keyColumns = `key, id, name, hash, hint, tenant, partner, permissions, created_at, revoked_at, last_used_at FROM surehook.api_keys`

func scanKey(r pgx.CollectableRow) (*surehook.APIKey, error) {
	k := &surehook.APIKey{}
	return k, r.Scan(&k.Key, &k.ID, &k.Name, &k.Hash, &k.Hint, &k.Tenant, &k.Partner, intoList{&k.Permissions}, intoTime{&k.CreatedAt}, intoTime{&k.RevokedAt},
		intoTime{&k.LastUsedAt})
}

// CreateKey implements surehook.Keys.
func (s *Store) CreateKey(ctx context.Context, k *surehook.APIKey, a *surehook.AuditEntry) error {
	var made surehook.APIKey
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		made = *k
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if made.Key, err = s.key(ctx, tx, now); err != nil {
			return err
		}
		if made.CreatedAt.IsZero() {
			made.CreatedAt = at(now)
		}
		tag, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.api_keys (key, id, name, hash, hint, tenant, partner, permissions, created_at, revoked_at, last_used_at)
			VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) ON CONFLICT DO NOTHING`),
			made.Key, made.ID, made.Name, made.Hash, made.Hint, made.Tenant, made.Partner, row.List(made.Permissions), millis(made.CreatedAt), millis(made.RevokedAt),
			millis(made.LastUsedAt))
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return conflict("this API key exists")
		}
		return s.putAudit(ctx, tx, now, a)
	})
	if err == nil {
		*k = made
	}
	return err
}

// KeyByHash implements surehook.Keys.
func (s *Store) KeyByHash(ctx context.Context, hash []byte) (*surehook.APIKey, error) {
	return find(ctx, s, "API key", scanKey, `SELECT `+keyColumns+` WHERE hash = $1`, hash)
}

// ListKeys implements surehook.Keys, newest first.
func (s *Store) ListKeys(ctx context.Context, p surehook.Page) ([]*surehook.APIKey, error) {
	var q query
	q.before(`key`, p.Cursor)
	return list(ctx, s, scanKey, `SELECT `+keyColumns+q.where()+` ORDER BY key DESC`+q.limit(p), q.args...)
}

// RevokeKey implements surehook.Keys. A key that was revoked stays so, since
// then.
func (s *Store) RevokeKey(ctx context.Context, id string, a *surehook.AuditEntry) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		// One at a time, or two that each see the other could both go.
		if err := s.exclude(ctx, tx, "api keys"); err != nil {
			return err
		}
		k, err := one(ctx, tx, "API key", scanKey, s.q(`SELECT `+keyColumns+` WHERE id = $1 FOR NO KEY UPDATE`), id)
		if err != nil || !k.RevokedAt.IsZero() {
			return err
		}
		if row.Admin(k) {
			live, err := collect(ctx, tx, scanKey, s.q(`SELECT `+keyColumns+` WHERE revoked_at = 0 AND tenant = '' AND id <> $1`), id)
			if err != nil {
				return err
			}
			if !slices.ContainsFunc(live, row.Admin) {
				return row.ErrLastAdmin
			}
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.api_keys SET revoked_at = $2 WHERE id = $1`), id, now); err != nil {
			return err
		}
		return s.putAudit(ctx, tx, now, row.OfTenant(a, k.Tenant))
	})
}

// KeysUsed implements surehook.Keys. Nodes that tell of the same keys lock them
// in one order, and the later use stays.
func (s *Store) KeysUsed(ctx context.Context, used map[int64]time.Time) error {
	keys := slices.Sorted(maps.Keys(used))
	ats := make([]int64, len(keys))
	for i, k := range keys {
		ats[i] = millis(used[k])
	}
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.q(`UPDATE surehook.api_keys k SET last_used_at = greatest(k.last_used_at, x.at)
			FROM (SELECT k.key, x.at FROM surehook.api_keys k JOIN unnest($1::bigint[], $2::bigint[]) x(key, at) ON x.key = k.key
				WHERE k.last_used_at < x.at ORDER BY k.key FOR NO KEY UPDATE OF k) x
			WHERE k.key = x.key`), keys, ats)
		return err
	})
}
