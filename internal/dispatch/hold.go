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
		l.opening = true
		l.openings++
		if !l.looking { // else the look that is under way begins anew
			l.looking = true
			l.d.work.Go(l.reopen)
		}
	}
}

// reopen ends what left its window while the lane was held, and opens it. The lane
// may be held and opened again meanwhile: only a look that began after it was last
// to be opened, and came to the end, opens it.
func (l *lane) reopen() {
	for l.look() {
	}
}

// look goes once through the lane's rows, and tells whether to begin again.
func (l *lane) look() (again bool) {
	l.mu.Lock()
	n := l.openings
	l.mu.Unlock()
	for at := (surehook.Place{}); ; {
		next, err := l.expire(at)
		if err != nil {
			select {
			case <-l.d.open.Done():
			case <-time.After(claimRetry):
			}
		}
		l.mu.Lock()
		switch {
		case !l.opening || l.d.draining.Load(): // held again meanwhile
			l.looking = false
			l.mu.Unlock()
			return false
		case l.openings != n:
			l.mu.Unlock()
			return true
		case err == nil && next == surehook.Place{}:
			l.held, l.opening, l.looking, l.more = false, false, false, true
			l.again()
			l.mu.Unlock()
			return false
		}
		l.mu.Unlock()
		if err == nil {
			at = next
		}
	}
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
		for range expireSteps { // from where the last minute's ended
			next, err := l.expire(l.expired)
			if err != nil {
				break
			}
			if l.expired = next; next == (surehook.Place{}) {
				break
			}
		}
	}
}

// expire looks at some rows after a place, and tells where to go on; the zero Place
// is the end.
func (l *lane) expire(from surehook.Place) (surehook.Place, error) {
	l.mu.Lock()
	id, window := l.route.ID, l.d.opt.Window
	if most := l.route.profile.MaxAge; most > 0 && (window.Most == 0 || most < window.Most) {
		window.Most = most
	}
	l.mu.Unlock()
	n, next, err := l.d.store.Expire(l.d.open, l.key, window, from, expireStep)
	if err != nil {
		if l.d.open.Err() == nil {
			l.d.log.Warn("held deliveries couldn't be looked at; trying again", "webhook_id", id, "error", err)
		}
		return surehook.Place{}, err
	}
	l.d.ended(surehook.EventUnavailable, n)
	if n > 0 {
		l.d.log.Info("held deliveries ended: their events left the replay window", "webhook_id", id, "deliveries", n)
	}
	return next, nil
}
