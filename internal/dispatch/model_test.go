package dispatch

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

// step is one thing that happens to a dispatcher.
type step struct {
	do       string
	endpoint int64
	n        int
}

var happenings = []string{"publish", "publish", "publish", "wait", "wait", "answer", "answer", "disable", "enable", "rate", "concurrency",
	"url", "delete", "store down", "store refuses", "store forgets", "store well", "epoch", "lease late", "lease well", "cancel", "wake"}

// Whatever happens, in whatever order: once the store and the receivers are well
// again nothing is pending and nothing is held, no row of an enabled endpoint was
// dropped, and none that succeeded was sent again.
func TestNothingIsLost(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		steps := rapid.SliceOfN(rapid.Custom(func(r *rapid.T) step {
			return step{rapid.SampledFrom(happenings).Draw(r, "do"), int64(rapid.IntRange(1, 4).Draw(r, "endpoint")), rapid.IntRange(1, 60).Draw(r, "n")}
		}), 1, 60).Draw(r, "steps")
		var err error
		synctest.Test(t, func(t *testing.T) { err = play(t, steps) })
		if err != nil {
			r.Fatal(err)
		}
	})
}

// weather is what the receivers and the store are like at the moment.
type weather struct {
	mu      sync.Mutex
	answers [5]string // by endpoint
	store   string
	rnd     *rand.Rand
	again   []string       // what was sent although it had succeeded
	ok      map[string]int // successes, by webhook-id and host
}

func (w *weather) Do(ctx context.Context, h, id string) egress.Result {
	res := w.do(ctx, h)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ok[id+"@"+h] > 0 {
		w.again = append(w.again, id+"@"+h)
	}
	if res.Status == 200 {
		w.ok[id+"@"+h]++
	}
	return res
}

func (w *weather) do(ctx context.Context, h string) egress.Result {
	w.mu.Lock()
	kind, dice := "", w.rnd.IntN(10)
	for key := int64(1); key <= 4; key++ {
		if host(key) == h || host(key+100) == h {
			kind = w.answers[key]
		}
	}
	w.mu.Unlock()
	switch {
	case kind == "slow":
		select {
		case <-time.After(3 * time.Second):
		case <-ctx.Done():
			return egress.Result{Cancelled: true}
		}
		return egress.Result{Status: 200}
	case kind == "fails" || kind == "flaky" && dice < 5:
		return egress.Result{Code: surehook.Status5xx, Status: 500, Err: "no", Body: []byte("x")}
	case kind == "throttles" && dice < 5:
		return egress.Result{Code: surehook.Status429, Status: 429, RetryAfter: []string{"7"}}
	case kind == "panics" && dice < 5:
		panic("the sender")
	}
	return egress.Result{Status: 200}
}

func (w *weather) fail(call string, o []surehook.Outcome) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.store == "down":
		return surehook.Errorf(surehook.Unavailable, "down")
	case w.store == "refuses" && w.rnd.IntN(2) == 0:
		return surehook.Errorf(surehook.Internal, "refused")
	}
	return nil
}

// forget is a store that did it and couldn't say so.
func (w *weather) forget(call string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.store == "forgets" && call == "record" && w.rnd.IntN(2) == 0 {
		return surehook.Errorf(surehook.Unavailable, "unknown")
	}
	return nil
}

func play(t *testing.T, steps []step) error {
	w := &weather{ok: map[string]int{}, rnd: rand.New(rand.NewPCG(uint64(len(steps)), uint64(steps[0].n)))}
	k := begin(t, func(o *Options) { o.MaxInFlight, o.MaxMemory = 6, 2000 })
	k.m.fail, k.m.after = w.fail, w.forget
	k.w.use(w.Do)
	for key := int64(1); key <= 4; key++ {
		k.endpoint(key, func(e *surehook.Endpoint) { e.Tenant, e.Limits.Concurrency = fmt.Sprint(key%2), 3 })
	}
	deleted := map[int64]bool{}
	for _, s := range steps {
		happen(k, w, s, deleted)
	}
	w.mu.Lock()
	w.answers, w.store = [5]string{}, ""
	w.mu.Unlock()
	k.m.set(func() { k.m.lease = time.Hour })
	for key := range k.eps {
		if !deleted[key] {
			k.change(key, func(e *surehook.Endpoint) { e.Enabled, e.Limits.Rate = true, 0 })
		}
	}
	after(3 * time.Hour)
	defer k.end()
	if n := k.left(); n != 0 {
		for _, r := range k.m.rows {
			l := k.lanes[r.EndpointKey]
			return fmt.Errorf("%d rows are left, one is %+v, owner %d, its endpoint is deleted: %t, its lane %+v", n, r.Delivery, r.owner, deleted[r.EndpointKey], l)
		}
	}
	for _, d := range k.m.all {
		if _, ended := k.m.done[d.ID]; !ended && !deleted[d.EndpointKey] {
			return fmt.Errorf("a row of endpoint %d is neither succeeded nor dead", d.EndpointKey)
		}
	}
	// Unless it isn't known what the store did, or its file was opened anew.
	if len(w.again) > 0 && k.m.epoch == 1 && !slices.ContainsFunc(steps, func(s step) bool { return s.do == "store forgets" }) {
		return fmt.Errorf("sent again: %v", w.again)
	}
	want := 4 - len(deleted)
	if len(k.lanes) != want {
		return fmt.Errorf("%d lanes, want %d", len(k.lanes), want)
	}
	return k.wrong()
}

func happen(k *desk, w *weather, s step, deleted map[int64]bool) {
	if deleted[s.endpoint] && s.do != "wait" && s.do != "publish" {
		return
	}
	set := func(f func()) { w.mu.Lock(); f(); w.mu.Unlock() }
	switch s.do {
	case "publish":
		for range s.n {
			k.publish(10*s.n, 1, int64(s.n%3)+2)
		}
	case "wait":
		after(time.Duration(s.n*s.n) * 50 * time.Millisecond)
	case "answer":
		set(func() { w.answers[s.endpoint] = []string{"", "slow", "fails", "flaky", "throttles", "panics"}[s.n%6] })
	case "disable", "enable":
		k.change(s.endpoint, func(e *surehook.Endpoint) { e.Enabled = s.do == "enable" })
	case "rate":
		k.change(s.endpoint, func(e *surehook.Endpoint) { e.Limits.Rate = float64(s.n%10) / 2 })
	case "concurrency":
		k.change(s.endpoint, func(e *surehook.Endpoint) { e.Limits.Concurrency = s.n%5 + 1 })
	case "url":
		k.change(s.endpoint, func(e *surehook.Endpoint) { e.URL = "http://" + host(s.endpoint+100) + ":9000/" })
	case "delete":
		if s.n > 30 {
			deleted[s.endpoint] = true
			k.change(s.endpoint, func(e *surehook.Endpoint) { e.Enabled, e.Deleted = false, true })
		}
	case "store down", "store refuses", "store forgets", "store well":
		set(func() { w.store = s.do[len("store "):] })
	case "epoch":
		k.m.newEpoch()
	case "lease late":
		k.m.set(func() { k.m.lease = time.Second })
	case "lease well":
		k.m.set(func() { k.m.lease = time.Hour })
	case "cancel":
		if e := k.eps[s.endpoint]; e.Enabled {
			k.Cancel(k.Reserve([]*surehook.Endpoint{e}, 1))
		}
	case "wake":
		k.Wake(s.endpoint)
	}
}
