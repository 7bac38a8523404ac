package dispatch

import "time"

const (
	breakerOpens = 10               // failures in a row
	probeFirst   = time.Second      // until the first probe
	probeLatest  = 10 * time.Second // between probes, at most
)

// breaker keeps a lane from hammering a receiver that fails. It is open while
// the failures in a row reach the limit; then one attempt at a time probes.
// Waiting for it spends no attempt. The zero value is closed. Not safe for
// concurrent use: the lane's lock guards it.
type breaker struct {
	failures int       // in a row
	until    time.Time // open until then
	wait     time.Duration
	probing  bool // one attempt is under way to find out
}

// state names where the breaker stands, for metrics and people.
func (b *breaker) state(now time.Time) string {
	switch {
	case b.failures < breakerOpens:
		return "closed"
	case now.Before(b.until):
		return "open"
	}
	return "half_open"
}

// ready tells whether an attempt may start, and if not, when to ask again (zero:
// when the probe is back).
func (b *breaker) ready(now time.Time) (bool, time.Time) {
	switch b.state(now) {
	case "closed":
		return true, time.Time{}
	case "open":
		return false, b.until
	}
	return !b.probing, time.Time{}
}

// start marks an attempt as started, and tells whether it is the probe, which
// must be said when it is done.
func (b *breaker) start() (probe bool) {
	b.probing = b.failures >= breakerOpens
	return b.probing
}

// done takes an attempt's end. One that tells nothing changes nothing.
func (b *breaker) done(e end, now time.Time) {
	if e.probe {
		b.probing = false // those that started before it opened don't end the probe
	}
	switch {
	case e.mute:
	case e.ok:
		*b = breaker{}
	default:
		b.failures++
		if b.failures < breakerOpens {
			return
		}
		if now.Before(b.until) {
			return // a straggler of those that opened it
		}
		b.wait = min(max(2*b.wait, probeFirst), probeLatest)
		b.until = now.Add(b.wait)
	}
}
