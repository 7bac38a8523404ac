package console_test

import (
	"fmt"
	"html"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"github.com/surehook/surehook/internal/receivertest"
)

// All of a filter is done step by step, and each step tells how far it is; what can't
// be done says why, and keeps the others from nothing.
func TestAllDeadLettersOfAFilter(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		r := receivertest.New(t, nil)
		hook := s.hook(`{"url":"` + r.URL + `/in"}`)
		other := s.hook(`{"url":"` + r.URL + `/other","event_types":["b"]}`)
		for _, id := range []string{hook, other} { // what waits there dies when they are disabled
			s.rest("PATCH", "/v1/webhooks/"+id, `{"paused":true}`)
		}
		const n = 1100
		for i := 0; i < n; i += 100 {
			s.rest("POST", "/v1/events/batch", `{"events":[`+strings.TrimSuffix(strings.Repeat(`{"type":"a","data":1},`, 100), ",")+`]}`)
		}
		erased := s.publish(`{"type":"a","data":1}`)
		s.publish(`{"type":"b","data":1}`)
		for _, id := range []string{hook, other} {
			s.rest("PATCH", "/v1/webhooks/"+id, `{"enabled":false,"paused":false}`)
		}
		s.until("all are dead", func() bool { return s.rest("GET", "/v1/overview", "")["dead_letters"] == float64(n+3) })
		s.rest("POST", "/v1/erasures", `{"ids":["`+erased+`"]}`)
		s.rest("PATCH", "/v1/webhooks/"+hook, `{"enabled":true}`)

		b := s.signIn(adminKey)
		path := "/console/dead-letters?webhook_id=" + hook
		b.get(path)
		if p := b.post(path, "action", "discard", "all", "yes"); p.Status != 400 || !strings.Contains(p.Body, "tick the box") {
			t.Errorf("discarded without being sure: %d", p.Status)
		}
		b.get(path)
		if p := b.post(path, "action", "replay"); p.Status != 400 || !strings.Contains(p.Body, "tick at least one") {
			t.Errorf("nothing is ticked: %d", p.Status)
		}
		b.get(path)
		p := b.post(path, "action", "replay", "all", "yes")
		hidden := regexp.MustCompile(`<input type="hidden" name="([a-z]+)" value="([^"]*)">`)
		steps := 1
		for ; strings.Contains(p.Body, "data-submit"); steps++ {
			_, part, _ := strings.Cut(p.Body, "data-submit")
			part, _, _ = strings.Cut(part, "</form>")
			f := url.Values{}
			for _, m := range hidden.FindAllStringSubmatch(part, -1) {
				f.Set(m[1], html.UnescapeString(m[2]))
			}
			if !strings.Contains(p.Body, "deliveries queued again") || steps > 20 {
				t.Fatalf("step %d: %.600s", steps, p.Body)
			}
			p = b.do("POST", path, f)
		}
		if !strings.Contains(p.Body, fmt.Sprintf("1\u202f%03d deliveries queued again", n+1-1000)) || !strings.Contains(p.Body, "1 dead letter") || steps < 3 {
			t.Errorf("after %d steps: %s", steps, p.Body)
		}
		s.until("they are delivered", func() bool { return s.rest("GET", "/v1/overview", "")["dead_letters"] == 2.0 })
		if p := b.get("/console/dead-letters?webhook_id=" + other); !strings.Contains(p.Body, "ded_") {
			t.Error("another endpoint's went as well")
		}
		b.post("/console/dead-letters?webhook_id="+other, "action", "discard", "sure", "yes", "all", "yes")
		if n := s.rest("GET", "/v1/overview", "")["dead_letters"]; n != 1.0 {
			t.Errorf("%v are left", n)
		}
	})
}
