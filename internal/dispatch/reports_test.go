package dispatch

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

// spent adds up what the rows that are left have tried, and counts those that died.
func (k *desk) spent() (attempts, dead int) {
	k.m.mu.Lock()
	defer k.m.mu.Unlock()
	for _, r := range k.m.rows {
		attempts += r.Attempt
	}
	for _, d := range k.m.done {
		if d == surehook.Bury {
			dead++
		}
	}
	return attempts, dead
}

// F-09: while a breaker is open, for longer than all of a row's retries take, rows
// wait with the attempts that they have: only what was sent was spent. And what
// probes the receiver is one of them.
func TestF09_AnOpenBreakerOutlastsTheRetries(t *testing.T) {
	const rows, run = 200, 4
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Waits = []time.Duration{time.Second, time.Second, time.Second} })
		k.w.use(fails500)
		for range rows {
			k.publish(1, 1)
		}
		after(15 * time.Minute)
		want(t, "open breakers", k.Stats().Open+k.Stats().HalfOpen, 1)
		sent := k.w.count(host(1))
		attempts, dead := k.spent()
		want(t, "attempts of rows that wait and of those that died", attempts+run*dead, sent)
		if probes := 15 * 6; sent < probes/2 || sent > probes+2*breakerOpens+30 {
			t.Errorf("%d requests in 15 minutes of an open breaker", sent)
		}
		k.w.use(nil)
		after(time.Minute)
		want(t, "rows", k.left(), 0)
		_, still := k.spent()
		want(t, "died of it", still, dead)
	})
}

// G-11: what is broken on our side, for every endpoint at once, takes hours to
// bury anything: each row has its eight attempts over a day, and lanes ask by one
// request at a time. That every breaker is open is there to be seen meanwhile.
func TestG11_AnOutageOfOursBuriesNothing(t *testing.T) {
	const endpoints, rows = 30, 20
	bubble(t, func(k *desk) {
		k.w.use(status(surehook.DNS, 0))
		for key := int64(1); key <= endpoints; key++ {
			k.endpoint(key, func(e *surehook.Endpoint) { e.Limits = surehook.Limits{} }) // as the profile has it
			for range rows {
				k.publish(1, key)
			}
		}
		after(12 * time.Hour)
		want(t, "rows after twelve hours", k.left(), endpoints*rows)
		_, dead := k.spent()
		want(t, "dead", dead, 0)
		if s := k.Stats(); s.Closed > 0 || s.Open+s.HalfOpen != endpoints {
			t.Errorf("the breakers tell nothing of it: %+v", s)
		}
		k.w.use(nil)
		after(12 * time.Hour)
		want(t, "rows once it is repaired", k.left(), 0)
		_, dead = k.spent()
		want(t, "dead", dead, 0)
	})
}

// I-10: a receiver that is away for a week, with ten events each hour, leaves
// nothing behind in memory.
func TestI10_AWeekWithoutAReceiver(t *testing.T) {
	const limit, size = 64 << 10, 4 << 10
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits = surehook.Limits{} })
		k.w.use(status(surehook.Connect, 0))
		for day := range 7 {
			for range 24 {
				for range 10 {
					k.publish(size, 1)
				}
				after(time.Hour)
			}
			if s := k.Stats(); s.Lanes != 1 || s.Bytes > limit+claimBytes || s.Queued > queueMax || s.Backlog > 0 || s.InFlight > 1 {
				t.Errorf("after day %d: %+v", day+1, s)
			}
		}
		k.w.use(nil)
		after(48 * time.Hour)
		want(t, "rows", k.left(), 0)
		want(t, "rows in the lane", k.Stats().Queued, 0)
	}, func(o *Options) { o.MaxMemory = limit })
}

// rows of an endpoint that is gone end once, with a line at most.
func TestR05_AnEndpointThatIsGoneIsLoggedOnce(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Waits = []time.Duration{time.Hour} })
		k.w.use(fails500)
		for range 20 {
			k.publish(1, 1)
		}
		synctest.Wait()
		sent := k.w.count(host(1))
		k.change(1, func(e *surehook.Endpoint) { e.Deleted = true })
		after(10 * time.Minute)
		want(t, "rows", k.left(), 0)
		want(t, "requests since", k.w.count(host(1))-sent, 0)
		k.mu.Lock()
		defer k.mu.Unlock()
		if n := strings.Count(k.logs.String(), "\n"); n > 1 {
			t.Errorf("%d lines:\n%s", n, k.logs.String())
		}
	})
}

// rows whose endpoint nobody knows wait until it is sure that it is gone,
// and then end; nothing is sent meanwhile, and nothing is logged each time.
func TestR06_AnEndpointThatNobodyKnows(t *testing.T) {
	var sure atomic.Bool
	bubble(t, func(k *desk) {
		k.m.append(&surehook.Event{ID: "evt_1", Type: "a", Data: []byte("1")}, []surehook.Target{{EndpointKey: 77}})
		after(10 * time.Minute)
		want(t, "rows while a look at the endpoints may still bring it", k.left(), 1)
		sure.Store(true)
		after(2 * time.Minute)
		want(t, "rows", k.left(), 0)
		want(t, "requests", k.w.count(host(77)), 0)
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.logs.Len() > 0 {
			t.Errorf("logged: %s", k.logs.String())
		}
	}, func(o *Options) {
		o.Gone = func(_ context.Context, key int64) *surehook.Endpoint {
			if !sure.Load() {
				return nil
			}
			return &surehook.Endpoint{Key: key, Deleted: true}
		}
	})
}

// S-07: a receiver that turns each request into a new event goes round no faster
// than its endpoint's rate, and others don't wait for it.
func TestS07_ALoopKeepsToTheRate(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Rate = 1 })
		k.endpoint(2)
		again := make(chan struct{}, 1000)
		k.w.use(func(_ context.Context, h, _ string) egress.Result {
			if h == host(1) {
				again <- struct{}{}
				again <- struct{}{} // and it grows
			}
			return egress.Result{Status: 200}
		})
		k.publish(1, 1)
		for range 120 {
			after(time.Second / 2)
			for len(again) > 0 {
				<-again
				k.publish(1, 1, 2)
			}
		}
		if n := k.w.count(host(1)); n < 50 || n > 65 {
			t.Errorf("%d requests in a minute, at one a second", n)
		}
		synctest.Wait()
		want(t, "the other waits for", k.ids-1-k.w.count(host(2)), 0)
		k.change(1, func(e *surehook.Endpoint) { e.Deleted = true })
		synctest.Wait()
	})
}
