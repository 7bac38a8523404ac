package relay

import (
	"context"
	"errors"
	"io"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/relay/config"
	"github.com/surehook/surehook/internal/relay/source"
)

const (
	keepFirst = 100 * time.Millisecond // until what the store didn't take is offered again
	keepMost  = 5 * time.Second
)

// feed reads one source into the store: while a batch is being stored, the next
// one is read, and no more.
type feed struct {
	src    source.Source
	stop   context.CancelFunc
	done   chan struct{}
	failed atomic.Pointer[error]
	stuck  atomic.Bool
}

// ready is a batch with the events that somebody gets.
type ready struct {
	batch  *source.Batch
	events []surehook.Event
}

func (r *Relay) start(c config.Source) *feed {
	ctx, stop := context.WithCancel(r.read)
	src := r.opt.Open(c)
	f := &feed{src: src, stop: stop, done: make(chan struct{})}
	r.opt.Metrics.source(src.ID())
	batches := make(chan ready)
	go r.fill(ctx, f, src, batches)
	go func() {
		defer close(f.done)
		defer stop()
		r.store(f, src, batches)
		if err := src.Close(r.keep); err != nil {
			r.log.Warn("a source couldn't be closed in order; some of its lines will be read again", "source", src.ID(), "error", err)
		}
	}()
	return f
}

// fill reads batches until the source or ctx ends.
func (r *Relay) fill(ctx context.Context, f *feed, src source.Source, batches chan<- ready) {
	defer close(batches)
	for {
		b, err := src.Next(ctx)
		switch {
		case err == nil:
		case errors.Is(err, io.EOF):
			r.log.Info("a source has ended; what was read is delivered", "source", src.ID())
			return
		case ctx.Err() != nil:
			return
		default:
			r.log.Error("a source can't be read any more", "source", src.ID(), "error", err)
			f.failed.Store(&err)
			return
		}
		r.opt.Metrics.read(src.ID(), b)
		batches <- ready{b, r.prepare(b)}
	}
}

// prepare enriches a batch's events and chooses who gets them.
func (r *Relay) prepare(b *source.Batch) []surehook.Event {
	r.planning.RLock()
	defer r.planning.RUnlock()
	p := r.plan.Load()
	if p.enrich != nil {
		p.enrich.Apply(r.keep, b.Events)
	}
	events := make([]surehook.Event, 0, len(b.Events))
	for i := range b.Events {
		if ev, ok := p.event(&b.Events[i], r.opt.Metrics.matched); ok {
			events = append(events, ev)
		}
	}
	return events
}

// store puts the batches into the store, and moves the source's bookmark behind
// each. Once that isn't possible any more the rest is left to the next start.
func (r *Relay) store(f *feed, src source.Source, batches <-chan ready) {
	lost := false
	for b := range batches {
		if lost {
			continue
		}
		if err := r.enqueue(f, b.events); err != nil {
			r.log.Warn("what was read last isn't stored; it will be read again", "source", src.ID(), "error", err)
			lost = true
			f.stop()
			continue
		}
		if err := src.Committed(r.keep, b.batch); err != nil {
			r.log.Warn("the bookmark couldn't be moved; some lines may be read again, to no effect", "source", src.ID(), "error", err)
		}
	}
}

// enqueue stores events, however long the store takes to be there again. An event
// that was there already is the same line, read once more.
func (r *Relay) enqueue(f *feed, events []surehook.Event) error {
	for wait := keepFirst; len(events) > 0; wait = min(2*wait, keepMost) {
		receipts, err := r.opt.Engine.Enqueue(r.keep, events...)
		if surehook.CodeOf(err) == surehook.Stopping && err != nil {
			return err
		}
		if err == nil {
			if events, err = r.again(events, receipts); len(events) == 0 {
				break
			}
		}
		r.log.Warn("the store doesn't take what is read; trying again", "events", len(events), "error", err)
		f.stuck.Store(true)
		select {
		case <-r.keep.Done():
			return r.keep.Err()
		case <-time.After(wait):
		}
	}
	f.stuck.Store(false)
	return nil
}

// again gives the events whose storing isn't certain.
func (r *Relay) again(events []surehook.Event, receipts []engine.Receipt) (left []surehook.Event, err error) {
	for i, rc := range receipts {
		switch code := surehook.CodeOf(rc.Err); {
		case rc.Err == nil:
		case code == surehook.Conflict:
			// Read before, and stored then: by other filters, or with other enrichments.
		case code == surehook.InvalidRequest:
			r.opt.Metrics.refused()
			r.log.Error("an audit line can't be delivered", "event_id", events[i].ID, "error", rc.Err)
		default:
			left, err = append(left, events[i]), rc.Err
		}
	}
	return left, err
}
