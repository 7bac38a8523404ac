package api_test

import (
	"fmt"
	"testing"

	"github.com/surehook/surehook"
)

// Who reads sees the sessions of its scope, how full they are and what feeds them;
// nobody sees another's, and what is read keeps none alive.
func TestSessionsAreListed(t *testing.T) {
	onBoth(t, func(t *testing.T, s *site) {
		s.admin("PUT", "/v1/tenants/acme", `{"partner_id":"north"}`)
		north := s.admin("POST", "/v1/keys", `{"partner_id":"north","permissions":["read","events:pull","webhooks:manage"]}`).field("key").(string)
		acme, globex := s.key("acme", "read", "events:pull", "webhooks:manage"), s.key("globex", "events:pull")
		for _, key := range []string{acme, globex, north, adminKey} {
			s.do(key, "PUT", "/v1/sessions/one", "")
		}
		feed := s.do(acme, "POST", "/v1/webhooks", `{"target":"pull","session_id":"one","urgency":"steer"}`)
		own := s.do(acme, "POST", "/v1/webhooks", `{"target":"pull"}`)
		s.admin("POST", "/v1/events", `{"type":"a","tenant_id":"acme","data":1}`)
		id := own.field("id").(string)
		s.until("both wait", func() bool {
			return s.do(acme, "GET", "/v1/webhooks/"+id+"/inbox", "").field("events") == 1.0 &&
				s.do(s.key("acme", "read"), "GET", "/v1/sessions/one", "").field("inbox").(map[string]any)["events"] == 1.0
		})
		for key, want := range map[string]int{acme: 1, globex: 1, north: 2, adminKey: 4} {
			var l struct {
				Items []struct{ Inbox struct{ Events int } }
			}
			if s.do(key, "GET", "/v1/sessions", "").into(&l); len(l.Items) != want {
				t.Errorf("%d sessions, want %d", len(l.Items), want)
			}
		}
		for path, key := range map[string]string{"/v1/sessions/one?tenant_id=acme": north, "/v1/sessions/one?partner_id=north": adminKey} {
			if a := s.do(key, "GET", path, ""); a.Status != 200 {
				t.Errorf("%s: %d %s", path, a.Status, a.Raw)
			}
		}
		s.do(acme, "GET", "/v1/sessions/one?partner_id=north", "").refused(403, surehook.Forbidden, "")
		s.do(north, "GET", "/v1/sessions/one?partner_id=south", "").refused(403, surehook.Forbidden, "")
		s.admin("GET", "/v1/sessions/one?partner_id=north&tenant_id=acme", "").refused(400, surehook.InvalidRequest, "partner_id")
		s.do(s.key("acme", "webhooks:manage"), "GET", "/v1/sessions", "").refused(403, surehook.Forbidden, "")
		for path, want := range map[string]string{"": "2 <nil>", "?session_id=one": "1 steer", "?session_id=one&tenant_id=acme": "1 steer"} {
			var l struct {
				Items []struct {
					ID        string
					SessionID *string `json:"session_id"`
					Urgency   any
					Inbox     *struct{ Events int }
				}
			}
			s.do(acme, "GET", "/v1/webhooks"+path, "").into(&l)
			if got := fmt.Sprint(len(l.Items), " ", l.Items[0].Urgency); got != want {
				t.Errorf("%s: %s", path, got)
			}
			for _, w := range l.Items {
				if inSession := w.ID == feed.field("id"); inSession != (w.SessionID != nil) || inSession == (w.Inbox != nil) || w.Inbox != nil && w.Inbox.Events != 1 {
					t.Errorf("%+v", w)
				}
			}
		}
		s.do(acme, "GET", "/v1/webhooks?session_id=two", "").refused(404, surehook.NotFound, "")
	})
}
