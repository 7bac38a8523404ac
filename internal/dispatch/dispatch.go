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
	Store       store
	Client      client
	Keyring     sealed
	Logger      *slog.Logger
	Now         func() time.Time
	Random      func() float64           // in [0,1)
	NewID       func(time.Time) string   // a ULID
	Observe     func(Try)                // called after each attempt, from many goroutines
	Arrived     func(Arrival)            // called with each delivery's first success, by the one who records; nil: nobody
	Died        func(map[string]int)     // called with the number of new dead letters by their events' types; nil: nobody
	Ended       func(surehook.Code, int) // called with the number of deliveries that ended without an attempt, and why; nil: nobody
	UserAgent   string                   // "": the profile's
	Version     string                   // in the profile's
	CarryTrace  bool                     // send the publisher's traceparent on
	Off         bool                     // this node sends tests alone: others deliver
	MaxInFlight int                      // requests over all endpoints
	MaxMemory   int                      // bytes of event data that lanes hold
	Gather      time.Duration            // how long busy outcomes wait for company; 0: 5 ms, negative: not at all
	// DisabledEvent makes the event that tells of a disabled endpoint.
	DisabledEvent func(*surehook.Endpoint, string, *surehook.Attempt) *surehook.Event
	// OnDisabled hears of endpoints that a batch of outcomes disabled.
	OnDisabled func([]*surehook.Endpoint)
	// Gone gives the tombstone of an endpoint without a lane; nil: it isn't a deleted one.
	Gone func(ctx context.Context, key int64) *surehook.Endpoint
	// Held tells endpoints that nothing is sent to for a while, although they are
	// enabled; nil: none. When it changes its mind, Regate is called.
	Held   func(*surehook.Endpoint) bool
	Window surehook.Window // what is held may be sent for so long
	// Refresh brings the lanes to the store's configuration.
	Refresh func(ctx context.Context) error
}

// store is what the dispatcher needs of one.
type store interface {
	surehook.Queue
	ErasedAmong(ctx context.Context, events []int64) ([]int64, error)
}

// client makes one attempt at a time; an egress.Client is one.
type client interface {
	ParseURL(raw string) (*egress.Target, error)
	Do(ctx context.Context, r *egress.Request) egress.Result
}

// recordGrace is the time for outcomes to be written when a drain is over.
const recordGrace = 3 * time.Second

// Dispatcher runs the lanes of one node.
type Dispatcher struct {
	opt    Options
	store  store
	client client
	log    *slog.Logger
	now    func() time.Time

	open     context.Context // ends when the drain begins
	halt     context.CancelFunc
	ctx      context.Context // ends when attempts must end
	cancel   context.CancelFunc
	cut      chan struct{} // closed when even recording must end
	draining atomic.Bool
	started  atomic.Bool

	recalls atomic.Int64 // goes up with each Recall

	mu       sync.Mutex
	lanes    map[int64]*lane
	recorder *recorder
	slots    *slots
	memory   memory
	claims   chan struct{}
	rows     chan struct{} // rung when rows may have come that no lane knows of
	work     sync.WaitGroup
	sweep    sync.WaitGroup
	stop     sync.Once
	stopErr  error
}

// New makes a dispatcher. Start runs it.
func New(opt Options) *Dispatcher {
	d := &Dispatcher{opt: opt, store: opt.Store, client: opt.Client, log: opt.Logger, now: opt.Now, cut: make(chan struct{}),
		lanes: make(map[int64]*lane), slots: newSlots(opt.MaxInFlight), claims: make(chan struct{}, 16), rows: make(chan struct{}, 1)}
	d.memory.limit = int64(opt.MaxMemory)
	d.ctx, d.cancel = context.WithCancel(context.Background())
	d.open, d.halt = context.WithCancel(d.ctx)
	d.recorder = newRecorder(d)
	return d
}

// Start begins to deliver. Endpoints must have been given by Update first. It may
// be called once; Stop belongs after it, whatever it answers.
func (d *Dispatcher) Start() error {
	d.started.Store(true)
	go d.recorder.run()
	if d.opt.Off {
		return nil
	}
	if err := d.scan(d.open); err != nil {
		return err
	}
	d.forgetTombstones()
	d.sweep.Go(func() {
		tick, shed := time.NewTicker(time.Minute), time.NewTicker(shedEvery)
		defer tick.Stop()
		defer shed.Stop()
		for {
			select {
			case <-d.open.Done():
				return
			case <-tick.C:
				d.look()
				d.expireHeld()
			case <-shed.C:
				d.shed()
			case <-d.rows:
				d.look()
			}
		}
	})
	return nil
}

// Look has the dispatcher ask the store, in a moment, for rows that it knows
// nothing of.
func (d *Dispatcher) Look() {
	select {
	case d.rows <- struct{}{}:
	default:
	}
}

func (d *Dispatcher) look() {
	if err := d.scan(d.open); err != nil && !d.draining.Load() {
		d.log.Warn("looking for due deliveries failed; trying again", "error", err)
	}
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
		} else if gone := d.opt.Gone(ctx, e.EndpointKey); gone != nil {
			// Rows that an epoch left behind after the lane was forgotten.
			if err := d.drop(ctx, gone); err != nil {
				return err
			}
		}
	}
	return nil
}

// drop ends all rows of a deleted endpoint, in bounded steps.
func (d *Dispatcher) drop(ctx context.Context, ep *surehook.Endpoint) error {
	code, letters := endCode(ep)
	for {
		n, err := d.store.End(ctx, ep.Key, code, false, letters, endStep)
		if letters {
			d.ended(code, n)
		}
		if err != nil || n < endStep || ctx.Err() != nil {
			return err
		}
	}
}

// shed lets idle lanes forget their secrets.
func (d *Dispatcher) shed() {
	now := d.now()
	for _, l := range d.all() {
		l.shed(now)
	}
}

func (d *Dispatcher) all() []*lane {
	d.mu.Lock()
	defer d.mu.Unlock()
	lanes := make([]*lane, 0, len(d.lanes))
	for _, l := range d.lanes {
		lanes = append(lanes, l)
	}
	return lanes
}

// Update takes an endpoint's new configuration, tombstones included. One that is
// older than what the lane has changes nothing.
func (d *Dispatcher) Update(e *surehook.Endpoint) {
	if d.opt.Off {
		return // no lanes: nothing is promised, handed over or claimed
	}
	r := d.compile(e)
	d.mu.Lock()
	l := d.lanes[e.Key]
	if l == nil {
		l = &lane{d: d, key: e.Key, tenant: e.Tenant, room: queueStart, route: r, limiter: limiter(e.Limits.Rate)}
		d.lanes[e.Key] = l
	}
	d.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.route
	if old.Version > e.Version {
		return
	}
	if old.URL != e.URL || (!old.live && r.live) {
		l.breaker, l.throttle, l.pauseTo = breaker{}, 0, time.Time{} // another receiver, or another chance
	}
	if old.Limits.Rate != e.Limits.Rate {
		l.limiter, l.pauseTo = limiter(e.Limits.Rate), time.Time{} // the pause was the old rate's
	}
	l.route = r
	l.gate(d.held(e))
	if d.started.Load() && (!r.live || !old.live || (old.Ordered && !r.Ordered) || old.Limits.Paused) {
		l.more = true // rows may be there that are to be ended, or waited for the endpoint or for each other
	}
	l.kick()
}

func limiter(perSecond float64) *rate.Limiter {
	if perSecond <= 0 {
		return nil
	}
	return rate.NewLimiter(rate.Limit(perSecond), burst(perSecond))
}

// forgetTombstones drops the lanes of deleted endpoints that have no rows, after
// the first scan.
func (d *Dispatcher) forgetTombstones() {
	for _, l := range d.all() {
		d.forget(l)
	}
}

// forget drops a lane that nothing comes from any more.
func (d *Dispatcher) forget(l *lane) {
	d.mu.Lock()
	defer d.mu.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if d.lanes[l.key] != l || !l.quiet() {
		return
	}
	if l.timer != nil {
		l.timer.Stop()
	}
	delete(d.lanes, l.key)
	l.gone = true
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
		mine := l != nil && l.mine()
		targets[i] = surehook.Target{EndpointKey: e.Key, Inbox: e.Inbox, Ordered: e.Ordered, Remote: !mine,
			Owned: mine && !e.Ordered && l.reserve(size)}
	}
	return targets
}

// Cancel takes the promises of Reserve back.
func (d *Dispatcher) Cancel(targets []surehook.Target) {
	for _, t := range targets {
		if t.Owned {
			d.lane(t.EndpointKey).unreserve() // a lane with promises isn't forgotten
		}
	}
}

// Doubt has the lanes look, in a moment, for rows that may have been stored
// although the store couldn't say so.
func (d *Dispatcher) Doubt(targets []surehook.Target) {
	for _, t := range targets {
		if l := d.lane(t.EndpointKey); l != nil {
			l.dueAt(d.now().Add(claimRetry))
		}
	}
}

// HandOff puts the committed rows of an event into their lanes, and tells the
// lanes of those that found no place. recalls is what Recalls said before the commit.
func (d *Dispatcher) HandOff(e *surehook.Event, targets []surehook.Target, rows []surehook.Delivery, recalls int64) {
	p := newParcel(e)
	for i, t := range targets {
		l := d.lane(t.EndpointKey)
		switch {
		case l == nil: // deleted, and not promised: the row goes with the endpoint
		case rows[i].ID == 0 && t.Owned:
			l.unreserve() // its sentinel didn't take the event
		case rows[i].ID == 0:
		case t.Owned:
			l.push(item{Delivery: rows[i], parcel: p}, recalls)
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
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	r := d.compile(e)
	a, res := d.safeSend(ctx, r, newParcel(ev), 1)
	if res.Cancelled {
		if d.ctx.Err() != nil {
			return nil, surehook.Errorf(surehook.Stopping, "the engine is stopping")
		}
		return nil, context.Cause(ctx)
	}
	a.Test = true
	decision, _ := d.decide(r, a, 1, 0)
	a.Status = surehook.AttemptDead // never retried
	if decision == surehook.Finish {
		a.Status = surehook.AttemptSucceeded
	}
	d.observe(Try{Endpoint: e, Event: ev, Attempt: a, Decision: surehook.Note, Host: r.host()})
	_, err := d.store.Record(ctx, []surehook.Outcome{{Decision: surehook.Note, Attempt: a, Version: e.Version,
		Delivery: surehook.Delivery{EventKey: ev.Key, EndpointKey: e.Key}}}, nil)
	return a, err
}

// gather waits for more outcomes, unless the drain has begun. Nobody waits for an
// outcome, and a larger batch costs each of its rows less.
func (d *Dispatcher) gather() {
	wait := d.opt.Gather
	if wait == 0 {
		wait = recordPause
	}
	if wait < 0 {
		return
	}
	select {
	case <-time.After(wait):
	case <-d.open.Done():
	}
}

func (d *Dispatcher) claimTurn() (release func()) {
	d.claims <- struct{}{}
	return func() { <-d.claims }
}

// passSlot returns a slot, and gives the lane that has it then: one that waited
// for it, and whose worker the caller becomes. nil: none did.
func (d *Dispatcher) passSlot(suspect bool) (*lane, bool) {
	for {
		l, s := d.slots.give(suspect)
		if l == nil || l.adopt() {
			return l, s
		}
		suspect = s
	}
}

// Stop drains: no new attempts start, queued rows are freed, attempts in flight
// end by themselves until ctx ends, and are cancelled then; what they came to is
// recorded. A store that doesn't answer can't hold it up for ever: that is an
// error, and the deliveries concerned will be made again. It may be called twice.
func (d *Dispatcher) Stop(ctx context.Context) error {
	d.stop.Do(func() { d.stopErr = d.drain(ctx) })
	return d.stopErr
}

func (d *Dispatcher) drain(ctx context.Context) error {
	d.draining.Store(true)
	d.halt()
	defer d.cancel()
	if !d.started.Load() {
		return nil
	}
	// Whoever began to start work before draining was set holds its lane's lock:
	// when each lane was locked once, no more work can come.
	for _, l := range d.all() {
		l.mu.Lock()
		if l.timer != nil {
			l.timer.Stop()
		}
		l.release()
		l.mu.Unlock()
	}
	go func() {
		d.sweep.Wait()
		d.work.Wait()
		close(d.recorder.stop) // every outcome was handed over
	}()
	select {
	case <-d.recorder.stop:
	case <-ctx.Done():
	}
	d.cancel()
	grace := time.AfterFunc(recordGrace, func() { close(d.cut) })
	defer grace.Stop()
	stuck := time.NewTimer(recordGrace + time.Second)
	defer stuck.Stop()
	select {
	case <-d.recorder.done:
		return nil
	case <-stuck.C:
		return errStuck
	}
}

var errStuck = surehook.Errorf(surehook.Unavailable, "the store didn't answer before the stop; deliveries in flight will be made again")
