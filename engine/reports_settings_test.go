package engine_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// K-03: a header that came into the store past every check is seen in the
// attempts, and nothing of it on the wire.
func TestK03_AStoredHeaderThatIsNone(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Attempts = 2 })
	if _, err := b.store.UpdateEndpoint(t.Context(), ep.ID, func(e *surehook.Endpoint) error {
		e.Headers = map[string]string{"X-Note": "a\r\nX-Evil: {{b}}"}
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	b.restart()
	b.publish("a", "1")
	b.idle()
	as := b.attempts(ep)
	if len(as) != 2 || as[0].Status != surehook.AttemptDead || as[1].Status != surehook.AttemptFailed {
		t.Fatalf("attempts %+v", as)
	}
	for _, a := range as {
		if !strings.Contains(a.Error, "a header field is invalid") || strings.Contains(a.Error, "Evil") {
			t.Errorf("the reason is %q", a.Error)
		}
	}
	if n := r.Opened(); n != 0 {
		t.Errorf("%d connections", n)
	}
}

// pendingTen leaves ten deliveries waiting for their first retry, in an hour.
func pendingTen(t *testing.T, b *bed, r *receivertest.Receiver) (*surehook.Endpoint, string) {
	t.Helper()
	ep, secret := b.hook(r, func(w *engine.Webhook) {
		w.Limits.Waits = []time.Duration{time.Hour}
		w.Limits.Attempts = 3
		w.Limits.Concurrency = 10
	})
	for range 10 {
		b.publish("a", "1")
	}
	r.Wait(t, 10)
	b.until("the retries are written", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 10 })
	return ep, secret
}

// L-07: deliveries that were pending when the secret was rotated can be checked by
// either secret while both are valid, and by the new one after.
func TestL07_RetriesAreSignedByTheSecretsOfTheirTime(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, old := pendingTen(t, b, r)
	_, fresh, err := b.RotateSecret(t.Context(), ep.ID, 24*time.Hour, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	b.leap(2 * time.Hour)
	b.restart()
	for _, got := range r.Wait(t, 20)[10:] {
		if want := signature(t, fresh, got) + " " + signature(t, old, got); got.Get("webhook-signature") != want {
			t.Errorf("in the overlap: %q, want %q", got.Get("webhook-signature"), want)
		}
	}
	b.until("the next retries are written", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 10 })
	r.Use(nil)
	b.leap(25 * time.Hour)
	b.restart()
	for _, got := range r.Wait(t, 30)[20:] {
		verify(t, fresh, got) // and no other is beside it
	}
	b.idle()
}

// what is changed between two attempts counts for the second one: headers,
// secret and time-out too. Each attempt's row keeps what it met.
func TestR03_EverySettingIsTheCurrentOne(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := pendingTen(t, b, r)
	headers, limits := map[string]string{"X-Key": "new"}, ep.Limits
	limits.Timeout = 100 * time.Millisecond
	if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Headers: &headers, Limits: &limits}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	_, fresh, err := b.RotateSecret(t.Context(), ep.ID, 0, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	r.Use(always(receivertest.Answer{Hang: true}))
	b.leap(2 * time.Hour)
	b.restart()
	for _, got := range r.Wait(t, 20)[10:] {
		verify(t, fresh, got)
		if got.Get("X-Key") != "new" {
			t.Errorf("sent with %q", got.Header)
		}
	}
	b.until("all are recorded", func() bool { return len(b.attempts(ep)) == 20 })
	codes := map[surehook.Code]int{}
	for _, a := range b.attempts(ep) {
		codes[a.Code]++
		if a.Code == surehook.Timeout && (a.Duration < 100*time.Millisecond || a.Duration > time.Second) {
			t.Errorf("an attempt of %s under a limit of 100 ms", a.Duration)
		}
	}
	if codes[surehook.Status5xx] != 10 || codes[surehook.Timeout] != 10 {
		t.Errorf("codes %v", codes)
	}
	if slices.ContainsFunc(r.Requests()[:10], func(g receivertest.Request) bool { return g.Get("X-Key") != "" }) {
		t.Error("the first attempts had the header already")
	}
}
