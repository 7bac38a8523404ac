package api_test

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/receivertest"
)

// The field reports that the API answers for, each by its id.

func TestA16_NothingIsConverted(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	s.hook(`{"url":"` + r.URL + `/in","envelope":"payload"}`)
	for _, ct := range []string{"text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "application/cloudevents+xml",
		"application/json; charset=latin1", "application/json; charset", "/"} {
		s.admin("POST", "/v1/events", `{"type":"a","data":1}`, "Content-Type", ct).refused(415, "unsupported_media_type", "")
		s.admin("POST", "/v1/events/batch", `{"events":[{"type":"a","data":1}]}`, "Content-Type", ct).refused(415, "unsupported_media_type", "")
	}
	for _, body := range []string{"\xef\xbb\xbf" + `{"type":"a","data":1}`, `[{"type":"a","data":1}]`, `"a"`, ``, ` `, `null`, `1`} {
		s.admin("POST", "/v1/events", body).refused(400, surehook.InvalidRequest, "body")
		s.admin("POST", "/v1/events/batch", body).refused(400, surehook.InvalidRequest, "body")
	}
	// Any JSON value is data, and goes on byte for byte.
	values := []string{`[1, 2]`, `"bare"`, `""`, `{}`, `null`, `true`, `1.0`, `1e400`, `1234567890123456789`, "{\n\t\"b\" : 1,\"a\":\"\\u003c<\u2028😀\"\r\n}", `{"a":1,"a":2}`}
	var ids []string
	for i, v := range values {
		ct := []string{"application/json", "application/json; charset=UTF-8", "APPLICATION/JSON"}[i%3]
		a := s.admin("POST", "/v1/events", `{"data": `+v+" ,\"type\":\"a\"}", "Content-Type", ct)
		if a.Status != http.StatusAccepted {
			t.Fatalf("%s: %d %s", v, a.Status, a.Raw)
		}
		ids = append(ids, a.field("id").(string))
		if got := s.admin("GET", "/v1/events/"+ids[i], ""); !strings.HasSuffix(string(got.Raw), `,"data":`+v+"}") {
			t.Errorf("%s is read as %s", v, got.Raw)
		}
	}
	for _, got := range r.Wait(t, len(values)) {
		if i := slices.Index(ids, got.ID()); string(got.Body) != values[i] {
			t.Errorf("%s arrived as %s", values[i], got.Body)
		}
	}
}

func TestA17_InvalidUTF8IsRefused(t *testing.T) {
	s := open(t)
	for body, path := range map[string]string{
		"{\"type\":\"a\",\"data\":{\"k\":\"\xff\"}}":          "data",
		"{\"type\":\"a\xff\",\"data\":1}":                     "type",
		"{\"type\":\"a\",\"data\":1,\"subjects\":[\"\xc3\"]}": "subjects[0]",
		`{"type":"a","data":1,"subjects":["ok","\ud800"]}`:    "subjects[1]", // a lone surrogate has no UTF-8
	} {
		s.admin("POST", "/v1/events", body).refused(400, surehook.InvalidRequest, path)
		a := s.admin("POST", "/v1/events/batch", `{"events":[`+body+`]}`)
		if want := `"path":"events[0].` + path + `"`; a.Status != 202 || !strings.Contains(string(a.Raw), want) {
			t.Errorf("%d %s, want %s", a.Status, a.Raw, want)
		}
	}
	if a := s.admin("POST", "/v1/events", `{"type":"a","data":1,"subjects":["Привет","\u041f😀"]}`); a.Status != 202 {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	s.admin("POST", "/v1/webhooks", "{\"url\":\"https://h.example.com/\",\"description\":\"\xff\"}").refused(400, surehook.InvalidRequest, "body")
}

func TestE14_PatternsMatchAsDocumented(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	patterns := []string{"order", "order.*", "*"}
	for i, p := range patterns {
		s.hook(fmt.Sprintf(`{"url":"%s/%d","event_types":[%q],"envelope":"thin"}`, r.URL, i, p))
	}
	total := 0
	for typ, want := range map[string]float64{"order": 2, "order.paid": 2, "orders.paid": 1, "order.paid.late": 2, "ORDER.paid": 1} {
		if a := s.admin("POST", "/v1/events", `{"type":"`+typ+`","data":1}`); a.field("deliveries") != want {
			t.Errorf("%s: %s, want %v", typ, a.Raw, want)
		}
		total += int(want)
	}
	got := map[string][]string{}
	for _, req := range r.Wait(t, total) {
		path := strings.Fields(req.Line)[1]
		var ev struct{ Type string }
		if err := json.Unmarshal(req.Body, &ev); err != nil {
			t.Fatal(err)
		}
		got[path] = append(got[path], ev.Type)
	}
	slices.Sort(got["/1"])
	if len(got["/2"]) != 5 || !slices.Equal(got["/0"], []string{"order"}) || !slices.Equal(got["/1"], []string{"order.paid", "order.paid.late"}) {
		t.Errorf("%v", got)
	}
}

func TestE15_AnEmptyFilterIsRefused(t *testing.T) {
	s := open(t)
	const base = `{"url":"http://127.0.0.1:9/in"`
	for _, all := range []string{``, `,"event_types":null`, `,"event_types":["*"]`} {
		if a := s.admin("POST", "/v1/webhooks", base+all+`}`); a.Status != 201 || fmt.Sprint(a.field("event_types")) != "[*]" {
			t.Errorf("%s: %d %s", all, a.Status, a.Raw)
		}
	}
	if a := s.admin("POST", "/v1/webhooks", base+`,"subjects":null,"identity_ids":null}`); a.Status != 201 || a.field("subjects") != nil {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	hook := s.hook(base + `,"event_types":["order.*"],"subjects":["a"],"identity_ids":["i"]}`)
	for _, field := range []string{"event_types", "subjects", "identity_ids"} {
		s.admin("POST", "/v1/webhooks", base+`,"`+field+`":[]}`).refused(400, surehook.InvalidRequest, field)
		s.admin("PATCH", "/v1/webhooks/"+hook, `{"`+field+`":[]}`).refused(400, surehook.InvalidRequest, field)
		s.admin("PATCH", "/v1/webhooks/"+hook, `{"`+field+`":[null]}`).refused(400, surehook.InvalidRequest, field+"[0]")
	}
	if a := s.admin("PATCH", "/v1/webhooks/"+hook, `{"description":"x"}`); fmt.Sprint(a.field("event_types"), a.field("subjects"), a.field("identity_ids")) != "[order.*] [a] [i]" {
		t.Errorf("what is absent changed: %s", a.Raw)
	}
	a := s.admin("PATCH", "/v1/webhooks/"+hook, `{"event_types":null,"subjects":null,"identity_ids":null,"headers":null,"limits":null,"description":null}`)
	if a.Status != 200 || fmt.Sprint(a.field("event_types"), a.field("subjects"), a.field("identity_ids")) != "[*] <nil> <nil>" || a.field("description") != "" {
		t.Errorf("null doesn't clear: %s", a.Raw)
	}
}

// G-01: three replays, a double click, and one too soon.
func TestG01_EveryReplayIsAnswered(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	hook := s.hook(`{"url":"` + r.URL + `/in"}`)
	event := s.publish(`{"type":"a","data":1}`)
	path, body := "/v1/webhooks/"+hook+"/replay", `{"ids":["`+event+`"]}`
	for i := range 3 {
		s.status(event, "succeeded")
		r.Wait(t, i+1)
		if a := s.admin("POST", path, body); a.Status != 202 || a.field("queued") != 1.0 {
			t.Fatalf("%d %s", a.Status, a.Raw)
		}
	}
	r.Wait(t, 4)
	s.status(event, "succeeded")
	// A double click: with one key it is one replay, with the same answer twice.
	gate := make(chan struct{})
	r.Use(func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Gate: gate} })
	answers := make([]answer, 2)
	var wg sync.WaitGroup
	for i := range answers {
		wg.Go(func() { answers[i] = s.admin("POST", path, body, "Idempotency-Key", "click") })
	}
	wg.Wait()
	if string(answers[0].Raw) != string(answers[1].Raw) || answers[0].field("queued") != 1.0 {
		t.Errorf("%s\n%s", answers[0].Raw, answers[1].Raw)
	}
	// Without one, the second is told that an attempt is being made.
	r.Wait(t, 5)
	if a := s.admin("POST", path, body); a.field("queued") != 0.0 || a.field("in_progress") != 1.0 {
		t.Errorf("%s", a.Raw)
	}
	close(gate)
	s.status(event, "succeeded")
	if n := len(r.Requests()); n != 5 {
		t.Errorf("%d requests", n)
	}
}

// G-03: the scheduled retry is gone with it.
func TestG03_ReplayTakesTheScheduledRetryOver(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, refuse)
	hook := s.hook(`{"url":"` + r.URL + `/in","limits":{"waits_ms":[3600000]}}`)
	event := s.publish(`{"type":"a","data":1}`)
	path := "/v1/webhooks/" + hook + "/deliveries/" + event
	s.until("a retry is scheduled", func() bool { return s.admin("GET", path, "").field("attempts") == 1.0 })
	if a := s.admin("GET", path, ""); a.field("next_attempt_at") == nil || a.field("last_error") != "status_5xx" {
		t.Errorf("%s", a.Raw)
	}
	r.Use(nil)
	if a := s.admin("POST", path+"/replay", ""); a.field("queued") != 1.0 {
		t.Fatalf("%s", a.Raw)
	}
	s.status(event, "succeeded")
	if a := s.admin("GET", path, ""); a.field("next_attempt_at") != nil || a.field("attempts") != 2.0 {
		t.Errorf("%s", a.Raw)
	}
}

// G-05: each way of asking ends on the wire.
func TestG05_EveryWayOfReplayingIsARequest(t *testing.T) {
	s := open(t)
	r, hook, event, letter := dead(s)
	for i, c := range [][2]string{
		{"/v1/dead-letters/replay", `{"ids":["` + letter + `"]}`}, {"/v1/webhooks/" + hook + "/replay", `{"ids":["` + event + `"]}`},
		{"/v1/webhooks/" + hook + "/deliveries/" + event + "/replay", ""}, {"/v1/webhooks/" + hook + "/replay", `{"since":"2020-01-01T00:00:00Z","status":"dead"}`},
		{"/v1/webhooks/" + hook + "/replay", `{"since":"2020-01-01T00:00:00Z","background":true}`},
	} {
		if a := s.admin("POST", c[0], c[1]); a.Status != 202 {
			t.Fatalf("%s: %d %s", c[0], a.Status, a.Raw)
		}
		if got := r.Wait(t, i+2); got[i+1].ID() != event {
			t.Errorf("%s: id %q", c[0], got[i+1].ID())
		}
		s.until("dead again", func() bool {
			a := s.admin("GET", "/v1/webhooks/"+hook+"/deliveries/"+event, "")
			return a.field("status") == "dead" && a.field("attempts") == float64(i+2)
		})
	}
}

func TestG06_EventsForADisabledEndpointAreKept(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	hook := s.hook(`{"url":"` + r.URL + `/in"}`)
	start := time.Now().Add(-time.Minute)
	if a := s.admin("PATCH", "/v1/webhooks/"+hook, `{"enabled":false}`); a.field("disabled_reason") != "manual" {
		t.Fatalf("%s", a.Raw)
	}
	for i := range 10 {
		if a := s.admin("POST", "/v1/events", fmt.Sprintf(`{"type":"a","data":%d}`, i)); a.field("deliveries") != 0.0 {
			t.Fatalf("%s", a.Raw)
		}
	}
	s.admin("PATCH", "/v1/webhooks/"+hook, `{"enabled":true}`)
	if n := len(r.Requests()); n != 0 {
		t.Errorf("%d requests before anybody asked for them", n)
	}
	a := s.admin("POST", "/v1/webhooks/"+hook+"/replay", `{"since":"`+start.Format(time.RFC3339Nano)+`"}`)
	if a.Status != 202 || a.field("queued") != 10.0 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	r.Wait(t, 10)
}

// G-08: each reason has its answer.
func TestG08_WhatCantBeReplayedIsSaid(t *testing.T) {
	s := open(t)
	r, hook, event, letter := dead(s)
	h := "/v1/webhooks/" + hook
	try := func(status int, code surehook.ErrorCode, path string, paths ...string) {
		t.Helper()
		for i, c := range [][2]string{{h + "/replay", `{"ids":["` + event + `"]}`}, {h + "/deliveries/" + event + "/replay", ""}, {"/v1/dead-letters/replay", `{"ids":["` + letter + `"]}`}} {
			field := path
			if i < len(paths) {
				field = paths[i]
			}
			s.admin("POST", c[0], c[1]).refused(status, code, field)
		}
	}
	s.admin("PATCH", h, `{"event_types":["other"]}`)
	try(400, surehook.InvalidRequest, "ids[0]", "ids[0]", "event_id")
	s.admin("PATCH", h, `{"event_types":null,"enabled":false}`)
	try(409, surehook.Conflict, "")
	s.admin("POST", h+"/replay", `{"since":"2020-01-01T00:00:00Z","background":true}`).refused(409, surehook.Conflict, "")
	s.admin("PATCH", h, `{"enabled":true}`)
	s.admin("POST", h+"/replay", `{"ids":["`+event+`","never"]}`).refused(400, surehook.InvalidRequest, "ids[1]") // or past retention
	s.admin("POST", "/v1/dead-letters/replay", `{"ids":["`+letter+`","ded_1"]}`).refused(400, surehook.InvalidRequest, "ids[1]")
	s.admin("POST", h+"/replay", `{"ids":["`+event+`"],"since":"2020-01-01T00:00:00Z"}`).refused(400, surehook.InvalidRequest, "ids")
	s.admin("POST", h+"/replay", `{"since":"2026-01-02T00:00:00Z","until":"2026-01-01T00:00:00Z"}`).refused(400, surehook.InvalidRequest, "until")
	s.admin("DELETE", h, "")
	for _, c := range [][2]string{{h + "/replay", `{"ids":["` + event + `"]}`}, {h + "/deliveries/" + event + "/replay", ""}} {
		s.admin("POST", c[0], c[1]).refused(404, surehook.NotFound, "")
	}
	if n := len(r.Requests()); n != 1 {
		t.Errorf("%d requests: something was queued", n)
	}
}

func TestG09_ReplayLeavesHistory(t *testing.T) {
	s := open(t)
	r, hook, event, _ := dead(s)
	read := func() (items []json.RawMessage) {
		var as struct{ Items []json.RawMessage }
		s.admin("GET", "/v1/events/"+event+"/attempts", "").into(&as)
		return as.Items
	}
	first := string(read()[0])
	for i := range 2 {
		s.admin("POST", "/v1/webhooks/"+hook+"/replay", `{"ids":["`+event+`"]}`)
		r.Wait(t, i+2)
		s.until("recorded", func() bool { return len(read()) == i+2 })
	}
	items := read()
	if !slices.ContainsFunc(items, func(raw json.RawMessage) bool { return string(raw) == first }) {
		t.Errorf("the first attempt changed: %s in %s", first, items)
	}
	got := r.Requests()
	for _, again := range got[1:] {
		if string(again.Body) != string(got[0].Body) || again.ID() != got[0].ID() {
			t.Errorf("%s became %s", got[0].Body, again.Body)
		}
	}
}

// H-05: bytes are shown as text where they are text, and as base64 where not.
func TestH05_AnswersAreShownSafely(t *testing.T) {
	s := open(t)
	for _, body := range []string{`<img src=x onerror=alert(1)>`, "\x00\xff\xfe", "Привет \u2028 </script>", "\x01\x1b[31m"} {
		r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer {
			return receivertest.Answer{Status: 500, Body: body}
		})
		hook := s.hook(`{"url":"` + r.URL + `/in"}`)
		a := s.admin("POST", "/v1/webhooks/"+hook+"/test", "")
		shown, _ := a.field("response").(string)
		if b, ok := a.field("response_base64").(string); ok {
			raw, err := base64.StdEncoding.DecodeString(b)
			if err != nil || shown != "" {
				t.Errorf("%s", a.Raw)
			}
			shown = string(raw)
		}
		if shown != body || a.Header.Get("Content-Type") != "application/json" || !json.Valid(a.Raw) {
			t.Errorf("%q is shown as %s", body, a.Raw)
		}
	}
}
