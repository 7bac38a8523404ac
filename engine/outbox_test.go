package engine_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// outboxBed is an engine on PostgreSQL with an application's connections to the
// same database.
type outboxBed struct {
	*engine.Engine
	t     *testing.T
	dsn   string
	store *postgres.Store
	logs  *safeBuffer
}

func startOutbox(t *testing.T) *outboxBed {
	t.Helper()
	b := &outboxBed{t: t, dsn: database(t), logs: &safeBuffer{}}
	var err error
	if b.store, err = postgres.Open(t.Context(), b.dsn, postgres.Options{}); err != nil {
		t.Fatal(err)
	}
	b.run(b.store)
	return b
}

// run starts an engine on the store, or on one that stands before it.
func (b *outboxBed) run(store surehook.Store) {
	b.t.Helper()
	var err error
	b.Engine, err = engine.New(engine.Options{Store: store, MasterKeys: [][]byte{masterKey}, Logger: slog.New(slog.NewTextHandler(b.logs, nil)),
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	b.end(err)
	b.end(b.Start(b.t.Context()))
	b.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(b.Stop(ctx), b.store.Close()); err != nil {
			b.t.Error(err)
		}
	})
}

func (b *outboxBed) connect() *pgx.Conn {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func (b *outboxBed) hook(r *receivertest.Receiver, change ...func(*engine.Webhook)) *surehook.Endpoint {
	b.t.Helper()
	w := engine.Webhook{URL: r.URL + "/in"}
	for _, f := range change {
		f(&w)
	}
	ep, _, err := b.CreateWebhook(b.t.Context(), w, engine.Actor{})
	if err != nil {
		b.t.Fatal(err)
	}
	return ep
}

// begin opens a transaction and adds an event of an owner in it.
func (b *outboxBed) begin(conn *pgx.Conn, id, owner string) pgx.Tx {
	b.t.Helper()
	tx, err := conn.Begin(b.t.Context())
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := postgres.EnqueueTx(b.t.Context(), tx, surehook.Event{ID: id, Type: "a.b", Owner: owner, Data: []byte(`1`)}); err != nil {
		b.t.Fatal(err)
	}
	return tx
}

func (b *outboxBed) end(err error) {
	b.t.Helper()
	if err != nil {
		b.t.Fatal(err)
	}
}

func (b *outboxBed) publish(id, owner string) {
	b.t.Helper()
	if _, err := b.Publish(b.t.Context(), surehook.Event{ID: id, Type: "a.b", Owner: owner, Data: []byte(`1`)}); err != nil {
		b.t.Fatal(err)
	}
}

// settled waits until an event is fanned out, and gives it.
func (b *outboxBed) settled(id string) *surehook.Event {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(20 * time.Second); ; {
		ev, err := b.store.Event(b.t.Context(), nil, id)
		if err == nil {
			return ev
		}
		select {
		case <-tick.C:
		case <-limit:
			b.t.Fatalf("event %s: %v\n%s", id, err, b.logs)
		}
	}
}

func ids(rs []receivertest.Request) (out []string) {
	for _, r := range rs {
		out = append(out, r.ID())
	}
	return out
}

// Committed: delivered. Rolled back: no event, no delivery, and no gap.
func TestOutboxCommitAndRollback(t *testing.T) {
	b := startOutbox(t)
	r := receivertest.New(t, nil)
	b.hook(r, func(w *engine.Webhook) { w.Profile = "pylota" })
	conn := b.connect()
	b.end(b.begin(conn, "first", "o").Commit(t.Context()))
	b.end(b.begin(conn, "undone", "o").Rollback(t.Context()))
	var id string
	b.end(conn.QueryRow(t.Context(), `SELECT surehook.enqueue('a.b', '{"n": 1.0}', 'acme', id => 'second', owner => 'o')`).Scan(&id))
	b.end(b.begin(conn, "third", "o").Commit(t.Context()))
	got := r.Wait(t, 3)
	b.settled("third")
	if _, err := b.store.Event(t.Context(), nil, "undone"); surehook.CodeOf(err) != surehook.NotFound {
		t.Errorf("an event of a transaction that was rolled back: %v", err)
	}
	want := map[string]int64{"first": 1, "second": 1, "third": 2} // the second is a tenant's, whose owner is another
	for _, req := range got {
		var body struct {
			ID       string
			Sequence *int64
			Data     json.RawMessage
		}
		if err := json.Unmarshal(req.Body, &body); err != nil {
			t.Fatal(err)
		}
		if body.Sequence == nil || *body.Sequence != want[body.ID] || req.Get("surehook-sequence") != fmt.Sprint(want[body.ID]) {
			t.Errorf("%s, %q", req.Body, req.Get("surehook-sequence"))
		}
		if body.ID == "second" && !bytes.HasSuffix(req.Body, []byte(`"data":{"n": 1.0}}`)) {
			t.Errorf("%s", req.Body)
		}
	}
	if n := len(r.Requests()); n != 3 {
		t.Errorf("%d requests: %q", n, ids(r.Requests()))
	}
}

// C-10: a transaction that stays open keeps nobody waiting, not even its owner's
// other events; what it added follows its commit.
func TestOutboxHeldOpen(t *testing.T) {
	b := startOutbox(t)
	r := receivertest.New(t, nil)
	b.hook(r)
	held := b.begin(b.connect(), "held", "o")
	conn := b.connect()
	const others = 1000
	for i := range others {
		id := fmt.Sprintf("other-%d", i)
		switch {
		case i%4 == 0:
			b.publish(id, "o")
		case i%4 == 1:
			b.end(b.begin(conn, id, "o").Commit(t.Context()))
		default:
			b.publish(id, "")
		}
	}
	r.Wait(t, others)
	if got := ids(r.Requests()); len(got) != others {
		t.Fatalf("%d requests before the commit", len(got))
	}
	b.end(held.Commit(t.Context()))
	if got := ids(r.Wait(t, others+1)); got[others] != "held" {
		t.Errorf("the last to arrive is %s", got[others])
	}
	if ev := b.settled("held"); ev.Sequence != others/2+1 {
		t.Errorf("its sequence is %d, want %d: the order of commits", ev.Sequence, others/2+1)
	}
}

// slow is a store whose outbox is read only when the test says so.
type slow struct {
	surehook.Store
	gate chan struct{}
}

func (s slow) Outbox(ctx context.Context, limit int) ([]surehook.OutboxEvent, error) {
	select {
	case <-s.gate:
		return s.Store.Outbox(ctx, limit)
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// An endpoint gets what was accepted after it was made: what counts is the commit,
// neither the statement nor the fan-out.
func TestOutboxAndYoungerEndpoints(t *testing.T) {
	dsn := database(t)
	store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	gate := make(chan struct{})
	b := &outboxBed{t: t, dsn: dsn, store: store, logs: &safeBuffer{}}
	b.run(slow{store, gate})
	early, before, after := receivertest.New(t, nil), receivertest.New(t, nil), receivertest.New(t, nil)
	b.hook(early)
	tx := b.begin(b.connect(), "event", "")
	b.hook(before)
	b.end(tx.Commit(t.Context()))
	b.hook(after)
	close(gate) // the fan-out begins
	early.Wait(t, 1)
	before.Wait(t, 1)
	b.publish("later", "") // which all get
	early.Wait(t, 2)
	before.Wait(t, 2)
	if got := ids(after.Wait(t, 1)); len(got) != 1 || got[0] != "later" {
		t.Errorf("the endpoint that was made after the commit got %q", got)
	}
	ev := b.settled("event")
	ds, err := store.EventDeliveries(t.Context(), ev.Key, surehook.Page{Limit: 10})
	if err != nil || len(ds) != 2 {
		t.Errorf("%d deliveries, %v", len(ds), err)
	}
}

// heard is a store whose outbox looks empty until a notice of it has come: a poll
// alone finds nothing there.
type heard struct {
	surehook.Store
	notice *atomic.Bool
}

func (h heard) Watch(f func(surehook.Change)) {
	if f == nil {
		h.Store.Watch(nil)
		return
	}
	h.Store.Watch(func(c surehook.Change) {
		if c.Outbox && !c.Config { // not the look at everything that follows a new connection
			h.notice.Store(true)
		}
		f(c)
	})
}

func (h heard) Outbox(ctx context.Context, limit int) ([]surehook.OutboxEvent, error) {
	out, err := h.Store.Outbox(ctx, limit)
	if len(out) > 0 && !h.notice.Swap(false) {
		return nil, err
	}
	return out, err
}

// When nothing else goes on, it is the commit's notice that wakes the fan-out, and
// not its slow poll.
func TestOutboxWakesTheFanOut(t *testing.T) {
	dsn := database(t)
	store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	b := &outboxBed{t: t, dsn: dsn, store: store, logs: &safeBuffer{}}
	b.run(heard{store, &atomic.Bool{}})
	r := receivertest.New(t, nil)
	b.hook(r)
	conn := b.connect()
	for i := range 10 {
		b.waitAsleep(conn)
		b.end(b.begin(conn, fmt.Sprint("event-", i), "").Commit(t.Context()))
		r.Wait(t, i+1)
	}
}

// So it is in one process, where a transaction tells of itself.
func TestOutboxOnSQLiteWakesTheFanOut(t *testing.T) {
	b := prepare(t)
	b.wrap = func(s surehook.Store) surehook.Store { return heard{s, &atomic.Bool{}} }
	b.open()
	r := receivertest.New(t, nil)
	b.hook(r)
	for i := range 3 {
		b.enqueue(surehook.Event{Type: "a", Data: []byte(`1`)})
		r.Wait(t, i+1)
	}
}

// waitAsleep waits until the fan-out has found nothing, and hears notices.
func (b *outboxBed) waitAsleep(conn *pgx.Conn) {
	b.t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(20 * time.Second); ; {
		var asleep bool
		b.end(conn.QueryRow(b.t.Context(), `SELECT value = 1 AND EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND query LIKE 'LISTEN "surehook.echo%') FROM surehook.counters WHERE name = 'asleep'`).Scan(&asleep))
		if asleep {
			return
		}
		select {
		case <-tick.C:
		case <-limit:
			b.t.Fatal("the fan-out doesn't fall asleep")
		}
	}
}

// An event whose id another one has got since is refused, which blocks neither
// its owner nor anybody else.
func TestOutboxConflict(t *testing.T) {
	b := startOutbox(t)
	r := receivertest.New(t, nil)
	b.hook(r)
	conn := b.connect()
	tx := b.begin(conn, "same", "o")
	b.publish("same", "") // the same id, of another owner: other content
	b.end(tx.Commit(t.Context()))
	b.end(b.begin(conn, "next", "o").Commit(t.Context()))
	if got := ids(r.Wait(t, 2)); got[0] != "same" || got[1] != "next" {
		t.Errorf("got %q", got)
	}
	if ev := b.settled("next"); ev.Sequence != 1 {
		t.Errorf("sequence %d", ev.Sequence)
	}
	log, err := b.store.ListAudit(t.Context(), "", surehook.Page{Limit: 10})
	if err != nil || len(log) == 0 || log[0].Action != "event.refused" || log[0].Target != "same" {
		t.Errorf("%+v, %v", log, err)
	}
	if s := b.logs.String(); !strings.Contains(s, "level=ERROR") || !strings.Contains(s, "event_id=same") {
		t.Errorf("no word in the log: %s", s)
	}
}

// The same within SQLite: the application's tables and events in one transaction,
// and the engine hears of it.
func TestOutboxOnSQLite(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	b.hook(r, func(w *engine.Webhook) { w.Profile = "pylota" })
	add := func(id string, undo error) error {
		return b.store.(*sqlite.Store).Tx(t.Context(), func(tx *sqlite.Tx) error {
			if _, err := tx.Exec(`CREATE TABLE IF NOT EXISTS app_orders (id TEXT PRIMARY KEY)`); err != nil {
				return err
			}
			if _, err := tx.Exec(`INSERT INTO app_orders (id) VALUES (?)`, id); err != nil {
				return err
			}
			_, err := tx.Enqueue(surehook.Event{ID: id, Type: "a.b", Owner: "o", Data: []byte(`1`)})
			return errors.Join(err, undo)
		})
	}
	boom := errors.New("boom")
	for i, c := range []struct {
		id   string
		undo error
	}{{"first", nil}, {"undone", boom}, {"second", nil}} {
		if err := add(c.id, c.undo); !errors.Is(err, c.undo) {
			t.Fatal(i, err)
		}
	}
	if _, err := b.Publish(t.Context(), surehook.Event{ID: "third", Type: "a.b", Owner: "o", Data: []byte(`1`)}); err != nil {
		t.Fatal(err)
	}
	for _, req := range r.Wait(t, 3) {
		want := map[string]string{"first": "1", "second": "2", "third": "3"}[req.ID()]
		if req.Get("surehook-sequence") != want || !bytes.Contains(req.Body, []byte(`"sequence":`+want+`,`)) {
			t.Errorf("%s: %q, %s", req.ID(), req.Get("surehook-sequence"), req.Body)
		}
	}
	b.idle()
	if n := len(r.Requests()); n != 3 {
		t.Errorf("%d requests: %q", n, ids(r.Requests()))
	}
}
