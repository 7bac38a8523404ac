package dispatch

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/profile"
)

// profiled gives an endpoint the schedule of its profile.
func profiled(e *surehook.Endpoint) { e.Limits.Waits = nil }

// arrivals notes when requests come to a host, and answers by f.
type arrivals struct {
	mu sync.Mutex
	at []time.Time
}

func (a *arrivals) answer(host string, f func() egress.Result) func(context.Context, string, string) egress.Result {
	return func(_ context.Context, h, _ string) egress.Result {
		if h != host {
			return egress.Result{Status: 200}
		}
		a.mu.Lock()
		a.at = append(a.at, time.Now())
		a.mu.Unlock()
		return f()
	}
}

func (a *arrivals) since(start time.Time) []time.Duration {
	a.mu.Lock()
	defer a.mu.Unlock()
	out := make([]time.Duration, len(a.at))
	for i, at := range a.at {
		out[i] = at.Sub(start)
	}
	return out
}

// D-07: what is due again is sent again, when its time has come and not before:
// seen at the receiver, not in the queue.
func TestD07_ADueRetryIsSent(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Waits = []time.Duration{10 * time.Minute} })
		k.w.use(fails500)
		k.publish(1, 1)
		synctest.Wait()
		k.w.use(nil)
		after(10*time.Minute - time.Second)
		want(t, "requests before the wait is over", k.w.count(host(1)), 1)
		after(2*time.Minute + 2*time.Second) // a fifth of jitter
		want(t, "requests after it", k.w.count(host(1)), 2)
		want(t, "rows", k.left(), 0)
	})
}

// D-16: a receiver that is being deployed says 404 for ten minutes. The delivery
// survives that; only a 410 is for good.
func TestD16_ADeployIsSurvived(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, profiled)
		k.w.use(status(surehook.Status4xx, 404))
		k.publish(1, 1)
		after(10 * time.Minute)
		k.w.use(nil)
		after(time.Hour)
		want(t, "rows", k.left(), 0)
		for _, d := range k.m.done {
			if d != surehook.Finish {
				t.Errorf("the delivery ended as %d", d)
			}
		}
		want(t, "requests", k.w.count(host(1)), 4) // at once, after 5 s and 5 min, and one that finds it well
	})
}

// D-22: the default schedule on the clock: three tries in ten minutes of an
// outage, eight in all, and then no more.
func TestD22_AnOutageCostsTheDocumentedTries(t *testing.T) {
	bubble(t, func(k *desk) {
		var got arrivals
		k.endpoint(1, profiled)
		k.w.use(got.answer(host(1), func() egress.Result { return egress.Result{Code: surehook.Status5xx, Status: 503} }))
		start := time.Now()
		k.publish(1, 1)
		after(10 * time.Minute)
		want(t, "requests in ten minutes", len(got.since(start)), 3)
		after(7 * 24 * time.Hour)
		var sum time.Duration
		at := got.since(start)
		want(t, "requests", len(at), profile.Standard.Retry.Attempts)
		for i, wait := range profile.Standard.Retry.Waits {
			sum += wait
			if i+1 < len(at) && (at[i+1] < sum || at[i+1] > sum+sum/5+time.Minute) {
				t.Errorf("try %d after %s, the schedule says %s and up to a fifth more", i+2, at[i+1], sum)
			}
		}
		want(t, "rows", k.left(), 0)
	})
}

// E-11: a receiver that swallows everything until the time-out, with thousands
// of rows due, costs its healthy neighbour nothing, and is asked now and then
// whether it is well again.
func TestE11_AFailingEndpointIsProbed(t *testing.T) {
	bubble(t, func(k *desk) {
		const timeout, span = 15 * time.Second, time.Hour
		var got arrivals
		k.w.use(got.answer(host(1), func() egress.Result {
			<-time.After(timeout)
			return egress.Result{Code: surehook.Timeout}
		}))
		k.endpoint(1, profiled)
		k.endpoint(2)
		for range 5000 {
			k.publish(1, 1)
		}
		start := time.Now()
		for i := range int(span / time.Minute) {
			k.publish(1, 2)
			synctest.Wait() // not a moment passes
			want(t, "requests to the healthy one", k.w.count(host(2)), i+1)
			after(time.Minute)
		}
		at := got.since(start)
		// A batch of eight and what follows until it is known to fail, then one at a time.
		if most := 24 + int(span/timeout); len(at) > most {
			t.Errorf("%d requests to the failing one in %s, at most %d make sense", len(at), span, most)
		}
		last, _ := slices.BinarySearch(at, span-time.Minute)
		if last == len(at) {
			t.Error("it isn't asked any more")
		}
		k.w.use(nil)
		after(48 * time.Hour)
		want(t, "rows", k.left(), 0)
	})
}
