package dispatch

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
