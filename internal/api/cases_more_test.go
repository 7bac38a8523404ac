package api_test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/receivertest"
)

// K-05, K-06: headers of one's own are on every request, whatever the data.
func TestK06_HeadersAreSent(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	hook := s.hook(`{"url":"` + r.URL + `/in","headers":{"X-Tenant":"t 1","authorization":"Basic eDp5"},"envelope":"payload"}`)
	s.admin("POST", "/v1/webhooks/"+hook+"/test", "")
	for _, data := range []string{`{}`, `""`, `null`} {
		s.publish(`{"type":"a","data":` + data + `}`)
	}
	for _, got := range r.Wait(t, 4) {
		if got.Get("X-Tenant") != "t 1" || got.Get("Authorization") != "Basic eDp5" || got.Get("webhook-signature") == "" {
			t.Errorf("%q", got.Header)
		}
	}
	s.admin("PATCH", "/v1/webhooks/"+hook, `{"headers":{"X-Other":"2"}}`)
	s.publish(`{"type":"a","data":1}`)
	if got := r.Wait(t, 5)[4]; got.Get("X-Tenant") != "" || got.Get("X-Other") != "2" {
		t.Errorf("%q", got.Header)
	}
}

// K-08, K-09, K-10: the request line is the URL that was registered.
func TestK08_TheURLIsSentAsItIs(t *testing.T) {
	s := open(t)
	for given, want := range map[string]string{
		"/x?k=1&k=2": "/x?k=1&k=2", "": "/", "?x=1": "/?x=1", "/x?": "/x?", "/a%2Fb//c;d?q=a+b%20c;d&token=eyJ.x-y_z=": "/a%2Fb//c;d?q=a+b%20c;d&token=eyJ.x-y_z=",
	} {
		r := receivertest.New(t, nil)
		hook := s.hook(`{"url":"` + r.URL + given + `"}`)
		if a := s.admin("POST", "/v1/webhooks/"+hook+"/test", ""); a.field("status") != "succeeded" {
			t.Fatalf("%q: %s", given, a.Raw)
		}
		if got := r.Wait(t, 1)[0].Line; got != "POST "+want+" HTTP/1.1" {
			t.Errorf("%q is sent as %q", given, got)
		}
		s.admin("DELETE", "/v1/webhooks/"+hook, "")
	}
}

// L-03, L-04, L-05, L-06: one form of a secret is taken, and none is guessed at.
func TestL03_SecretsThatAreImported(t *testing.T) {
	s := open(t)
	key := bytes.Repeat([]byte{0xfb}, 32)
	std := base64.StdEncoding.EncodeToString(key)
	refused := map[string]string{
		"no prefix": std, "scheme pasted": "v1,whsec_" + std, "newline": "whsec_" + std + `\n`, "carriage return": "whsec_" + std + `\r\n`, "blank": " whsec_" + std,
		"url-safe": "whsec_" + base64.URLEncoding.EncodeToString(key), "8 bytes": "whsec_" + base64.StdEncoding.EncodeToString(key[:8]),
		"200 bytes": "whsec_" + base64.StdEncoding.EncodeToString(bytes.Repeat(key, 7)[:200]), "not base64": "whsec_xyz!", "empty": "whsec_", "words": "correct horse battery staple correct horse",
	}
	for name, secret := range refused {
		a := s.admin("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/in","secret":"`+secret+`"}`)
		a.refused(400, surehook.InvalidRequest, "secret")
		if len(secret) > 8 && strings.Contains(string(a.Raw), strings.TrimSuffix(strings.TrimSpace(secret), `\n`)) {
			t.Errorf("%s: the answer echoes it: %s", name, a.Raw)
		}
	}
	if a := s.admin("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/in","secret":"whsec_`+std+`"}`); a.Status != 201 || a.field("secret") != "whsec_"+std {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
}

// L-08, L-09: two secrets at most, and an end at once.
func TestL08_RotationAndItsEnd(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	hook := s.hook(`{"url":"` + r.URL + `/in"}`)
	h, sent := "/v1/webhooks/"+hook, 0
	signatures := func() int {
		s.admin("POST", h+"/test", "")
		sent++
		return len(strings.Fields(r.Wait(t, sent)[sent-1].Get("webhook-signature")))
	}
	if a := s.admin("POST", h+"/rotate-secret", `{"overlap_hours":24}`); a.field("previous_secret_until") == nil || signatures() != 2 {
		t.Errorf("%s", a.Raw)
	}
	if s.admin("POST", h+"/rotate-secret", `{"overlap_hours":168}`); signatures() != 2 {
		t.Error("a second rotation adds a third signature")
	}
	for range 2 { // twice is fine
		if a := s.admin("DELETE", h+"/previous-secret", ""); a.Status != 204 {
			t.Errorf("%d %s", a.Status, a.Raw)
		}
	}
	if signatures() != 1 {
		t.Error("a revoked secret signs")
	}
	s.admin("POST", h+"/rotate-secret", `{"overlap_hours":24}`)
	if a := s.admin("POST", h+"/rotate-secret", `{"overlap_hours":0}`); a.field("previous_secret_until") != nil || signatures() != 1 {
		t.Errorf("%s", a.Raw)
	}
	var log struct {
		Items []struct{ Action, Target string }
	}
	s.admin("GET", "/v1/audit-log", "").into(&log)
	n := 0
	for _, e := range log.Items {
		if e.Target == hook && (e.Action == "webhook.rotate_secret" || e.Action == "webhook.revoke_previous_secret") {
			n++
		}
	}
	if n != 6 {
		t.Errorf("%d of 6 changes are in the audit log: %+v", n, log)
	}
}

// M-03: bounds mean an instant, whatever zone they are written in.
func TestM03_TimeFilters(t *testing.T) {
	s := open(t)
	event := s.publish(`{"type":"a","data":1}`)
	var e struct {
		CreatedAt time.Time `json:"created_at"`
	}
	s.admin("GET", "/v1/events/"+event, "").into(&e)
	for _, offset := range []int{-11, 0, 2, 14} {
		zone := time.FixedZone("", offset*3600)
		at := func(d time.Duration) string {
			return strings.ReplaceAll(e.CreatedAt.Add(d).In(zone).Format(time.RFC3339Nano), "+", "%2B")
		}
		for query, want := range map[string]int{
			"since=" + at(-15*time.Minute): 1, "since=" + at(time.Minute): 0, "until=" + at(time.Minute): 1, "until=" + at(-time.Minute): 0,
			"since=" + at(0) + "&until=" + at(time.Millisecond): 1, "until=" + at(0): 0,
		} {
			if a := s.admin("GET", "/v1/events?"+query, ""); a.Status != 200 || len(a.field("items").([]any)) != want {
				t.Errorf("%s: %s, want %d", query, a.Raw, want)
			}
		}
	}
	for _, bad := range []string{"yesterday", "2026-01-01", "1767225600"} {
		for _, path := range []string{"/v1/events", "/v1/dead-letters"} {
			if a := s.admin("GET", path+"?since="+bad, ""); strings.Contains(string(a.Raw), bad) {
				t.Errorf("echoed: %s", a.Raw)
			} else {
				a.refused(400, surehook.InvalidRequest, "since")
			}
		}
	}
}

// O-05: an Idempotency-Key belongs to its tenant, and to its place in a batch.
func TestO05_KeysAreScoped(t *testing.T) { onBoth(t, testO05KeysAreScoped) }

func testO05KeysAreScoped(t *testing.T, s *site) {
	acme, other := s.key("acme", "events:write"), s.key("other", "events:write")
	const body = `{"type":"a","data":1}`
	ids := map[any]bool{}
	for _, key := range []string{adminKey, acme, other} {
		first, again := s.do(key, "POST", "/v1/events", body, "Idempotency-Key", "k"), s.do(key, "POST", "/v1/events", body, "Idempotency-Key", "k")
		if first.field("duplicate") != false || again.field("duplicate") != true || first.field("id") != again.field("id") {
			t.Errorf("%s %s", first.Raw, again.Raw)
		}
		ids[first.field("id")] = true
		s.do(key, "POST", "/v1/events", `{"type":"a","data":2}`, "Idempotency-Key", "k").refused(409, surehook.Conflict, "")
	}
	batch := `{"events":[` + body + `,` + body + `]}`
	first, again := s.admin("POST", "/v1/events/batch", batch, "Idempotency-Key", "k"), s.admin("POST", "/v1/events/batch", batch, "Idempotency-Key", "k")
	if strings.Count(string(first.Raw), `"duplicate":false`) != 2 || strings.Count(string(again.Raw), `"duplicate":true`) != 2 {
		t.Errorf("%s %s", first.Raw, again.Raw)
	}
	if len(ids) != 3 {
		t.Errorf("tenants share ids: %v", ids)
	}
	s.admin("POST", "/v1/events", body, "Idempotency-Key", strings.Repeat("x", 256)).refused(400, surehook.InvalidRequest, "Idempotency-Key")
}

func TestO05_FiftyCreates(t *testing.T) {
	s := open(t)
	answers := make([]answer, 50)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() {
			answers[i] = s.admin("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/in"}`, "Idempotency-Key", "k")
		})
	}
	wg.Wait()
	for _, a := range answers {
		if a.Status != 201 || string(a.Raw) != string(answers[0].Raw) {
			t.Fatalf("%d %s", a.Status, a.Raw)
		}
	}
	// The remembered secret isn't in the file.
	secret := strings.TrimPrefix(answers[0].field("secret").(string), "whsec_")
	raw, err := base64.StdEncoding.DecodeString(secret)
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range s.files() {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if bytes.Contains(b, []byte(secret)) || bytes.Contains(b, raw) {
			t.Errorf("%s holds the secret", filepath.Base(file))
		}
	}
}

func TestQ02_CursorsOfEveryListing(t *testing.T) {
	s := open(t)
	_, hook, event, _ := dead(s)
	for range 2 {
		s.publish(`{"type":"a","data":1}`)
		s.hook(`{"url":"http://127.0.0.1:9/in","event_types":["x"]}`)
	}
	pulled := s.hook(`{"target":"pull"}`)
	given := s.admin("GET", "/v1/events?limit=1", "").field("next").(string)
	if a := s.admin("GET", "/v1/events?limit=1&cursor="+given, ""); a.Status != 200 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	mangled := []string{"AAAA", "x", given[1:], given + "A", given[:len(given)-1] + "_", "9223372036854775808", "%00", "MQ=="}
	for i := range len(given) {
		c := byte('A')
		if given[i] == c {
			c = 'B'
		}
		mangled = append(mangled, given[:i]+string(c)+given[i+1:])
	}
	for path, ops := range s.doc.Paths {
		get, ok := ops["get"]
		if !ok || !slices.ContainsFunc(get.Parameters, func(p struct{ Name, In string }) bool { return p.Name == "cursor" }) {
			continue
		}
		url := strings.NewReplacer("/v1/webhooks/{id}/events", "/v1/webhooks/"+pulled+"/events", "/v1/webhooks/{id}", "/v1/webhooks/"+hook, "/v1/events/{id}", "/v1/events/"+event).Replace(path) + "?webhook_id=" + hook
		if !slices.ContainsFunc(get.Parameters, func(p struct{ Name, In string }) bool { return p.Name == "webhook_id" }) {
			url = strings.Replace(url, "webhook_id="+hook, "limit=1", 1)
		}
		for _, c := range mangled {
			s.admin("GET", url+"&cursor="+c, "").refused(400, surehook.InvalidRequest, "cursor")
		}
		if path != "/v1/events" {
			s.admin("GET", url+"&cursor="+given, "").refused(400, surehook.InvalidRequest, "cursor") // another listing's
		}
		for _, limit := range []string{"0", "1001", "-1", "x"} {
			s.admin("GET", strings.Replace(url, "limit=1", "", 1)+"&limit="+limit, "").refused(400, surehook.InvalidRequest, "limit")
		}
	}
}

func TestQ04_TheDocsPageIsInert(t *testing.T) {
	s := open(t)
	a := s.do("", "GET", "/docs", "")
	page, policy := string(a.Raw), a.Header.Get("Content-Security-Policy")
	for _, word := range []string{"<script", "http://", "https://fonts", "//cdn", " onclick", "javascript:", "src="} {
		if strings.Contains(page, word) {
			t.Errorf("the page holds %q", word)
		}
	}
	if strings.Contains(policy, "unsafe") || !strings.Contains(policy, "default-src 'none'") || !strings.Contains(policy, "style-src 'sha256-") {
		t.Errorf("policy %q", policy)
	}
	for path := range s.doc.Paths {
		if !strings.Contains(page, path) {
			t.Errorf("the page doesn't tell of %s", path)
		}
	}
	// What callers wrote comes back as JSON, never as a page.
	s.admin("PUT", "/v1/event-types/a", `{"description":"<img src=x onerror=alert(1)>"}`)
	if a := s.admin("GET", "/v1/event-types/a", ""); a.Header.Get("Content-Type") != "application/json" || a.Header.Get("X-Content-Type-Options") != "nosniff" {
		t.Errorf("%v", a.Header)
	}
	if a := s.do("", "GET", "/v1/%3Cimg%20src=x%3E", ""); a.Status != http.StatusNotFound || strings.Contains(string(a.Raw), "<img") {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
}

// a URL's query and headers are for those who manage endpoints.
func TestQ05_URLsAreMasked(t *testing.T) {
	s := open(t)
	hook := s.hook(`{"url":"http://127.0.0.1:9/in?token=t0ken","headers":{"X-Auth":"h3ader"}}`)
	reader := s.key("", "read")
	for _, path := range []string{"/v1/webhooks/" + hook, "/v1/webhooks"} {
		if a := s.do(reader, "GET", path, ""); strings.Contains(string(a.Raw), "t0ken") || strings.Contains(string(a.Raw), "h3ader") ||
			!strings.Contains(string(a.Raw), "http://127.0.0.1:9/in?") || !strings.Contains(string(a.Raw), "X-Auth") {
			t.Errorf("%s", a.Raw)
		}
		if a := s.do(s.key("", "read", "webhooks:manage"), "GET", path, ""); !strings.Contains(string(a.Raw), "token=t0ken") {
			t.Errorf("%s", a.Raw)
		}
	}
}

// Data of a type with a schema: what is refused is named, and no number is too
// clever.
func TestSchemaPathsAndNumbers(t *testing.T) {
	s := open(t)
	put := func(schema string) answer {
		return s.admin("PUT", "/v1/event-types/a", `{"validate":true,"schema":`+schema+`}`)
	}
	put(`{"type":"object","required":["n"],"additionalProperties":false,"properties":{"n":{"type":"number","multipleOf":0.5},"list":{"items":{"enum":["s3cret-want"]}}}}`)
	for data, path := range map[string]string{
		`{}`: "data.n", `1`: "data", `{"n":"v4lue"}`: "data.n", `{"n":1,"x":"v4lue"}`: "data", `{"n":1,"list":["s3cret-want","v4lue"]}`: "data.list[1]",
		`{"n":1e999999999}`: "data", `{"n":-1E-99999}`: "data", `{"n":` + strings.Repeat("9", 2000) + `}`: "data", `{"n":0.3}`: "data.n",
	} {
		a := s.admin("POST", "/v1/events", `{"type":"a","data":`+data+`}`)
		if a.refused(400, surehook.InvalidRequest, path); strings.Contains(string(a.Raw), "v4lue") {
			t.Errorf("the value is echoed: %s", a.Raw)
		}
		if a := s.admin("POST", "/v1/events/batch", `{"events":[{"type":"b","data":1},{"type":"a","data":`+data+`}]}`); !strings.Contains(string(a.Raw), `"path":"events[1].`+path+`"`) {
			t.Errorf("%s", a.Raw)
		}
	}
	for _, data := range []string{`{"n":1e400}`, `{"n":9007199254740993.5}`, `{"n":0}`, `{"n":1e000000000002}`} {
		if a := s.admin("POST", "/v1/events", `{"type":"a","data":`+data+`}`); a.Status != 202 {
			t.Errorf("%s: %d %s", data, a.Status, a.Raw)
		}
	}
	for _, bad := range []string{`{"maximum":1e999999999}`, `{"$ref":"file:///etc/passwd"}`, `{"$ref":"#/nowhere"}`, `{"pattern":"("}`, `"x"`, `{"$schema":"http://127.0.0.1:1/x"}`} {
		put(bad).refused(400, surehook.InvalidRequest, "schema")
	}
	// Examples are kept as they were given.
	if a := s.admin("PUT", "/v1/event-types/big", `{"example":{"n":1e400,"m":12345678901234567890.10}}`); !strings.Contains(string(a.Raw), `"example":{"n":1e400,"m":12345678901234567890.10}`) {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	s.admin("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/in","limits":{"attempts":1e400}}`).refused(400, surehook.InvalidRequest, "limits.attempts")
	s.admin("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/in","limits":{"attempts":1.0e0}}`).refused(400, surehook.InvalidRequest, "limits.attempts")
	s.admin("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/in","limits":{"waits_ms":[1,1e300]}}`).refused(400, surehook.InvalidRequest, "limits.waits_ms")
	s.admin("DELETE", "/v1/event-types/a", "")
	if a := s.admin("POST", "/v1/events", `{"type":"a","data":{}}`); a.Status != 202 {
		t.Errorf("%d %s", a.Status, fmt.Sprint(a))
	}
}

// A body where none is documented: nothing and {} are none, anything else is
// refused and does nothing.
func TestBodiesThatNobodyReads(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	hook := s.hook(`{"url":"` + r.URL + `/in"}`)
	path := "/v1/webhooks/" + hook + "/test"
	for _, body := range []string{"", " \n", "{}", " { } "} {
		for _, media := range []string{"application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8"} {
			if a := s.admin("POST", path, body, "Content-Type", media); a.Status != http.StatusOK {
				t.Errorf("%q as %s: %d %s", body, media, a.Status, a.Raw)
			}
		}
	}
	sent := 12
	s.admin("POST", path, `{"event_type":"order.paid"}`).refused(400, surehook.InvalidRequest, "event_type")
	s.admin("POST", path, `"x"`).refused(400, surehook.InvalidRequest, "body")
	s.admin("POST", path, `{"a":`).refused(400, surehook.InvalidRequest, "body")
	s.admin("POST", path, `{}`, "Content-Type", "text/plain").refused(415, "unsupported_media_type", "")
	s.admin("POST", path, `{"a":"`+strings.Repeat("x", 300<<10)+`"}`).refused(413, surehook.TooLarge, "")
	s.admin("DELETE", "/v1/webhooks/"+hook, `{"dry_run":true}`).refused(400, surehook.InvalidRequest, "dry_run")
	if a := s.admin("GET", "/v1/webhooks/"+hook, ""); a.Status != http.StatusOK {
		t.Errorf("a refused request deleted: %d", a.Status)
	}
	if n := len(r.Wait(t, sent)); n != sent {
		t.Errorf("%d requests, want %d", n, sent)
	}
}

// An endpoint's order is chosen when it is made, stays through other changes, and
// can be changed.
func TestOrderingIsKept(t *testing.T) {
	s := open(t)
	hook := s.hook(`{"url":"http://127.0.0.1:9/","ordering":"sequence"}`)
	for _, c := range []struct{ patch, want string }{{`{"description":"x"}`, "sequence"}, {`{"ordering":"none"}`, "none"}, {`{"ordering":"sequence"}`, "sequence"}} {
		if got := s.admin("PATCH", "/v1/webhooks/"+hook, c.patch).field("ordering"); got != c.want {
			t.Errorf("after %s: %v, want %s", c.patch, got, c.want)
		}
		if got := s.admin("GET", "/v1/webhooks/"+hook, "").field("ordering"); got != c.want {
			t.Errorf("read after %s: %v, want %s", c.patch, got, c.want)
		}
	}
	if got := s.admin("GET", "/v1/webhooks/"+s.hook(`{"url":"http://127.0.0.1:9/"}`), "").field("ordering"); got != "none" {
		t.Errorf("by default: %v", got)
	}
	s.admin("POST", "/v1/webhooks", `{"url":"http://127.0.0.1:9/","ordering":"owner"}`).refused(400, surehook.InvalidRequest, "ordering")
	s.admin("PATCH", "/v1/webhooks/"+hook, `{"ordering":"fifo"}`).refused(400, surehook.InvalidRequest, "ordering")
}

// When a key was used last is seen in the listing, a moment later.
func TestKeysTellWhenTheyWereUsed(t *testing.T) { onBoth(t, testKeysTellWhenTheyWereUsed) }

func testKeysTellWhenTheyWereUsed(t *testing.T, s *site) {
	unused := s.admin("POST", "/v1/keys", `{"permissions":["read"]}`).field("id").(string)
	var keys struct {
		Items []struct {
			ID         string
			LastUsedAt *time.Time `json:"last_used_at"`
		}
	}
	s.until("the admin key's use is shown", func() bool {
		s.admin("GET", "/v1/keys", "").into(&keys)
		return len(keys.Items) == 2 && keys.Items[1].LastUsedAt != nil
	})
	if k := keys.Items[0]; k.ID != unused || k.LastUsedAt != nil {
		t.Errorf("%+v was never used", k)
	}
	if age := time.Since(*keys.Items[1].LastUsedAt); age < 0 || age > time.Minute {
		t.Errorf("used %v ago", age)
	}
}
