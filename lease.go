package surehook

import "time"

// Lease is a node's right to own rows: rows of another epoch are not its own
// any more, and no attempt may start that could outlast Until.
type Lease struct {
	Epoch int64
	Until time.Time // monotonic
	// Length is what a fresh one lasts; 0: without end. No attempt may be so long
	// that it would never fit in.
	Length time.Duration
	Nodes  []int64 // epochs of all that deliver from this store, ascending; nil: nobody else does
}

// Lasts tells whether the lease holds for so long from now on. Of the wall clock
// and the monotonic one, which stands still while a machine sleeps, the less
// favourable counts.
func (l Lease) Lasts(now time.Time, d time.Duration) bool {
	end := now.Add(d)
	return !end.After(l.Until) && !end.Round(0).After(l.Until.Round(0))
}
