package postgres

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// sender claims an ordered endpoint's rows and reports on them, as one of many.
type sender struct {
	t      *testing.T
	s      *Store
	key    int64
	flying *sync.Map // owners of which one is out
	n      int
}

func (w *sender) run(stop <-chan struct{}) {
	for {
		c, err := w.s.Claim(w.t.Context(), w.key, 4, 1<<20)
		if err != nil {
			w.t.Error(err)
			return
		}
		for _, r := range c.Rows {
			w.send(r)
		}
		select {
		case <-stop:
			return
		default:
			if len(c.Rows) == 0 {
				time.Sleep(time.Millisecond) //nolint:forbidigo // nobody tells
			}
		}
	}
}

func (w *sender) send(r surehook.Claimed) {
	if _, out := w.flying.LoadOrStore(r.Event.Owner, true); out {
		w.t.Errorf("two at once of %s", r.Event.Owner)
	}
	w.n++
	ms := time.Now().UnixMilli()
	o := surehook.Outcome{Delivery: r.Delivery, Version: 1, Wait: time.Duration(rand.IntN(3)) * time.Millisecond,
		Attempt: &surehook.Attempt{ID: newAttemptID(ms), EventKey: r.Event.Key, EndpointKey: w.key, Number: r.Delivery.Attempt + 1, CreatedAt: time.Now()}}
	switch n := rand.IntN(10); {
	case n < 6:
		o.Decision, o.Attempt.Status = surehook.Finish, surehook.AttemptSucceeded
	case n < 8:
		o.Decision, o.Attempt.Status = surehook.Again, surehook.AttemptFailed
	case n < 9:
		o.Decision, o.Attempt.Status = surehook.Bury, surehook.AttemptDead
	default:
		o.Decision, o.Attempt = surehook.Release, nil
	}
	w.flying.Delete(r.Event.Owner) // whoever claims the next one may be quicker than our answer
	if _, err := w.s.Record(w.t.Context(), []surehook.Outcome{o}, nil); err != nil {
		w.t.Error(err)
	}
}

// Nodes that claim, report and replay at one time never have two rows of a
// sequence out, and leave none parked behind nothing.
func TestOrderUnderContention(t *testing.T) {
	dsn := migrated(t)
	a, b := reopenable(t, dsn, Options{})(), reopenable(t, dsn, Options{})()
	ctx := t.Context()
	ep := &surehook.Endpoint{ID: "whk_1", URL: "https://example.com", EventTypes: []string{"*"}, Enabled: true, Ordered: true}
	if err := a.CreateEndpoint(ctx, ep, 0, nil); err != nil {
		t.Fatal(err)
	}
	_, version, err := a.Changes(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	var flying sync.Map
	var senders sync.WaitGroup
	stop := make(chan struct{})
	for i := range 4 {
		w := &sender{t: t, s: []*Store{a, b}[i%2], key: ep.Key, flying: &flying}
		senders.Go(func() { w.run(stop) })
	}
	var events []int64
	for i := range 300 {
		e := &surehook.Event{ID: fmt.Sprintf("evt_%d", i), Type: "a", Owner: fmt.Sprintf("o%d", i%5), OccurredAt: time.Now(), Data: []byte("1")}
		out, err := []*Store{a, b}[i%2].Append(ctx, version, []surehook.Append{{Event: e, Targets: []surehook.Target{{EndpointKey: ep.Key, Ordered: true}}}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		events = append(events, out[0].EventKey)
		if i%3 == 0 {
			if _, err := a.Replay(ctx, ep.Key, []int64{events[rand.IntN(len(events))]}, nil); err != nil {
				t.Fatal(err)
			}
		}
	}
	for limit := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) { //nolint:forbidigo // nobody tells
		n, err := a.PendingCount(ctx)
		if err != nil || time.Now().After(limit) {
			t.Errorf("still pending: %+v, %v", n, err)
			break
		}
		if n == (surehook.PendingCount{}) {
			break
		}
	}
	close(stop)
	senders.Wait()
}
