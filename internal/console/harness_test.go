package console_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
	"github.com/surehook/surehook/internal/console"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

func TestMain(m *testing.M) {
	code := pgserver.Main(m)
	for _, f := range ending {
		f()
	}
	os.Exit(code)
}

// ending is what ends with the suite.
var ending []func()

func atEnd(f func()) { ending = append(ending, f) }

const adminKey = "test-admin-key-0123456789"

// site is the console over a real engine on a real store.
type site struct {
	t     testing.TB
	e     *engine.Engine
	store surehook.Store
	api   *api.Handler
	pages *console.Console
	srv   *httptest.Server
	mu    sync.Mutex
	ahead time.Duration // of the pages' clock
}

// both runs a test over each of the stores.
func both(t *testing.T, f func(*testing.T, *site), change ...func(*console.Options)) {
	t.Run("SQLite", func(t *testing.T) {
		s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "surehook.db"), sqlite.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f(t, open(t, s, change...))
	})
	if testing.Short() {
		return
	}
	t.Run("PostgreSQL", func(t *testing.T) {
		s, err := postgres.Open(t.Context(), pgserver.Database(t), postgres.Options{})
		if err != nil {
			t.Fatal(err)
		}
		f(t, open(t, s, change...))
	})
}

// lite is a site over SQLite, for what no store has a part in.
func lite(t testing.TB, change ...func(*console.Options)) *site {
	t.Helper()
	s, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "surehook.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return open(t, s, change...)
}

func open(t testing.TB, store surehook.Store, change ...func(*console.Options)) *site {
	t.Helper()
	e, err := engine.New(engine.Options{Store: store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}, MaxWebhooks: -1,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, _, err := api.EnsureAdminKey(t.Context(), e, adminKey); err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, e: e, store: store}
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
	s.serve(change...)
	return s
}

// serve serves the pages and the API; once more: as after a restart with other options.
func (s *site) serve(change ...func(*console.Options)) { s.serveAPI(api.Options{}, change...) }

func (s *site) serveAPI(o api.Options, change ...func(*console.Options)) {
	s.t.Helper()
	srv := httptest.NewUnstartedServer(nil)
	opt := console.Options{Sessions: s.store, NewID: s.e.NewID, Version: "test", Now: s.now}
	for _, f := range change {
		f(&opt)
	}
	var rules []*surehook.APIKey
	if opt.OIDC != nil {
		opt.Public, rules = &url.URL{Scheme: "http", Host: srv.Listener.Addr().String()}, opt.OIDC.Keys()
	}
	o.Engine, o.Version, o.Store, o.Rules = s.e, "test", "a store", rules
	h := api.New(o)
	opt.API = h.As
	pages, err := console.New(opt)
	if err != nil {
		s.t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/", pages)
	mux.Handle("/v1/", h)
	srv.Config.Handler = mux
	srv.Config.RegisterOnShutdown(pages.Close)
	srv.Start()
	s.t.Cleanup(func() {
		pages.Close()
		srv.Close()
	})
	s.api, s.pages, s.srv = h, pages, srv
}

func (s *site) now() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Add(s.ahead)
}

// leap moves the pages' clock on.
func (s *site) leap(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ahead += d
}

// rest asks the REST API as the administrator.
func (s *site) rest(method, path, body string) map[string]any {
	s.t.Helper()
	req := httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	req.Header.Set("Authorization", "Bearer "+adminKey)
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, req)
	if w.Code >= 300 {
		s.t.Fatalf("%s %s: %d %s", method, path, w.Code, w.Body)
	}
	var m map[string]any
	if w.Body.Len() > 0 {
		if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
			s.t.Fatal(err)
		}
	}
	return m
}

func (s *site) hook(body string) string {
	s.t.Helper()
	return s.rest("POST", "/v1/webhooks", body)["id"].(string)
}

func (s *site) publish(body string) string {
	s.t.Helper()
	return s.rest("POST", "/v1/events", body)["id"].(string)
}

func (s *site) key(tenant string, perms ...string) string {
	s.t.Helper()
	b, err := json.Marshal(map[string]any{"tenant_id": tenant, "permissions": perms, "name": "made for " + tenant})
	if err != nil {
		s.t.Fatal(err)
	}
	return s.rest("POST", "/v1/keys", string(b))["key"].(string)
}

func (s *site) until(what string, right func() bool) {
	s.t.Helper()
	for end := time.Now().Add(20 * time.Second); !right(); {
		if time.Now().After(end) {
			s.t.Fatalf("never: %s", what)
		}
	}
}

// browser is a caller with a cookie jar.
type browser struct {
	s      *site
	client *http.Client
	last   string // the page that was seen last
}

func (s *site) browser() *browser {
	jar, err := cookiejar.New(nil)
	if err != nil {
		s.t.Fatal(err)
	}
	return &browser{s: s, client: &http.Client{Jar: jar}}
}

// answer is what came back.
type answer struct {
	Status int
	Header http.Header
	Body   string
	URL    *url.URL
}

func (b *browser) do(method, path string, form url.Values, header ...string) answer {
	b.s.t.Helper()
	var body io.Reader
	if form != nil {
		body = strings.NewReader(form.Encode())
	}
	req, err := http.NewRequestWithContext(b.s.t.Context(), method, b.s.srv.URL+path, body)
	if err != nil {
		b.s.t.Fatal(err)
	}
	if form != nil {
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		req.Header.Set("Origin", b.s.srv.URL)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if header[i+1] == "" {
			req.Header.Del(header[i])
			continue
		}
		req.Header.Set(header[i], header[i+1])
	}
	res, err := b.client.Do(req)
	if err != nil {
		b.s.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		b.s.t.Fatal(err)
	}
	b.last = string(raw)
	return answer{res.StatusCode, res.Header, string(raw), res.Request.URL}
}

func (b *browser) get(path string) answer {
	b.s.t.Helper()
	return b.do("GET", path, nil)
}

var formField = regexp.MustCompile(`name="form" value="([^"]+)"`)

// token is that of the session's forms.
func (b *browser) token() string {
	b.s.t.Helper()
	m := formField.FindStringSubmatch(b.last)
	if m == nil {
		b.s.t.Fatalf("the page has no form: %.300s", b.last)
	}
	return m[1]
}

// post sends a form of the page that was seen last.
func (b *browser) post(path string, pairs ...string) answer {
	b.s.t.Helper()
	f := url.Values{"form": {b.token()}}
	for i := 0; i+1 < len(pairs); i += 2 {
		f.Add(pairs[i], pairs[i+1])
	}
	return b.do("POST", path, f)
}

// signIn opens the console.
func (s *site) signIn(key string) *browser {
	s.t.Helper()
	b := s.browser()
	if p := b.do("POST", "/console/login", url.Values{"key": {key}}); p.Status != 200 || p.URL.Path != "/console/" {
		s.t.Fatalf("%d %s: %.500s", p.Status, p.URL, p.Body)
	}
	return b
}

// portal opens a tenant's portal by a link.
func (s *site) portal(tenant string, perms ...string) *browser {
	s.t.Helper()
	body, err := json.Marshal(map[string]any{"tenant_id": tenant, "permissions": perms})
	if err != nil {
		s.t.Fatal(err)
	}
	u, err := url.Parse(s.rest("POST", "/v1/portal-links", string(body))["url"].(string))
	if err != nil {
		s.t.Fatal(err)
	}
	b := s.browser()
	if p := b.get(u.RequestURI()); p.Status != 200 {
		s.t.Fatalf("%d %s", p.Status, p.Body)
	}
	if p := b.do("POST", "/portal/open", url.Values{"token": {u.Query().Get("token")}}); p.Status != 200 || p.URL.Path != "/portal/" {
		s.t.Fatalf("%d %s: %.500s", p.Status, p.URL, p.Body)
	}
	return b
}

// world fills the store with something of everything, and gives an endpoint that is
// well, one that fails, an event that both got, a replay, a sentinel with a callback,
// and an endpoint with an inbox.
type world struct{ well, failing, event, replay, watch, inbox string }

func (s *site) world() world {
	s.t.Helper()
	good := receivertest.New(s.t, nil)
	bad := receivertest.New(s.t, func(int, receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Status: 500, Body: "{\"error\":\"database is on fire\"}"}
	})
	s.rest("PUT", "/v1/event-types/order.paid", `{"description":"An order was paid","example":{"amount":42},"schema":{"type":"object"},"validate":true}`)
	s.rest("PUT", "/v1/tenants/acme", `{"name":"Acme Ltd","partner_id":"north"}`)
	s.rest("PUT", "/v1/partners/north", `{"name":"North"}`)
	var w world
	w.well = s.hook(`{"url":"` + good.URL + `/in","description":"orders to the shop"}`)
	w.failing = s.hook(`{"url":"` + bad.URL + `/hooks/in","event_types":["order.*"],"limits":{"attempts":2,"waits_ms":[1]}}`)
	paused := s.hook(`{"url":"` + good.URL + `/paused","tenant_id":"acme"}`)
	s.rest("PATCH", "/v1/webhooks/"+paused, `{"paused":true}`)
	s.hook(`{"url":"` + good.URL + `/off","enabled":false}`)
	w.inbox = s.hook(`{"target":"pull","event_types":["order.paid"],"subjects":["order:1"]}`)
	w.watch = s.watchAll("", "order:")
	for i := range 4 {
		w.event = s.publish(`{"type":"order.paid","subjects":["order:` + string(rune('1'+i)) + `"],"data":{"amount":9007199254740993,"note":"paid"}}`)
	}
	s.publish(`{"type":"order.line.added","tenant_id":"acme","data":[1,2]}`)
	s.until("all retries are over", func() bool {
		return s.rest("GET", "/v1/overview", "")["dead_letters"] == 5.0
	})
	w.replay = s.rest("POST", "/v1/webhooks/"+w.well+"/replay", `{"since":"2020-01-01T00:00:00Z","background":true}`)["replay"].(map[string]any)["id"].(string)
	s.until("the replay is done", func() bool { return s.rest("GET", "/v1/replays/"+w.replay, "")["state"] == "done" })
	return w
}

const watchSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

// callback passes challenges, and takes events.
func callback(_ int, r receivertest.Request) receivertest.Answer {
	var in struct{ Challenge string }
	_ = json.Unmarshal(r.Body, &in) // events have none
	return receivertest.Answer{Body: `{"challenge":"` + in.Challenge + `"}`}
}

// watchAll has what happens to subjects go to a callback, and to the session agent; it
// gives the sentinel of the first.
func (s *site) watchAll(tenant, subjects string) string {
	s.t.Helper()
	at := receivertest.New(s.t, callback)
	s.rest("PUT", "/v1/sessions/agent?tenant_id="+tenant, "")
	of := `"tenant_id":"` + tenant + `","match":[{"subject":"` + subjects + `*"}],"until":{"kind":"never"},"label":"all of ` + subjects + `",`
	s.rest("POST", "/sentinels", `{`+of+`"target":{"kind":"session","sessionId":"agent","urgency":"steer"}}`)
	s.rest("POST", "/v1/webhooks", `{"tenant_id":"`+tenant+`","target":"pull","session_id":"agent","event_types":["order.paid"],"urgency":"fyi"}`)
	return s.rest("POST", "/sentinels", `{`+of+`"target":{"kind":"webhook","url":"`+at.URL+`/callback?token=its-own","secret":"`+watchSecret+`"}}`)["id"].(string)
}

// paths lists the pages of a site with everything in it.
func (w world) paths(base string) []string {
	all := []string{"/", "/?chart=1", "/chart?endpoint=", "/endpoints", "/endpoints/new", "/endpoints/" + w.well, "/endpoints/" + w.failing + "?chart=1", "/endpoints/" + w.failing + "/edit",
		"/events", "/events/" + w.event, "/dead-letters", "/sentinels", "/sentinels/" + w.watch, "/sentinels?status=paused", "/sessions", "/sessions/agent", "/endpoints/" + w.inbox,
		"/endpoints/" + w.inbox + "/edit", "/replays", "/replays/" + w.replay, "/event-types", "/event-types/order.paid", "/nothing"}
	if base == "/console" {
		all = append(all, "/tenants", "/partners", "/keys", "/audit", "/system")
	}
	for i := range all {
		all[i] = base + all[i]
	}
	return all
}
