package dispatch

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

func (m *model) erase(keys ...int64) {
	m.set(func() {
		for _, k := range keys {
			m.erased[k] = true
		}
	})
}

// keys gives the events' keys, in order.
func (m *model) keys() (out []int64) {
	m.set(func() {
		for _, d := range m.all {
			out = append(out, d.EventKey)
		}
	})
	return out
}

// What a lane holds of an erased event isn't sent, and ends as event_unavailable;
// its neighbours go.
func TestRecallKeepsErasedEventsFromBeingSent(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 1 })
		gate := make(chan struct{})
		k.w.use(func(context.Context, string, string) egress.Result { <-gate; return egress.Result{Status: 200} })
		for range 4 {
			k.publish(1, 1)
		}
		synctest.Wait()
		keys := k.m.keys()
		k.m.erase(keys[1], keys[3])
		k.Recall()
		close(gate)
		after(time.Second)
		want(t, "sent", k.w.count(host(1)), 2)
		k.m.set(func() {
			for i, d := range k.m.all {
				want(t, fmt.Sprint("end of ", i), int(k.m.done[d.ID]), int([]surehook.Decision{surehook.Finish, surehook.Bury}[i%2]))
			}
		})
	})
}

// Rows that are on their way into a lane while it is looked through aren't missed:
// of a claim, and of an append that was just committed.
func TestRecallMissesNothingOnTheWay(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1)
		k.m.failing(func(call string, _ []surehook.Outcome) error {
			if call == "claim" {
				k.m.erase(k.m.keys()...)
				k.Recall()
			}
			return nil
		})
		e := &surehook.Event{ID: "evt_claimed", Data: []byte(`1`), OccurredAt: time.Now()}
		k.m.append(e, []surehook.Target{{EndpointKey: 1}})
		k.Wake(1)
		after(time.Second)
		want(t, "sent of the claim", k.w.count(host(1)), 0)
		want(t, "rows", k.left(), 0)

		k.m.failing(nil)
		e = &surehook.Event{ID: "evt_appended", Data: []byte(`1`), OccurredAt: time.Now()}
		recalls, targets := k.Recalls(), k.Reserve([]*surehook.Endpoint{k.eps[1]}, 1)
		rows := k.m.append(e, targets)
		k.m.erase(e.Key)
		k.Recall()
		k.HandOff(e, targets, rows, recalls)
		after(time.Second)
		want(t, "sent of the append", k.w.count(host(1)), 0)
		want(t, "rows", k.left(), 0)
	})
}

// A store that can't say which events are erased keeps the recall waiting.
func TestRecallWaitsForTheStore(t *testing.T) {
	bubble(t, func(k *desk) {
		k.endpoint(1, func(e *surehook.Endpoint) { e.Limits.Concurrency = 1 })
		gate := make(chan struct{})
		k.w.use(func(context.Context, string, string) egress.Result { <-gate; return egress.Result{Status: 200} })
		for range 2 {
			k.publish(1, 1)
		}
		synctest.Wait()
		fails := 3
		k.m.failing(func(call string, _ []surehook.Outcome) error {
			if call == "erased" && fails > 0 {
				fails--
				return surehook.Errorf(surehook.Unavailable, "away")
			}
			return nil
		})
		k.m.erase(k.m.keys()[1])
		k.Recall()
		want(t, "tries left", fails, 0)
		close(gate)
		after(time.Second)
		want(t, "sent", k.w.count(host(1)), 1)
	})
}
