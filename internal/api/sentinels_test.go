package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/signing"
)

const (
	sentinelSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"
	otherSecret    = "whsec_ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4"
)

// callback passes challenges, and answers events with a status.
func callback(status int) receivertest.Script {
	return func(_ int, r receivertest.Request) receivertest.Answer {
		if a, ok := echo(r); ok {
			return a
		}
		return receivertest.Answer{Status: status}
	}
}

func echo(r receivertest.Request) (receivertest.Answer, bool) {
	var in struct{ Type, Challenge string }
	if json.Unmarshal(r.Body, &in) != nil || in.Type != "verification" {
		return receivertest.Answer{}, false
	}
	return receivertest.Answer{Body: `{"challenge":"` + in.Challenge + `","more":1}`}, true
}

// spec is a sentinel's with a webhook; more goes before the target.
func webhookSpec(url, more string) string {
	return fmt.Sprintf(`{"match":[{"subject":"github:o/r*"}],"until":{"kind":"never"},%s"target":{"kind":"webhook","url":%q,"secret":%q}}`, more, url+"/hook?token=t0ken", sentinelSecret)
}

func (s *site) sentinel(spec string) string {
	s.t.Helper()
	a := s.admin("POST", "/sentinels", spec)
	if a.Status != http.StatusCreated {
		s.t.Fatalf("%d %s", a.Status, a.Raw)
	}
	if strings.Contains(string(a.Raw), "whsec_") {
		s.t.Errorf("the secret is in the answer: %s", a.Raw)
	}
	return a.field("id").(string)
}

// pr publishes a CloudEvent about a pull request.
func (s *site) pr(id, typ, more string) string {
	s.t.Helper()
	return s.publishCloud(fmt.Sprintf(`{"specversion":"1.0","id":%q,"source":"https://github.com/o/r","type":%q,"subject":"github:o/r#7","summary":"seven",
		"subjects":["github:o/r#7","github:o/r","github:o"]%s}`, id, typ, more))
}

func (s *site) publishCloud(body string) string {
	s.t.Helper()
	a := s.admin("POST", "/v1/events", body, "Content-Type", "application/cloudevents+json")
	if a.Status != http.StatusAccepted {
		s.t.Fatalf("%d %s", a.Status, a.Raw)
	}
	return a.field("id").(string)
}

func TestSentinelWebhook(t *testing.T) { onBoth(t, testSentinelWebhook) }

func testSentinelWebhook(t *testing.T, s *site) {
	r := receivertest.New(t, callback(200))
	id := s.sentinel(webhookSpec(r.URL, `"label":"mine","group":"g",`))
	first := r.Wait(t, 1)[0]
	if !strings.HasPrefix(first.ID(), "msg_verification_") || first.Get("X-MCP-Subscription-Id") != id || first.Get("Content-Type") != "application/json" {
		t.Errorf("challenge: %s %v", first.Line, first.Header)
	}
	verify(t, first, sentinelSecret)
	var c struct{ Type, Challenge string }
	if err := json.Unmarshal(first.Body, &c); err != nil || c.Type != "verification" || len(c.Challenge) != 64 {
		t.Errorf("challenge: %s", first.Body)
	}
	s.pr("e1", "github.pull_request.closed", `,"terminal":true,"data":{"n":1.0,"subject":"theirs","summary":2}`)
	s.pr("e2", "github.star.created", ``) // not among the default types
	s.status("e1", "succeeded")
	got := r.Wait(t, 2)[1]
	verify(t, got, sentinelSecret)
	if got.ID() != "e1" || got.Get("X-MCP-Subscription-Id") != id {
		t.Errorf("%v", got.Header)
	}
	at := ""
	var body struct{ Timestamp string }
	if json.Unmarshal(got.Body, &body) == nil {
		at = body.Timestamp
	}
	if want := `{"eventId":"e1","name":"github.pull_request.closed","timestamp":"` + at + `","data":{"n":1.0,"subject":"github:o/r#7","summary":"seven"},"cursor":null}`; string(got.Body) != want {
		t.Errorf("got  %s\nwant %s", got.Body, want)
	}
	list := s.admin("GET", "/sentinels", "")
	var all struct {
		Sentinels []map[string]any
	}
	if list.into(&all); len(all.Sentinels) != 1 {
		t.Fatalf("%s", list.Raw)
	}
	v := all.Sentinels[0]
	target, sum := v["target"].(map[string]any), v["deliveryStatus"].(map[string]any)
	if v["id"] != id || v["provider"] != "webhook" || v["status"] != "active" || v["label"] != "mine" || v["group"] != "g" || v["eventCount"] != 1.0 || v["lastEventTs"].(float64) < v["createdTs"].(float64) ||
		target["kind"] != "webhook" || target["hasSecret"] != true || target["secretRedacted"] != true || sum["lastStatus"] != "delivered" || sum["active"] != 0.0 || sum["attempts"] != 1.0 || sum["lastError"] != nil {
		t.Errorf("%s", list.Raw)
	}
	if strings.Contains(string(list.Raw), "whsec_") {
		t.Errorf("a secret: %s", list.Raw)
	}
	if a := s.do(s.key("", surehook.PermRead), "GET", "/sentinels/"+id, ""); a.Status != 200 || strings.Contains(string(a.Raw), "t0ken") {
		t.Errorf("a key that only reads: %d %s", a.Status, a.Raw)
	}
	if a := s.admin("GET", "/v1/webhooks", ""); strings.Contains(string(a.Raw), id) {
		t.Errorf("it is among the webhooks: %s", a.Raw)
	}
	for _, c := range [][3]string{{"PATCH", "/v1/webhooks/" + id, `{"url":"https://example.com/"}`}, {"DELETE", "/v1/webhooks/" + id, ""}, {"POST", "/v1/webhooks/" + id + "/rotate-secret", `{}`}} {
		s.admin(c[0], c[1], c[2]).refused(409, surehook.Conflict, "")
	}
	if a := s.admin("POST", "/v1/webhooks/"+id+"/test", ""); a.Status != 200 || a.field("status") != "succeeded" {
		t.Errorf("test: %d %s", a.Status, a.Raw)
	}
	if a := s.admin("DELETE", "/sentinels/"+id, ""); a.Status != 200 || string(a.Raw) != `{"ok":true,"id":"`+id+`"}`+"\n" && string(a.Raw) != `{"ok":true,"id":"`+id+`"}` {
		t.Errorf("%d %q", a.Status, a.Raw)
	}
	s.admin("GET", "/sentinels/"+id, "").refused(404, surehook.NotFound, "")
	s.admin("DELETE", "/sentinels/"+id, "").refused(404, surehook.NotFound, "")
	if a := s.pr("e3", "github.pull_request.closed", ``); a != "e3" || len(r.Requests()) != 3 {
		t.Errorf("%d requests", len(r.Requests()))
	}
}

// verify checks a request's signature with one secret.
func verify(t *testing.T, r receivertest.Request, secret string) {
	t.Helper()
	if !signedWith(t, r, secret) {
		t.Errorf("not signed with it: %v", r.Header)
	}
}

func signedWith(t *testing.T, r receivertest.Request, secret string) bool {
	t.Helper()
	k, err := signing.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signing.NewSigner(k)
	if err != nil {
		t.Fatal(err)
	}
	var ts int64
	if _, err := fmt.Sscan(r.Get("webhook-timestamp"), &ts); err != nil {
		t.Fatal(err)
	}
	return strings.Contains(" "+r.Get("webhook-signature")+" ", " "+signer.Sign(r.ID(), ts, r.Body)+" ")
}

func TestSentinelChallengeFails(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	for _, c := range []struct {
		reason string
		answer receivertest.Answer
	}{
		{"challenge_failed", receivertest.Answer{}},
		{"challenge_failed", receivertest.Answer{Body: "ok"}},
		{"challenge_failed", receivertest.Answer{Body: `{"challenge":"` + strings.Repeat("0", 64) + `"}`}},
		{"challenge_failed", receivertest.Answer{Body: `{"challenge":1}`}},
		{"challenge_failed", receivertest.Answer{Body: strings.Repeat(" ", 5000) + `{}`}},
		{"non_2xx", receivertest.Answer{Status: 500, Body: "secret body"}},
		{"non_2xx", receivertest.Answer{Status: 410}},
		{"ssrf_blocked", receivertest.Answer{Status: 302, Header: []string{"Location: https://example.com/"}}},
		{"timeout", receivertest.Answer{Reset: true}},
		{"timeout", receivertest.Answer{Close: true}},
	} {
		r.Use(func(int, receivertest.Request) receivertest.Answer { return c.answer })
		a := s.admin("POST", "/sentinels", webhookSpec(r.URL, ``))
		a.refused(422, "create_failed", "target.url")
		if d, _ := a.field("details").(map[string]any); d["reason"] != c.reason || strings.Contains(string(a.Raw), "t0ken") || strings.Contains(string(a.Raw), "secret body") {
			t.Errorf("%+v: %s", c, a.Raw)
		}
	}
	for _, c := range [][3]string{
		{"ftp://example.com/x", "non_https", "target.url"},
		{"https://10.0.0.1/x", "ssrf_blocked", "target.url"},
		{"https://[::ffff:7f00:1]/x", "ssrf_blocked", "target.url"},
		{"https://user:pw@example.com/x", "ssrf_blocked", "target.url"},
	} {
		a := s.admin("POST", "/sentinels", fmt.Sprintf(`{"match":[{"subject":"a"}],"until":{"kind":"never"},"target":{"kind":"webhook","url":%q,"secret":%q}}`, c[0], sentinelSecret))
		a.refused(422, "create_failed", c[2])
		if d, _ := a.field("details").(map[string]any); d["reason"] != c[1] {
			t.Errorf("%v: %s", c, a.Raw)
		}
	}
	n := len(r.Requests())
	for _, secret := range []string{"x", "whsec_", "whsec_c2hvcnQ=", "whsec_****"} {
		a := s.admin("POST", "/sentinels", strings.ReplaceAll(webhookSpec(r.URL, ``), sentinelSecret, secret))
		a.refused(422, "create_failed", "target.secret")
		if strings.Contains(string(a.Raw), secret+`"`) {
			t.Errorf("the secret is echoed: %s", a.Raw)
		}
	}
	s.pr("e1", "github.pull_request.closed", ``)
	if got := len(r.Requests()); got != n {
		t.Errorf("%d requests more", got-n)
	}
	if a := s.admin("GET", "/sentinels", ""); !strings.Contains(string(a.Raw), `"sentinels":[]`) {
		t.Errorf("%s", a.Raw)
	}
}

func TestSentinelNewSecret(t *testing.T) {
	now := time.Now()
	onBoth(t, func(t *testing.T, s *site) { testSentinelNewSecret(t, s, &now) }, func(o *engine.Options) { o.Now = func() time.Time { return now } })
}

func testSentinelNewSecret(t *testing.T, s *site, now *time.Time) {
	r := receivertest.New(t, callback(200))
	id := s.sentinel(webhookSpec(r.URL, ``))
	s.sentinel(webhookSpec(r.URL, ``))                                     // the same callback and secret: no second challenge
	s.sentinel(webhookSpec(strings.Replace(r.URL, "http", "HTTP", 1), ``)) // written in another way
	if n := len(r.Requests()); n != 1 {
		t.Errorf("%d challenges", n)
	}
	r.Use(func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{} })
	s.admin("PATCH", "/sentinels/"+id, `{"secret":"`+otherSecret+`"}`).refused(422, "create_failed", "target.url")
	r.Use(callback(200))
	n := len(r.Requests())
	if a := s.admin("PATCH", "/sentinels/"+id, `{"secret":"`+otherSecret+`"}`); a.Status != 200 || strings.Contains(string(a.Raw), "whsec_") {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	if got := r.Requests(); len(got) != n+1 {
		t.Errorf("a new secret brought %d challenges", len(got)-n)
	} else {
		verify(t, got[n], otherSecret)
	}
	if a := s.admin("PATCH", "/sentinels/"+id, `{"secret":"`+otherSecret+`"}`); a.Status != 200 || len(r.Requests()) != n+1 {
		t.Errorf("the secret that it has: %d, %d challenges", a.Status, len(r.Requests())-n)
	}
	s.admin("POST", "/v1/webhooks/"+id+"/test", "")
	last := r.Requests()[n+1]
	if !signedWith(t, last, otherSecret) || !signedWith(t, last, sentinelSecret) {
		t.Errorf("within the window: %v", last.Header)
	}
	*now = now.Add(10 * time.Minute)
	s.admin("POST", "/v1/webhooks/"+id+"/test", "")
	last = r.Requests()[n+2]
	if !signedWith(t, last, otherSecret) || signedWith(t, last, sentinelSecret) {
		t.Errorf("after the window: %v", last.Header)
	}
	s.sentinel(webhookSpec(r.URL, ``))
	if got := len(r.Requests()); got != n+4 {
		t.Errorf("after 10 minutes: %d requests", got-n)
	}
	for body, path := range map[string]string{`{}`: "body", `{"secret":"` + otherSecret + `","status":"paused"}`: "status", `{"status":"expired"}`: "status", `{"x":1}`: "x"} {
		s.admin("PATCH", "/sentinels/"+id, body).refused(400, surehook.InvalidRequest, path)
	}
}

func TestSentinelRefused(t *testing.T) {
	s := open(t)
	for _, c := range []struct {
		body   string
		status int
		code   surehook.ErrorCode
		path   string
	}{
		{`{}`, 400, "missing_subject", "subject"},
		{`{"subject":"a","prUrl":"https://github.com/o/r/pull/7","sessionId":"s"}`, 400, "ambiguous_subject", "prUrl"},
		{`{"prUrl":"https://example.com/o/r/pull/7","sessionId":"s"}`, 400, "invalid_pr_url", "prUrl"},
		{`{"prUrl":"https://github.com/o/r/issues/7","sessionId":"s"}`, 400, "invalid_pr_url", "prUrl"},
		{`{"prUrl":"https://github.com/o/r/pull/0","sessionId":"s"}`, 400, "invalid_pr_url", "prUrl"},
		{`{"subject":"a"}`, 400, "no_caller_identity", "sessionId"},
		{`{"subject":"a","sessionId":"s","provider":"none"}`, 400, "unknown_provider", "provider"},
		{`{"subject":"a","sessionId":"s","until":"count"}`, 400, surehook.InvalidRequest, "until"},
		{`{"subject":"a","sessionId":"s","until":{"kind":"never"}}`, 400, surehook.InvalidRequest, "until"},
		{`{"subject":"a","sessionId":"s","urgency":"now"}`, 400, surehook.InvalidRequest, "urgency"},
		{`{"match":[],"until":{"kind":"never"},"target":{"kind":"webhook","url":"https://example.com/","secret":"x"}}`, 400, "missing_subject", "match"},
		{`{"match":[{"subject":""}],"until":{"kind":"never"},"target":{"kind":"webhook","url":"https://example.com/","secret":"x"}}`, 400, "missing_subject", "match[0].subject"},
		{`{"match":[{"subject":"a"}],"target":{"kind":"webhook"}}`, 400, surehook.InvalidRequest, "until"},
		{`{"match":[{"subject":"a"}],"until":{"kind":"never"}}`, 400, surehook.InvalidRequest, "target"},
		{`{"match":[{"subject":"a"}],"until":{"kind":"at"},"target":{"kind":"webhook"}}`, 400, surehook.InvalidRequest, "until.ms"},
		{`{"match":[{"subject":"a"}],"until":{"kind":"at","ms":1},"target":{"kind":"webhook","url":"https://example.com/","secret":"` + sentinelSecret + `"}}`, 400, surehook.InvalidRequest, "until.ms"},
		{`{"match":[{"subject":"a"}],"until":{"kind":"count","n":0},"target":{"kind":"webhook"}}`, 400, surehook.InvalidRequest, "until.n"},
		{`{"match":[{"subject":"a"}],"until":{"kind":"never","n":3},"target":{"kind":"webhook"}}`, 400, surehook.InvalidRequest, "until.n"},
		{`{"match":[{"subject":"a","types":["a b"]}],"until":{"kind":"never"},"target":{"kind":"webhook","url":"https://example.com/","secret":"` + sentinelSecret + `"}}`, 400, surehook.InvalidRequest, "match[0].types"},
		{`{"match":[{"subject":"a"}],"until":{"kind":"never"},"target":{"kind":"routine","routineId":"r"}}`, 501, "not_implemented", "target.kind"},
		{`{"match":[{"subject":"a"}],"until":{"kind":"never"},"target":{"kind":"webhook","url":"https://example.com/"}}`, 400, surehook.InvalidRequest, "target.secret"},
		{`{"match":[{"subject":"a"}],"until":{"kind":"never"},"target":{"kind":"webhook","url":"https://example.com/","secret":"x","sessionId":"s"}}`, 400, surehook.InvalidRequest, "target.sessionId"},
		{`{"match":[{"subject":"a"}],"until":{"kind":"never"},"target":{"kind":"webhook"},"subject":"a"}`, 400, surehook.InvalidRequest, "subject"},
		{`{"subject":"a","sessionId":"s","nope":1}`, 400, surehook.InvalidRequest, "nope"},
	} {
		a := s.admin("POST", "/sentinels", c.body)
		if a.refused(c.status, c.code, c.path); t.Failed() {
			t.Fatal(c.body)
		}
	}
	for _, u := range []string{`"soon"`, `5`, `[]`, `{}`, `{"kind":"soon"}`, `{"kind":"at","ms":"5"}`, `{"kind":"count","n":1.5}`, `{"kind":"never","x":1}`} {
		a := s.admin("POST", "/sentinels", `{"match":[{"subject":"a"}],"until":`+u+`,"target":{"kind":"session","sessionId":"s"}}`)
		if a.refused(400, surehook.InvalidRequest, "until"); !strings.Contains(string(a.Raw), "until: must be subject_terminal or never, or an object") {
			t.Errorf("until %s: %s", u, a.Raw)
		}
	}
	a := s.do(s.key("", surehook.PermRead), "POST", "/sentinels", `{}`)
	a.refused(403, surehook.Forbidden, "")
}

func TestSentinelScopes(t *testing.T) { onBoth(t, testSentinelScopes) }

func testSentinelScopes(t *testing.T, s *site) {
	r := receivertest.New(t, callback(200))
	acme, globex := s.key("acme", surehook.PermWebhooksManage, surehook.PermRead, surehook.PermEventsWrite), s.key("globex", surehook.PermWebhooksManage, surehook.PermRead)
	a := s.do(acme, "POST", "/sentinels", webhookSpec(r.URL, ``))
	if a.Status != 201 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	id := a.field("id").(string)
	for _, c := range [][3]string{{"GET", "/sentinels/" + id, ""}, {"DELETE", "/sentinels/" + id, ""}, {"PATCH", "/sentinels/" + id, `{"status":"paused"}`}, {"POST", "/sentinels/" + id + "/poll", ""}} {
		s.do(globex, c[0], c[1], c[2]).refused(404, surehook.NotFound, "")
	}
	if a := s.do(globex, "GET", "/sentinels", ""); !strings.Contains(string(a.Raw), `"sentinels":[]`) {
		t.Errorf("%s", a.Raw)
	}
	s.do(globex, "POST", "/sentinels", webhookSpec(r.URL, `"tenant_id":"acme",`)).refused(403, surehook.Forbidden, "")
	for key, want := range map[string]int{acme: 1, adminKey: 1} {
		var all struct{ Sentinels []any }
		if s.do(key, "GET", "/sentinels?status=active&provider=webhook", "").into(&all); len(all.Sentinels) != want {
			t.Errorf("%d sentinels", len(all.Sentinels))
		}
	}
	s.pr("theirs", "github.pull_request.closed", ``) // the platform's: no tenant sees it
	if a := s.do(acme, "POST", "/v1/events", `{"id":"mine","type":"github.pull_request.closed","subjects":["github:O/R#7"],"data":1}`); a.Status != 202 || a.field("deliveries") != 1.0 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	if got := r.Wait(t, 2)[1]; got.ID() != "mine" || !strings.Contains(string(got.Body), `"data":{"value":1,"subject":"github:O/R#7","summary":""}`) {
		t.Errorf("%s %s", got.ID(), got.Body)
	}
	if a := s.do(acme, "PATCH", "/sentinels/"+id, `{"status":"paused"}`); a.field("status") != "paused" {
		t.Errorf("%s", a.Raw)
	}
	if a := s.do(acme, "POST", "/v1/events", `{"type":"github.pull_request.closed","subjects":["github:o/r#7"],"data":1}`); a.field("deliveries") != 0.0 {
		t.Errorf("while it is paused: %s", a.Raw)
	}
	if a := s.do(acme, "PATCH", "/sentinels/"+id, `{"status":"active"}`); a.field("status") != "active" {
		t.Errorf("%s", a.Raw)
	}
}

func TestSentinelEnds(t *testing.T) { onBoth(t, testSentinelEnds) }

func testSentinelEnds(t *testing.T, s *site) {
	r := receivertest.New(t, callback(200))
	counted := s.sentinel(strings.Replace(webhookSpec(r.URL, ``), `{"kind":"never"}`, `{"kind":"count","n":2}`, 1))
	watched := s.sentinel(strings.Replace(webhookSpec(r.URL, ``), `"github:o/r*"`, `"github:o/r#7","types":["github.check_suite.*"]`, 1))
	s.admin("DELETE", "/sentinels/"+watched, "")
	terminal := s.sentinel(strings.Replace(strings.Replace(webhookSpec(r.URL, ``), `{"kind":"never"}`, `"subject_terminal"`, 1), `"github:o/r*"`, `"github:o/r#7","types":["github.check_suite.*"]`, 1))
	for i := range 4 {
		s.pr(fmt.Sprint("e", i), "github.check_suite.completed", ``)
	}
	s.pr("last", "github.pull_request.closed", `,"terminal":true`)
	s.pr("late", "github.check_suite.completed", ``)
	for id, n := range map[string]float64{counted: 2, terminal: 4} {
		if a := s.admin("GET", "/sentinels/"+id, ""); a.field("status") != "expired" || a.field("eventCount") != n {
			t.Errorf("%s", a.Raw)
		}
	}
	s.admin("PATCH", "/sentinels/"+counted, `{"status":"paused"}`).refused(409, surehook.Conflict, "")
	s.until("what was matched is delivered", func() bool { return len(r.Requests()) == 1+2+4 })
	soon := s.sentinel(strings.Replace(webhookSpec(r.URL, ``), `{"kind":"never"}`, fmt.Sprintf(`{"kind":"at","ms":%d}`, time.Now().Add(200*time.Millisecond).UnixMilli()), 1))
	s.until("its time is over", func() bool { return s.admin("GET", "/sentinels/"+soon, "").field("status") == "expired" })
	if a := s.admin("GET", "/sentinels?status=expired", ""); !strings.Contains(string(a.Raw), soon) || !strings.Contains(string(a.Raw), counted) {
		t.Errorf("%s", a.Raw)
	}
}

func TestSentinelProviders(t *testing.T) {
	s := open(t)
	if a := s.admin("GET", "/v1/sentinel-providers", ""); a.Status != 200 || !strings.Contains(string(a.Raw), `{"slug":"webhook","default":true,"ready":true}`) {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	if a := s.admin("GET", "/v1/sentinel-providers/webhook", ""); a.Status != 200 || a.field("ready") != true {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	s.admin("GET", "/v1/sentinel-providers/none", "").refused(404, surehook.NotFound, "")
}

// A session's end orphans its sentinels: nothing matches any more, what waited is dead,
// and new ones are refused.
func TestSentinelOrphaned(t *testing.T) {
	onBoth(t, func(t *testing.T, s *site) {
		s.admin("POST", "/sentinels", `{"subject":"a","sessionId":"s"}`).refused(409, surehook.NotAlive, "")
		s.admin("PUT", "/v1/sessions/s", "")
		sen := s.sentinel(`{"subject":"github:o/r#7","sessionId":"s","until":"never"}`)
		s.pr("waits", "github.pull_request.closed", ``)
		if p := s.pull(adminKey, "/v1/sessions/s/events"); len(p.Items) != 1 || p.Items[0].WebhookID != sen || p.Items[0].Urgency != "next-turn" {
			t.Errorf("%+v", p)
		}
		if a := s.admin("DELETE", "/v1/sessions/s", ""); a.Status != 204 {
			t.Errorf("%d %s", a.Status, a.Raw)
		}
		if a := s.admin("GET", "/sentinels/"+sen, ""); a.field("status") != "orphaned" {
			t.Errorf("%s", a.Raw)
		}
		for _, c := range [][2]string{{"GET", "/v1/sessions/s/events"}, {"PUT", "/v1/sessions/s"}} {
			s.admin(c[0], c[1], "").refused(409, surehook.NotAlive, "")
		}
		s.admin("POST", "/sentinels", `{"subject":"a","sessionId":"s"}`).refused(409, surehook.NotAlive, "")
		if a := s.admin("POST", "/v1/events", `{"type":"github.pull_request.closed","subjects":["github:o/r#7"],"data":1}`); a.field("deliveries") != 0.0 {
			t.Errorf("it matches still: %s", a.Raw)
		}
		s.until("what waited is dead", func() bool {
			return strings.Contains(string(s.admin("GET", "/v1/dead-letters?webhook_id="+sen, "").Raw), `"session_ended"`)
		})
		if a := s.admin("GET", "/sentinels?status=orphaned&session=s", ""); !strings.Contains(string(a.Raw), sen) {
			t.Errorf("%s", a.Raw)
		}
		for _, status := range []string{"active", "paused"} {
			s.admin("PATCH", "/sentinels/"+sen, `{"status":"`+status+`"}`).refused(409, surehook.Conflict, "")
		}
		s.admin("POST", "/sentinels/"+sen+"/poll", "").refused(409, surehook.Conflict, "")
	})
}
