// Package retry computes when a failed attempt is followed by another. It is
// pure: no clock, no random source, no state.
//
// It guarantees that a wait is always more than nothing and never more than
// the policy's bound, whatever the attempt number, the table or the random
// number; that with jitter upwards no attempt comes earlier than the table
// says; and that a receiver can stretch a wait, never shorten it.
package retry

import (
	"math"
	"time"

	"github.com/surehook/surehook"
)

const (
	shortest = time.Millisecond           // so that no table can make a tight loop
	longest  = 365 * 24 * time.Hour       // where a policy sets no bound
	day      = 24 * time.Hour             // the bound of a Retry-After by default
	maxNanos = float64(math.MaxInt64 / 2) // below it a float is surely a Duration
)

// Next tells how long to wait after attempt k of a run has failed, k counting
// from 1, or that there is no further attempt. retryAfter is what the receiver
// asked for, 0 if nothing; rnd is a random number in [0, 1).
func Next(p surehook.RetryPolicy, k int, retryAfter time.Duration, rnd float64) (wait time.Duration, again bool) {
	k = max(k, 1)
	if k >= Attempts(p) {
		return 0, false
	}
	rnd = unit(rnd)
	wait = jittered(p, table(p, k), rnd)
	if p.HonourRetryAfter && retryAfter > 0 {
		wait = max(wait, stretched(p, retryAfter, rnd))
	}
	return wait, true
}

// Attempts is how many attempts a run has in all.
func Attempts(p surehook.RetryPolicy) int {
	if p.Attempts > 0 {
		return p.Attempts
	}
	return len(p.Waits) + 1
}

// Table is the wait after attempt k before jitter, for people to read.
func Table(p surehook.RetryPolicy, k int) time.Duration { return table(p, max(k, 1)) }

// bound is the longest wait that the policy's own table may lead to.
func bound(p surehook.RetryPolicy) time.Duration {
	switch {
	case p.MaxWait > 0:
		return max(p.MaxWait, shortest)
	case len(p.Waits) == 0 && p.Max > 0:
		return max(p.Max, shortest)
	}
	return longest
}

// table never multiplies integers: the power is taken in floating point, where
// too much is +Inf and not a negative number, and is bounded before it becomes
// a Duration.
func table(p surehook.RetryPolicy, k int) time.Duration {
	top := bound(p)
	if n := len(p.Waits); n > 0 {
		return within(p.Waits[min(k, n)-1], top)
	}
	if p.Max > 0 {
		top = min(top, max(p.Max, shortest))
	}
	factor := p.Factor
	if !(factor >= 1) { // NaN as well
		factor = 1
	}
	return within(fromFloat(float64(max(p.Base, shortest))*math.Pow(factor, float64(k-1))), top)
}

// jittered draws the wait from its window. A window that reaches over the
// bound is moved down whole: cutting it would put all that lies above on one
// instant, the herd that jitter is there to prevent.
func jittered(p surehook.RetryPolicy, wait time.Duration, rnd float64) time.Duration {
	top, low, high := bound(p), math.Max(finite(p.JitterLow), -1), finite(p.JitterHigh)
	high = math.Max(low, high)
	from := float64(wait) * (1 + low)
	to := float64(wait) * (1 + high)
	if over := to - float64(top); over > 0 {
		from, to = from-over, float64(top)
	}
	floor := shortest
	if low >= 0 {
		floor = wait
	}
	from = math.Max(from, float64(floor))
	d := fromFloat(from + rnd*(math.Max(to, from)-from))
	return within(max(rounded(d, floor, p.RoundTo), floor), top)
}

// rounded is d to the nearest grain, or the next one up where the nearest is
// less than floor.
func rounded(d, floor, grain time.Duration) time.Duration {
	if grain <= 0 {
		return d
	}
	r := d.Round(grain)
	if r < floor {
		r = d.Truncate(grain) + grain
	}
	return r
}

// stretched spreads the deliveries that were all told to come back at the same
// time, upwards only.
func stretched(p surehook.RetryPolicy, retryAfter time.Duration, rnd float64) time.Duration {
	top := p.MaxRetryAfter
	if top <= 0 {
		top = day
	}
	retryAfter = within(retryAfter, top)
	spread := math.Max(finite(p.JitterHigh), 0) * rnd
	return within(fromFloat(float64(retryAfter)*(1+spread)), top)
}

func within(d, top time.Duration) time.Duration {
	return min(max(d, shortest), top)
}

func fromFloat(f float64) time.Duration {
	if !(f < maxNanos) {
		return time.Duration(maxNanos)
	}
	return time.Duration(math.Max(f, 0))
}

func unit(rnd float64) float64 {
	if !(rnd >= 0) {
		return 0
	}
	return math.Min(rnd, 1)
}

func finite(f float64) float64 {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return 0
	}
	return f
}
