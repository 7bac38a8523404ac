package receiver

import (
	"container/list"
	"context"
	"errors"
	"sync"
	"time"
)

// Dedupe keeps the ids of what was done.
type Dedupe interface {
	// Do calls effect, unless id has been done: then duplicate is true. The id
	// is kept only if effect returns nil. While another call works on the same
	// id, Do waits for its end.
	Do(ctx context.Context, id string, effect func(ctx context.Context) error) (duplicate bool, err error)
}

// NoDedupe keeps nothing: every attempt reaches the handler, duplicates and
// captured requests that are sent again within the tolerance included.
var NoDedupe Dedupe = noDedupe{}

type noDedupe struct{}

func (noDedupe) Do(ctx context.Context, _ string, effect func(context.Context) error) (bool, error) {
	return false, effect(ctx)
}

// Memory keeps ids in this process. It forgets them when the process ends, so
// an effect can happen twice across a restart: for more, use SQL.
type Memory struct {
	max  int
	keep time.Duration

	mu     sync.Mutex
	done   map[string]bool
	order  list.List // of done, the oldest first
	active map[string]chan struct{}
}

type doneID struct {
	id string
	at time.Time
}

// NewMemory keeps at most so many ids, each for so long; beyond the bound the
// oldest goes first. keep must cover the sender's retries (Surehook's default
// profile: 28 hours) and twice the tolerance at least.
func NewMemory(most int, keep time.Duration) *Memory {
	return &Memory{max: most, keep: keep, done: map[string]bool{}, active: map[string]chan struct{}{}}
}

func (m *Memory) check(tolerance time.Duration) error {
	switch {
	case m.max < 1:
		return errors.New("receiver: memory for no ids")
	case m.keep < 2*tolerance:
		return errors.New("receiver: ids must be kept for twice the tolerance at least, or a captured request could be sent again")
	}
	return nil
}

// Do implements Dedupe.
func (m *Memory) Do(ctx context.Context, id string, effect func(ctx context.Context) error) (duplicate bool, err error) {
	for {
		m.mu.Lock()
		m.expire()
		if m.done[id] {
			m.mu.Unlock()
			return true, nil
		}
		other, busy := m.active[id]
		if !busy {
			break
		}
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return false, ctx.Err()
		}
	}
	end := make(chan struct{})
	m.active[id] = end
	m.mu.Unlock()
	succeeded := false
	defer func() { // a panic too must let the next attempt in
		m.mu.Lock()
		defer m.mu.Unlock()
		delete(m.active, id)
		close(end)
		if succeeded {
			m.done[id] = true
			m.order.PushBack(doneID{id, time.Now()})
			m.expire()
		}
	}()
	err = effect(ctx)
	succeeded = err == nil
	return false, err
}

// expire lets go of what is too old or too much.
func (m *Memory) expire() {
	now := time.Now()
	for {
		front := m.order.Front()
		if front == nil {
			return
		}
		d, _ := front.Value.(doneID)
		if now.Sub(d.at) < m.keep && m.order.Len() <= m.max {
			return
		}
		m.order.Remove(front)
		delete(m.done, d.id)
	}
}
