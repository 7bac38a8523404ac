package storetest

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/surehook/surehook"
)

// checkModel runs random operations on the queue against a model of it that is
// simple enough to be right, crashes included.
func checkModel(t *testing.T, e *env) {
	var eps []*surehook.Endpoint
	for i := range 3 {
		eps = append(eps, e.endpoint(func(ep *surehook.Endpoint) { ep.Ordered = i == 0 }))
	}
	rapid.Check(t, func(rt *rapid.T) {
		e.tb = rt
		m := &model{env: e, eps: eps, ds: make(map[where]*delivery), events: make(map[int64]*surehook.Event)}
		m.clear() // also what a round that failed has left, so that it fails alike when it is repeated
		rt.Repeat(map[string]func(*rapid.T){
			"append": m.append, "claim": m.claim, "record": m.record, "replay": m.replay, "end": m.end,
			"advance": m.advance, "crash": m.crash, "reorder": m.reorder, "": m.check,
		})
		m.checkAll()
	})
	e.tb = t
}

// Rows that were lost with their process this often are suspects, of which one
// is out at a time, or given up; part of the contract.
const (
	lostAlone = 3
	lostDead  = 8
)

// unknown is the id of a row that a replay made, until it is claimed.
const unknown = -1

type where struct{ event, endpoint int64 }

// model is the queue as it should be.
type model struct {
	env    *env
	eps    []*surehook.Endpoint
	ds     map[where]*delivery
	events map[int64]*surehook.Event
	order  []where             // of appearance
	held   []surehook.Delivery // what the node believes to hold, or held once
}

// delivery is what should be known of one event at one endpoint.
type delivery struct {
	row      *surehook.Delivery // nil: nothing to do; Epoch 0: free
	order    string             // the owner in whose sequence the row is; "": in none
	parked   bool               // it waits for others of its sequence, due at no time
	letter   int64              // id of the row that became a dead letter; 0: none
	attempts []attempt
}

type attempt struct {
	number    int
	succeeded bool
	late      bool
}

func (m *model) at(k where) *delivery {
	d := m.ds[k]
	if d == nil {
		d = &delivery{}
		m.ds[k] = d
		m.order = append(m.order, k)
	}
	return d
}

func (m *model) append(rt *rapid.T) {
	owned := rapid.Bool().Draw(rt, "owned")
	eps := m.eps[:rapid.IntRange(1, len(m.eps)).Draw(rt, "endpoints")]
	ev := m.env.event()
	if ev.Owner = rapid.SampledFrom([]string{"", "a", "a", "b"}).Draw(rt, "owner"); ev.Owner != "" {
		m.env.sequences[ev.Owner]++
		ev.Sequence = m.env.sequences[ev.Owner]
	}
	for i, d := range m.env.publishEvent(ev, owned, eps...) {
		m.events[d.EventKey] = ev
		d.Due = ms(d.Due)
		m.put(&d, eps[i])
		if d.Epoch != 0 {
			m.held = append(m.held, d)
		}
	}
}

// free lists an endpoint's free rows in the order in which they are claimed; the
// parked ones last.
func (m *model) free(endpoint int64) []*surehook.Delivery {
	var out []*surehook.Delivery
	for _, k := range m.order {
		if row := m.ds[k].row; k.endpoint == endpoint && row != nil && row.Epoch == 0 {
			out = append(out, row)
		}
	}
	slices.SortFunc(out, func(a, b *surehook.Delivery) int {
		return cmp.Or(cmp.Compare(m.due(a), m.due(b)), cmp.Compare(a.EventKey, b.EventKey))
	})
	return out
}

func (m *model) claim(rt *rapid.T) {
	ep := m.eps[max(rapid.IntRange(-1, len(m.eps)-1).Draw(rt, "endpoint"), 0)] // the ordered one more often
	limit := rapid.IntRange(1, 5).Draw(rt, "limit")
	got := m.env.claim(ep, limit)
	now := m.env.clock.Now()
	held := m.suspectHeld()
	due := slices.DeleteFunc(m.free(ep.Key), func(d *surehook.Delivery) bool {
		return m.due(d) > now.UnixMilli() || (held && d.Lost >= lostAlone && d.Lost < lostDead)
	})
	ids := make(map[int64]int64)
	for _, r := range got.Rows {
		ids[r.Delivery.EventKey] = r.Delivery.ID
	}
	var want []surehook.Delivery
	var freed []where
	for _, row := range m.park(ep, due[:min(limit, len(due))]) {
		if row.Lost >= lostDead {
			m.bury(row, row.Attempt+1)
			freed = append(freed, where{row.EventKey, row.EndpointKey})
			continue
		}
		if row.Lost >= lostAlone && len(want) > 0 {
			break
		}
		row.Epoch = m.env.s.Lease().Epoch
		if row.ID == unknown {
			row.ID = ids[row.EventKey]
		}
		want = append(want, *row)
		if row.Lost >= lostAlone {
			break
		}
	}
	var rows []surehook.Delivery
	for _, r := range got.Rows {
		rows = append(rows, r.Delivery)
	}
	m.env.same("claimed", rows, want)
	m.held = append(m.held, want...)
	m.unpark(freed, 1)
	m.checkOut(ep, want)
	m.checkNext(got, ep.Key, now)
}

// suspectHeld tells whether a suspect is out.
func (m *model) suspectHeld() bool {
	for _, d := range m.ds {
		if d.row != nil && d.row.Epoch != 0 && d.row.Lost >= lostAlone {
			return true
		}
	}
	return false
}

// checkNext checks what a claim says of the rows that it left. Suspects that
// wait for another one's return are to be asked for within a second.
func (m *model) checkNext(got surehook.Claim, endpoint int64, now time.Time) {
	next, more, soon := time.Time{}, false, false
	held := m.suspectHeld()
	for _, row := range m.free(endpoint) {
		if m.ds[where{row.EventKey, endpoint}].parked {
			break
		}
		if held && row.Lost >= lostAlone && !row.Due.After(now) {
			soon = true
			continue
		}
		next, more = row.Due, !row.Due.After(now)
		break
	}
	m.env.same("more", got.More, more)
	switch latest := now.Add(time.Second); {
	case !soon || more || (!next.IsZero() && next.Before(ms(latest))):
		m.env.same("next", got.Next, next)
	case !got.Next.After(now) || got.Next.After(latest):
		m.env.Errorf("next is %v from now, want a moment that is at most a second away", got.Next.Sub(now))
	}
}

// bury ends a row with a dead attempt.
func (m *model) bury(row *surehook.Delivery, number int) {
	d := m.at(where{row.EventKey, row.EndpointKey})
	d.letter, d.row = row.ID, nil
	d.attempts = append(d.attempts, attempt{number: number})
}

// record reports on rows that the node holds or believes to hold: those that it
// lost on the way stay in held.
func (m *model) record(rt *rapid.T) {
	if len(m.held) == 0 {
		return
	}
	var batch []surehook.Outcome
	late := 0
	for range rapid.IntRange(1, 3).Draw(rt, "outcomes") {
		d := rapid.SampledFrom(m.held).Draw(rt, "held")
		decision := rapid.SampledFrom([]surehook.Decision{surehook.Release, surehook.Finish, surehook.Again, surehook.Again, surehook.Bury}).Draw(rt, "decision")
		o := m.env.outcome(d, decision)
		o.Wait = time.Duration(rapid.IntRange(0, 120).Draw(rt, "wait")) * time.Second
		batch = append(batch, o)
		late += m.apply(o)
	}
	m.env.same("late", m.env.record(batch...).Late, late)
	if rapid.Bool().Draw(rt, "repeat") && !slices.ContainsFunc(batch, func(o surehook.Outcome) bool { return o.Decision == surehook.Release }) {
		m.env.same("a repeat", m.env.record(batch...), surehook.Recorded{})
	}
	if len(m.held) > 20 {
		m.held = m.held[10:] // what is forgotten comes back by a crash
	}
}

func (m *model) apply(o surehook.Outcome) (late int) {
	d := m.at(where{o.Delivery.EventKey, o.Delivery.EndpointKey})
	row := d.row
	k := where{o.Delivery.EventKey, o.Delivery.EndpointKey}
	ours := row != nil && row.ID == o.Delivery.ID && row.Epoch == o.Delivery.Epoch && row.Attempt == o.Delivery.Attempt
	a := attempt{number: o.Delivery.Attempt + 1, succeeded: o.Decision == surehook.Finish}
	switch o.Decision {
	case surehook.Release:
		if ours {
			row.Epoch = 0
			m.unpark([]where{k}, 1)
		}
		return 0
	case surehook.Finish:
		if row != nil && row.ID == o.Delivery.ID {
			d.row = nil
			m.unpark([]where{k}, 1)
		}
		if d.letter == o.Delivery.ID {
			d.letter = 0
		}
	case surehook.Again:
		if a.late = !ours; ours {
			row.Epoch, row.Lost, row.Due = 0, 0, ms(m.env.clock.Now().Add(o.Wait))
			row.Attempt++
			m.unpark([]where{k}, 1)
		}
	case surehook.Bury:
		if a.late = !ours; ours {
			d.row, d.letter = nil, row.ID
			m.unpark([]where{k}, 1)
		}
	}
	d.attempts = append(d.attempts, a)
	if a.late {
		return 1
	}
	return 0
}

func (m *model) replay(rt *rapid.T) {
	if len(m.order) == 0 {
		return
	}
	k := rapid.SampledFrom(m.order).Draw(rt, "delivery")
	ep := rapid.SampledFrom(m.eps).Draw(rt, "endpoint")
	k.endpoint = ep.Key // also where the event never went
	d := m.at(k)
	got := m.env.replay(ep, k.event)
	m.env.same("in progress", got[0].InProgress, d.row != nil && d.row.Epoch != 0)
	switch now := ms(m.env.clock.Now()); {
	case d.row == nil:
		number := 0
		for _, a := range d.attempts {
			number = max(number, a.number)
		}
		d.letter = 0
		m.put(&surehook.Delivery{ID: unknown, EventKey: k.event, EndpointKey: k.endpoint, Attempt: number, FirstAttempt: number + 1, Due: now}, ep)
	case d.row.Epoch == 0:
		d.parked = false
		d.row.Due, d.row.FirstAttempt = now, d.row.Attempt+1
	}
}

func (m *model) end(rt *rapid.T) {
	ep := rapid.SampledFrom(m.eps).Draw(rt, "endpoint")
	dueOnly, letters := rapid.Bool().Draw(rt, "due only"), rapid.Bool().Draw(rt, "letters")
	limit := rapid.IntRange(1, 3).Draw(rt, "limit")
	m.env.enable(ep, false)
	n, err := m.env.s.End(m.env.ctx, ep.Key, surehook.EndpointDisabled, dueOnly, letters, limit)
	m.env.enable(ep, true)
	m.env.ok(err)
	want, before := 0, int64(never)
	if dueOnly {
		before = m.env.clock.Now().UnixMilli()
	}
	for more := true; more; { // what waited for those that ended comes due
		var freed []where
		for _, row := range m.free(ep.Key) {
			if want == limit || m.due(row) > before {
				break
			}
			want++
			freed = append(freed, where{row.EventKey, row.EndpointKey})
			if letters {
				m.bury(row, row.Attempt+1)
			} else {
				m.at(where{row.EventKey, row.EndpointKey}).row = nil
			}
		}
		m.unpark(freed, limit-want)
		more = len(freed) > 0
	}
	m.env.same("ended", n, want)
}

func (m *model) advance(rt *rapid.T) {
	m.env.clock.Advance(time.Duration(rapid.IntRange(1, 90_000).Draw(rt, "ms")) * time.Millisecond)
}

// crash frees every held row, each one crash older; what the node believes to
// hold stays with it, as with a process that was only asleep.
func (m *model) crash(rt *rapid.T) {
	if rapid.IntRange(0, 2).Draw(rt, "luck") > 0 {
		return
	}
	m.env.reopen()
	var freed []where
	for k, d := range m.ds {
		if d.row != nil && d.row.Epoch != 0 {
			d.row.Epoch = 0
			d.row.Lost++
			freed = append(freed, k)
		}
	}
	m.unpark(freed, 1)
}

// check compares what is cheap to compare, after each operation.
func (m *model) check(*rapid.T) {
	now := m.env.clock.Now()
	var want surehook.PendingCount
	letters := 0
	for _, d := range m.ds {
		if d.letter != 0 {
			letters++
		}
		switch {
		case d.row == nil:
		case d.row.Epoch != 0:
			want.Owned++
		case d.parked || d.row.Due.After(now):
			want.Waiting++
		default:
			want.Due++
			if want.OldestDue.IsZero() || d.row.Due.Before(want.OldestDue) {
				want.OldestDue = d.row.Due
			}
		}
	}
	m.env.same("pending", m.env.pending(), want)
	m.env.same("letters", m.env.letterCount(m.eps), letters)
	m.checkParked()
}

func (e *env) letterCount(eps []*surehook.Endpoint) int {
	e.Helper()
	n := 0
	for _, ep := range eps {
		for p := (surehook.Page{Limit: 1000}); ; {
			ls, err := e.s.ListDeadLetters(e.ctx, surehook.DeadLetterFilter{Endpoint: ep.Key}, p)
			e.ok(err)
			if n += len(ls); len(ls) < p.Limit {
				break
			}
			p.Cursor = ls[len(ls)-1].Key
		}
	}
	return n
}

// checkAll compares every delivery as people see it.
func (m *model) checkAll() {
	for _, k := range m.order {
		d := m.ds[k]
		if d.row == nil && d.letter == 0 && len(d.attempts) == 0 {
			continue // ended without a trace, or asked about only
		}
		v := m.env.view(surehook.Delivery{EventKey: k.event, EndpointKey: k.endpoint})
		m.env.same("status", v.Status, d.status())
		number := 0
		for _, a := range d.attempts {
			number = max(number, a.number)
		}
		m.env.same("attempts", v.Attempts, number)
		next := time.Time{}
		if d.row != nil && !d.parked {
			next = d.row.Due
		}
		m.env.same("next attempt", v.NextAttemptAt, next)
		m.env.same("attempts kept", len(m.env.attempts(surehook.Delivery{EventKey: k.event, EndpointKey: k.endpoint})), len(d.attempts))
	}
}

func (d *delivery) status() surehook.DeliveryStatus {
	switch {
	case d.row != nil:
		return surehook.Pending
	case d.letter != 0:
		return surehook.Dead
	}
	out := surehook.Dead
	for _, a := range d.attempts {
		if a.late {
			continue
		}
		if out = surehook.Dead; a.succeeded {
			out = surehook.Succeeded
		}
	}
	return out
}

// clear leaves no rows of the round before, no suspicions and no letters.
func (m *model) clear() {
	m.env.reopen()
	for _, ep := range m.eps {
		m.env.enable(ep, false)
		_, err := m.env.s.End(m.env.ctx, ep.Key, "", false, false, 1<<20)
		m.env.enable(ep, true)
		m.env.ok(err)
		if ep.Ordered != (ep == m.eps[0]) {
			m.env.order(ep, !ep.Ordered)
		}
	}
	var keys []int64
	for p := (surehook.Page{Limit: 1000}); ; {
		ls, err := m.env.s.ListDeadLetters(m.env.ctx, surehook.DeadLetterFilter{}, p)
		m.env.ok(err)
		for _, l := range ls {
			keys = append(keys, l.Key)
		}
		if len(ls) < p.Limit {
			break
		}
		p.Cursor = ls[len(ls)-1].Key
	}
	_, err := m.env.s.DiscardDeadLetters(m.env.ctx, keys, nil)
	m.env.ok(err)
}
