package sqlite

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// CreateEndpoint implements surehook.Endpoints.
func (s *Store) CreateEndpoint(_ context.Context, e *surehook.Endpoint, limit int, a *surehook.AuditEntry) error {
	row := *e
	err := s.change(func(c *conn) error {
		row = *e
		if err := checkEndpointLimit(c, &row, limit); err != nil {
			return err
		}
		if n, err := c.int64(`SELECT count(*) FROM endpoints WHERE id = ?`, row.ID); err != nil || n > 0 {
			return orConflict(err, "a webhook with this id exists")
		}
		row.Key, row.Version, row.UpdatedAt = s.keys.take(1), 1, at(millis(s.now()))
		if err := feed(c, &row); err != nil {
			return err
		}
		if row.CreatedAt.IsZero() {
			row.CreatedAt = row.UpdatedAt
		}
		if _, err := c.exec(`INSERT INTO endpoints (key, id, version, changed, tenant, partner, url, description, event_types, subjects,
			identities, profile, envelope, signature, headers, limits, ordered, enabled, disabled_reason, consecutive_failures,
			first_failure_at, last_failure_at, last_success_at, created_at, updated_at, inbox)
			VALUES (?,?,0,0,'','','','','','','','','','','','',0,0,'',0,0,0,0,0,0,?)`, row.Key, row.ID, row.Inbox); err != nil {
			return err
		}
		return s.putEndpoint(c, &row, a)
	})
	if err != nil {
		return err
	}
	e.Key, e.Version, e.Inbox, e.CreatedAt, e.UpdatedAt = row.Key, row.Version, row.Inbox, row.CreatedAt, row.UpdatedAt
	return nil
}

func orConflict(err error, message string) error {
	if err != nil {
		return err
	}
	return surehook.Errorf(surehook.Conflict, "%s", message)
}

// checkEndpointLimit counts the endpoints of the same scope.
func checkEndpointLimit(c *conn, e *surehook.Endpoint, limit int) error {
	if limit <= 0 {
		return nil
	}
	var n int64
	var err error
	const count, has = `SELECT count(*) FROM endpoints e WHERE deleted = 0 AND ? = EXISTS (SELECT 1 FROM sentinels n WHERE n.endpoint_key = e.key)`, ` AND tenant = `
	watches, what := e.Sentinel != nil, "webhooks"
	if watches {
		what = "sentinels"
	}
	if e.Tenant != "" {
		n, err = c.int64(count+has+`?`, watches, e.Tenant)
	} else {
		n, err = c.int64(count+has+`'' AND partner = ?`, watches, e.Partner)
	}
	if err == nil && n >= int64(limit) {
		err = surehook.Errorf(surehook.LimitReached, "the limit of %d %s is reached", limit, what)
	}
	return err
}

// UpdateEndpoint implements surehook.Endpoints. change may be called more than
// once, each time with the stored row; it runs in the writer, so it must be
// quick.
func (s *Store) UpdateEndpoint(_ context.Context, id string, change func(*surehook.Endpoint) error, a *surehook.AuditEntry) (*surehook.Endpoint, error) {
	var e *surehook.Endpoint
	var refused error // of change; the caller gets it as it is
	err := s.change(func(c *conn) (err error) {
		refused = nil
		stored, err := liveEndpoint(c, id)
		if err != nil {
			return err
		}
		e, err = endpointByKey(c, stored.Key)
		if err != nil {
			return err
		}
		if refused = change(e); refused != nil {
			return refused
		}
		// What is the store's to say stays as it was.
		e.Key, e.ID, e.Inbox, e.CreatedAt, e.Deleted = stored.Key, stored.ID, stored.Inbox, stored.CreatedAt, false
		e.Version, e.UpdatedAt = stored.Version+1, at(millis(s.now()))
		if e.Sentinel == nil || stored.Sentinel == nil {
			e.Sentinel = stored.Sentinel
		}
		if stored.Ordered && !e.Ordered {
			if err := disorder(c, stored.Key, s.now()); err != nil {
				return err
			}
		}
		if err := s.putEndpoint(c, e, a); err != nil {
			return err
		}
		e, err = endpointByKey(c, stored.Key)
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

// putEndpoint writes the row, its secrets, the audit entry and the new
// configuration version.
func (s *Store) putEndpoint(c *conn, e *surehook.Endpoint, a *surehook.AuditEntry) error {
	limits, err := row.Limits(e.Limits)
	if err != nil {
		return err
	}
	if _, err := c.exec(`UPDATE endpoints SET version = ?, tenant = ?, partner = ?, url = ?, description = ?, event_types = ?, subjects = ?,
		identities = ?, profile = ?, envelope = ?, signature = ?, headers = ?, limits = ?, enabled = ?, disabled_reason = ?,
		consecutive_failures = ?, first_failure_at = ?, last_failure_at = ?, last_success_at = ?, created_at = ?, updated_at = ?,
		ordered = ?, urgency = ? WHERE key = ?`,
		e.Version, e.Tenant, e.Partner, e.URL, e.Description, e.EventTypes, e.Subjects,
		e.Identities, e.Profile, string(e.Envelope), e.Signature, row.Headers(e.Headers), limits, e.Enabled, e.DisabledReason,
		e.Health.ConsecutiveFailures, e.Health.FirstFailureAt, e.Health.LastFailureAt, e.Health.LastSuccessAt, e.CreatedAt, e.UpdatedAt,
		e.Ordered, e.Urgency, e.Key); err != nil {
		return err
	}
	if _, err := c.exec(`INSERT INTO endpoint_secrets (endpoint_key, secret_enc, prev_secret_enc, prev_until) VALUES (?1,?2,?3,?4)
		ON CONFLICT DO UPDATE SET secret_enc = ?2, prev_secret_enc = ?3, prev_until = ?4`,
		e.Key, e.Secrets.Current, e.Secrets.Previous, e.Secrets.PreviousUntil); err != nil {
		return err
	}
	if err := s.putSentinel(c, e); err != nil {
		return err
	}
	if err := s.putAudit(c, a); err != nil {
		return err
	}
	return s.bumpConfig(c, e.Key)
}

// DeleteEndpoint implements surehook.Endpoints.
func (s *Store) DeleteEndpoint(_ context.Context, id string, a *surehook.AuditEntry) error {
	return s.change(func(c *conn) error {
		e, err := liveEndpoint(c, id)
		if err != nil {
			return err
		}
		if err := s.dropEndpoint(c, e.Key); err != nil {
			return err
		}
		if err := s.putAudit(c, a); err != nil {
			return err
		}
		return s.bumpConfig(c, e.Key)
	})
}

func liveEndpoint(c *conn, id string) (*surehook.Endpoint, error) {
	return endpointBy(c, `e.id = ? AND e.deleted = 0`, id)
}

func endpointBy(c *conn, cond string, arg any) (*surehook.Endpoint, error) {
	var e *surehook.Endpoint
	found, err := c.one(`SELECT `+endpointColumns+fromEndpoints+` WHERE `+cond, []any{arg}, func(st *sqlite3.Stmt) (err error) {
		e, err = scanEndpoint(st)
		return err
	})
	if err == nil && !found {
		err = notFound("webhook")
	}
	return e, err
}

// Endpoint implements surehook.Endpoints.
func (s *Store) Endpoint(ctx context.Context, id string) (*surehook.Endpoint, error) {
	var e *surehook.Endpoint
	err := s.read(ctx, func(c *conn) (err error) {
		e, err = liveEndpoint(c, id)
		return err
	})
	return e, err
}

// Tombstone implements surehook.Endpoints.
func (s *Store) Tombstone(ctx context.Context, key int64) (*surehook.Endpoint, error) {
	var e *surehook.Endpoint
	err := s.read(ctx, func(c *conn) (err error) {
		e, err = endpointBy(c, `e.key = ? AND e.deleted = 1`, key)
		return err
	})
	return e, err
}

// ListEndpoints implements surehook.Endpoints, newest first.
func (s *Store) ListEndpoints(ctx context.Context, f surehook.EndpointFilter, p surehook.Page) ([]*surehook.Endpoint, error) {
	var q query
	q.add(`e.deleted = 0`)
	q.before(`e.key`, p.Cursor)
	if f.Tenant != "" {
		q.add(`e.tenant = ?`, f.Tenant)
	}
	if f.Partner != "" {
		q.add(`e.partner = ?`, f.Partner)
	}
	if f.Of != "" {
		q.add(`(e.partner = ? OR e.tenant IN (SELECT id FROM tenants WHERE partner = ? AND partner <> ''))`, f.Of, f.Of)
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
	var out []*surehook.Endpoint
	err := s.read(ctx, func(c *conn) error {
		return c.each(`SELECT `+endpointColumns+fromEndpoints+q.where()+` ORDER BY e.key DESC LIMIT ?`, q.with(row.PageSize(p)), func(st *sqlite3.Stmt) error {
			e, err := scanEndpoint(st)
			out = append(out, e)
			return err
		})
	})
	return out, err
}

// Changes implements surehook.Endpoints.
func (s *Store) Changes(ctx context.Context, version int64) ([]*surehook.Endpoint, int64, error) {
	var out []*surehook.Endpoint
	var now int64
	err := s.read(ctx, func(c *conn) (err error) {
		if now, err = c.int64(`SELECT value FROM counters WHERE name = 'config'`); err != nil || now == version {
			return err
		}
		return c.each(`SELECT `+endpointColumns+fromEndpoints+` WHERE e.changed > ? ORDER BY e.key`, []any{version}, func(st *sqlite3.Stmt) error {
			e, err := scanEndpoint(st)
			out = append(out, e)
			return err
		})
	})
	return out, now, err
}

// query gathers the conditions of a listing.
type query struct {
	conds string
	args  []any
}

func (q *query) add(cond string, args ...any) {
	if q.conds != "" {
		q.conds += " AND "
	}
	q.conds += cond
	q.args = append(q.args, args...)
}

// before asks for rows below a cursor; 0 is the top.
func (q *query) before(column string, cursor int64) {
	if cursor > 0 {
		q.add(column+` < ?`, cursor)
	}
}

// within asks for since ≤ column < until; a zero time is no bound.
func (q *query) within(column string, since, until time.Time) {
	if !since.IsZero() {
		q.add(column+` >= ?`, row.CeilMillis(since))
	}
	if !until.IsZero() {
		q.add(column+` < ?`, row.CeilMillis(until))
	}
}

func (q *query) where() string {
	if q.conds == "" {
		return ""
	}
	return " WHERE " + q.conds
}

func (q *query) with(more ...any) []any { return append(q.args[:len(q.args):len(q.args)], more...) }
