package postgres

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

const (
	rememberFor = 24 * time.Hour
	forgetBatch = 64 // more than one new answer brings, so that old ones never pile up
)

const settingOf = `SELECT value FROM surehook.settings WHERE name = $1`

// Setting implements surehook.Settings.
func (s *Store) Setting(ctx context.Context, name string) ([]byte, error) {
	return find(ctx, s, "setting", pgx.RowTo[[]byte], settingOf, name)
}

// PutSetting implements surehook.Settings.
func (s *Store) PutSetting(ctx context.Context, name string, value []byte, overwrite bool) ([]byte, error) {
	sql := `INSERT INTO surehook.settings (name, value) VALUES ($1, $2) ON CONFLICT DO NOTHING`
	if overwrite {
		sql = `INSERT INTO surehook.settings (name, value) VALUES ($1, $2) ON CONFLICT (name) DO UPDATE SET value = $2`
	}
	var stored []byte
	err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.q(sql), name, orEmpty(value))
		if err != nil {
			return err
		}
		stored, err = one(ctx, tx, "setting", pgx.RowTo[[]byte], s.q(settingOf), name)
		return err
	})
	return stored, err
}

// Reserve implements surehook.Settings.
func (s *Store) Reserve(ctx context.Context, scope, key string, hash []byte) (requestHash, answer []byte, err error) {
	err = s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		requestHash, answer = nil, nil
		tag, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.idempotency AS i (scope, name, request_hash, answer, created_at) VALUES ($1, $2, $3, '', $4)
			ON CONFLICT (scope, name) DO UPDATE SET request_hash = $3, answer = '', created_at = $4
			WHERE i.created_at <= $5 OR i.answer = '' AND i.created_at <= $6`),
			scope, key, orEmpty(hash), now, now-rememberFor.Milliseconds(), now-surehook.ReservedFor.Milliseconds())
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		err = tx.QueryRow(ctx, s.q(`SELECT request_hash, answer FROM surehook.idempotency WHERE scope = $1 AND name = $2`), scope, key).
			Scan(&requestHash, &answer)
		if errors.Is(err, pgx.ErrNoRows) { // it was given back between the two
			return errInTheWay
		}
		return err
	})
	return requestHash, answer, err
}

// Unreserve implements surehook.Settings.
func (s *Store) Unreserve(ctx context.Context, scope, key string) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.idempotency WHERE scope = $1 AND name = $2 AND answer = ''`), scope, key)
		return err
	})
}

// Remember implements surehook.Settings, and forgets some of what is older than
// a day.
func (s *Store) Remember(ctx context.Context, scope, key string, requestHash, answer []byte) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		old := now - rememberFor.Milliseconds()
		if _, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.idempotency AS i (scope, name, request_hash, answer, created_at) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (scope, name) DO UPDATE SET request_hash = $3, answer = $4, created_at = $5 WHERE i.answer = '' OR i.created_at <= $6`),
			scope, key, orEmpty(requestHash), orEmpty(answer), now, old); err != nil {
			return err
		}
		// Those that another transaction is at are its to forget.
		_, err = tx.Exec(ctx, s.q(`DELETE FROM surehook.idempotency WHERE ctid = ANY (ARRAY(
			SELECT ctid FROM surehook.idempotency WHERE created_at <= $1 ORDER BY created_at LIMIT $2 FOR UPDATE SKIP LOCKED))`), old, forgetBatch)
		return err
	})
}

// Health implements surehook.Store by writing: a database that can be read but
// not written takes no events.
func (s *Store) Health(ctx context.Context) error {
	if s.closed.Load() {
		return errClosed
	}
	ctx, cancel := context.WithTimeout(ctx, readLimit)
	defer cancel()
	err := s.do(ctx, s.q(`UPDATE surehook.counters SET value = surehook.clock() WHERE name = 'health'`))
	return wrap(err)
}
