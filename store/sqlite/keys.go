package sqlite

import "sync"

// keyBlock is how many keys are taken from the file at once. What is left of a
// block at a stop is skipped: keys are unique and ascending, not gapless.
const keyBlock = 1 << 16

// allocator gives out keys that are never given out again, whatever is deleted
// (SQLite reuses row ids) and whatever crashes.
type allocator struct {
	mu         sync.Mutex
	next, high int64 // keys in [next, high) may be given out
	stored     int64 // the file's high-water mark
}

func (a *allocator) load(c *conn) error {
	n, err := c.int64(`SELECT value FROM counters WHERE name = 'key'`)
	if err != nil {
		return err
	}
	if _, err := c.exec(`UPDATE counters SET value = ? WHERE name = 'key'`, n+keyBlock); err != nil {
		return err
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	// When the file is opened anew, keys past its mark may wait for their write.
	a.next = max(a.next, n)
	a.high, a.stored = n+keyBlock, n+keyBlock
	return nil
}

// take gives the first of n consecutive keys.
func (a *allocator) take(n int) int64 {
	a.mu.Lock()
	defer a.mu.Unlock()
	k := a.next
	a.next += int64(n)
	return k
}

// settle stores a higher mark when keys above the stored one were taken. It
// runs in every transaction of the writer, before its commit, so no key is
// committed that a later process could take again.
func (a *allocator) settle(c *conn) error {
	a.mu.Lock()
	next, high := a.next, a.high
	a.mu.Unlock()
	if next < high {
		return nil
	}
	high = next + keyBlock
	if _, err := c.exec(`UPDATE counters SET value = ? WHERE name = 'key'`, high); err != nil {
		return err
	}
	a.mu.Lock()
	a.stored = high
	a.mu.Unlock()
	return nil
}

// settled takes the stored mark into use, after the commit.
func (a *allocator) settled() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.high = a.stored
}
