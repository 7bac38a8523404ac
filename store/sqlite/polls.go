package sqlite

import (
	"context"
	"slices"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const pollColumns = `SELECT provider, subject, sentinels, state, due, failures, error FROM polls`

func scanPoll(st *sqlite3.Stmt) (*surehook.Poll, error) {
	p := &surehook.Poll{Provider: st.ColumnText(0), Subject: st.ColumnText(1), State: st.ColumnBlob(3, []byte{}), Due: at(st.ColumnInt64(4)),
		Failures: st.ColumnInt(5), Error: st.ColumnText(6)}
	var err error
	p.Sentinels, err = row.ParseList(st.ColumnText(2))
	return p, err
}

// poll gives one; nil: there is none.
func poll(c *conn, provider, subject string) (p *surehook.Poll, err error) {
	_, err = c.one(pollColumns+` WHERE provider = ? AND subject = ?`, []any{provider, subject}, func(st *sqlite3.Stmt) (err error) {
		p, err = scanPoll(st)
		return err
	})
	return p, err
}

// WatchPoll implements surehook.Polls.
func (s *Store) WatchPoll(_ context.Context, provider, subject, sentinel string, state []byte, wait time.Duration) error {
	return s.change(func(c *conn) error {
		p, err := poll(c, provider, subject)
		switch {
		case err != nil:
			return err
		case p == nil:
			_, err = c.exec(`INSERT INTO polls (provider, subject, sentinels, state, due, failures, error) VALUES (?,?,?,?,?,0,'')`,
				provider, subject, row.List([]string{sentinel}), append([]byte{}, state...), s.now().Add(wait))
			return err
		case slices.Contains(p.Sentinels, sentinel):
			return nil
		case len(p.Sentinels) >= surehook.MaxPollSentinels:
			return row.TooManyWatch()
		}
		_, err = c.exec(`UPDATE polls SET sentinels = ? WHERE provider = ? AND subject = ?`, row.List(append(p.Sentinels, sentinel)), provider, subject)
		return err
	})
}

// UnwatchPoll implements surehook.Polls.
func (s *Store) UnwatchPoll(_ context.Context, provider, subject, sentinel string) error {
	return s.change(func(c *conn) error {
		p, err := poll(c, provider, subject)
		if err != nil || p == nil {
			return err
		}
		left := slices.DeleteFunc(p.Sentinels, func(id string) bool { return id == sentinel })
		if len(left) == 0 {
			_, err = c.exec(`DELETE FROM polls WHERE provider = ? AND subject = ?`, provider, subject)
			return err
		}
		_, err = c.exec(`UPDATE polls SET sentinels = ? WHERE provider = ? AND subject = ?`, row.List(left), provider, subject)
		return err
	})
}

// ClaimPolls implements surehook.Polls.
func (s *Store) ClaimPolls(_ context.Context, provider string, subjects []string, hold time.Duration, limit int) ([]*surehook.Poll, time.Duration, error) {
	var out []*surehook.Poll
	next := time.Duration(-1)
	err := s.change(func(c *conn) error {
		out, next = nil, -1
		now := s.now()
		until := at(millis(now.Add(hold)))
		take := func(st *sqlite3.Stmt) error {
			p, err := scanPoll(st)
			if err == nil {
				out = append(out, p)
			}
			return err
		}
		if subjects == nil {
			if err := c.each(pollColumns+` WHERE provider = ? AND due <= ? ORDER BY due, subject LIMIT ?`, []any{provider, now, limit}, take); err != nil {
				return err
			}
		}
		for _, subject := range subjects {
			if _, err := c.one(pollColumns+` WHERE provider = ? AND subject = ?`, []any{provider, subject}, take); err != nil {
				return err
			}
		}
		for _, p := range out {
			if _, err := c.exec(`UPDATE polls SET due = ? WHERE provider = ? AND subject = ?`, until, provider, p.Subject); err != nil {
				return err
			}
			p.Due = until
		}
		_, err := c.one(`SELECT due FROM polls WHERE provider = ? ORDER BY due LIMIT 1`, []any{provider}, func(st *sqlite3.Stmt) error {
			next = max(at(st.ColumnInt64(0)).Sub(now), 0)
			return nil
		})
		return err
	})
	return out, next, err
}

// SavePoll implements surehook.Polls.
func (s *Store) SavePoll(_ context.Context, p *surehook.Poll, wait time.Duration) (bool, error) {
	var n int64
	err := s.change(func(c *conn) (err error) {
		n, err = c.exec(`UPDATE polls SET state = ?, due = ?, failures = ?, error = ? WHERE provider = ? AND subject = ? AND due = ?`,
			append([]byte{}, p.State...), s.now().Add(wait), p.Failures, p.Error, p.Provider, p.Subject, p.Due)
		return err
	})
	return n == 1, err
}
