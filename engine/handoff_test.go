package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/store/postgres"
)

// follower is a function that events are handed to.
type follower struct {
	mu   sync.Mutex
	seen []surehook.Event
}

func (f *follower) handoff(_ context.Context, ev surehook.Event) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen = append(f.seen, ev)
	return nil
}

func (f *follower) ids() (out []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, ev := range f.seen {
		out = append(out, ev.ID)
	}
	return out
}

// Whichever way an event comes, it is handed over once its deliveries are queued,
// and with what it got at its acceptance.
func TestHandoffSeesWhatIsFannedOut(t *testing.T) { onBoth(t, testHandoffSees) }

func testHandoffSees(t *testing.T, dsn string) {
	f := &follower{}
	var b *bed
	b = prepare(t, func(o *engine.Options) {
		o.Handoff = func(ctx context.Context, ev surehook.Event) error {
			if ev.Type == "a" {
				if n := len(b.deliveries(ev.ID)); n != 1 {
					t.Errorf("%s is handed over with %d deliveries queued", ev.ID, n)
				}
			}
			return f.handoff(ctx, ev)
		}
	})
	b.dsn = dsn
	b.open()
	r := receivertest.New(t, always(receivertest.Answer{Status: 410}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"} })
	if _, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	publish := func(id, typ string) {
		t.Helper()
		if _, err := b.Publish(t.Context(), surehook.Event{ID: id, Type: typ, Tenant: "acme", Owner: "box", Data: []byte(`"` + id + `"`)}); err != nil {
			t.Fatal(err)
		}
	}
	publish("nobodys", "b")
	publish("nobodys", "b") // a repeat
	publish("somebodys", "a")
	b.until("webhook.disabled was fanned out too", func() bool { return len(f.ids()) == 3 })
	b.enqueue(surehook.Event{ID: "outbox", Type: "c", Tenant: "acme", Owner: "box", Data: []byte("1")})
	b.until("the outbox's", func() bool { return len(f.ids()) == 4 })
	ids := f.ids()
	if disabled := f.seen[2]; !slices.Equal([]string{ids[0], ids[1], ids[3]}, []string{"nobodys", "somebodys", "outbox"}) || disabled.Type != surehook.TypeDisabled {
		t.Errorf("%q", ids)
	}
	for i, want := range map[int]int64{0: 1, 1: 2, 3: 3} {
		if ev := f.seen[i]; ev.Sequence != want || ev.Tenant != "acme" || len(ev.Data) == 0 || ev.CreatedAt.IsZero() {
			t.Errorf("%d: %+v", i, ev)
		}
	}
	if n := b.HandoffsLost(); n != 0 {
		t.Errorf("%d lost", n)
	}
}

// A function that hangs costs the hand-offs for which there is no room, and
// nothing else: not even a stop waits longer than it may.
func TestHandoffThatHangsDelaysNothing(t *testing.T) { onBoth(t, testHandoffThatHangs) }

func testHandoffThatHangs(t *testing.T, dsn string) {
	const waiting, more = 1024, 7 // what is kept, and what there is no room for
	entered, release := make(chan string, 1), make(chan struct{})
	b := prepare(t, func(o *engine.Options) {
		o.Handoff = func(_ context.Context, ev surehook.Event) error {
			entered <- ev.ID
			<-release
			return nil
		}
	})
	b.dsn = dsn
	b.open()
	r := receivertest.New(t, nil)
	b.hook(r)
	first := b.publish("a", "0").ID
	if id := <-entered; id != first {
		t.Fatal(id)
	}
	events := make([]surehook.Event, waiting+more)
	for i := range events {
		events[i] = surehook.Event{Type: "a", Tenant: "acme", Data: []byte(fmt.Sprint(i))}
	}
	receipts, err := b.Enqueue(t.Context(), events...)
	if err != nil {
		t.Fatal(err)
	}
	r.Wait(t, 1+len(events))
	b.idle()
	if n := b.HandoffsLost(); n != more {
		t.Errorf("%d are counted as lost, want %d", n, more)
	}
	for i, receipt := range receipts {
		line := "notifier_handoff_failed event_id=" + receipt.ID + " tenant_id=acme"
		if lost := strings.Contains(b.logs.String(), line); lost != (i >= waiting) {
			t.Errorf("event %d: logged as lost: %v", i, lost)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		t.Error(err)
	}
	if n := b.HandoffsLost(); n != more+waiting {
		t.Errorf("after the stop %d are counted as lost, want %d", n, more+waiting)
	}
	close(release)
}

func TestHandoffThatFails(t *testing.T) {
	var f *follower
	both(t, func(t *testing.T, b *bed) {
		r := receivertest.New(t, nil)
		b.hook(r)
		for i := range 4 {
			b.publish("a", fmt.Sprint(i))
		}
		r.Wait(t, 4)
		b.until("all four are handed over", func() bool { return len(f.ids()) == 4 && b.HandoffsLost() == 2 })
		for _, want := range []string{`tenant_id="" error="no notifier there"`, `tenant_id="" error="panic: a notifier's fault"`} {
			if !strings.Contains(b.logs.String(), want) {
				t.Errorf("the log misses %s", want)
			}
		}
		b.idle()
	}, func(o *engine.Options) {
		f = &follower{}
		o.Handoff = func(ctx context.Context, ev surehook.Event) error {
			_ = f.handoff(ctx, ev)
			if _, bounded := ctx.Deadline(); !bounded {
				t.Error("a call without a bound")
			}
			switch string(ev.Data) {
			case "1":
				return errors.New("no notifier there")
			case "2":
				panic("a notifier's fault")
			}
			return nil
		}
	})
}

// A stop hands over what waits.
func TestStopHandsOver(t *testing.T) { onBoth(t, testStopHandsOver) }

func testStopHandsOver(t *testing.T, dsn string) {
	f := &follower{}
	gate := make(chan struct{})
	b := prepare(t, func(o *engine.Options) {
		o.Handoff = func(ctx context.Context, ev surehook.Event) error {
			<-gate
			return f.handoff(ctx, ev)
		}
	})
	b.dsn = dsn
	b.open()
	for range 100 {
		b.publish("a", "1")
	}
	close(gate)
	if err := b.Stop(t.Context()); err != nil || len(f.ids()) != 100 || b.HandoffsLost() != 0 {
		t.Errorf("%d were handed over, %d lost, %v", len(f.ids()), b.HandoffsLost(), err)
	}
}

// The end of a wide fan-out is when all its deliveries are queued.
func TestHandoffFollowsAWideFanOut(t *testing.T) { onBoth(t, testHandoffFollows) }

func testHandoffFollows(t *testing.T, dsn string) {
	f := &follower{}
	var b *bed
	const endpoints = 12
	queued := make(chan int, 1)
	b = prepare(t, func(o *engine.Options) {
		o.MaxWebhooks = -1
		o.Handoff = func(ctx context.Context, ev surehook.Event) error {
			queued <- len(b.deliveries(ev.ID))
			return f.handoff(ctx, ev)
		}
	})
	b.dsn, b.wrap = dsn, func(s surehook.Store) surehook.Store { return narrow{s} }
	b.open()
	r := receivertest.New(t, nil)
	for range endpoints {
		b.hook(r)
	}
	b.publish("a", "1")
	if n := <-queued; n != endpoints {
		t.Errorf("handed over with %d of %d deliveries queued", n, endpoints)
	}
	b.idle()
}

// narrow is a store that takes few rows in a transaction.
type narrow struct{ surehook.Store }

func (narrow) MaxTargets() int { return 5 }

// Of several nodes one sees an event: the one that fanned it out.
func TestHandoffOnOneNodeOfTwo(t *testing.T) {
	dsn := database(t)
	var followers [2]*follower
	var engines [2]*engine.Engine
	for i := range engines {
		followers[i] = &follower{}
		store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = store.Close() })
		engines[i], err = engine.New(engine.Options{Store: store, MasterKeys: [][]byte{masterKey}, Handoff: followers[i].handoff,
			AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		if err := engines[i].Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
			defer cancel()
			if err := engines[i].Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	var want []string
	for i, e := range engines {
		r, err := e.Publish(t.Context(), surehook.Event{ID: fmt.Sprint("api-", i), Type: "a", Data: []byte("1")})
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, r.ID)
	}
	conn := (&outboxBed{t: t, dsn: dsn}).connect()
	for i := range 200 {
		id := fmt.Sprint("sql-", i)
		if _, err := conn.Exec(t.Context(), `SELECT surehook.enqueue('a', '1', id => $1)`, id); err != nil {
			t.Fatal(err)
		}
		want = append(want, id)
	}
	seen := func() []string { return slices.Concat(followers[0].ids(), followers[1].ids()) }
	for limit := time.Now().Add(30 * time.Second); len(seen()) < len(want) && time.Now().Before(limit); {
		time.Sleep(10 * time.Millisecond) //nolint:forbidigo // nobody tells
	}
	for _, e := range engines { // and what is under way comes to its end
		if err := e.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}
	got := seen()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("%d events were handed over, %d fanned out", len(got), len(want))
	}
	for i := range engines {
		if !slices.Contains(followers[i].ids(), fmt.Sprint("api-", i)) {
			t.Errorf("node %d didn't see the event that it accepted", i)
		}
	}
}
