package sqlite

import (
	"bytes"
	"context"
	"errors"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const outboxColumns = `id, tenant, event_id, type, identity, owner, subjects, occurred_at, trace, about, partner, data, refused FROM outbox`

func scanOutbox(st *sqlite3.Stmt) (surehook.OutboxEvent, error) {
	subjects, err := unlist(st.ColumnRawText(6))
	return surehook.OutboxEvent{ID: st.ColumnInt64(0), Event: &surehook.Event{
		Tenant: st.ColumnText(1), ID: st.ColumnText(2), Type: st.ColumnText(3), Identity: st.ColumnText(4),
		Owner: st.ColumnText(5), Subjects: subjects, OccurredAt: at(st.ColumnInt64(7)),
		Trace: st.ColumnText(8), About: st.ColumnText(9), Partner: st.ColumnText(10), Data: st.ColumnBlob(11, nil),
	}, Refused: st.ColumnInt(12)}, err
}

// Outbox implements surehook.Appender. One writer gives out all keys, so that an
// endpoint with a higher one than the row is younger than the row's commit.
func (s *Store) Outbox(ctx context.Context, limit int) ([]surehook.OutboxEvent, error) {
	var out []surehook.OutboxEvent
	err := s.read(ctx, func(c *conn) error {
		out = out[:0]
		size := 0
		err := c.each(`SELECT `+outboxColumns+` WHERE retry_at <= ? ORDER BY id LIMIT ?`, []any{s.now(), limit}, func(st *sqlite3.Stmt) error {
			if size >= row.OutboxBytes {
				return errEnough
			}
			o, err := scanOutbox(st)
			if err == nil {
				out, size = append(out, o), size+len(o.Event.Data)
			}
			return err
		})
		if (err != nil && !errors.Is(err, errEnough)) || len(out) == 0 {
			return err
		}
		return c.each(`SELECT key FROM endpoints WHERE key > ?`, []any{out[0].ID}, func(st *sqlite3.Stmt) error {
			key := st.ColumnInt64(0)
			for i := 0; i < len(out) && out[i].ID < key; i++ {
				out[i].NotFor = append(out[i].NotFor, key)
			}
			return nil
		})
	})
	return out, err
}

// PutOff implements surehook.Appender.
func (s *Store) PutOff(_ context.Context, events []surehook.PutOff) error {
	return s.write(len(events), func(c *conn) error {
		now := s.now()
		for _, p := range events {
			if _, err := c.exec(`UPDATE outbox SET refused = refused + 1, refused_at = iif(refused = 0, ?, refused_at), retry_at = ? WHERE id = ? AND refused = ?`,
				now, now.Add(p.Wait), p.ID, p.Refused); err != nil {
				return err
			}
		}
		return nil
	})
}

// putOutbox leaves an event for the fan-out. A repeat changes nothing.
func (s *Store) putOutbox(c *conn, e *surehook.Event) error {
	data := e.Data
	if data == nil {
		data = []byte{}
	}
	_, err := c.exec(`INSERT INTO outbox (id, tenant, event_id, type, identity, owner, subjects, occurred_at, trace, about, partner, data)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
		s.keys.take(1), e.Tenant, e.ID, e.Type, e.Identity, e.Owner, e.Subjects, e.OccurredAt, e.Trace, e.About, e.Partner, data)
	return err
}

// enqueue leaves an event for the fan-out, unless its id is there or waits: then
// the answer is as that of an append.
func (s *Store) enqueue(c *conn, e *surehook.Event, hash []byte, out *surehook.Appended) error {
	if found, err := duplicate(c, e, hash, out); found || err != nil {
		return err
	}
	waits, err := c.one(`SELECT `+outboxColumns+` WHERE tenant = ? AND event_id = ?`, []any{e.Tenant, e.ID}, func(st *sqlite3.Stmt) error {
		o, err := scanOutbox(st)
		h := o.Event.ContentHash()
		if out.Duplicate = bytes.Equal(h[:], hash); !out.Duplicate {
			out.Err = errTaken()
		}
		return err
	})
	if waits || err != nil {
		return err
	}
	out.Queued = true
	return s.putOutbox(c, e)
}

// ownerWaits tells whether events of this one's owner wait for their fan-out.
func ownerWaits(c *conn, e *surehook.Event) (bool, error) {
	return c.one(`SELECT 1 FROM outbox WHERE tenant = ? AND owner = ? AND owner <> '' LIMIT 1`, []any{e.Tenant, e.Owner},
		func(*sqlite3.Stmt) error { return nil })
}

// nextSequence is the place of the owner's next event.
func nextSequence(c *conn, e *surehook.Event) (int64, error) {
	last, err := c.int64(`SELECT last FROM owners WHERE tenant = ? AND owner = ?`, e.Tenant, e.Owner)
	return last + 1, err
}

// keepSequence notes the place that the event has taken.
func keepSequence(c *conn, e *surehook.Event) error {
	_, err := c.exec(`INSERT INTO owners (tenant, owner, last) VALUES (?,?,?) ON CONFLICT (tenant, owner) DO UPDATE SET last = excluded.last`,
		e.Tenant, e.Owner, e.Sequence)
	return err
}

// giveUp removes events that the store has refused since before a time, at most
// limit of those that the condition selects.
func (s *Store) giveUp(c *conn, before time.Time, limit int, where string, args ...any) (int64, error) {
	type refused struct {
		id           int64
		tenant, name string
		times        int
	}
	var all []refused
	if err := c.each(`SELECT id, tenant, event_id, refused FROM outbox WHERE refused > 0 AND refused_at < ? AND `+where+` ORDER BY refused_at LIMIT ?`,
		append(append([]any{before}, args...), limit), func(st *sqlite3.Stmt) error {
			all = append(all, refused{st.ColumnInt64(0), st.ColumnText(1), st.ColumnText(2), st.ColumnInt(3)})
			return nil
		}); err != nil {
		return 0, err
	}
	for _, r := range all {
		if _, err := c.exec(`DELETE FROM outbox WHERE id = ?`, r.id); err != nil {
			return 0, err
		}
		if err := s.putAudit(c, row.GivenUpEvent(r.tenant, r.name, r.times)); err != nil {
			return 0, err
		}
	}
	return int64(len(all)), nil
}

// refused leaves word of an event that was in the outbox and whose id is taken:
// nobody waits for an answer any more.
func (s *Store) refused(c *conn, e *surehook.Event) error { return s.putAudit(c, row.RefusedEvent(e)) }
