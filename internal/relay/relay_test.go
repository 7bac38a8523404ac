package relay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/dispatch"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
	"github.com/surehook/surehook/internal/relay/source"
	"github.com/surehook/surehook/store/sqlite"
)

func TestWaits(t *testing.T) {
	const ms = time.Millisecond
	for _, c := range []struct {
		r    config.Retry
		want []time.Duration
	}{
		{config.Retry{MaxAttempts: 8, BaseDelay: 500 * ms, MaxDelay: 10 * time.Minute},
			[]time.Duration{500 * ms, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second, 32 * time.Second}},
		{config.Retry{MaxAttempts: 100, BaseDelay: 400 * ms, MaxDelay: time.Second}, []time.Duration{400 * ms, 800 * ms, time.Second}},
		{config.Retry{MaxAttempts: 1, BaseDelay: ms, MaxDelay: ms}, []time.Duration{ms}},
		{config.Retry{MaxAttempts: 2, BaseDelay: ms, MaxDelay: time.Second}, []time.Duration{ms}},
	} {
		if got := waits(c.r); !slices.Equal(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.r, got, c.want)
		}
	}
}

// Who gets an event stands in it, and its data is the envelope's.
func TestEvent(t *testing.T) {
	p := &plan{instance: "r1", subs: []subscriber{{id: "a", subject: subject("a")}, {id: "b*", subject: subject("b*")},
		{id: "high", subject: subject("high"), filter: audit.Filter{SeverityMin: audit.High}}}}
	var matched []string
	ev, ok := p.event(&audit.Event{ID: "01HXYZ7F8GZG23P4M2RKN9Y4QF", Action: audit.Block, Severity: audit.Low, JSON: []byte(`{"a": 1.0}`),
		Labels: map[string]string{"z": "<&>", "a": "ü"}, Router: "r"}, func(id string) { matched = append(matched, id) })
	if !ok || !slices.Equal(ev.Subjects, []string{"[a]", "[b*]"}) || !slices.Equal(matched, []string{"a", "b*"}) {
		t.Errorf("%v, %v", ev.Subjects, matched)
	}
	want := `{"labels":{"a":"ü","z":"<&>"},"source":{"middleware":null,"router":"r","entry_point":null,"relay_instance":"r1"},"event":{"a": 1.0}}`
	if string(ev.Data) != want || !dispatch.IsAudit(ev.Data) {
		t.Errorf("%s", ev.Data)
	}
	p.subs = p.subs[2:]
	if _, ok := p.event(&audit.Event{Severity: audit.Low}, func(string) {}); ok {
		t.Error("an event for nobody")
	}
}

// lines is a source that gives batches which a test makes.
type lines struct {
	batches   chan *source.Batch
	committed chan *source.Batch
}

func (l *lines) ID() string { return "test" }
func (l *lines) Next(ctx context.Context) (*source.Batch, error) {
	select {
	case b, ok := <-l.batches:
		if !ok {
			return nil, io.EOF
		}
		return b, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}
func (l *lines) Committed(_ context.Context, b *source.Batch) error {
	l.committed <- b
	return nil
}
func (l *lines) Close(context.Context) error { return nil }

func (l *lines) Stuck() error { return nil }

// failing is a store whose appends fail while it is told so: before they did
// anything, or after.
type failing struct {
	*sqlite.Store
	before, after atomic.Int32
}

func (f *failing) Append(ctx context.Context, version int64, items []surehook.Append) ([]surehook.Appended, error) {
	gone := surehook.Errorf(surehook.Unavailable, "the disk is away")
	if f.before.Add(-1) >= 0 {
		return nil, gone
	}
	unknown := f.after.Add(-1) >= 0
	if unknown { // a store that can't tell what became of a commit frees what it may have stored
		items = slices.Clone(items)
		for i := range items {
			items[i].Targets = slices.Clone(items[i].Targets)
			for j := range items[i].Targets {
				items[i].Targets[j].Owned = false
			}
		}
	}
	out, err := f.Store.Append(ctx, version, items)
	if err == nil && unknown {
		return nil, gone
	}
	return out, err
}

func open(t *testing.T, url string) (*Relay, *lines, *failing) {
	t.Helper()
	file, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "r.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	store := &failing{Store: file}
	conf := &config.Config{Sources: []config.Source{{Type: config.Stdin}}, Subscribers: []config.Subscriber{{ID: "siem", URL: url, Secret: config.Secret("s"), Enabled: true,
		Schemas: []int{1}, Timeout: time.Second, Retry: config.Retry{MaxAttempts: 2, BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}}}}
	e, err := engine.New(engine.Options{Store: store, MasterKeys: [][]byte{make([]byte, 32)}, AllowNetworks: conf.Relay.Networks(), MaxWebhooks: -1, MaxSubjects: MaxSubjects})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	src := &lines{batches: make(chan *source.Batch), committed: make(chan *source.Batch, 10)}
	r := New(Options{Engine: e, Open: func(config.Source) source.Source { return src }, Metrics: NewMetrics("v", "sha"), Logger: slog.New(slog.DiscardHandler)})
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(r.Stop(ctx), r.Stop(ctx), e.Stop(ctx), file.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := r.Use(t.Context(), conf); err != nil {
		t.Fatal(err)
	}
	return r, src, store
}

func batch(ids ...string) *source.Batch {
	b := &source.Batch{Lines: len(ids)}
	for _, id := range ids {
		b.Events = append(b.Events, audit.Event{ID: id, Action: audit.Block, JSON: []byte(`{"id":"` + id + `"}`), Received: time.Now()})
	}
	return b
}

// A bookmark moves only behind what is stored, however long that takes, and
// what may have been stored is stored once.
func TestTheStoreMayBeAway(t *testing.T) {
	for name, fail := range map[string]func(*failing){"before": func(f *failing) { f.before.Store(2) }, "after": func(f *failing) { f.after.Store(2) }} {
		t.Run(name, func(t *testing.T) {
			rec := receivertest.New(t, nil)
			r, src, store := open(t, rec.URL)
			fail(store)
			first := batch("01HXYZ7F8GZG23P4M2RKN9Y4QA", "01HXYZ7F8GZG23P4M2RKN9Y4QB")
			src.batches <- first
			if got := <-src.committed; got != first {
				t.Error("another batch was committed")
			}
			if err := r.Ready(); err != nil {
				t.Error(err)
			}
			rec.Wait(t, 2)
			again := batch("01HXYZ7F8GZG23P4M2RKN9Y4QB") // read once more, otherwise enriched
			again.Events[0].Labels = map[string]string{"a": "b"}
			src.batches <- again
			<-src.committed
			src.batches <- batch("01HXYZ7F8GZG23P4M2RKN9Y4QC")
			<-src.committed
			ids := map[string]int{}
			for _, got := range rec.Wait(t, 3) {
				ids[got.Get("X-PurpleWolf-Event-Id")]++
			}
			if len(ids) != 3 {
				t.Error(ids)
			}
		})
	}
}

// What can't be stored before the stop is over isn't committed.
func TestStopWithoutAStore(t *testing.T) {
	rec := receivertest.New(t, nil)
	r, src, store := open(t, rec.URL)
	store.before.Store(1 << 20)
	src.batches <- batch("01HXYZ7F8GZG23P4M2RKN9Y4QA")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := r.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	if len(src.committed) != 0 || len(rec.Requests()) != 0 {
		t.Error("what isn't stored was committed")
	}
	if err := r.Ready(); err == nil {
		t.Error("a relay that was stopped is ready")
	}
}

// What the file's check lets through the engine takes: the longest names and
// secrets, and the shortest and longest waits.
func TestWhatIsValidCanBeUsed(t *testing.T) {
	r, _, _ := open(t, "http://127.0.0.1:9")
	text := `
sources: [{type: stdin}]
subscribers:
 - {id: ID, url: "http://127.0.0.1:9/", secret_env: LONG, schemas: [1, 99]}
 - {id: "a b,*?/", url: "http://127.0.0.1:9/", secret_env: SHORT, retry: {max_attempts: 1, base_delay_ms: 1, max_delay_ms: 1}, timeout_ms: 100}
 - {id: "..", url: "http://127.0.0.1:9/", secret_env: SHORT, retry: {max_attempts: 100, base_delay_ms: 86400000, max_delay_ms: 86400000}, timeout_ms: 60000}
 - {id: "~", url: "http://127.0.0.1:9/", secret_env: SHORT, retry: {max_attempts: 100, base_delay_ms: 1, max_delay_ms: 86400000}}
`
	secrets := map[string]string{"LONG": strings.Repeat("\xff", 16<<10), "SHORT": "s"}
	c, err := config.Parse("r.yaml", []byte(strings.ReplaceAll(text, "ID", strings.Repeat("ü", 64))), func(name string) (string, bool) {
		s, ok := secrets[name]
		return s, ok
	})
	if err != nil {
		t.Fatal(err)
	}
	c.Sources = nil
	if err := r.Use(t.Context(), c); err != nil {
		t.Error(err)
	}
}

// Without a token metrics are open, and dead letters are nobody's.
func TestAdminWithoutAToken(t *testing.T) {
	ok := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) })
	var token []byte
	a := &Admin{Token: func() []byte { return token }, Ready: func(context.Context) error { return errors.New("no") }, Metrics: ok, DeadLetters: ok, Version: "1", SHA: "abc"}
	for path, want := range map[string]int{"/healthz": 200, "/readyz": 503, "/metrics": 200, "/version": 200, "/v1/dead-letters": 403, "/v1/dead-letters/replay": 403, "/x": 404} {
		w := httptest.NewRecorder()
		a.Handler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
		if w.Code != want {
			t.Errorf("%s: %d, want %d", path, w.Code, want)
		}
		if path == "/version" {
			var v map[string]string
			if err := json.Unmarshal(w.Body.Bytes(), &v); err != nil || v["version"] != "1" || v["git_sha"] != "abc" {
				t.Error(w.Body)
			}
		}
	}
	if a.Allowed("") {
		t.Error("no token is a token")
	}
	if token = []byte("t"); !a.Allowed("t") || a.Allowed("") || a.Allowed("tt") {
		t.Error("the token isn't checked")
	}
}
