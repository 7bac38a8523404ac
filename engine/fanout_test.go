package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// enqueue adds an event in a transaction of its own.
func (b *bed) enqueue(ev surehook.Event) {
	b.t.Helper()
	if b.dsn == "" {
		err := b.store.(*sqlite.Store).Tx(b.t.Context(), func(tx *sqlite.Tx) error {
			_, err := tx.Enqueue(ev)
			return err
		})
		if err != nil {
			b.t.Fatal(err)
		}
		return
	}
	conn, err := pgx.Connect(b.t.Context(), b.dsn)
	if err != nil {
		b.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	err = pgx.BeginFunc(b.t.Context(), conn, func(tx pgx.Tx) error {
		_, err := postgres.EnqueueTx(b.t.Context(), tx, ev)
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// alter changes the schema between two processes.
func (b *bed) alter(onSQLite, onPostgres string) {
	b.t.Helper()
	b.close()
	if b.dsn != "" {
		b.sql(onPostgres)
	} else {
		c, err := sqlite3.Open(b.path)
		if err == nil {
			err = errors.Join(c.Exec(onSQLite), c.Close())
		}
		if err != nil {
			b.t.Fatal(err)
		}
	}
	b.open()
}

// refuseBad has the database itself refuse the event "bad".
func (b *bed) refuseBad() {
	b.alter(`CREATE TRIGGER refuse BEFORE INSERT ON events WHEN NEW.id = 'bad' BEGIN SELECT RAISE(ABORT, 'refused by the test'); END`,
		`CREATE FUNCTION surehook.refuse() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''refused by the test''; END';
		CREATE TRIGGER refuse BEFORE INSERT ON surehook.events FOR EACH ROW WHEN (NEW.id = 'bad') EXECUTE FUNCTION surehook.refuse()`)
}

// fanning is a store that tells what is put off, and fails fan-outs at first.
type fanning struct {
	surehook.Store
	put chan surehook.PutOff

	mu   sync.Mutex
	fail []func(items []surehook.Append) ([]surehook.Appended, error) // the next fan-outs' answers
}

func (f *fanning) PutOff(ctx context.Context, events []surehook.PutOff) error {
	err := f.Store.PutOff(ctx, events)
	for _, p := range events {
		f.put <- p
	}
	return err
}

func (f *fanning) Append(ctx context.Context, version int64, items []surehook.Append) ([]surehook.Appended, error) {
	f.mu.Lock()
	if len(items) > 0 && items[0].Outbox != 0 && len(f.fail) > 0 {
		next := f.fail[0]
		f.fail = f.fail[1:]
		f.mu.Unlock()
		return next(items)
	}
	f.mu.Unlock()
	return f.Store.Append(ctx, version, items)
}

// fanned gives the engine such a store, from its next start on.
func (b *bed) fanned() *fanning {
	f := &fanning{put: make(chan surehook.PutOff, 16)}
	b.wrap = func(s surehook.Store) surehook.Store { f.Store = s; return f }
	return f
}

func (f *fanning) next(t *testing.T) surehook.PutOff {
	t.Helper()
	select {
	case p := <-f.put:
		return p
	case <-time.After(20 * time.Second):
		t.Fatal("nothing was put off in 20 s")
		return surehook.PutOff{}
	}
}

// An event of the outbox that the store refuses is tried again after 30 s, and after
// twice as long each time, up to 5 minutes, in whichever process. It holds up nobody,
// not even its owner, and isn't lost: when nothing is in its way any more it goes.
func TestARefusedEventIsTriedLater(t *testing.T) { both(t, testRefusedLater) }

func testRefusedLater(t *testing.T, b *bed) {
	f := b.fanned()
	b.refuseBad()
	r := receivertest.New(t, nil)
	b.hook(r)
	for _, id := range []string{"bad", "next"} {
		b.enqueue(surehook.Event{ID: id, Type: "a", Owner: "o", Data: []byte(`1`)})
	}
	b.enqueue(surehook.Event{ID: "other", Type: "a", Data: []byte(`1`)})
	r.Wait(t, 2)
	const near = 20 * time.Second // real time goes on too
	for i, want := range []time.Duration{30 * time.Second, time.Minute, 2 * time.Minute, 4 * time.Minute, 5 * time.Minute, 5 * time.Minute} {
		if got := f.next(t); got.Wait != want || got.Refused != i {
			t.Fatalf("refusal %d: %+v, want a wait of %s", i+1, got, want)
		}
		b.leap(want - near)
		if i%2 == 0 {
			b.restart()
		}
		if rows, err := b.store.Outbox(t.Context(), 10); err != nil || len(rows) > 0 {
			t.Fatalf("refusal %d: %+v before its time, %v", i+1, rows, err)
		}
		b.leap(near)
	}
	f.next(t)
	if c, err := b.store.Counts(t.Context()); err != nil || c.Undispatched.IsZero() {
		t.Errorf("nobody is told of it: %+v, %v", c, err)
	}
	if s := b.logs.String(); !strings.Contains(s, "event_id=bad times=6 retry_in=5m0s") {
		t.Errorf("no word in the log: %s", s)
	}
	if _, err := b.store.Event(t.Context(), nil, "bad"); surehook.CodeOf(err) != surehook.NotFound {
		t.Errorf("it is there: %v", err)
	}
	b.alter(`DROP TRIGGER refuse`, `DROP TRIGGER refuse ON surehook.events`)
	b.leap(5 * time.Minute)
	if got := ids(r.Wait(t, 3)); got[2] != "bad" {
		t.Errorf("got %q", got)
	}
	b.idle()
	if ev, err := b.store.Event(t.Context(), nil, "bad"); err != nil || ev.Sequence != 2 {
		t.Errorf("%+v, %v", ev, err)
	}
}

// A store that is away has refused nothing: all is tried again in a moment. So is an
// event that was left out because the store went away in the middle, or because
// endpoints changed.
func TestAFanOutThatCouldntBeMadeIsRepeatedAtOnce(t *testing.T) { both(t, testFanOutRepeated) }

func testFanOutRepeated(t *testing.T, b *bed) {
	f := b.fanned()
	b.restart()
	r := receivertest.New(t, nil)
	b.hook(r)
	away := surehook.Errorf(surehook.Unavailable, "away")
	each := func(err error) func([]surehook.Append) ([]surehook.Appended, error) {
		return func(items []surehook.Append) ([]surehook.Appended, error) {
			out := make([]surehook.Appended, len(items))
			for i := range out {
				out[i].Err = err
			}
			return out, nil
		}
	}
	whole := func([]surehook.Append) ([]surehook.Appended, error) { return nil, away }
	f.mu.Lock()
	f.fail = []func([]surehook.Append) ([]surehook.Appended, error){whole, whole, each(away), each(surehook.ErrConfigChanged), whole}
	f.mu.Unlock()
	b.enqueue(surehook.Event{ID: "one", Type: "a", Data: []byte(`1`)})
	if got := ids(r.Wait(t, 1)); got[0] != "one" {
		t.Errorf("got %q", got)
	}
	b.idle()
	if n := len(f.put); n > 0 {
		t.Errorf("%d were put off", n)
	}
	if n := strings.Count(b.logs.String(), "couldn't be fanned out; trying again"); n != 5 {
		t.Errorf("%d failures were told of", n)
	}
}
