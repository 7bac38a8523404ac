// Package dispatch turns pending rows into requests and their outcomes into
// records: lanes, claims, attempts, recording and recovery.
//
// Guarantee: a row that a lane holds is attempted, freed, or comes free with
// this process's lease; an outcome is written down before its row can be
// attempted again by anyone who asks the store. There is one attempt path for
// first try, retry, replay and test. Memory is bounded by the options, whatever
// the backlog.
package dispatch

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

// Options of a dispatcher. Every field is required unless it says otherwise.
type Options struct {
	Store       surehook.Queue
	Client      *egress.Client
	Keyring     sealed
	Logger      *slog.Logger
	Now         func() time.Time
	Random      func() float64         // in [0,1)
	NewID       func(time.Time) string // a ULID
	Observe     func(Try)              // called after each attempt, from many goroutines
	UserAgent   string                 // "": the profile's
	Version     string                 // in the profile's
	CarryTrace  bool                   // send the publisher's traceparent on
	MaxInFlight int                    // requests over all endpoints
	MaxMemory   int                    // bytes of event data that lanes hold
	// DisabledEvent makes the event that tells of a disabled endpoint.
	DisabledEvent func(*surehook.Endpoint, string, *surehook.Attempt) *surehook.Event
	// OnDisabled hears of endpoints that a batch of outcomes disabled.
	OnDisabled func([]*surehook.Endpoint)
}

// Dispatcher runs the lanes of one node.
type Dispatcher struct {
	opt    Options
	store  surehook.Queue
	client *egress.Client
	log    *slog.Logger
	now    func() time.Time

	ctx      context.Context // ends when attempts must end
	cancel   context.CancelFunc
	cut      chan struct{} // closed when even recording must end
	draining atomic.Bool

	mu       sync.Mutex
	lanes    map[int64]*lane
	recorder *recorder
	slots    *slots
	memory   memory
	claims   chan struct{}
	work     sync.WaitGroup
	sweep    sync.WaitGroup
	stopped  chan struct{}
	stop     sync.Once
}

// memory counts the bytes of event data in lanes.
type memory struct {
	limit int64
	used  atomic.Int64
}

func (m *memory) fits(size int) bool { return m.used.Load()+int64(size) <= m.limit }
func (m *memory) add(size int)       { m.used.Add(int64(size)) }

// room is what a claim may still take; never nothing, so that every lane goes on.
func (m *memory) room() int { return int(max(m.limit-m.used.Load(), 1)) }

// New makes a dispatcher. Start runs it.
func New(opt Options) *Dispatcher {
	d := &Dispatcher{opt: opt, store: opt.Store, client: opt.Client, log: opt.Logger, now: opt.Now, cut: make(chan struct{}),
		lanes: make(map[int64]*lane), slots: newSlots(opt.MaxInFlight), claims: make(chan struct{}, 16), stopped: make(chan struct{})}
	d.memory.limit = int64(opt.MaxMemory)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.recorder = newRecorder(d)
	return d
}

// Start begins to deliver. Endpoints must have been given by Update first.
func (d *Dispatcher) Start() error {
	go d.recorder.run()
	if err := d.scan(context.Background()); err != nil {
		return err
	}
	d.sweep.Go(func() {
		tick := time.NewTicker(time.Minute)
		defer tick.Stop()
		for {
			select {
			case <-d.stopped:
				return
			case <-tick.C:
				if err := d.scan(d.ctx); err != nil && !d.draining.Load() {
					d.log.Warn("looking for due deliveries failed; trying again", "error", err)
				}
			}
		}
	})
	return nil
}

// scan asks the store which endpoints have rows due, behind the lanes' own
// timers: rows that nobody in this process knows of are found here.
func (d *Dispatcher) scan(ctx context.Context) error {
	due, err := d.store.Due(ctx)
	if err != nil {
		return err
	}
	for _, e := range due {
		if l := d.lane(e.EndpointKey); l != nil {
			l.dueAt(e.Due)
		}
	}
	return nil
}

// Update takes an endpoint's new configuration, tombstones included.
func (d *Dispatcher) Update(e *surehook.Endpoint) {
	r := d.compile(e)
	d.mu.Lock()
	l := d.lanes[e.Key]
	if l == nil {
		l = &lane{d: d, key: e.Key, tenant: e.Tenant, room: queueStart}
		d.lanes[e.Key] = l
	}
	d.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.route != nil && (l.route.URL != e.URL || (!l.route.Enabled && e.Enabled)) {
		l.breaker, l.throttle, l.pauseTo = breaker{}, 0, time.Time{} // another receiver, or another chance
	}
	if l.route == nil || l.route.Limits.Rate != e.Limits.Rate {
		l.limiter = nil
		if e.Limits.Rate > 0 {
			l.limiter = rate.NewLimiter(rate.Limit(e.Limits.Rate), max(int(e.Limits.Rate), 1))
		}
	}
	l.route = r
	if !e.Enabled || e.Deleted {
		l.more = true // rows may be there that are to be ended
	}
	l.kick()
}

// Forget drops the lane of a tombstone that has no rows any more.
func (d *Dispatcher) Forget(key int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.lanes, key)
}

func (d *Dispatcher) lane(key int64) *lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lanes[key]
}

// Reserve promises lane places for an event that is about to be appended: one
// target an endpoint, owned where there is a place.
func (d *Dispatcher) Reserve(endpoints []*surehook.Endpoint, size int) []surehook.Target {
	targets := make([]surehook.Target, len(endpoints))
	for i, e := range endpoints {
		l := d.lane(e.Key)
		targets[i] = surehook.Target{EndpointKey: e.Key, Owned: l != nil && l.reserve(size)}
	}
	return targets
}

// Cancel takes the promises of Reserve back.
func (d *Dispatcher) Cancel(targets []surehook.Target) {
	for _, t := range targets {
		if t.Owned {
			d.lane(t.EndpointKey).unreserve()
		}
	}
}

// HandOff puts the committed rows of an event into their lanes, and tells the
// lanes of those that found no place.
func (d *Dispatcher) HandOff(e *surehook.Event, targets []surehook.Target, rows []surehook.Delivery) {
	p := newParcel(e)
	for i, t := range targets {
		l := d.lane(t.EndpointKey)
		switch {
		case l == nil: // deleted meanwhile; its rows are swept
		case t.Owned:
			l.push(item{Delivery: rows[i], parcel: p})
		default:
			l.overflow()
		}
	}
}

// Wake tells a lane that rows became due by other means: a replay.
func (d *Dispatcher) Wake(endpoint int64) {
	if l := d.lane(endpoint); l != nil {
		l.overflow()
	}
}

// Test makes one attempt at an endpoint, disabled or not, and records it.
func (d *Dispatcher) Test(ctx context.Context, e *surehook.Endpoint, ev *surehook.Event) (*surehook.Attempt, error) {
	r := d.compile(e)
	a, res := d.send(ctx, r, newParcel(ev), 1)
	if res.Cancelled {
		return nil, context.Cause(ctx)
	}
	a.Test = true
	decision, _ := d.decide(r, a, 1, 0)
	a.Status = surehook.AttemptDead // never retried
	if decision == surehook.Finish {
		a.Status = surehook.AttemptSucceeded
	}
	d.opt.Observe(Try{Endpoint: e, Event: ev, Attempt: a, Decision: surehook.Note, Host: r.host()})
	_, err := d.store.Record(ctx, []surehook.Outcome{{Decision: surehook.Note, Attempt: a, Version: e.Version,
		Delivery: surehook.Delivery{EventKey: ev.Key, EndpointKey: e.Key}}}, nil)
	return a, err
}

// end buries what is due of a disabled endpoint, or drops all of a deleted one,
// in bounded steps.
func (d *Dispatcher) end(endpoint int64, deleted bool) error {
	const step = 1000
	for !d.draining.Load() {
		n, err := d.store.End(d.ctx, endpoint, surehook.EndpointDisabled, !deleted, !deleted, step)
		if err != nil || n < step {
			return err
		}
	}
	return nil
}

func (d *Dispatcher) claimTurn() (release func()) {
	d.claims <- struct{}{}
	return func() { <-d.claims }
}

// giveSlot returns a slot and starts whoever waited for it.
func (d *Dispatcher) giveSlot(suspect bool) {
	for {
		l, s := d.slots.give(suspect)
		if l == nil || l.granted(s) {
			return
		}
		suspect = s
	}
}

func (d *Dispatcher) onDisabled(es []*surehook.Endpoint) { d.opt.OnDisabled(es) }

// Stop drains: no new attempts start, queued rows are freed, attempts in flight
// end by themselves until ctx ends, and are cancelled then; what they came to is
// recorded. It may be called twice.
func (d *Dispatcher) Stop(ctx context.Context) {
	d.stop.Do(func() {
		d.draining.Store(true)
		close(d.stopped)
		d.sweep.Wait()
		d.mu.Lock()
		for _, l := range d.lanes {
			l.mu.Lock()
			if l.timer != nil {
				l.timer.Stop()
			}
			l.release()
			l.mu.Unlock()
		}
		d.mu.Unlock()
		idle := make(chan struct{})
		go func() {
			d.work.Wait()
			close(idle)
		}()
		select {
		case <-idle:
		case <-ctx.Done():
		}
		d.cancel()
		grace := time.AfterFunc(3*time.Second, func() { close(d.cut) })
		<-idle
		close(d.recorder.stop)
		<-d.recorder.done
		grace.Stop()
	})
}
