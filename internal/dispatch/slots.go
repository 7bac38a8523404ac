package dispatch

import (
	"slices"
	"sync"
)

// slots bound the requests in flight over all lanes. When they run out, lanes
// wait in turn: tenants round-robin, and each tenant's lanes round-robin. Lanes
// that keep failing share a quarter, so that a thousand black holes can't take
// every slot for the length of their time-outs.
type slots struct {
	mu      sync.Mutex
	free    int
	suspect int // slots that suspects may still take
	queues  map[string][]*lane
	turn    []string // tenants with waiting lanes, next first
	waiting int
}

func newSlots(n int) *slots {
	return &slots{free: n, suspect: max(n/4, 1), queues: make(map[string][]*lane)}
}

// take gives a slot, or notes the lane for one: grant will be called.
func (s *slots) take(l *lane, suspect bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting == 0 || !suspect {
		if s.grantable(suspect) {
			s.grant(suspect)
			return true
		}
	}
	if l.waiting {
		return false
	}
	l.waiting, l.waitSuspect = true, suspect
	s.waiting++
	if len(s.queues[l.tenant]) == 0 {
		s.turn = append(s.turn, l.tenant)
	}
	s.queues[l.tenant] = append(s.queues[l.tenant], l)
	return false
}

func (s *slots) grantable(suspect bool) bool {
	return s.free > 0 && (!suspect || s.suspect > 0)
}

func (s *slots) grant(suspect bool) {
	s.free--
	if suspect {
		s.suspect--
	}
}

// give returns a slot and gives the lane whose turn it is, if any, which then
// holds it.
func (s *slots) give(suspect bool) (*lane, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.free++
	if suspect {
		s.suspect++
	}
	for range len(s.turn) {
		tenant := s.turn[0]
		s.turn = s.turn[1:]
		if l := s.next(tenant); l != nil {
			s.grant(l.waitSuspect)
			return l, l.waitSuspect
		}
	}
	return nil, false
}

// next takes the first of a tenant's lanes that may have the slot, and puts the
// tenant at the end of the turn while more wait.
func (s *slots) next(tenant string) *lane {
	q := s.queues[tenant]
	var found *lane
	for i, l := range q {
		if s.grantable(l.waitSuspect) {
			found = l
			if i == 0 {
				q = q[1:] // the usual case moves nothing
			} else {
				q = slices.Delete(q, i, i+1)
			}
			break
		}
	}
	if len(q) == 0 {
		delete(s.queues, tenant)
	} else {
		s.queues[tenant] = q
		s.turn = append(s.turn, tenant)
	}
	if found != nil {
		found.waiting = false
		s.waiting--
	}
	return found
}

// contended tells whether lanes wait, so that whoever holds a slot should give
// it up between two attempts.
func (s *slots) contended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting > 0
}
