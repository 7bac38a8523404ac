package postgres

import (
	"context"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

var letterColumns = `d.key, d.event_key, d.endpoint_key, d.code, d.http_status, d.attempts, d.created_at,
	coalesce(e.id, ''), coalesce(e.type, ''), coalesce(w.id, '') FROM surehook.dead_letters d` + names(`d`)

func scanLetter(r pgx.CollectableRow) (surehook.DeadLetter, error) {
	var d surehook.DeadLetter
	err := r.Scan(&d.Key, &d.EventKey, &d.EndpointKey, &d.Code, &d.HTTPStatus, &d.Attempts, intoTime{&d.CreatedAt}, &d.EventID, &d.EventType, &d.EndpointID)
	return d, err
}

// ListDeadLetters implements surehook.DeadLetters.
func (s *Store) ListDeadLetters(ctx context.Context, f surehook.DeadLetterFilter, p surehook.Page) ([]surehook.DeadLetter, error) {
	var q query
	q.before(`d.key`, p.Cursor)
	if f.Endpoint != 0 {
		q.add(`d.endpoint_key = ?`, f.Endpoint)
	}
	if f.Tenant != "" {
		q.add(`e.tenant = ?`, f.Tenant)
	}
	q.sees(f.For, `d.endpoint_key`)
	q.keysWithin(`d.key`, f.Since, f.Until)
	q.within(`d.created_at`, f.Since, f.Until)
	return list(ctx, s, scanLetter, `SELECT `+letterColumns+q.where()+` ORDER BY d.key DESC`+q.limit(p), q.args...)
}

// DeadLetter implements surehook.DeadLetters.
func (s *Store) DeadLetter(ctx context.Context, key int64) (*surehook.DeadLetter, error) {
	d, err := find(ctx, s, "dead letter", scanLetter, `SELECT `+letterColumns+` WHERE d.key = $1`, key)
	if err != nil {
		return nil, err
	}
	return &d, nil
}

// CountDeadLetters implements surehook.DeadLetters.
func (s *Store) CountDeadLetters(ctx context.Context) (map[int64]int64, error) {
	type count struct{ endpoint, letters int64 }
	rows, err := list(ctx, s, func(r pgx.CollectableRow) (c count, err error) {
		err = r.Scan(&c.endpoint, &c.letters)
		return c, err
	}, `SELECT endpoint_key, count(*) FROM surehook.dead_letters GROUP BY endpoint_key`)
	out := make(map[int64]int64, len(rows))
	for _, c := range rows {
		out[c.endpoint] = c.letters
	}
	return out, err
}

// DiscardDeadLetters implements surehook.DeadLetters.
func (s *Store) DiscardDeadLetters(ctx context.Context, keys []int64, a *surehook.AuditEntry) (int, error) {
	var gone int
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		tag, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.dead_letters WHERE key = ANY($1)`), keys)
		if err != nil {
			return err
		}
		if gone = int(tag.RowsAffected()); gone == 0 {
			return nil
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		return s.putAudit(ctx, tx, now, a)
	})
	return gone, err
}
