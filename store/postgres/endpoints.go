package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// CreateEndpoint implements surehook.Endpoints.
func (s *Store) CreateEndpoint(ctx context.Context, e *surehook.Endpoint, most int, a *surehook.AuditEntry) error {
	var made surehook.Endpoint
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		made = *e
		if err := s.checkEndpointLimit(ctx, tx, &made, most); err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if made.Key, err = s.key(ctx, tx, now); err != nil {
			return err
		}
		if err := s.feed(ctx, tx, &made); err != nil {
			return err
		}
		made.Version, made.UpdatedAt = 1, at(now)
		if made.CreatedAt.IsZero() {
			made.CreatedAt = made.UpdatedAt
		}
		tag, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.endpoints (key, id, version, changed, tenant, partner, url, description, event_types, subjects,
			identities, profile, envelope, signature, headers, limits, ordered, enabled, disabled_reason, consecutive_failures,
			first_failure_at, last_failure_at, last_success_at, created_at, updated_at, inbox)
			VALUES ($1, $2, 0, 0, '', '', '', '', '', '', '', '', '', '', '', '', false, false, '', 0, 0, 0, 0, 0, 0, $3)
			ON CONFLICT (id) DO NOTHING`), made.Key, made.ID, made.Inbox)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return conflict("a webhook with this id exists")
		}
		return s.putEndpoint(ctx, tx, &made, now, a)
	})
	if err != nil {
		return err
	}
	e.Key, e.Version, e.Inbox, e.CreatedAt, e.UpdatedAt = made.Key, made.Version, made.Inbox, made.CreatedAt, made.UpdatedAt
	return nil
}

// checkEndpointLimit counts the endpoints of the same scope. Who counts keeps
// others of the scope from counting until the commit, so that two don't both
// take the last place.
func (s *Store) checkEndpointLimit(ctx context.Context, tx pgx.Tx, e *surehook.Endpoint, most int) error {
	if most <= 0 {
		return nil
	}
	const kind = ` AND NOT e.deleted AND $2 = EXISTS (SELECT FROM surehook.sentinels n WHERE n.endpoint_key = e.key)`
	scope, sql, arg := "partner "+e.Partner, `SELECT count(*) FROM surehook.endpoints e WHERE e.tenant = '' AND e.partner = $1`+kind, e.Partner
	if e.Tenant != "" {
		scope, sql, arg = "tenant "+e.Tenant, `SELECT count(*) FROM surehook.endpoints e WHERE e.tenant = $1`+kind, e.Tenant
	}
	what := "webhooks"
	if e.Sentinel != nil {
		what = "sentinels"
	}
	if err := s.exclude(ctx, tx, "endpoints of "+scope); err != nil {
		return err
	}
	var n int
	if err := tx.QueryRow(ctx, s.q(sql), arg, e.Sentinel != nil).Scan(&n); err != nil {
		return err
	}
	if n >= most {
		return surehook.Errorf(surehook.LimitReached, "the limit of %d %s is reached", most, what)
	}
	return nil
}

// exclude keeps other transactions out that name the same thing, until the
// commit.
func (s *Store) exclude(ctx context.Context, tx pgx.Tx, what string) error {
	_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended($1, 0))`, s.opt.Schema+" "+what)
	return err
}

// UpdateEndpoint implements surehook.Endpoints. change may be called more than
// once, each time with the stored row; the row is locked meanwhile, so it must
// be quick.
func (s *Store) UpdateEndpoint(ctx context.Context, id string, change func(*surehook.Endpoint) error, a *surehook.AuditEntry) (*surehook.Endpoint, error) {
	var e *surehook.Endpoint
	var refused error // of change; the caller gets it as it is
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		refused = nil
		key, err := one(ctx, tx, "webhook", pgx.RowTo[int64], s.q(`SELECT key FROM surehook.endpoints WHERE id = $1 AND NOT deleted`), id)
		if err != nil {
			return err
		}
		if err := s.excludeClaims(ctx, tx, key); err != nil { // its order may change
			return err
		}
		if _, err := s.lockEndpoint(ctx, tx, id); err != nil {
			return err
		}
		if err := s.lockSentinel(ctx, tx, key); err != nil {
			return err
		}
		// A statement of its own, which sees what whoever held the lock has changed.
		if e, err = s.endpointByKey(ctx, tx, key); err != nil {
			return err
		}
		stored := *e
		if refused = change(e); refused != nil {
			return refused
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		// What is the store's to say stays as it was.
		e.Key, e.ID, e.Inbox, e.CreatedAt, e.Deleted = stored.Key, stored.ID, stored.Inbox, stored.CreatedAt, false
		e.Version, e.UpdatedAt = stored.Version+1, at(now)
		if e.Sentinel == nil || stored.Sentinel == nil {
			e.Sentinel = stored.Sentinel
		}
		if stored.Ordered && !e.Ordered {
			if err := s.disorder(ctx, tx, key, now); err != nil {
				return err
			}
		}
		if err := s.putEndpoint(ctx, tx, e, now, a); err != nil {
			return err
		}
		e, err = s.endpointByKey(ctx, tx, key)
		return err
	})
	switch {
	case refused != nil:
		return nil, refused
	case err != nil:
		return nil, err
	}
	return e, nil
}

// lockEndpoint locks the row of one that isn't deleted.
func (s *Store) lockEndpoint(ctx context.Context, tx pgx.Tx, id string) (int64, error) {
	return one(ctx, tx, "webhook", pgx.RowTo[int64], s.q(`SELECT key FROM surehook.endpoints WHERE id = $1 AND NOT deleted FOR NO KEY UPDATE`), id)
}

func (s *Store) endpointByKey(ctx context.Context, tx pgx.Tx, key int64) (*surehook.Endpoint, error) {
	return one(ctx, tx, "webhook", scanEndpoint, s.q(`SELECT `+endpointColumns+` WHERE e.key = $1`), key)
}

// putEndpoint writes the row, its secrets, the audit entry and the new
// configuration version. The row is locked, or new.
func (s *Store) putEndpoint(ctx context.Context, tx pgx.Tx, e *surehook.Endpoint, now int64, a *surehook.AuditEntry) error {
	limits, err := row.Limits(e.Limits)
	if err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.endpoints SET version = $2, tenant = $3, partner = $4, url = $5, description = $6, event_types = $7,
		subjects = $8, identities = $9, profile = $10, envelope = $11, signature = $12, headers = $13, limits = $14, enabled = $15,
		disabled_reason = $16, consecutive_failures = $17, first_failure_at = $18, last_failure_at = $19, last_success_at = $20,
		created_at = $21, updated_at = $22, ordered = $23, urgency = $24 WHERE key = $1`),
		e.Key, e.Version, e.Tenant, e.Partner, e.URL, e.Description, row.List(e.EventTypes),
		row.List(e.Subjects), row.List(e.Identities), e.Profile, string(e.Envelope), e.Signature, row.Headers(e.Headers), limits, e.Enabled,
		e.DisabledReason, e.Health.ConsecutiveFailures, millis(e.Health.FirstFailureAt), millis(e.Health.LastFailureAt), millis(e.Health.LastSuccessAt),
		millis(e.CreatedAt), millis(e.UpdatedAt), e.Ordered, e.Urgency); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.endpoint_secrets (endpoint_key, secret_enc, prev_secret_enc, prev_until) VALUES ($1, $2, $3, $4)
		ON CONFLICT (endpoint_key) DO UPDATE SET secret_enc = $2, prev_secret_enc = $3, prev_until = $4`),
		e.Key, e.Secrets.Current, e.Secrets.Previous, millis(e.Secrets.PreviousUntil)); err != nil {
		return err
	}
	if err := s.putSentinel(ctx, tx, e); err != nil {
		return err
	}
	if err := s.putAudit(ctx, tx, now, a); err != nil {
		return err
	}
	return s.bumpConfig(ctx, tx, e.Key)
}

// nextConfig gives the configuration's next version, and lets other nodes know.
// The counter stays locked until the commit, so versions ascend in the order of
// commits, and what a change waits for must be locked before.
func (s *Store) nextConfig(ctx context.Context, tx pgx.Tx) (version int64, err error) {
	if _, err := tx.Exec(ctx, `SELECT pg_notify($1, 'config')`, s.opt.Schema); err != nil {
		return 0, err
	}
	err = tx.QueryRow(ctx, s.q(`UPDATE surehook.counters SET value = value + 1 WHERE name = 'config' RETURNING value`)).Scan(&version)
	return version, err
}

// bumpConfig marks an endpoint as changed, in the transaction that changes it
// and has its row locked.
func (s *Store) bumpConfig(ctx context.Context, tx pgx.Tx, endpoint int64) error {
	v, err := s.nextConfig(ctx, tx)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, s.q(`UPDATE surehook.endpoints SET changed = $2 WHERE key = $1`), endpoint, v)
	return err
}

// DeleteEndpoint implements surehook.Endpoints.
func (s *Store) DeleteEndpoint(ctx context.Context, id string, a *surehook.AuditEntry) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		key, err := s.lockEndpoint(ctx, tx, id)
		if err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if err := s.dropEndpoints(ctx, tx, []int64{key}, now); err != nil {
			return err
		}
		if err := s.putAudit(ctx, tx, now, a); err != nil {
			return err
		}
		return s.bumpConfig(ctx, tx, key)
	})
}

// Endpoint implements surehook.Endpoints.
func (s *Store) Endpoint(ctx context.Context, id string) (*surehook.Endpoint, error) {
	return find(ctx, s, "webhook", scanEndpoint, `SELECT `+endpointColumns+` WHERE e.id = $1 AND NOT e.deleted`, id)
}

// Tombstone implements surehook.Endpoints.
func (s *Store) Tombstone(ctx context.Context, key int64) (*surehook.Endpoint, error) {
	return find(ctx, s, "webhook", scanEndpoint, `SELECT `+endpointColumns+` WHERE e.key = $1 AND e.deleted`, key)
}

// ListEndpoints implements surehook.Endpoints, newest first.
func (s *Store) ListEndpoints(ctx context.Context, f surehook.EndpointFilter, p surehook.Page) ([]*surehook.Endpoint, error) {
	var q query
	q.add(`NOT e.deleted`)
	q.before(`e.key`, p.Cursor)
	if f.Tenant != "" {
		q.add(`e.tenant = ?`, f.Tenant)
	}
	if f.Partner != "" {
		q.add(`e.partner = ?`, f.Partner)
	}
	if f.Of != "" {
		q.add(`(e.partner = ? OR e.tenant IN (SELECT id FROM surehook.tenants WHERE partner = ? AND partner <> ''))`, f.Of, f.Of)
	}
	if f.Platform {
		q.add(`e.tenant = '' AND e.partner = ''`)
	}
	if f.Enabled != nil {
		q.add(`e.enabled = ?`, *f.Enabled)
	}
	if f.Inbox != 0 {
		q.add(`e.inbox = ?`, f.Inbox)
	}
	switch f.Kind {
	case surehook.Webhooks:
		q.add(`n.endpoint_key IS NULL`)
	case surehook.SentinelsOnly:
		q.add(`n.endpoint_key IS NOT NULL`)
	case surehook.AnyKind:
	}
	for _, x := range [...][2]string{{`n.provider`, f.Provider}, {`n.grouping`, f.Group}, {`n.session`, f.Session}} {
		if x[1] != "" {
			q.add(x[0]+` = ?`, x[1])
		}
	}
	return list(ctx, s, scanEndpoint, `SELECT `+endpointColumns+q.where()+` ORDER BY e.key DESC`+q.limit(p), q.args...)
}

// Changes implements surehook.Endpoints.
func (s *Store) Changes(ctx context.Context, version int64) ([]*surehook.Endpoint, int64, error) {
	var out []*surehook.Endpoint
	var now int64
	err := s.read(ctx, func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, s.q(`SELECT value FROM surehook.counters WHERE name = 'config'`)).Scan(&now)
		if err != nil || now == version {
			return err
		}
		out, err = collect(ctx, tx, scanEndpoint, s.q(`SELECT `+endpointColumns+` WHERE e.changed > $1 ORDER BY e.key`), version)
		return err
	})
	return out, now, err
}
