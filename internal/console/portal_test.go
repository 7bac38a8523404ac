package console_test

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/console"
	"github.com/surehook/surehook/internal/receivertest"
)

// A link works once, in its time, for whoever opens it; looking at it doesn't use it
// up.
func TestPortalLink(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		link := func() *url.URL {
			return mustParse(t, s.rest("POST", "/v1/portal-links", `{"tenant_id":"acme","expires_in":60}`)["url"].(string))
		}
		u := link()
		b := s.browser()
		for range 3 { // a mail program looks
			if p := b.get(u.RequestURI()); p.Status != 200 || !strings.Contains(p.Body, "Open") {
				t.Fatalf("%d %s", p.Status, p.Body)
			}
		}
		take := func(b *browser, u *url.URL) answer {
			return b.do("POST", "/portal/open", url.Values{"token": {u.Query().Get("token")}})
		}
		if p := take(b, u); p.Status != 200 || p.URL.Path != "/portal/" || !strings.Contains(p.Body, "Signed in for <b>acme</b>") {
			t.Fatalf("%d %s %.500s", p.Status, p.URL, p.Body)
		}
		if p := take(s.browser(), u); p.Status != http.StatusUnauthorized {
			t.Errorf("the second time: %d", p.Status)
		}
		late := link()
		s.leap(time.Minute)
		if p := take(s.browser(), late); p.Status != http.StatusUnauthorized {
			t.Errorf("too late: %d", p.Status)
		}
		if p := take(s.browser(), mustParse(t, "/portal/open?token=nothing")); p.Status != http.StatusUnauthorized {
			t.Errorf("made up: %d", p.Status)
		}
		// Its session opens no console, nor does a link's token anything.
		c := s.browser()
		c.client.Jar.SetCookies(mustParse(t, s.srv.URL+"/console"), []*http.Cookie{{Name: "surehook_console", Value: b.client.Jar.Cookies(mustParse(t, s.srv.URL+"/portal/x"))[0].Value, Path: "/console"}})
		if p := c.get("/console/"); p.URL.Path != "/console/login" {
			t.Errorf("a portal's cookie opens %s", p.URL)
		}
		raw := s.browser()
		raw.client.Jar.SetCookies(mustParse(t, s.srv.URL+"/portal"), []*http.Cookie{{Name: "surehook_portal", Value: link().Query().Get("token"), Path: "/portal"}})
		if p := raw.get("/portal/"); p.Status != http.StatusUnauthorized {
			t.Errorf("a link's token opens %s: %d", p.URL, p.Status)
		}
		s.leap(time.Hour)
		if p := b.get("/portal/"); p.Status != http.StatusUnauthorized || !strings.Contains(p.Body, "A new link is needed") {
			t.Errorf("idle for an hour: %d", p.Status)
		}
	})
}

// Revoking the key that made a link ends its sessions.
func TestPortalEndsWithItsKey(t *testing.T) {
	s := lite(t)
	made := s.rest("POST", "/v1/keys", `{"permissions":["admin","read"]}`)
	platform := s.signIn(made["key"].(string))
	s.rest("PUT", "/v1/tenants/acme", `{}`)
	platform.get("/console/tenants")
	p := platform.post("/console/tenants/acme/portal")
	token := regexp.MustCompile(`token=([A-Za-z0-9_-]{43})`).FindStringSubmatch(p.Body)
	if token == nil {
		t.Fatalf("%d %s", p.Status, p.Body)
	}
	b := s.browser()
	b.do("POST", "/portal/open", url.Values{"token": {token[1]}})
	if p := b.get("/portal/events"); p.Status != 200 {
		t.Fatalf("%d", p.Status)
	}
	s.rest("DELETE", "/v1/keys/"+made["id"].(string), "")
	if p := b.get("/portal/events"); p.Status != http.StatusUnauthorized {
		t.Errorf("%d %s", p.Status, p.URL)
	}
}

// tenantWorld gives a tenant an endpoint that fails, one that is well, events, dead
// letters and a replay, all named after it.
func (s *site) tenantWorld(tenant string) {
	s.t.Helper()
	good := receivertest.New(s.t, nil)
	bad := receivertest.New(s.t, func(int, receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Status: 500, Body: "said to " + tenant}
	})
	well := s.hook(fmt.Sprintf(`{"url":"%s/%s/in","tenant_id":"%s","description":"of %s"}`, good.URL, tenant, tenant, tenant))
	s.hook(fmt.Sprintf(`{"url":"%s/%s/fails","tenant_id":"%s","limits":{"attempts":1}}`, bad.URL, tenant, tenant))
	s.watchAll(tenant, "s:"+tenant)
	before := s.rest("GET", "/v1/overview", "")["dead_letters"].(float64)
	for i := range 3 {
		s.publish(fmt.Sprintf(`{"id":"same-%d","type":"order.paid","tenant_id":"%s","identity_id":"id-%s","owner":"own-%s","subjects":["s:%s"],"data":{"of":"%s"}}`, i, tenant, tenant, tenant, tenant, tenant))
	}
	s.until("all are dead at one of the two", func() bool { return s.rest("GET", "/v1/overview", "")["dead_letters"] == before+3 })
	s.rest("POST", "/v1/webhooks/"+well+"/replay", `{"since":"2020-01-01T00:00:00Z","background":true}`)
}

var anyLink = regexp.MustCompile(`(?:href|action|hx-get|hx-post|sse-connect)="(/[^"]*)"`)

// crawl follows every link of a site from its first page, and gives all that it read.
func (b *browser) crawl(base string) map[string]string {
	b.s.t.Helper()
	seen, next := map[string]string{}, []string{base + "/"}
	for len(next) > 0 {
		path := strings.ReplaceAll(next[0], "&amp;", "&")
		next = next[1:]
		if _, was := seen[path]; was || strings.HasSuffix(path, "/live") || strings.Contains(path, "/static/") {
			continue
		}
		p := b.get(path)
		seen[path] = p.Body
		if len(seen) > 400 {
			b.s.t.Fatal("the site has no end")
		}
		for _, m := range anyLink.FindAllStringSubmatch(p.Body, -1) {
			next = append(next, m[1])
		}
	}
	return seen
}

// Two tenants' portals, every page of them: neither holds anything of the other, nor of
// the platform, and what one's pages are called leads the other nowhere.
func TestPortalsAreApart(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		s.world()
		s.tenantWorld("alpha1")
		s.tenantWorld("beta22")
		foreign := map[string][]string{"alpha1": {"beta22"}, "beta22": {"alpha1"}}
		ids := regexp.MustCompile(`(?:whk|evt|rpl|ded|key|ses|sen)_[0-9A-Z]{6,}`)
		own := map[string]map[string]bool{}
		pages := map[string]map[string]string{}
		for tenant, others := range foreign {
			b := s.portal(tenant, "read", "webhooks:manage")
			pages[tenant], own[tenant] = b.crawl("/portal"), map[string]bool{}
			if len(pages[tenant]) < 20 {
				t.Errorf("the crawl of %s found %d pages", tenant, len(pages[tenant]))
			}
			for path, body := range pages[tenant] {
				for _, word := range append(others, "acme", "database is on fire", "first admin key", "/hooks/in", "orders to the shop") {
					if strings.Contains(body, word) {
						t.Errorf("%s of %s holds %q", path, tenant, word)
					}
				}
				for _, id := range ids.FindAllString(body, -1) {
					own[tenant][id] = true
				}
			}
		}
		for id := range own["alpha1"] {
			if own["beta22"][id] {
				t.Errorf("both portals hold %s", id)
			}
		}
		// What the one's pages are called, the other asks for: the same words as for
		// what never was. Events of both have the same ids; each sees its own.
		b := s.portal("beta22", "read", "webhooks:manage")
		for path := range pages["alpha1"] {
			if !ids.MatchString(path) {
				continue
			}
			p := b.get(path)
			if p.Status == http.StatusOK && !strings.Contains(path, "?") || strings.Contains(p.Body, "alpha1") {
				t.Errorf("%s: %d %.300s", path, p.Status, p.Body)
			}
		}
		b.watchesNothingOf("alpha1", pages["alpha1"])
		b.get("/portal/events/same-1")
		if p := b.get("/portal/events/same-1?tenant_id=alpha1"); p.Status != http.StatusForbidden || strings.Contains(p.Body, `{"of"`) {
			t.Errorf("another's event by its tenant: %d", p.Status)
		}
		b.get("/portal/endpoints")
		for path := range pages["alpha1"] {
			if m := regexp.MustCompile(`^/portal/endpoints/(whk_[0-9A-Z]+)$`).FindStringSubmatch(path); m != nil {
				for _, action := range []string{"/pause", "/test", "/rotate", "/delete", "/disable", ""} {
					b.get("/portal/endpoints/new")
					if p := b.post("/portal/endpoints/"+m[1]+action, "overlap_hours", "0", "sure", "yes", "url", "http://127.0.0.1:9/x"); p.Status != http.StatusNotFound {
						t.Errorf("%s: %d", action, p.Status)
					}
				}
			}
		}
		for _, path := range []string{"/portal/tenants", "/portal/keys", "/portal/audit", "/portal/system", "/portal/partners"} {
			if p := b.get(path); p.Status != http.StatusNotFound {
				t.Errorf("%s: %d", path, p.Status)
			}
		}
	})
}

// A portal that may only read offers no change, and makes none.
func TestPortalThatReads(t *testing.T) {
	s := lite(t)
	s.tenantWorld("acme")
	b := s.portal("acme", "read")
	for path, body := range b.crawl("/portal") {
		for _, word := range []string{"Create an endpoint", "Send a test", "Rotate", "Discard", ">Replay</button>", "Deliver again"} {
			if strings.Contains(body, word) && !strings.HasSuffix(path, "/new") {
				t.Errorf("%s offers %s", path, word)
			}
		}
	}
	b.get("/portal/endpoints")
	if p := b.post("/portal/endpoints", "url", "http://127.0.0.1:9/x"); p.Status != http.StatusForbidden {
		t.Errorf("%d", p.Status)
	}
	m := s.portal("acme", "read", "webhooks:manage")
	m.get("/portal/endpoints/new")
	if p := m.post("/portal/endpoints", "url", "http://127.0.0.1:9/x", "tenant_id", "other"); p.Status != http.StatusForbidden {
		t.Errorf("an endpoint of another tenant: %d", p.Status)
	}
	m.get("/portal/endpoints/new")
	if p := m.post("/portal/endpoints", "url", "http://127.0.0.1:9/x"); p.Status != http.StatusCreated {
		t.Errorf("%d %s", p.Status, p.Body)
	}
}

// The theme is the platform's, and only its pages may frame the portal.
func TestPortalThemeAndFrames(t *testing.T) {
	logo := filepath.Join(t.TempDir(), "logo.svg")
	if err := os.WriteFile(logo, []byte(`<svg xmlns="http://www.w3.org/2000/svg"><rect width="1" height="1"/></svg>`), 0o600); err != nil {
		t.Fatal(err)
	}
	s := lite(t, func(o *console.Options) {
		o.Theme = console.Theme{Name: "Acme <Hooks>", Logo: logo, Accent: "#ffcc00", Frames: []string{"https://app.example.com", "https://other.example.com"}}
	})
	b := s.browser()
	p := b.get("/portal/open?token=x")
	if !strings.Contains(p.Body, "Acme &lt;Hooks&gt;") || !strings.Contains(p.Body, `src="/portal/logo"`) {
		t.Errorf("%s", p.Body)
	}
	if csp := p.Header.Get("Content-Security-Policy"); !strings.Contains(csp, "frame-ancestors https://app.example.com https://other.example.com") || p.Header.Get("X-Frame-Options") != "" {
		t.Errorf("%v", p.Header)
	}
	if p := b.get("/portal/logo"); p.Header.Get("Content-Type") != "image/svg+xml" || !strings.Contains(p.Header.Get("Content-Security-Policy"), "default-src 'none'") {
		t.Errorf("%v", p.Header)
	}
	if p := b.get("/portal/theme.css"); !strings.Contains(p.Body, "--brand:#ffcc00;--on-brand:#000000") {
		t.Errorf("%s", p.Body)
	}
	if p := b.get("/console/login"); !strings.Contains(p.Header.Get("Content-Security-Policy"), "frame-ancestors 'none'") || strings.Contains(p.Body, "Acme") {
		t.Errorf("the console: %v", p.Header)
	}
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	u := mustParse(t, s.rest("POST", "/v1/portal-links", `{"tenant_id":"acme"}`)["url"].(string))
	p = b.do("POST", "/portal/open", url.Values{"token": {u.Query().Get("token")}})
	if c := p.Header.Get("Set-Cookie"); !strings.Contains(c, "SameSite=None") || !strings.Contains(c, "Secure") || !strings.Contains(c, "Partitioned") || !strings.Contains(c, "HttpOnly") || !strings.Contains(c, "Path=/portal") {
		t.Errorf("%s", c)
	}
	if _, err := console.New(console.Options{Theme: console.Theme{Logo: filepath.Join(t.TempDir(), "none.png")}}); err == nil {
		t.Error("a logo that isn't there")
	}
}
