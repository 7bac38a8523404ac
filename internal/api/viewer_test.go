package api_test

import (
	"fmt"
	"net/http"
	"slices"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/receivertest"
)

// walk reads a listing row by row, and gives its rows. Each page but the last is
// full: an empty one would tell of a row that isn't shown.
func (s *site) walk(key, path string) []map[string]any {
	s.t.Helper()
	var rows []map[string]any
	for next := ""; ; {
		var page struct {
			Items []map[string]any
			Next  string
		}
		s.do(key, "GET", path+next, "").into(&page)
		rows = append(rows, page.Items...)
		switch {
		case page.Next == "":
			return rows
		case len(page.Items) != 1:
			s.t.Errorf("%s: a page of %d rows that isn't the last", path, len(page.Items))
		}
		next = "&cursor=" + page.Next
	}
}

// ended waits for what becomes of an event at its endpoints, in any order.
func (s *site) ended(event string, want ...string) {
	s.t.Helper()
	s.until(fmt.Sprint(event, " is ", want), func() bool {
		var d struct{ Items []struct{ Status string } }
		s.admin("GET", "/v1/events/"+event+"/deliveries", "").into(&d)
		var got []string
		for _, it := range d.Items {
			got = append(got, it.Status)
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// many makes events of a tenant that die at endpoints of all scopes, and a
// background replay at each, and gives the endpoints by scope.
func many(s *site, r *receivertest.Receiver, events int) (hooks map[string]string, ids []string) {
	s.t.Helper()
	hooks = map[string]string{}
	for scope, of := range map[string]string{"platform": "", "partner": `,"partner_id":"p"`, "tenant": `,"tenant_id":"t"`, "another's": `,"partner_id":"q"`} {
		hooks[scope] = s.hook(`{"url":"` + r.URL + `","limits":{"attempts":1}` + of + `}`)
	}
	s.admin("PUT", "/v1/tenants/t", `{"partner_id":"p"}`)
	for i := range events {
		ids = append(ids, s.publish(fmt.Sprintf(`{"type":"a","tenant_id":"t","data":%d}`, i)))
	}
	for _, id := range ids {
		s.ended(id, "dead", "dead", "dead")
	}
	for _, hook := range hooks {
		a := s.admin("POST", "/v1/webhooks/"+hook+"/replay", `{"since":"2020-01-01T00:00:00Z","until":"2020-01-02T00:00:00Z","background":true}`)
		if a.Status != http.StatusAccepted {
			s.t.Fatalf("%s", a.Raw)
		}
	}
	return hooks, ids
}

// What happens at endpoints that a key doesn't see can't be told from any listing,
// nor from how its pages are cut.
func TestListingsTellOfNothingElse(t *testing.T) { onBoth(t, testListingsTellOfNothingElse) }

func testListingsTellOfNothingElse(t *testing.T, s *site) {
	r := receivertest.New(t, refuse)
	hooks, ids := many(s, r, 3)
	partner := s.admin("POST", "/v1/keys", `{"partner_id":"p","permissions":["read","events:write","webhooks:manage"]}`).field("key").(string)
	keys := []struct {
		who, key string
		hooks    int
	}{{"tenant", s.key("t", "read", "events:write"), 1}, {"partner", partner, 2}}
	for _, c := range keys {
		for path, want := range map[string]int{
			"/v1/events/" + ids[0] + "/deliveries?limit=1": c.hooks, "/v1/events/" + ids[0] + "/attempts?limit=1": c.hooks,
			"/v1/dead-letters?limit=1": 3 * c.hooks, "/v1/dead-letters?limit=1&data=true": 3 * c.hooks, "/v1/dead-letters?limit=1&tenant_id=t": 3 * c.hooks,
			"/v1/replays?limit=1": c.hooks, "/v1/events?limit=1&status=dead&type=a": 3,
		} {
			rows := s.walk(c.key, path)
			if len(rows) != want {
				t.Errorf("%s, %s: %d rows, want %d", c.who, path, len(rows), want)
			}
			for _, row := range rows {
				if at, ok := row["webhook_id"]; ok && (at == hooks["platform"] || at == hooks["another's"]) {
					t.Errorf("%s, %s: %v", c.who, path, row)
				}
			}
		}
	}
	for _, c := range keys { // last: these die as well
		if a := s.do(c.key, "POST", "/v1/events", `{"type":"b","tenant_id":"t","data":1}`); a.field("deliveries") != float64(c.hooks) {
			t.Errorf("%s: %s", c.who, a.Raw)
		}
		a := s.do(c.key, "POST", "/v1/events/batch", `{"events":[{"type":"b"},{"type":"b","tenant_id":"t","data":1}]}`)
		if a.field("results").([]any)[1].(map[string]any)["deliveries"] != float64(c.hooks) {
			t.Errorf("%s: %s", c.who, a.Raw)
		}
	}
}

// An event's status is that of deliveries which the key sees.
func TestStatusOfWhatIsSeen(t *testing.T) { onBoth(t, testStatusOfWhatIsSeen) }

func testStatusOfWhatIsSeen(t *testing.T, s *site) {
	r := receivertest.New(t, refuse)
	s.hook(`{"url":"` + r.URL + `","limits":{"attempts":1}}`)
	good := receivertest.New(t, nil)
	s.hook(`{"url":"` + good.URL + `","tenant_id":"t"}`)
	id := s.publish(`{"type":"a","tenant_id":"t","data":1}`)
	s.ended(id, "dead", "succeeded")
	key := s.key("t", "read")
	for status, want := range map[string][]string{"dead": {}, "succeeded": {id}, "pending": {}} {
		if got := s.do(key, "GET", "/v1/events?type=a&status="+status, "").ids(); !slices.Equal(got, want) {
			t.Errorf("%s: %v", status, got)
		}
	}
}

// A partner's endpoint replays by ids what its partner sees; all else is unknown,
// in the words for what really is.
func TestReplayByIDsCantTell(t *testing.T) { onBoth(t, testReplayByIDsCantTell) }

func testReplayByIDsCantTell(t *testing.T, s *site) {
	s.admin("PUT", "/v1/tenants/t", `{"partner_id":"p"}`)
	hook := s.hook(`{"url":"http://127.0.0.1:9/x","partner_id":"p"}`)
	key := s.admin("POST", "/v1/keys", `{"partner_id":"p","permissions":["webhooks:manage"]}`).field("key").(string)
	own := s.publish(`{"type":"a","tenant_id":"t","data":1}`)
	others := []string{"evt_none", s.publish(`{"type":"a","tenant_id":"u","data":1}`), s.publish(`{"type":"a","data":1}`)}
	for _, erase := range []bool{false, true} {
		for _, id := range others {
			a := s.do(key, "POST", "/v1/webhooks/"+hook+"/replay", `{"ids":["`+id+`"]}`)
			a.refused(http.StatusBadRequest, surehook.InvalidRequest, "ids[0]")
			if a.field("detail") != "the request is invalid: ids[0]: is unknown" {
				t.Errorf("%s", a.Raw)
			}
			if !erase && id != "evt_none" {
				s.admin("POST", "/v1/erasures", `{"ids":["`+id+`"]}`)
			}
		}
	}
	if a := s.do(key, "POST", "/v1/webhooks/"+hook+"/replay", `{"ids":["`+own+`"]}`); a.Status != http.StatusAccepted {
		t.Errorf("%s", a.Raw)
	}
}

// The audit log tells a tenant's changes by the tenant, whoever made them.
func TestAuditByTenant(t *testing.T) { onBoth(t, testAuditByTenant) }

func testAuditByTenant(t *testing.T, s *site) {
	h := "/v1/webhooks/" + s.hook(`{"url":"http://127.0.0.1:9/x","tenant_id":"t","profile":"pylota"}`)
	if a := s.admin("GET", h, ""); a.field("envelope") != "pylota" {
		t.Errorf("the envelope that is sent isn't shown: %s", a.Raw)
	}
	s.key("t", "read")
	s.admin("PATCH", h, `{"description":"x"}`)
	s.admin("POST", h+"/rotate-secret", `{"overlap_hours":1}`)
	s.admin("DELETE", h+"/previous-secret", "")
	s.admin("DELETE", h, "")
	var log struct{ Items []struct{ Action string } }
	s.admin("GET", "/v1/audit-log?tenant_id=t", "").into(&log)
	var got []string
	for _, e := range log.Items {
		got = append(got, e.Action)
	}
	want := []string{"webhook.delete", "webhook.revoke_previous_secret", "webhook.rotate_secret", "webhook.update", "key.create", "webhook.create"}
	if !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// Discarding again under one Idempotency-Key gives the first answer.
func TestDiscardOnce(t *testing.T) {
	s := open(t)
	_, _, _, letter := dead(s)
	for range 2 {
		if a := s.admin("POST", "/v1/dead-letters/discard", `{"ids":["`+letter+`"]}`, "Idempotency-Key", "once"); a.field("discarded") != 1.0 {
			t.Errorf("%s", a.Raw)
		}
	}
}
