package api_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// refuse is a receiver that answers 500 until it is told otherwise.
func refuse(int, receivertest.Request) receivertest.Answer {
	return receivertest.Answer{Status: 500, Body: "no"}
}

// dead makes a dead letter at an endpoint of the platform, and gives the
// receiver, the endpoint, the event and the letter.
func dead(s *site) (r *receivertest.Receiver, hook, event, letter string) {
	s.t.Helper()
	r = receivertest.New(s.t, refuse)
	hook = s.hook(`{"url":"` + r.URL + `/in","limits":{"attempts":1}}`)
	event = s.publish(`{"type":"order.paid","data":{"n":1}}`)
	s.until("dead", func() bool {
		return s.admin("GET", "/v1/webhooks/"+hook+"/deliveries/"+event, "").field("status") == "dead"
	})
	var d struct{ Items []struct{ ID string } }
	s.admin("GET", "/v1/dead-letters?webhook_id="+hook, "").into(&d)
	if len(d.Items) != 1 {
		s.t.Fatalf("%d dead letters", len(d.Items))
	}
	return r, hook, event, d.Items[0].ID
}

// Each documented operation succeeds once. What it answers is held against the
// document on the way.
func TestEveryRouteSucceeds(t *testing.T) {
	s := open(t)
	r, hook, event, letter := dead(s)
	r.Use(nil)
	h, e := "/v1/webhooks/"+hook, "/v1/events/"+event
	for _, c := range [][3]string{
		{"GET", "/v1/events?type=order.*&status=dead", ""}, {"GET", e, ""}, {"GET", e + "/deliveries", ""}, {"GET", e + "/attempts?webhook_id=" + hook, ""},
		{"POST", "/v1/events/batch", `{"events":[{"type":"a","data":null},{"type":"a"}]}`},
		{"GET", "/v1/webhooks?enabled=true&scope=platform", ""}, {"GET", h, ""}, {"PATCH", h, `{"description":"orders","limits":{"waits_ms":[10],"timeout_ms":2000}}`},
		{"POST", h + "/rotate-secret", `{"overlap_hours":1.5}`}, {"DELETE", h + "/previous-secret", ""}, {"POST", h + "/test", ""},
		{"GET", h + "/attempts", ""}, {"GET", h + "/stats?step_s=120", ""}, {"GET", h + "/lane", ""}, {"GET", h + "/deliveries/" + event, ""},
		{"GET", "/v1/deliveries?webhook_id=" + hook + "&status=dead", ""}, {"GET", "/v1/dead-letters", ""}, {"GET", "/v1/dead-letters/" + letter, ""},
		{"POST", "/v1/dead-letters/replay", `{"ids":["` + letter + `"]}`}, {"POST", h + "/deliveries/" + event + "/replay", ""},
		{"POST", h + "/replay", `{"since":"2020-01-01T00:00:00Z"}`}, {"GET", "/v1/replays?webhook_id=" + hook, ""},
		{"PUT", "/v1/event-types/order.paid", `{"description":"paid","example":{"n":1},"schema":{"type":"object"},"validate":true}`},
		{"GET", "/v1/event-types", ""}, {"GET", "/v1/event-types/order.paid", ""}, {"DELETE", "/v1/event-types/order.paid", ""},
		{"PUT", "/v1/tenants/acme", `{"name":"Acme","partner_id":"p1"}`}, {"GET", "/v1/tenants", ""}, {"GET", "/v1/tenants/acme", ""}, {"DELETE", "/v1/tenants/acme", ""},
		{"PUT", "/v1/partners/p1", `{"name":"P","status":"suspended"}`}, {"GET", "/v1/partners", ""}, {"GET", "/v1/partners/p1", ""}, {"DELETE", "/v1/partners/p1", ""},
		{"POST", "/v1/erasures", `{"ids":["` + event + `"]}`}, {"POST", "/v1/erasures", `{"tenant_id":"acme","identity_id":"ann"}`},
		{"GET", "/v1/keys", ""}, {"GET", "/v1/audit-log", ""}, {"GET", "/v1/webhooks/" + hook + "/history", ""}, {"GET", "/v1/overview", ""}, {"GET", "/v1/stats", ""}, {"GET", "/v1/system", ""},
		{"POST", "/v1/check-url", `{"url":"https://example.com/in"}`}, {"POST", "/v1/portal-links", `{"tenant_id":"acme"}`},
		{"GET", "/v1/sentinel-providers", ""}, {"GET", "/v1/sentinel-providers/webhook", ""},
		{"PUT", "/v1/sessions/agent", ""}, {"GET", "/v1/sessions/agent", ""}, {"GET", "/v1/sessions", ""}, {"GET", "/v1/sessions/agent/events", ""},
	} {
		if a := s.admin(c[0], c[1], c[2]); a.Status >= 300 {
			t.Errorf("%s %s: %d %s", c[0], c[1], a.Status, a.Raw)
		}
	}
	box := "/v1/webhooks/" + s.hook(`{"target":"pull"}`)
	for _, at := range []string{box, "/v1/sessions/agent"} {
		s.admin("POST", at+"/ack", `{"cursor":"`+s.pull(adminKey, at+"/events").Next+`"}`)
	}
	s.admin("GET", box+"/inbox", "")
	s.admin("DELETE", "/v1/sessions/agent", "")
	a := s.admin("POST", h+"/replay", `{"since":"2020-01-01T00:00:00Z","background":true}`)
	job := a.field("replay").(map[string]any)["id"].(string)
	s.admin("POST", "/v1/replays/"+job+"/cancel", "")
	s.admin("GET", "/v1/replays/"+job, "")
	_, _, _, letter = dead(s)
	if a := s.admin("POST", "/v1/dead-letters/discard", `{"ids":["`+letter+`"]}`); a.field("discarded") != 1.0 {
		t.Errorf("%s", a.Raw)
	}
	s.admin("DELETE", "/v1/keys/"+s.admin("POST", "/v1/keys", `{"permissions":["read"]}`).field("id").(string), "")
	s.admin("DELETE", h, "")
	for path, ops := range s.doc.Paths {
		for method := range ops {
			if p := strings.ToUpper(method) + " " + path; strings.HasPrefix(path, "/v1") && !s.doc.worked[p] {
				t.Errorf("%s was never seen to succeed", p)
			}
		}
	}
}

// Whatever belongs to the platform or to another tenant doesn't exist for a
// tenant's key, in exactly the words for what really doesn't.
func TestATenantCantTell(t *testing.T) { onBoth(t, testATenantCantTell) }

func testATenantCantTell(t *testing.T, s *site) {
	_, hook, event, letter := dead(s)
	job := s.admin("POST", "/v1/webhooks/"+hook+"/replay", `{"since":"2020-01-01T00:00:00Z","background":true}`).field("replay").(map[string]any)["id"].(string)
	key := s.key("acme", "events:write", "webhooks:manage", "read")
	for _, c := range [][3]string{
		{"GET", "/v1/webhooks/%s", hook}, {"PATCH", "/v1/webhooks/%s", hook}, {"DELETE", "/v1/webhooks/%s", hook}, {"POST", "/v1/webhooks/%s/rotate-secret", hook},
		{"DELETE", "/v1/webhooks/%s/previous-secret", hook}, {"POST", "/v1/webhooks/%s/test", hook}, {"POST", "/v1/webhooks/%s/replay", hook},
		{"GET", "/v1/webhooks/%s/attempts", hook}, {"GET", "/v1/webhooks/%s/stats", hook}, {"GET", "/v1/webhooks/%s/lane", hook}, {"GET", "/v1/webhooks/%s/deliveries/" + event, hook},
		{"POST", "/v1/webhooks/%s/deliveries/" + event + "/replay", hook}, {"GET", "/v1/events/%s", event}, {"GET", "/v1/events/%s/deliveries", event},
		{"GET", "/v1/events/%s/attempts", event}, {"GET", "/v1/deliveries?webhook_id=%s", hook}, {"GET", "/v1/dead-letters?webhook_id=%s", hook},
		{"GET", "/v1/dead-letters/%s", letter}, {"GET", "/v1/replays/%s", job}, {"POST", "/v1/replays/%s/cancel", job}, {"GET", "/v1/replays?webhook_id=%s", hook},
	} {
		body := ""
		if c[0] == "PATCH" || strings.HasSuffix(c[1], "secret") || strings.HasSuffix(c[1], "s/replay") {
			body = "{}"
		}
		s.tell(key, c[0], c[1], body, c[2])
	}
	for _, path := range []string{"/v1/dead-letters/replay", "/v1/dead-letters/discard"} {
		for _, id := range []string{letter, "ded_999999999"} {
			s.do(key, "POST", path, `{"ids":["`+id+`"]}`).refused(400, surehook.InvalidRequest, "ids[0]")
		}
	}
	for _, path := range []string{"/v1/webhooks", "/v1/events", "/v1/dead-letters", "/v1/replays"} {
		if a := s.do(key, "GET", path, ""); a.Status != 200 || len(a.field("items").([]any)) != 0 {
			t.Errorf("%s: %s", path, a.Raw)
		}
		if strings.HasSuffix(path, "replays") {
			continue
		}
		for _, other := range []string{"never-heard-of", "other"} {
			s.do(key, "GET", path+"?tenant_id="+other, "").refused(403, surehook.Forbidden, "")
		}
	}
	// A tenant's own event goes to a platform endpoint too; it can't see that.
	own := s.do(key, "POST", "/v1/events", `{"type":"order.paid","data":1}`).field("id").(string)
	s.status(own, "dead")
	for _, path := range []string{"/deliveries", "/attempts"} {
		if a := s.do(key, "GET", "/v1/events/"+own+path, ""); len(a.field("items").([]any)) != 0 {
			t.Errorf("%s", a.Raw)
		}
	}
}

// tell checks that a row that isn't the caller's is answered as one that isn't.
func (s *site) tell(key, method, path, body, id string) {
	s.t.Helper()
	made := id[:len(id)-4] + "0000"
	a, b := s.do(key, method, fmt.Sprintf(path, id), body), s.do(key, method, fmt.Sprintf(path, made), body)
	a.refused(404, surehook.NotFound, "")
	b.refused(404, surehook.NotFound, "")
	if x, y := a.field("detail"), b.field("detail"); x != y {
		s.t.Errorf("%s %s: %q for what is another's, %q for what isn't", method, path, x, y)
	}
}

// Two tenants may use one event id; each reads and replays its own.
func TestTheSameIDInTwoTenants(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	hook := s.hook(`{"url":"` + r.URL + `/in"}`)
	for _, tenant := range []string{"acme", "other"} {
		s.publish(`{"type":"a","id":"one","tenant_id":"` + tenant + `","data":"` + tenant + `"}`)
	}
	r.Wait(t, 2)
	for i, tenant := range []string{"acme", "other"} {
		s.until("delivered", func() bool {
			return s.admin("GET", "/v1/webhooks/"+hook+"/deliveries/one?tenant_id="+tenant, "").field("status") == "succeeded"
		})
		if a := s.admin("GET", "/v1/events/one?tenant_id="+tenant, ""); a.field("data") != tenant {
			t.Errorf("%s", a.Raw)
		}
		a := s.admin("POST", "/v1/webhooks/"+hook+"/deliveries/one/replay?tenant_id="+tenant, "")
		if a.Status != 202 || a.field("queued") != 1.0 {
			t.Errorf("%d %s", a.Status, a.Raw)
		}
		if got := r.Wait(t, 3+i)[2+i]; !strings.Contains(string(got.Body), `"data":"`+tenant+`"`) {
			t.Errorf("the wrong tenant's event was replayed: %s", got.Body)
		}
	}
}

func TestLimitOfWebhooks(t *testing.T) {
	s := open(t, func(o *engine.Options) { o.MaxWebhooks = 1 })
	s.hook(`{"url":"http://127.0.0.1:9/in"}`)
	s.admin("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/in"}`).refused(422, surehook.LimitReached, "")
	s.hook(`{"url":"http://127.0.0.1:9/in","tenant_id":"acme"}`) // a scope of its own
}

func TestTheLastAdminKeyStays(t *testing.T) { onBoth(t, testTheLastAdminKeyStays) }

func testTheLastAdminKeyStays(t *testing.T, s *site) {
	var keys struct{ Items []struct{ ID string } }
	s.admin("GET", "/v1/keys", "").into(&keys)
	s.admin("DELETE", "/v1/keys/"+keys.Items[0].ID, "").refused(409, surehook.Conflict, "")
	s.admin("DELETE", "/v1/keys/key_nope", "").refused(404, surehook.NotFound, "")
	other := s.key("", "admin")
	if a := s.do(other, "DELETE", "/v1/keys/"+keys.Items[0].ID, ""); a.Status != 204 {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	s.admin("GET", "/v1/keys", "").refused(401, surehook.Unauthorized, "")
}

func TestRequestIDAndHeaders(t *testing.T) {
	s := open(t)
	if a := s.admin("GET", "/v1/webhooks/whk_nope", "", "X-Request-Id", "mine-1"); a.Header.Get("X-Request-Id") != "mine-1" || a.field("request_id") != "mine-1" {
		t.Errorf("%v %s", a.Header, a.Raw)
	}
	for _, bad := range []string{strings.Repeat("x", 200), "a b", "é"} {
		if a := s.admin("GET", "/v1/events", "", "X-Request-Id", bad); !strings.HasPrefix(a.Header.Get("X-Request-Id"), "req_") {
			t.Errorf("%q", a.Header.Get("X-Request-Id"))
		}
	}
	a := s.do("", "GET", "/v1/events", "")
	if a.Header.Get("WWW-Authenticate") == "" || a.Header.Get("Cache-Control") != "no-store" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", a.Header)
	}
	a = s.admin("PUT", "/v1/events", "")
	if got := strings.Split(a.Header.Get("Allow"), ", "); !slices.Equal(got, []string{"GET", "POST"}) {
		t.Errorf("Allow: %v", got)
	}
	if a := s.do("", "GET", "/", ""); a.Status != 302 || a.Header.Get("Location") != "/docs" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
}
