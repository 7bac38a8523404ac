package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// M-04, M-05: publishers, changes by the API, listings, claims of retries and
// retention all want one file. Nobody of them is told that it is busy.
func TestM04_OneFileForAll(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, func(n int, _ receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Status: []int{200, 500, 200}[n%3]}
	})
	ep, _ := b.hook(r, func(w *engine.Webhook) {
		w.Limits.Attempts, w.Limits.Waits, w.Limits.Concurrency = 100, []time.Duration{time.Millisecond}, 16
	})
	for range 200 { // for retention
		b.publish("old", "1")
	}
	b.idle()
	b.leap(48 * time.Hour)
	ctx, done := context.WithCancel(t.Context())
	var others, publishers sync.WaitGroup
	for what, f := range map[string]func(n int) error{
		"retention": func(int) error {
			_, _, err := b.store.Prune(context.Background(), b.now().Add(-24*time.Hour), 5)
			return err
		},
		"a change": func(n int) error {
			text := fmt.Sprint(n)
			_, err := b.UpdateWebhook(context.Background(), ep.ID, engine.Patch{Description: &text}, engine.Actor{})
			return err
		},
		"a listing": func(int) error {
			_, err := b.store.ListEvents(context.Background(), surehook.EventFilter{Status: surehook.Pending}, surehook.Page{Limit: 100})
			return err
		},
	} {
		others.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := f(n); err != nil {
					t.Errorf("%s: %v", what, err)
					return
				}
			}
		})
	}
	for range 8 {
		publishers.Go(func() {
			for range 50 {
				began := time.Now()
				if _, err := b.Publish(context.Background(), surehook.Event{Type: "a", Data: []byte("1")}); err != nil {
					t.Errorf("a publisher: %v", err)
				}
				if took := time.Since(began); took > 5*time.Second {
					t.Errorf("a publisher waited %s", took)
				}
			}
		})
	}
	publishers.Wait()
	done()
	others.Wait()
	b.idle()
	seen := map[string]bool{}
	for _, a := range b.attempts(ep) {
		if a.EventType == "a" && a.Status == surehook.AttemptSucceeded {
			seen[a.EventID] = true
		}
	}
	if len(seen) != 400 {
		t.Errorf("%d of 400 events were delivered", len(seen))
	}
}

// P-05: what is past its time goes by itself, in a running server and without
// anybody who asks, so a file doesn't grow for ever.
func TestP05_RetentionRunsByItself(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.Retain = 720 * time.Hour })
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r)
	for day := range 40 {
		b.publish("a", fmt.Sprint(day))
		b.idle()
		b.leap(24 * time.Hour)
	}
	b.restart()
	b.until("30 days are left", func() bool {
		es, err := b.store.ListEvents(t.Context(), surehook.EventFilter{}, surehook.Page{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		return len(es) == 29 && len(b.attempts(ep)) == 29
	})
}

// P-07: an endpoint that is down for longer than events are kept loses them, but
// not silently: each ends with an attempt that says why. That may be retention, or
// that the endpoint has failed for so long.
func TestP07_DownForLongerThanRetention(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.Retain = 720 * time.Hour })
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Rate = 0.001 }) // so that most don't even have a turn
	for range 5 {
		b.publish("a", "1")
	}
	r.Wait(t, 1)
	b.leap(31 * 24 * time.Hour)
	b.restart()
	b.idle()
	last := map[int64]surehook.Attempt{}
	for _, a := range b.attempts(ep) {
		if a.Number > last[a.EventKey].Number {
			last[a.EventKey] = a
		}
	}
	for key, a := range last {
		if a.Status != surehook.AttemptDead || a.Code != surehook.EventUnavailable && a.Code != surehook.EndpointDisabled {
			t.Errorf("event %d ended with %+v", key, a)
		}
	}
	if len(last) != 5 {
		t.Errorf("%d of 5 events tell of their end", len(last))
	}
}
