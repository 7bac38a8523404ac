package api_test

import (
	"crypto/sha256"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
)

func sum(text string) []byte {
	h := sha256.Sum256([]byte(text))
	return h[:]
}

// as asks in a session's name.
func (s *site) as(n *surehook.Session, method, path, body string) (int, map[string]any) {
	s.t.Helper()
	h, _, err := s.h.(*api.Handler).As(s.t.Context(), n)
	if err != nil {
		s.t.Fatal(err)
	}
	req := httptest.NewRequestWithContext(s.t.Context(), method, path, strings.NewReader(body))
	if body != "" {
		req.Header.Set("Content-Type", "application/json")
	}
	w := httptest.NewRecorder()
	h.ServeHTTP(w, req)
	var m map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &m); err != nil {
		s.t.Fatalf("%s: %v", w.Body, err)
	}
	return w.Code, m
}

// A session asks with its key's rights, a portal's with its tenant's alone, and both
// end with the key.
func TestSessionsAskInTheNameOfTheirKey(t *testing.T) {
	s := open(t)
	a := s.admin("POST", "/v1/keys", `{"permissions":["admin","read","webhooks:manage"]}`)
	key, id := a.field("key").(string), a.field("id").(string)
	s.hook(`{"url":"https://example.com/in"}`)
	s.hook(`{"url":"https://example.com/in","tenant_id":"acme"}`)
	console := &surehook.Session{ID: "ses_1", Kind: surehook.SessionConsole, KeyHash: sum(key)}
	portal := &surehook.Session{ID: "ses_2", Kind: surehook.SessionPortal, KeyHash: sum(key), Tenant: "acme", Permissions: []string{"read"}}
	if code, m := s.as(console, "GET", "/v1/webhooks", ""); code != 200 || len(m["items"].([]any)) != 2 {
		t.Errorf("%d %v", code, m)
	}
	if code, m := s.as(portal, "GET", "/v1/webhooks", ""); code != 200 || len(m["items"].([]any)) != 1 {
		t.Errorf("%d %v", code, m)
	}
	for _, path := range []string{"/v1/keys", "/v1/audit-log", "/v1/system", "/v1/tenants"} {
		if code, m := s.as(portal, "GET", path, ""); code != http.StatusForbidden {
			t.Errorf("%s: %d %v", path, code, m)
		}
	}
	if code, _ := s.as(portal, "POST", "/v1/webhooks", `{"url":"https://example.com/x"}`); code != http.StatusForbidden {
		t.Errorf("a portal that may only read made an endpoint: %d", code)
	}
	if a := s.admin("DELETE", "/v1/keys/"+id, ""); a.Status != http.StatusNoContent {
		t.Fatalf("%s", a.Raw)
	}
	for _, n := range []*surehook.Session{console, portal, {Kind: surehook.SessionConsole}, {Kind: "other", KeyHash: sum(adminKey)}, {Kind: surehook.SessionPortal, KeyHash: sum(adminKey)}} {
		if _, _, err := s.h.(*api.Handler).As(t.Context(), n); surehook.CodeOf(err) != surehook.Unauthorized {
			t.Errorf("%+v: %v", n, err)
		}
	}
}

func TestPortalLinks(t *testing.T) {
	s := open(t)
	a := s.admin("POST", "/v1/portal-links", `{"tenant_id":"acme","expires_in":60,"permissions":["webhooks:manage","read","mail:read","read"]}`)
	u, err := url.Parse(a.field("url").(string))
	if err != nil || a.Status != http.StatusCreated || u.Path != "/portal/open" {
		t.Fatalf("%s", a.Raw)
	}
	token := u.Query().Get("token")
	link, err := s.store.Session(t.Context(), sum(token))
	if err != nil || link.Kind != surehook.SessionLink || link.Tenant != "acme" || strings.Join(link.Permissions, " ") != "mail:read read webhooks:manage" ||
		link.ExpiresAt.Sub(link.CreatedAt) != time.Minute {
		t.Errorf("%+v %v", link, err)
	}
	if log := s.admin("GET", "/v1/audit-log", ""); !strings.Contains(string(log.Raw), "portal_link.create") || strings.Contains(string(log.Raw), token) {
		t.Errorf("%s", log.Raw)
	}
	for body, path := range map[string]string{`{}`: "tenant_id", `{"tenant_id":"a b"}`: "tenant_id", `{"tenant_id":"a","expires_in":5}`: "expires_in",
		`{"tenant_id":"a","permissions":["read","admin"]}`: "permissions[1]", `{"tenant_id":"a","permissions":["read","events:write"]}`: "permissions[1]",
		`{"tenant_id":"a","permissions":["webhooks:manage"]}`: "permissions"} {
		s.admin("POST", "/v1/portal-links", body).refused(400, surehook.InvalidRequest, path)
	}
	s.do(s.key("acme", "read", "webhooks:manage"), "POST", "/v1/portal-links", `{"tenant_id":"acme"}`).refused(403, surehook.Forbidden, "")
}

// What is counted is what the key sees.
func TestOverviewIsOfWhatTheKeySees(t *testing.T) {
	s := open(t)
	_, hook, _, _ := dead(s)
	acme := s.hook(`{"url":"https://example.com/in","tenant_id":"acme"}`)
	s.admin("PATCH", "/v1/webhooks/"+acme, `{"paused":true}`)
	s.admin("PATCH", "/v1/webhooks/"+acme, `{"limits":{"attempts":3}}`)
	if a := s.admin("GET", "/v1/webhooks/"+acme, ""); a.field("paused") != true {
		t.Errorf("other limits end the pause: %s", a.Raw)
	}
	all := s.admin("GET", "/v1/overview", "")
	if w := all.field("webhooks").(map[string]any); all.field("dead_letters") != 1.0 || w["failing"] != 1.0 || w["paused"] != 1.0 {
		t.Errorf("%s", all.Raw)
	}
	key := s.key("acme", "read")
	own := s.do(key, "GET", "/v1/overview", "")
	if w := own.field("webhooks").(map[string]any); own.field("dead_letters") != 0.0 || w["failing"] != 0.0 || w["paused"] != 1.0 {
		t.Errorf("%s", own.Raw)
	}
	since := time.Now().Truncate(time.Hour).Add(-time.Hour).UTC().Format(time.RFC3339)
	count := func(key, path string) (n float64) {
		var l struct {
			Items []struct{ Attempts float64 }
		}
		for range 2 { // the second time from memory
			n = 0
			s.do(key, "GET", path+"?step_s=60&since="+since, "").into(&l)
			for _, b := range l.Items {
				n += b.Attempts
			}
		}
		return n
	}
	if a, h, o := count(adminKey, "/v1/stats"), count(adminKey, "/v1/webhooks/"+hook+"/stats"), count(key, "/v1/stats"); a != 1 || h != 1 || o != 0 {
		t.Errorf("attempts: %g of all, %g of the endpoint, %g of the tenant's", a, h, o)
	}
}

func TestCheckURL(t *testing.T) {
	s := open(t, func(o *engine.Options) { o.AllowNetworks = nil })
	for u, allowed := range map[string]bool{"https://example.com/in": true, "http://example.com/in": false, "https://127.0.0.1/": false, "": false, "ftp://x": false} {
		a := s.admin("POST", "/v1/check-url", `{"url":"`+u+`"}`)
		if a.Status != 200 || a.field("allowed") != allowed || (a.field("reason") == nil) != allowed {
			t.Errorf("%q: %d %s", u, a.Status, a.Raw)
		}
	}
}
