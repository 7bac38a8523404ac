package engine_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"flag"
	"log/slog"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/store/sqlite"
)

func TestMain(m *testing.M) {
	// Each check of the model runs an engine on a real file; the command line may ask for more.
	if err := flag.Set("rapid.checks", "30"); err != nil {
		panic(err)
	}
	goleak.VerifyTestMain(pgserver.Suite{M: m})
}

// bed is an engine on a real file, with everything a test wants to watch.
type bed struct {
	*engine.Engine
	t     testing.TB
	store surehook.Store
	path  string
	logs  *safeBuffer
	opt   engine.Options
	wrap  func(surehook.Store) surehook.Store // what the engine gets in place of store
	dsn   string                              // set: of the PostgreSQL database that takes the place of the file

	mu    sync.Mutex
	tries []engine.Try
	rung  chan struct{}
	clock time.Duration // added to the real time
}

type safeBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *safeBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *safeBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

var masterKey = bytes.Repeat([]byte{7}, 32)

func start(t testing.TB, change ...func(*engine.Options)) *bed {
	t.Helper()
	b := prepare(t, change...)
	b.open()
	return b
}

// prepare is start without the start.
func prepare(t testing.TB, change ...func(*engine.Options)) *bed {
	t.Helper()
	b := &bed{t: t, path: filepath.Join(t.TempDir(), "surehook.db"), logs: &safeBuffer{}, rung: make(chan struct{}, 1)}
	b.opt = engine.Options{MasterKeys: [][]byte{masterKey}, AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")},
		Observe: b.observe, Logger: slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug})), Now: b.now}
	for _, f := range change {
		f(&b.opt)
	}
	t.Cleanup(func() { b.close() })
	return b
}

func (b *bed) now() time.Time {
	b.mu.Lock()
	defer b.mu.Unlock()
	return time.Now().Add(b.clock)
}

// leap moves the clock that decides what is due.
func (b *bed) leap(d time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.clock += d
	if b.dsn != "" {
		b.leapDatabase()
	}
}

func (b *bed) open() {
	b.t.Helper()
	if err := b.tryOpen(); err != nil {
		b.t.Fatal(err)
	}
}

func (b *bed) tryOpen() error {
	var err error
	if b.dsn != "" {
		b.store, err = b.openDatabase()
	} else {
		b.store, err = sqlite.Open(b.t.Context(), b.path, sqlite.Options{Now: b.now, Logger: b.opt.Logger})
	}
	if err != nil {
		return err
	}
	b.opt.Store = b.store
	if b.wrap != nil {
		b.opt.Store = b.wrap(b.store)
	}
	if b.Engine, err = engine.New(b.opt); err != nil {
		return err
	}
	return b.Start(b.t.Context())
}

func (b *bed) close() {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := b.Stop(ctx); err != nil {
		b.t.Error(err)
	}
	if err := b.store.Close(); err != nil {
		b.t.Error(err)
	}
}

// restart stops and opens again, as a new process would.
func (b *bed) restart() {
	b.t.Helper()
	b.close()
	b.open()
}

func (b *bed) observe(t engine.Try) {
	b.mu.Lock()
	b.tries = append(b.tries, t)
	b.mu.Unlock()
	select {
	case b.rung <- struct{}{}:
	default:
	}
}

func (b *bed) seen() []engine.Try {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]engine.Try(nil), b.tries...)
}

// until waits for ok, looking again at every attempt and every few milliseconds.
func (b *bed) until(what string, ok func() bool) {
	b.t.Helper()
	limit := time.NewTimer(20 * time.Second)
	defer limit.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-b.rung:
		case <-tick.C:
		case <-limit.C:
			b.t.Fatalf("waited 20 s: %s\n%s", what, b.logs)
		}
	}
}

// idle waits until nothing is pending.
func (b *bed) idle() {
	b.t.Helper()
	b.until("no pending delivery", func() bool {
		n, err := b.store.PendingCount(b.t.Context())
		if err != nil {
			b.t.Fatal(err)
		}
		return n == surehook.PendingCount{}
	})
}

// hook registers an endpoint with short waits.
func (b *bed) hook(r *receivertest.Receiver, change ...func(*engine.Webhook)) (*surehook.Endpoint, string) {
	b.t.Helper()
	w := engine.Webhook{URL: r.URL + "/in", Limits: surehook.Limits{
		Waits: []time.Duration{20 * time.Millisecond, 40 * time.Millisecond, 80 * time.Millisecond}, Timeout: 2 * time.Second}}
	for _, f := range change {
		f(&w)
	}
	ep, secret, err := b.CreateWebhook(b.t.Context(), w, engine.Actor{})
	if err != nil {
		b.t.Fatal(err)
	}
	return ep, secret
}

func (b *bed) publish(typ, data string) engine.Receipt {
	b.t.Helper()
	r, err := b.Publish(b.t.Context(), surehook.Event{Type: typ, Data: []byte(data)})
	if err != nil {
		b.t.Fatal(err)
	}
	return r
}

func (b *bed) deliveries(id string) []surehook.DeliveryView {
	b.t.Helper()
	ev, err := b.store.Event(b.t.Context(), nil, id)
	if err != nil {
		b.t.Fatal(err)
	}
	ds, err := b.store.EventDeliveries(b.t.Context(), ev.Key, surehook.Page{Limit: 100})
	if err != nil {
		b.t.Fatal(err)
	}
	return ds
}

func (b *bed) attempts(ep *surehook.Endpoint) []surehook.Attempt {
	b.t.Helper()
	as, err := b.store.EndpointAttempts(b.t.Context(), ep.Key, surehook.Page{Limit: 1000})
	if err != nil {
		b.t.Fatal(err)
	}
	return as
}

func (b *bed) endpoint(id string) *surehook.Endpoint {
	b.t.Helper()
	ep, err := b.store.Endpoint(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return ep
}

// signatures computes what the header must hold, without our own library.
func signature(t testing.TB, secret string, r receivertest.Request) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(r.ID() + "." + r.Get("webhook-timestamp") + "."))
	mac.Write(r.Body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

func verify(t testing.TB, secret string, r receivertest.Request) {
	t.Helper()
	if want, got := signature(t, secret, r), r.Get("webhook-signature"); want != got {
		t.Errorf("signature %q, want %q", got, want)
	}
}
