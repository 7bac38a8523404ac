package console

import (
	"sync"
	"time"
)

// How many wrong keys may be tried: from one address, and in all, a minute.
const (
	triesByAddress = 10
	triesInAll     = 100
	triesWithin    = time.Minute
)

// limiter counts failed sign-ins. It forgets everything at the end of its minute,
// so it holds at most triesInAll addresses.
type limiter struct {
	now func() time.Time

	mu    sync.Mutex
	since time.Time
	all   int
	by    map[string]int
}

// wait tells how long an address must wait before its next try; 0: not at all.
func (l *limiter) wait(address string) time.Duration {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.now()
	if age := now.Sub(l.since); age >= triesWithin || age < 0 {
		l.since, l.all, l.by = now, 0, make(map[string]int)
	}
	if l.all < triesInAll && l.by[address] < triesByAddress {
		return 0
	}
	return triesWithin - now.Sub(l.since)
}

// failed counts a wrong key.
func (l *limiter) failed(address string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.by == nil {
		l.by = make(map[string]int)
	}
	l.all++
	l.by[address]++
}
