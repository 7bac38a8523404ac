package sqlite

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ncruces/go-sqlite3"
	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

const (
	insertAttempt = `INSERT INTO attempts (event_key, endpoint_key, number, key, id, status, code, http_status, error,
		response, created_at, duration_us, resolve_us, connect_us, tls_us, write_us, wait_us, read_us, next_due, flags)
		VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`

	// The guard: the row is still ours, and at the attempt that we made.
	guard = ` WHERE event_key = ? AND endpoint_key = ? AND id = ? AND owner = ? AND attempt = ?`
)

// Record implements surehook.Queue.
func (s *Store) Record(_ context.Context, outcomes []surehook.Outcome, rules map[int64]surehook.HealthRule) (surehook.Recorded, error) {
	// Keys are fixed before the first try, so that a repeat is seen as one.
	for i := range outcomes {
		if a := outcomes[i].Attempt; a != nil && a.Key == 0 {
			a.Key = s.keys.take(1)
		}
	}
	var out surehook.Recorded
	run := func(careful bool) error {
		return s.write(2*len(outcomes), func(c *conn) error {
			out = surehook.Recorded{}
			now := s.now()
			for i := range outcomes {
				outcomes[i].Arrived = false
			}
			health := make(map[int64]*surehook.Tally)
			for i := range outcomes {
				record := s.record
				if careful {
					record = s.recordAlone
				}
				if err := record(c, &outcomes[i], now, health, &out); err != nil {
					return err
				}
			}
			return s.settleHealth(c, health, rules, now, &out)
		})
	}
	err := run(false)
	if err != nil && !storeIsGone(err) {
		err = run(true)
	}
	return out, err
}

// recordAlone records one outcome so that a bad one doesn't hold its batch up:
// its row must move, or it would be sent again, so what can't be stored of the
// attempt is left out.
func (s *Store) recordAlone(c *conn, o *surehook.Outcome, now time.Time, health map[int64]*surehook.Tally, out *surehook.Recorded) error {
	refused, err := c.savepoint(func() error { return s.record(c, o, now, health, out) })
	if refused == nil || err != nil {
		return err
	}
	s.log.Error("an outcome couldn't be stored as it is", "event_key", o.Delivery.EventKey, "error", refused)
	if o.Attempt == nil {
		return nil
	}
	bare := *o
	a := o.Attempt
	bare.Attempt = &surehook.Attempt{Key: a.Key, ID: newAttemptID(now), EventKey: a.EventKey, EndpointKey: a.EndpointKey,
		EventID: a.EventID, EventType: a.EventType, EndpointID: a.EndpointID, Number: a.Number,
		Status: a.Status, Code: a.Code, HTTPStatus: a.HTTPStatus, CreatedAt: a.CreatedAt, Duration: a.Duration, Test: a.Test}
	refused, err = c.savepoint(func() error { return s.record(c, &bare, now, health, out) })
	o.Arrived = bare.Arrived && refused == nil
	if refused != nil {
		s.log.Error("an outcome was given up", "event_key", o.Delivery.EventKey, "error", refused)
	}
	return err
}

func newAttemptID(now time.Time) string {
	return "dlv_" + ulid.MustNew(ulid.Timestamp(now), ulid.DefaultEntropy()).String()
}

// record moves one row and keeps its attempt.
func (s *Store) record(c *conn, o *surehook.Outcome, now time.Time, health map[int64]*surehook.Tally, out *surehook.Recorded) error {
	d, a := &o.Delivery, o.Attempt
	order, err := s.orderOf(c, d.EventKey, d.EndpointKey)
	if err != nil {
		return err
	}
	var due time.Time
	var hit int64 // rows that moved
	switch o.Decision {
	case surehook.Release:
		hit, err = c.exec(`UPDATE pending SET owner = NULL`+guard, d.EventKey, d.EndpointKey, d.ID, d.Epoch, d.Attempt)
	case surehook.Finish:
		hit, err = s.finish(c, d)
		if o.Arrived = hit == 1; err == nil && o.Arrived && d.FirstAttempt > 1 {
			o.Arrived, err = neverSucceeded(c, d)
		}
	case surehook.Again:
		due = now.Add(o.Wait)
		hit, err = c.exec(`UPDATE pending SET owner = NULL, attempt = attempt + 1, lost = 0, due = ?`+guard,
			due, d.EventKey, d.EndpointKey, d.ID, d.Epoch, d.Attempt)
	case surehook.Bury:
		if hit, err = c.exec(`DELETE FROM pending`+guard, d.EventKey, d.EndpointKey, d.ID, d.Epoch, d.Attempt); err == nil && hit == 1 {
			err = s.bury(c, d, a.Code, a.HTTPStatus, a.Number, now)
		}
	case surehook.Note:
	default:
		err = fmt.Errorf("unknown decision %d", o.Decision)
	}
	if err == nil && hit == 1 && order != 0 {
		err = unpark(c, row.Sequences{{Endpoint: d.EndpointKey, Order: order}}, now, 1)
	}
	if err != nil || o.Decision == surehook.Release {
		return err
	}
	late := hit == 0 && (o.Decision == surehook.Again || o.Decision == surehook.Bury)
	return s.keep(c, o, late, due, health, out)
}

// finish removes the row by its id alone: a success counts whoever holds the
// lease. A dead letter of the delivery goes too.
func (s *Store) finish(c *conn, d *surehook.Delivery) (int64, error) {
	h, err := c.hot(`DELETE FROM pending WHERE event_key = ? AND endpoint_key = ? AND id = ?`)
	if err != nil {
		return 0, err
	}
	h.num(1, d.EventKey)
	h.num(2, d.EndpointKey)
	h.num(3, d.ID)
	n, err := h.run()
	if err != nil || (n == 1 && d.FirstAttempt == 1) {
		return n, err
	}
	_, err = c.exec(`DELETE FROM dead_letters WHERE event_key = ? AND endpoint_key = ? AND pending_id = ?`, d.EventKey, d.EndpointKey, d.ID)
	return n, err
}

// neverSucceeded tells whether a delivery that was replayed has no success yet.
func neverSucceeded(c *conn, d *surehook.Delivery) (bool, error) {
	n, err := c.int64(`SELECT EXISTS (SELECT 1 FROM attempts WHERE event_key = ? AND endpoint_key = ? AND status = 1 AND flags & 2 = 0)`, d.EventKey, d.EndpointKey)
	return n == 0, err
}

func (s *Store) bury(c *conn, d *surehook.Delivery, code surehook.Code, status, attempts int, now time.Time) error {
	_, err := c.exec(`INSERT INTO dead_letters (key, event_key, endpoint_key, pending_id, code, http_status, attempts, created_at)
		VALUES (?,?,?,?,?,?,?,?) ON CONFLICT DO NOTHING`,
		s.keys.take(1), d.EventKey, d.EndpointKey, d.ID, string(code), status, attempts, now)
	return err
}

// keep stores the attempt. Only one that wasn't there yet counts for health.
func (s *Store) keep(c *conn, o *surehook.Outcome, late bool, due time.Time, health map[int64]*surehook.Tally, out *surehook.Recorded) error {
	a := o.Attempt
	a.Late, a.NextDue = late, due
	if late {
		a.NextDue = time.Time{}
	}
	n, err := s.insertAttempt(c, a)
	if err != nil || n == 0 {
		return err
	}
	if late {
		out.Late++
	}
	if a.Test {
		return nil
	}
	t := health[a.EndpointKey]
	if t == nil {
		t = &surehook.Tally{}
		health[a.EndpointKey] = t
	}
	t.Add(o)
	return nil
}

func (s *Store) insertAttempt(c *conn, a *surehook.Attempt) (int64, error) {
	id, err := ulid.ParseStrict(strings.TrimPrefix(a.ID, "dlv_"))
	if err != nil {
		return 0, fmt.Errorf("attempt id: %w", err)
	}
	flags := 0
	if a.Late {
		flags |= row.Late
	}
	if a.Test {
		flags |= row.Test
	}
	h, err := c.hot(insertAttempt)
	if err != nil {
		return 0, err
	}
	h.num(1, a.EventKey)
	h.num(2, a.EndpointKey)
	h.num(3, int64(a.Number))
	h.num(4, a.Key)
	h.blob(5, id[:])
	h.num(6, int64(slices.Index(row.Statuses, a.Status)))
	h.text(7, string(a.Code))
	h.num(8, int64(a.HTTPStatus))
	h.text(9, a.Error)
	h.blob(10, a.Response)
	h.time(11, a.CreatedAt)
	h.micros(12, a.Duration)
	h.micros(13, a.Phases.Resolve)
	h.micros(14, a.Phases.Connect)
	h.micros(15, a.Phases.TLS)
	h.micros(16, a.Phases.Write)
	h.micros(17, a.Phases.Wait)
	h.micros(18, a.Phases.Read)
	h.time(19, a.NextDue)
	h.num(20, int64(flags))
	return h.run()
}

// settleHealth updates each endpoint once, in key order, and only on change.
func (s *Store) settleHealth(c *conn, health map[int64]*surehook.Tally, rules map[int64]surehook.HealthRule, now time.Time, out *surehook.Recorded) error {
	keys := make([]int64, 0, len(health))
	for k := range health {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		if err := s.settleOne(c, k, health[k], rules[k], now, out); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) settleOne(c *conn, key int64, t *surehook.Tally, rule surehook.HealthRule, now time.Time, out *surehook.Recorded) error {
	var h surehook.Health
	var version int64
	var enabled bool
	found, err := c.one(`SELECT version, enabled, consecutive_failures, first_failure_at, last_failure_at, last_success_at
		FROM endpoints WHERE key = ? AND deleted = 0`, []any{key}, func(st *sqlite3.Stmt) error {
		version, enabled = st.ColumnInt64(0), st.ColumnBool(1)
		h = surehook.Health{ConsecutiveFailures: st.ColumnInt(2), FirstFailureAt: at(st.ColumnInt64(3)),
			LastFailureAt: at(st.ColumnInt64(4)), LastSuccessAt: at(st.ColumnInt64(5))}
		return nil
	})
	if err != nil || !found {
		return err
	}
	next, changed, reason, trigger := t.Settle(h, version, rule)
	if changed {
		if _, err := c.exec(`UPDATE endpoints SET consecutive_failures = ?, first_failure_at = ?, last_failure_at = ?, last_success_at = ? WHERE key = ?`,
			next.ConsecutiveFailures, next.FirstFailureAt, next.LastFailureAt, next.LastSuccessAt, key); err != nil {
			return err
		}
	}
	if reason == "" || !enabled {
		return nil
	}
	return s.disable(c, key, version, reason, trigger, rule, now, out)
}

// disable is guarded: one update wins, and the winner's transaction also holds
// the event that tells of it.
func (s *Store) disable(c *conn, key, version int64, reason string, trigger *surehook.Attempt, rule surehook.HealthRule, now time.Time, out *surehook.Recorded) error {
	n, err := c.exec(`UPDATE endpoints SET enabled = 0, disabled_reason = ?, version = version + 1, updated_at = ?
		WHERE key = ? AND enabled = 1 AND version = ?`, reason, now, key, version)
	if err != nil || n == 0 {
		return err
	}
	if err := s.bumpConfig(c, key); err != nil {
		return err
	}
	e, err := endpointByKey(c, key)
	if err != nil {
		return err
	}
	if err := s.putAudit(c, row.Disabling(e, reason, trigger)); err != nil {
		return err
	}
	out.Disabled = append(out.Disabled, e)
	if rule.Disabled == nil {
		return nil
	}
	if e := rule.Disabled(e, reason, trigger); e != nil {
		return s.putOutbox(c, e)
	}
	return nil
}
