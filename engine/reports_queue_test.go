package engine_test

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// Faults that left rows of other senders' queues behind; see
// docs/field-reports.md.

// forgetful is a store that now and then doesn't write outcomes, or writes them
// and says that it didn't.
type forgetful struct {
	surehook.Store
	mu    sync.Mutex
	n     int
	calls map[string]int
}

func (f *forgetful) Record(ctx context.Context, os []surehook.Outcome, rules map[int64]surehook.HealthRule) (surehook.Recorded, error) {
	f.mu.Lock()
	n := f.n % 30
	f.n++
	f.calls[[]string{"busy", "broken", "forgotten", "fine"}[min(n, 3)]]++
	f.mu.Unlock()
	switch n {
	case 0:
		return surehook.Recorded{}, surehook.Errorf(surehook.Unavailable, "busy")
	case 1:
		return surehook.Recorded{}, surehook.Errorf(surehook.Internal, "broken")
	}
	got, err := f.Store.Record(ctx, os, rules)
	if n == 2 && err == nil {
		return surehook.Recorded{}, surehook.Errorf(surehook.Unavailable, "the answer got lost")
	}
	return got, err
}

// C-01: whatever becomes of the writes of outcomes, no row stays held: each event
// is delivered or dead in the end, also over a stop in the middle.
func TestC01_NoRowStaysHeld(t *testing.T) {
	const events = 600
	f := &forgetful{calls: map[string]int{}}
	b := prepare(t)
	b.wrap = func(s surehook.Store) surehook.Store { f.Store = s; return f }
	b.open()
	r := receivertest.New(t, func(n int, _ receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Status: []int{200, 200, 500}[n%3]}
	})
	b.hook(r, func(w *engine.Webhook) { w.Limits.Attempts, w.Limits.Concurrency = 3, 32 })
	var all []string
	for range events / 100 {
		batch := make([]surehook.Event, 100)
		for i := range batch {
			batch[i] = surehook.Event{Type: "a", Data: []byte("1")}
		}
		got, err := b.Enqueue(t.Context(), batch...)
		if err != nil {
			t.Fatal(err)
		}
		for _, one := range got {
			all = append(all, one.ID)
		}
	}
	r.Wait(t, events/3)
	b.restart()
	b.idle() // no row is left, held or free
	ended := map[surehook.DeliveryStatus]int{}
	for _, id := range all {
		for _, d := range b.deliveries(id) {
			ended[d.Status]++
		}
	}
	if ended[surehook.Succeeded]+ended[surehook.Dead] != events {
		t.Errorf("%d events ended as %v", events, ended)
	}
	if f.calls["busy"] == 0 || f.calls["broken"] == 0 || f.calls["forgotten"] == 0 {
		t.Errorf("the store was too well: %v", f.calls)
	}
}

// node runs an engine of its own on a PostgreSQL database.
func node(t *testing.T, dsn string) (e *engine.Engine, stop func()) {
	t.Helper()
	s, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err = engine.New(engine.Options{Store: s, MasterKeys: [][]byte{masterKey}, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err == nil {
		err = e.Start(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
	stop = sync.OnceFunc(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(e.Stop(ctx), s.Close()); err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return e, stop
}

// C-02: a node that is asked to stop ends what is in flight and frees the rest at
// once: another one sends it, long before a lease runs out, and no attempt counts
// twice.
func TestC02_AnotherNodeTakesOver(t *testing.T) {
	const events = 100
	dsn := database(t)
	first, stop := node(t, dsn)
	gate := make(chan struct{})
	r := receivertest.New(t, always(receivertest.Answer{Gate: gate}))
	ep, _, err := first.CreateWebhook(t.Context(), engine.Webhook{URL: r.URL, Limits: surehook.Limits{Concurrency: 10}}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	for i := range events {
		if _, err := first.Publish(t.Context(), surehook.Event{ID: fmt.Sprint("evt_", i), Type: "a", Data: []byte("1")}); err != nil {
			t.Fatal(err)
		}
	}
	r.Wait(t, 10)
	second, _ := node(t, dsn)
	stopped := make(chan struct{})
	go func() { stop(); close(stopped) }()
	r.Use(nil)
	close(gate)
	<-stopped
	r.Wait(t, events) // in 20 s; a lease has 90
	waitIdle(t, second.Store())
	if n := len(r.Requests()); n != events {
		t.Errorf("%d requests for %d events", n, events)
	}
	as, err := second.Store().EndpointAttempts(t.Context(), ep.Key, surehook.Page{Limit: 1000})
	if err != nil || len(as) != events {
		t.Fatalf("%d attempts, %v", len(as), err)
	}
	for _, a := range as {
		if a.Number != 1 || a.Status != surehook.AttemptSucceeded {
			t.Errorf("%+v", a)
		}
	}
}

// C-11: whoever sees a request can read its event: nothing is sent before its
// commit.
func TestC11_NothingIsSentBeforeItsCommit(t *testing.T) {
	const events = 200
	b := start(t)
	var early sync.Map
	r := receivertest.New(t, func(_ int, r receivertest.Request) receivertest.Answer {
		if _, err := b.store.Event(context.Background(), nil, r.ID()); err != nil {
			early.Store(r.ID(), err)
		}
		return receivertest.Answer{}
	})
	b.hook(r, func(w *engine.Webhook) { w.Limits.Concurrency = 32 })
	for i := range events {
		b.publish("a", fmt.Sprint(i))
	}
	r.Wait(t, events)
	b.idle()
	early.Range(func(id, err any) bool {
		t.Errorf("%s was sent, and the store says: %v", id, err)
		return true
	})
}

// C-12, C-13: a process that dies between the commit and its lane leaves rows,
// and nothing else is needed: the next one sends them. Its publisher, who heard
// no answer, gets the same event when it asks again, and no second request.
func TestC12_TheRowIsTheQueue(t *testing.T) {
	for _, first := range []string{"the next process", "the publisher"} {
		t.Run(first+" comes first", func(t *testing.T) {
			b := start(t)
			r := receivertest.New(t, nil)
			ep, secret := b.hook(r)
			b.close()
			s, err := sqlite.Open(t.Context(), b.path, sqlite.Options{Now: b.now})
			if err != nil {
				t.Fatal(err)
			}
			_, version, err := s.Changes(t.Context(), 0)
			if err != nil {
				t.Fatal(err)
			}
			ev := surehook.Event{ID: "own", Type: "a", Data: []byte("1")}
			stored := ev
			stored.OccurredAt = b.now()
			out, err := s.Append(t.Context(), version, []surehook.Append{{Event: &stored, Targets: []surehook.Target{{EndpointKey: ep.Key, Owned: true}}}})
			if err = errors.Join(err, out[0].Err, s.Close()); err != nil { // no lane has heard of it
				t.Fatal(err)
			}
			b.open()
			if first == "the next process" {
				verify(t, secret, r.Wait(t, 1)[0])
			}
			if got, err := b.Publish(t.Context(), ev); err != nil || !got.Duplicate || got.ID != "own" {
				t.Errorf("published again: %+v, %v", got, err)
			}
			verify(t, secret, r.Wait(t, 1)[0])
			b.idle()
			if n := len(r.Requests()); n != 1 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// C-19: when every connection to the database breaks at once, publishers are told
// to come again, and sending goes on by itself.
func TestC19_BrokenConnectionsStopNothing(t *testing.T) {
	const events = 300
	b := startOutbox(t)
	r := receivertest.New(t, nil)
	b.hook(r, func(w *engine.Webhook) { w.Limits.Concurrency = 32 })
	conn := b.connect()
	for i := range events {
		if i%100 == 50 {
			var n int
			b.end(conn.QueryRow(t.Context(), `SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
				WHERE datname = current_database() AND pid <> pg_backend_pid()`).Scan(&n))
			if n == 0 {
				t.Fatal("there was no connection to break")
			}
		}
		for {
			_, err := b.Publish(t.Context(), surehook.Event{ID: fmt.Sprint("evt_", i), Type: "a", Data: []byte("1")})
			if err == nil {
				break
			}
			if surehook.CodeOf(err) != surehook.Unavailable {
				t.Fatal(err)
			}
		}
	}
	waitIdle(t, b.store)
	seen := map[string]bool{}
	for _, id := range ids(r.Requests()) {
		seen[id] = true
	}
	if len(seen) != events {
		t.Errorf("%d of %d events arrived", len(seen), events)
	}
}
