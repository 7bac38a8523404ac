package dispatch

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook"
)

const (
	recordBatch   = 256
	recordBusy    = 16 // outcomes in the last batch, from which on the next one waits a moment for company
	recordPause   = 10 * time.Millisecond
	recordBacklog = 1024            // outcomes; past it no attempt starts
	recordLate    = 2 * time.Second // of the oldest outcome; past it no attempt starts
	asideRetry    = 5 * time.Second // until what the store refused is tried again
)

// recorder gathers outcomes into batches. While the store can't take them, they
// wait here, bounded, and no further attempt starts: what was sent is written
// down before more is sent.
type recorder struct {
	d     *Dispatcher
	in    chan result
	stop  chan struct{}
	done  chan struct{}
	since atomic.Pointer[time.Time] // since when the oldest outcome waits that is not written; nil: there is none

	aside []result     // what the store refuses, tried again now and then; run's alone
	again *time.Ticker // for aside

	mu   sync.Mutex
	wait chan struct{} // closed when there is something to look at again
}

// result is an outcome and the lane that made it.
type result struct {
	surehook.Outcome
	lane     *lane
	rule     surehook.HealthRule
	occurred time.Time // when the event did
	at       time.Time // when the outcome was handed over
}

func newRecorder(d *Dispatcher) *recorder {
	return &recorder{d: d, in: make(chan result, recordBacklog), stop: make(chan struct{}), done: make(chan struct{})}
}

// put hands an outcome over; it blocks while the recorder is full.
func (r *recorder) put(o result) {
	o.at = r.d.now()
	r.in <- o
}

func (r *recorder) backlog() int { return len(r.in) }

// late tells whether an outcome waits for too long. Times are compared as they
// are, not as numbers, so that a clock that is set changes nothing.
func (r *recorder) late() bool {
	since := r.since.Load()
	return since != nil && r.d.now().Sub(*since) >= recordLate
}

// behind waits until no outcome is late, or ctx ends.
func (r *recorder) behind(ctx context.Context) {
	for r.late() {
		r.mu.Lock()
		if r.wait == nil {
			r.wait = make(chan struct{})
		}
		w := r.wait
		r.mu.Unlock()
		if !r.late() {
			return
		}
		select {
		case <-w:
		case <-ctx.Done():
			return
		}
	}
}

// oldest notes since when the oldest outcome waits that is not written, and has those look
// who wait.
func (r *recorder) oldest(at *time.Time) {
	r.since.Store(at)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.wait != nil {
		close(r.wait)
		r.wait = nil
	}
}

func (r *recorder) run() {
	defer close(r.done)
	r.again = time.NewTicker(asideRetry)
	defer r.again.Stop()
	batch, busy := make([]result, 0, recordBatch), false
	for {
		batch = batch[:0]
		select {
		case o := <-r.in:
			batch = append(batch, o)
		case <-r.again.C:
			r.retry()
			continue
		case <-r.stop:
			select {
			case o := <-r.in:
				batch = append(batch, o)
			default:
				r.retry()
				return
			}
		}
		at := batch[0].at // those behind it in the channel are younger
		r.oldest(&at)
		if busy {
			r.d.gather()
		}
	gather:
		for len(batch) < recordBatch {
			select {
			case o := <-r.in:
				batch = append(batch, o)
			default:
				break gather
			}
		}
		busy = len(batch) >= recordBusy
		r.record(batch)
		if len(r.in) == 0 { // else the next round tells how old those are
			r.oldest(nil)
		}
	}
}

// record writes a batch, however long that takes: an outcome that isn't written
// would be an attempt that is made again. It gives up only at the end of a
// drain, when the rows come free with the process.
func (r *recorder) record(batch []result) {
	outcomes, rules := make([]surehook.Outcome, len(batch)), make(map[int64]surehook.HealthRule)
	for i, o := range batch {
		outcomes[i] = o.Outcome
		if o.Attempt != nil { // a release says nothing about its endpoint
			rules[o.Delivery.EndpointKey] = o.rule
		}
	}
	for wait := 10 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		got, err := r.d.store.Record(context.Background(), outcomes, rules)
		switch {
		case err == nil:
			r.settle(batch, outcomes, got)
			return
		case surehook.CodeOf(err) == surehook.Unavailable:
			r.d.log.Warn("outcomes wait for the store", "outcomes", len(batch), "error", err)
		case len(batch) > 1:
			for i := range batch {
				r.record(batch[i : i+1]) // the one that can't be written must not hold the others
			}
			return
		case r.bare(&outcomes[0], err):
			continue
		case len(r.aside) < recordBacklog:
			r.aside = append(r.aside, batch[0]) // its row stays ours, so that it isn't sent again
			return
		}
		select {
		case <-time.After(wait):
		case <-r.d.cut:
			r.d.log.Error("outcomes were not recorded before the stop; those deliveries will be made again", "outcomes", len(batch))
			return
		}
	}
}

// bare strips an outcome that the store refuses to the facts, once.
func (r *recorder) bare(o *surehook.Outcome, err error) bool {
	a := o.Attempt
	r.d.log.Error("an outcome can't be recorded", "error", err, "event_key", o.Delivery.EventKey, "endpoint_key", o.Delivery.EndpointKey)
	if a == nil || (a.Response == nil && a.Error == "") {
		return false
	}
	a.Response, a.Error = nil, ""
	return true
}

// retry tries again what was put aside, each by itself and once.
func (r *recorder) retry() {
	var still []result
	for _, o := range r.aside {
		one := []surehook.Outcome{o.Outcome}
		got, err := r.d.store.Record(context.Background(), one, map[int64]surehook.HealthRule{o.Delivery.EndpointKey: o.rule})
		if err != nil {
			still = append(still, o)
			continue
		}
		r.settle([]result{o}, one, got)
	}
	r.aside = still
}

// settle tells lanes when their rows are due again, and the engine what was
// disabled.
func (r *recorder) settle(batch []result, outcomes []surehook.Outcome, got surehook.Recorded) {
	now := r.d.now()
	var dead map[string]int
	for i, o := range batch {
		if a := outcomes[i].Attempt; o.Decision == surehook.Bury && !a.Late {
			if dead == nil {
				dead = make(map[string]int)
			}
			dead[a.EventType]++
		}
		if outcomes[i].Arrived {
			r.d.arrived(Arrival{Attempt: outcomes[i].Attempt, OccurredAt: o.occurred})
		}
		switch o.Decision {
		case surehook.Again:
			due := now.Add(o.Wait)
			if a := outcomes[i].Attempt; a != nil && !a.NextDue.IsZero() {
				due = a.NextDue
			}
			o.lane.dueAt(due)
		case surehook.Release:
			o.lane.overflow()
		case surehook.Finish, surehook.Bury:
			if o.lane.ordered() {
				o.lane.overflow() // the next one of its sequence is due now
			}
		}
	}
	r.d.died(dead)
	if len(got.Disabled) > 0 {
		r.d.opt.OnDisabled(got.Disabled)
	}
}
