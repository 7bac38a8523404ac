package api_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
)

// faulty is a store that can be told to fail.
type faulty struct {
	surehook.Store
	fail  atomic.Pointer[surehook.Error]
	panic atomic.Bool
	keys  atomic.Int32 // look-ups of keys
}

func (f *faulty) err() error {
	if e := f.fail.Load(); e != nil {
		return e
	}
	return nil
}

func (f *faulty) Append(ctx context.Context, version int64, items []surehook.Append) ([]surehook.Appended, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Store.Append(ctx, version, items)
}

func (f *faulty) EventTypes(ctx context.Context) ([]*surehook.EventType, error) {
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Store.EventTypes(ctx)
}

func (f *faulty) Health(ctx context.Context) error {
	if err := f.err(); err != nil {
		return err
	}
	return f.Store.Health(ctx)
}

func (f *faulty) ListTenants(ctx context.Context, partner string, p surehook.Page) ([]*surehook.Tenant, error) {
	if f.panic.Load() {
		panic("s3cret inside")
	}
	if err := f.err(); err != nil {
		return nil, err
	}
	return f.Store.ListTenants(ctx, partner, p)
}

func (f *faulty) KeyByHash(ctx context.Context, hash []byte) (*surehook.APIKey, error) {
	f.keys.Add(1)
	return f.Store.KeyByHash(ctx, hash)
}

// clock is a time that tests move.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time       { return time.Now().Add(time.Duration(c.ahead.Load())) }
func (c *clock) move(d time.Duration) { c.ahead.Add(int64(d)) }

// safeLog is a log that may be written from many goroutines.
type safeLog struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *safeLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *safeLog) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func openFaulty(t *testing.T) (s *site, f *faulty, c *clock, log *safeLog) {
	t.Helper()
	f, c, log = &faulty{}, &clock{}, &safeLog{}
	s = open(t, func(o *engine.Options) { f.Store, o.Store = o.Store, f })
	s.h = api.New(api.Options{Engine: s.e, Version: "test", Now: c.now, Logger: slog.New(slog.NewTextHandler(log, nil))})
	return s, f, c, log
}

// A store that can't be written: nothing is answered 2xx, and the caller knows
// when and with which ids to come again.
func TestFullDisk(t *testing.T) {
	s, f, c, log := openFaulty(t)
	s.publish(`{"type":"a","data":1}`) // the catalogue is read
	if a := s.do("", "GET", "/readyz", ""); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	f.fail.Store(surehook.Errorf(surehook.Unavailable, "the disk is full").WithCause(errors.New("SQLITE_FULL at /s3cret/path")))
	c.move(6 * time.Second)
	for _, body := range []string{`{"type":"a","data":1}`, `{"type":"a","data":1,"id":"mine"}`} {
		a := s.admin("POST", "/v1/events", body)
		a.refused(503, surehook.Unavailable, "")
		ids := a.field("details").(map[string]any)["ids"].([]any)
		if a.Header.Get("Retry-After") == "" || len(ids) != 1 || a.field("detail") != "the disk is full" || strings.Contains(string(a.Raw), "s3cret") {
			t.Errorf("%v %s", a.Header, a.Raw)
		}
		if !strings.Contains(log.String(), a.field("request_id").(string)) || !strings.Contains(log.String(), "SQLITE_FULL") {
			t.Errorf("the log doesn't tell: %s", log)
		}
	}
	a := s.admin("POST", "/v1/events/batch", `{"events":[{"type":"a","data":1},{"type":""},{"type":"a","data":1}]}`)
	if a.refused(503, surehook.Unavailable, ""); len(a.field("details").(map[string]any)["ids"].([]any)) < 2 {
		t.Errorf("%s", a.Raw)
	}
	a = s.do("", "GET", "/readyz", "")
	if a.Status != 503 || a.Header.Get("Retry-After") == "" {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	if a := s.do("", "GET", "/healthz", ""); a.Status != 200 {
		t.Errorf("%d", a.Status)
	}
	f.fail.Store(nil)
	c.move(2 * time.Second)
	if a := s.do("", "GET", "/readyz", ""); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	s.publish(`{"type":"a","data":1}`)
}

// A catalogue that can't be read again is used as it was.
func TestTheCatalogueOutlivesAFault(t *testing.T) {
	s, f, c, _ := openFaulty(t)
	s.admin("PUT", "/v1/event-types/a", `{"validate":true,"schema":{"type":"string"}}`)
	s.admin("POST", "/v1/events", `{"type":"a","data":1}`).refused(400, surehook.InvalidRequest, "data")
	f.fail.Store(surehook.Errorf(surehook.Unavailable, "the store is busy"))
	c.move(time.Minute)
	s.admin("POST", "/v1/events", `{"type":"a","data":1}`).refused(400, surehook.InvalidRequest, "data")
}

func TestInternalErrorsSayNothing(t *testing.T) {
	s, f, _, log := openFaulty(t)
	f.fail.Store(surehook.Errorf(surehook.Internal, "s3cret message").WithCause(errors.New("s3cret cause")))
	a := s.admin("GET", "/v1/tenants", "")
	if a.refused(500, surehook.Internal, ""); strings.Contains(string(a.Raw), "s3cret") || !strings.Contains(log.String(), "s3cret cause") {
		t.Errorf("%s\n%s", a.Raw, log)
	}
	f.fail.Store(nil)
	f.panic.Store(true)
	a = s.admin("GET", "/v1/tenants", "")
	if a.refused(500, surehook.Internal, ""); strings.Contains(string(a.Raw), "s3cret") || !strings.Contains(log.String(), "s3cret inside") {
		t.Errorf("%s\n%s", a.Raw, log)
	}
}

// A stopping engine sends callers away for a moment.
func TestStopping(t *testing.T) {
	s := open(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	if err := s.e.Stop(ctx); err != nil {
		t.Fatal(err)
	}
	a := s.admin("POST", "/v1/events", `{"type":"a","data":1}`)
	if a.refused(503, surehook.Stopping, ""); a.Header.Get("Retry-After") == "" {
		t.Errorf("%v", a.Header)
	}
	if a := s.do("", "GET", "/readyz", ""); a.Status != 503 {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
}

// A key is looked up once in a few seconds; one that another process revoked
// ends with that time.
func TestKeysAreCachedForAMoment(t *testing.T) {
	s, f, c, _ := openFaulty(t)
	token := s.key("", "read")
	var keys struct{ Items []struct{ ID, Hint string } }
	s.admin("GET", "/v1/keys", "").into(&keys)
	before := f.keys.Load()
	for range 10 {
		if a := s.do(token, "GET", "/v1/events", ""); a.Status != 200 {
			t.Fatalf("%d %s", a.Status, a.Raw)
		}
	}
	if n := f.keys.Load() - before; n != 1 {
		t.Errorf("%d look-ups", n)
	}
	i := slices.IndexFunc(keys.Items, func(k struct{ ID, Hint string }) bool { return strings.HasSuffix(token, k.Hint) })
	if err := s.store.RevokeKey(t.Context(), keys.Items[i].ID, &surehook.AuditEntry{At: time.Now(), Actor: "elsewhere", Action: "key.revoke", Target: keys.Items[i].ID}); err != nil {
		t.Fatal(err)
	}
	c.move(5 * time.Second)
	s.do(token, "GET", "/v1/events", "").refused(401, surehook.Unauthorized, "")
	for _, header := range []string{"", "Bearer", "Bearer ", "Basic " + adminKey, adminKey, "Bearer " + strings.Repeat("x", 10_000)} {
		r := httptest.NewRequestWithContext(t.Context(), "GET", "/v1/events", nil)
		r.Header.Set("Authorization", header)
		w := httptest.NewRecorder()
		if s.h.ServeHTTP(w, r); w.Code != 401 {
			t.Errorf("%.20q: %d", header, w.Code)
		}
	}
}

func TestEnsureAdminKey(t *testing.T) {
	s := open(t)
	if shown, created, err := api.EnsureAdminKey(t.Context(), s.e, "another-key-entirely"); shown != "" || created || err != nil {
		t.Errorf("%q %v %v", shown, created, err)
	}
	s.do("another-key-entirely", "GET", "/v1/events", "").refused(401, surehook.Unauthorized, "")
}

func TestMetricsHook(t *testing.T) {
	s := open(t)
	metrics := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("up 1\n")) })
	with := func(open bool) { s.h = api.New(api.Options{Engine: s.e, Metrics: metrics, OpenMetrics: open}) }
	s.do(adminKey, "GET", "/metrics", "").refused(404, surehook.NotFound, "")
	reader, tenant, writer := s.key("", "read"), s.key("acme", "read"), s.key("", "events:write")
	with(false)
	s.do("", "GET", "/metrics", "").refused(401, surehook.Unauthorized, "")
	s.do(tenant, "GET", "/metrics", "").refused(403, surehook.Forbidden, "")
	s.do(writer, "GET", "/metrics", "").refused(403, surehook.Forbidden, "")
	if a := s.do(reader, "GET", "/metrics", ""); a.Status != 200 || string(a.Raw) != "up 1\n" {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	with(true)
	if a := s.do("", "GET", "/metrics", ""); a.Status != 200 {
		t.Errorf("%d", a.Status)
	}
}

// Bodies are bounded, whether or not they say how long they are.
func TestBodyLimits(t *testing.T) {
	s := open(t)
	for path, n := range map[string]int{"/v1/events": 2 << 20, "/v1/events/batch": 17 << 20, "/v1/webhooks": 300 << 10} {
		body := `{"x":"` + strings.Repeat("x", n) + `"}`
		s.admin("POST", path, body).refused(413, surehook.TooLarge, "")
		r := httptest.NewRequestWithContext(t.Context(), "POST", path, struct{ *strings.Reader }{strings.NewReader(body)})
		r.Header.Set("Authorization", "Bearer "+adminKey)
		r.ContentLength = -1
		w := httptest.NewRecorder()
		if s.h.ServeHTTP(w, r); w.Code != 413 {
			t.Errorf("%s: %d %s", path, w.Code, w.Body)
		}
	}
	over := strings.Repeat(`{"type":"a","data":1},`, 1001)
	s.admin("POST", "/v1/events/batch", `{"events":[`+strings.TrimSuffix(over, ",")+`]}`).refused(400, surehook.InvalidRequest, "events")
	a := s.admin("POST", "/v1/events", `{"type":"a","data":"`+strings.Repeat("x", 1<<20)+`"}`) // within the body's limit, over the data's
	a.refused(400, surehook.InvalidRequest, "data")
	if a := s.admin("POST", "/v1/events", `{"type":"a","data":"`+strings.Repeat("x", 1<<20-2)+`"}`); a.Status != 202 {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	// A body that breaks off.
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/v1/events", strings.NewReader(`{"type":`))
	r.Header.Set("Authorization", "Bearer "+adminKey)
	r.ContentLength = 100
	w := httptest.NewRecorder()
	if s.h.ServeHTTP(w, r); w.Code != http.StatusRequestTimeout {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
