package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/api"
)

type pulledPage struct {
	Items []struct {
		Cursor, ID, Type string
		WebhookID        string `json:"webhook_id"`
		Urgency          string
		Body             json.RawMessage
	}
	Next string `json:"next_cursor"`
	More bool
}

func (s *site) pull(key, path string) (p pulledPage) {
	s.t.Helper()
	a := s.do(key, "GET", path, "")
	if a.Status != http.StatusOK {
		s.t.Fatalf("%d %s", a.Status, a.Raw)
	}
	a.into(&p)
	return p
}

func TestPullRoutes(t *testing.T) { onBoth(t, testPullRoutes) }

func testPullRoutes(t *testing.T, s *site) {
	a := s.admin("POST", "/v1/webhooks", `{"target":"pull","event_types":["order.*"]}`)
	if a.Status != 201 || a.field("target") != "pull" || a.field("secret") != nil || a.field("url") != "" {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	hook := "/v1/webhooks/" + a.field("id").(string)
	id := s.publish(`{"type":"order.paid","data":{"a" : "<&>",
 "b":1e2}}`)
	s.publish(`{"type":"order.paid","data":2}`)
	p := s.pull(adminKey, hook+"/events")
	if len(p.Items) != 2 || p.Items[0].ID != id || p.More || !strings.HasSuffix(string(p.Items[0].Body), "\"data\":{\"a\" : \"<&>\",\n \"b\":1e2}}") {
		t.Fatalf("%+v", p)
	}
	if a := s.admin("GET", hook+"/inbox", ""); a.field("events") != 2.0 || a.field("oldest_at") == nil {
		t.Errorf("%s", a.Raw)
	}
	if a := s.admin("POST", hook+"/ack", `{"cursor":"`+p.Items[0].Cursor+`"}`); a.field("acknowledged") != 1.0 {
		t.Errorf("%s", a.Raw)
	}
	s.status(id, "succeeded")
	if got := s.pull(adminKey, hook+"/events?cursor="+p.Next); len(got.Items) != 0 {
		t.Errorf("%+v", got)
	}
	if a := s.admin("POST", hook+"/test", ""); a.field("status") != "succeeded" || a.field("test") != true {
		t.Errorf("%s", a.Raw)
	}
	if got := s.pull(adminKey, hook+"/events"); len(got.Items) != 1 || got.Items[0].Type != surehook.TypeTest {
		t.Errorf("%+v", got)
	}
	s.admin("POST", "/v1/erasures", `{"ids":["`+s.publish(`{"type":"order.late","data":1}`)+`"]}`)
	a = s.admin("GET", hook+"/events?cursor="+p.Next, "")
	a.refused(410, surehook.CursorExpired, "")
	var gap struct{ Details api.ProblemDetails }
	if a.into(&gap); gap.Details.Dropped != 1 {
		t.Errorf("%s", a.Raw)
	}
	if got := s.pull(adminKey, hook+"/events?cursor="+gap.Details.NextCursor); len(got.Items) != 1 {
		t.Errorf("%+v", got)
	}
}

func TestPullIsRefused(t *testing.T) {
	s := open(t)
	mine, other := s.hook(`{"target":"pull","tenant_id":"acme"}`), s.hook(`{"target":"pull"}`)
	sent := s.hook(`{"url":"https://example.com/in"}`)
	foreign := s.pull(adminKey, "/v1/webhooks/"+other+"/events").Next
	in := "/v1/webhooks/" + mine + "/events"
	for _, c := range []struct {
		key, path string
		status    int
		code      surehook.ErrorCode
		field     string
	}{
		{adminKey, in + "?cursor=" + foreign, 400, surehook.InvalidRequest, "cursor"},
		{adminKey, in + "?cursor=zzz", 400, surehook.InvalidRequest, "cursor"},
		{adminKey, in + "?cursor=" + strings.Repeat("A", 10_000), 400, surehook.InvalidRequest, "cursor"},
		{adminKey, in + "?from=" + foreign, 400, surehook.InvalidRequest, "cursor"},
		{adminKey, in + "?limit=1001", 400, surehook.InvalidRequest, "limit"},
		{adminKey, in + "?limit=99999999999999999999", 400, surehook.InvalidRequest, "limit"},
		{adminKey, in + "?wait=61", 400, surehook.InvalidRequest, "wait"},
		{adminKey, in + "?wait=-1", 400, surehook.InvalidRequest, "wait"},
		{adminKey, "/v1/webhooks/" + sent + "/events", 409, surehook.Conflict, ""},
		{adminKey, "/v1/webhooks/whk_none/events", 404, surehook.NotFound, ""},
		{s.key("globex", "events:pull"), in, 404, surehook.NotFound, ""},
		{s.key("acme", "read", "webhooks:manage"), in, 403, surehook.Forbidden, ""},
		{"wrong-key-0123456789", in, 401, surehook.Unauthorized, ""},
		{adminKey, "/v1/sessions/" + strings.Repeat("x", 201), 400, surehook.InvalidRequest, "id"},
	} {
		s.do(c.key, "GET", c.path, "").refused(c.status, c.code, c.field)
	}
	if p := s.pull(s.key("acme", "events:pull"), in); p.Next == "" {
		t.Error("its own tenant can't pull")
	}
	for body, field := range map[string]string{
		`{}`: "url",
		`{"target":"pull","url":"https://example.com/"}`:  "url",
		`{"target":"push","url":"https://example.com/"}`:  "target",
		`{"target":"pull","secret":"whsec_a"}`:            "secret",
		`{"target":"pull","headers":{"X-A":"1"}}`:         "headers",
		`{"target":"pull","limits":{"attempts":2}}`:       "limits",
		`{"target":"pull","ordering":"sequence"}`:         "ordering",
		`{"url":"https://example.com/","session_id":"a"}`: "session_id",
		`{"url":"https://example.com/","urgency":"fyi"}`:  "urgency",
	} {
		s.admin("POST", "/v1/webhooks", body).refused(400, surehook.InvalidRequest, field)
	}
	s.admin("POST", "/v1/webhooks", `{"target":"pull","session_id":"nobody"}`).refused(409, surehook.NotAlive, "")
	s.admin("POST", "/v1/webhooks/"+mine+"/rotate-secret", `{}`).refused(409, surehook.Conflict, "")
	s.admin("PATCH", "/v1/webhooks/"+mine, `{"url":"https://example.com/"}`).refused(400, surehook.InvalidRequest, "url")
}

func TestSessions(t *testing.T) { onBoth(t, testSessions) }

func testSessions(t *testing.T, s *site) {
	acme, globex := s.key("acme", "events:pull", "webhooks:manage", "events:write"), s.key("globex", "events:pull")
	if a := s.do(acme, "PUT", "/v1/sessions/agent-1", ""); a.Status != 200 || a.field("alive") != true || a.field("tenant_id") != "acme" {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	if a := s.do(acme, "POST", "/v1/webhooks", `{"target":"pull","session_id":"agent-1","urgency":"steer"}`); a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	s.do(acme, "POST", "/v1/events", `{"type":"a","data":1}`)
	p := s.pull(acme, "/v1/sessions/agent-1/events")
	if len(p.Items) != 1 || p.Items[0].Urgency != "steer" {
		t.Fatalf("%+v", p)
	}
	s.do(globex, "GET", "/v1/sessions/agent-1", "").refused(404, surehook.NotFound, "")
	if p := s.pull(globex, "/v1/sessions/agent-1/events"); len(p.Items) != 0 {
		t.Error("another tenant's session of the same name is read")
	}
	s.do(globex, "POST", "/v1/sessions/agent-1/ack", `{"cursor":"`+p.Next+`"}`).refused(400, surehook.InvalidRequest, "cursor")
	s.do(globex, "GET", "/v1/sessions/agent-1/events?tenant_id=acme", "").refused(403, surehook.Forbidden, "")
	if p := s.pull(adminKey, "/v1/sessions/agent-1/events?tenant_id=acme"); len(p.Items) != 1 {
		t.Error("the platform can't read a tenant's session")
	}
	if a := s.do(acme, "POST", "/v1/sessions/agent-1/ack", `{"cursor":"`+p.Next+`"}`); a.field("acknowledged") != 1.0 {
		t.Errorf("%s", a.Raw)
	}
	if a := s.do(acme, "DELETE", "/v1/sessions/agent-1", ""); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	s.do(acme, "GET", "/v1/sessions/agent-1/events", "").refused(409, surehook.NotAlive, "")
	s.do(acme, "PUT", "/v1/sessions/agent-1", "").refused(409, surehook.NotAlive, "")
	if a := s.do(acme, "PUT", "/v1/sessions/agent-1", `{"anew":true}`); a.Status != 200 {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
}

// streamed is a reader of server-sent events.
type streamed struct {
	t   *testing.T
	res *http.Response
	r   *bufio.Reader
}

func (s *site) stream(ctx context.Context, url, path string, header ...string) *streamed {
	s.t.Helper()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+path, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+adminKey)
	req.Header.Set("Accept", "text/event-stream")
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = res.Body.Close() })
	return &streamed{s.t.(*testing.T), res, bufio.NewReader(res.Body)}
}

// next reads a message: its fields, and its data's lines together.
func (st *streamed) next() (map[string]string, error) {
	m := map[string]string{}
	for {
		line, err := st.r.ReadString('\n')
		if err != nil {
			return nil, err
		}
		line = strings.TrimSuffix(line, "\n")
		name, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && (m["data"] != "" || m["event"] != ""):
			return m, nil
		case line == "":
		case name == "data" && m["data"] != "":
			m["data"] += "\n" + value
		default:
			m[name] = value
		}
	}
}

func (st *streamed) want() map[string]string {
	st.t.Helper()
	m, err := st.next()
	if err != nil {
		st.t.Fatal(err)
	}
	return m
}

func TestStream(t *testing.T) { onBoth(t, testStream) }

func testStream(t *testing.T, s *site) {
	srv := httptest.NewServer(s.h)
	defer srv.Close()
	hook := s.hook(`{"target":"pull"}`)
	path := "/v1/webhooks/" + hook + "/events"
	first := s.publish("{\"type\":\"a\",\"data\":{\n\"n\":1}}")
	st := s.stream(t.Context(), srv.URL, path)
	if ct := st.res.Header.Get("Content-Type"); ct != "text/event-stream" {
		t.Fatal(ct)
	}
	m := st.want()
	var it struct {
		ID     string
		Cursor string
		Body   json.RawMessage
	}
	if err := json.Unmarshal([]byte(m["data"]), &it); err != nil || it.ID != first || it.Cursor != m["id"] || !strings.HasSuffix(string(it.Body), "{\n\"n\":1}}") {
		t.Fatalf("%v: %q", err, m)
	}
	second := s.publish(`{"type":"a","data":2}`)
	if m := st.want(); !strings.Contains(m["data"], second) {
		t.Fatalf("%q", m)
	}
	_ = st.res.Body.Close()
	s.status(first, "pending") // nothing was acknowledged

	st = s.stream(t.Context(), srv.URL, path, "Last-Event-ID", m["id"], "Accept", "Text/Event-Stream")
	if m := st.want(); !strings.Contains(m["data"], second) {
		t.Fatalf("after a reconnect: %q", m)
	}
	s.status(first, "succeeded")
	third := s.publish(`{"type":"a","data":3}`)
	if m = st.want(); !strings.Contains(m["data"], third) {
		t.Fatalf("%q", m)
	}
	s.admin("POST", "/v1/erasures", `{"ids":["`+second+`"]}`)
	s.publish(`{"type":"a","data":4}`)
	if gap := st.want(); gap["event"] != "gap" || !strings.Contains(gap["data"], `"dropped":1`) || gap["id"] == "" {
		t.Fatalf("%q", gap)
	}
	if m := st.want(); !strings.Contains(m["data"], `"data":4`) {
		t.Fatalf("%q", m)
	}
	bad := s.stream(t.Context(), srv.URL, "/v1/webhooks/"+s.hook(`{"target":"pull"}`)+"/events", "Last-Event-ID", m["id"])
	if m := bad.want(); m["event"] != "error" || !strings.Contains(m["data"], "invalid_request") {
		t.Errorf("%q", m)
	}
	s.admin("DELETE", "/v1/webhooks/"+hook, "")
	s.h.(*api.Handler).EndWaits()
	if _, err := st.next(); !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("the stream goes on: %v", err)
	}
}

// Readers that go leave nothing behind, and one that doesn't read holds nobody up.
func TestStreamsComeAndGo(t *testing.T) {
	s := open(t)
	srv := httptest.NewServer(s.h)
	defer srv.Close()
	path := "/v1/webhooks/" + s.hook(`{"target":"pull"}`) + "/events"
	all, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			req, _ := http.NewRequestWithContext(all, http.MethodGet, srv.URL+path, nil)
			req.Header.Set("Authorization", "Bearer "+adminKey)
			req.Header.Set("Accept", "text/event-stream")
			if res, err := http.DefaultClient.Do(req); err == nil {
				_, _ = io.Copy(io.Discard, res.Body)
				_ = res.Body.Close()
			}
		})
	}
	s.until("all wait", func() bool { return s.e.PullStats().Readers == 100 })
	cancel()
	wg.Wait()
	s.until("all are gone", func() bool { return s.e.PullStats().Readers == 0 })

	ctx, stop := context.WithTimeout(t.Context(), 20*time.Second)
	defer stop()
	s.stream(ctx, srv.URL, path) // never read
	big := strings.Repeat("x", 500_000)
	for i := range 20 {
		s.publish(fmt.Sprintf(`{"type":"a","data":"%d%s"}`, i, big))
	}
	st := s.stream(ctx, srv.URL, path)
	for i := range 20 {
		if m := st.want(); !strings.Contains(m["data"][:500], fmt.Sprintf(`"data":"%dx`, i)) {
			t.Fatalf("%d: %.200q", i, m)
		}
	}
	stop()
}
