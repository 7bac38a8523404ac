package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

func rng() func() float64 {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(1, 2))
	return func() float64 {
		mu.Lock()
		defer mu.Unlock()
		return r.Float64()
	}
}

// E-12: tenants take turns when slots run out, whatever their loads.
func TestE12_TheSmallestTenantDoesNotWait(t *testing.T) {
	bubble(t, func(k *desk) {
		var mu sync.Mutex
		began := map[string]time.Time{}
		k.w.use(func(_ context.Context, _, id string) egress.Result {
			mu.Lock()
			began[id] = time.Now()
			mu.Unlock()
			<-time.After(100 * time.Millisecond)
			return egress.Result{Status: 200}
		})
		var small string
		for i, load := range []int{1000, 10, 1} {
			for lane := range 10 {
				key := int64(10*i + lane + 1)
				k.endpoint(key, func(e *surehook.Endpoint) { e.Tenant = fmt.Sprint("t", i) })
				if load >= 10 || lane == 0 {
					for range max(load/10, 1) {
						k.publish(1, key)
					}
				}
			}
		}
		small = fmt.Sprintf("evt_%d", k.ids)
		start := time.Now()
		after(10 * time.Minute)
		want(t, "rows", k.left(), 0)
		if wait := began[small].Sub(start); wait > time.Second {
			t.Errorf("the smallest tenant waited %s", wait)
		}
		if k.w.highest > 4 {
			t.Errorf("%d requests in flight", k.w.highest)
		}
	}, func(o *Options) { o.MaxInFlight = 4 })
}

// Lanes that keep failing share a quarter of the slots.
func TestSuspectsLeaveRoom(t *testing.T) {
	bubble(t, func(k *desk) {
		hole := make(chan struct{})
		var slow atomic.Bool
		k.w.use(func(_ context.Context, h, _ string) egress.Result {
			if h == host(100) {
				return egress.Result{Status: 200}
			}
			if slow.Load() {
				<-hole
			}
			return egress.Result{Code: surehook.Timeout}
		})
		for key := int64(1); key <= 50; key++ {
			k.endpoint(key, func(e *surehook.Endpoint) {
				e.Limits.Waits = []time.Duration{time.Minute, time.Minute, time.Minute, time.Minute}
			})
			for range 4 {
				k.publish(1, key)
			}
		}
		k.endpoint(100)
		synctest.Wait()
		slow.Store(true)
		after(5 * time.Minute) // all that failed is due again, and hangs now
		k.w.mu.Lock()
		want(t, "requests of suspects in flight", k.w.flying, 4)
		k.w.mu.Unlock()
		for range 100 {
			k.publish(1, 100)
		}
		after(time.Second)
		want(t, "requests of the healthy one", k.w.count(host(100)), 100)
		slow.Store(false)
		close(hole)
		after(24 * time.Hour)
		want(t, "rows", k.left(), 0)
	}, func(o *Options) { o.MaxInFlight = 16 })
}

func TestStats(t *testing.T) {
	bubble(t, func(k *desk) {
		gate := make(chan struct{})
		k.w.use(func(context.Context, string, string) egress.Result { <-gate; return egress.Result{Status: 200} })
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 2 })
		k.endpoint(2)
		for range 5 {
			k.publish(100, 1)
		}
		synctest.Wait()
		if got, want := k.Stats(), (Stats{Lanes: 2, Queued: 3, Bytes: 5 * int64(newParcel(&surehook.Event{Data: make([]byte, 100)}).size()), InFlight: 2, Closed: 2}); got != want {
			t.Errorf("%+v, want %+v", got, want)
		}
		close(gate)
		synctest.Wait()
	})
}
