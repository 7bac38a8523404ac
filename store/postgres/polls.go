package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const pollColumns = `p.provider, p.subject, p.sentinels, p.state, p.due, p.failures, p.error`

func scanPoll(r pgx.CollectableRow) (*surehook.Poll, error) {
	p := &surehook.Poll{}
	var sentinels string
	err := r.Scan(&p.Provider, &p.Subject, &sentinels, &p.State, intoTime{&p.Due}, &p.Failures, &p.Error)
	if err == nil {
		p.Sentinels, err = row.ParseList(sentinels)
	}
	return p, err
}

// lockPoll gives one, and keeps others from changing it; nil: there is none.
func (s *Store) lockPoll(ctx context.Context, tx pgx.Tx, provider, subject string) (*surehook.Poll, error) {
	found, err := collect(ctx, tx, scanPoll, s.q(`SELECT `+pollColumns+` FROM surehook.polls p WHERE provider = $1 AND subject = $2 FOR UPDATE`), provider, subject)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[0], nil
}

// WatchPoll implements surehook.Polls.
func (s *Store) WatchPoll(ctx context.Context, provider, subject, sentinel string, state []byte, wait time.Duration) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.polls (provider, subject, sentinels, state, due, failures, error) VALUES ($1, $2, $3, $4, $5, 0, '')
			ON CONFLICT (provider, subject) DO NOTHING`), provider, subject, row.List([]string{sentinel}), orEmpty(state), now+wait.Milliseconds())
		if err != nil || tag.RowsAffected() == 1 {
			return err
		}
		p, err := s.lockPoll(ctx, tx, provider, subject)
		switch {
		case err != nil:
			return err
		case p == nil: // its last sentinel went between the two
			return errInTheWay
		case slices.Contains(p.Sentinels, sentinel):
			return nil
		case len(p.Sentinels) >= surehook.MaxPollSentinels:
			return row.TooManyWatch()
		}
		return s.setPollers(ctx, tx, p, append(p.Sentinels, sentinel))
	})
}

func (s *Store) setPollers(ctx context.Context, tx pgx.Tx, p *surehook.Poll, sentinels []string) error {
	_, err := tx.Exec(ctx, s.q(`UPDATE surehook.polls SET sentinels = $3 WHERE provider = $1 AND subject = $2`), p.Provider, p.Subject, row.List(sentinels))
	return err
}

// UnwatchPoll implements surehook.Polls.
func (s *Store) UnwatchPoll(ctx context.Context, provider, subject, sentinel string) error {
	return s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		p, err := s.lockPoll(ctx, tx, provider, subject)
		if err != nil || p == nil {
			return err
		}
		left := slices.DeleteFunc(p.Sentinels, func(id string) bool { return id == sentinel })
		if len(left) > 0 {
			return s.setPollers(ctx, tx, p, left)
		}
		_, err = tx.Exec(ctx, s.q(`DELETE FROM surehook.polls WHERE provider = $1 AND subject = $2`), provider, subject)
		return err
	})
}

// ClaimPolls implements surehook.Polls. What another node is claiming right now is
// its own.
func (s *Store) ClaimPolls(ctx context.Context, provider string, subjects []string, hold time.Duration, limit int) (polls []*surehook.Poll, next time.Duration, err error) {
	err = s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		until := now + hold.Milliseconds()
		which, args := `due <= $3 ORDER BY due, subject LIMIT $4`, []any{provider, until, now, limit}
		if subjects != nil {
			which, args = `subject = ANY ($3) ORDER BY subject`, []any{provider, until, subjects}
		}
		if polls, err = collect(ctx, tx, scanPoll, s.q(`WITH mine AS (SELECT subject AS s, due AS d FROM surehook.polls WHERE provider = $1 AND `+which+` FOR UPDATE SKIP LOCKED),
			held AS (UPDATE surehook.polls p SET due = $2 FROM mine WHERE p.provider = $1 AND p.subject = mine.s RETURNING `+pollColumns+`, mine.d)
			SELECT `+pollColumns+` FROM held p ORDER BY d, subject`), args...); err != nil {
			return err
		}
		var first *int64
		err = tx.QueryRow(ctx, s.q(`SELECT min(due) FROM surehook.polls WHERE provider = $1`), provider).Scan(&first)
		if next = -1; err == nil && first != nil {
			next = time.Duration(max(*first-now, 0)) * time.Millisecond
		}
		return err
	})
	return polls, next, err
}

// SavePoll implements surehook.Polls.
func (s *Store) SavePoll(ctx context.Context, p *surehook.Poll, wait time.Duration) (saved bool, err error) {
	err = s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		tag, err := tx.Exec(ctx, s.q(`UPDATE surehook.polls SET state = $3, due = $4, failures = $5, error = $6 WHERE provider = $1 AND subject = $2 AND due = $7`),
			p.Provider, p.Subject, orEmpty(p.State), now+wait.Milliseconds(), p.Failures, p.Error, p.Due.UnixMilli())
		saved = tag.RowsAffected() == 1
		return err
	})
	return saved, err
}
