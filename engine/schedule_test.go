package engine_test

import (
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// D-1: profile pylota's thirteen attempts, each at its time; the last one's failure is
// a dead letter. A replay begins the schedule anew, with the number after the last.
func TestThirteenAttemptsAndAReplay(t *testing.T) {
	both(t, testThirteen, func(o *engine.Options) { o.Random = func() float64 { return 0.5 } }) // the middle of the jitter
}

func testThirteen(t *testing.T, b *bed) {
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Profile, w.Limits = "pylota", surehook.Limits{} })
	id := b.publish("a", "1").ID
	runSchedule(t, b, ep, id, 1)
	if got, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{id}}, engine.Actor{}); err != nil || got.Queued != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	runSchedule(t, b, ep, id, 14)
	for i, got := range r.Wait(t, 26) {
		if got.ID() != id {
			t.Errorf("request %d has id %s", i+1, got.ID())
		}
	}
	if got := b.endpoint(ep.ID); !got.Enabled || got.Health.ConsecutiveFailures != 26 {
		t.Errorf("%+v", got)
	}
}

// runSchedule goes through a run of attempts, in time, of which the first has a number.
func runSchedule(t *testing.T, b *bed, ep *surehook.Endpoint, id string, first int) {
	t.Helper()
	const late = 10 * time.Second // real time goes on too
	waits := []time.Duration{30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute, time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour,
		12 * time.Hour, 12 * time.Hour, 12 * time.Hour, 19 * time.Hour}
	var sum time.Duration
	for k, wait := range append(waits, 0) {
		n := first + k
		b.until("the attempt is recorded", func() bool { return len(b.attempts(ep)) == n })
		a, d := b.attempts(ep)[0], b.deliveries(id)[0]
		if a.Number != n || d.Attempts != n {
			t.Fatalf("attempt %+v of %+v, want number %d", a, d, n)
		}
		if k == len(waits) {
			if a.Status != surehook.AttemptDead || !a.NextDue.IsZero() || d.Status != surehook.Dead {
				t.Fatalf("after the last: %+v, %+v", a, d)
			}
			break
		}
		if got := a.NextDue.Sub(a.CreatedAt); a.Status != surehook.AttemptFailed || d.Status != surehook.Pending || got < wait || got > wait+late {
			t.Fatalf("attempt %d is followed after %s, want %s: %+v, %+v", n, got, wait, a, d)
		}
		sum += wait
		b.leap(wait)
		b.restart() // which forgets an open breaker
	}
	if sum != 70*time.Hour+42*time.Minute+30*time.Second {
		t.Errorf("%s in all", sum)
	}
	b.idle()
}
