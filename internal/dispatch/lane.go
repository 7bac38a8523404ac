package dispatch

import (
	"context"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/surehook/surehook"
)

const (
	queueMin   = 8   // rows that a lane may always hold
	queueStart = 32  // before the endpoint has shown what it takes
	queueMax   = 512 // for an endpoint that empties its queue again and again
	suspectAt  = 3   // failures in a row
)

// item is a row in a lane, owned by this node.
type item struct {
	surehook.Delivery
	parcel *parcel
}

// lane is an endpoint's queue on this node. Everything that may hold deliveries
// back (a full queue, the breaker, a rate, a disabled endpoint) is state in
// memory; waiting writes nothing.
type lane struct {
	d      *Dispatcher
	key    int64
	tenant string

	mu       sync.Mutex
	route    *route // compiled configuration; never nil
	queue    []item
	reserved int  // slots promised to appends that are being committed
	running  int  // attempts in flight
	room     int  // queue bound, adapted to what the endpoint takes
	taken    int  // successes since room changed
	throttle int  // concurrency while the receiver asks for less; 0: the endpoint's cap
	more     bool // free rows are due in the store
	claiming bool
	ending   bool
	wakeAt   time.Time // when timer fires; zero: it doesn't
	timer    *time.Timer
	pauseTo  time.Time // no attempt before (Retry-After of a throttling answer)
	breaker  breaker
	limiter  *rate.Limiter

	// Guarded by slots.mu.
	waiting, waitSuspect bool
}

// reserve promises a place for a row that is about to be committed. While older
// rows are known to wait in the store, new ones join them there, so that none
// waits for ever. A row that comes during a claim may pass the claimed ones:
// were it left in the store, a busy lane would claim without end.
func (l *lane) reserve(size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.more || !l.route.Enabled || l.d.draining.Load() || l.breaker.failures >= breakerOpens {
		return false
	}
	if n := len(l.queue) + l.reserved; n >= l.room || (n >= queueMin && !l.d.memory.fits(size)) {
		return false
	}
	l.reserved++
	return true
}

// unreserve takes a promise back: the append failed or was a duplicate.
func (l *lane) unreserve() {
	l.mu.Lock()
	l.reserved--
	l.mu.Unlock()
}

// push hands a committed row over to its reserved place.
func (l *lane) push(it item) {
	l.d.memory.add(it.parcel.size())
	l.mu.Lock()
	l.reserved--
	l.queue = append(l.queue, it)
	l.kick()
	l.mu.Unlock()
}

// overflow notes that rows are due in the store.
func (l *lane) overflow() {
	l.mu.Lock()
	l.more = true
	l.kick()
	l.mu.Unlock()
}

// dueAt notes when a row will be due.
func (l *lane) dueAt(t time.Time) {
	l.mu.Lock()
	l.wake(t)
	l.mu.Unlock()
}

// wake makes sure that the lane looks again at t. Callers hold mu.
func (l *lane) wake(t time.Time) {
	if !l.wakeAt.IsZero() && !t.Before(l.wakeAt) {
		return
	}
	l.wakeAt = t
	wait := max(t.Sub(l.d.now()), 0)
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.woken)
	} else {
		l.timer.Reset(wait)
	}
}

func (l *lane) woken() {
	l.mu.Lock()
	l.wakeAt = time.Time{}
	l.more = true // the claim finds out whether that is so
	l.kick()
	l.mu.Unlock()
}

// kick starts what can be started. Callers hold mu.
func (l *lane) kick() {
	if l.d.draining.Load() {
		return
	}
	if !l.route.Enabled {
		l.endRows()
		return
	}
	now := l.d.now()
	for l.startable(now) {
		if !l.d.slots.take(l, l.suspect()) {
			break // granted later
		}
		l.begin()
	}
	if l.more && !l.claiming && len(l.queue)+l.reserved <= l.room/2 && l.open(now) {
		l.grow()
		l.claiming, l.more = true, false // the claim says whether there are more
		l.d.work.Go(l.claim)
	}
}

// grow gives the lane more room when the endpoint has taken what there was.
// Callers hold mu.
func (l *lane) grow() {
	if l.taken >= l.room/2 && l.room < queueMax {
		l.room, l.taken = 2*l.room, 0
	}
}

// startable tells whether one more attempt may start now. Callers hold mu.
func (l *lane) startable(now time.Time) bool {
	return len(l.queue) > 0 && l.running < l.limit() && l.open(now)
}

// open tells whether the lane's gate is open, and sees to it that the lane looks
// again when a closed one may have opened.
func (l *lane) open(now time.Time) bool {
	if now.Before(l.pauseTo) {
		l.wake(l.pauseTo)
		return false
	}
	ok, again := l.breaker.ready(now)
	if !ok && !again.IsZero() {
		l.wake(again)
	}
	return ok
}

func (l *lane) limit() int {
	if l.throttle > 0 {
		return min(l.throttle, l.route.concurrency)
	}
	return l.route.concurrency
}

func (l *lane) suspect() bool { return l.breaker.failures >= suspectAt }

// begin starts a worker that holds a slot. Callers hold mu.
func (l *lane) begin() {
	l.running++
	suspect := l.suspect()
	l.d.work.Go(func() { l.work(suspect) })
}

// granted starts a worker with a slot that the lane waited for; false: there is
// no need for it any more.
func (l *lane) granted(suspect bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.d.draining.Load() || !l.startable(l.d.now()) {
		return false
	}
	l.running++
	l.d.work.Go(func() { l.work(suspect) })
	l.kick() // and ask for the next one
	return true
}

// work makes attempts while there are any to make. It holds a slot.
func (l *lane) work(suspect bool) {
	for {
		l.d.recorder.behind(l.d.ctx)
		it, rt, ok := l.pop()
		if !ok {
			break
		}
		l.attempt(it, rt)
		if l.d.slots.contended() || suspect != l.nowSuspect() {
			break
		}
	}
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
	l.d.giveSlot(suspect)
	l.mu.Lock()
	l.kick()
	l.mu.Unlock()
}

func (l *lane) nowSuspect() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.suspect()
}

// pop takes the next row, if one may be attempted now by this worker.
func (l *lane) pop() (item, *route, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.d.draining.Load() && l.route.Enabled && len(l.queue) > 0 && l.running <= l.limit() && l.open(l.d.now()) {
		if !l.paced() {
			break
		}
		it := l.queue[0]
		l.queue[0] = item{}
		l.queue = l.queue[1:]
		l.d.memory.add(-it.parcel.size())
		if l.more && !l.claiming && len(l.queue)+l.reserved <= l.room/2 {
			l.kick()
		}
		lease := l.d.store.Lease()
		if it.Epoch != lease.Epoch {
			l.more = true // the row is free again, by another epoch's start
			continue
		}
		if l.d.now().Add(l.route.timeout + 5*time.Second).After(lease.Until) {
			l.more = true
			continue // whoever reaps our epoch frees the row
		}
		l.breaker.start()
		return it, l.fresh(), true
	}
	if len(l.queue) == 0 {
		l.grow()
	}
	return item{}, nil, false
}

// paced keeps the endpoint's rate: it tells whether an attempt may start now,
// and else pauses the lane until then. Callers hold mu.
func (l *lane) paced() bool {
	if l.limiter == nil {
		return true
	}
	now := l.d.now()
	r := l.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait <= 0 {
		return true
	}
	r.CancelAt(now)
	l.pauseTo = now.Add(wait)
	l.wake(l.pauseTo)
	return false
}

// finished takes an attempt's outcome into the lane's state.
func (l *lane) finished(ok, cancelled, throttled bool, pause time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.d.now()
	l.breaker.done(ok, cancelled, now)
	switch {
	case cancelled:
	case throttled:
		l.throttle = max(l.limit()/2, 1)
		if pause > 0 {
			l.pauseTo = now.Add(pause)
		}
	case !ok:
		l.room, l.taken = max(l.room/2, queueMin), 0
	default:
		l.taken++
		if l.throttle > 0 {
			if l.throttle++; l.throttle >= l.route.concurrency {
				l.throttle = 0
			}
		}
	}
}

// claim takes due rows from the store.
func (l *lane) claim() {
	release := l.d.claimTurn()
	defer release()
	l.mu.Lock()
	limit := l.room - len(l.queue) - l.reserved
	if l.breaker.failures >= breakerOpens {
		limit = 1 // a probe needs one row
	}
	l.mu.Unlock()
	if limit <= 0 || l.d.draining.Load() {
		l.mu.Lock()
		l.claiming, l.more = false, true
		l.mu.Unlock()
		return
	}
	got, err := l.d.store.Claim(context.WithoutCancel(l.d.ctx), l.key, limit, l.d.memory.room())
	l.mu.Lock()
	defer l.mu.Unlock()
	l.claiming = false
	if err != nil {
		l.d.log.Warn("due deliveries couldn't be claimed; trying again", "endpoint", l.route.ID, "error", err)
		l.wake(l.d.now().Add(time.Second))
		l.more = false // until then
		return
	}
	for _, r := range got.Rows {
		p := newParcel(r.Event)
		l.d.memory.add(p.size())
		l.queue = append(l.queue, item{Delivery: r.Delivery, parcel: p})
	}
	l.more = l.more || got.More
	if !got.More && !got.Next.IsZero() {
		l.wake(got.Next)
	}
	l.kick()
}

// endRows buries the due rows of a disabled endpoint, or all of a deleted one.
// Callers hold mu.
func (l *lane) endRows() {
	l.release()
	if !l.more || l.ending {
		return
	}
	l.ending, l.more = true, false
	l.d.work.Go(func() {
		err := l.d.end(l.key, l.current().Deleted)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.ending = false
		if err != nil {
			l.d.log.Warn("rows of a disabled endpoint couldn't be ended; trying again", "endpoint", l.route.ID, "error", err)
			l.wake(l.d.now().Add(time.Second))
		}
	})
}

// release frees the queued rows. Callers hold mu.
func (l *lane) release() {
	queue := l.queue
	l.queue = nil
	if len(queue) == 0 {
		return
	}
	l.d.work.Go(func() {
		for _, it := range queue {
			l.d.memory.add(-it.parcel.size())
			l.d.recorder.put(result{Outcome: surehook.Outcome{Delivery: it.Delivery, Decision: surehook.Release}, lane: l})
		}
	})
}

func (l *lane) current() *route {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.route
}
