package api_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/surehook/surehook"
)

// No store can hold or look for U+0000: whatever takes a text refuses it, and names
// the text.
func TestNUL(t *testing.T) {
	onBoth(t, func(t *testing.T, s *site) {
		var doc struct {
			Paths map[string]map[string]struct {
				Parameters []struct {
					Name, In string
					Schema   struct{ Type any }
				}
			}
		}
		s.admin("GET", "/openapi.json", "").into(&doc)
		tried := 0
		for path, methods := range doc.Paths {
			for method, o := range methods {
				for _, p := range o.Parameters {
					if p.Schema.Type != "string" || p.In == "header" {
						continue
					}
					url := path
					if p.In == "query" {
						url += "?" + p.Name + "=a%00b"
					} else {
						url = strings.ReplaceAll(url, "{"+p.Name+"}", "a%00b")
					}
					url = strings.NewReplacer("{id}", "x", "{event_id}", "x", "{name}", "x").Replace(url)
					body := ""
					if method == "put" || method == "post" || method == "patch" {
						body = "{}"
					}
					a := s.admin(strings.ToUpper(method), url, body)
					if tried++; a.Status != http.StatusBadRequest || !strings.Contains(string(a.Raw), p.Name) && !strings.Contains(string(a.Raw), "is required") {
						t.Errorf("%s %s, %s: %d %s", method, url, p.Name, a.Status, a.Raw)
					}
				}
			}
		}
		if tried < 60 {
			t.Errorf("%d parameters were tried", tried)
		}
		for _, c := range []struct{ method, path, body, names string }{
			{"PUT", "/v1/tenants/x", `{"name":"\u0000"}`, "name"},
			{"PUT", "/v1/partners/x", `{"name":"a\u0000"}`, "name"},
			{"PUT", "/v1/event-types/a.b", `{"description":"\u0000a"}`, "description"},
			{"POST", "/v1/erasures", `{"tenant_id":"\u0000"}`, "tenant_id"},
			{"POST", "/v1/keys", `{"name":"n","permissions":["read","\u0000"]}`, "permissions[1]"},
			{"POST", "/v1/webhooks", `{"url":"https://example.com/","event_types":["a","\u0000"]}`, "event_types[1]"},
			{"POST", "/sentinels", `{"match":[{"subject":"a"}],"until":{"kind":"never"},"target":{"kind":"session","sessionId":"\u0000"}}`, "target.sessionId"},
			{"POST", "/sentinels", `{"match":[{"subject":"a"},{"subject":"b","types":["\u0000"]}],"until":{"kind":"never"},"target":{"kind":"session","sessionId":"s"}}`, "match[1].types[0]"},
		} {
			s.admin(c.method, c.path, c.body).refused(http.StatusBadRequest, surehook.InvalidRequest, c.names)
		}
	})
}
