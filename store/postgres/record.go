package postgres

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// Each move takes its rows as columns, and tells the places of those that it
// found, with what became of them.
const (
	moved   = `unnest($1::int[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::int[], $7::bigint[]) x(n, event_key, endpoint_key, id, owner, attempt, wait)`
	itsRow  = ` WHERE p.event_key = x.event_key AND p.endpoint_key = x.endpoint_key AND p.id = x.id`
	guarded = itsRow + ` AND p.owner = x.owner AND p.attempt = x.attempt` // still ours, and at the attempt that we made
	found   = ` RETURNING x.n, 0::bigint, coalesce(p.order_key, 0)`
)

// moves are what the decisions do to their rows. A success counts whoever holds
// the row.
var moves = map[surehook.Decision]string{
	surehook.Release: `UPDATE surehook.pending p SET owner = NULL FROM ` + moved + guarded + found,
	surehook.Again: `UPDATE surehook.pending p SET owner = NULL, attempt = p.attempt + 1, lost = 0, due = t.ms + x.wait
		FROM ` + moved + `, (SELECT surehook.clock() AS ms OFFSET 0) t` + guarded + ` RETURNING x.n, p.due, coalesce(p.order_key, 0)`,
	surehook.Bury:   `DELETE FROM surehook.pending p USING ` + moved + guarded + found,
	surehook.Finish: `DELETE FROM surehook.pending p USING ` + moved + itsRow + found,
}

// inOrder makes the server find rows in the order in which they were asked for,
// by index: all transactions lock in one order, and none reads the whole table.
// Different decisions are statements of their own, so their rows are locked
// together before, by lockRows.
const inOrder = limits + `, set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true),
	set_config('enable_seqscan', 'off', true), set_config('enable_bitmapscan', 'off', true)`

const lockRows = `SELECT 1 FROM surehook.pending p JOIN unnest($1::bigint[], $2::bigint[]) x(event_key, endpoint_key)
	ON p.event_key = x.event_key AND p.endpoint_key = x.endpoint_key ORDER BY p.event_key, p.endpoint_key FOR UPDATE OF p`

// outcome is one of a batch, with what its move found.
type outcome struct {
	*surehook.Outcome
	hit bool
	due int64
}

// Record implements surehook.Queue.
func (s *Store) Record(ctx context.Context, outcomes []surehook.Outcome, rules map[int64]surehook.HealthRule) (surehook.Recorded, error) {
	start := time.Now()
	for i := range outcomes {
		outcomes[i].Arrived = false
	}
	got, err := s.record(ctx, outcomes, rules)
	if s.opt.OnBatch != nil {
		s.opt.OnBatch(BatchStats{Jobs: 1, Duration: time.Since(start), Err: err})
	}
	if err == nil || surehook.CodeOf(err) == surehook.Unavailable || surehook.CodeOf(err) == surehook.Stopping {
		return got, err
	}
	// Something of it can't be stored: one by one, so that a bad outcome doesn't
	// hold its batch up.
	var all surehook.Recorded
	for i := range outcomes {
		got, err := s.recordAlone(ctx, &outcomes[i], rules)
		if err != nil {
			return all, err
		}
		all.Late += got.Late
		all.Disabled = append(all.Disabled, got.Disabled...)
	}
	return all, nil
}

// recordAlone records one outcome. Its row must move, or it would be sent again,
// so what can't be stored of the attempt is left out.
func (s *Store) recordAlone(ctx context.Context, o *surehook.Outcome, rules map[int64]surehook.HealthRule) (surehook.Recorded, error) {
	one := []surehook.Outcome{*o}
	got, err := s.record(ctx, one, rules)
	o.Arrived = err == nil && one[0].Arrived
	if err == nil || surehook.CodeOf(err) == surehook.Unavailable || o.Attempt == nil {
		return got, err
	}
	s.log.Error("an outcome couldn't be stored as it is", "event_key", o.Delivery.EventKey, "error", err)
	bare := *o
	a := o.Attempt
	bare.Attempt = &surehook.Attempt{Key: a.Key, ID: newAttemptID(millis(time.Now())), EventKey: a.EventKey, EndpointKey: a.EndpointKey,
		EventID: a.EventID, EventType: a.EventType, EndpointID: a.EndpointID, Number: a.Number,
		Status: a.Status, Code: a.Code, HTTPStatus: a.HTTPStatus, CreatedAt: a.CreatedAt, Duration: a.Duration, Test: a.Test}
	one = []surehook.Outcome{bare}
	got, err = s.record(ctx, one, rules)
	o.Arrived = err == nil && one[0].Arrived
	if err != nil && surehook.CodeOf(err) != surehook.Unavailable {
		s.log.Error("an outcome was given up", "event_key", o.Delivery.EventKey, "error", err)
		err = nil
	}
	return got, err
}

func newAttemptID(ms int64) string {
	return "dlv_" + ulid.MustNew(uint64(ms), ulid.DefaultEntropy()).String()
}

func (s *Store) record(ctx context.Context, outcomes []surehook.Outcome, rules map[int64]surehook.HealthRule) (surehook.Recorded, error) {
	if s.closed.Load() {
		return surehook.Recorded{}, errClosed
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeLimit)
	defer cancel()
	var out surehook.Recorded
	err := s.again(ctx, func() error {
		return s.terse(ctx, func(tx *terseTx) (err error) {
			out, err = s.recordIn(ctx, tx, outcomes, rules)
			return err
		})
	})
	return out, wrap(err)
}

// recordIn works in rounds: a delivery's second outcome in a batch meets the row
// as the first one left it. The common batch, of successes at endpoints that are
// well, takes two round trips.
func (s *Store) recordIn(ctx context.Context, tx *terseTx, outcomes []surehook.Outcome, rules map[int64]surehook.HealthRule) (surehook.Recorded, error) {
	var out surehook.Recorded
	health := make(map[int64]*surehook.Tally)
	all := rounds(outcomes)
	for i, list := range all {
		r := &round{list: list, first: i == 0, only: len(all) == 1}
		if err := s.move(ctx, tx, r); err != nil {
			return out, err
		}
		if err := s.plan(ctx, tx, r); err != nil {
			return out, err
		}
		if r.only && r.quiet() {
			args, err := attemptArgs(r.attempts)
			if err != nil {
				return out, err
			}
			b := &pgx.Batch{}
			if len(r.attempts) > 0 && r.fresh {
				b.Queue(s.q(insertAttempts), args...)
			} else if len(r.attempts) > 0 {
				b.Queue(s.q(insertAttempts+orKept), args...)
			}
			return out, tx.last(ctx, b)
		}
		if err := s.keep(ctx, tx, r, health, &out); err != nil {
			return out, err
		}
	}
	return out, s.settleHealth(ctx, tx, health, rules, &out)
}

// rounds splits a batch so that no delivery is twice in one round, and sorts
// each round by row.
func rounds(outcomes []surehook.Outcome) [][]*outcome {
	var out [][]*outcome
	seen := make(map[[2]int64]int, len(outcomes))
	for i := range outcomes {
		o := &outcomes[i]
		k := [2]int64{o.Delivery.EventKey, o.Delivery.EndpointKey}
		n := seen[k]
		if seen[k]++; n == len(out) {
			out = append(out, make([]*outcome, 0, len(outcomes)-i))
		}
		out[n] = append(out[n], &outcome{Outcome: o})
	}
	for _, r := range out {
		slices.SortStableFunc(r, func(a, b *outcome) int {
			return cmp.Or(cmp.Compare(a.Delivery.EventKey, b.Delivery.EventKey), cmp.Compare(a.Delivery.EndpointKey, b.Delivery.EndpointKey))
		})
	}
	return out
}

// round is outcomes of different deliveries, and what becomes of them.
type round struct {
	list     []*outcome
	first    bool // of its batch
	only     bool
	now      int64
	unwell   bool          // an endpoint has failed, or never succeeded
	fresh    bool          // its attempts are new: nobody has tried to store them
	freed    row.Sequences // that rows went from
	attempts []*surehook.Attempt
	dead     []letter
	mended   [2][]int64 // deliveries whose dead letter goes: event, pending id
}

// quiet tells a round after which the attempts are all there is to keep.
func (r *round) quiet() bool {
	if r.unwell || len(r.freed) > 0 || len(r.dead) > 0 || len(r.mended[0]) > 0 {
		return false
	}
	return !slices.ContainsFunc(r.attempts, func(a *surehook.Attempt) bool { return a.Status != surehook.AttemptSucceeded })
}

// plan says, of the moves' answers, what is to be kept.
func (s *Store) plan(ctx context.Context, tx pgx.Tx, r *round) error {
	n, err := s.giveKeys(ctx, tx, r.list, r.now)
	if err != nil {
		return err
	}
	for _, o := range r.list {
		d, a := &o.Delivery, o.Attempt
		if o.Decision == surehook.Release {
			continue
		}
		o.Arrived = o.hit && o.Decision == surehook.Finish
		a.Late = !o.hit && (o.Decision == surehook.Again || o.Decision == surehook.Bury)
		a.NextDue = at(o.due)
		r.attempts = append(r.attempts, a)
		switch {
		case o.Decision == surehook.Bury && o.hit:
			ids, err := s.ids.take(ctx, tx, 1)
			if err != nil {
				return err
			}
			r.dead = append(r.dead, letter{key: keyOf(r.now, ids[0]), event: d.EventKey, endpoint: d.EndpointKey, pending: d.ID, code: a.Code,
				status: a.HTTPStatus, attempts: a.Number})
		case o.Decision == surehook.Finish && (!o.hit || d.FirstAttempt > 1):
			r.mended[0], r.mended[1] = append(r.mended[0], d.EventKey), append(r.mended[1], d.ID)
		}
	}
	r.fresh = n == len(r.attempts)
	return nil
}

// keep stores a round's attempts, and what else comes of them.
func (s *Store) keep(ctx context.Context, tx pgx.Tx, r *round, health map[int64]*surehook.Tally, out *surehook.Recorded) error {
	if err := s.firstSuccesses(ctx, tx, r.list); err != nil {
		return err
	}
	kept, err := s.insertAttempts(ctx, tx, r.attempts)
	if err != nil {
		return err
	}
	if err := s.insertLetters(ctx, tx, r.dead, r.now); err != nil {
		return err
	}
	if len(r.mended[0]) > 0 {
		if _, err := tx.Exec(ctx, s.q(`DELETE FROM surehook.dead_letters d USING unnest($1::bigint[], $2::bigint[]) x(event_key, id)
			WHERE d.event_key = x.event_key AND d.pending_id = x.id`), r.mended[0], r.mended[1]); err != nil {
			return err
		}
	}
	tally(r.list, kept, health, out)
	return s.unpark(ctx, tx, r.freed, r.now, 1)
}

// firstSuccesses takes the mark from deliveries that were replayed although they
// had succeeded.
func (s *Store) firstSuccesses(ctx context.Context, tx pgx.Tx, list []*outcome) error {
	var n []int32
	var events, endpoints []int64
	for i, o := range list {
		if d := &o.Delivery; o.Arrived && d.FirstAttempt > 1 {
			n, events, endpoints = append(n, int32(i)), append(events, d.EventKey), append(endpoints, d.EndpointKey)
		}
	}
	if n == nil {
		return nil
	}
	rows, err := tx.Query(ctx, s.q(`SELECT x.n FROM unnest($1::int[], $2::bigint[], $3::bigint[]) x(n, event_key, endpoint_key)
		WHERE EXISTS (SELECT 1 FROM surehook.attempts a WHERE a.event_key = x.event_key AND a.endpoint_key = x.endpoint_key
			AND a.key >= x.event_key - `+keyHour+` AND a.status = 1 AND a.flags & 2 = 0 OFFSET 0)`), n, events, endpoints)
	if err != nil {
		return err
	}
	var i int32
	_, err = pgx.ForEachRow(rows, []any{&i}, func() error { list[i].Arrived = false; return nil })
	return err
}

// tally counts the attempts that were stored for the first time.
func tally(round []*outcome, kept map[int64]bool, health map[int64]*surehook.Tally, out *surehook.Recorded) {
	for _, o := range round {
		a := o.Attempt
		if o.Decision == surehook.Release || !kept[a.Key] {
			continue
		}
		if a.Late {
			out.Late++
		}
		if a.Test {
			continue
		}
		t := health[a.EndpointKey]
		if t == nil {
			t = &surehook.Tally{}
			health[a.EndpointKey] = t
		}
		t.Add(o.Outcome)
	}
}

// giveKeys fixes the attempts' keys before the first try, so that a repeat is
// seen as one, and tells how many had none.
func (s *Store) giveKeys(ctx context.Context, tx pgx.Tx, round []*outcome, now int64) (int, error) {
	n := 0
	for _, o := range round {
		if o.Attempt != nil && o.Attempt.Key == 0 {
			n++
		}
	}
	if n == 0 {
		return 0, nil
	}
	ids, err := s.ids.take(ctx, tx, n)
	if err != nil {
		return 0, err
	}
	for _, o := range round {
		if o.Attempt != nil && o.Attempt.Key == 0 {
			o.Attempt.Key = keyOf(now, ids[0])
			ids = ids[1:]
		}
	}
	return n, nil
}

// move does what the decisions do to the rows, in one round trip.
func (s *Store) move(ctx context.Context, tx pgx.Tx, r *round) error {
	batch := &pgx.Batch{}
	batch.Queue(inOrder)
	if r.first { // it has all the rows of the later ones
		events, endpoints, mixed := rowsOf(r.list)
		batch.Queue(s.q(excludeAll), endpoints, s.opt.Schema+claimsOf)
		if mixed || !r.only {
			batch.Queue(s.q(lockRows), events, endpoints)
		}
	}
	batch.Queue(s.q(`SELECT surehook.clock(), EXISTS (SELECT 1 FROM surehook.endpoints WHERE key = ANY($1) AND NOT deleted
		AND (consecutive_failures > 0 OR last_success_at = 0))`), endpointsOf(r.list)).QueryRow(func(row pgx.Row) error {
		return row.Scan(&r.now, &r.unwell)
	})
	for _, d := range []surehook.Decision{surehook.Release, surehook.Finish, surehook.Again, surehook.Bury} {
		args := moveArgs(r.list, d)
		if args == nil {
			continue
		}
		batch.Queue(s.q(moves[d]), args...).Query(func(rows pgx.Rows) error {
			var n int32
			var due, order int64
			_, err := pgx.ForEachRow(rows, []any{&n, &due, &order}, func() error {
				o := r.list[n]
				o.hit, o.due = true, due
				r.freed.Add(o.Delivery.EndpointKey, order)
				return nil
			})
			return err
		})
	}
	return tx.SendBatch(ctx, batch).Close()
}

// rowsOf lists the rows that a round moves, and tells whether by different
// decisions.
func rowsOf(list []*outcome) (events, endpoints []int64, mixed bool) {
	for _, o := range list {
		if o.Decision == surehook.Note {
			continue
		}
		events, endpoints = append(events, o.Delivery.EventKey), append(endpoints, o.Delivery.EndpointKey)
		mixed = mixed || o.Decision != list[0].Decision
	}
	return events, endpoints, mixed
}

// endpointsOf lists the endpoints that were sent to, each once.
func endpointsOf(list []*outcome) []int64 {
	seen := make(map[int64]bool)
	var out []int64
	for _, o := range list {
		if k := o.Delivery.EndpointKey; o.Attempt != nil && !seen[k] {
			seen[k] = true
			out = append(out, k)
		}
	}
	return out
}

func moveArgs(round []*outcome, d surehook.Decision) []any {
	var n, attempt []int32
	var event, endpoint, id, owner, wait []int64
	for i, o := range round {
		if o.Decision != d {
			continue
		}
		r := &o.Delivery
		n, event, endpoint, id = append(n, int32(i)), append(event, r.EventKey), append(endpoint, r.EndpointKey), append(id, r.ID)
		owner, attempt, wait = append(owner, r.Epoch), append(attempt, int32(r.Attempt)), append(wait, o.Wait.Milliseconds())
	}
	if n == nil {
		return nil
	}
	return []any{n, event, endpoint, id, owner, attempt, wait}
}
