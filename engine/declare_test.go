package engine_test

import (
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// An endpoint that stands in a file keeps its id and what waits for it, whatever
// is said of it later, over restarts too.
func TestDeclare(t *testing.T) {
	b := start(t)
	down := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Status: 500} })
	up := receivertest.New(t, nil)
	w := engine.Webhook{URL: down.URL, Profile: "purple-wolf", Secret: "one", Tenant: "relay", Subjects: []string{"siem"},
		Limits: surehook.Limits{Waits: []time.Duration{time.Hour}}}
	ep, err := b.Declare(t.Context(), "siem", w, engine.Actor{})
	if err != nil || ep.ID != "siem" || !ep.Enabled {
		t.Fatal(ep, err)
	}
	again, err := b.Declare(t.Context(), "siem", w, engine.Actor{})
	if err != nil || again.Version != ep.Version || again.Key != ep.Key {
		t.Fatalf("the same again made version %d of %d: %v", again.Version, ep.Version, err)
	}
	publish := func() {
		t.Helper()
		if r, err := b.Publish(t.Context(), surehook.Event{Type: surehook.TypeAudit, Tenant: "relay", Subjects: []string{"other", "siem"}, Data: []byte("{}")}); err != nil || r.Deliveries != 1 {
			t.Fatal(r, err)
		}
	}
	publish()
	down.Wait(t, 1)
	b.restart()

	w.URL, w.Secret, w.Limits.Waits = up.URL, "two", []time.Duration{10 * time.Millisecond}
	if ep, err = b.Declare(t.Context(), "siem", w, engine.Actor{}); err != nil || !ep.Enabled || ep.Key != again.Key {
		t.Fatalf("another URL: %+v, %v", ep, err)
	}
	publish()
	if got := up.Wait(t, 1)[0]; !signedBy(got, "two") {
		t.Error("the new secret doesn't sign")
	}
	if _, err := b.Declare(t.Context(), "siem", engine.Webhook{URL: "ftp://x", Profile: "purple-wolf", Secret: "two"}, engine.Actor{}); surehook.CodeOf(err) != surehook.InvalidRequest {
		t.Errorf("a bad URL: %v", err)
	}
}

// What matches a paused endpoint waits for it, over restarts too, and goes out
// when it isn't paused any more; nothing goes out before.
func TestPausedEndpointLosesNothing(t *testing.T) { both(t, testPaused) }

func testPaused(t *testing.T, b *bed) {
	r := receivertest.New(t, func(n int, _ receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Status: []int{500, 200}[min(n, 2)-1]}
	})
	w := engine.Webhook{URL: r.URL, Profile: "purple-wolf", Secret: "s", Limits: surehook.Limits{Waits: []time.Duration{time.Hour}}}
	paused := w
	paused.Limits.Paused = true
	declare := func(w engine.Webhook) {
		t.Helper()
		if _, err := b.Declare(t.Context(), "siem", w, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	publish := func() {
		t.Helper()
		if r, err := b.Publish(t.Context(), surehook.Event{Type: "a", Data: []byte("{}")}); err != nil || r.Deliveries != 1 {
			t.Fatal(r, err)
		}
	}
	declare(w)
	publish()
	r.Wait(t, 1) // it failed, and waits for an hour
	b.until("the failure is recorded", func() bool { return len(b.seen()) == 1 })
	declare(paused)
	publish()
	b.restart()
	publish()
	b.leap(2 * time.Hour)
	other := receivertest.New(t, nil)
	b.hook(other)
	publish2 := func() { // the other one is served meanwhile
		if _, err := b.Publish(t.Context(), surehook.Event{Type: "a", Data: []byte("{}")}); err != nil {
			t.Fatal(err)
		}
	}
	publish2()
	other.Wait(t, 1)
	if n := len(r.Requests()); n != 1 {
		t.Fatalf("%d requests while paused", n-1)
	}
	letters, err := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{}, surehook.Page{Limit: 10})
	if err != nil || len(letters) != 0 {
		t.Fatal(letters, err)
	}
	declare(w)
	r.Wait(t, 5)
	b.idle()
}
