package console_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"github.com/surehook/surehook/internal/console"
	"github.com/surehook/surehook/internal/receivertest"
)

// An operator signs in, creates an endpoint while its URL is judged, tests it,
// pauses it and rotates its secret, all in a real browser.
func TestBrowserAnEndpointsLife(t *testing.T) {
	stories(t, func(t *testing.T, s *site) {
		s.rest("PUT", "/v1/event-types/order.paid", `{"description":"An order was paid"}`)
		r := receivertest.New(t, nil)
		b := s.tab(t)
		b.open("/console/endpoints")
		b.see("Sign in") // and then comes back here
		b.do(chromedp.SendKeys("#key", "not a key\r"))
		b.see("unknown or revoked")
		b.do(chromedp.SendKeys("#key", adminKey+"\r"), chromedp.WaitVisible(".side"))
		b.see("No endpoints yet")
		b.picture("endpoints-empty")
		b.press("Create an endpoint")
		b.see("Event types")
		b.do(chromedp.SendKeys("#url", "http://10.0.0.8/in"))
		b.wait(`document.querySelector("#url-verdict .wrong")`)
		b.picture("url-refused")
		b.clear("#url")
		b.do(chromedp.SendKeys("#url", r.URL+"/in"))
		b.wait(`document.querySelector("#url-verdict .right")`)
		b.do(chromedp.SendKeys("#description", "the shop"), chromedp.Click(`input[name=types][value="order.paid"]`), chromedp.SendKeys("#other_types", "not a type!"))
		b.press("Create")
		b.see("must be") // refused, and all that was typed is still there
		if got := ask[[]string](b, `[document.querySelector("#url").value, document.querySelector("#description").value, String(document.querySelector("input[name=types]").checked), document.querySelector("#other_types").value]`); strings.Join(got, "|") != r.URL+"/in|the shop|true|not a type!" {
			t.Errorf("what was typed is gone: %q", got)
		}
		b.picture("form-refused")
		b.clear("#other_types")
		b.press("Create")
		b.see("shown this once")
		b.picture("secret-shown")
		if secret := ask[string](b, `document.querySelector("#secret").textContent`); !strings.HasPrefix(secret, "whsec_") {
			t.Errorf("%q", secret)
		}
		b.press("Send a test")
		b.see("The test was delivered")
		r.Wait(t, 1)
		b.press("Pause")
		b.see("Nothing but tests is sent")
		s.publish(`{"type":"order.paid","data":{"n":1}}`)
		b.press("Resume")
		b.see("what waited is being sent")
		r.Wait(t, 2)
		b.press("Rotate the secret")
		b.see("The new signing secret, shown this once")
		b.see("The old secret signs beside the new one until")
		b.quiet()
	})
}

// Numbers change on an open overview as deliveries fail; from there the way leads to
// the reason, in plain words, and to what the receiver said; dead letters are replayed
// once the receiver is repaired.
func TestBrowserFromFailureToReplay(t *testing.T) {
	stories(t, func(t *testing.T, s *site) {
		r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer {
			return receivertest.Answer{Status: http.StatusInternalServerError, Body: "no disk space"}
		})
		s.serve(func(o *console.Options) { o.Refresh = 200 * time.Millisecond })
		hook := s.hook(`{"url":"` + r.URL + `/in","limits":{"attempts":1}}`)
		b := s.tab(t)
		b.signIn(adminKey)
		b.see("Overview")
		for range 3 {
			s.publish(`{"type":"order.paid","data":{"amount":9007199254740993}}`)
		}
		b.wait(`document.querySelector("#numbers .alert a") && document.querySelector("#numbers .alert a").textContent === "3"`)
		b.picture("overview-live")
		b.open("/console/endpoints/" + hook)
		b.see("The receiver failed while it handled the request (500 Internal Server Error)")
		b.do(chromedp.Click(".said summary"))
		b.see("no disk space")
		b.picture("why-it-fails")
		b.wait(`(function () { // its chart is drawn anew, but not while somebody reads its table
			const c = document.querySelector(".charts:has(.anew)"), table = c && c.querySelector("details");
			if (!table) return false;
			if (window.spared === undefined)
				document.body.addEventListener("htmx:beforeRequest", function (e) { if (e.target.matches(".anew") && e.defaultPrevented) window.spared++; });
			if (!table.open) { // another chart than before
				table.open = true;
				window.spared = 0;
			}
			return window.spared > 2;
		})()`)
		b.open("/console/events")
		b.do(chromedp.Click("table.list tbody a"))
		b.see("9007199254740993")
		b.see("Dead: no attempt follows")
		b.open("/console/dead-letters")
		r.Use(nil)
		b.do(chromedp.Click(`input[data-all=ids]`))
		b.press("Replay")
		b.see("3 deliveries queued again")
		b.see("No dead letters")
		b.picture("replayed")
		r.Wait(t, 6)
		b.open("/console/endpoints/" + hook)
		b.do(chromedp.SetValue("#r-since", time.Now().UTC().Add(-time.Hour).Format("2006-01-02T15:04")), chromedp.SetValue("#r-status", ""))
		b.press("Replay")
		b.see("3 deliveries queued")
		b.wait(`document.querySelector("#progress .badge.done")`)
		b.picture("replay-done")
		b.quiet()
	})
}

// Times are in the viewer's zone with the exact UTC on hover, every control is reached
// by the keyboard, and hostile text runs nothing.
func TestBrowserTimesKeysAndHostileText(t *testing.T) {
	t.Parallel()
	s := lite(t)
	evil := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Status: 500, Body: nasty}
	})
	hook := s.hook(`{"url":"` + evil.URL + `/in","description":"<script>alert(4)</script>","limits":{"attempts":1}}`)
	event := s.publish(`{"type":"order.paid","occurred_at":"2026-03-01T01:30:00.123Z","data":"<script>alert(5)</script>"}`)
	s.until("it is dead", func() bool { return s.rest("GET", "/v1/overview", "")["dead_letters"] == 1.0 })
	b := s.tab(t)
	b.signIn(adminKey)
	b.open("/console/events/" + event)
	b.wait(`[...document.querySelectorAll("time")].some(t => /7:15:00/.test(t.textContent) && t.title === "2026-03-01 01:30:00.123 UTC")`) // Kathmandu is 5:45 ahead
	for _, path := range []string{"/console/", "/console/endpoints", "/console/endpoints/" + hook, "/console/events/" + event, "/console/dead-letters"} {
		b.open(path)
		b.wait(`!document.querySelector(".waiting")`)
		if n := ask[int](b, `document.querySelectorAll("main script, main img").length`); n > 0 {
			t.Errorf("%s holds %d elements that somebody else wrote", path, n)
		}
	}
	b.open("/console/endpoints/" + hook)
	b.wait(`!document.querySelector(".waiting")`)
	want := ask[int](b, `[...document.querySelectorAll("a[href], button, input:not([type=hidden]), select, summary, [tabindex='0']")].filter(e => e.checkVisibility()).length`)
	ask[int](b, `new Promise(done => { window.seen = new Set(); document.addEventListener("focusin", e => seen.add(e.target)); done(0) })`)
	for range 2 * want { // a date has a stop for each of its parts
		b.do(chromedp.KeyEvent("\t"))
	}
	if seen := ask[int](b, `seen.size`); seen < want {
		t.Errorf("the keyboard reaches %d of %d controls", seen, want)
	}
	b.quiet()
}

// A tenant opens the portal by its link, without a click, and sees the platform's
// name and its own endpoints.
func TestBrowserPortal(t *testing.T) {
	stories(t, func(t *testing.T, s *site) {
		s.tenantWorld("acme")
		s.hook(`{"url":"http://127.0.0.1:9/platforms-own"}`)
		b := s.tab(t)
		u := s.rest("POST", "/v1/portal-links", `{"tenant_id":"acme","permissions":["read","webhooks:manage"]}`)["url"].(string)
		b.do(chromedp.Navigate(s.srv.URL+u), chromedp.WaitVisible(".side"))
		b.see("Signed in for acme")
		b.wait(`location.pathname === "/portal/" && !document.querySelector(".waiting")`)
		b.accessible("the portal", allRules)
		b.picture("portal")
		b.open("/portal/endpoints")
		b.see("/acme/in")
		if strings.Contains(ask[string](b, `document.body.innerText`), "platforms-own") {
			t.Error("it shows the platform's own")
		}
		b.open("/portal/dead-letters")
		b.accessible("the portal's dead letters", allRules)
		b.quiet()
	})
}

// An operator signs in at the login provider, which is another site, comes back to the
// page that was asked for, and signs out.
func TestBrowserLoginProvider(t *testing.T) {
	stories(t, func(t *testing.T, s *site) {
		p := newIDP(t)
		s.serve(p.login("groups=ops=manage"))
		b := s.tab(t)
		b.open("/console/endpoints")
		b.see("Sign in at localhost")
		b.accessible("login with a provider", allRules)
		b.picture("login-provider")
		b.do(chromedp.Click(`main a.button`), chromedp.WaitVisible(".side"))
		b.see("No endpoints yet")
		b.see("ann@example.com")
		b.do(chromedp.Click(`.who button`))
		b.see("Sign in at localhost")
		p.play(script{claims: map[string]any{"groups": nil}})
		b.do(chromedp.Click(`main a.button`))
		b.see("You are ann@example.com, but nothing lets you in here")
		b.picture("login-refused")
		b.quiet()
	})
}
