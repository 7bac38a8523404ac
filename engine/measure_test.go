package engine_test

import (
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// measured is what the hooks for metrics have told.
type measured struct {
	mu       sync.Mutex
	arrivals []engine.Arrival
	dead     map[string]int
}

func (m *measured) options(o *engine.Options) {
	m.dead = map[string]int{}
	o.Arrived = func(a engine.Arrival) {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.arrivals = append(m.arrivals, a)
		panic("an observer that is broken")
	}
	o.Died = func(byType map[string]int) {
		m.mu.Lock()
		defer m.mu.Unlock()
		for typ, n := range byType {
			m.dead[typ] += n
		}
		panic("another one")
	}
}

// Deliveries of a disabled endpoint end without an attempt, and are counted as such.
func TestWhatEndsWithoutAnAttemptIsCounted(t *testing.T) {
	ended := make(chan int, 10)
	both(t, func(t *testing.T, b *bed) { endWaiting(t, b, ended) }, func(o *engine.Options) {
		o.Ended = func(why surehook.Code, n int) {
			if why != surehook.EndpointDisabled {
				t.Errorf("ended for %s", why)
			}
			ended <- n
			panic("a broken observer")
		}
	})
}

func endWaiting(t *testing.T, b *bed, ended <-chan int) {
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Waits = []time.Duration{20 * time.Millisecond, time.Hour} })
	for range 5 {
		b.publish("a", "1")
	}
	r.Wait(t, 10)
	b.until("the retries are written", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 5 })
	off := false
	if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Enabled: &off}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	b.leap(2 * time.Hour)
	b.restart()
	for n := 0; n < 5; {
		n += <-ended
	}
	b.idle()
}

func (m *measured) numbers() (out []int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, a := range m.arrivals {
		out = append(out, a.Attempt.Number)
	}
	return out
}

func (m *measured) died(typ string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.dead[typ]
}

// A delivery's latency is measured once, from when its event happened to its first
// success; a replay of what had arrived isn't one.
func TestEachDeliveryIsMeasuredOnce(t *testing.T) {
	var m *measured
	both(t, func(t *testing.T, b *bed) { measureOnce(t, b, m) }, func(o *engine.Options) {
		m = &measured{}
		m.options(o)
	})
}

func measureOnce(t *testing.T, b *bed, m *measured) {
	down := true
	var mu sync.Mutex
	r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer {
		mu.Lock()
		defer mu.Unlock()
		if down {
			return receivertest.Answer{Status: 500}
		}
		return receivertest.Answer{}
	})
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Waits = []time.Duration{time.Millisecond} })
	happened := b.now().Add(-time.Hour)
	dies, err := b.Publish(t.Context(), surehook.Event{Type: "a", Data: []byte("1"), OccurredAt: happened})
	if err != nil {
		t.Fatal(err)
	}
	b.idle()
	b.until("its death is told", func() bool { return m.died("a") == 1 })
	if n := m.numbers(); len(n) != 0 {
		t.Fatalf("arrivals %v of a delivery that is dead", n)
	}
	mu.Lock()
	down = false
	mu.Unlock()
	b.publish("a", "2")
	b.until("it arrived", func() bool { return len(m.numbers()) == 1 })
	for range 2 {
		if _, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{dies.ID}}, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		b.idle()
	}
	b.until("the replay arrived", func() bool { return len(m.numbers()) >= 2 })
	if n := m.numbers(); !slices.Equal(n, []int{1, 3}) {
		t.Errorf("arrivals by attempts %v, want 1 and 3", n)
	}
	if last := m.arrivals[1]; last.Latency() < time.Hour || last.Latency() > time.Hour+time.Minute || last.Attempt.EventID != dies.ID {
		t.Errorf("%+v took %s", last.Attempt, last.Latency())
	}
}
