package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// Faults that let one endpoint of other senders hold up or repeat another's
// deliveries; see docs/field-reports.md.

// E-03, E-04: an endpoint that is down costs its own delivery its own attempts;
// those that took the event get it once.
func TestE04_ADeadEndpointRepeatsNothingElsewhere(t *testing.T) {
	b := start(t)
	down := receivertest.New(t, always(receivertest.Answer{Close: true}))
	b.hook(down)
	var well []*receivertest.Receiver
	for range 4 {
		r := receivertest.New(t, nil)
		b.hook(r)
		well = append(well, r)
	}
	receipt := b.publish("a", "1")
	b.idle()
	if n := len(down.Requests()); n != 4 {
		t.Errorf("%d requests to the one that is down", n)
	}
	for i, r := range well {
		if n := len(r.Requests()); n != 1 {
			t.Errorf("receiver %d got %d", i, n)
		}
	}
	ended := map[surehook.DeliveryStatus]int{}
	for _, d := range b.deliveries(receipt.ID) {
		ended[d.Status]++
	}
	if ended[surehook.Succeeded] != 4 || ended[surehook.Dead] != 1 {
		t.Errorf("deliveries ended as %v", ended)
	}
}

// E-08: a receiver that takes requests and never answers costs each attempt its
// time-out and no more; E-05 and E-09 see that the others don't wait.
func TestE08_AHangEndsWithItsTimeout(t *testing.T) {
	const timeout = 300 * time.Millisecond
	b := start(t)
	hung := receivertest.New(t, always(receivertest.Answer{Hang: true}))
	ep, _ := b.hook(hung, func(w *engine.Webhook) { w.Limits.Timeout, w.Limits.Attempts = timeout, 2 })
	well := receivertest.New(t, nil)
	other, _ := b.hook(well)
	receipt := b.publish("a", "1")
	b.idle()
	as := b.attempts(ep)
	if len(as) != 2 {
		t.Fatalf("%d attempts", len(as))
	}
	for _, a := range as {
		if a.Code != surehook.Timeout || a.Duration < timeout || a.Duration > 10*timeout {
			t.Errorf("%s after %s", a.Code, a.Duration)
		}
	}
	if as := b.attempts(other); len(as) != 1 || as[0].Status != surehook.AttemptSucceeded {
		t.Errorf("the other one: %+v", as)
	}
	for _, d := range b.deliveries(receipt.ID) {
		if d.EndpointID == ep.ID && (d.Status != surehook.Dead || d.LastCode != surehook.Timeout) {
			t.Errorf("%+v", d)
		}
	}
}

// E-09: ten rows that are taken together, the first of which hangs: the other
// nine go out while it does, at one endpoint as over ten.
func TestE09_OneHangDelaysNoneOfItsBatch(t *testing.T) {
	for _, endpoints := range []int{1, 10} {
		t.Run(fmt.Sprint(endpoints, " endpoints"), func(t *testing.T) {
			b := start(t)
			gate := make(chan struct{})
			r := receivertest.New(t, func(_ int, r receivertest.Request) receivertest.Answer {
				if r.ID() == "first" {
					return receivertest.Answer{Gate: gate}
				}
				return receivertest.Answer{}
			})
			for i := range endpoints {
				b.hook(r, func(w *engine.Webhook) {
					if w.Limits.Timeout = time.Minute; endpoints > 1 {
						w.EventTypes = []string{fmt.Sprint("t", i)}
					}
				})
			}
			events := make([]surehook.Event, 10)
			for i := range events {
				events[i] = surehook.Event{Type: fmt.Sprint("t", i), Data: []byte("1")}
			}
			events[0].ID = "first"
			if _, err := b.Enqueue(t.Context(), events...); err != nil {
				t.Fatal(err)
			}
			b.until("the other nine are done", func() bool {
				n, err := b.store.PendingCount(t.Context())
				return err == nil && n == surehook.PendingCount{Owned: 1}
			})
			close(gate)
			b.idle()
			if n := len(r.Requests()); n != 10 {
				t.Errorf("%d requests", n)
			}
		})
	}
}
