package postgres

import (
	"context"
	"maps"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

const replayColumns = `r.key, r.id, r.endpoint_key, r.since, r.until, r.status, r.state, r.cursor, r.scanned, r.queued, r.total, r.error,
	r.created_at, r.updated_at, coalesce(w.id, '') FROM surehook.replays r LEFT JOIN surehook.endpoints w ON w.key = r.endpoint_key`

func scanReplay(row pgx.CollectableRow) (*surehook.Replay, error) {
	r := &surehook.Replay{}
	return r, row.Scan(&r.Key, &r.ID, &r.EndpointKey, intoTime{&r.Since}, intoTime{&r.Until}, &r.Status, &r.State, &r.Cursor, &r.Scanned, &r.Queued,
		&r.Total, &r.Error, intoTime{&r.CreatedAt}, intoTime{&r.UpdatedAt}, &r.EndpointID)
}

// CreateReplay implements surehook.Replays. It fills in Key and times, and
// Total unless it is set.
func (s *Store) CreateReplay(ctx context.Context, r *surehook.Replay, a *surehook.AuditEntry) error {
	job := *r
	if job.Total == 0 {
		total, err := s.estimate(ctx, r)
		if err != nil {
			return err
		}
		job.Total = total
	}
	if job.State == "" {
		job.State = surehook.ReplayRunning
	}
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if err := s.replayTarget(ctx, tx, job.EndpointKey); err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if job.Key, err = s.key(ctx, tx, now); err != nil {
			return err
		}
		job.CreatedAt, job.UpdatedAt = at(now), at(now)
		tag, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.replays (key, id, endpoint_key, since, until, status, state, cursor, scanned, queued, total, error,
			created_at, updated_at) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $13) ON CONFLICT (id) DO NOTHING`),
			job.Key, job.ID, job.EndpointKey, millis(job.Since), millis(job.Until), job.Status, string(job.State), job.Cursor, job.Scanned, job.Queued,
			job.Total, job.Error, now)
		if err != nil {
			return err
		}
		if tag.RowsAffected() == 0 {
			return conflict("a replay with this id exists")
		}
		return s.putAudit(ctx, tx, now, a)
	})
	if err == nil {
		*r = job
	}
	return err
}

// estimate counts the events of a window, up to a bound past which it takes
// them for evenly spread over the time, which keys are made of.
func (s *Store) estimate(ctx context.Context, r *surehook.Replay) (int64, error) {
	const bound = 50_000
	var q query
	// An event's key is made of the time it is found by, so no slack is needed.
	if !r.Since.IsZero() {
		q.add(`key >= ?`, timeKey(r.Since))
	}
	if !r.Until.IsZero() {
		q.add(`key < ?`, timeKey(r.Until))
	}
	where := q.where()
	var n, first, last, newest int64
	err := s.read(ctx, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, s.q(`SELECT count(*), coalesce(min(key), 0), coalesce(max(key), 0),
			coalesce((SELECT key FROM surehook.events`+where+` ORDER BY key DESC LIMIT 1), 0)
			FROM (SELECT key FROM surehook.events`+where+` ORDER BY key LIMIT `+q.arg(bound)+`) e`), q.args...).Scan(&n, &first, &last, &newest)
	})
	if n == bound {
		n = int64(float64(n) * float64(newest-first+1) / float64(last-first+1))
	}
	return n, err
}

// AdvanceReplay implements surehook.Replays. Events that are gone by now are
// left out. r gets what is stored after: a repeat adds nothing to Queued.
func (s *Store) AdvanceReplay(ctx context.Context, r *surehook.Replay, events []int64) error {
	var job *surehook.Replay
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if job, err = s.lockReplay(ctx, tx, r.ID); err != nil || job.State != surehook.ReplayRunning || r.Cursor <= job.Cursor {
			return err
		}
		found, err := s.replayEvents(ctx, tx, events)
		if err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		maps.DeleteFunc(found, func(_ int64, e replayEvent) bool { return e.erased })
		held, err := s.requeue(ctx, tx, job.EndpointKey, found, now)
		if err != nil {
			return err
		}
		for event := range found {
			if !held[event] {
				job.Queued++
			}
		}
		job.Cursor, job.Scanned, job.UpdatedAt = r.Cursor, r.Scanned, at(now)
		_, err = tx.Exec(ctx, s.q(`UPDATE surehook.replays SET cursor = $2, scanned = $3, queued = $4, updated_at = $5 WHERE key = $1`),
			job.Key, job.Cursor, job.Scanned, job.Queued, now)
		return err
	})
	if err == nil {
		*r = *job
	}
	return err
}

// lockReplay reads a job so that it stays as it is until the commit.
func (s *Store) lockReplay(ctx context.Context, tx pgx.Tx, id string) (*surehook.Replay, error) {
	return one(ctx, tx, "replay", scanReplay, s.q(`SELECT `+replayColumns+` WHERE r.id = $1 FOR NO KEY UPDATE OF r`), id)
}

// GetReplay implements surehook.Replays.
func (s *Store) GetReplay(ctx context.Context, id string) (*surehook.Replay, error) {
	return find(ctx, s, "replay", scanReplay, `SELECT `+replayColumns+` WHERE r.id = $1`, id)
}

// ListReplays implements surehook.Replays.
func (s *Store) ListReplays(ctx context.Context, endpoint int64, of surehook.Viewer, p surehook.Page) ([]*surehook.Replay, error) {
	var q query
	q.before(`r.key`, p.Cursor)
	if endpoint != 0 {
		q.add(`r.endpoint_key = ?`, endpoint)
	}
	q.sees(of, `r.endpoint_key`)
	return list(ctx, s, scanReplay, `SELECT `+replayColumns+q.where()+` ORDER BY r.key DESC`+q.limit(p), q.args...)
}

// RunningReplays implements surehook.Replays, oldest first.
func (s *Store) RunningReplays(ctx context.Context) ([]*surehook.Replay, error) {
	return list(ctx, s, scanReplay, `SELECT `+replayColumns+` WHERE r.state = 'running' ORDER BY r.key`)
}

// EndReplay implements surehook.Replays.
func (s *Store) EndReplay(ctx context.Context, id string, state surehook.ReplayState, errText string, a *surehook.AuditEntry) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		job, err := s.lockReplay(ctx, tx, id)
		if err != nil || job.State != surehook.ReplayRunning {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, s.q(`UPDATE surehook.replays SET state = $2, error = $3, updated_at = $4 WHERE key = $1`), job.Key, string(state), errText, now); err != nil {
			return err
		}
		return s.putAudit(ctx, tx, now, a)
	})
}
