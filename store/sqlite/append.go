package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const (
	insertEvent = `INSERT INTO events (key, tenant, id, type, identity, owner, sequence, subjects,
		occurred_at, created_at, trace, about, partner, alias, api_version, hash, data) VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`

	// A tenant's event with an id is in one of two indexes.
	eventKeyByID = `SELECT key FROM events WHERE id = ?1 AND tenant = ?2 AND alias = ''
		UNION ALL SELECT key FROM events WHERE id = ?1 AND tenant = ?2 AND alias <> ''`
	insertPending = `INSERT INTO pending (event_key, endpoint_key, id, owner, attempt, first_attempt, due, order_key, sequence)
		VALUES (?,?,?,?,0,1,?,?,?) ON CONFLICT DO NOTHING`
)

// Append implements surehook.Appender.
func (s *Store) Append(_ context.Context, version int64, items []surehook.Append) ([]surehook.Appended, error) {
	if err := s.space.check(); err != nil {
		return nil, err
	}
	hashes := make([][]byte, len(items))
	weight := 0
	for i := range items {
		h := items[i].Event.ContentHash()
		hashes[i] = h[:]
		weight += 1 + len(items[i].Targets)
	}
	out := make([]surehook.Appended, len(items))
	changed := false
	run := func(careful bool) error {
		return s.write(weight, func(c *conn) error {
			// Outside a transaction of ours nobody changes it: the writer is one. It
			// is no error here, so that the others in the transaction don't suffer.
			if changed = version != s.config.Load(); changed {
				return nil
			}
			return s.appendAll(c, items, hashes, out, careful)
		})
	}
	err := run(false)
	if err != nil && !storeIsGone(err) {
		err = run(true)
	}
	switch {
	case err != nil:
		return nil, err
	case changed:
		return nil, surehook.ErrConfigChanged
	}
	return out, nil
}

// appendAll stores the events. When careful, one that the store can't take is
// refused alone.
func (s *Store) appendAll(c *conn, items []surehook.Append, hashes [][]byte, out []surehook.Appended, careful bool) error {
	now := s.now()
	for i := range items {
		put := func() error {
			out[i] = surehook.Appended{}
			return s.append(c, &items[i], hashes[i], now, &out[i])
		}
		if !careful {
			if err := put(); err != nil {
				return err
			}
			continue
		}
		refused, err := c.savepoint(put)
		if err != nil {
			return err
		}
		if refused != nil {
			s.log.Error("an event couldn't be stored", "event_id", items[i].Event.ID, "error", refused)
			out[i] = surehook.Appended{Err: wrap(refused)}
		}
	}
	return nil
}

// append stores one event. An event that is refused alone sets out.Err and
// leaves nothing behind.
func (s *Store) append(c *conn, a *surehook.Append, hash []byte, now time.Time, out *surehook.Appended) error {
	e := a.Event
	if a.Outbox != 0 {
		if n, err := c.exec(`DELETE FROM outbox WHERE id = ?`, a.Outbox); err != nil || n == 0 {
			out.Duplicate = true // another fan-out took it
			return err
		}
	}
	if e.Owner != "" && a.Outbox == 0 {
		switch waits, err := ownerWaits(c, e); {
		case err != nil:
			return err
		case waits:
			return s.enqueue(c, e, hash, out)
		}
	}
	inserted, err := s.insert(c, e, hash, now)
	if err != nil {
		return err
	}
	if !inserted {
		if _, err := duplicate(c, e, hash, out); err != nil || out.Err == nil || a.Outbox == 0 {
			return err
		}
		return s.refused(c, e)
	}
	out.EventKey = e.Key
	return s.putTargets(c, e, a.Targets, now, out)
}

// putTargets makes the pending rows of an event, for those of the sentinels among
// the targets whose event it is.
func (s *Store) putTargets(c *conn, e *surehook.Event, targets []surehook.Target, now time.Time, out *surehook.Appended) error {
	if len(targets) == 0 {
		return nil
	}
	out.Deliveries = make([]surehook.Delivery, len(targets))
	first := s.keys.take(len(targets))
	for i := range targets {
		t := &targets[i]
		if t.Sighting.Sentinel {
			mine, ended, err := see(c, e, t, now)
			if err != nil {
				return err
			}
			if ended {
				out.Ended = append(out.Ended, t.EndpointKey)
			}
			if !mine {
				continue
			}
		}
		d := surehook.Delivery{ID: first + int64(i), EventKey: e.Key, EndpointKey: t.EndpointKey, FirstAttempt: 1, Due: now}
		if t.Owned {
			d.Epoch = s.epoch.Load()
		}
		var order, sequence int64
		if t.Ordered {
			order, sequence = row.OrderKey(e.Tenant, e.Owner), e.Sequence
		}
		if err := s.putPending(c, &d, order, sequence); err != nil {
			return err
		}
		out.Deliveries[i] = d
	}
	return nil
}

// insert stores the event unless its id is taken.
func (s *Store) insert(c *conn, e *surehook.Event, hash []byte, now time.Time) (bool, error) {
	// Taken anew at each run: keys ascend in the order of acceptance.
	e.Key, e.CreatedAt, e.Sequence, e.Alias = s.keys.take(1), now, 0, ""
	if e.Owner == "" {
		return s.insertOnce(c, e, hash)
	}
	next, err := nextSequence(c, e)
	if err != nil {
		return false, err
	}
	e.Sequence = next
	inserted, err := s.insertOnce(c, e, hash)
	if err != nil || !inserted {
		e.Sequence = 0 // an event that is there already takes none
		return false, err
	}
	return true, keepSequence(c, e)
}

// insertOnce stores the event unless its tenant has one with its id. Where another
// tenant has, it gets an alias.
func (s *Store) insertOnce(c *conn, e *surehook.Event, hash []byte) (bool, error) {
	// Where the event that had its id first is gone, its alias alone tells of it.
	if s.aliased.Load() {
		if mine, err := hasEvent(c, e); err != nil || mine {
			return false, err
		}
	}
	inserted, err := insertEventRow(c, e, hash)
	if err != nil || inserted {
		return inserted, err
	}
	if mine, err := hasEvent(c, e); err != nil || mine {
		return false, err
	}
	e.Alias = row.Alias(e.ID)
	s.aliased.Store(true)
	inserted, err = insertEventRow(c, e, hash)
	if err == nil && !inserted {
		err = fmt.Errorf("the row of event %s wasn't taken", e.ID)
	}
	return inserted, err
}

func hasEvent(c *conn, e *surehook.Event) (bool, error) {
	return c.one(eventKeyByID, []any{e.ID, e.Tenant}, func(*sqlite3.Stmt) error { return nil })
}

func insertEventRow(c *conn, e *surehook.Event, hash []byte) (bool, error) {
	data := e.Data
	if data == nil {
		data = []byte{}
	}
	h, err := c.hot(insertEvent)
	if err != nil {
		return false, err
	}
	h.num(1, e.Key)
	h.text(2, e.Tenant)
	h.text(3, e.ID)
	h.text(4, e.Type)
	h.text(5, e.Identity)
	h.text(6, e.Owner)
	h.num(7, e.Sequence)
	h.text(8, row.List(e.Subjects))
	h.time(9, e.OccurredAt)
	h.time(10, e.CreatedAt)
	h.text(11, e.Trace)
	h.text(12, e.About)
	h.text(13, e.Partner)
	h.text(14, e.Alias)
	h.text(15, e.APIVersion)
	h.blob(16, hash)
	h.blob(17, data)
	n, err := h.run()
	return n == 1, err
}

func (s *Store) putPending(c *conn, d *surehook.Delivery, order, sequence int64) error {
	h, err := c.hot(insertPending)
	if err != nil {
		return err
	}
	h.num(1, d.EventKey)
	h.num(2, d.EndpointKey)
	h.num(3, d.ID)
	if d.Epoch != 0 {
		h.num(4, d.Epoch)
	} else {
		h.null(4)
	}
	h.time(5, d.Due)
	if order != 0 {
		s.sequenced(d.EndpointKey)
		h.num(6, order)
	} else {
		h.null(6)
	}
	h.num(7, sequence)
	_, err = h.run()
	return err
}

// duplicate looks for an event with this one's id, and answers: the same content
// is the same event, other content is refused.
func duplicate(c *conn, e *surehook.Event, hash []byte, out *surehook.Appended) (found bool, err error) {
	return c.one(`SELECT key, hash FROM events WHERE key IN (`+eventKeyByID+`)`, []any{e.ID, e.Tenant}, func(st *sqlite3.Stmt) error {
		out.EventKey = st.ColumnInt64(0)
		if out.Duplicate = bytes.Equal(st.ColumnRawBlob(1), hash); !out.Duplicate {
			out.Err = errTaken()
		}
		return nil
	})
}

func errTaken() error {
	return surehook.Errorf(surehook.Conflict, "an event with this id and other content exists")
}
