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

// holding makes endpoint 1 one that is held while on is set.
func holding(on *atomic.Bool) func(*Options) {
	return func(o *Options) {
		o.Held = func(e *surehook.Endpoint) bool { return e.Key == 1 && on.Load() }
		o.Window = surehook.Window{Most: 30 * 24 * time.Hour}
	}
}

// Ten thousand deliveries that are held are in no lane's memory, cause no claim and
// no write, and take no slot: the others go as without them. Released, they go
// within a minute.
func TestHeldRowsCostTheOthersNothing(t *testing.T) {
	var on atomic.Bool
	on.Store(true)
	bubble(t, func(k *desk) {
		k.endpoint(1)
		k.endpoint(2)
		for range 10_000 {
			k.publish(1, 1)
		}
		synctest.Wait()
		writes := k.m.count("claim") + k.m.count("record")
		after(10 * time.Minute)
		want(t, "claims and writes in ten minutes", k.m.count("claim")+k.m.count("record")-writes, 0)
		want(t, "rows in memory", k.Stats().Queued, 0)
		want(t, "lanes that fail", k.Stats().Open+k.Stats().HalfOpen, 0)
		for range 100 {
			k.publish(1, 2)
		}
		synctest.Wait()
		want(t, "sent to the other", k.w.count(host(2)), 100)
		want(t, "sent to the one that is held", k.w.count(host(1)), 0)
		on.Store(false)
		k.Regate()
		after(time.Minute)
		want(t, "sent after the release", k.w.count(host(1)), 10_000)
		want(t, "rows", k.left(), 0)
	}, holding(&on))
}

// Holding takes queued rows back, without an attempt; the one on the wire ends by
// itself.
func TestHoldingEmptiesTheQueue(t *testing.T) {
	var on atomic.Bool
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 1 })
		gate := make(chan struct{})
		k.w.use(func(context.Context, string, string) egress.Result { <-gate; return egress.Result{Status: 200} })
		for range 5 {
			k.publish(1, 1)
		}
		synctest.Wait()
		on.Store(true)
		k.Regate()
		close(gate)
		after(time.Hour)
		want(t, "sent", k.w.count(host(1)), 1)
		want(t, "left", k.left(), 4)
		on.Store(false)
		k.Regate()
		after(time.Second)
		want(t, "sent", k.w.count(host(1)), 5)
	}, holding(&on))
}

// What leaves its window while it is held ends, within a minute.
func TestHeldRowsExpire(t *testing.T) {
	var on atomic.Bool
	on.Store(true)
	bubble(t, func(k *desk) {
		k.endpoint(1)
		k.publish(1, 1)
		after(29 * 24 * time.Hour)
		k.publish(1, 1)
		want(t, "rows", k.left(), 2)
		after(24*time.Hour + time.Minute)
		want(t, "rows after the window", k.left(), 1)
		k.m.failing(func(call string, _ []surehook.Outcome) error {
			if call == "expire" {
				return surehook.Errorf(surehook.Unavailable, "away")
			}
			return nil
		})
		after(40 * 24 * time.Hour)
		on.Store(false)
		k.Regate()
		after(time.Minute)
		want(t, "sent while it isn't known what is too old", k.w.count(host(1)), 0)
		k.m.failing(nil)
		after(2 * time.Second)
		want(t, "rows", k.left(), 0)
		want(t, "sent", k.w.count(host(1)), 0)
	}, holding(&on))
}

// Opened, held and opened again while the rows are looked at, a lane is opened by a
// look that began after all that, and not by the one from before: it may have seen
// another time.
func TestHeldAndOpenedAgainDuringTheLook(t *testing.T) {
	var on atomic.Bool
	on.Store(true)
	bubble(t, func(k *desk) {
		k.endpoint(1)
		k.publish(1, 1)
		synctest.Wait()
		first, looks := make(chan struct{}), atomic.Int64{}
		away := atomic.Bool{}
		away.Store(true)
		k.m.failing(func(call string, _ []surehook.Outcome) error {
			switch {
			case call != "expire":
			case looks.Add(1) == 1:
				<-first
			case away.Load():
				return surehook.Errorf(surehook.Unavailable, "away")
			}
			return nil
		})
		for _, held := range []bool{false, true, false, true, false} {
			on.Store(held)
			k.Regate()
			synctest.Wait()
		}
		want(t, "looks at once", int(looks.Load()), 1)
		close(first)
		after(10 * time.Second)
		want(t, "sent by the look from before", k.w.count(host(1)), 0)
		away.Store(false)
		after(2 * time.Second)
		want(t, "sent", k.w.count(host(1)), 1)
	}, holding(&on))
}

// A disabled endpoint's rows end as such, held or not.
func TestADisabledEndpointIsEndedWhileHeld(t *testing.T) {
	var on atomic.Bool
	on.Store(true)
	bubble(t, func(k *desk) {
		k.endpoint(1)
		k.publish(1, 1)
		k.change(1, func(e *surehook.Endpoint) { e.Enabled = false })
		after(time.Second)
		want(t, "rows", k.left(), 0)
		want(t, "ends", min(k.m.count("end"), 1), 1)
	}, holding(&on))
}
