package engine_test

import (
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// ailing is an endpoint of profile pylota that fails as often as it is told to, and
// another that hears of its disabling.
type ailing struct {
	*bed
	ep      *surehook.Endpoint
	r       *receivertest.Receiver
	watcher *receivertest.Receiver
	sent    int
}

func newAiling(t *testing.T, b *bed) *ailing {
	t.Helper()
	x := &ailing{bed: b, r: receivertest.New(t, nil), watcher: receivertest.New(t, nil)}
	b.hook(x.watcher, func(w *engine.Webhook) { w.EventTypes = []string{surehook.TypeDisabled} })
	x.ep, _ = b.hook(x.r, func(w *engine.Webhook) {
		w.Profile, w.EventTypes = "pylota", []string{"a"}
		w.Limits = surehook.Limits{Attempts: 1, Concurrency: 128, Timeout: 30 * time.Second}
	})
	return x
}

// fail has n attempts fail. All are under way before the first ends, and no breaker is
// left from before, so that none has to wait.
func (x *ailing) fail(n int) {
	x.t.Helper()
	x.restart()
	gate := make(chan struct{})
	x.r.Use(always(receivertest.Answer{Status: 500, Gate: gate}))
	for range n {
		x.publish("a", "1")
	}
	x.sent += n
	x.r.Wait(x.t, x.sent)
	close(gate)
	x.idle()
}

func (x *ailing) succeed() {
	x.t.Helper()
	x.restart()
	x.r.Use(nil)
	x.publish("a", "1")
	x.sent++
	x.r.Wait(x.t, x.sent)
	x.idle()
}

func (x *ailing) is(enabled bool, reason string, failures int) {
	x.t.Helper()
	got := x.endpoint(x.ep.ID)
	if got.Enabled != enabled || got.DisabledReason != reason || got.Health.ConsecutiveFailures != failures {
		x.t.Fatalf("enabled %t (%q) after %d failures, want %t (%q) after %d", got.Enabled, got.DisabledReason, got.Health.ConsecutiveFailures, enabled, reason, failures)
	}
}

// told is how many events tell of a disabling, of which none waits any more.
func (x *ailing) told() int {
	x.t.Helper()
	x.until("nothing waits for its fan-out", func() bool {
		c, err := x.store.Counts(x.t.Context())
		return err == nil && c.Undispatched.IsZero()
	})
	es, err := x.store.ListEvents(x.t.Context(), surehook.EventFilter{Type: surehook.TypeDisabled}, surehook.Page{Limit: 100})
	if err != nil {
		x.t.Fatal(err)
	}
	return len(es)
}

// a hundred failures in a row disable, once they are spread over 24 hours: not
// within them, and not 99 of them. Enabling begins anew.
func TestAHundredFailuresOverADayDisable(t *testing.T) { both(t, testHundredFailures) }

func testHundredFailures(t *testing.T, b *bed) {
	x := newAiling(t, b)
	x.fail(100)
	x.is(true, "", 100)
	b.leap(23 * time.Hour)
	x.fail(20)
	x.is(true, "", 120)
	b.leap(time.Hour)
	x.fail(1)
	x.is(false, surehook.ReasonFailing, 121)
	if body := string(x.watcher.Wait(t, 1)[0].Body); !strings.Contains(body, x.ep.ID) || !strings.Contains(body, `"failing"`) {
		t.Errorf("told %s", body)
	}
	set(t, b, x.ep, true)
	x.is(true, "", 0)
	x.fail(1)
	x.is(true, "", 1)
	b.leap(30 * time.Hour)
	x.fail(98)
	x.is(true, "", 99)
	x.fail(1)
	x.is(false, surehook.ReasonFailing, 100)
	x.watcher.Wait(t, 2)
	if n := x.told(); n != 2 {
		t.Errorf("told %d times", n)
	}
}

// a success in between begins the count and the day anew.
func TestASuccessResetsTheCount(t *testing.T) { both(t, testSuccessResets) }

func testSuccessResets(t *testing.T, b *bed) {
	x := newAiling(t, b)
	x.fail(99)
	b.leap(25 * time.Hour)
	x.succeed()
	x.is(true, "", 0)
	x.fail(100)
	x.is(true, "", 100) // the day begins with the first of these
	b.leap(25 * time.Hour)
	x.succeed()
	x.is(true, "", 0)
	x.fail(99)
	b.leap(25 * time.Hour)
	x.is(true, "", 99)
	x.fail(1)
	x.is(false, surehook.ReasonFailing, 100)
}

// switching off by hand says so, ends no count, and makes no event; switching on
// resets count and reason.
func TestSwitchedOffByHand(t *testing.T) { both(t, testSwitchedOff) }

func testSwitchedOff(t *testing.T, b *bed) {
	x := newAiling(t, b)
	x.fail(5)
	set(t, b, x.ep, false)
	x.is(false, surehook.ReasonManual, 5)
	set(t, b, x.ep, true)
	x.is(true, "", 0)
	if n := x.told(); n != 0 {
		t.Errorf("%d events", n)
	}
}

// a 410 disables at once; what waited becomes dead as endpoint_disabled, and all
// of it can be replayed.
func TestGoneDisablesAtOnce(t *testing.T) { both(t, testGone) }

func testGone(t *testing.T, b *bed) {
	x := newAiling(t, b)
	if _, err := b.UpdateWebhook(t.Context(), x.ep.ID, engine.Patch{Limits: &surehook.Limits{Concurrency: 1, Timeout: 30 * time.Second}}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	x.r.Use(always(receivertest.Answer{Status: 410, Gate: gate}))
	first := b.publish("a", "1")
	x.r.Wait(t, 1)
	second := b.publish("a", "2")
	close(gate)
	b.idle()
	x.is(false, surehook.ReasonGone, 1)
	for id, code := range map[string]surehook.Code{first.ID: surehook.Status410, second.ID: surehook.EndpointDisabled} {
		if d := b.deliveries(id)[0]; d.Status != surehook.Dead || d.LastCode != code {
			t.Errorf("%+v, want %s", d, code)
		}
	}
	if body := string(x.watcher.Wait(t, 1)[0].Body); !strings.Contains(body, x.ep.ID) || !strings.Contains(body, `"gone"`) {
		t.Errorf("told %s", body)
	}
	if n := x.told(); n != 1 {
		t.Errorf("told %d times", n)
	}
	set(t, b, x.ep, true)
	x.is(true, "", 0)
	x.r.Use(nil)
	if got, err := b.Replay(t.Context(), x.ep.ID, engine.ReplayRequest{Since: b.now().Add(-time.Hour), Status: "dead"}, engine.Actor{}); err != nil || got.Queued != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	x.r.Wait(t, 3)
	b.idle()
}

// a new URL disables until a test of it has passed; enabling it before is refused
// and says so. What comes meanwhile isn't queued, and can be replayed.
func TestANewURLNeedsAPassingTest(t *testing.T) { both(t, testNewURL) }

func testNewURL(t *testing.T, b *bed) {
	x := newAiling(t, b)
	x.fail(3)
	x.restart()
	fresh := receivertest.New(t, fails(1, 500))
	url, on := fresh.URL+"/new", true
	if _, err := b.UpdateWebhook(t.Context(), x.ep.ID, engine.Patch{URL: &url, Enabled: &on}, engine.Actor{}); surehook.CodeOf(err) != surehook.InvalidRequest {
		t.Errorf("a new URL, enabled at once: %v", err)
	}
	x.is(true, "", 3)
	if _, err := b.UpdateWebhook(t.Context(), x.ep.ID, engine.Patch{URL: &url}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	x.is(false, surehook.ReasonURLChanged, 3)
	missed := b.publish("a", "1")
	if missed.Deliveries != 0 {
		t.Errorf("%d deliveries to an untested URL", missed.Deliveries)
	}
	_, err := b.UpdateWebhook(t.Context(), x.ep.ID, engine.Patch{Enabled: &on}, engine.Actor{})
	refused, ok := err.(*surehook.Error) //nolint:errorlint // as it is
	if !ok || refused.Code != surehook.InvalidRequest || len(refused.Fields) != 1 || refused.Fields[0].Path != "enabled" || !strings.Contains(refused.Fields[0].Message, "passing test") {
		t.Errorf("enabled without a test: %v", err)
	}
	if a, err := b.TestWebhook(t.Context(), x.ep.ID, engine.Actor{}); err != nil || a.Status == surehook.AttemptSucceeded {
		t.Errorf("%+v, %v", a, err)
	}
	x.is(false, surehook.ReasonURLChanged, 3)
	if a, err := b.TestWebhook(t.Context(), x.ep.ID, engine.Actor{}); err != nil || a.Status != surehook.AttemptSucceeded {
		t.Errorf("%+v, %v", a, err)
	}
	x.is(true, "", 0)
	b.idle()
	if n := len(fresh.Requests()); n != 2 {
		t.Errorf("%d requests, where two were tests", n)
	}
	if got, err := b.Replay(t.Context(), x.ep.ID, engine.ReplayRequest{IDs: []string{missed.ID}}, engine.Actor{}); err != nil || got.Queued != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	if got := fresh.Wait(t, 3)[2]; got.ID() != missed.ID {
		t.Errorf("replayed %s", got.ID())
	}
	b.idle()
	if n := x.told(); n != 0 {
		t.Errorf("%d events tell of it", n)
	}
}

// a test is one attempt, now, of a webhook.test event, signed as any other; it works
// on a disabled endpoint, counts no failure, and is never sent again.
func TestTestDeliveries(t *testing.T) { both(t, testTestDeliveries) }

func testTestDeliveries(t *testing.T, b *bed) {
	r := receivertest.New(t, fails(1, 500))
	all := receivertest.New(t, nil) // takes everything, and gets no test of another
	b.hook(all)
	ep, secret := b.hook(r, func(w *engine.Webhook) { w.Profile, w.Limits = "pylota", surehook.Limits{} })
	set(t, b, ep, false)
	var ids []string
	for i, want := range []surehook.AttemptStatus{surehook.AttemptDead, surehook.AttemptSucceeded} {
		a, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{})
		if err != nil || a.Status != want || !a.Test || a.Number != 1 || !a.NextDue.IsZero() {
			t.Fatalf("%+v, %v", a, err)
		}
		got := r.Wait(t, i+1)[i]
		verify(t, secret, got)
		if body := string(got.Body); !strings.Contains(body, `"type":"webhook.test"`) || !strings.Contains(body, `"sequence":null`) || !strings.Contains(body, `"data":{"message":"hello"}`) {
			t.Errorf("sent %s", body)
		}
		if ids = append(ids, got.ID()); b.attempts(ep)[0].ID != a.ID {
			t.Errorf("recorded %+v", b.attempts(ep)[0])
		}
	}
	if got := b.endpoint(ep.ID); got.Enabled || got.DisabledReason != surehook.ReasonManual || got.Health.ConsecutiveFailures != 0 {
		t.Errorf("%+v", got)
	}
	set(t, b, ep, true)
	b.leap(2 * day)
	b.restart()
	if got, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{Since: b.now().Add(-3 * day)}, engine.Actor{}); err != nil || got.Queued != 0 {
		t.Errorf("replayed: %+v, %v", got, err)
	}
	if _, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: ids[:1]}, engine.Actor{}); surehook.CodeOf(err) != surehook.InvalidRequest {
		t.Errorf("replayed: %v", err)
	}
	b.publish("a", "1")
	all.Wait(t, 1)
	r.Wait(t, 3)
	b.idle()
	if n, m := len(all.Requests()), len(r.Requests()); n != 1 || m != 3 {
		t.Errorf("%d and %d requests", n, m)
	}
}
