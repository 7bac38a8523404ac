package dispatch

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

// suspect stores a free row that three crashes took with them.
func (k *desk) suspect(id string, key int64) {
	ds := k.m.append(&surehook.Event{ID: id, Type: "a", Data: []byte("1")}, []surehook.Target{{EndpointKey: key}})
	k.m.set(func() { k.m.rows[ds[0].ID].Lost = lostAlone })
	k.Wake(key)
}

func (k *desk) sent(id string, key int64) int {
	k.w.mu.Lock()
	defer k.w.mu.Unlock()
	return k.w.ids[id+"@"+host(key)]
}

// All other suspects wait for the one that is out, so it doesn't queue.
func TestASuspectGoesFirst(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Rate = 1 })
		k.endpoint(2)
		for range 12 {
			k.publish(1, 1)
		}
		synctest.Wait()
		k.suspect("evt_s", 1)
		k.suspect("evt_t", 2)
		after(3 * time.Second)
		want(t, "suspect at the slow endpoint", k.sent("evt_s", 1), 1)
		want(t, "suspect at the other one", k.sent("evt_t", 2), 1)
		after(time.Minute)
		want(t, "rows", k.left(), 0)
	})
}

// A lane whose gate stays closed gives its suspect back, and has it again later.
func TestASuspectThatCantGoIsHandedBack(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Rate = 0.001 })
		k.endpoint(2)
		k.publish(1, 1) // takes what the rate gives
		synctest.Wait()
		k.suspect("evt_s", 1)
		synctest.Wait()
		k.suspect("evt_t", 2)
		after(2 * time.Second)
		want(t, "suspect at an endpoint that takes none now", k.sent("evt_s", 1), 0)
		want(t, "suspect at the other one", k.sent("evt_t", 2), 1)
		if n := k.m.count("claim"); n > 10 {
			t.Errorf("%d claims", n)
		}
		after(1000 * time.Second)
		want(t, "suspect, in its time", k.sent("evt_s", 1), 1)
		want(t, "rows", k.left(), 0)
	})
}

// A breaker that opens while a suspect waits for a place doesn't keep it.
func TestAnOpenBreakerKeepsNoSuspect(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 1 })
		k.endpoint(2)
		gate := make(chan struct{})
		var well atomic.Bool
		k.w.use(func(_ context.Context, h, _ string) egress.Result {
			if h == host(1) && !well.Load() {
				<-gate
				return egress.Result{Code: surehook.Status5xx, Status: 500}
			}
			return egress.Result{Status: 200}
		})
		k.publish(1, 1)
		synctest.Wait()
		k.suspect("evt_s", 1) // no place: a request is under way
		synctest.Wait()
		k.suspect("evt_t", 2)
		l := k.lane(1)
		l.mu.Lock()
		l.breaker = breaker{failures: breakerOpens, until: time.Now().Add(probeLatest), wait: probeLatest}
		l.mu.Unlock()
		close(gate)
		after(2 * time.Second)
		want(t, "suspect at the endpoint that fails", k.sent("evt_s", 1), 0)
		want(t, "suspect at the other one", k.sent("evt_t", 2), 1)
		well.Store(true)
		after(2 * time.Hour)
		want(t, "rows", k.left(), 0)
	})
}
