package storetest

import (
	"cmp"
	"slices"

	"pgregory.net/rapid"

	"github.com/surehook/surehook"
)

// never is when a parked row is due.
const never = 1 << 62

// put stores a row; at an ordered endpoint it is in its owner's sequence.
func (m *model) put(row *surehook.Delivery, ep *surehook.Endpoint) {
	d := m.at(where{row.EventKey, row.EndpointKey})
	d.row, d.parked, d.order = row, false, ""
	if ep.Ordered {
		d.order = m.events[row.EventKey].Owner
	}
}

func (m *model) due(row *surehook.Delivery) int64 {
	if m.ds[where{row.EventKey, row.EndpointKey}].parked {
		return never
	}
	return row.Due.UnixMilli()
}

// sequence lists the rows that are in one sequence with a row, the first first;
// that row need not be there any more.
func (m *model) sequence(k where) []*delivery {
	order := m.ds[k].order
	if order == "" {
		return nil
	}
	var out []*delivery
	for other, d := range m.ds {
		if other.endpoint == k.endpoint && d.row != nil && d.order == order {
			out = append(out, d)
		}
	}
	slices.SortFunc(out, func(a, b *delivery) int {
		return cmp.Compare(m.events[a.row.EventKey].Sequence, m.events[b.row.EventKey].Sequence)
	})
	return out
}

// blocked tells whether a row waits for others of its sequence.
func (m *model) blocked(d *delivery) bool {
	if d.order == "" {
		return false
	}
	all := m.sequence(where{d.row.EventKey, d.row.EndpointKey})
	return all[0] != d || slices.ContainsFunc(all, func(o *delivery) bool { return o != d && o.row.Epoch != 0 })
}

// park takes those rows out that an ordered endpoint can't have yet.
func (m *model) park(ep *surehook.Endpoint, rows []*surehook.Delivery) []*surehook.Delivery {
	if !ep.Ordered {
		return rows
	}
	return slices.DeleteFunc(slices.Clone(rows), func(row *surehook.Delivery) bool {
		d := m.ds[where{row.EventKey, row.EndpointKey}]
		d.parked = m.blocked(d)
		return d.parked
	})
}

// unpark makes the first rows due of the sequences that rows went from or came
// free in: about as many as most, and one of each at least.
func (m *model) unpark(freed []where, most int) {
	type sequence struct {
		endpoint int64
		order    string
	}
	all := make(map[sequence][]*delivery)
	for _, k := range freed {
		if s := (sequence{k.endpoint, m.ds[k].order}); s.order != "" {
			all[s] = m.sequence(k)
		}
	}
	for _, rows := range all {
		for _, d := range rows[:min(max(most/len(all), 1), len(rows))] {
			if d.parked {
				d.parked, d.row.Due = false, ms(m.env.clock.Now())
			}
		}
	}
}

// reorder makes an endpoint ordered, or unordered. Rows that are there stay in
// their sequences, or in none; no row of an unordered endpoint waits for others.
func (m *model) reorder(rt *rapid.T) {
	if rapid.IntRange(0, 3).Draw(rt, "luck") > 0 {
		return
	}
	ep := rapid.SampledFrom(m.eps).Draw(rt, "endpoint")
	m.env.order(ep, !ep.Ordered)
	for k, d := range m.ds {
		if k.endpoint == ep.Key && d.row != nil && d.parked && !ep.Ordered {
			d.parked, d.row.Due = false, ms(m.env.clock.Now())
		}
	}
}

// order makes an endpoint ordered or not.
func (e *env) order(ep *surehook.Endpoint, ordered bool) {
	e.Helper()
	_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error { ep.Ordered = ordered; return nil }, nil)
	e.ok(err)
	ep.Ordered = ordered
}

// checkOut: of each sequence, what a claim gives is the first and alone.
func (m *model) checkOut(ep *surehook.Endpoint, claimed []surehook.Delivery) {
	if !ep.Ordered {
		return
	}
	for _, row := range claimed {
		if d := m.ds[where{row.EventKey, row.EndpointKey}]; m.blocked(d) {
			m.env.Fatalf("event %d is out before its turn", row.EventKey)
		}
	}
}

// checkParked: whatever happened, a row that waits has somebody to wait for, so
// the first of a sequence of which none is out can be claimed at its time.
func (m *model) checkParked() {
	for k, d := range m.ds {
		if d.row == nil || !d.parked {
			continue
		}
		if ep := m.eps[slices.IndexFunc(m.eps, func(ep *surehook.Endpoint) bool { return ep.Key == k.endpoint })]; !ep.Ordered || !m.blocked(d) {
			m.env.Fatalf("event %d is parked for ever", k.event)
		}
	}
}
