package engine_test

import (
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// Events go when they are past retention, or past their tenant's own days, fewer or
// more, and no others.
func TestRetention(t *testing.T) {
	both(t, testRetention, func(o *engine.Options) { o.Retain = 10 * day })
}

func testRetention(t *testing.T, b *bed) {
	for tenant, days := range map[string]int{"brief": 2, "long": 60} {
		if err := b.PutTenant(t.Context(), &surehook.Tenant{ID: tenant, EventsDays: days}, "tenant.put", engine.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	r := receivertest.New(t, nil)
	b.hook(r)
	publish := func(tenant string) string {
		t.Helper()
		got, err := b.Publish(t.Context(), surehook.Event{Type: "a", Tenant: tenant, Data: []byte(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		return got.ID
	}
	there := func(id string) bool {
		_, err := b.store.Event(t.Context(), nil, id)
		if err != nil && surehook.CodeOf(err) != surehook.NotFound {
			t.Fatal(err)
		}
		return err == nil
	}
	brief, usual, long := publish("brief"), publish("usual"), publish("long")
	r.Wait(t, 3)
	b.idle() // what is being delivered at the moment would stay for a while
	b.leap(3 * day)
	young := publish("brief")
	// Somebody's days are changed: they are looked at at once.
	if err := b.PutTenant(t.Context(), &surehook.Tenant{ID: "other", EventsDays: 1}, "tenant.put", engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	b.until("the brief one is gone", func() bool { return !there(brief) })
	if !there(young) || !there(usual) || !there(long) {
		t.Errorf("the young one is there: %t; everybody's: %t; the long one: %t", there(young), there(usual), there(long))
	}
	b.leap(9 * day)
	b.restart() // each start looks
	b.until("everybody's is gone", func() bool { return !there(usual) })
	if !there(long) {
		t.Error("the long one is gone")
	}
	b.leap(50 * day)
	b.restart()
	b.until("the long one is gone", func() bool { return !there(long) && !there(young) })
	b.idle()
}
