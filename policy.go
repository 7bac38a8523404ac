package surehook

import (
	"slices"
	"time"
)

// RetryPolicy says when a failed attempt is followed by another. It is data:
// internal/retry does the arithmetic.
type RetryPolicy struct {
	// Waits is the table of waits, the first after the first failure. With
	// more attempts than waits the last one repeats. If it is empty, waits grow
	// from Base by Factor up to Max.
	Waits  []time.Duration
	Base   time.Duration
	Factor float64
	Max    time.Duration

	// Attempts is how many a run has in all, its first included. 0: one more
	// than there are Waits.
	Attempts int

	// A wait is multiplied by a factor drawn evenly from 1+JitterLow to
	// 1+JitterHigh, e.g. 0 and 0.2, or -0.1 and 0.1.
	JitterLow, JitterHigh float64

	// RoundTo is the grain of a wait. 0: none.
	RoundTo time.Duration

	// MaxWait bounds the wait that the table and the jitter make. 0: Max.
	MaxWait time.Duration

	// HonourRetryAfter lets a receiver's Retry-After stretch a wait, up to
	// MaxRetryAfter.
	HonourRetryAfter bool
	MaxRetryAfter    time.Duration
}

// With applies what an endpoint overrides. Waits of its own bring their own
// number of attempts and grain; the rest stays.
func (p RetryPolicy) With(l Limits) RetryPolicy {
	if len(l.Waits) > 0 {
		if p.MaxWait == p.Max {
			p.MaxWait = slices.Max(l.Waits) // it was the bound of the waits that these replace
		}
		p.Waits, p.Attempts, p.RoundTo = l.Waits, 0, 0
	}
	if l.Attempts > 0 {
		p.Attempts = l.Attempts
	}
	return p
}
