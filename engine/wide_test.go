package engine_test

import (
	"fmt"
	"sync"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// crowd makes n endpoints for events of type "wide".
func crowd(t *testing.T, b *bed, r *receivertest.Receiver, n int) {
	t.Helper()
	var makers sync.WaitGroup
	next := make(chan int)
	for range 16 {
		makers.Go(func() {
			for i := range next {
				if _, _, err := b.CreateWebhook(t.Context(), engine.Webhook{URL: fmt.Sprintf("%s/%d", r.URL, i), EventTypes: []string{"wide"}}, engine.Actor{}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for i := range n {
		next <- i
	}
	close(next)
	makers.Wait()
}

func lines(r *receivertest.Receiver) map[string]int {
	seen := map[string]int{}
	for _, got := range r.Requests() {
		seen[got.Line+" "+got.ID()]++
	}
	return seen
}

// Events of very many endpoints reach each of them once, with no transaction that
// holds all of their rows.
func TestWideFanOut(t *testing.T) {
	b, f := flawed(t, unlimited)
	r := receivertest.New(t, nil)
	crowd(t, b, r, 2600)
	one := b.publish("wide", "1")
	if one.Deliveries != 2600 {
		t.Errorf("%d deliveries", one.Deliveries)
	}
	again, err := b.Publish(t.Context(), surehook.Event{ID: one.ID, Type: "wide", Data: []byte("1")})
	if err != nil || !again.Duplicate {
		t.Errorf("a twin: %+v, %v", again, err)
	}
	r.Wait(t, 2600)
	b.idle()
	for line, n := range lines(r) {
		if n != 1 {
			t.Errorf("%s: %d times", line, n)
		}
	}
	if n := f.count("replay"); n != 600 {
		t.Errorf("%d rows were written after the event, want 600", n)
	}
	b.until("nothing is planned any more", func() bool { return planned(t, b) == "null" || planned(t, b) == "[]" })
}

func unlimited(o *engine.Options) { o.MaxWebhooks = -1 }

func planned(t *testing.T, b *bed) string {
	t.Helper()
	v, err := b.store.Setting(t.Context(), "wide_fanouts")
	if err != nil {
		t.Fatal(err)
	}
	return string(v)
}

// A process that ends in between leaves the rest to the next one, and one that
// ends before its event leaves nothing.
func TestWideFanOutGoesOnAfterAStop(t *testing.T) {
	b, f := flawed(t, unlimited)
	r := receivertest.New(t, nil)
	crowd(t, b, r, 2600)
	f.use(func(call string, n int) error {
		if call == "replay" && n > 50 {
			return surehook.Errorf(surehook.Unavailable, "no")
		}
		return nil
	})
	b.publish("wide", "1")
	b.until("some were written", func() bool { return f.count("replay") > 60 })
	b.close()
	f.use(func(call string, n int) error {
		if call == "append" {
			return surehook.Errorf(surehook.Internal, "no")
		}
		return nil
	})
	b.open()
	if _, err := b.Publish(t.Context(), surehook.Event{ID: "never", Type: "wide", Data: []byte("1")}); err == nil {
		t.Error("accepted")
	}
	b.restart()
	b.until("all of them arrived", func() bool { return len(lines(r)) == 2600 })
	b.until("nothing is planned any more", func() bool { return planned(t, b) == "null" || planned(t, b) == "[]" })
	b.idle()
}

// A large batch is cut into transactions of bounded size, and each event has its
// own answer.
func TestLargeBatches(t *testing.T) {
	b, f := flawed(t, unlimited)
	r := receivertest.New(t, nil)
	crowd(t, b, r, 100)
	f.use(func(call string, n int) error {
		if call == "append" && n == 2 {
			return surehook.Errorf(surehook.Unavailable, "no")
		}
		return nil
	})
	events := make([]surehook.Event, 60)
	for i := range events {
		events[i] = surehook.Event{Type: "wide", Data: []byte(fmt.Sprint(i))}
	}
	got, err := b.Enqueue(t.Context(), events...)
	if err != nil {
		t.Fatal(err)
	}
	accepted := 0
	for i, rc := range got {
		if rc.Err == nil {
			accepted++
		} else if surehook.CodeOf(rc.Err) != surehook.Unavailable || i < 40 {
			t.Errorf("%d: %v", i, rc.Err)
		}
	}
	if accepted != 40 {
		t.Errorf("%d events accepted", accepted)
	}
	r.Wait(t, accepted*100)
	b.idle()
	if n := len(r.Requests()); n != accepted*100 {
		t.Errorf("%d requests", n)
	}
}
