package api

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/surehook/surehook"
)

const (
	keyUseEvery = time.Minute // between two writes of what keys were used
	keyUseTime  = 5 * time.Second
)

// keyUses remembers when keys were used, and writes it down for all of them
// together, now and then: a request neither waits for it nor fails by it.
type keyUses struct {
	store surehook.Keys
	log   *slog.Logger
	every time.Duration

	mu      sync.Mutex
	used    map[int64]time.Time
	timer   *time.Timer // nil: nothing is to be written
	written time.Time   // real time of the last attempt to write
	closed  bool
}

// saw notes that a key was used.
func (u *keyUses) saw(key int64, at time.Time) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.used == nil {
		u.used = make(map[int64]time.Time)
	}
	u.used[key] = at
	if u.timer == nil && !u.closed {
		u.timer = time.AfterFunc(max(u.every-time.Since(u.written), 0), func() { u.write(context.Background()) })
	}
}

// write stores what was noted. What can't be stored is tried again with what
// comes next.
func (u *keyUses) write(ctx context.Context) {
	u.mu.Lock()
	used := u.used
	u.used, u.timer, u.written = nil, nil, time.Now()
	u.mu.Unlock()
	if len(used) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, keyUseTime)
	defer cancel()
	err := u.store.KeysUsed(ctx, used)
	if err == nil {
		return
	}
	u.log.Warn("when API keys were used couldn't be written down; trying again later", "keys", len(used), "error", err)
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.used == nil {
		u.used = used
		return
	}
	for key, at := range used {
		if _, newer := u.used[key]; !newer {
			u.used[key] = at
		}
	}
}

// close writes what is left.
func (u *keyUses) close(ctx context.Context) {
	u.mu.Lock()
	u.closed = true
	if u.timer != nil {
		u.timer.Stop()
	}
	u.mu.Unlock()
	u.write(ctx)
}
