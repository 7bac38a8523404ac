package console_test

import (
	"html"
	"net/http"
	"regexp"
	"strings"
	"testing"
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
