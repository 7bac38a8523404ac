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

// How many pages show live numbers at once: in all, and those of one key, tenant or
// person, so that nobody takes everybody's.
const (
	streamsInAll = 256
	streamsOfOne = 64
)

// places counts the streams that are open.
type places struct {
	mu  sync.Mutex
	all int
	by  map[string]int
}

func (p *places) take(who string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all >= streamsInAll || p.by[who] >= streamsOfOne {
		return false
	}
	if p.by == nil {
		p.by = make(map[string]int)
	}
	p.all++
	p.by[who]++
	return true
}

func (p *places) leave(who string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.all--
	if p.by[who]--; p.by[who] == 0 {
		delete(p.by, who)
	}
}
