package dispatch

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

// after lets virtual time pass, and then everything that it set off.
func after(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// bubble runs a test on virtual time, with a dispatcher that must add up after.
func bubble(t *testing.T, f func(k *desk), change ...func(*Options)) {
	synctest.Test(t, func(t *testing.T) {
		k := begin(t, change...)
		f(k)
		k.end()
		synctest.Wait()
		if err := k.wrong(); err != nil && !t.Failed() {
			t.Error(err)
		}
	})
}

func want(t testing.TB, what string, got, want int) {
	t.Helper()
	if got != want {
		t.Errorf("%s: %d, want %d", what, got, want)
	}
}

func TestHandOffAsksForNoClaim(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1)
		for range 20 {
			k.publish(1, 1)
		}
		synctest.Wait()
		want(t, "rows", k.left(), 0)
		want(t, "claims", k.m.count("claim"), 0)
	})
}

// A claim that finds no place, since all are promised, is made up for when the
// promises are taken back.
func TestPromisesTakenBackWakeTheLane(t *testing.T) {
	bubble(t, func(k *desk) {
		e := k.endpoint(1)
		var held [][]surehook.Target
		for range queueStart {
			held = append(held, k.Reserve([]*surehook.Endpoint{e}, 1))
		}
		k.publish(1, 1) // no place: it stays in the store
		synctest.Wait()
		want(t, "rows while all is promised", k.left(), 1)
		for _, h := range held {
			k.Cancel(h)
		}
		synctest.Wait()
		want(t, "rows", k.left(), 0)
	})
}

// What comes into the store during a claim that leaves nothing else there may be
// passed for a moment, and is then claimed although the queue isn't short: else a lane
// that is busy would have every row claimed for as long as it is.
func TestWhatComesDuringAClaim(t *testing.T) {
	bubble(t, func(k *desk) {
		gate := make(chan struct{})
		k.w.use(func(context.Context, string, string) egress.Result {
			<-gate
			return egress.Result{Status: 200}
		})
		e := k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 1 })
		var held [][]surehook.Target
		promised := func(n int) int {
			before := k.lanes[1].reserved
			for range n {
				held = append(held, k.Reserve([]*surehook.Endpoint{e}, 1))
			}
			return k.lanes[1].reserved - before
		}
		want(t, "promises", promised(queueStart), queueStart)
		k.publish(1, 1) // no place: it stays in the store
		synctest.Wait()
		want(t, "promises without a place", promised(1), 0)
		after(2 * passFor)
		k.m.failing(func(call string, _ []surehook.Outcome) error {
			if call == "claim" {
				time.Sleep(passFor / 2) //nolint:forbidigo // in the bubble it moves the clock
			}
			return nil
		})
		for _, h := range held[queueStart/2:] {
			k.Cancel(h)
		}
		held = held[:queueStart/2]
		synctest.Wait() // the claim is under way
		want(t, "promises during a claim", promised(5), 5)
		k.Wake(e.Key) // something is in the store
		after(passFor/2 + time.Millisecond)
		want(t, "claims", k.m.count("claim"), 1)
		want(t, "promises while something has come", promised(1), 1)
		after(passFor + time.Millisecond)
		want(t, "promises once it has waited", promised(1), 0)
		gate <- struct{}{} // whoever ends looks at the lane
		synctest.Wait()
		want(t, "claims", k.m.count("claim"), 2)
		want(t, "promises after that", promised(1), 1)
		for _, h := range held {
			k.Cancel(h)
		}
		close(gate)
		after(time.Second)
		want(t, "rows", k.left(), 0)
	})
}

func TestClaimErrorsHeal(t *testing.T) {
	for _, code := range []surehook.ErrorCode{surehook.Unavailable, surehook.Internal} {
		bubble(t, func(k *desk) {
			e := k.endpoint(1)
			k.m.append(&surehook.Event{ID: "evt_x"}, []surehook.Target{{EndpointKey: e.Key}})
			broken := true
			k.m.failing(func(call string, _ []surehook.Outcome) error {
				if call == "claim" && broken {
					return surehook.Errorf(code, "no")
				}
				return nil
			})
			k.Wake(e.Key)
			after(10 * time.Second)
			if n := k.m.count("claim"); n < 5 || n > 15 {
				t.Errorf("%d claims in 10 s", n)
			}
			k.m.set(func() { broken = false })
			after(2 * time.Second)
			want(t, "rows", k.left(), 0)
		})
	}
}

// A late renewal must lose no rows: they are still ours.
func TestLateLeaseKeepsTheRows(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1)
		k.m.set(func() { k.m.lease = 10 * time.Second }) // less than a time-out and the margin
		for range 10 {
			k.publish(1, 1)
		}
		after(time.Minute)
		want(t, "requests under a late lease", k.w.count(host(1)), 0)
		want(t, "writes", k.m.count("record")+k.m.count("claim"), 0)
		k.m.set(func() { k.m.lease = time.Hour })
		after(2 * time.Second)
		want(t, "rows", k.left(), 0)
		want(t, "requests", k.w.count(host(1)), 10)
	})
}

func TestAnotherEpochDropsTheRows(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 1 })
		gate := make(chan struct{})
		k.w.use(func(context.Context, string, string) egress.Result { <-gate; return egress.Result{Status: 200} })
		for range 20 {
			k.publish(1, 1)
		}
		synctest.Wait()
		k.m.newEpoch()
		close(gate)
		synctest.Wait()
		want(t, "rows", k.left(), 0)
		if n := k.w.count(host(1)); n > 21 { // the one in flight may be made again
			t.Errorf("%d requests", n)
		}
	})
}

// A machine that was paused for long sends nothing of what others have taken over.
func TestRowsThatAnotherNodeTookAreNotSent(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 1 })
		gate := make(chan struct{})
		k.w.use(func(context.Context, string, string) egress.Result { <-gate; return egress.Result{Status: 200} })
		for range 20 {
			k.publish(1, 1)
		}
		synctest.Wait()
		k.m.newEpoch()
		k.m.set(func() {
			for _, r := range k.m.rows {
				r.owner = 99
			}
		})
		close(gate)
		after(time.Minute)
		want(t, "requests", k.w.count(host(1)), 1)
	})
}

func TestALiftedRateCountsAtOnce(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Rate = 0.001 })
		for range 5 {
			k.publish(1, 1)
		}
		after(time.Minute)
		want(t, "requests at one in 1,000 s", k.w.count(host(1)), 1)
		k.change(1, func(e *surehook.Endpoint) { e.Limits.Rate = 0 })
		synctest.Wait()
		want(t, "requests", k.w.count(host(1)), 5)
	})
}

func TestRateIsKept(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Rate = 10 })
		for range 300 {
			k.publish(1, 1)
		}
		after(9900 * time.Millisecond)
		want(t, "requests in 9.9 s, with a burst of 10", k.w.count(host(1)), 10+99)
		after(time.Minute)
		want(t, "rows", k.left(), 0)
	})
}

// One request at a time asks whether a receiver is well again, whatever is still
// in flight from before the breaker opened.
func TestOneProbeAtATime(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 20 })
		slow := make(chan struct{})
		k.w.use(func(_ context.Context, _, id string) egress.Result {
			if id == "evt_1" {
				<-slow // in flight since long before
			}
			return egress.Result{Code: surehook.Status5xx, Status: 500}
		})
		k.publish(1, 1)
		synctest.Wait()
		for range 15 {
			k.publish(1, 1)
		}
		synctest.Wait()
		probe, peak := make(chan struct{}), 0
		k.w.use(func(context.Context, string, string) egress.Result {
			k.w.mu.Lock()
			peak = max(peak, k.w.flying)
			k.w.mu.Unlock()
			<-probe
			return egress.Result{Code: surehook.Status5xx, Status: 500}
		})
		after(20 * time.Second) // open for long, and rows are due
		close(slow)             // its failure must not let a second probe go
		after(20 * time.Second)
		k.w.mu.Lock()
		flying := k.w.flying
		k.w.mu.Unlock()
		want(t, "requests in flight", flying, 1)
		want(t, "at most", peak, 2) // the old one and the probe
		k.w.use(nil)
		close(probe)
		after(24 * time.Hour)
		want(t, "rows", k.left(), 0)
	})
}

// E-04: a panic inside one attempt ends that delivery, and no other.
func TestE04_PanicsAreIsolated(t *testing.T) {
	var observed atomic.Int32
	bubble(t, func(k *desk) {
		k.endpoint(1)
		k.endpoint(2)
		k.w.use(func(_ context.Context, h, _ string) egress.Result {
			if h == host(1) {
				panic("inside the sender")
			}
			return egress.Result{Status: 200}
		})
		for range 5 {
			k.publish(1, 1, 2)
		}
		synctest.Wait()
		want(t, "rows", k.left(), 0)
		want(t, "requests to the other", k.w.count(host(2)), 5)
		dead := 0
		for _, d := range k.m.done {
			if d == surehook.Bury {
				dead++
			}
		}
		want(t, "dead", dead, 5)
		if k.lane(1).breaker.failures != 0 {
			t.Error("a fault of ours counts against the receiver")
		}
	}, func(o *Options) {
		o.Observe = func(Try) {
			if observed.Add(1)%2 == 0 {
				panic("in the observer")
			}
		}
	})
}

// Rows that a disabled lane frees come back to the store after the end of its
// rows was begun.
func TestRowsReleasedByADisabledLaneEnd(t *testing.T) {
	for _, deleted := range []bool{false, true} {
		bubble(t, func(k *desk) {
			k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 1 })
			gate := make(chan struct{})
			k.w.use(func(context.Context, string, string) egress.Result { <-gate; return egress.Result{Status: 200} })
			for range 10 {
				k.publish(1, 1)
			}
			synctest.Wait()
			ending, goOn := make(chan struct{}), make(chan struct{})
			first := true
			k.m.failing(func(call string, _ []surehook.Outcome) error {
				if call == "end" && first {
					first = false
					close(ending)
					<-goOn // the rows are released meanwhile
				}
				return nil
			})
			k.change(1, func(e *surehook.Endpoint) { e.Enabled, e.Deleted = false, deleted })
			<-ending
			synctest.Wait()
			close(goOn)
			close(gate)
			synctest.Wait()
			want(t, "rows", k.left(), 0)
			want(t, "requests", k.w.count(host(1)), 1)
			if _, there := k.lanes[1]; there == deleted {
				t.Errorf("deleted %t, the lane is there: %t", deleted, there)
			}
		})
	}
}

// An endpoint that is enabled again while its rows are being ended keeps the
// rest.
func TestEnabledAgainWhileItsRowsEnd(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Enabled = false })
		synctest.Wait()
		for range 2500 {
			k.m.append(&surehook.Event{ID: "evt_x"}, []surehook.Target{{EndpointKey: 1}})
		}
		ends := 0
		k.m.failing(func(call string, _ []surehook.Outcome) error {
			if call == "end" {
				if ends++; ends == 2 {
					k.change(1, func(e *surehook.Endpoint) { e.Enabled = true })
				}
			}
			return nil
		})
		k.Wake(1)
		after(time.Second)
		want(t, "rows", k.left(), 0)
		want(t, "requests", k.w.count(host(1)), 500) // two steps had begun
	})
}

func TestAnOlderConfigurationChangesNothing(t *testing.T) {
	bubble(t, func(k *desk) {
		old := k.endpoint(1)
		k.change(1, func(e *surehook.Endpoint) { e.URL = "http://127.0.0.99:9000/" })
		k.Update(old)
		k.publish(1, 1)
		synctest.Wait()
		want(t, "requests to the new URL", k.w.count("127.0.0.99"), 1)
	})
}

// Deleted endpoints leave nothing behind, however many there were.
func TestTombstonesAreForgotten(t *testing.T) {
	bubble(t, func(k *desk) {
		for key := int64(1); key <= 100; key++ {
			k.endpoint(key)
			k.publish(1, key)
		}
		k.w.use(fails500)
		for key := int64(1); key <= 100; key++ {
			k.publish(1, key) // fails, and is due again
		}
		synctest.Wait()
		for key := int64(1); key <= 100; key++ {
			k.change(key, func(e *surehook.Endpoint) { e.Enabled, e.Deleted = false, true })
		}
		after(time.Minute)
		want(t, "rows", k.left(), 0)
		want(t, "lanes", len(k.lanes), 0)
	})
}

func TestIdleLanesForgetTheirSecrets(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1)
		k.publish(1, 1)
		after(59 * time.Second)
		route := func() route {
			l := k.lane(1)
			l.mu.Lock()
			defer l.mu.Unlock()
			return *l.route
		}
		first := route().expires
		after(time.Second)
		if route().signer != nil {
			t.Errorf("an idle lane holds its secret for longer than a minute; it expired %s", first)
		}
		k.publish(1, 1)
		synctest.Wait()
		want(t, "requests", k.w.count(host(1)), 2)
		want(t, "rows", k.left(), 0)
	})
}

func TestTestEndsWithItsCaller(t *testing.T) {
	bubble(t, func(k *desk) {
		e := k.endpoint(1)
		k.w.use(func(ctx context.Context, _, _ string) egress.Result {
			<-ctx.Done()
			return egress.Result{Cancelled: true}
		})
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if _, err := k.Test(ctx, e, &surehook.Event{ID: "evt_t"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v", err)
		}
	})
}
