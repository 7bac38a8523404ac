package engine

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook"
)

const (
	handoffEvents = 1024             // that wait; past it they are dropped
	handoffBytes  = 8 << 20          // of their data
	handoffLimit  = 10 * time.Second // of one call, by its context
)

// handoff gives fanned-out events to a function of the program that embeds the
// engine, one at a time and in the order in which they were fanned out here. It
// stands behind the deliveries and can't hold them up: who puts an event never
// waits, and what there is no room for is dropped.
type handoff struct {
	f   func(context.Context, surehook.Event) error
	log *slog.Logger

	bytes atomic.Int64
	lost  atomic.Int64

	start  sync.Once
	mu     sync.RWMutex
	closed bool
	queue  chan surehook.Event

	ctx    context.Context // ends the call that runs
	cancel context.CancelFunc
	done   chan struct{}
}

// newHandoff gives nil where nobody listens: nothing is queued then.
func newHandoff(f func(context.Context, surehook.Event) error, log *slog.Logger) *handoff {
	if f == nil {
		return nil
	}
	h := &handoff{f: f, log: log, queue: make(chan surehook.Event, handoffEvents), done: make(chan struct{})}
	h.ctx, h.cancel = context.WithCancel(context.Background())
	return h
}

// put queues an event whose deliveries are queued.
func (h *handoff) put(ev *surehook.Event) {
	if h == nil || ev.Type == surehook.TypeTest {
		return
	}
	h.start.Do(func() { go h.run() })
	h.mu.RLock()
	defer h.mu.RUnlock()
	size := int64(len(ev.Data))
	if h.closed {
		h.fail(ev, errStopping)
		return
	}
	if n := h.bytes.Add(size); n > handoffBytes && n > size {
		h.bytes.Add(-size)
		h.fail(ev, "too many bytes wait")
		return
	}
	select {
	case h.queue <- *ev:
	default:
		h.bytes.Add(-size)
		h.fail(ev, "too many events wait")
	}
}

// fail counts and logs a hand-off that is lost.
func (h *handoff) fail(ev *surehook.Event, why any) {
	h.lost.Add(1)
	h.log.Warn("notifier_handoff_failed", "event_id", ev.ID, "tenant_id", ev.Tenant, "error", why)
}

func (h *handoff) run() {
	defer close(h.done)
	for ev := range h.queue {
		h.bytes.Add(-int64(len(ev.Data)))
		var err error = errStopping
		if h.ctx.Err() == nil {
			err = h.call(ev)
		}
		if err != nil {
			h.fail(&ev, err)
		}
	}
}

func (h *handoff) call(ev surehook.Event) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	ctx, cancel := context.WithTimeout(h.ctx, handoffLimit)
	defer cancel()
	return h.f(ctx, ev)
}

// stop hands over what waits for as long as ctx allows. A function that goes on
// after that is left behind.
func (h *handoff) stop(ctx context.Context) {
	if h == nil {
		return
	}
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		close(h.queue)
	}
	h.mu.Unlock()
	h.start.Do(func() { close(h.done) }) // nothing ever came
	defer h.cancel()
	select {
	case <-h.done:
		return
	case <-ctx.Done():
	}
	h.cancel()
	for ev := range h.queue {
		h.fail(&ev, errStopping)
	}
}

// HandoffsLost counts the events that Options.Handoff didn't see or failed on.
func (e *Engine) HandoffsLost() int64 {
	if e.handoff == nil {
		return 0
	}
	return e.handoff.lost.Load()
}
