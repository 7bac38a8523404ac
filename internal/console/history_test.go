package console_test

import (
	"html"
	"regexp"
	"strings"
	"testing"

	"github.com/surehook/surehook/internal/receivertest"
)

// An endpoint's page tells what happened to it, in words, and who did what; a tenant
// sees its own endpoint's, and not whose keys the others are.
func TestHistory(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Status: 410} })
		id := s.hook(`{"url":"` + r.URL + `/in","tenant_id":"acme"}`)
		b := s.signIn(adminKey)
		do := func(action string, pairs ...string) {
			t.Helper()
			b.get("/console/endpoints/" + id)
			if p := b.post("/console/endpoints/"+id+action, pairs...); p.Status >= 300 {
				t.Fatalf("%s: %d %.600s", action, p.Status, p.Body)
			}
		}
		do("/pause")
		do("/resume")
		do("/rotate", "overlap_hours", "2", "once", "x")
		do("/revoke-previous")
		s.publish(`{"type":"a","tenant_id":"acme","data":1}`)
		s.until("it is disabled", func() bool { return s.rest("GET", "/v1/webhooks/"+id, "")["enabled"] == false })
		do("/enable")
		do("/disable")
		s.rest("PATCH", "/v1/webhooks/"+id, `{"event_types":["a","b"],"limits":{"attempts":2}}`)
		r.Use(nil)
		do("", "url", r.URL+"/other")
		do("/test")
		tags := regexp.MustCompile(`<[^>]*>`)
		words := func(page string) string { return html.UnescapeString(tags.ReplaceAllString(page, " ")) }
		page := words(b.get("/console/endpoints/" + id + "/history").Body)
		for _, want := range []string{"A test passed, so it was enabled.", "The URL was changed; a test must pass", "Changed: event types, limits.", "Disabled.", "Enabled.",
			"The receiver answered 410 Gone, so it was disabled.", "system", "The old secret was ended.", "The secret was rotated; the old one signed for 2 h more.", "Resumed.", "Paused.", "Created.",
			"1 of 1 attempt failed.", "by  key_"} {
			i := strings.Index(page, want)
			if i < 0 && want != "1 of 1 attempt failed." || want == "1 of 1 attempt failed." && !regexp.MustCompile(`\d of \d attempts? failed`).MatchString(page) {
				t.Errorf("it lacks %q: %s", want, page)
			}
		}
		if whole := words(b.get("/console/endpoints/" + id + "?chart=1").Body); !strings.Contains(whole, "The old secret was ended.") {
			t.Error("without JavaScript there is no history")
		}
		p := s.portal("acme", "read")
		if own := words(p.get("/portal/endpoints/" + id + "/history").Body); !strings.Contains(own, "Paused.") || strings.Contains(own, "key_") {
			t.Errorf("the tenant's: %s", own)
		}
		if other := s.portal("globex", "read").get("/portal/endpoints/" + id + "/history"); other.Status != 404 {
			t.Errorf("another tenant's: %d", other.Status)
		}
	})
}
