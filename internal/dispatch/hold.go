package dispatch

import (
	"time"

	"github.com/surehook/surehook"
)

// A lane that is held sends nothing, and its rows stay in the store as they are:
// no attempt, no failure, no place in a queue, and no write by the waiting. They
// can't wait for ever: a row whose event left its window becomes a dead letter.
// That is looked for each minute, in bounded steps, and once through before a lane
// is opened again.
const (
	expireStep  = 1000 // rows looked at in one go
	expireSteps = 5    // a minute and lane
)

func (d *Dispatcher) held(e *surehook.Endpoint) bool { return d.opt.Held != nil && d.opt.Held(e) }

// Regate asks again which endpoints are held.
func (d *Dispatcher) Regate() {
	for _, l := range d.all() {
		l.mu.Lock()
		if held := d.held(l.route.Endpoint); held != l.held || l.opening {
			l.gate(held)
			l.kick()
		}
		l.mu.Unlock()
	}
}

// gate holds the lane, or opens it. Callers hold mu, and kick.
func (l *lane) gate(held bool) {
	switch {
	case held:
		l.held, l.opening = true, false
	case !l.held || l.opening || l.d.draining.Load():
	case !l.route.live || !l.d.started.Load():
		l.held = false // a disabled one's rows end by another rule
	default:
		l.opening, l.expired = true, surehook.Place{}
		l.d.work.Go(l.reopen)
	}
}

// reopen ends what left its window while the lane was held, and opens it.
func (l *lane) reopen() {
	for more := true; more; {
		var err error
		if more, err = l.expire(); err != nil {
			select {
			case <-l.d.open.Done():
			case <-time.After(claimRetry):
			}
		}
		l.mu.Lock()
		more = (more || err != nil) && l.opening && !l.d.draining.Load()
		l.mu.Unlock()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.opening {
		return // held again meanwhile
	}
	l.held, l.opening, l.more = false, false, true
	l.again()
}

// expireHeld looks at the rows of held lanes. Of several nodes, an endpoint's home
// does it.
func (d *Dispatcher) expireHeld() {
	lease := d.store.Lease()
	for _, l := range d.all() {
		l.mu.Lock()
		due := l.held && !l.opening && l.route.live
		l.mu.Unlock()
		if !due || (len(lease.Nodes) > 1 && home(lease.Nodes, l.key) != lease.Epoch) {
			continue
		}
		for range expireSteps {
			if more, err := l.expire(); err != nil || !more {
				break
			}
		}
	}
}

// expire looks at some rows from where the last look ended, and tells whether
// there are more.
func (l *lane) expire() (more bool, err error) {
	l.mu.Lock()
	from, id := l.expired, l.route.ID
	l.mu.Unlock()
	n, next, err := l.d.store.Expire(l.d.open, l.key, l.d.opt.Window, from, expireStep)
	if err != nil {
		if l.d.open.Err() == nil {
			l.d.log.Warn("held deliveries couldn't be looked at; trying again", "webhook_id", id, "error", err)
		}
		return false, err
	}
	l.d.ended(surehook.EventUnavailable, n)
	if n > 0 {
		l.d.log.Info("held deliveries ended: their events left the replay window", "webhook_id", id, "deliveries", n)
	}
	l.mu.Lock()
	l.expired = next
	l.mu.Unlock()
	return next != surehook.Place{}, nil
}
