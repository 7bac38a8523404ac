package dispatch

import (
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/surehook/surehook"
)

const (
	queueMin   = 8   // rows that a lane may hold while memory isn't far over its limit
	queueStart = 32  // before the endpoint has shown what it takes
	queueMax   = 512 // for an endpoint that empties its queue again and again
	suspectAt  = 3   // failures in a row
)

// passFor is how long rows may pass others that wait in the store. Before it is over,
// a lane that has room claims the few that came since its last claim, so that a busy
// one, whose queue is never short, doesn't turn all rows away.
const passFor = 25 * time.Millisecond

const (
	leaseMargin = 5 * time.Second // that a lease must outlast an attempt's time-out by
	leaseRetry  = time.Second     // until a lane looks again whether the lease was renewed
)

// item is a row in a lane, owned by this node.
type item struct {
	surehook.Delivery
	parcel *parcel
}

// turn is an attempt that is to be made: a row, by which configuration, and
// whether it probes a receiver whose breaker is open.
type turn struct {
	item
	route *route
	probe bool
}

// lane is an endpoint's queue on this node. Everything that may hold deliveries
// back (a full queue, the breaker, a rate, a disabled endpoint) is state in
// memory; waiting writes nothing.
//
// A lane with something to do is never without somebody who looks at it again.
// Each reason to wait has its waker:
//
//	full queue, busy      the worker that takes a row, or ends
//	no slot               passSlot of whoever holds one
//	held                  Regate, and the end of the look that it begins
//	pauseTo, breaker      the timer
//	probe under way       the worker that probes
//	places reserved       push or unreserve
//	claim, end under way  their own end; after an error, the timer
//	lease not renewed     the timer
//	rows not known of     the scan each minute
type lane struct {
	d      *Dispatcher
	key    int64
	tenant string

	mu       sync.Mutex
	route    *route // compiled configuration; never nil
	queue    []item
	reserved int            // slots promised to appends that are being committed
	running  int            // attempts in flight
	room     int            // queue bound, adapted to what the endpoint takes
	taken    int            // successes since room changed
	throttle int            // concurrency while the receiver asks for less; 0: the endpoint's cap
	more     bool           // free rows are due in the store
	moreAt   time.Time      // since when they have waited; zero: nobody has asked yet
	deep     bool           // the last claim left some there
	nextDue  time.Time      // when more will be; zero: nothing is known
	gone     bool           // forgotten: what an outcome still frees, the scan ends
	held     bool           // nothing is sent for a while; see hold.go
	opening  bool           // it isn't to be held any more, once its rows were looked at
	openings int64          // how often that began
	looking  bool           // reopen runs
	expired  surehook.Place // how far they were looked at each minute; expireHeld's alone
	claiming bool
	ending   bool
	wakeAt   time.Time // when timer fires; zero: it doesn't
	timer    *time.Timer
	pauseTo  time.Time // no attempt before
	breaker  breaker
	limiter  *rate.Limiter

	// Guarded by slots.mu.
	waiting, waitSuspect bool
}

// reserve promises a place for a row that is about to be committed. While older
// rows have waited in the store for a moment, new ones join them there, so that
// none waits for ever. Within that moment, and during a claim, a row may pass
// others: were it left in the store, a busy lane would claim without end.
func (l *lane) reserve(size int) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.route.live || l.held || l.d.draining.Load() || l.breaker.failures >= breakerOpens || (l.more && l.outwaited(passFor)) {
		return false
	}
	if n := len(l.queue) + l.reserved; n >= l.room || !l.d.memory.fits(n, size) {
		return false
	}
	l.reserved++
	return true
}

// outwaited tells whether rows have been waiting in the store for longer than d.
// Callers hold mu.
func (l *lane) outwaited(d time.Duration) bool {
	now := l.d.now()
	if l.moreAt.IsZero() {
		l.moreAt = now
	}
	return now.Sub(l.moreAt) > d
}

// unreserve takes a promise back: the append failed or was a duplicate.
func (l *lane) unreserve() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.reserved--
	l.again() // a claim may have waited for the place
}

// push hands a committed row over to its reserved place; recalls as in HandOff.
func (l *lane) push(it item, recalls int64) {
	l.d.memory.hold(it.parcel)
	l.lockRecalled(recalls, []*parcel{it.parcel})
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

// dueAt notes when a row will be due. Those of a deleted endpoint needn't wait.
func (l *lane) dueAt(t time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.route.Deleted {
		l.more = true
		l.kick()
		return
	}
	l.expect(t)
}

// expect notes when a row will be due. Callers hold mu.
func (l *lane) expect(t time.Time) {
	if l.nextDue.IsZero() || t.Before(l.nextDue) {
		l.nextDue = t
	}
	l.wake(t)
}

// wake makes sure that the lane looks again at t. Callers hold mu.
func (l *lane) wake(t time.Time) {
	if l.d.draining.Load() || (!l.wakeAt.IsZero() && !t.Before(l.wakeAt)) {
		return
	}
	l.wakeAt = t
	wait := max(t.Sub(l.d.now()), 1) // never 0: a timer that is due already is run by the caller in a synctest bubble, and the race detector dies of it
	if l.timer == nil {
		l.timer = time.AfterFunc(wait, l.woken)
	} else {
		l.timer.Reset(wait)
	}
}

func (l *lane) woken() {
	l.mu.Lock()
	l.wakeAt = time.Time{}
	switch {
	case l.nextDue.IsZero(): // the gate may have opened: that is worth no claim
	case l.d.now().Before(l.nextDue):
		l.wake(l.nextDue)
	default:
		l.more, l.nextDue = true, time.Time{}
	}
	l.kick()
	l.mu.Unlock()
}

// kick starts what can be started. Callers hold mu.
func (l *lane) kick() {
	if l.gone {
		l.d.Look() // a drain doesn't know this lane, so nothing may start from it
		return
	}
	if l.d.draining.Load() {
		return
	}
	if !l.route.live {
		l.endRows()
		return
	}
	if l.held || l.cap() == 0 {
		l.release() // not to be sent now, or another node's, since the nodes have changed
		return
	}
	now := l.d.now()
	l.handBack(now)
	for l.startable(now) {
		if !l.d.slots.take(l, l.suspect()) {
			break // granted later
		}
		l.begin(l.suspect())
		if l.breaker.failures >= breakerOpens {
			break // one probes
		}
	}
	if l.more && !l.claiming && l.hungry() && l.open(now) {
		l.grow()
		since := l.moreAt
		l.claiming, l.more, l.moreAt = true, false, time.Time{} // the claim says whether there are more
		l.d.work.Go(func() { l.claim(since) })
	}
}

// hungry tells whether the queue is short enough for a claim to be worth its write,
// or the few rows that wait have done so for long enough; a probe needs one row.
// Callers hold mu, and know that rows wait.
func (l *lane) hungry() bool {
	if l.breaker.failures >= breakerOpens {
		return len(l.queue)+l.reserved == 0
	}
	n := len(l.queue) + l.reserved
	if l.d.memory.tight() {
		return n <= min(l.route.concurrency, l.room/2) // what a claim may take is little: let it be worth its write
	}
	return n <= l.room/2 || (n < l.room && !l.deep && l.outwaited(passFor/2))
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

// pause closes the gate until t at least. Callers hold mu.
func (l *lane) pause(t time.Time) {
	if t.After(l.pauseTo) {
		l.pauseTo = t
	}
	l.wake(l.pauseTo)
}

func (l *lane) limit() int {
	if l.throttle > 0 {
		return min(l.throttle, l.cap())
	}
	return l.cap()
}

func (l *lane) ordered() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.route.Ordered
}

func (l *lane) suspect() bool { return l.breaker.failures >= suspectAt }

// begin starts a worker that holds a slot. Callers hold mu.
func (l *lane) begin(suspect bool) {
	l.running++
	l.d.work.Go(func() { l.work(suspect) })
}

// adopt takes a worker that comes with a slot which the lane waited for; false:
// there is no need for it any more.
func (l *lane) adopt() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.d.draining.Load() || !l.route.live || l.held || !l.startable(l.d.now()) {
		return false
	}
	l.running++
	l.kick() // and ask for the next one
	return true
}

// work makes attempts while there are any to make: in this lane, then in
// whichever lane waits for the slot that it holds.
func (l *lane) work(suspect bool) {
	for l != nil {
		l, suspect = l.serve(suspect)
	}
}

// serve makes this lane's attempts, and gives the lane that has the slot then.
func (l *lane) serve(suspect bool) (*lane, bool) {
	for {
		l.d.recorder.behind(l.d.open)
		t, ok := l.pop()
		if !ok {
			break
		}
		l.attempt(t)
		l.d.memory.drop(t.parcel)
		if l.d.slots.contended() || suspect != l.nowSuspect() {
			break
		}
	}
	l.mu.Lock()
	l.running--
	l.mu.Unlock()
	next, suspect := l.d.passSlot(suspect)
	l.mu.Lock()
	l.again()
	l.mu.Unlock()
	return next, suspect
}

// again looks at a lane that something has just ended in. That of a deleted
// endpoint ends its rows once more: if it is quiet then, it is forgotten.
// Callers hold mu.
func (l *lane) again() {
	if l.route.Deleted {
		l.more = true
	}
	if l.more || len(l.queue) > 0 {
		l.kick()
	}
}

func (l *lane) nowSuspect() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.suspect()
}

// pop takes the next row, if one may be attempted now by this worker.
func (l *lane) pop() (turn, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for !l.d.draining.Load() && l.route.live && !l.held && len(l.queue) > 0 && l.running <= l.limit() {
		now := l.d.now()
		if !l.open(now) {
			break // whoever ends looks at the lane again, and hands a suspect back
		}
		lease := l.d.store.Lease()
		if l.queue[0].Epoch != lease.Epoch {
			l.d.memory.drop(l.take().parcel)
			l.more = true // the row is free again, by another epoch's start
			continue
		}
		if !lease.Lasts(now, l.route.timeout+leaseMargin) {
			// The row stays: if the lease is renewed after all, nobody else will free
			// it; and if not, its epoch is over and it is dropped above.
			l.pause(now.Add(leaseRetry))
			break
		}
		if !l.paced(now) {
			break
		}
		it := l.take()
		if l.more && !l.claiming && l.hungry() {
			l.kick()
		}
		return turn{item: it, route: l.fresh(now), probe: l.breaker.start()}, true
	}
	if len(l.queue) == 0 {
		l.grow()
	}
	return turn{}, false
}

// take removes the first row from the queue. Callers hold mu.
func (l *lane) take() item {
	it := l.queue[0]
	l.queue[0] = item{}
	l.queue = l.queue[1:]
	return it
}

// paced keeps the endpoint's rate: it tells whether an attempt may start now,
// and else pauses the lane until then. Callers hold mu.
func (l *lane) paced(now time.Time) bool {
	if l.limiter == nil {
		return true
	}
	l.atRate()
	r := l.limiter.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait <= 0 {
		return true
	}
	r.CancelAt(now)
	l.pause(now.Add(wait))
	return false
}

// end is what an attempt tells of its receiver.
type end struct {
	ok        bool
	mute      bool // nothing: it was cancelled, or no request was made
	probe     bool
	throttled bool
	pause     time.Duration
}

// finished takes an attempt's end into the lane's state.
func (l *lane) finished(e end) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.d.now()
	l.breaker.done(e, now)
	switch {
	case e.mute:
	case e.throttled:
		l.throttle = max(l.limit()/2, 1)
		if e.pause > 0 {
			l.pause(now.Add(e.pause))
		}
	case !e.ok:
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
