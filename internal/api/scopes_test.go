package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/receivertest"
)

// ids reads the ids of a listing.
func (a answer) ids() []string {
	a.t.Helper()
	var list struct{ Items []struct{ ID string } }
	a.into(&list)
	out := make([]string, len(list.Items))
	for i, it := range list.Items {
		out[i] = it.ID
	}
	slices.Sort(out)
	return out
}

// A partner's key sees and manages its own endpoints and its tenants', publishes
// for its tenants, and nothing else exists for it.
func TestPartnerKey(t *testing.T) { onBoth(t, testPartnerKey) }

func testPartnerKey(t *testing.T, s *site) {
	for _, body := range []string{`{"partner_id":"p","permissions":["admin"]}`, `{"partner_id":"p","tenant_id":"t1","permissions":["read"]}`, `{"partner_id":"a b","permissions":["read"]}`} {
		if a := s.admin("POST", "/v1/keys", body); a.Status != http.StatusBadRequest {
			t.Errorf("%s: %s", body, a.Raw)
		}
	}
	r := receivertest.New(t, nil)
	for tenant, partner := range map[string]string{"t1": "p", "t2": "p", "t3": "q"} {
		s.admin("PUT", "/v1/tenants/"+tenant, fmt.Sprintf(`{"partner_id":%q}`, partner))
	}
	at := map[string]string{}
	for name, of := range map[string]string{"platform": ``, "p": `,"partner_id":"p"`, "q": `,"partner_id":"q"`, "t1": `,"tenant_id":"t1"`, "t3": `,"tenant_id":"t3"`, "t4": `,"tenant_id":"t4"`} {
		at[name] = s.hook(`{"url":"` + r.URL + `"` + of + `}`)
	}
	a := s.admin("POST", "/v1/keys", `{"partner_id":"p","permissions":["events:write","webhooks:manage","read"]}`)
	if a.Status != http.StatusCreated || a.field("partner_id") != "p" {
		t.Fatalf("%s", a.Raw)
	}
	key := a.field("key").(string)
	p := func(method, path, body string) answer { t.Helper(); return s.do(key, method, path, body) }

	want := []string{at["p"], at["t1"]}
	slices.Sort(want)
	if got := p("GET", "/v1/webhooks", "").ids(); !slices.Equal(got, want) {
		t.Errorf("webhooks %v, want %v", got, want)
	}
	for name, id := range at {
		mine := name == "p" || name == "t1"
		for _, c := range []struct{ method, path, body string }{
			{"GET", "", ""}, {"PATCH", "", `{"description":"x"}`}, {"GET", "/attempts", ""}, {"POST", "/rotate-secret", `{}`},
			{"POST", "/replay", `{"since":"2020-01-01T00:00:00Z"}`}, {"GET", "/stats", ""}, {"POST", "/test", ""},
		} {
			if got := p(c.method, "/v1/webhooks/"+id+c.path, c.body); (got.Status < 300) != mine || !mine && got.Status != http.StatusNotFound {
				t.Errorf("%s %s%s: %d %s", c.method, name, c.path, got.Status, got.Raw)
			}
		}
	}

	partnerMakes(t, p, r.URL)
	partnerPublishes(t, s, p)
	if got := p("GET", "/v1/tenants", "").ids(); !slices.Equal(got, []string{"t1", "t2"}) {
		t.Errorf("tenants %v", got)
	}
	p("GET", "/v1/tenants/t3", "").refused(http.StatusNotFound, surehook.NotFound, "")
	for _, path := range []string{"/v1/keys", "/v1/audit-log", "/v1/partners"} {
		p("GET", path, "").refused(http.StatusForbidden, surehook.Forbidden, "")
	}
}

// asks makes a request with one key.
type asks func(method, path, body string) answer

func partnerMakes(t *testing.T, p asks, url string) {
	t.Helper()
	made := p("POST", "/v1/webhooks", `{"url":"`+url+`"}`) // its own, unless it says a tenant of its
	if made.Status != http.StatusCreated || made.field("partner_id") != "p" || made.field("scope") != "partner" {
		t.Errorf("%s", made.Raw)
	}
	if made := p("POST", "/v1/webhooks", `{"url":"`+url+`","tenant_id":"t2"}`); made.Status != http.StatusCreated || made.field("scope") != "tenant" {
		t.Errorf("%s", made.Raw)
	}
	for _, body := range []string{`,"tenant_id":"t3"`, `,"tenant_id":"t4"`, `,"partner_id":"q"`} {
		p("POST", "/v1/webhooks", `{"url":"`+url+`"`+body+`}`).refused(http.StatusForbidden, surehook.Forbidden, "")
	}
}

func partnerPublishes(t *testing.T, s *site, p asks) {
	t.Helper()
	p("POST", "/v1/events", `{"type":"a","data":1}`).refused(http.StatusBadRequest, surehook.InvalidRequest, "tenant_id")
	p("POST", "/v1/events", `{"type":"a","data":1,"tenant_id":"t3"}`).refused(http.StatusForbidden, surehook.Forbidden, "")
	if a := p("POST", "/v1/events", `{"id":"mine","type":"a","data":1,"tenant_id":"t1"}`); a.Status != http.StatusAccepted {
		t.Errorf("%s", a.Raw)
	}
	s.publish(`{"id":"others","type":"a","data":1,"tenant_id":"t3"}`)
	s.publish(`{"id":"platforms","type":"a","data":1}`)
	events := p("GET", "/v1/events?type=a", "").ids()
	if !slices.Equal(events, []string{"mine"}) {
		t.Errorf("events %v", events)
	}
	for id, status := range map[string]int{"mine": 200, "others": 404, "platforms": 404} {
		for _, path := range []string{"", "/deliveries", "/attempts"} {
			if got := p("GET", "/v1/events/"+id+path, ""); got.Status != status {
				t.Errorf("%s%s: %d", id, path, got.Status)
			}
		}
	}
}

// A type that requires a permission is subscribed to and replayed with it alone,
// whichever pattern it comes by.
func TestRequiredPermission(t *testing.T) { onBoth(t, testRequiredPermission) }

func testRequiredPermission(t *testing.T, s *site) {
	r := receivertest.New(t, nil)
	if a := s.admin("PUT", "/v1/event-types/mail.received", `{"requires":"mail:read"}`); a.Status != 200 || a.field("requires") != "mail:read" {
		t.Fatalf("%s", a.Raw)
	}
	all := s.hook(`{"url":"` + r.URL + `/all"}`) // admin might make itself a key that has it
	off := s.hook(`{"url":"` + r.URL + `/off","enabled":false}`)
	plain := s.hook(`{"url":"` + r.URL + `/plain","event_types":["order.*"]}`)
	id := s.publish(`{"type":"mail.received","data":1}`)
	s.publish(`{"type":"order.paid","data":1}`)
	lacks, has := s.key("", "webhooks:manage", "read"), s.key("", "webhooks:manage", "read", "mail:read")
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/webhooks", `{"url":"` + r.URL + `"}`},
		{"POST", "/v1/webhooks", `{"url":"` + r.URL + `","event_types":["*"]}`},
		{"POST", "/v1/webhooks", `{"url":"` + r.URL + `","event_types":["order.paid","mail.received"]}`},
		{"POST", "/v1/webhooks", `{"url":"` + r.URL + `","event_types":["mail.*"]}`},
		{"PATCH", "/v1/webhooks/" + plain, `{"event_types":["mail.*"]}`},
		{"PATCH", "/v1/webhooks/" + plain, `{"event_types":null}`},
		{"POST", "/v1/webhooks/" + all + "/replay", `{"ids":["` + id + `"]}`},
		{"POST", "/v1/webhooks/" + all + "/replay", `{"since":"2020-01-01T00:00:00Z"}`},
		{"POST", "/v1/webhooks/" + all + "/replay", `{"since":"2020-01-01T00:00:00Z","background":true}`},
		{"POST", "/v1/webhooks/" + all + "/deliveries/" + id + "/replay", ""},
		{"PATCH", "/v1/webhooks/" + off, `{"enabled":true}`},
		{"PATCH", "/v1/webhooks/" + all, `{"subjects":null}`},
		{"PATCH", "/v1/webhooks/" + all, `{"identity_ids":null}`},
		{"PATCH", "/v1/webhooks/" + all, `{"envelope":"standard"}`},
		{"PATCH", "/v1/webhooks/" + all, `{"profile":"pylota"}`},
		{"PATCH", "/v1/webhooks/" + all, `{"url":"` + r.URL + `/elsewhere"}`}, // it disables
		{"POST", "/v1/webhooks/" + all + "/test", ""},                         // and this enables
	} {
		a := s.do(lacks, c.method, c.path, c.body)
		var p struct{ Details struct{ Required string } }
		a.into(&p)
		if a.Status != http.StatusForbidden || a.field("code") != "permission_denied" || p.Details.Required != "mail:read" {
			t.Errorf("without: %s %s %s: %d %s", c.method, c.path, c.body, a.Status, a.Raw)
		}
		if a := s.do(has, c.method, c.path, c.body); a.Status >= 300 {
			t.Errorf("with: %s %s %s: %d %s", c.method, c.path, c.body, a.Status, a.Raw)
		}
	}
	s.admin("PATCH", "/v1/webhooks/"+plain, `{"event_types":["order.*"]}`)
	for _, c := range []struct{ method, path, body string }{
		{"POST", "/v1/webhooks", `{"url":"` + r.URL + `","event_types":["order.*","mailbox.made"]}`},
		{"POST", "/v1/webhooks/" + plain + "/replay", `{"since":"2020-01-01T00:00:00Z"}`},
		{"PATCH", "/v1/webhooks/" + all, `{"description":"x"}`},
		{"POST", "/v1/webhooks/" + all + "/test", ""},
		{"PATCH", "/v1/webhooks/" + all, `{"enabled":false}`},
		{"PATCH", "/v1/webhooks/" + plain, `{"enabled":false}`},
		{"PATCH", "/v1/webhooks/" + plain, `{"enabled":true,"subjects":null,"identity_ids":null,"envelope":"thin"}`},
	} {
		if a := s.do(lacks, c.method, c.path, c.body); a.Status >= 300 {
			t.Errorf("what needs it not: %s %s: %d %s", c.method, c.path, a.Status, a.Raw)
		}
	}
	for _, name := range []string{"mail", "events:red", "webhooks:x", "Mail:read", "mail:", ":read", "mail read", strings.Repeat("x", 60) + ":read"} {
		s.admin("PUT", "/v1/event-types/x", `{"requires":"`+name+`"}`).refused(http.StatusBadRequest, surehook.InvalidRequest, "")
		s.admin("POST", "/v1/keys", `{"permissions":["read","`+name+`"]}`).refused(http.StatusBadRequest, surehook.InvalidRequest, "permissions[1]")
	}
}

// The webhook of a scope that is one too many is refused, in each scope by itself.
func TestLimitOfAScope(t *testing.T) { onBoth(t, testLimitOfAScope) }

func testLimitOfAScope(t *testing.T, s *site) {
	for _, of := range []string{``, `,"partner_id":"p"`, `,"tenant_id":"t"`, `,"tenant_id":"p"`} {
		body := `{"url":"http://127.0.0.1:9/x"` + of + `}`
		var last string
		for range 20 {
			last = s.hook(body)
		}
		s.admin("POST", "/v1/webhooks", body).refused(http.StatusUnprocessableEntity, surehook.LimitReached, "")
		if a := s.admin("DELETE", "/v1/webhooks/"+last, ""); a.Status != http.StatusNoContent {
			t.Error(a.Status)
		}
		s.hook(body)
	}
}

// Where two tenants have one id, the platform's keys see under which webhook-id
// the second one is known, and find it by that; a tenant's keys see its id alone.
func TestAliasInTheAPI(t *testing.T) {
	s := open(t)
	for _, tenant := range []string{"a", "b"} {
		if id := s.publish(`{"id":"order:1","type":"x","tenant_id":"` + tenant + `","data":"` + tenant + `"}`); id != "order:1" {
			t.Error(id)
		}
	}
	if a := s.admin("GET", "/v1/events/order:1", ""); a.field("tenant_id") != "a" || a.field("alias") != nil {
		t.Errorf("%s", a.Raw)
	}
	b := s.admin("GET", "/v1/events/order:1?tenant_id=b", "")
	alias, _ := b.field("alias").(string)
	if b.field("tenant_id") != "b" || !strings.HasPrefix(alias, "order:1:") {
		t.Fatalf("%s", b.Raw)
	}
	if a := s.admin("GET", "/v1/events/"+alias, ""); a.field("data") != "b" {
		t.Errorf("%s", a.Raw)
	}
	if a := s.do(s.key("b", "read"), "GET", "/v1/events/order:1", ""); a.field("data") != "b" || a.field("alias") != nil {
		t.Errorf("%s", a.Raw)
	}
}

// What is pulled is had as well as what is sent: a page with such an event is refused,
// of a webhook's inbox and of a session's, and waits for another key.
func TestPullingNeedsTheRequiredPermission(t *testing.T) { onBoth(t, testPullRequired) }

func testPullRequired(t *testing.T, s *site) {
	s.admin("PUT", "/v1/event-types/mail.received", `{"requires":"mail:read"}`)
	hook := s.admin("POST", "/v1/webhooks", `{"target":"pull"}`).field("id").(string)
	s.admin("PUT", "/v1/sessions/one", `{}`)
	if a := s.admin("POST", "/v1/webhooks", `{"target":"pull","session_id":"one"}`); a.Status != http.StatusCreated {
		t.Fatalf("%s", a.Raw)
	}
	lacks, has := s.key("", "events:pull"), s.key("", "events:pull", "mail:read")
	s.publish(`{"type":"order.paid","data":1}`)
	for _, path := range []string{"/v1/webhooks/" + hook + "/events", "/v1/sessions/one/events"} {
		if p := s.pull(lacks, path); len(p.Items) != 1 {
			t.Errorf("%s: what needs none: %+v", path, p)
		}
	}
	s.publish(`{"type":"mail.received","data":1}`)
	for _, path := range []string{"/v1/webhooks/" + hook + "/events", "/v1/sessions/one/events"} {
		a := s.do(lacks, "GET", path, "")
		var p struct{ Details struct{ Required string } }
		a.into(&p)
		if a.Status != http.StatusForbidden || p.Details.Required != "mail:read" {
			t.Errorf("%s: %d %s", path, a.Status, a.Raw)
		}
		if p := s.pull(has, path); len(p.Items) != 2 {
			t.Errorf("%s: %+v", path, p)
		}
	}
}
