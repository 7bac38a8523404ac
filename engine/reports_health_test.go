package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// whenDisabled starts an engine whose notices arrive on a channel.
func whenDisabled(t *testing.T) (*bed, chan engine.Notice) {
	t.Helper()
	notices := make(chan engine.Notice, 1)
	return start(t, func(o *engine.Options) { o.Notify = func(n engine.Notice) { notices <- n } }), notices
}

// disabled checks all the ways in which a disabling for failures is told.
func (b *bed) disabled(ep *surehook.Endpoint, notices chan engine.Notice, failures int) {
	b.t.Helper()
	b.until("it is disabled", func() bool { return !b.endpoint(ep.ID).Enabled })
	if got := b.endpoint(ep.ID); got.DisabledReason != surehook.ReasonFailing || got.Health.ConsecutiveFailures != failures {
		b.t.Errorf("after %d failures: %+v", failures, got)
	}
	if n := <-notices; n.WebhookID != ep.ID || n.Reason != surehook.ReasonFailing || n.Failures != failures {
		b.t.Errorf("notice %+v", n)
	}
	b.until("an event and the log tell of it", func() bool {
		told, err := b.store.ListEvents(b.t.Context(), surehook.EventFilter{Type: surehook.TypeDisabled}, surehook.Page{Limit: 10})
		return err == nil && len(told) == 1 && strings.Contains(b.logs.String(), "an endpoint was disabled")
	})
}

// F-02: the retries of a few events at a receiver that never answers are enough:
// by a profile that counts, the attempt that reaches its number disables.
func TestF02_RetriesAloneDisable(t *testing.T) {
	const events, rounds = 25, 4
	b, notices := whenDisabled(t)
	hole := receivertest.New(t, always(receivertest.Answer{Hang: true}))
	ep, _ := b.hook(hole, func(w *engine.Webhook) {
		w.EventTypes, w.Profile = []string{"a"}, "pylota"
		w.Limits = surehook.Limits{Timeout: 300 * time.Millisecond, Concurrency: events, Attempts: rounds + 1, Waits: []time.Duration{12 * time.Hour}}
	})
	for range events {
		b.publish("a", "1")
	}
	for round := 1; round < rounds; round++ {
		b.until("all have failed", func() bool { return b.endpoint(ep.ID).Health.ConsecutiveFailures == round*events })
		if !b.endpoint(ep.ID).Enabled {
			t.Fatalf("disabled after %d failures", round*events)
		}
		b.leap(15 * time.Hour)
		b.restart()
	}
	b.disabled(ep, notices, rounds*events)
}

// F-06: an endpoint that gets little and fails each time is disabled by how long
// that has gone on.
func TestF06_AFailureAWeek(t *testing.T) {
	b, notices := whenDisabled(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"}; w.Limits.Attempts = 1 })
	b.publish("a", "1")
	b.idle()
	if got := b.endpoint(ep.ID); !got.Enabled || got.Health.ConsecutiveFailures != 1 {
		t.Fatalf("after the first week: %+v", got)
	}
	b.leap(7 * 24 * time.Hour)
	b.publish("a", "2")
	b.idle()
	b.disabled(ep, notices, 2)
}
