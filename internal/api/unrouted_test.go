package api_test

import (
	"net/http"
	"testing"

	"github.com/surehook/surehook"
)

// Whatever isn't a route is answered with a problem: nothing is redirected, and
// nothing is served by the mux itself.
func TestUnrouted(t *testing.T) {
	s := open(t)
	hook := s.hook(`{"url":"http://127.0.0.1:9/in"}`)
	methods := []string{"GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE", "ODD"}
	for _, path := range []string{"/nope", "/v1", "/v1/", "/v1/nope", "/V1/events", "/v1/events/", "/v1//events", "//v1/events", "/v1/./events", "/v1/x/../events",
		"//", "/healthz/", "/v1/events/batch/", "/v1/webhooks//test", "/v1/webhooks/" + hook + "/", "/v1/webhooks/" + hook + "/nope", "/v1/webhooks/x/../" + hook,
		"/v1/webhooks/%2e%2e/nope", "/index.html", "/.git/config"} {
		for _, method := range methods {
			s.admin(method, path, "").refused(http.StatusNotFound, surehook.NotFound, "")
		}
	}
	for path, allow := range map[string]string{"/v1/events": "GET, POST", "/v1/events/batch": "GET, POST", "/v1/webhooks/" + hook: "GET, PATCH, DELETE",
		"/v1/webhooks/" + hook + "/test": "POST", "/v1/dead-letters/discard": "GET, POST", "/healthz": "GET", "/docs": "GET", "/openapi.json": "GET"} {
		for _, method := range []string{"PUT", "OPTIONS", "TRACE", "ODD"} {
			a := s.admin(method, path, "")
			a.refused(http.StatusMethodNotAllowed, "method_not_allowed", "")
			if got := a.Header.Get("Allow"); got != allow {
				t.Errorf("%s %s: allowed is %q, want %q", method, path, got, allow)
			}
		}
	}
	if a := s.admin("GET", "/v1/webhooks/"+hook, ""); a.Status != http.StatusOK {
		t.Errorf("something was changed: %d %s", a.Status, a.Raw)
	}
}
