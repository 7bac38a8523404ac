package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// Faults that other senders had when they sent again; see docs/field-reports.md.

// B-04: whatever a request is made for, it carries the id, a timestamp and a
// signature that verify.
func TestB04_EveryReasonToSendSignsAlike(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 503}))
	ep, secret := b.hook(r, func(w *engine.Webhook) { w.Limits.Attempts = 2 })
	since := b.now().Add(-time.Minute)
	receipt := b.publish("a", `{"x":"é"}`)
	b.idle() // dead, after the first attempt and a retry
	sent, queued := 2, func(got engine.ReplayReceipt, err error) error {
		if err == nil && got.Queued != 1 {
			err = fmt.Errorf("queued %d", got.Queued)
		}
		return err
	}
	for _, c := range []struct {
		reason string
		sends  int
		act    func() error
	}{
		{"a dead letter's replay", 2, func() error {
			return queued(b.Replay(t.Context(), ep.ID, engine.ReplayRequest{Since: since, Status: "dead"}, engine.Actor{}))
		}},
		{"a replay by id", 2, func() error {
			return queued(b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{receipt.ID}}, engine.Actor{}))
		}},
		{"a replay of a window", 2, func() error {
			return queued(b.Replay(t.Context(), ep.ID, engine.ReplayRequest{Since: since}, engine.Actor{}))
		}},
		{"a replay in the background", 2, func() error {
			_, err := b.StartReplay(t.Context(), ep.ID, engine.ReplayRequest{Since: since}, engine.Actor{})
			return err
		}},
		{"a test", 1, func() error {
			_, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{})
			return err
		}},
	} {
		if err := c.act(); err != nil {
			t.Fatalf("%s: %v", c.reason, err)
		}
		sent += c.sends
		got := r.Wait(t, sent)
		b.idle()
		for _, one := range got[sent-c.sends:] {
			if verify(t, secret, one); (one.ID() == receipt.ID) == (c.reason == "a test") || one.Get("webhook-timestamp") == "" {
				t.Errorf("%s: id %q, timestamp %q", c.reason, one.ID(), one.Get("webhook-timestamp"))
			}
		}
	}
	for _, first := range r.Requests()[:2] {
		verify(t, secret, first)
	}
}

// D-05: an outcome that can't be written at once is written later: the limit is
// kept, on the wire and in the books.
func TestD05_AFaultOfTheStoreCountsNoAttemptTwice(t *testing.T) {
	b, f := flawed(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 403}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Attempts = 3 })
	f.use(func(call string, nth int) error {
		if call == "record" && nth <= 2 {
			return surehook.Errorf([]surehook.ErrorCode{surehook.Unavailable, surehook.Internal}[nth-1], "no")
		}
		return nil
	})
	receipt := b.publish("a", "1")
	b.idle()
	if n := len(r.Requests()); n != 3 {
		t.Errorf("%d requests", n)
	}
	if as := b.attempts(ep); len(as) != 3 || as[0].Number != 3 || as[2].Number != 1 {
		t.Errorf("attempts %+v", as)
	}
	if d := b.deliveries(receipt.ID)[0]; d.Status != surehook.Dead || d.Attempts != 3 {
		t.Errorf("%+v", d)
	}
}

// D-25: a run ends by age where it doesn't by number: a receiver that is down
// for longer than the profile bears is disabled, and what is due there ends.
func TestD25_AnEndpointThatStaysDownEndsItsRuns(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := b.hook(r, func(w *engine.Webhook) {
		w.Limits.Attempts, w.Limits.Waits = 100, []time.Duration{24 * time.Hour}
	})
	receipt := b.publish("a", "1")
	for day := range 8 {
		b.until("the day's attempt is written, or it is over", func() bool {
			n, err := b.store.PendingCount(t.Context())
			return err == nil && n.Owned+n.Due == 0
		})
		if b.deliveries(receipt.ID)[0].Status != surehook.Pending {
			break
		}
		if n := len(r.Requests()); n != day+1 {
			t.Fatalf("%d requests on day %d", n, day)
		}
		b.leap(25 * time.Hour)
		b.restart()
	}
	d := b.deliveries(receipt.ID)[0]
	if n := len(r.Requests()); d.Status != surehook.Dead || d.LastCode != surehook.EndpointDisabled || n < 5 || n > 7 {
		t.Errorf("%+v after %d requests", d, n)
	}
	if got := b.endpoint(ep.ID); got.DisabledReason != surehook.ReasonFailing {
		t.Errorf("disabled for %q", got.DisabledReason)
	}
}

// D-26: in an ordered endpoint's queue, waiting for those before is no attempt:
// each event goes as soon as the one before it is done, as its first attempt.
func TestD26_WaitingInLineIsNoAttempt(t *testing.T) {
	const events = 20
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Delay: 10 * time.Millisecond}))
	ep, _ := b.hook(r, func(w *engine.Webhook) {
		w.Ordered = true
		w.Limits.Waits = []time.Duration{time.Hour} // what a wait that counted would cost
	})
	for i := range events {
		if _, err := b.Publish(t.Context(), surehook.Event{Type: "a", Owner: "o", Data: []byte(fmt.Sprint(i))}); err != nil {
			t.Fatal(err)
		}
	}
	for i, got := range r.Wait(t, events) {
		if got.Get("Surehook-Attempt") != "1" || got.Get("Surehook-Sequence") != fmt.Sprint(i+1) {
			t.Errorf("request %d: attempt %s, sequence %s", i, got.Get("Surehook-Attempt"), got.Get("Surehook-Sequence"))
		}
	}
	b.idle()
	if as := b.attempts(ep); len(as) != events {
		t.Errorf("%d attempts for %d events", len(as), events)
	}
}
