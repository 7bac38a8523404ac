package postgres

import (
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// A row that is to be pulled is due from its commit on, as any other, until it has
// its number in an inbox; then it is due never, as parked ones are. Numbers are given
// out under the lock of the inbox's row, to rows that are committed: what comes late
// gets a higher one. Who has that lock waits for no row: one that somebody else is at
// gets its number the next time.

// feed sees to the inbox of an endpoint that is being made: its own, or that of a
// session that lives, which can't end before the commit.
func (s *Store) feed(ctx context.Context, tx pgx.Tx, e *surehook.Endpoint) error {
	switch e.Inbox {
	case 0:
		return nil
	case surehook.OwnInbox:
		e.Inbox = e.Key
		_, err := tx.Exec(ctx, s.q(`INSERT INTO surehook.inboxes (key) VALUES ($1)`), e.Key)
		return err
	}
	ended, err := one(ctx, tx, "session", pgx.RowTo[int64], s.q(`SELECT ended_at FROM surehook.pull_sessions WHERE key = $1 AND tenant = $2 AND partner = $3 FOR SHARE`),
		e.Inbox, e.Tenant, e.Partner)
	if err == nil && ended != 0 {
		err = errNotAlive
	}
	return err
}

// newRows are those of an inbox that have no number yet: inbox, limit.
const newRows = `SELECT p.event_key, p.endpoint_key, p.due, p.sequence FROM surehook.endpoints e
	CROSS JOIN LATERAL (SELECT event_key, endpoint_key, due, sequence FROM surehook.pending WHERE endpoint_key = e.key AND owner IS NULL
		AND due <= (SELECT surehook.clock()) ORDER BY due, sequence, event_key LIMIT $2 FOR UPDATE SKIP LOCKED) p
	WHERE e.inbox = $1 AND e.inbox <> 0 AND NOT e.deleted ORDER BY p.due, p.sequence, p.event_key, p.endpoint_key LIMIT $2`

// presorted has rows sorted as far as they are read, and not all that wait each time.
const presorted = `, set_config('enable_sort', 'off', true)`

const (
	lockInbox  = `SELECT last FROM surehook.inboxes WHERE key = $1 FOR NO KEY UPDATE`
	numberRows = `WITH c AS MATERIALIZED (` + newRows + `), n AS (
		SELECT event_key, endpoint_key, row_number() OVER (ORDER BY due, sequence, event_key, endpoint_key) AS place FROM c
	), i AS (
		UPDATE surehook.inboxes SET last = last + (SELECT count(*) FROM n) WHERE key = $1 RETURNING last
	) UPDATE surehook.pending p SET inbox = $1, number = i.last - (SELECT count(*) FROM n) + n.place, due = $3
		FROM n, i WHERE p.event_key = n.event_key AND p.endpoint_key = n.endpoint_key`

	// inboxPage gives rows after a number with their events: inbox, number, limit, bytes.
	inboxPage = `SELECT p.number, p.id, p.endpoint_key, p.attempt, p.first_attempt, ` + eventColumns + `, e.data FROM (
			SELECT *, sum(size) OVER (ORDER BY number) - size AS before FROM (
				SELECT event_key, endpoint_key, id, attempt, first_attempt, number, size FROM surehook.pending
				WHERE inbox = $1 AND number > $2 ORDER BY number LIMIT $3) f
		) p CROSS JOIN LATERAL (SELECT * FROM surehook.events WHERE key = p.event_key OFFSET 0) e
		WHERE p.before < $4 ORDER BY p.number`

	// unread tells of rows without a number.
	unread = `EXISTS (SELECT 1 FROM surehook.endpoints e CROSS JOIN LATERAL (SELECT 1 FROM surehook.pending
		WHERE endpoint_key = e.key AND owner IS NULL AND due <= (SELECT surehook.clock()) ORDER BY due LIMIT 1) p WHERE e.inbox = $1 AND e.inbox <> 0 AND NOT e.deleted)`
)

// Pull implements surehook.Inboxes. Where enough has its number already, nothing is
// written.
func (s *Store) Pull(ctx context.Context, inbox, after int64, limit, maxBytes int) (surehook.Pulled, error) {
	var out surehook.Pulled
	fresh := false
	err := s.read(ctx, func(tx pgx.Tx) (err error) {
		if out, err = s.page(ctx, tx, inbox, after, limit, maxBytes); err != nil || out.More {
			return err
		}
		return tx.QueryRow(ctx, s.q(`SELECT `+unread), inbox).Scan(&fresh)
	})
	if err != nil {
		return surehook.Pulled{}, err
	}
	if !fresh {
		return s.withoutErased(ctx, out)
	}
	if _, err := s.number(ctx, inbox, max(limit, row.NumberStep)); err != nil {
		return surehook.Pulled{}, err
	}
	if err := s.read(ctx, func(tx pgx.Tx) (err error) {
		out, err = s.page(ctx, tx, inbox, after, limit, maxBytes)
		return err
	}); err != nil {
		return surehook.Pulled{}, err
	}
	return s.withoutErased(ctx, out)
}

// withoutErased ends what an erasure has left because the row was just being given its
// number.
func (s *Store) withoutErased(ctx context.Context, out surehook.Pulled) (surehook.Pulled, error) {
	for i := 0; i < len(out.Items); {
		it := out.Items[i]
		if !it.Event.Erased {
			i++
			continue
		}
		if _, err := s.endEvents(ctx, it.Delivery.EndpointKey, []int64{it.Event.Key}, surehook.EventUnavailable); err != nil {
			return surehook.Pulled{}, err
		}
		out.Items = slices.Delete(out.Items, i, i+1)
		out.Dropped++
	}
	return out, nil
}

// number gives numbers to what has arrived, and tells to how many.
func (s *Store) number(ctx context.Context, inbox int64, limit int) (n int64, err error) {
	err = s.change(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		n, err = s.numberIn(ctx, tx, inbox, limit)
		return err
	})
	return n, err
}

// numberIn is number in a transaction, which has the inbox's lock from then on. What
// numbers is a statement of its own: it sees all that was committed before the lock
// was had.
func (s *Store) numberIn(ctx context.Context, tx pgx.Tx, inbox int64, limit int) (n int64, err error) {
	b := &pgx.Batch{}
	b.Queue(inOrder + presorted)
	there := false
	b.Queue(s.q(lockInbox), inbox).Query(func(rows pgx.Rows) error {
		there = rows.Next()
		rows.Close()
		return rows.Err()
	})
	b.Queue(s.q(numberRows), inbox, limit, row.Parked).Exec(func(tag pgconn.CommandTag) error {
		n = tag.RowsAffected()
		return nil
	})
	if err := tx.SendBatch(ctx, b).Close(); err != nil {
		return 0, err
	}
	if !there {
		return 0, notFound("inbox")
	}
	return n, nil
}

func (s *Store) page(ctx context.Context, tx pgx.Tx, inbox, after int64, limit, maxBytes int) (surehook.Pulled, error) {
	var out surehook.Pulled
	var last int64
	err := tx.QueryRow(ctx, s.q(`SELECT dropped, last, coalesce((SELECT max(number) FROM surehook.pending WHERE inbox = $1), 0) FROM surehook.inboxes WHERE key = $1`), inbox).
		Scan(&out.Dropped, &out.Last, &last)
	if err == pgx.ErrNoRows { //nolint:errorlint // pgx gives it as it is
		return out, notFound("inbox")
	}
	if err != nil || last <= after {
		return out, err
	}
	out.Items, err = collect(ctx, tx, scanItem, s.q(inboxPage), inbox, after, limit, max(maxBytes, 1))
	if n := len(out.Items); err == nil && n > 0 {
		out.More = out.Items[n-1].Number < last
	}
	return out, err
}

func scanItem(r pgx.CollectableRow) (surehook.Item, error) {
	e := &surehook.Event{}
	it := surehook.Item{Event: e}
	d := &it.Delivery
	err := r.Scan(append(append([]any{&it.Number, &d.ID, &d.EndpointKey, &d.Attempt, &d.FirstAttempt}, eventTargets(e)...), &e.Data)...)
	d.EventKey = e.Key
	return it, err
}

// Numbered implements surehook.Inboxes.
func (s *Store) Numbered(ctx context.Context, inbox, upTo int64, limit int) ([]surehook.Delivery, error) {
	var out []surehook.Delivery
	err := s.read(ctx, func(tx pgx.Tx) error {
		last, err := one(ctx, tx, "inbox", pgx.RowTo[int64], s.q(`SELECT last FROM surehook.inboxes WHERE key = $1`), inbox)
		if err == nil && upTo > last {
			err = row.ErrNumber
		}
		if err != nil {
			return err
		}
		out, err = collect(ctx, tx, scanDelivery, s.q(`SELECT event_key, endpoint_key, id, attempt, first_attempt FROM surehook.pending
			WHERE inbox = $1 AND number <= $2 ORDER BY number LIMIT $3`), inbox, upTo, limit)
		return err
	})
	return out, err
}

// overBound finds the highest number of what is over an inbox's bound: inbox, events,
// bytes.
const overBound = `SELECT coalesce(max(number), 0) FROM (SELECT number, row_number() OVER w AS events, sum(size) OVER w AS bytes
	FROM surehook.pending WHERE inbox = $1 WINDOW w AS (ORDER BY number DESC ROWS UNBOUNDED PRECEDING)) x WHERE events > $2 OR bytes > $3`

// Trim implements surehook.Inboxes.
func (s *Store) Trim(ctx context.Context, inbox int64, b *surehook.InboxBound, code surehook.Code, limit int) (ended int, more bool, err error) {
	err = s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		ended, more = 0, false
		n, err := s.numberIn(ctx, tx, inbox, limit)
		if err != nil {
			return err
		}
		if more = b != nil && n == int64(limit); more {
			return nil // the bound is looked at once all have their numbers
		}
		upTo := maxKey
		if b != nil {
			if upTo, err = s.overBound(ctx, tx, inbox, b); err != nil || upTo == 0 {
				return err
			}
		}
		rows, err := collect(ctx, tx, scanDelivery, s.q(`SELECT event_key, endpoint_key, id, attempt, first_attempt FROM surehook.pending
			WHERE inbox = $1 AND number <= $2 AND owner IS NULL ORDER BY number LIMIT $3 FOR UPDATE SKIP LOCKED`), inbox, upTo, limit)
		if err != nil {
			return err
		}
		now, err := s.now(ctx, tx)
		if err != nil {
			return err
		}
		ended, more = len(rows), n == int64(limit) || len(rows) == limit
		return s.endRows(ctx, tx, rows, code, now)
	})
	return ended, more, err
}

// overBound finds the highest number of what is over an inbox's bound; 0: nothing is.
// Mostly the sums say so.
func (s *Store) overBound(ctx context.Context, tx pgx.Tx, inbox int64, b *surehook.InboxBound) (upTo int64, err error) {
	var events, bytes int64
	if err := tx.QueryRow(ctx, s.q(`SELECT count(*), coalesce(sum(size), 0) FROM surehook.pending WHERE inbox = $1`), inbox).Scan(&events, &bytes); err != nil ||
		(events <= orMost(b.Events) && bytes <= orMost(b.Bytes)) {
		return 0, err
	}
	err = tx.QueryRow(ctx, s.q(overBound), inbox, orMost(b.Events), orMost(b.Bytes)).Scan(&upTo)
	return upTo, err
}

func orMost(bound int64) int64 {
	if bound <= 0 {
		return maxKey
	}
	return bound
}

// dropped counts rows that left an inbox unfinished.
func (s *Store) dropped(ctx context.Context, tx pgx.Tx, inbox int64, n int) error {
	if n == 0 {
		return nil
	}
	_, err := tx.Exec(ctx, s.q(`UPDATE surehook.inboxes SET dropped = dropped + $2 WHERE key = $1`), inbox, n)
	return err
}

// InboxStates implements surehook.Inboxes.
func (s *Store) InboxStates(ctx context.Context, inboxes ...int64) ([]surehook.InboxState, error) {
	cond := `EXISTS (SELECT 1 FROM surehook.pending p WHERE p.inbox = i.key)`
	var args []any
	if len(inboxes) > 0 {
		cond, args = `i.key = ANY($1)`, []any{inboxes}
	}
	return list(ctx, s, func(r pgx.CollectableRow) (st surehook.InboxState, err error) {
		var oldest int64
		err = r.Scan(&st.Inbox, &st.Dropped, &st.Events, &st.Bytes, &oldest)
		if oldest != 0 {
			st.Oldest = time.UnixMilli(oldest).UTC()
		}
		return st, err
	}, `SELECT i.key, i.dropped, n.events, n.bytes, coalesce((SELECT e.created_at FROM surehook.pending p JOIN surehook.events e ON e.key = p.event_key
			WHERE p.inbox = i.key AND p.number = n.first LIMIT 1), 0)
		FROM surehook.inboxes i CROSS JOIN LATERAL (SELECT count(*) AS events, coalesce(sum(size), 0) AS bytes, min(number) AS first
			FROM surehook.pending WHERE inbox = i.key) n
		WHERE `+cond+` ORDER BY i.key`, args...)
}
