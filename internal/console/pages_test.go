package console_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/surehook/surehook/internal/api"
)

// Every page answers on both stores, small, inert to frames, and without anything
// inline that its policy would have to let run.
func TestPages(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		w := s.world()
		b := s.signIn(adminKey)
		for _, path := range w.paths("/console") {
			p := b.get(path)
			want := http.StatusOK
			if strings.HasSuffix(path, "/nothing") {
				want = http.StatusNotFound
			}
			if p.Status != want || len(p.Body) > 100<<10 {
				t.Errorf("%s: %d, %d bytes: %.300s", path, p.Status, len(p.Body), p.Body)
			}
			for _, forbidden := range []string{" style=", "<style", " onclick", "javascript:", "<script>", "ZgotmplZ", "<no value>", "%!"} {
				if strings.Contains(p.Body, forbidden) {
					t.Errorf("%s holds %q", path, forbidden)
				}
			}
			csp := p.Header.Get("Content-Security-Policy")
			if !strings.Contains(csp, "default-src 'none'") || strings.Contains(csp, "unsafe") || !strings.Contains(csp, "frame-ancestors 'none'") || p.Header.Get("Cache-Control") != "no-store" {
				t.Errorf("%s: %v", path, p.Header)
			}
		}
	})
}

// A name with what URLs are made of comes through a link as it is.
func TestLinksKeepNames(t *testing.T) {
	s := lite(t)
	s.rest("PUT", "/v1/tenants/a%2Fb%3Fc=d&e+f%25", `{}`)
	b := s.signIn(adminKey)
	link := regexp.MustCompile(`href="([^"]*tenant_id=[^"]*)"`).FindStringSubmatch(b.get("/console/tenants").Body)
	if link == nil {
		t.Fatal(b.last)
	}
	if p := b.get(html.UnescapeString(link[1])); !strings.Contains(html.UnescapeString(p.Body), `name="tenant_id" value="a/b?c=d&e+f%"`) {
		t.Errorf("%s: %s", link[1], p.Body)
	}
}

// A search that finds nothing among the newest events leads on to older ones, and
// finds them there.
func TestSearchGoesOn(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		rare := s.publish(`{"type":"rare.one","tenant_id":"acme","subjects":["s:1"],"data":1}`)
		for range 7 {
			s.publish(`{"type":"order.paid","data":1}`)
		}
		s.serveAPI(api.Options{LookThrough: 3})
		b := s.signIn(adminKey)
		for _, q := range []string{"type=rare.*", "type=rare.one&since=2026-01-01T00:00", "subject=s:1", "type=rare.one&status=succeeded"} {
			p, steps := b.get("/console/events?"+q), 1
			for ; strings.Contains(p.Body, "Search older ones"); steps++ {
				link := regexp.MustCompile(`href="([^"]*cursor=[^"]*)"`).FindStringSubmatch(p.Body)
				p = b.get("/console/events" + html.UnescapeString(link[1]))
			}
			if found := strings.Contains(p.Body, rare); steps != 3 || found == strings.Contains(q, "succeeded") {
				t.Errorf("%s: found %t after %d steps: %s", q, found, steps, p.Body)
			}
		}
		if p := b.get("/console/events?tenant_id=acme&type=rare.*"); !strings.Contains(p.Body, rare) {
			t.Error("a tenant's search looks through others' events")
		}
	})
}
