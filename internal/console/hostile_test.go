package console_test

import (
	"encoding/base64"
	"encoding/json"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/surehook/surehook/internal/receivertest"
)

// nasty is what somebody would write who wants a page to run it, to hide something,
// or to turn the text around.
const nasty = `<script>alert(1)</script><img src=x onerror=alert(2)>{{.Key}}${alert(3)}"'` + "\x1b[31mred\x1b[0m\u202egnp.exe\u2066\u200b\u0085\u2028"

// inTags are tags and attributes that only hostile text would bring.
var inTags = regexp.MustCompile(`(?i)<script>|<img src=x|onerror=alert\(2\)>[^&]|\x1b|\x{202e}|\x{2066}|\x{200b}|\x{0085}|\x{2028}`)

// What receivers, publishers and tenants write is text, on every page.
func TestHostileTextIsInert(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		evil := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer {
			return receivertest.Answer{Status: 500, Body: nasty, Header: []string{"Content-Type: text/html"}}
		})
		binary := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer {
			return receivertest.Answer{Status: 500, Body: "\xff\xfe" + nasty}
		})
		text, err := json.Marshal(nasty)
		if err != nil {
			t.Fatal(err)
		}
		q := string(text)
		hook := s.hook(`{"url":"` + evil.URL + `/in?x=%3Cscript%3E","description":` + q + `,"subjects":[` + q + `,"s:*"],"limits":{"attempts":1},"headers":{"X-A":"<b>&"}}`)
		bin := s.hook(`{"url":"` + binary.URL + `/in","limits":{"attempts":1}}`)
		s.rest("PUT", "/v1/event-types/evil.one", `{"description":`+q+`,"example":{"a":`+q+`},"schema":{"description":`+q+`}}`)
		s.rest("PUT", "/v1/tenants/%3Cb%3E", `{"name":`+q+`}`)
		s.rest("PUT", "/v1/partners/%3Cb%3E", `{"name":`+q+`}`)
		s.rest("POST", "/v1/keys", `{"name":`+q+`,"permissions":["read"]}`)
		at := receivertest.New(t, callback)
		s.rest("PUT", "/v1/sessions/"+url.PathEscape("<b>'$(x)`y`"), "")
		said := strings.NewReplacer(`\u001b`, "", `\u0085`, "", "\u0085", "", `\u2028`, "").Replace(q) // control characters are refused there
		watch := s.rest("POST", "/sentinels", `{"match":[{"subject":`+said+`}],"until":{"kind":"never"},"label":`+said+`,"group":`+said+`,"target":{"kind":"webhook","url":"`+at.URL+`/%3Cscript%3E","secret":"`+watchSecret+`"}}`)["id"].(string)
		s.rest("POST", "/sentinels", `{"match":[{"subject":`+said+`}],"until":{"kind":"never"},"label":`+said+`,"target":{"kind":"session","sessionId":"<b>'$(x)`+"`y`"+`"}}`)
		event := s.publish(`{"type":"evil.one","identity_id":"<script>","owner":"<b>","subjects":[` + q + `],"data":{"a":` + q + `,"big":123456789012345678901234567890.10}}`)
		s.until("both are dead", func() bool { return s.rest("GET", "/v1/overview", "")["dead_letters"] == 2.0 })
		b := s.signIn(adminKey)
		for _, path := range []string{"/console/", "/console/endpoints", "/console/endpoints/" + hook, "/console/endpoints/" + hook + "/edit", "/console/endpoints/" + bin, "/console/endpoints/new",
			"/console/events", "/console/events/" + event, "/console/dead-letters", "/console/event-types", "/console/event-types/evil.one", "/console/tenants", "/console/partners",
			"/console/sentinels", "/console/sentinels/" + watch, "/console/sentinels?group=" + url.QueryEscape(nasty), "/console/sessions", "/console/sessions/" + url.PathEscape("<b>'$(x)`y`"),
			"/console/keys", "/console/audit", "/console/events?type=" + url.QueryEscape(nasty), "/console/endpoints?tenant_id=" + url.QueryEscape("<script>alert(1)</script>"),
			"/console/" + url.PathEscape("<script>alert(1)</script>"), "/console/?done=" + url.QueryEscape(nasty), "/console/chart?endpoint=" + url.QueryEscape("<script>")} {
			p := b.get(path)
			if found := inTags.FindString(p.Body); found != "" {
				i := strings.Index(p.Body, found)
				t.Errorf("%s holds %q: …%q…", path, found, p.Body[max(0, i-80):min(len(p.Body), i+80)])
			}
		}
		if p := b.get("/console/sessions/" + url.PathEscape("<b>'$(x)`y`")); p.Status != 200 || !strings.Contains(p.Body, "/v1/sessions/%3Cb%3E%27%24%28x%29%60y%60/events?wait=60") {
			t.Errorf("a shell would run its name: %d %s", p.Status, p.Body)
		}
		p := b.get("/console/events/" + event)
		for _, want := range []string{"123456789012345678901234567890.10", "␛[31mred", "‹U+202E›", `\u003cscript\u003e`, "&lt;script&gt;alert(1)&lt;/script&gt;", "{{.Key}}"} {
			if !strings.Contains(strings.ReplaceAll(p.Body, "&#43;", "+"), want) {
				t.Errorf("the event's page has no %s", want)
			}
		}
		if p := b.get("/console/endpoints/" + bin); !strings.Contains(p.Body, base64.StdEncoding.EncodeToString([]byte("\xff\xfe<script>"))[:10]) {
			t.Error("what isn't text is shown in base64")
		}
		d := b.get("/console/events/" + event + "/data")
		if !strings.HasPrefix(d.Header.Get("Content-Disposition"), "attachment") || d.Header.Get("Content-Type") != "application/octet-stream" || d.Header.Get("X-Content-Type-Options") != "nosniff" ||
			d.Body != `{"a":`+q+`,"big":123456789012345678901234567890.10}` {
			t.Errorf("%v %s", d.Header, d.Body)
		}
	})
}

// No page holds a secret but the answer that made it, and that one once.
func TestSecretsAreShownOnce(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		r := receivertest.New(t, nil)
		b := s.signIn(adminKey)
		b.get("/console/endpoints/new")
		p := b.post("/console/endpoints", "url", r.URL+"/in?token=receivers-own", "other_types", "order.*", "once", "a-form")
		secret := regexp.MustCompile(`whsec_[A-Za-z0-9+/=]{20,}`).FindString(strings.ReplaceAll(p.Body, "&#43;", "+"))
		if p.Status != 201 || secret == "" {
			t.Fatalf("%d %.800s", p.Status, p.Body)
		}
		id := regexp.MustCompile(`whk_[0-9A-Z]{26}`).FindString(p.Body)
		p = b.post("/console/endpoints/"+id+"/rotate", "overlap_hours", "1", "once", "another")
		second := regexp.MustCompile(`whsec_[A-Za-z0-9+/=]{20,}`).FindString(strings.ReplaceAll(p.Body, "&#43;", "+"))
		if p.Status != 200 || second == "" || second == secret {
			t.Fatalf("%d %q %.800s", p.Status, second, p.Body)
		}
		b.get("/console/keys")
		p = b.post("/console/keys", "name", "ci", "permissions", "read", "once", "third")
		key := regexp.MustCompile(`shk_[a-z0-9]{40,}`).FindString(p.Body)
		if p.Status != 201 || key == "" {
			t.Fatalf("%d %.800s", p.Status, p.Body)
		}
		// The same forms again, as a reload sends them: nothing is made, and nothing shown.
		for _, f := range [][]string{{"/console/endpoints", "url", r.URL + "/in?token=receivers-own", "other_types", "order.*", "once", "a-form"}, {"/console/endpoints/" + id + "/rotate", "overlap_hours", "1", "once", "another"},
			{"/console/keys", "name", "ci", "permissions", "read", "once", "third"}} {
			b.get("/console/keys")
			p := b.post(f[0], f[1:]...)
			for _, s := range []string{secret, second, key, "whsec_"} {
				if p.Status >= 300 || strings.Contains(strings.ReplaceAll(p.Body, "&#43;", "+"), s) || !strings.Contains(p.Body, "shown then") {
					t.Errorf("%s, reloaded: %d holds a secret, or doesn't say where it is", f[0], p.Status)
				}
			}
		}
		if n := len(s.rest("GET", "/v1/webhooks", "")["items"].([]any)); n != 1 {
			t.Errorf("a reload made %d endpoints", n)
		}
		for _, path := range []string{"/console/endpoints/" + id, "/console/endpoints/" + id + "/edit", "/console/endpoints", "/console/keys", "/console/audit", "/console/"} {
			p := b.get(path)
			for _, s := range []string{secret, second, key, adminKey, "whsec_"} {
				if strings.Contains(strings.ReplaceAll(p.Body, "&#43;", "+"), s) {
					t.Errorf("%s holds a secret", path)
				}
			}
		}
		reader := s.signIn(s.key("", "read"))
		if p := reader.get("/console/endpoints/" + id); strings.Contains(p.Body, "receivers-own") {
			t.Error("who may only read sees the receiver's own token in the URL")
		}
	})
}
