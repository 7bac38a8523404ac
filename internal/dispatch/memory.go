package dispatch

import "sync/atomic"

// claimBytes is what a lane may claim although memory is over its limit, so that
// lanes that hold much don't slow down those that hold little.
const claimBytes = 64 << 10

// memory counts the bytes of event data that lanes and attempts hold, each event
// once, however many endpoints it goes to.
type memory struct {
	limit int64
	used  atomic.Int64
}

func (m *memory) hold(p *parcel) {
	if p.held.Add(1) == 1 {
		m.used.Add(int64(p.size()))
	}
}

func (m *memory) drop(p *parcel) {
	if p.held.Add(-1) == 0 {
		m.used.Add(-int64(p.size()))
	}
}

// fits tells whether a lane that holds n rows may take one more. Past the limit
// a lane still holds a few; far past it, one.
func (m *memory) fits(n, size int) bool {
	used := m.used.Load() + int64(size)
	switch {
	case n == 0 || used <= m.limit:
		return true
	case used <= 2*m.limit:
		return n < queueMin
	}
	return false
}

// tight tells whether most of the memory is used.
func (m *memory) tight() bool { return m.used.Load() > m.limit/4*3 }

// room is what a claim may still take; never nothing, so that every lane goes on.
func (m *memory) room() int {
	used, least := m.used.Load(), int64(1)
	if used <= 2*m.limit {
		least = min(claimBytes, max(m.limit, 1))
	}
	return int(max(m.limit-used, least))
}
