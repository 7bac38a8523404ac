package console_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

func (b *browser) sees(p answer, status int, texts ...string) {
	b.s.t.Helper()
	for _, text := range texts {
		if _, main, _ := strings.Cut(p.Body, "<main"); !strings.Contains(main, text) {
			b.s.t.Errorf("%s has no %q: %.900s", p.URL, text, main)
		}
	}
	if p.Status != status {
		b.s.t.Errorf("%s: %d", p.URL, p.Status)
	}
}

// watchesNothingOf asks for the sentinels and sessions of another tenant, whose pages
// are known.
func (b *browser) watchesNothingOf(tenant string, pages map[string]string) {
	b.s.t.Helper()
	for _, path := range []string{"/portal/sessions/agent?tenant_id=" + tenant, "/portal/sessions?tenant_id=" + tenant, "/portal/sentinels?tenant_id=" + tenant} {
		if p := b.get(path); p.Status != http.StatusForbidden {
			b.s.t.Errorf("%s: %d", path, p.Status)
		}
	}
	asked := 0
	for path := range pages {
		if m := regexp.MustCompile(`^/portal/sentinels/(sen_[0-9A-Z]+)$`).FindStringSubmatch(path); m != nil {
			for _, action := range []string{"/pause", "/resume", "/secret", "/delete"} {
				asked++
				b.get("/portal/endpoints/new")
				if p := b.post("/portal/sentinels/"+m[1]+action, "sure", "yes", "secret", watchSecret); p.Status != http.StatusNotFound {
					b.s.t.Errorf("%s: %d", action, p.Status)
				}
			}
		}
	}
	if asked == 0 {
		b.s.t.Error("the crawl found no sentinel")
	}
}

// A sentinel's page says what it watches and what became of it; it is paused, gets a
// new secret, and is removed. Who may only read is offered none of that.
func TestSentinels(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		id := s.watchAll("", "order:")
		s.publish(`{"type":"order.paid","subjects":["order:1"],"data":{}}`)
		b := s.signIn(adminKey)
		s.until("it is delivered", func() bool { return strings.Contains(b.get("/console/sentinels").Body, "delivered") })
		b.sees(b.get("/console/sentinels?status=active"), 200, "all of order:", `href="/console/sessions/agent"`, "steer", "127.0.0.1")
		b.sees(b.get("/console/sentinels?status=expired"), 200, "No sentinel is like that")
		path := "/console/sentinels/" + id
		if p := b.get("/console/endpoints/" + id); p.URL.Path != path {
			t.Errorf("%s", p.URL)
		}
		b.sees(b.get(path), 200, "order:*", "every type", "when it is removed", "Delivered", "1 event")
		if strings.Contains(b.last, "its-own") {
			t.Error("the page holds what may be the receiver's secret")
		}
		b.sees(b.post(path+"/pause"), 200, "Paused: nothing matches", "isn’t made up for")
		b.sees(b.post(path+"/resume"), 200, "it watches again")
		p := b.post(path+"/secret", "secret", "whsec_d3Jvbmc=")
		if b.sees(p, p.Status, `role="alert"`); p.Status < 400 || p.Status >= 500 || strings.Contains(p.Body, "d3Jvbmc") {
			t.Errorf("a wrong secret: %d", p.Status)
		}
		b.sees(b.post(path+"/secret", "secret", strings.Replace(watchSecret, "MDEy", "MDEx", 1)), 200, "passed the challenge")
		reader := s.signIn(s.key("", "read"))
		p = reader.get(path)
		for _, word := range []string{"Pause", "Remove", "secret", "its-own"} {
			if strings.Contains(p.Body, word) {
				t.Errorf("who may only read sees %q", word)
			}
		}
		b.sees(reader.post(path+"/delete", "sure", "yes"), http.StatusForbidden)
		b.get(path)
		b.sees(b.post(path+"/delete"), 400, "tick the box first")
		b.sees(b.post(path+"/delete", "sure", "yes"), 200, "Removed: its secret is gone")
		b.sees(b.get(path), 404)
	})
}

// A session's page says what waits, and what feeds it; an inbox is made from the form,
// and its page says how full it is and how to read it.
func TestSessionsAndInboxes(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		s.watchAll("acme", "order:")
		b := s.signIn(adminKey)
		b.get("/console/endpoints/new")
		b.sees(b.post("/console/endpoints", "target", "pull", "session_id", "nobody", "urgency", "fyi", "description", "to a laptop"), 409, `value="nobody"`, `value="fyi"`, `value="to a laptop"`, `value="pull" checked`)
		p := b.post("/console/endpoints", "target", "pull", "tenant_id", "acme", "description", "to a laptop", "url", "left over", "attempts", "3")
		b.sees(p, 201, "0 events", `/events?wait=60&#34;`, "$SUREHOOK_KEY")
		s.publish(`{"type":"order.paid","tenant_id":"acme","subjects":["order:1"],"data":{}}`)
		s.until("both wait", func() bool {
			return strings.Count(b.get("/console/endpoints").Body, "1 event waits") == 1 && strings.Contains(b.get("/console/sessions").Body, `<td class="num">2</td>`)
		})
		b.sees(b.get("/console/sessions?tenant_id=acme"), 200, "alive", "agent", "acme")
		b.sees(b.get("/console/sessions?tenant_id=other"), 200, "No session is like that")
		path := "/console/sessions/agent"
		b.sees(b.get(path+"?tenant_id=acme"), 200, "2 events", "steer", "fyi", "all of order:", "order.paid", "/v1/sessions/agent/events?tenant_id=acme&amp;wait=60")
		b.sees(b.get(path), 404)
		b.get(path + "?tenant_id=acme")
		b.sees(b.post(path+"/close?tenant_id=acme"), 400, "tick the box first")
		b.sees(b.post(path+"/close?tenant_id=acme", "sure", "yes"), 200, "Closed: nothing waits", "It was closed")
		b.sees(b.get("/console/sentinels?status=orphaned"), 200, "all of order:")
		if p := s.portal("acme", "read", "webhooks:manage").get("/portal/sessions/agent"); p.Status != 200 || strings.Contains(p.Body, "Close the session") {
			t.Errorf("%d %s", p.Status, p.Body)
		}
	})
}

// All of it in a real browser: the form shows what belongs to an inbox, a challenge that
// fails says so, and the way leads from a session to what feeds it.
func TestBrowserInboxesSentinelsSessions(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		id := s.watchAll("", "order:")
		b := s.tab(t)
		b.signIn(adminKey)
		b.open("/console/endpoints/new")
		b.do(chromedp.Click("#to-inbox"))
		b.wait(`!document.querySelector("#url").checkVisibility() && document.querySelector("#session_id").checkVisibility()`)
		b.do(chromedp.SendKeys("#session_id", "agent"), chromedp.SendKeys("#urgency", "steer"), chromedp.SendKeys("#description", "to my laptop"))
		b.press("Create")
		b.see("an inbox: events wait there until they are pulled, by session agent")
		b.see("inbox of session agent")
		s.publish(`{"type":"order.paid","subjects":["order:1"],"data":{}}`)
		s.until("three wait", func() bool { return s.rest("GET", "/v1/sessions/agent", "")["inbox"].(map[string]any)["events"] == 3.0 })
		b.press("agent")
		b.see("3 events")
		b.picture("session-waiting")
		b.press("all of order:")
		b.see("when it is removed")
		b.open("/console/sentinels/" + id)
		b.do(chromedp.SendKeys("#secret", "whsec_short"))
		b.press("Change the secret")
		b.wait(`document.querySelector("[role=alert]") && document.querySelector("#secret").value === ""`)
		b.picture("sentinel-secret-refused")
		b.quiet()
	})
}
