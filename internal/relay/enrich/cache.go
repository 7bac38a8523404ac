package enrich

import (
	"container/list"
	"sync"
	"time"
)

// cache keeps the values that were used last, each for a time.
type cache[V any] struct {
	most int
	ttl  time.Duration
	now  func() time.Time

	mu   sync.Mutex
	used *list.List // of *entry, the latest first
	at   map[string]*list.Element
}

type entry[V any] struct {
	key   string
	value V
	until time.Time
}

func newCache[V any](most int, ttl time.Duration, now func() time.Time) *cache[V] {
	return &cache[V]{most: most, ttl: ttl, now: now, used: list.New(), at: map[string]*list.Element{}}
}

func (c *cache[V]) get(key string) (value V, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	el := c.at[key]
	if el == nil {
		return value, false
	}
	e, _ := el.Value.(*entry[V])
	if !c.now().Before(e.until) {
		c.used.Remove(el)
		delete(c.at, key)
		return value, false
	}
	c.used.MoveToFront(el)
	return e.value, true
}

func (c *cache[V]) put(key string, value V) {
	if c.ttl <= 0 || c.most <= 0 {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	e := &entry[V]{key, value, c.now().Add(c.ttl)}
	if el := c.at[key]; el != nil {
		el.Value = e
		c.used.MoveToFront(el)
		return
	}
	c.at[key] = c.used.PushFront(e)
	if c.used.Len() > c.most {
		oldest := c.used.Back()
		if o, ok := c.used.Remove(oldest).(*entry[V]); ok {
			delete(c.at, o.key)
		}
	}
}
