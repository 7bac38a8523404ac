package console_test

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/console"
)

// A session opens with a key, may do what its key may, and ends when it should.
func TestSessions(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		out := func(b *browser, why string) {
			t.Helper()
			if p := b.get("/console/events?type=order.paid"); p.URL.Path != "/console/login" || p.URL.Query().Get("next") != "/console/events?type=order.paid" {
				t.Errorf("%s: %s", why, p.URL)
			}
		}
		in := func(b *browser, why string) {
			t.Helper()
			if p := b.get("/console/events"); p.Status != 200 || p.URL.Path != "/console/events" {
				t.Errorf("%s: %d %s", why, p.Status, p.URL)
			}
		}
		out(s.browser(), "nobody")
		b := s.signIn(adminKey)
		in(b, "who signed in")
		s.leap(59 * time.Minute)
		in(b, "used within the hour")
		s.leap(59 * time.Minute)
		in(b, "used again")
		s.leap(time.Hour)
		out(b, "idle for an hour")

		b = s.signIn(adminKey)
		for range 12 {
			s.leap(50 * time.Minute)
			in(b, "in use all day")
		}
		s.leap(2 * time.Hour)
		out(b, "after twelve hours")

		b = s.signIn(adminKey)
		b.get("/console/")
		other := s.browser()
		other.client.Jar.SetCookies(mustParse(t, s.srv.URL+"/console"), b.client.Jar.Cookies(mustParse(t, s.srv.URL+"/console/x")))
		in(other, "a copy of the cookie")
		b.post("/console/logout")
		out(b, "signed out")
		out(other, "signed out elsewhere")

		made := s.rest("POST", "/v1/keys", `{"name":"mine","permissions":["read"]}`)
		b = s.signIn(made["key"].(string))
		in(b, "with a key of its own")
		s.rest("DELETE", "/v1/keys/"+made["id"].(string), "")
		out(b, "its key was revoked")

		// A live page doesn't keep its session.
		b = s.signIn(adminKey)
		s.leap(40 * time.Minute)
		b.do("GET", "/console/chart", nil, "X-Surehook-Live", "1")
		s.leap(20 * time.Minute)
		out(b, "only its chart was fetched")

		log, err := s.store.ListAudit(t.Context(), "", surehook.Page{Limit: 100})
		if err != nil {
			t.Fatal(err)
		}
		opened := 0
		for _, a := range log {
			if a.Action == "session.open" {
				opened++
			}
		}
		if opened != 5 {
			t.Errorf("%d sessions are in the audit log", opened)
		}
	})
}

func mustParse(t *testing.T, raw string) *url.URL {
	t.Helper()
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

// The cookie can't be read by scripts, isn't sent by other sites, and where browsers
// come over TLS not without it.
func TestTheCookie(t *testing.T) {
	cookie := func(s *site) string {
		b := s.browser()
		b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
		p := b.do("POST", "/console/login", url.Values{"key": {adminKey}})
		return p.Header.Get("Set-Cookie")
	}
	c := cookie(lite(t))
	for _, want := range []string{"surehook_console=", "Path=/console", "HttpOnly", "SameSite=Strict", "Max-Age=43200"} {
		if !strings.Contains(c, want) {
			t.Errorf("no %s: %s", want, c)
		}
	}
	if strings.Contains(c, "Secure") {
		t.Errorf("over plain HTTP it would be dropped: %s", c)
	}
	if c := cookie(lite(t, func(o *console.Options) { o.Public = mustParse(t, "https://hooks.example.com") })); !strings.Contains(c, "Secure") {
		t.Errorf("%s", c)
	}
}

// Wrong keys are told so, kept out, and slowed down; a right one isn't kept out by
// others' wrong ones from elsewhere.
func TestSignInIsLimited(t *testing.T) {
	s := lite(t)
	b := s.browser()
	try := func(key string) answer {
		return b.do("POST", "/console/login", url.Values{"key": {key}, "next": {"/console/keys"}})
	}
	if p := try("events only"); p.Status != http.StatusUnauthorized || !strings.Contains(p.Body, "unknown or revoked") || !strings.Contains(p.Body, `value="/console/keys"`) {
		t.Errorf("%d %s", p.Status, p.Body)
	}
	if p := try(s.key("", "events:write")); p.Status != http.StatusForbidden {
		t.Errorf("a key that may not read: %d", p.Status)
	}
	for range 9 {
		try("wrong")
	}
	if p := try(adminKey); p.Status != http.StatusTooManyRequests || p.Header.Get("Retry-After") == "" {
		t.Errorf("%d %v", p.Status, p.Header)
	}
	s.leap(time.Minute)
	if p := try(adminKey); p.Status != 200 || p.URL.Path != "/console/keys" {
		t.Errorf("%d %s", p.Status, p.URL)
	}
	for next, want := range map[string]string{"https://evil.example/": "/console/", "//evil.example/console/": "/console/", "/console/../docs": "/console/", "/other": "/console/",
		"/console/events?type=a": "/console/events", `/console/\evil`: "/console/"} {
		b := s.browser()
		if p := b.do("POST", "/console/login", url.Values{"key": {adminKey}, "next": {next}}); p.URL.Path != want || p.URL.Host != mustParse(t, s.srv.URL).Host {
			t.Errorf("next %q leads to %s", next, p.URL)
		}
	}
}

// Nothing is changed by a form of another site, of another session, or of none.
func TestForgedForms(t *testing.T) {
	s := lite(t)
	hook := s.hook(`{"url":"http://127.0.0.1:9/in"}`)
	b := s.signIn(adminKey)
	b.get("/console/endpoints/" + hook)
	good := b.token()
	other := s.signIn(adminKey)
	other.get("/console/endpoints/" + hook)
	path := "/console/endpoints/" + hook + "/pause"
	for name, c := range map[string]struct {
		token  string
		header []string
	}{
		"no token":               {"", nil},
		"another session's":      {other.token(), nil},
		"from another site":      {good, []string{"Origin", "https://evil.example"}},
		"told by Sec-Fetch-Site": {good, []string{"Sec-Fetch-Site", "cross-site"}},
		"of a sibling":           {good, []string{"Sec-Fetch-Site", "same-site"}},
	} {
		if p := b.do("POST", path, url.Values{"form": {c.token}}, c.header...); p.Status != http.StatusForbidden {
			t.Errorf("%s: %d", name, p.Status)
		}
	}
	if s.rest("GET", "/v1/webhooks/"+hook, "")["paused"] != false {
		t.Fatal("a forged form paused the endpoint")
	}
	if p := b.do("GET", path, nil); p.Status == 200 {
		t.Errorf("a mere look: %d", p.Status)
	}
	if p := b.do("POST", path, url.Values{"form": {good}}); p.Status != 200 || s.rest("GET", "/v1/webhooks/"+hook, "")["paused"] != true {
		t.Errorf("the real one: %d", p.Status)
	}
	if p := s.browser().do("POST", path, url.Values{"form": {good}}); p.URL.Path != "/console/login" {
		t.Errorf("without the cookie: %s", p.URL)
	}
	if p := s.browser().do("POST", "/console/login", url.Values{"key": {adminKey}}, "Origin", "https://evil.example"); p.Status != http.StatusForbidden {
		t.Errorf("signing somebody in from elsewhere: %d", p.Status)
	}
}

// Behind a proxy that ends TLS the origin of forms is the public one.
func TestPublicOrigin(t *testing.T) {
	s := lite(t, func(o *console.Options) { o.Public = mustParse(t, "https://hooks.example.com") })
	b := s.browser()
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	if p := b.do("POST", "/console/login", url.Values{"key": {adminKey}}, "Origin", "https://hooks.example.com"); p.Status != http.StatusSeeOther {
		t.Errorf("%d", p.Status)
	}
}

// A key shows its rights: what it may not do isn't offered, and is refused.
func TestRightsOfAKey(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		w := s.world()
		mine := s.hook(`{"url":"http://127.0.0.1:9/mine","tenant_id":"acme"}`)
		b := s.signIn(s.key("acme", "read"))
		for path, absent := range map[string][]string{
			"/console/":                   {"Tenants", "API keys", "Create an endpoint"},
			"/console/endpoints":          {"Create an endpoint", w.well, w.failing},
			"/console/endpoints/" + mine:  {"Send a test", "Rotate", "Delete"},
			"/console/events":             {w.event},
			"/console/event-types":        {"Describe a type"},
			"/console/dead-letters":       {w.failing},
			"/console/replays":            {w.replay},
			"/console/events?tenant_id=b": {w.event},
		} {
			p := b.get(path)
			for _, text := range absent {
				if strings.Contains(p.Body, text) {
					t.Errorf("%s holds %s", path, text)
				}
			}
		}
		for _, path := range []string{"/console/tenants", "/console/keys", "/console/audit", "/console/system", "/console/partners"} {
			if p := b.get(path); p.Status != http.StatusForbidden {
				t.Errorf("%s: %d", path, p.Status)
			}
		}
		for _, path := range []string{"/console/endpoints/" + w.well, "/console/events/" + w.event, "/console/events/" + w.event + "/data", "/console/replays/" + w.replay, "/console/chart?endpoint=" + w.well} {
			if p := b.get(path); p.Status != http.StatusNotFound {
				t.Errorf("%s: %d", path, p.Status)
			}
		}
		b.get("/console/endpoints/" + mine)
		for _, action := range []string{"/pause", "/test", "/rotate", "/delete", "/disable", ""} {
			if p := b.post("/console/endpoints/"+mine+action, "overlap_hours", "0", "sure", "yes", "url", "http://127.0.0.1:9/x"); p.Status != http.StatusForbidden {
				t.Errorf("%s: %d", action, p.Status)
			}
		}
	})
}
