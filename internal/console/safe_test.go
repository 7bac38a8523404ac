package console_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/surehook/surehook/internal/console"
)

// posts lists what the pages take, as the sources register it.
func posts(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range files {
		src, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f, "_test.go") {
			continue
		}
		for _, m := range regexp.MustCompile(`s\.page\("POST", "([^"]+)"`).FindAllStringSubmatch(string(src), -1) {
			out = append(out, m[1])
		}
	}
	return out
}

// No POST of either site does anything without the session's own token, or from
// another site.
func TestEveryFormIsGuarded(t *testing.T) {
	s := lite(t)
	hook := s.hook(`{"url":"http://127.0.0.1:9/in","tenant_id":"acme"}`)
	fill := strings.NewReplacer("{id}", hook, "{name}", "order.paid", "{step}", "1")
	all := posts(t)
	if len(all) < 25 {
		t.Fatalf("found %q", all)
	}
	for base, b := range map[string]*browser{"/console": s.signIn(adminKey), "/portal": s.portal("acme", "read", "webhooks:manage")} {
		b.get(base + "/")
		token := b.token()
		for _, path := range all {
			path = base + fill.Replace(path)
			for name, c := range map[string]struct {
				token  string
				header []string
			}{"no token": {"", nil}, "another token": {strings.Repeat("A", 24), nil}, "another site": {token, []string{"Origin", "https://evil.example"}},
				"a frame of another site": {token, []string{"Sec-Fetch-Site", "cross-site"}}} {
				p := b.do("POST", path, url.Values{"form": {c.token}, "sure": {"yes"}, "overlap_hours": {"0"}}, c.header...)
				if gone := base == "/portal" && (p.Status == http.StatusNotFound || p.Status == http.StatusMethodNotAllowed); p.Status != http.StatusForbidden && !gone {
					t.Errorf("POST %s with %s: %d", path, name, p.Status)
				}
			}
		}
	}
	if w := s.rest("GET", "/v1/webhooks/"+hook, ""); w["enabled"] != true || w["paused"] != false {
		t.Errorf("%v", w)
	}
	if p := s.browser().do("POST", "/portal/open", url.Values{"token": {"x"}}, "Origin", "https://evil.example"); p.Status != http.StatusForbidden {
		t.Errorf("a link opened from elsewhere: %d", p.Status)
	}
}

// Every answer of every kind has the headers that keep its page to itself.
func TestHeadersOfEveryAnswer(t *testing.T) {
	for name, frames := range map[string][]string{"'none'": nil, "https://app.example.com": {"https://app.example.com"}} {
		s := lite(t, func(o *console.Options) { o.Theme.Frames = frames })
		in := s.signIn(adminKey)
		for _, path := range []string{"/console/", "/console/login", "/console/nothing", "/console/static/console.css", "/console/static/none", "/console/endpoints/whk_none", "/console/live", "/portal/", "/portal/login",
			"/portal/open?token=x", "/portal/theme.css", "/portal/logo"} {
			b := in
			if strings.HasSuffix(path, "/live") {
				b = s.browser() // is refused; a stream has no end
			}
			ancestors := "'none'"
			if strings.HasPrefix(path, "/portal") {
				ancestors = name
			}
			want := map[string]string{
				"Content-Security-Policy":      "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors " + ancestors,
				"X-Frame-Options":              "DENY",
				"X-Content-Type-Options":       "nosniff",
				"Referrer-Policy":              "no-referrer",
				"Cross-Origin-Opener-Policy":   "same-origin",
				"Cross-Origin-Resource-Policy": "same-origin",
				"Permissions-Policy":           "camera=(), geolocation=(), microphone=(), payment=(), usb=()",
			}
			if ancestors != "'none'" {
				want["X-Frame-Options"] = ""
			}
			p := b.get(path)
			for header, value := range want {
				if got := p.Header.Get(header); got != value {
					t.Errorf("%s: %s is %q", path, header, got)
				}
			}
			if cache := p.Header.Get("Cache-Control"); cache != "no-store" && path != "/portal/logo" {
				t.Errorf("%s: Cache-Control is %q", path, cache)
			}
		}
	}
}

// A portal's cookie goes nowhere else, unless it must come along into a frame.
func TestThePortalsCookie(t *testing.T) {
	s := lite(t)
	b := s.browser()
	b.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	u := mustParse(t, s.rest("POST", "/v1/portal-links", `{"tenant_id":"acme"}`)["url"].(string))
	c := b.do("POST", "/portal/open", url.Values{"token": {u.Query().Get("token")}}).Header.Get("Set-Cookie")
	for _, want := range []string{"surehook_portal=", "Path=/portal", "HttpOnly", "SameSite=Strict", "Max-Age=28800"} {
		if !strings.Contains(c, want) {
			t.Errorf("no %s: %s", want, c)
		}
	}
}

// Wrong keys from one address keep out that address; a hundred from many keep out
// everybody, for the rest of the minute.
func TestWrongKeysFromEverywhere(t *testing.T) {
	s := lite(t)
	try := func(address, key string) int {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/console/login", strings.NewReader(url.Values{"key": {key}}.Encode()))
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		r.RemoteAddr = address + ":1234"
		w := httptest.NewRecorder()
		s.pages.ServeHTTP(w, r)
		return w.Code
	}
	for i := range 11 {
		want := http.StatusUnauthorized
		if i == 10 {
			want = http.StatusTooManyRequests
		}
		if got := try("192.0.2.1", "wrong"); got != want {
			t.Errorf("wrong key %d: %d", i+1, got)
		}
	}
	if got := try("192.0.2.2", adminKey); got != http.StatusSeeOther {
		t.Errorf("from elsewhere, with a right one: %d", got)
	}
	for i := range 90 {
		try(fmt.Sprintf("198.51.100.%d", i), "wrong")
	}
	if got := try("192.0.2.2", adminKey); got != http.StatusTooManyRequests {
		t.Errorf("after a hundred: %d", got)
	}
}
