package dispatch

import "time"

// Stats is where the lanes stand at one moment.
type Stats struct {
	Lanes    int
	Queued   int   // rows that lanes hold
	Bytes    int64 // of event data that they hold
	InFlight int   // requests
	Backlog  int   // outcomes that wait to be recorded

	Closed, Open, HalfOpen int // lanes by the state of their breaker
}

// Stats looks at every lane.
func (d *Dispatcher) Stats() Stats {
	lanes := d.all()
	s := Stats{Lanes: len(lanes), Bytes: d.memory.used.Load(), Backlog: d.recorder.backlog()}
	now := d.now()
	for _, l := range lanes {
		l.mu.Lock()
		s.Queued += len(l.queue)
		s.InFlight += l.running
		state := l.breaker.state(now)
		l.mu.Unlock()
		switch state {
		case "closed":
			s.Closed++
		case "open":
			s.Open++
		default:
			s.HalfOpen++
		}
	}
	return s
}

// LaneStats is where one endpoint's lane stands.
type LaneStats struct {
	Queued   int    // rows that it holds
	InFlight int    // requests
	Breaker  string // closed, open or half_open
	Until    time.Time
}

// LaneStats looks at one lane; false: this process has none for the endpoint.
func (d *Dispatcher) LaneStats(endpoint int64) (LaneStats, bool) {
	l := d.lane(endpoint)
	if l == nil {
		return LaneStats{Breaker: "closed"}, false
	}
	now := d.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	s := LaneStats{Queued: len(l.queue), InFlight: l.running, Breaker: l.breaker.state(now)}
	if s.Breaker == "open" {
		s.Until = l.breaker.until
	}
	return s, true
}
