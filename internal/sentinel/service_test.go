package sentinel

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }

// remote is a provider whose other side is elsewhere: it outlives the server, and
// answers as it is told.
type remote struct {
	mu       sync.Mutex
	watches  map[string]bool
	cancels  int // that were asked for
	fails    int // the next so many cancellings fail
	onCreate func() error
}

func (r *remote) Slug() string                              { return "remote" }
func (r *remote) Readiness(context.Context) Readiness       { return Readiness{Ready: true} }
func (r *remote) DefaultTypes(string) []string              { return nil }
func (r *remote) Handle(w Watch) (string, error)            { return "watch of " + w.Sentinel, nil }
func (r *remote) Poll(context.Context, string) (int, error) { return 0, nil }

func (r *remote) CreateWatch(_ context.Context, w Watch) error {
	r.mu.Lock()
	r.watches[w.Handle] = true
	then := r.onCreate
	r.mu.Unlock()
	if then != nil {
		return then()
	}
	return nil
}

func (r *remote) CancelWatch(_ context.Context, handle string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.cancels++; r.fails > 0 {
		r.fails--
		return errors.New("the provider doesn't answer")
	}
	delete(r.watches, handle)
	return nil
}

func (r *remote) live() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for w := range r.watches {
		out = append(out, w)
	}
	slices.Sort(out)
	return out
}

// world is a service on a store that can be closed as by a crash, and opened again.
type world struct {
	*Service
	t     *testing.T
	e     *engine.Engine
	store surehook.Store
	open  func() (surehook.Store, error)
	p     *remote
	after time.Duration // Options.Abandon
}

func both(t *testing.T, f func(t *testing.T, w *world)) {
	run := func(t *testing.T, open func() (surehook.Store, error)) {
		w := &world{t: t, open: open, p: &remote{watches: map[string]bool{}}, after: time.Minute}
		w.start()
		t.Cleanup(w.stop)
		f(t, w)
	}
	t.Run("SQLite", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "surehook.db")
		run(t, func() (surehook.Store, error) { return sqlite.Open(context.Background(), path, sqlite.Options{}) })
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		if testing.Short() {
			t.Skip("the short run, under the race detector, has SQLite alone; the whole one has both")
		}
		dsn := pgserver.Copy(t, "migrated", func(dsn string) error {
			s, err := postgres.Open(context.Background(), dsn, postgres.Options{})
			if err != nil {
				return err
			}
			return s.Close()
		})
		run(t, func() (surehook.Store, error) { return postgres.Open(context.Background(), dsn, postgres.Options{}) })
	})
}

func (w *world) start() {
	w.t.Helper()
	var err error
	if w.store, err = w.open(); err == nil {
		w.e, err = engine.New(engine.Options{Store: w.store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}})
	}
	if err == nil {
		err = w.e.Start(context.Background())
	}
	if err != nil {
		w.t.Fatal(err)
	}
	w.Service = New(Options{Engine: w.e, Providers: NewRegistry(Pushed{}, w.p), Abandon: w.after})
	if err := w.Start(context.Background()); err != nil {
		w.t.Fatal(err)
	}
	if _, err := w.e.OpenSession(context.Background(), engine.SessionScope{}, "agent", false, engine.Actor{}); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_ = w.Stop(ctx)
	_ = w.e.Stop(ctx)
	_ = w.store.Close()
}

func (w *world) create() (View, error) {
	return w.Create(context.Background(), caller, Spec{Match: []MatchClause{{Subject: "a"}}, Until: Until{Kind: "never"}, Provider: "remote",
		Target: Target{Kind: TargetSession, SessionID: "agent"}})
}

var caller = Caller{Principal: "key_1", Manages: true, Sees: func(*surehook.Endpoint) bool { return true }}

// look cancels what is due, not only each 5 s, and counts the watches that are left.
func (w *world) look() int {
	w.t.Helper()
	if _, err := w.cancelWatches(w.t.Context()); err != nil {
		w.t.Error(err)
	}
	return len(w.p.live())
}

func (w *world) until(what string, ok func() bool) {
	w.t.Helper()
	for end := time.Now().Add(10 * time.Second); !ok(); <-time.After(5 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("waited 10 s: %s; watches: %q", what, w.p.live())
		}
	}
}

// A crash between the provider's watch and the sentinel's row leaves no watch.
func TestACrashLeavesNoWatch(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		w.after = 300 * time.Millisecond
		w.stop()
		w.start()
		w.p.onCreate = func() error { return w.store.Close() } // nothing can be written from here on
		if v, err := w.create(); err == nil {
			t.Fatalf("%+v", v)
		}
		if n := len(w.p.live()); n != 1 {
			t.Fatalf("%d watches", n)
		}
		w.stop()
		w.p.onCreate = nil
		w.start()
		w.until("the watch is cancelled", func() bool { return w.look() == 0 })
		if _, err := w.create(); err != nil || len(w.p.live()) != 1 {
			t.Errorf("%v; watches: %q", err, w.p.live())
		}
	})
}

// A sentinel that the provider, or the store, refuses has its watch cancelled at once,
// as often as it takes.
func TestARefusalLeavesNoWatch(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		w.p.onCreate = func() error { return errors.New("half of it") }
		if _, err := w.create(); surehook.CodeOf(err) != ProviderCreateFailed {
			t.Errorf("%v", err)
		}
		w.until("it is cancelled", func() bool { return len(w.p.live()) == 0 })
		w.p.onCreate = func() error { // the session ends meanwhile
			return w.e.CloseSession(context.Background(), engine.SessionScope{}, "agent", engine.Actor{})
		}
		if _, err := w.create(); surehook.CodeOf(err) != SessionNotAlive {
			t.Errorf("%v", err)
		}
		w.until("it is cancelled", func() bool { return len(w.p.live()) == 0 })
	})
}

// While the provider fails, the cancelling of a removed sentinel's watch is tried
// again, over a restart too; pausing and reports go on.
func TestAFailingProvider(t *testing.T) {
	both(t, func(t *testing.T, w *world) {
		removed, err := w.create()
		if err != nil {
			t.Fatal(err)
		}
		kept, err := w.create()
		if err != nil {
			t.Fatal(err)
		}
		w.p.mu.Lock()
		w.p.fails = 1
		w.p.mu.Unlock()
		if err := w.Remove(t.Context(), caller, removed.ID); err != nil {
			t.Error(err)
		}
		tried := func(n int) func() bool {
			return func() bool {
				w.p.mu.Lock()
				defer w.p.mu.Unlock()
				return w.p.cancels >= n
			}
		}
		w.until("it was tried", tried(1))
		for _, paused := range []bool{true, false} {
			if v, err := w.Pause(t.Context(), caller, kept.ID, paused); err != nil || (v.Status == "paused") != paused {
				t.Errorf("%+v, %v", v, err)
			}
		}
		for range 2 {
			if err := w.Reported(t.Context(), kept.ID, true, "no answer"); err != nil {
				t.Error(err)
			}
		}
		if v, err := w.Get(t.Context(), caller, kept.ID); err != nil || v.Status != "error" || v.LastError != "no answer" {
			t.Errorf("%+v, %v", v, err)
		}
		if err := w.Reported(t.Context(), removed.ID, true, "no answer"); err != nil {
			t.Errorf("a report of one that is removed: %v", err)
		}
		w.stop()
		w.start()
		w.until("it is cancelled after the restart", func() bool { return w.look() == 1 })
		if err := w.Reported(t.Context(), kept.ID, false, ""); err != nil {
			t.Error(err)
		}
		if v, err := w.Get(t.Context(), caller, kept.ID); err != nil || v.Status != "active" || v.LastError != "" {
			t.Errorf("%+v, %v", v, err)
		}
	})
}
