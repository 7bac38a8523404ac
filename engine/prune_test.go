package engine_test

import (
	"slices"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// Events go when they are past retention, or past their tenant's own days, fewer or
// more, and no others: delivered ones, dead ones with their dead letters, erased ones.
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
	b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"} })
	b.hook(receivertest.New(t, always(receivertest.Answer{Status: 500})), func(w *engine.Webhook) { w.EventTypes, w.Limits.Attempts = []string{"dead"}, 1 })
	publish := func(tenant, typ string) string {
		t.Helper()
		got, err := b.Publish(t.Context(), surehook.Event{Type: typ, Tenant: tenant, Data: []byte(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		return got.ID
	}
	var of [3][]string // brief, usual, long: a delivered event, a dead one, an erased one
	for i, tenant := range []string{"brief", "usual", "long"} {
		of[i] = []string{publish(tenant, "a"), publish(tenant, "dead"), publish(tenant, "a")}
	}
	r.Wait(t, 6)
	b.idle() // what is being delivered at the moment would stay for a while
	if _, err := b.Erase(t.Context(), engine.EraseRequest{IDs: []string{of[0][2], of[1][2], of[2][2]}}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	left := func(ids []string) int {
		return len(slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !b.there(id) }))
	}
	letters := func() int {
		all, err := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{}, surehook.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		return len(all)
	}
	whole := func(when string, want ...int) {
		t.Helper()
		if got := []int{left(of[0]), left(of[1]), left(of[2]), letters()}; !slices.Equal(got, want) {
			t.Errorf("%s: %v of brief, usual, long and dead letters are there, want %v", when, got, want)
		}
	}
	whole("at first", 3, 3, 3, 3)
	b.leap(3 * day)
	young := publish("brief", "a")
	// Somebody's days are changed: they are looked at at once.
	if err := b.PutTenant(t.Context(), &surehook.Tenant{ID: "other", EventsDays: 1}, "tenant.put", engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	b.until("the brief ones are gone", func() bool { return left(of[0]) == 0 })
	whole("after three days", 0, 3, 3, 2)
	if !b.there(young) {
		t.Error("the young one is gone")
	}
	b.leap(9 * day)
	b.restart() // each start looks
	b.until("everybody's are gone", func() bool { return left(of[1]) == 0 })
	whole("after twelve days", 0, 0, 3, 1)
	b.leap(50 * day)
	b.restart()
	b.until("all are gone", func() bool { return left(of[2]) == 0 && !b.there(young) })
	whole("at last", 0, 0, 0, 0)
	b.idle()
}

// there tells whether the store has an event.
func (b *bed) there(id string) bool {
	b.t.Helper()
	_, err := b.store.Event(b.t.Context(), nil, id)
	if err != nil && surehook.CodeOf(err) != surehook.NotFound {
		b.t.Fatal(err)
	}
	return err == nil
}
