package client_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook/client"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/store/sqlite"
)

const key = "test-admin-key-0123456789"

// server is the real API, and remembers which routes were asked for.
type server struct {
	*httptest.Server
	api  http.Handler
	mu   sync.Mutex
	seen map[string]bool
	docs *http.ServeMux
	all  []string
}

func start(t *testing.T) (*server, *client.Client) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "surehook.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Store: store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)},
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	s := &server{api: api.New(api.Options{Engine: e, Version: "test"}), seen: map[string]bool{}, docs: http.NewServeMux()}
	s.Server = httptest.NewServer(s)
	t.Cleanup(func() {
		s.Close()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(e.Stop(ctx), store.Close()); err != nil {
			t.Error(err)
		}
	})
	if _, _, err := api.EnsureAdminKey(t.Context(), e, key); err != nil {
		t.Fatal(err)
	}
	s.read(t)
	c, err := client.New(s.URL+"/", key)
	if err != nil {
		t.Fatal(err)
	}
	return s, c
}

// read learns the routes from the document.
func (s *server) read(t *testing.T) {
	t.Helper()
	w := httptest.NewRecorder()
	s.api.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/openapi.json", nil))
	var doc struct{ Paths map[string]map[string]any }
	if err := json.Unmarshal(w.Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	for path, ops := range doc.Paths {
		for method := range ops {
			pattern := strings.ToUpper(method) + " " + path
			s.docs.HandleFunc(pattern, func(http.ResponseWriter, *http.Request) {})
			if strings.HasPrefix(path, "/v1") {
				s.all = append(s.all, pattern)
			}
		}
	}
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, pattern := s.docs.Handler(r)
	s.mu.Lock()
	s.seen[pattern] = true
	s.mu.Unlock()
	s.api.ServeHTTP(w, r)
}

// must ends the test on an error.
func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func collect[T any](t *testing.T, seq func(func(T, error) bool)) (out []T) {
	t.Helper()
	for v, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, v)
	}
	return out
}

// There is a method for every route.
func TestEveryRouteHasAMethod(t *testing.T) {
	s, c := start(t)
	ctx := t.Context()
	r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Status: 500} })
	hook := must[client.Webhook](t)(c.CreateWebhook(ctx, client.WebhookInput{URL: r.URL + "/in", Subjects: []string{"a"}, Limits: &client.Limits{Attempts: 1}}))
	if hook.Secret == "" {
		t.Fatal("no secret")
	}
	data := " {\"k\" : \"<&>\u2028\",\n\"n\":12345678901234567890} "
	ev := must[client.Receipt](t)(c.Publish(ctx, client.Event{Type: "order.paid", Subjects: []string{"a"}, Data: json.RawMessage(data)}))
	if got := must[client.Event](t)(c.Event(ctx, ev.ID)); string(got.Data) != strings.TrimSpace(data) {
		t.Errorf("data came back as %s", got.Data)
	}
	r.Wait(t, 1)
	var letters []client.DeadLetter
	for len(letters) == 0 {
		letters = collect(t, c.DeadLetters(ctx, client.DeadLetterFilter{WebhookID: hook.ID}))
	}
	if d := must[client.DeadLetter](t)(c.DeadLetter(ctx, letters[0].ID)); d.EventID != ev.ID || d.Error == nil || *d.Error != "status_5xx" {
		t.Errorf("%+v", d)
	}
	if d := must[client.Delivery](t)(c.Delivery(ctx, hook.ID, ev.ID)); d.Status != "dead" {
		t.Errorf("%+v", d)
	}
	reads(t, c, hook.ID, ev.ID)
	pulls(t, c)
	changes(t, c, hook.ID, ev.ID, letters[0].ID)
	for _, pattern := range s.all {
		if !s.seen[pattern] {
			t.Errorf("no method asks for %s", pattern)
		}
	}
}

func reads(t *testing.T, c *client.Client, hook, ev string) {
	t.Helper()
	ctx := t.Context()
	for name, n := range map[string]int{
		"events": len(collect(t, c.Events(ctx, client.EventFilter{Type: "order.*", Since: time.Now().Add(-time.Hour)}))), "event's deliveries": len(collect(t, c.EventDeliveries(ctx, ev))),
		"event's attempts": len(collect(t, c.EventAttempts(ctx, ev))), "webhooks": len(collect(t, c.Webhooks(ctx, client.WebhookFilter{Platform: true, Enabled: "true"}))),
		"history": min(1, len(collect(t, c.WebhookHistory(ctx, hook, client.Page{})))), "attempts": len(collect(t, c.WebhookAttempts(ctx, hook, client.Page{}))), "deliveries": len(collect(t, c.Deliveries(ctx, hook, "dead", client.Page{}))),
		"keys": len(collect(t, c.Keys(ctx))), "audit log": min(1, len(collect(t, c.AuditLog(ctx, "", client.Page{})))),
		"stats": min(1, len(must[[]client.StatsBucket](t)(c.Stats(ctx, hook, time.Now().Add(-time.Hour), time.Time{}, time.Minute)))),
	} {
		if n != 1 {
			t.Errorf("%s: %d rows", name, n)
		}
	}
	if o := must[client.Overview](t)(c.Overview(ctx)); o.DeadLetters != 1 || o.Webhooks.Failing != 1 {
		t.Errorf("%+v", o)
	}
	if l := must[client.Lane](t)(c.Lane(ctx, hook)); l.Breaker != "closed" {
		t.Errorf("%+v", l)
	}
	if b := must[[]client.StatsBucket](t)(c.AllStats(ctx, time.Now().Add(-time.Hour), time.Time{}, time.Minute)); len(b) == 0 {
		t.Error("no statistics")
	}
	if s := must[client.System](t)(c.System(ctx)); s.Version != "test" || s.Nodes != 1 {
		t.Errorf("%+v", s)
	}
	if u := must[client.CheckedURL](t)(c.CheckURL(ctx, "ftp://example.com")); u.Allowed || u.Reason == "" {
		t.Errorf("%+v", u)
	}
	if l := must[client.PortalLink](t)(c.CreatePortalLink(ctx, client.PortalLinkInput{TenantID: "acme"})); !strings.Contains(l.URL, "token=") {
		t.Errorf("%+v", l)
	}
	if p := must[[]client.SentinelProvider](t)(c.SentinelProviders(ctx)); len(p) == 0 || must[client.SentinelProvider](t)(c.SentinelProvider(ctx, p[0].Slug)).Slug != p[0].Slug {
		t.Errorf("%+v", p)
	}
	if err := c.Ready(ctx); err != nil {
		t.Error(err)
	}
	if v := must[string](t)(c.Version(ctx)); v != "test" {
		t.Errorf("version %q", v)
	}
}

// pulls reads the inboxes of a webhook and of a session.
func pulls(t *testing.T, c *client.Client) {
	t.Helper()
	ctx := t.Context()
	hook := must[client.Webhook](t)(c.CreateWebhook(ctx, client.WebhookInput{Target: "pull", Subjects: []string{"pulled"}}))
	must[client.Session](t)(c.OpenSession(ctx, "agent", false))
	ev := must[client.Receipt](t)(c.Publish(ctx, client.Event{Type: "pulled", Subjects: []string{"pulled"}, Data: json.RawMessage(`1`)}))
	p := must[client.PullPage](t)(c.Pull(ctx, client.WebhookInbox(hook.ID), client.PullInput{Wait: time.Minute}))
	if len(p.Items) != 1 || p.Items[0].ID != ev.ID {
		t.Fatalf("%+v", p)
	}
	if n := must[int](t)(c.Ack(ctx, client.WebhookInbox(hook.ID), p.Next)); n != 1 {
		t.Errorf("%d acknowledged", n)
	}
	if i := must[client.InboxState](t)(c.InboxState(ctx, hook.ID)); i.Events != 0 {
		t.Errorf("%+v", i)
	}
	empty := must[client.PullPage](t)(c.Pull(ctx, client.SessionInbox("agent", ""), client.PullInput{}))
	must[int](t)(c.Ack(ctx, client.SessionInbox("agent", ""), empty.Next))
	if s := must[client.Session](t)(c.Session(ctx, "agent")); !s.Alive || len(collect(t, c.Sessions(ctx, ""))) != 1 {
		t.Errorf("%+v", s)
	}
	if err := c.CloseSession(ctx, "agent"); err != nil {
		t.Error(err)
	}
	if err := c.DeleteWebhook(ctx, hook.ID); err != nil {
		t.Error(err)
	}
}

func changes(t *testing.T, c *client.Client, hook, ev, letter string) {
	t.Helper()
	ctx := t.Context()
	if w := must[client.Webhook](t)(c.PauseWebhook(ctx, hook)); !w.Paused || !w.Enabled {
		t.Errorf("%+v", w)
	}
	if w := must[client.Webhook](t)(c.ResumeWebhook(ctx, hook)); w.Paused {
		t.Errorf("%+v", w)
	}
	w := must[client.Webhook](t)(c.UpdateWebhook(ctx, hook, client.WebhookPatch{Clear: []string{"subjects", "limits"}, Description: new("x<y")}))
	if w.Subjects != nil || w.Limits.Attempts != 0 || w.Description != "x<y" || fmt.Sprint(w.EventTypes) != "[*]" {
		t.Errorf("%+v", w)
	}
	if w := must[client.Webhook](t)(c.Webhook(ctx, hook)); w.Secret != "" {
		t.Error("the secret is shown again")
	}
	must[client.Rotated](t)(c.RotateSecret(ctx, hook, 90*time.Minute))
	must[client.Attempt](t)(c.TestWebhook(ctx, hook))
	must[client.Queued](t)(c.ReplayDeadLetters(ctx, []string{letter}))
	must[client.Queued](t)(c.ReplayDelivery(ctx, hook, ev))
	since := time.Now().Add(-time.Hour)
	job := must[client.Queued](t)(c.Replay(ctx, hook, client.ReplayInput{Since: &since, Background: true})).Replay
	must[client.Replay](t)(c.CancelReplay(ctx, job.ID))
	must[client.Replay](t)(c.GetReplay(ctx, job.ID))
	must[client.EventType](t)(c.PutEventType(ctx, client.EventType{Name: "a", Schema: json.RawMessage(`{"type":"string"}`), Validate: true}))
	must[client.EventType](t)(c.EventType(ctx, "a"))
	must[[]client.EventType](t)(c.EventTypes(ctx))
	must[client.Tenant](t)(c.PutTenant(ctx, "acme", client.TenantInput{Name: "Acme", PartnerID: "p"}))
	must[client.Tenant](t)(c.Tenant(ctx, "acme"))
	must[client.Partner](t)(c.PutPartner(ctx, "p", "Hub", "suspended"))
	if p := must[client.Partner](t)(c.Partner(ctx, "p")); p.Status != "suspended" || p.Name != "Hub" || len(collect(t, c.Partners(ctx))) != 1 {
		t.Errorf("%+v", p)
	}
	if e := must[client.Erased](t)(c.Erase(ctx, client.Erasure{IDs: []string{ev}})); e.Events != 1 || e.Next != "" {
		t.Errorf("%+v", e)
	}
	k := must[client.Key](t)(c.CreateKey(ctx, client.KeyInput{Permissions: []string{"read"}}))
	if _, err := c.DiscardDeadLetters(ctx, []string{"ded_1"}); err == nil {
		t.Error("an unknown dead letter is discarded")
	}
	if n := len(collect(t, c.Replays(ctx, hook))) + len(collect(t, c.Tenants(ctx))); n != 2 {
		t.Errorf("%d rows", n)
	}
	must[[]client.BatchResult](t)(c.PublishBatch(ctx, []client.Event{{Type: "b", Data: json.RawMessage("1")}}))
	for _, err := range []error{c.RevokePreviousSecret(ctx, hook), c.DeleteEventType(ctx, "a"), c.DeleteTenant(ctx, "acme"), c.DeletePartner(ctx, "p"), c.RevokeKey(ctx, k.ID), c.DeleteWebhook(ctx, hook)} {
		if err != nil {
			t.Error(err)
		}
	}
}

func TestPagesAreFollowed(t *testing.T) {
	_, c := start(t)
	var lines strings.Builder
	for i := range 25 {
		fmt.Fprintf(&lines, "{\"type\":\"a\",\"id\":\"e%d\",\"data\":%d}\n\n", i, i)
	}
	if err := c.PublishLines(t.Context(), strings.NewReader(lines.String()), func([]client.Line) error { return nil }); err != nil {
		t.Fatal(err)
	}
	seq := c.Events(t.Context(), client.EventFilter{Page: client.Page{Limit: 10}})
	for range 2 { // a listing may be read twice
		if got := collect(t, seq); len(got) != 25 || got[0].ID != "e24" || got[24].ID != "e0" {
			t.Errorf("%d rows: %+v", len(got), got)
		}
	}
	n := 0
	for _, err := range seq {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 12 {
			break
		}
	}
}

func TestErrorsTellWhatIsWrong(t *testing.T) {
	s, c := start(t)
	_, err := c.CreateWebhook(t.Context(), client.WebhookInput{URL: "ftp://secret-token.example.com"})
	p, ok := errors.AsType[*client.Problem](err)
	if !ok || p.Status != 400 || p.Code != "invalid_request" || p.Errors[0].Path != "url" || p.RequestID == "" || strings.Contains(err.Error(), "secret-token") {
		t.Errorf("%+v", err)
	}
	wrong, err := client.New(s.URL, "wrong-key-s3cret")
	if err != nil {
		t.Fatal(err)
	}
	_, err = wrong.Webhook(t.Context(), "whk_1")
	if p, ok := errors.AsType[*client.Problem](err); !ok || p.Code != "unauthorized" || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("%+v", err)
	}
	s.Close()
	if _, err = c.Webhook(t.Context(), "whk_s3cret"); err == nil || strings.Contains(err.Error(), "s3cret") || strings.Contains(err.Error(), key) {
		t.Errorf("%v", err)
	}
	for _, bad := range [][2]string{{"", key}, {"ftp://x", key}, {"127.0.0.1:8080", key}, {s.URL, ""}} {
		if _, err := client.New(bad[0], bad[1]); err == nil {
			t.Errorf("%q is taken", bad)
		}
	}
}

// busy answers 503 a number of times, and keeps what it was sent.
func busy(t *testing.T, times int) (c *client.Client, bodies func() []string) {
	t.Helper()
	var mu sync.Mutex
	var got []string
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		mu.Lock()
		defer mu.Unlock()
		if got = append(got, string(body)); len(got) <= times {
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = io.WriteString(w, `{"code":"store_unavailable","detail":"the disk is full","status":503}`)
			return
		}
		var in struct{ Events []json.RawMessage }
		_ = json.Unmarshal(body, &in)
		_, _ = io.WriteString(w, `{"results":[`+strings.TrimSuffix(strings.Repeat(`{"id":"x"},`, len(in.Events)), ",")+`]}`)
	}))
	t.Cleanup(s.Close)
	c, err := client.New(s.URL, key)
	if err != nil {
		t.Fatal(err)
	}
	return c, func() []string { mu.Lock(); defer mu.Unlock(); return slices.Clone(got) }
}

// Publishing is repeated after a 503, and a repeat can't be another event.
func TestPublishingIsRepeated(t *testing.T) {
	c, bodies := busy(t, 2)
	n := 0
	err := c.PublishLines(t.Context(), strings.NewReader(`{"type":"a","data":1}`+"\n"+`{"type":"a","data":2}`), func(lines []client.Line) error {
		n += len(lines)
		return nil
	})
	got := bodies()
	if err != nil || n != 2 || len(got) != 3 || got[0] != got[1] || got[1] != got[2] || !strings.Contains(got[0], `"id":"evt_`) {
		t.Errorf("%v, %d results: %q", err, n, got)
	}
}

// Other changes aren't: the server may have made them.
func TestChangesAreSentOnce(t *testing.T) {
	c, bodies := busy(t, 100)
	_, err := c.CreateWebhook(t.Context(), client.WebhookInput{URL: "https://h.example.com/"})
	if p, ok := errors.AsType[*client.Problem](err); !ok || p.Status != 503 || len(bodies()) != 1 {
		t.Errorf("%v after %d requests", err, len(bodies()))
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { _, err := c.Webhook(ctx, "whk_1"); done <- err }()
	for len(bodies()) < 3 { // it is waiting to ask once more
		if ctx.Err() != nil {
			break
		}
	}
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
