package sqlite

import (
	"context"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

const (
	rememberFor = 24 * time.Hour
	forgetBatch = 64 // more than one new answer brings, so that old ones never pile up
)

// Setting implements surehook.Settings.
func (s *Store) Setting(ctx context.Context, name string) ([]byte, error) {
	var value []byte
	err := s.read(ctx, func(c *conn) (err error) {
		value, err = setting(c, name)
		return err
	})
	return value, err
}

func setting(c *conn, name string) ([]byte, error) {
	var value []byte
	found, err := c.one(`SELECT value FROM settings WHERE name = ?`, []any{name}, func(st *sqlite3.Stmt) error {
		value = st.ColumnBlob(0, []byte{})
		return nil
	})
	if err == nil && !found {
		err = notFound("setting")
	}
	return value, err
}

// PutSetting implements surehook.Settings.
func (s *Store) PutSetting(_ context.Context, name string, value []byte, overwrite bool) ([]byte, error) {
	var stored []byte
	err := s.change(func(c *conn) error {
		sql := `INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT DO NOTHING`
		if overwrite {
			sql = `INSERT INTO settings (name, value) VALUES (?1, ?2) ON CONFLICT DO UPDATE SET value = ?2`
		}
		_, err := c.exec(sql, name, append([]byte{}, value...))
		if err != nil {
			return err
		}
		stored, err = setting(c, name)
		return err
	})
	return stored, err
}

// Reserve implements surehook.Settings.
func (s *Store) Reserve(_ context.Context, scope, key string, hash []byte) (requestHash, answer []byte, err error) {
	err = s.change(func(c *conn) error {
		now := s.now()
		n, err := c.exec(`INSERT INTO idempotency (scope, name, request_hash, answer, created_at) VALUES (?1,?2,?3,x'',?4)
			ON CONFLICT DO UPDATE SET request_hash = ?3, answer = x'', created_at = ?4 WHERE created_at <= ?5 OR answer = x'' AND created_at <= ?6`,
			scope, key, append([]byte{}, hash...), now, now.Add(-rememberFor), now.Add(-surehook.ReservedFor))
		if err != nil || n == 1 {
			return err
		}
		_, err = c.one(`SELECT request_hash, answer FROM idempotency WHERE scope = ? AND name = ?`, []any{scope, key}, func(st *sqlite3.Stmt) error {
			requestHash, answer = st.ColumnBlob(0, []byte{}), st.ColumnBlob(1, []byte{})
			return nil
		})
		return err
	})
	return requestHash, answer, err
}

// Unreserve implements surehook.Settings.
func (s *Store) Unreserve(_ context.Context, scope, key string) error {
	return s.change(func(c *conn) error {
		_, err := c.exec(`DELETE FROM idempotency WHERE scope = ? AND name = ? AND answer = x''`, scope, key)
		return err
	})
}

// Remember implements surehook.Settings, and forgets some of what is older than
// a day.
func (s *Store) Remember(_ context.Context, scope, key string, requestHash, answer []byte) error {
	return s.change(func(c *conn) error {
		now := s.now()
		old := now.Add(-rememberFor)
		if _, err := c.exec(`INSERT INTO idempotency (scope, name, request_hash, answer, created_at) VALUES (?1,?2,?3,?4,?5)
			ON CONFLICT DO UPDATE SET request_hash = ?3, answer = ?4, created_at = ?5 WHERE answer = x'' OR created_at <= ?6`,
			scope, key, append([]byte{}, requestHash...), append([]byte{}, answer...), now, old); err != nil {
			return err
		}
		_, err := c.exec(`DELETE FROM idempotency WHERE (scope, name) IN (SELECT scope, name FROM idempotency WHERE created_at <= ? LIMIT ?)`, old, forgetBatch)
		return err
	})
}

// Health implements surehook.Store by writing: a file that can be read but not
// written takes no events.
func (s *Store) Health(ctx context.Context) error {
	if err := s.space.check(); err != nil {
		return err
	}
	j := &job{weight: 1, done: make(chan error, 1), run: func(c *conn) error {
		_, err := c.exec(`UPDATE counters SET value = ? WHERE name = 'health'`, s.now())
		return err
	}}
	select {
	case s.w.jobs <- j:
	case <-s.w.gone:
		return errClosed
	case <-ctx.Done():
		return unavailable("the store doesn't answer", ctx.Err())
	}
	select {
	case err := <-j.done:
		return wrap(err)
	case <-ctx.Done():
		return unavailable("the store doesn't answer", ctx.Err())
	}
}

var _ surehook.Store = (*Store)(nil)
