package engine_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// failing makes an endpoint that was disabled for failing: two failures, six days
// apart.
func failing(t *testing.T, b *bed, r *receivertest.Receiver) *surehook.Endpoint {
	t.Helper()
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"}; w.Limits.Attempts = 1 })
	b.publish("a", "1")
	b.idle()
	if !b.endpoint(ep.ID).Enabled {
		t.Fatal("one failure disabled it")
	}
	b.leap(6 * 24 * time.Hour)
	b.publish("a", "2")
	b.idle()
	return ep
}

// F-01: enabling begins the count anew.
func TestF01_EnablingResetsTheCount(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep := failing(t, b, r)
	if got := b.endpoint(ep.ID); got.Enabled || got.DisabledReason != surehook.ReasonFailing {
		t.Fatalf("%+v", got)
	}
	on := true
	got, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Enabled: &on}, engine.Actor{})
	if err != nil || got.Health.ConsecutiveFailures != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	b.publish("a", "3")
	b.idle()
	if got := b.endpoint(ep.ID); !got.Enabled || got.Health.ConsecutiveFailures != 1 {
		t.Errorf("after one failure more: %+v", got)
	}
}

// F-10: what was disabled says so, why and since when.
func TestF10_DisablingIsVisible(t *testing.T) {
	notices := make(chan engine.Notice, 1)
	b := start(t, func(o *engine.Options) {
		o.Notify = func(n engine.Notice) {
			notices <- n
			panic("the operator's hook")
		}
	})
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep := failing(t, b, r)
	got := b.endpoint(ep.ID)
	if got.Enabled || got.DisabledReason != surehook.ReasonFailing || got.Health.ConsecutiveFailures != 2 || got.Health.FirstFailureAt.IsZero() ||
		got.UpdatedAt.Before(got.Health.FirstFailureAt) {
		t.Errorf("%+v", got)
	}
	if n := <-notices; n.WebhookID != ep.ID || n.Reason != surehook.ReasonFailing || n.Failures != 2 || n.At.IsZero() {
		t.Errorf("%+v", n)
	}
	b.until("the hook's panic is logged", func() bool { return strings.Contains(b.logs.String(), "hook for disabled endpoints panicked") })
	if !strings.Contains(b.logs.String(), "an endpoint was disabled") {
		t.Error("the log says nothing")
	}
}

// F-04: many attempts that fail at once disable once, count what there were, and
// tell once.
func TestF04_ManyReportersDisableOnce(t *testing.T) { both(t, testF04ManyReportersDisableOnce) }

func testF04ManyReportersDisableOnce(t *testing.T, b *bed) {
	gate := make(chan struct{})
	r := receivertest.New(t, always(receivertest.Answer{Status: 410, Gate: gate}))
	watcher := receivertest.New(t, nil)
	b.hook(watcher, func(w *engine.Webhook) { w.EventTypes = []string{surehook.TypeDisabled} })
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"}; w.Limits.Concurrency = 20 })
	for range 20 {
		b.publish("a", "1")
	}
	r.Wait(t, 20)
	close(gate)
	b.idle()
	watcher.Wait(t, 1)
	b.restart() // and a restart tells nothing anew
	b.idle()
	if n := len(watcher.Requests()); n != 1 {
		t.Errorf("told %d times", n)
	}
	if got := b.endpoint(ep.ID); got.Enabled || got.DisabledReason != surehook.ReasonGone || got.Health.ConsecutiveFailures > 20 {
		t.Errorf("%+v", got)
	}
}

// S-05, S-06: watchers of disablings that fail themselves don't set off others.
func TestS05_DisablingsDontLoop(t *testing.T) { both(t, testS05DisablingsDontLoop) }

func testS05DisablingsDontLoop(t *testing.T, b *bed) {
	var watchers []*receivertest.Receiver
	for range 5 {
		w := receivertest.New(t, always(receivertest.Answer{Status: 410}))
		b.hook(w, func(w *engine.Webhook) { w.EventTypes = []string{surehook.TypeDisabled} })
		watchers = append(watchers, w)
	}
	all := receivertest.New(t, always(receivertest.Answer{Status: 410}))
	b.hook(all) // gets its own kind of events as well, but none about itself
	b.publish("a", "1")
	for _, w := range watchers {
		w.Wait(t, 1)
	}
	b.idle()
	b.restart()
	b.idle()
	for i, w := range watchers {
		if n := len(w.Requests()); n != 1 {
			t.Errorf("watcher %d was told %d times", i, n)
		}
	}
	if n := len(all.Requests()); n != 1 {
		t.Errorf("%d requests to the one that was disabled", n)
	}
	es, err := b.store.ListEvents(t.Context(), surehook.EventFilter{Type: surehook.TypeDisabled}, surehook.Page{Limit: 100})
	if err != nil || len(es) != 1 {
		t.Errorf("%d events tell of it, %v", len(es), err)
	}
}

// G-06: what comes while an endpoint is disabled isn't queued, doesn't flood it
// later, and can be replayed.
func TestG06_EventsForADisabledEndpointCanBeReplayed(t *testing.T) {
	both(t, testG06EventsForADisabledEndpointCanBeReplayed)
}

func testG06EventsForADisabledEndpointCanBeReplayed(t *testing.T, b *bed) {
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r)
	since := b.now().Add(-time.Second)
	set(t, b, ep, false)
	for i := range 10 {
		if got := b.publish("a", fmt.Sprint(i)); got.Deliveries != 0 {
			t.Errorf("%d deliveries to a disabled endpoint", got.Deliveries)
		}
	}
	set(t, b, ep, true)
	b.idle()
	if n := len(r.Requests()); n != 0 {
		t.Errorf("flooded by %d", n)
	}
	if got, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{Since: since}, engine.Actor{}); err != nil || got.Queued != 10 {
		t.Fatalf("%+v, %v", got, err)
	}
	r.Wait(t, 10)
	b.idle()
}

func set(t *testing.T, b *bed, ep *surehook.Endpoint, on bool) {
	t.Helper()
	if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Enabled: &on}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
}

// G-07: what is due while the endpoint is disabled becomes a dead letter, what is
// due later goes on, whenever the event came.
func TestG07_OneRuleAroundADisabling(t *testing.T) { both(t, testG07OneRuleAroundADisabling) }

func testG07OneRuleAroundADisabling(t *testing.T, b *bed) {
	r := receivertest.New(t, fails(2, 500))
	early, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"early"}; w.Limits.Waits = []time.Duration{time.Hour} })
	late, _ := b.hook(r, func(w *engine.Webhook) {
		w.EventTypes = []string{"late"}
		w.Limits.Waits = []time.Duration{5 * time.Hour}
	})
	one, two := b.publish("early", "1"), b.publish("late", "1")
	b.until("both wait", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 2 })
	set(t, b, early, false)
	set(t, b, late, false)
	b.leap(2 * time.Hour)
	b.restart()
	b.until("what was due is dead", func() bool { return b.deliveries(one.ID)[0].Status == surehook.Dead })
	if d := b.deliveries(one.ID)[0]; d.LastCode != surehook.EndpointDisabled {
		t.Errorf("%+v", d)
	}
	set(t, b, early, true)
	set(t, b, late, true)
	b.leap(4 * time.Hour)
	b.restart()
	r.Wait(t, 3)
	b.idle()
	if d := b.deliveries(two.ID)[0]; d.Status != surehook.Succeeded {
		t.Errorf("%+v", d)
	}
}

// deliveries that were queued are finished although the endpoint has
// unsubscribed from their type since; new events stay away.
func TestR04_PendingDeliveriesOfAnUnsubscribedTypeAreFinished(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, fails(1, 500))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"}; w.Limits.Waits = []time.Duration{time.Hour} })
	receipt := b.publish("a", "1")
	b.until("it waits", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 1 })
	types := []string{"b"}
	if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{EventTypes: &types}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	if got := b.publish("a", "2"); got.Deliveries != 0 {
		t.Errorf("%d deliveries of a type that isn't selected any more", got.Deliveries)
	}
	b.leap(2 * time.Hour)
	b.restart()
	b.idle()
	if d := b.deliveries(receipt.ID)[0]; d.Status != surehook.Succeeded || len(r.Requests()) != 2 {
		t.Errorf("%+v, %d requests", d, len(r.Requests()))
	}
}

// Deleting an endpoint ends what is in flight by itself, and nothing follows.
func TestDeletedWhileAttemptsAreInFlight(t *testing.T) { both(t, testDeletedWhileAttemptsAreInFlight) }

func testDeletedWhileAttemptsAreInFlight(t *testing.T, b *bed) {
	gate := make(chan struct{})
	r := receivertest.New(t, always(receivertest.Answer{Status: 500, Gate: gate}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Concurrency = 4 })
	for range 20 {
		b.publish("a", "1")
	}
	r.Wait(t, 4)
	if err := b.DeleteWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	close(gate)
	b.idle()
	b.until("the lane is forgotten", func() bool { return b.Stats().Lanes == 0 })
	if n := len(r.Requests()); n != 4 {
		t.Errorf("%d requests", n)
	}
}
