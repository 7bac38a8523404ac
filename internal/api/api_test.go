package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/receivertest"
)

// The names that scripts rely on (design: contracts).
func TestContract(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	a := s.admin("POST", "/v1/webhooks", `{"url":"`+r.URL+`/in","event_types":["order.*"]}`)
	if a.Status != http.StatusCreated || !strings.HasPrefix(a.field("id").(string), "whk_") || !strings.HasPrefix(a.field("secret").(string), "whsec_") {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	hook := a.field("id").(string)
	a = s.admin("POST", "/v1/events", `{"type":"order.paid","data":{"n":1.0,"big":7615917337495251231}}`)
	if a.Status != http.StatusAccepted || a.field("duplicate") != false || a.field("deliveries") != 1.0 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	id := a.field("id").(string)
	r.Wait(t, 1)
	var d struct {
		Items []struct {
			WebhookID string `json:"webhook_id"`
			Status    string `json:"status"`
			Attempts  int    `json:"attempts"`
		} `json:"items"`
	}
	for d.Items == nil || d.Items[0].Status != "succeeded" {
		s.admin("GET", "/v1/events/"+id+"/deliveries", "").into(&d)
		if len(d.Items) != 1 || d.Items[0].WebhookID != hook {
			t.Fatalf("%+v", d)
		}
	}
	var as struct {
		Items []map[string]any `json:"items"`
	}
	s.admin("GET", "/v1/webhooks/"+hook+"/attempts", "").into(&as)
	for _, name := range []string{"id", "event_id", "attempt", "status", "http_status", "error", "duration_ms", "created_at"} {
		if _, ok := as.Items[0][name]; !ok {
			t.Errorf("an attempt has no %s: %v", name, as.Items[0])
		}
	}
	a = s.admin("GET", "/v1/webhooks/"+hook, "")
	for _, name := range []string{"enabled", "disabled_reason", "consecutive_failures", "event_types", "url"} {
		var m map[string]any
		a.into(&m)
		if _, ok := m[name]; !ok {
			t.Errorf("a webhook has no %s: %s", name, a.Raw)
		}
	}
	if a := s.admin("POST", "/v1/webhooks/"+hook+"/rotate-secret", `{"overlap_hours":24}`); a.Status != 200 || a.field("secret") == nil {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	if a := s.admin("POST", "/v1/webhooks/"+hook+"/test", ""); a.Status != 200 || a.field("status") != "succeeded" {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	if a := s.admin("POST", "/v1/webhooks/"+hook+"/replay", `{"ids":["`+id+`"]}`); a.Status != http.StatusAccepted || a.field("queued") != 1.0 {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	if a := s.admin("GET", "/v1/dead-letters", ""); a.Status != 200 || a.field("items") == nil {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	// the data is as it was given.
	if a := s.admin("GET", "/v1/events/"+id, ""); !strings.Contains(string(a.Raw), `"data":{"n":1.0,"big":7615917337495251231}`) {
		t.Errorf("%s", a.Raw)
	}
}

func TestBatch(t *testing.T) {
	s := open(t)
	a := s.admin("POST", "/v1/events/batch", `{"events":[{"type":"a","data":1,"id":"x"},{"type":"a.","data":1},{"data":1},{"type":"a","data":2,"id":"x"},{"type":"a","data":1,"id":"x"},{"type":"a","data":1,"nope":1}]}`)
	var got struct {
		Results []struct {
			ID        string
			Duplicate bool
			Error     *struct {
				Code   string
				Errors []surehook.FieldError
			}
		}
	}
	a.into(&got)
	if a.Status != http.StatusAccepted || len(got.Results) != 6 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	want := []string{"", "events[1].type", "events[2].type", "", "", "events[5].nope"}
	for i, r := range got.Results {
		if (r.Error != nil) != (want[i] != "" || i == 3) || (want[i] != "" && r.Error.Errors[0].Path != want[i]) {
			t.Errorf("event %d: %s", i, a.Raw)
		}
	}
	if got.Results[0].ID != "x" || !got.Results[4].Duplicate || got.Results[3].Error.Code != "conflict" {
		t.Errorf("%s", a.Raw)
	}
}

func TestBadInput(t *testing.T) {
	s := open(t)
	hook := s.hook(`{"url":"http://127.0.0.1:9/in"}`)
	for _, c := range []struct {
		method, path, body string
		status             int
		field              string
	}{
		{"POST", "/v1/events", ``, 400, "body"},
		{"POST", "/v1/events", `{`, 400, "body"},
		{"POST", "/v1/events", `{"type":"a","data":1} x`, 400, "body"},
		{"POST", "/v1/events", "{\"type\":\"a\",\"data\":\"\xff\"}", 400, "data"},
		{"POST", "/v1/events", `{"type":"a"}`, 400, "data"},
		{"POST", "/v1/events", `{"data":1}`, 400, "type"},
		{"POST", "/v1/events", `{"type":7,"data":1}`, 400, "type"},
		{"POST", "/v1/events", `{"type":"a","data":1,"secret_word":1}`, 400, "secret_word"},
		{"POST", "/v1/events", `{"type":"a","data":1,"id":"has.dot"}`, 400, "id"},
		{"POST", "/v1/events", `{"type":"webhook.test","data":1}`, 400, "type"},
		{"POST", "/v1/events", `{"type":"a","data":1,"occurred_at":"yesterday"}`, 400, "occurred_at"},
		{"POST", "/v1/events/batch", `{"events":[]}`, 400, "events"},
		{"POST", "/v1/webhooks", `{}`, 400, "url"},
		{"POST", "/v1/webhooks", `{"url":"http://10.0.0.1/"}`, 400, "url"},
		{"POST", "/v1/webhooks", `{"url":"https://u:p@example.com/"}`, 400, "url"}, // K-11
		{"POST", "/v1/webhooks", `{"url":"https://example.com/#x"}`, 400, "url"},   // K-08
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","event_types":[]}`, 400, "event_types"},
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","event_types":["a","*.b"]}`, 400, "event_types[1]"},
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","headers":{"Webhook-Signature":"x"}}`, 400, "headers.Webhook-Signature"}, // K-01
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","headers":{"X-A":"1","x-a":"2"}}`, 400, "headers.x-a"},
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","headers":{"Host":"x"}}`, 400, "headers.Host"}, // K-07, I-14
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","secret":"whsec_short"}`, 400, "secret"},       // L-04
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","profile":"nope"}`, 400, "profile"},
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","envelope":"nope"}`, 400, "envelope"},
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","limits":{"concurrency":1000}}`, 400, "limits.concurrency"},
		{"POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","limits":{"timeout_ms":1}}`, 400, "limits.timeout_ms"},
		{"PATCH", "/v1/webhooks/" + hook, `{"url":"ftp://x"}`, 400, "url"},
		{"PATCH", "/v1/webhooks/" + hook, `{"event_types":[]}`, 400, "event_types"}, // E-15
		{"POST", "/v1/webhooks/" + hook + "/rotate-secret", `{"overlap_hours":169}`, 400, "overlap_hours"},
		{"POST", "/v1/webhooks/" + hook + "/replay", `{}`, 400, "since"},
		{"POST", "/v1/webhooks/" + hook + "/replay", `{"ids":["nope"]}`, 400, "ids[0]"},
		{"GET", "/v1/events?cursor=AAAA", "", 400, "cursor"},
		{"GET", "/v1/events?limit=0", "", 400, "limit"},
		{"GET", "/v1/events?nope=1", "", 400, "nope"},
		{"GET", "/v1/webhooks/whk_nope", "", 404, ""},
		{"GET", "/v1/nope", "", 404, ""},
		{"PUT", "/v1/events", `{}`, 405, ""},
		{"POST", "/v1/keys", `{"permissions":[]}`, 400, "permissions"},
		{"POST", "/v1/keys", `{"permissions":["root"]}`, 400, "permissions[0]"},
		{"PUT", "/v1/event-types/a", `{"validate":true}`, 400, "validate"},
		{"PUT", "/v1/event-types/a", `{"schema":{"type":7}}`, 400, "schema"},
		{"PUT", "/v1/event-types/a", `{"schema":{"$ref":"http://127.0.0.1:1/x"}}`, 400, "schema"},
	} {
		t.Run(c.method+" "+c.path+" "+c.body, func(t *testing.T) {
			a := s.admin(c.method, c.path, c.body)
			a.t = t
			code := map[int]surehook.ErrorCode{400: surehook.InvalidRequest, 404: surehook.NotFound, 405: "method_not_allowed"}[c.status]
			a.refused(c.status, code, c.field)
			for _, word := range []string{"yesterday", "has.dot", "u:p", "whsec_short"} {
				if strings.Contains(c.body, word) && strings.Contains(string(a.Raw), word) {
					t.Errorf("the answer echoes the value: %s", a.Raw)
				}
			}
		})
	}
	if a := s.admin("POST", "/v1/events", `a=1`, "Content-Type", "application/x-www-form-urlencoded"); a.Status != http.StatusUnsupportedMediaType {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	if a := s.admin("POST", "/v1/events", `{"type":"a","data":"`+strings.Repeat("x", 2<<20)+`"}`); a.Status != http.StatusRequestEntityTooLarge {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
}

func TestTenantsAreApart(t *testing.T) { onBoth(t, testTenantsAreApart) }

func testTenantsAreApart(t *testing.T, s *site) {
	r := receivertest.New(t, nil)
	acme, other := s.key("acme", "events:write", "webhooks:manage", "read"), s.key("other", "events:write", "webhooks:manage", "read")
	a := s.do(acme, "POST", "/v1/webhooks", `{"url":"`+r.URL+`/in"}`)
	if a.Status != 201 || a.field("tenant_id") != "acme" {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	hook := a.field("id").(string)
	ev := s.do(acme, "POST", "/v1/events", `{"type":"a","data":1}`).field("id").(string)
	r.Wait(t, 1)
	for _, c := range [][3]string{
		{"GET", "/v1/webhooks/" + hook, ""}, {"PATCH", "/v1/webhooks/" + hook, `{"enabled":false}`}, {"DELETE", "/v1/webhooks/" + hook, ""},
		{"POST", "/v1/webhooks/" + hook + "/rotate-secret", `{}`}, {"DELETE", "/v1/webhooks/" + hook + "/previous-secret", ""},
		{"POST", "/v1/webhooks/" + hook + "/test", ""}, {"POST", "/v1/webhooks/" + hook + "/replay", `{"ids":["` + ev + `"]}`},
		{"GET", "/v1/webhooks/" + hook + "/attempts", ""}, {"GET", "/v1/webhooks/" + hook + "/stats", ""}, {"GET", "/v1/events/" + ev, ""},
		{"GET", "/v1/events/" + ev + "/deliveries", ""}, {"GET", "/v1/events/" + ev + "/attempts", ""}, {"GET", "/v1/deliveries?webhook_id=" + hook, ""},
		{"GET", "/v1/webhooks/" + hook + "/deliveries/" + ev, ""}, {"GET", "/v1/dead-letters?webhook_id=" + hook, ""}, {"GET", "/v1/replays?webhook_id=" + hook, ""},
	} {
		s.do(other, c[0], c[1], c[2]).refused(404, surehook.NotFound, "")
	}
	for _, path := range []string{"/v1/webhooks", "/v1/events", "/v1/dead-letters"} {
		if a := s.do(other, "GET", path, ""); a.Status != 200 || len(a.field("items").([]any)) != 0 {
			t.Errorf("%s: %s", path, a.Raw)
		}
	}
	s.do(other, "POST", "/v1/events", `{"type":"a","data":1,"tenant_id":"acme"}`).refused(403, surehook.Forbidden, "")
	s.do(other, "POST", "/v1/webhooks", `{"url":"`+r.URL+`/in","tenant_id":"acme"}`).refused(403, surehook.Forbidden, "")
	s.do(other, "GET", "/v1/tenants", "").refused(403, surehook.Forbidden, "")
	if a := s.do(acme, "GET", "/v1/webhooks/"+hook, ""); a.Status != 200 || a.field("enabled") != true {
		t.Errorf("%s", a.Raw)
	}
}

func TestO05_FiftyAtOnce(t *testing.T) {
	s := open(t)
	var wg sync.WaitGroup
	var fresh sync.Map
	for i := range 50 {
		wg.Go(func() {
			a := s.admin("POST", "/v1/events", `{"type":"a","data":{"k":1}}`, "Idempotency-Key", "once")
			if a.Status != http.StatusAccepted {
				t.Errorf("%d %s", a.Status, a.Raw)
				return
			}
			if a.field("duplicate") == false {
				fresh.Store(i, true)
			}
		})
	}
	wg.Wait()
	n := 0
	fresh.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d were fresh", n)
	}
	s.admin("POST", "/v1/events", `{"type":"a","data":{"k":2}}`, "Idempotency-Key", "once").refused(409, surehook.Conflict, "")
}

func TestIdempotentCreate(t *testing.T) {
	s := open(t)
	body := `{"url":"http://127.0.0.1:9/in"}`
	first := s.admin("POST", "/v1/webhooks", body, "Idempotency-Key", "k1")
	again := s.admin("POST", "/v1/webhooks", body, "Idempotency-Key", "k1")
	if first.Status != 201 || string(first.Raw) != string(again.Raw) {
		t.Errorf("%s\n%s", first.Raw, again.Raw)
	}
	if first.Header.Get("Idempotency-Replayed") != "" || again.Header.Get("Idempotency-Replayed") != "true" {
		t.Errorf("%v\n%v", first.Header, again.Header)
	}
	s.admin("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/other"}`, "Idempotency-Key", "k1").refused(409, surehook.Conflict, "")
	if a := s.admin("GET", "/v1/webhooks", ""); len(a.field("items").([]any)) != 1 {
		t.Errorf("%s", a.Raw)
	}
}

// L-10, L-11, Q-07: no answer but those of create and rotate holds a secret, and
// those are kept by nobody on the way.
func TestL10_SecretsAreShownOnce(t *testing.T) { onBoth(t, testL10SecretsAreShownOnce) }

func testL10SecretsAreShownOnce(t *testing.T, s *site) {
	r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Status: 500, Body: "\x00\xffno"}
	})
	a := s.admin("POST", "/v1/webhooks", `{"url":"`+r.URL+`/in?token=t0ken","headers":{"X-Auth":"h3ader"},"limits":{"attempts":1}}`)
	secret, hook := a.field("secret").(string), a.field("id").(string)
	if a.Status != 201 || a.Header.Get("Cache-Control") != "no-store" || strings.Contains(fmt.Sprint(a.Header), secret) {
		t.Errorf("the answer that holds it: %d %v", a.Status, a.Header)
	}
	ev := s.admin("POST", "/v1/events", `{"type":"a","data":1}`).field("id").(string)
	r.Wait(t, 1)
	key := s.key("", "read", "admin")
	reader := s.key("", "read")
	for _, path := range []string{"/v1/webhooks", "/v1/webhooks/" + hook, "/v1/webhooks/" + hook + "/attempts", "/v1/events/" + ev, "/v1/events/" + ev + "/attempts",
		"/v1/dead-letters", "/v1/keys", "/v1/audit-log", "/v1/tenants", "/v1/event-types", "/v1/replays"} {
		a := s.do(key, "GET", path, "")
		if a.Status != 200 {
			t.Errorf("%s: %d %s", path, a.Status, a.Raw)
		}
		for _, word := range []string{secret, strings.TrimPrefix(secret, "whsec_"), "t0ken", "h3ader", key, reader, adminKey} {
			if strings.Contains(string(a.Raw), word) {
				t.Errorf("%s holds %q: %s", path, word, a.Raw)
			}
		}
	}
	if a := s.admin("GET", "/v1/webhooks/"+hook, ""); !strings.Contains(string(a.Raw), "t0ken") {
		t.Errorf("who manages webhooks sees the URL: %s", a.Raw)
	}
}

func TestRevokedKey(t *testing.T) { onBoth(t, testRevokedKey) }

func testRevokedKey(t *testing.T, s *site) {
	key := s.key("", "read")
	if a := s.do(key, "GET", "/v1/events", ""); a.Status != 200 {
		t.Fatalf("%d", a.Status)
	}
	var keys struct {
		Items []struct{ ID, Hint string } `json:"items"`
	}
	s.admin("GET", "/v1/keys", "").into(&keys)
	i := slices.IndexFunc(keys.Items, func(k struct{ ID, Hint string }) bool { return strings.HasSuffix(key, k.Hint) })
	if a := s.admin("DELETE", "/v1/keys/"+keys.Items[i].ID, ""); a.Status != http.StatusNoContent {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	s.do(key, "GET", "/v1/events", "").refused(401, surehook.Unauthorized, "")
}

func TestSchemaValidation(t *testing.T) {
	s := open(t)
	if a := s.admin("PUT", "/v1/event-types/order.paid", `{"description":"paid","validate":true,"schema":{"type":"object","required":["n"],"properties":{"n":{"type":"integer","maximum":9223372036854775808}}}}`); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	s.admin("POST", "/v1/events", `{"type":"order.paid","data":{}}`).refused(400, surehook.InvalidRequest, "data.n")
	s.admin("POST", "/v1/events", `{"type":"order.paid","data":{"n":"x"}}`).refused(400, surehook.InvalidRequest, "data.n")
	s.admin("POST", "/v1/events", `{"type":"order.paid","data":{"n":9223372036854775809}}`).refused(400, surehook.InvalidRequest, "data.n")
	if a := s.admin("POST", "/v1/events", `{"type":"order.paid","data":{"n":9223372036854775807}}`); a.Status != 202 {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
}

func TestPagesMissNothing(t *testing.T) {
	s := open(t)
	for i := range 25 {
		s.admin("POST", "/v1/events", fmt.Sprintf(`{"type":"a","data":%d,"id":"e%d"}`, i, i))
	}
	var got []string
	next := ""
	for {
		var p struct {
			Items []struct{ ID string }
			Next  string
		}
		s.admin("GET", "/v1/events?limit=10&cursor="+next, "").into(&p)
		for _, e := range p.Items {
			got = append(got, e.ID)
		}
		s.admin("POST", "/v1/events", `{"type":"late","data":1}`) // newer ones come meanwhile
		if next = p.Next; next == "" {
			break
		}
	}
	if len(got) != 25 || got[0] != "e24" || got[24] != "e0" {
		t.Errorf("%v", got)
	}
}

func TestHealth(t *testing.T) {
	s := open(t)
	for _, path := range []string{"/healthz", "/readyz", "/version"} {
		if a := s.do("", "GET", path, ""); a.Status != 200 || !json.Valid(a.Raw) {
			t.Errorf("%s: %d %s", path, a.Status, a.Raw)
		}
	}
}
