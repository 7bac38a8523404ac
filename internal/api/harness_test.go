package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

const adminKey = "test-admin-key-0123456789"

// site is the API over a real engine on a real file.
type site struct {
	t     testing.TB
	e     *engine.Engine
	store surehook.Store
	h     http.Handler
	dir   string
	doc   *document // every answer is held against it
}

func open(t testing.TB, with ...func(*engine.Options)) *site {
	t.Helper()
	dir := t.TempDir()
	store, err := sqlite.Open(t.Context(), filepath.Join(dir, "surehook.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := openOn(t, store, with...)
	s.dir = dir
	return s
}

// onBoth runs a test over each of the stores.
func onBoth(t *testing.T, f func(t *testing.T, s *site), with ...func(*engine.Options)) {
	t.Run("SQLite", func(t *testing.T) { f(t, open(t, with...)) })
	t.Run("PostgreSQL", func(t *testing.T) {
		dsn := pgserver.Copy(t, "migrated", func(dsn string) error {
			store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
			if err != nil {
				return err
			}
			return store.Close()
		})
		store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f(t, openOn(t, store, with...))
	})
}

func openOn(t testing.TB, store surehook.Store, with ...func(*engine.Options)) *site {
	t.Helper()
	opt := engine.Options{Store: store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)},
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}}
	for _, f := range with {
		f(&opt)
	}
	e, err := engine.New(opt)
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := e.Stop(ctx); err != nil {
			t.Error(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, created, err := api.EnsureAdminKey(t.Context(), e, adminKey); err != nil || !created {
		t.Fatal(created, err)
	}
	s := &site{t: t, e: e, store: store}
	s.h = api.New(api.Options{Engine: e, Version: "test", Logger: slog.New(slog.DiscardHandler)})
	s.doc = readDocument(t, s.h)
	return s
}

// files lists what the store keeps on the disk.
func (s *site) files() []string {
	s.t.Helper()
	files, err := filepath.Glob(filepath.Join(s.dir, "surehook.db*"))
	if err != nil || len(files) < 2 {
		s.t.Fatal(files, err)
	}
	return files
}

// until repeats a question until it has the right answer.
func (s *site) until(what string, right func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !right(); {
		if time.Now().After(end) {
			s.t.Fatalf("never: %s", what)
		}
	}
}

// status waits for what becomes of an event at its one endpoint.
func (s *site) status(event, want string) {
	s.t.Helper()
	s.until(event+" is "+want, func() bool {
		var d struct{ Items []struct{ Status string } }
		s.admin("GET", "/v1/events/"+event+"/deliveries", "").into(&d)
		return len(d.Items) == 1 && d.Items[0].Status == want
	})
}

// publish stores an event and gives its id.
func (s *site) publish(body string) string {
	s.t.Helper()
	a := s.admin("POST", "/v1/events", body)
	if a.Status != http.StatusAccepted {
		s.t.Fatalf("%d %s", a.Status, a.Raw)
	}
	return a.field("id").(string)
}

// answer is what came back.
type answer struct {
	t      testing.TB
	Status int
	Header http.Header
	Raw    []byte
}

func (a answer) into(v any) {
	a.t.Helper()
	if err := json.Unmarshal(a.Raw, v); err != nil {
		a.t.Fatalf("%v: %s", err, a.Raw)
	}
}

func (a answer) field(name string) any {
	a.t.Helper()
	var m map[string]any
	a.into(&m)
	return m[name]
}

// refused checks a problem's status, code and the field that it names.
func (a answer) refused(status int, code surehook.ErrorCode, path string) {
	a.t.Helper()
	var p struct {
		Status    int                   `json:"status"`
		Code      surehook.ErrorCode    `json:"code"`
		Errors    []surehook.FieldError `json:"errors"`
		RequestID string                `json:"request_id"`
	}
	a.into(&p)
	if a.Status != status || p.Code != code || p.Status != status || p.RequestID == "" {
		a.t.Errorf("got %d %s, want %d %s: %s", a.Status, p.Code, status, code, a.Raw)
	}
	if ct := a.Header.Get("Content-Type"); ct != "application/problem+json" {
		a.t.Errorf("content type %q", ct)
	}
	if path != "" && !slices.ContainsFunc(p.Errors, func(f surehook.FieldError) bool { return f.Path == path }) {
		a.t.Errorf("want field %q: %s", path, a.Raw)
	}
}

func (s *site) do(key, method, path, body string, header ...string) answer {
	s.t.Helper()
	req := httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	if key != "" {
		req.Header.Set("Authorization", "Bearer "+key)
	}
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	s.h.ServeHTTP(w, req)
	s.doc.check(s.t, req, w)
	return answer{s.t, w.Code, w.Result().Header, w.Body.Bytes()}
}

func (s *site) admin(method, path, body string, header ...string) answer {
	s.t.Helper()
	return s.do(adminKey, method, path, body, header...)
}

// key makes an API key.
func (s *site) key(tenant string, perms ...string) string {
	s.t.Helper()
	b, err := json.Marshal(map[string]any{"tenant_id": tenant, "permissions": perms, "name": "test"})
	if err != nil {
		s.t.Fatal(err)
	}
	a := s.admin("POST", "/v1/keys", string(b))
	if a.Status != http.StatusCreated {
		s.t.Fatalf("%d %s", a.Status, a.Raw)
	}
	return a.field("key").(string)
}

// hook registers an endpoint and gives its id.
func (s *site) hook(body string) string {
	s.t.Helper()
	a := s.admin("POST", "/v1/webhooks", body)
	if a.Status != http.StatusCreated {
		s.t.Fatalf("%d %s", a.Status, a.Raw)
	}
	return a.field("id").(string)
}
