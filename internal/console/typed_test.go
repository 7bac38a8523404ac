package console_test

import (
	"testing"

	"github.com/surehook/surehook/internal/receivertest"
)

// A form or a filter that is refused comes back as it was sent, with what is wrong.
func TestWhatWasTypedStays(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Status: 410} })
		hook := s.hook(`{"url":"` + r.URL + `/in"}`)
		s.publish(`{"type":"a","data":1}`)
		s.until("it is dead", func() bool { return s.rest("GET", "/v1/overview", "")["dead_letters"] == 1.0 })
		b := s.signIn(adminKey)
		path := "/console/endpoints/" + hook
		b.get(path)
		b.sees(b.post(path+"/rotate", "overlap_hours", "999"), 400, `value="999"`, `role="alert"`)
		b.sees(b.post(path+"/rotate", "overlap_hours", "long"), 400, `value="long"`, "must be a number of hours")
		b.sees(b.post(path+"/replay", "since", "yesterday", "until", "2026-01-01T10:00", "status", "failed"), 400, `value="yesterday"`, `value="2026-01-01T10:00"`, `value="failed" selected`, "must be a date and time")
		b.sees(b.post(path+"/replay", "since", "2026-02-01T10:00", "until", "2026-01-01T10:00"), 400, `value="2026-02-01T10:00"`, `role="alert"`)
		b.sees(b.get("/console/dead-letters?since=yesterday&webhook_id="+hook), 400, `value="yesterday"`, hook, "must be a date and time")
		b.sees(b.get("/console/events?since=yesterday&type=a.b"), 400, `value="yesterday"`, `value="a.b"`, "must be a date and time")
		id := s.rest("GET", "/v1/dead-letters", "")["items"].([]any)[0].(map[string]any)["id"].(string)
		b.get("/console/dead-letters")
		b.sees(b.post("/console/dead-letters", "action", "discard", "ids", id), 400, "tick the box", `value="`+id+`" checked`)
		b.sees(b.post("/console/dead-letters", "action", "replay"), 400, "tick at least one")
		b.sees(b.post("/console/tenants", "id", "a b", "name", "A B", "events_days", "many"), 400, `value="a b"`, `value="A B"`, `value="many"`)
		b.sees(b.post("/console/partners", "id", "a b", "name", "A B", "status", "suspended"), 400, `value="a b"`, `value="A B"`, ` selected>suspended`)
		b.sees(b.post("/console/keys", "name", "ci", "tenant_id", "a b", "permissions", "read", "others", "x y:z"), 400, `value="ci"`, `value="a b"`, `value="read" checked`, `value="x y:z"`)
		b.sees(b.post("/console/event-types", "name", "a.b", "description", "A B", "schema", "{", "example", "[1]"), 400, `value="a.b"`, `value="A B"`, ">{</textarea>", ">[1]</textarea>", "JSON")
	})
}

// The overview says all of it without a script: the numbers, the chart behind a link,
// times in UTC, and the stream for pages that have one.
func TestOverviewWithoutScripts(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		w := s.world()
		b := s.signIn(adminKey)
		b.sees(b.get("/console/"), 200, `<dd><a href="/console/dead-letters">5</a></dd>`, "Needs a look", "The receiver failed while it handled the request", " UTC</time>",
			`<noscript><a href="/console/?chart=1&amp;window=day">Show the chart</a></noscript>`, `sse-connect="/console/live"`)
		b.sees(b.get("/console/?chart=1&window=day"), 200, "<svg", "p99 now", "As a table", `href="/console/?chart=1&amp;window=week"`)
		b.sees(b.get("/console/endpoints/"+w.failing), 200, "<noscript>", "chart=1")
		b.sees(b.get("/console/endpoints/"+w.failing+"?chart=1&window=hour"), 200, "<svg", "last hour")
	})
}
