package dispatch

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

// While outcomes can't be written nothing more is sent for long, and it goes on
// when they can.
func TestNothingIsSentThatCantBeRecorded(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Rate = 10 })
		for range 30 {
			k.publish(1, 1)
		}
		var down atomic.Bool
		down.Store(true)
		k.m.failing(func(call string, _ []surehook.Outcome) error {
			if call == "record" && down.Load() {
				return surehook.Errorf(surehook.Unavailable, "no")
			}
			return nil
		})
		after(time.Minute)
		if n := k.w.count(host(1)); n < 20 || n > 30 {
			t.Errorf("%d requests: the burst, two seconds more, and no further", n)
		}
		sent := k.w.count(host(1))
		if k.Stats().Backlog == 0 {
			t.Error("the backlog isn't told")
		}
		after(time.Hour)
		want(t, "requests", k.w.count(host(1)), sent)
		down.Store(false)
		after(time.Minute)
		want(t, "rows", k.left(), 0)
		want(t, "requests", k.w.count(host(1)), 30)
	})
}

// No attempt starts while an outcome has waited for two seconds, be it in the
// batch that is being written or behind it.
func TestNoAttemptBesideALateOutcome(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Rate = 10 })
		var mu sync.Mutex
		unwritten := map[string]time.Time{}
		k.w.use(func(_ context.Context, _, id string) egress.Result {
			mu.Lock()
			defer mu.Unlock()
			for other, since := range unwritten {
				if age := time.Since(since); age >= recordLate {
					t.Errorf("%s is sent while the outcome of %s has waited for %s", id, other, age)
				}
			}
			unwritten[id] = time.Now()
			return egress.Result{Code: surehook.OK, Status: 200}
		})
		k.m.failing(func(call string, os []surehook.Outcome) error {
			if call != "record" {
				return nil
			}
			<-time.After(1900 * time.Millisecond) // one batch alone is never late
			mu.Lock()
			defer mu.Unlock()
			for _, o := range os {
				delete(unwritten, o.Attempt.EventID)
			}
			return nil
		})
		for range 60 {
			k.publish(1, 1)
		}
		after(2 * time.Minute)
		want(t, "requests", k.w.count(host(1)), 60)
		want(t, "rows", k.left(), 0)
	})
}

// H-11: an outcome that the store refuses is stripped, and one that it refuses
// even then is tried again, without a second request and without holding its
// neighbours up.
func TestH11_ARefusedOutcomeIsNotLost(t *testing.T) {
	for _, stubborn := range []bool{false, true} {
		bubble(t, func(k *desk) {
			k.endpoint(1)
			k.w.use(func(_ context.Context, _, id string) egress.Result {
				return egress.Result{Code: surehook.Status5xx, Status: 500, Err: "bad " + id, Body: []byte{0}}
			})
			k.m.failing(func(call string, os []surehook.Outcome) error {
				for _, o := range os {
					if call != "record" || o.Attempt == nil || o.Attempt.EventID != "evt_3" {
						continue
					}
					if o.Attempt.Error != "" || (stubborn && k.m.count("record") < 30) {
						return surehook.Errorf(surehook.Internal, "constraint")
					}
				}
				return nil
			})
			for range 5 {
				k.publish(1, 1)
			}
			synctest.Wait()
			want(t, "requests", k.w.count(host(1)), 5)
			k.m.set(func() { want(t, "attempts recorded", len(k.m.tries), map[bool]int{false: 5, true: 4}[stubborn]) })
			k.w.use(nil)
			after(5 * time.Minute)
			want(t, "rows", k.left(), 0)
			want(t, "requests for it", k.w.ids["evt_3@"+host(1)], 2)
		})
	}
}

// A batch that also releases rows of an endpoint keeps the endpoint's rule.
func TestAReleaseHidesNoRule(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := begin(t)
		defer k.end()
		k.endpoint(1)
		l := k.lane(1)
		a := &surehook.Attempt{ID: "dlv_x", EndpointKey: 1, Code: surehook.Status410, HTTPStatus: 410}
		k.recorder.record([]result{
			{Outcome: surehook.Outcome{Delivery: surehook.Delivery{ID: 1, EndpointKey: 1}, Decision: surehook.Bury, Attempt: a}, lane: l, rule: surehook.HealthRule{Gone: true}},
			{Outcome: surehook.Outcome{Delivery: surehook.Delivery{ID: 2, EndpointKey: 1}, Decision: surehook.Release}, lane: l},
		})
		if len(k.m.told) != 1 || !k.m.told[0].Gone {
			t.Errorf("rules %+v", k.m.told)
		}
	})
}

// A store that never answers holds a stop up for seconds, not for ever.
func TestStopWithAStoreThatHangs(t *testing.T) {
	for _, call := range []string{"record", "claim", "end"} {
		synctest.Test(t, func(t *testing.T) {
			k := begin(t)
			k.endpoint(1)
			hang := make(chan struct{})
			k.m.failing(func(c string, _ []surehook.Outcome) error {
				if c == call {
					<-hang
				}
				return nil
			})
			k.publish(1, 1)
			k.Wake(1)
			synctest.Wait()
			k.change(1, func(e *surehook.Endpoint) { e.Enabled = false })
			synctest.Wait()
			start := time.Now()
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := k.Stop(ctx); surehook.CodeOf(err) != surehook.Unavailable {
				t.Errorf("%s: %v", call, err)
			}
			if d := time.Since(start); d > 10*time.Second {
				t.Errorf("%s: the stop took %s", call, d)
			}
			close(hang)
			synctest.Wait()
		})
	}
}

// A store that is only down: outcomes are given up when the grace is over.
func TestStopWithAStoreThatIsDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := begin(t)
		k.endpoint(1)
		k.m.failing(func(c string, _ []surehook.Outcome) error {
			return surehook.Errorf(surehook.Unavailable, "no")
		})
		for range 20 {
			k.publish(1, 1)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := k.Stop(ctx); err != nil {
			t.Error(err)
		}
		want(t, "rows left for the next process", k.left(), 20)
	})
}

// A claim that comes back while the dispatcher drains frees its rows: they
// weren't lost with the process, and mustn't count as that.
func TestRowsClaimedDuringADrainAreFreed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := begin(t)
		k.endpoint(1)
		k.m.append(&surehook.Event{ID: "evt_x"}, []surehook.Target{{EndpointKey: 1}})
		asked, goOn := make(chan struct{}), make(chan struct{})
		k.m.failing(func(c string, _ []surehook.Outcome) error {
			if c == "claim" {
				close(asked)
				<-goOn
			}
			return nil
		})
		k.Wake(1)
		<-asked
		done := make(chan error)
		go func() { done <- k.Stop(context.Background()) }()
		synctest.Wait()
		close(goOn)
		if err := <-done; err != nil {
			t.Error(err)
		}
		for _, r := range k.m.rows {
			if r.owner != 0 {
				t.Errorf("row %d is owned by a stopped dispatcher", r.ID)
			}
		}
		want(t, "requests", k.w.count(host(1)), 0)
	})
}

// E-10: rows that wait for a busy endpoint cost no writes.
func TestE10_WaitingWritesNothing(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 1 })
		free := make(chan struct{})
		k.w.use(func(context.Context, string, string) egress.Result { <-free; return egress.Result{Status: 200} })
		for range 500 {
			k.publish(1, 1)
		}
		after(2 * time.Minute) // a look has filled the queue up
		before := fmt.Sprint(k.m.count("record"), k.m.count("claim"), k.m.count("end"))
		after(time.Hour)
		if got := fmt.Sprint(k.m.count("record"), k.m.count("claim"), k.m.count("end")); got != before {
			t.Errorf("writes %s, before the wait %s", got, before)
		}
		close(free)
		after(time.Minute)
		want(t, "rows", k.left(), 0)
	})
}

// The same while a rate, an open breaker or a disabled receiver is the reason.
func TestE10_GatesWriteNothing(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Rate = 1 })
		for range 30 {
			k.publish(1, 1)
		}
		after(20 * time.Second)
		want(t, "claims for a rate", k.m.count("claim"), 0)
		k.endpoint(2, func(e *surehook.Endpoint) { e.Limits.Waits = []time.Duration{24 * time.Hour} })
		k.w.use(func(ctx context.Context, h, id string) egress.Result {
			if h == host(2) {
				return fails500(ctx, h, id)
			}
			return egress.Result{Status: 200}
		})
		for range 30 {
			k.publish(1, 2)
		}
		synctest.Wait()
		opened := k.m.count("claim")
		after(time.Minute)
		if n := k.m.count("claim") - opened; n > 10 { // one a probe
			t.Errorf("%d claims of an endpoint that fails", n)
		}
		if n := k.w.count(host(2)); n > 25 {
			t.Errorf("%d requests to an endpoint that fails", n)
		}
		k.w.use(nil)
		after(48 * time.Hour)
		want(t, "rows", k.left(), 0)
	})
}

// D-19: a Retry-After stretches the wait, to a day at most.
func TestD19_RetryAfterIsKept(t *testing.T) {
	for _, c := range []struct {
		header   string
		min, max time.Duration
	}{{"120", 2 * time.Minute, 3 * time.Minute}, {"31536000", 24 * time.Hour, 24 * time.Hour}, {"-1", time.Second, 2 * time.Second}} {
		bubble(t, func(k *desk) {
			k.endpoint(1)
			var at []time.Time
			k.w.use(func(context.Context, string, string) egress.Result {
				if at = append(at, time.Now()); len(at) == 1 {
					return egress.Result{Code: surehook.Status429, Status: 429, RetryAfter: []string{c.header}}
				}
				return egress.Result{Status: 200}
			})
			k.publish(1, 1)
			after(30 * time.Hour)
			if len(at) != 2 || at[1].Sub(at[0]) < c.min || at[1].Sub(at[0]) > c.max {
				t.Errorf("%s: attempts at %v", c.header, at)
			}
		})
	}
}

// D-23, D-24: what fails in one second comes back spread, also with waits of
// whole hours.
func TestD23_RetriesAreSpread(t *testing.T) {
	rnd := rng()
	bubble(t, func(k *desk) {
		k.w.use(fails500)
		for key := int64(1); key <= 2000; key++ {
			k.endpoint(key, func(e *surehook.Endpoint) { e.Limits.Waits = []time.Duration{time.Hour, time.Hour} })
			for range 5 {
				k.publish(1, key)
			}
		}
		synctest.Wait()
		buckets := map[int64]int{}
		for _, r := range k.m.rows {
			if wait := time.Until(r.Due); wait < time.Hour || wait > 72*time.Minute {
				t.Fatalf("due in %s", wait)
			}
			buckets[r.Due.Unix()]++
		}
		fullest := 0
		for _, n := range buckets {
			fullest = max(fullest, n)
		}
		if want(t, "rows", len(k.m.rows), 10_000); fullest > 200 {
			t.Errorf("one second holds %d of 10,000", fullest)
		}
	}, func(o *Options) { o.Random = rnd })
}

// O-08, E-05: a backlog is in the store, not in memory.
func TestO08_MemoryIsFlatWhileAReceiverIsDown(t *testing.T) {
	const limit, size = 1 << 20, 10 << 10
	bubble(t, func(k *desk) {
		k.w.use(status(surehook.Timeout, 0))
		for key := int64(1); key <= 20; key++ {
			k.endpoint(key, func(e *surehook.Endpoint) { e.Limits.Waits = []time.Duration{time.Hour, time.Hour, time.Hour} })
		}
		var most int64
		for range 200 {
			for key := int64(1); key <= 20; key++ {
				k.publish(size, key)
			}
			after(time.Second)
			most = max(most, k.Stats().Bytes)
		}
		if most > 2*limit+20*claimBytes {
			t.Errorf("%d bytes in lanes, the limit is %d", most, limit)
		}
		k.w.use(nil)
		after(24 * time.Hour)
		want(t, "rows", k.left(), 0)
	}, func(o *Options) { o.MaxMemory = limit })
}

// Events without a place in memory are no reason for a lane to stand still.
func TestLargeEventsGoOneByOne(t *testing.T) {
	bubble(t, func(k *desk) {
		for key := int64(1); key <= 10; key++ {
			k.endpoint(key)
			for range 50 {
				k.publish(1<<20, key)
			}
		}
		after(time.Minute)
		want(t, "rows", k.left(), 0)
	}, func(o *Options) { o.MaxMemory = 1 })
}
