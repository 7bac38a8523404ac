package github

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/store/sqlite"
)

func read(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".json"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// change gives a payload with other values at some paths.
func change(t testing.TB, raw []byte, to map[string]any) []byte {
	t.Helper()
	var all map[string]any
	if err := json.Unmarshal(raw, &all); err != nil {
		t.Fatal(err)
	}
	for path, v := range to {
		at, names := all, strings.Split(path, ".")
		for _, n := range names[:len(names)-1] {
			at, _ = at[n].(map[string]any)
		}
		if at[names[len(names)-1]] = v; v == nil {
			delete(at, names[len(names)-1])
		}
	}
	b, err := json.Marshal(all)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestMap(t *testing.T) {
	const hello = "github:Codertocat/Hello-World"
	pr := []string{hello + "#2", hello, "github:Codertocat"}
	link := map[string]any{"url": "https://api.github.com/repos/Codertocat/Hello-World/pulls/1", "merged_at": nil}
	for _, c := range []struct {
		file, kind, typ, summary, at string
		subjects                     []string
		terminal                     bool
		to                           map[string]any
	}{
		{file: "check_suite.completed", kind: "check_suite", typ: CheckSuite, subjects: pr, summary: "Codertocat/Hello-World#2 check suite: success", at: "2019-05-15T15:21:14Z"},
		{file: "check_suite.completed", kind: "check_suite", typ: CheckSuite, subjects: pr[1:], summary: "Codertocat/Hello-World check suite: failure", at: "2019-05-15T15:21:14Z",
			to: map[string]any{"check_suite.pull_requests": []any{}, "check_suite.conclusion": "failure"}},
		{file: "workflow_run.completed", kind: "workflow_run", typ: WorkflowRun, summary: "octo-org/octo-repo workflow: success", at: "2020-10-05T16:33:49Z",
			subjects: []string{"github:octo-org/octo-repo", "github:octo-org"}}, // its pull request is another repository's
		{file: "workflow_run.completed", kind: "workflow_run", typ: WorkflowRun, summary: "Codertocat/Hello-World#2 workflow Tests: cancelled", at: "2020-10-05T16:33:49Z", subjects: pr,
			to: map[string]any{"repository.id": 186853002, "repository.full_name": "Codertocat/Hello-World", "workflow_run.name": "Tests", "workflow_run.conclusion": "cancelled"}},
		{file: "pull_request_review.submitted", kind: "pull_request_review", typ: Review, subjects: pr, summary: "Codertocat/Hello-World#2 review: commented by Codertocat", at: "2019-05-15T15:20:38Z"},
		{file: "pull_request.closed", kind: "pull_request", typ: Closed, subjects: pr, terminal: true, summary: "Codertocat/Hello-World#2 closed without merging by Codertocat", at: "2019-05-15T15:21:18Z"},
		{file: "pull_request.closed", kind: "pull_request", typ: Closed, subjects: pr, terminal: true, summary: "Codertocat/Hello-World#2 merged by Codertocat", at: "2019-05-15T15:21:18Z",
			to: map[string]any{"pull_request.merged": true}},
		{file: "pull_request.synchronize", kind: "pull_request", typ: Synchronize, subjects: pr, summary: "Codertocat/Hello-World#2 new commits by Codertocat", at: "2019-05-15T15:20:33Z"},
		{file: "issue_comment.created", kind: "issue_comment", typ: Comment, subjects: []string{hello + "#1", hello, "github:Codertocat"}, at: "2019-05-15T15:20:21Z",
			summary: "Codertocat/Hello-World#1 comment by Codertocat: You are totally right! I'll get this fixed right away.", to: map[string]any{"issue.pull_request": link}},
	} {
		raw := change(t, read(t, c.file), c.to)
		ev, known, err := Map(c.kind, raw)
		ce, ok := ev.CloudEvent()
		if err != nil || !known || !ok || ev.Type != c.typ || !slices.Equal(ev.Subjects, c.subjects) || ce.Extensions["summary"] != c.summary || ce.Extensions["terminal"] != c.terminal ||
			ce.Subject != c.subjects[0] || ce.Time != c.at || ev.OccurredAt.UTC().Format("2006-01-02T15:04:05Z") != c.at || !strings.HasPrefix(ce.Source, "https://github.com/") {
			t.Errorf("%s: %v %v\n%s %v %s\n%+v %s", c.file, known, err, ev.Type, ev.Subjects, ev.OccurredAt, ce, ev.Content())
		}
		if !json.Valid(ev.Data) || !strings.Contains(string(ev.Content()), `"sender":"Codertocat"`) {
			t.Errorf("%s: %s", c.file, ev.Data)
		}
	}
}

func TestMapIgnoresWhatNobodyWatches(t *testing.T) {
	for file, kind := range map[string]string{"check_suite.requested": "check_suite", "issue_comment.created": "issue_comment", "ping": "ping", "pull_request.closed": "push", "check_suite.completed": ""} {
		if ev, known, err := Map(kind, read(t, file)); known || err != nil {
			t.Errorf("%s: %+v, %v", file, ev, err)
		}
	}
	if _, known, err := Map("pull_request", change(t, read(t, "pull_request.closed"), map[string]any{"action": "labeled"})); known || err != nil {
		t.Error(known, err)
	}
}

func TestMapRefusesWhatGitHubDoesNotSend(t *testing.T) {
	for _, c := range []struct {
		file, kind string
		to         map[string]any
	}{
		{"pull_request.closed", "pull_request", map[string]any{"repository": nil}},
		{"pull_request.closed", "pull_request", map[string]any{"pull_request": nil}},
		{"pull_request.closed", "pull_request", map[string]any{"pull_request.number": 0}},
		{"pull_request.closed", "pull_request", map[string]any{"pull_request.number": "2"}},
		{"pull_request.closed", "pull_request", map[string]any{"repository.full_name": "x"}},
		{"check_suite.completed", "check_suite", map[string]any{"check_suite": nil}},
		{"check_suite.completed", "check_suite", map[string]any{"repository": nil}},
		{"workflow_run.completed", "workflow_run", map[string]any{"workflow_run.updated_at": "x"}},
		{"pull_request_review.submitted", "pull_request_review", map[string]any{"review": nil}},
		{"issue_comment.created", "issue_comment", map[string]any{"issue": nil}},
	} {
		if _, known, err := Map(c.kind, change(t, read(t, c.file), c.to)); known || err == nil {
			t.Errorf("%s with %v is taken", c.file, c.to)
		}
	}
	for _, raw := range []string{``, `[]`, `{`, `"x"`} {
		if _, known, err := Map("ping", []byte(raw)); known || err == nil {
			t.Errorf("%q is taken", raw)
		}
	}
}

// Whatever people write, data stays small, and subjects within an event's bound.
func TestMapBounds(t *testing.T) {
	long := strings.Repeat("é\"\x00", 1<<16)
	ev, _, err := Map("pull_request_review", change(t, read(t, "pull_request_review.submitted"), map[string]any{"review.body": long, "pull_request.title": long, "pull_request.head.ref": long}))
	if err != nil || len(ev.Data) > 32<<10 || !json.Valid(ev.Data) {
		t.Errorf("%d bytes, %v", len(ev.Data), err)
	}
	var pulls []any
	for n := range 40 {
		pulls = append(pulls, map[string]any{"number": n + 1, "base": map[string]any{"repo": map[string]any{"id": 186853002}}})
	}
	ev, _, err = Map("check_suite", change(t, read(t, "check_suite.completed"), map[string]any{"check_suite.pull_requests": pulls}))
	if err != nil || len(ev.Subjects) != 16 || ev.Subjects[15] != "github:Codertocat" {
		t.Errorf("%v, %v", ev.Subjects, err)
	}
}

const secret = "a secret of the webhook"

// site is a webhook over a real engine.
func site(t *testing.T) (*Webhook, *engine.Engine) {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "surehook.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Store: store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(t.Context()); err != nil {
			t.Log(err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	})
	h, err := New(Options{Publish: e.Publish, Secrets: []string{"the previous secret", secret}, Tenant: "acme"})
	if err != nil {
		t.Fatal(err)
	}
	return h, e
}

func sign(key string, body []byte) string {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write(body)
	return "sha256=" + hex.EncodeToString(mac.Sum(nil))
}

// post sends a webhook as GitHub does, with some headers changed; an empty value
// takes one away.
func post(t *testing.T, h http.Handler, kind, id string, body []byte, header ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), "POST", "/providers/webhook/github", bytes.NewReader(body))
	for name, v := range map[string]string{"Content-Type": "application/json", "X-GitHub-Event": kind, "X-GitHub-Delivery": id, "X-Hub-Signature-256": sign(secret, body)} {
		r.Header.Set(name, v)
	}
	for i := 0; i+1 < len(header); i += 2 {
		if r.Header.Set(header[i], header[i+1]); header[i+1] == "" {
			r.Header.Del(header[i])
		}
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, r)
	return w
}

func TestWebhook(t *testing.T) {
	h, e := site(t)
	const id = "72d3162e-cc78-11e3-81ab-4c9367dc0958"
	body := read(t, "pull_request.closed")
	for i, want := range []string{`{"id":"gh:` + id + `","duplicate":false,"deliveries":0}`, `{"id":"gh:` + id + `","duplicate":true,"deliveries":0}`} {
		if w := post(t, h, "pull_request", id, body); w.Code != 202 || strings.TrimSpace(w.Body.String()) != want {
			t.Errorf("time %d: %d %s", i, w.Code, w.Body)
		}
	}
	tenant := "acme"
	ev, err := e.Store().Event(t.Context(), &tenant, "gh:"+id)
	if err != nil || ev.Type != Closed || ev.Subjects[0] != "github:Codertocat/Hello-World#2" {
		t.Fatalf("%+v, %v", ev, err)
	}
	if w := post(t, h, "pull_request", "1-a", body, "X-Hub-Signature-256", sign("the previous secret", body)); w.Code != 202 {
		t.Errorf("with the previous secret: %d %s", w.Code, w.Body)
	}
	for _, kind := range []string{"ping", "push", "star"} {
		if w := post(t, h, kind, "1-b", read(t, "ping")); w.Code != 202 || !strings.Contains(w.Body.String(), `"ignored":`) {
			t.Errorf("%s: %d %s", kind, w.Code, w.Body)
		}
	}
}

func TestWebhookRefuses(t *testing.T) {
	h, e := site(t)
	body := read(t, "pull_request.closed")
	for _, c := range []struct {
		name   string
		status int
		body   []byte
		header []string
	}{
		{"no signature", 400, body, []string{"X-Hub-Signature-256", ""}},
		{"another key", 401, body, []string{"X-Hub-Signature-256", sign("another", body)}},
		{"another body", 401, append(slices.Clone(body), ' '), []string{"X-Hub-Signature-256", sign(secret, body)}},
		{"SHA-1", 401, body, []string{"X-Hub-Signature-256", "sha1=" + strings.Repeat("0", 40)}},
		{"no id", 400, body, []string{"X-GitHub-Delivery", ""}},
		{"a wrong id", 400, body, []string{"X-GitHub-Delivery", "a.b"}},
		{"a long id", 400, body, []string{"X-GitHub-Delivery", strings.Repeat("a", 101)}},
		{"no kind", 400, body, []string{"X-GitHub-Event", ""}},
		{"a form", 415, body, []string{"Content-Type", "application/x-www-form-urlencoded"}},
		{"no JSON", 400, []byte(`{`), nil},
		{"too large", 413, bytes.Repeat([]byte(" "), 1<<20+1), nil},
	} {
		w := post(t, h, "pull_request", "1-a", c.body, c.header...)
		var p problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil || w.Code != c.status || p.Status != c.status || p.Detail == "" || p.Code == "" || w.Header().Get("Content-Type") != "application/problem+json" {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		if strings.HasPrefix(c.name, "no id") && !strings.Contains(p.Detail, "X-GitHub-Delivery") {
			t.Errorf("%s: %s", c.name, p.Detail)
		}
		if strings.Contains(w.Body.String(), secret) {
			t.Errorf("%s: the secret is in the answer", c.name)
		}
	}
	if rows, err := e.Store().ListEvents(t.Context(), surehook.EventFilter{}, surehook.Page{Limit: 5}); err != nil || len(rows) != 0 {
		t.Errorf("published: %v, %v", rows, err)
	}
	if w := post(t, h, "pull_request", "1-a", body); w.Code != 202 {
		t.Fatal(w.Code, w.Body)
	}
	other := change(t, body, map[string]any{"pull_request.merged": true})
	if w := post(t, h, "pull_request", "1-a", other); w.Code != 409 {
		t.Errorf("another body with a known id: %d %s", w.Code, w.Body)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := post(t, h, "pull_request", "1-c", body); w.Code != 503 || w.Header().Get("Retry-After") == "" {
		t.Errorf("stopped: %d %s", w.Code, w.Body)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, o := range []Options{{}, {Secrets: []string{secret}}, {Publish: (&engine.Engine{}).Publish}, {Publish: (&engine.Engine{}).Publish, Secrets: []string{""}}} {
		if _, err := New(o); err == nil {
			t.Errorf("%+v is taken", o)
		}
	}
}
