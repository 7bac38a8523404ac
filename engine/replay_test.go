package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// vast is a store with events without end, none of which an endpoint wants.
type vast struct {
	surehook.Store
	slow  bool // a look takes for ever
	looks int
}

func (v *vast) Replayable(ctx context.Context, _ int64, _ surehook.ReplayFilter, after int64, limit int) ([]*surehook.Event, error) {
	v.looks++
	if v.slow {
		<-ctx.Done()
		return nil, surehook.Errorf(surehook.Unavailable, "the store is busy").WithCause(ctx.Err())
	}
	page := make([]*surehook.Event, limit)
	for i := range page {
		page[i] = &surehook.Event{Key: after + int64(i) + 1, Type: "other.type"}
	}
	return page, nil
}

// A window in which little matches costs a request no more than one in which
// much does.
func TestReplayLooksThroughSoMuch(t *testing.T) {
	v := &vast{}
	b := prepare(t)
	b.wrap = func(s surehook.Store) surehook.Store { v.Store = s; return v }
	b.open()
	ep, _, err := b.CreateWebhook(t.Context(), engine.Webhook{URL: "http://127.0.0.1:9/in", EventTypes: []string{"a.b"}}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	window := engine.ReplayRequest{Since: time.Unix(1, 0)}
	for _, slow := range []bool{false, true} {
		v.looks, v.slow = 0, slow
		start := time.Now()
		_, err := b.Replay(t.Context(), ep.ID, window, engine.Actor{})
		if surehook.CodeOf(err) != surehook.InvalidRequest || !strings.Contains(err.Error(), "narrow it, or start a background replay") {
			t.Errorf("slow %t: %v", slow, err)
		}
		if took := time.Since(start); v.looks > 40 || took > 10*time.Second {
			t.Errorf("slow %t: %d looks in %v", slow, v.looks, took)
		}
	}
	// A caller who goes away is no wide window.
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := b.Replay(ctx, ep.ID, window, engine.Actor{}); err == nil || strings.Contains(err.Error(), "narrow") {
		t.Errorf("cancelled: %v", err)
	}
}

// What can't be delivered again is refused by its place in the request, which says
// why, and nothing of the request is queued. A window passes over it.
func TestReplayRefusals(t *testing.T) { both(t, testReplayRefusals) }

func testReplayRefusals(t *testing.T, b *bed) {
	r := receivertest.New(t, nil)
	if err := b.PutTenant(t.Context(), &surehook.Tenant{ID: "brief", EventsDays: 5}, "tenant.put", engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a", surehook.TypeTest} })
	publish := func(typ, tenant string, ago time.Duration) string {
		t.Helper()
		got, err := b.Publish(t.Context(), surehook.Event{Type: typ, Tenant: tenant, OccurredAt: b.now().Add(-ago), Data: []byte(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		return got.ID
	}
	good, tenants := publish("a", "", 29*day), publish("a", "brief", 4*day)
	old, past, other, erased := publish("a", "", 31*day), publish("a", "brief", 6*day), publish("b", "", 0), publish("a", "", 0)
	test, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	tested := r.Wait(t, 6)
	b.idle()
	if _, err := b.Erase(t.Context(), engine.EraseRequest{IDs: []string{erased}}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	testID := ""
	for _, got := range tested {
		if strings.Contains(string(got.Body), "hello") {
			testID = got.ID()
		}
	}
	for id, says := range map[string]string{old: "event_unavailable: it occurred more than 30 days ago", past: "event_unavailable: it occurred more than 5 days ago",
		erased: "event_unavailable: its data was erased", testID: "is a test", other: "isn't subscribed to", "evt_nope": "is unknown"} {
		_, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{good, id}}, engine.Actor{})
		e, ok := err.(*surehook.Error) //nolint:errorlint // as it is
		if !ok || e.Code != surehook.InvalidRequest || len(e.Fields) != 1 || e.Fields[0].Path != "ids[1]" || !strings.Contains(e.Fields[0].Message, says) {
			t.Errorf("%s (%s, test %d): %v", id, says, test.Key, err)
		}
	}
	if n, err := b.store.PendingCount(t.Context()); err != nil || n != (surehook.PendingCount{}) {
		t.Errorf("queued: %+v, %v", n, err)
	}
	got, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{Since: b.now().Add(-100 * day)}, engine.Actor{})
	if err != nil || got.Queued != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	again := ids(r.Wait(t, 8)[6:])
	if slices.Sort(again); !slices.Equal(again, slices.Sorted(slices.Values([]string{good, tenants}))) {
		t.Errorf("replayed %q", again)
	}
	b.idle()
}
