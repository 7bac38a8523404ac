package api_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/receivertest"
)

const cloudJSON = "application/cloudevents+json"

// cloud posts a structured CloudEvent.
func (s *site) cloud(body string) answer {
	s.t.Helper()
	return s.admin("POST", "/v1/events", body, "Content-Type", cloudJSON)
}

// One CloudEvent, in either mode, is one event; endpoints get its data as they
// get that of other events, and all of it in the envelope cloudevents.
func TestCloudEventsInBothModesAreOneEvent(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	for _, env := range []string{"standard", "payload", "cloudevents", "thin", "pylota"} {
		s.hook(`{"url":"` + r.URL + `/` + env + `","envelope":"` + env + `"}`)
	}
	s.hook(`{"url":"` + r.URL + `/filtered","subjects":["github:o/r*"],"event_types":["github.*"],"envelope":"thin"}`)
	a := s.cloud(`{"specversion":"1.0","id":"x:1","source":"https://github.com/o/r","type":"github.pull_request.closed","subject":"github:o/r#7","time":"2026-01-31T12:00:00.123456+01:00",
		"datacontenttype":"application/json","data":{"n": 1.0,"s":"a<b"},"summary":"closed: \"ü\" 100%","subjects":["github:o/r#7","github:o/r","github:o"],"terminal":true,"seq":12,"other":"x"}`)
	if a.Status != http.StatusAccepted || a.field("id") != "x:1" || a.field("deliveries") != 6.0 {
		t.Fatalf("%d %s", a.Status, a.Raw)
	}
	a = s.admin("POST", "/v1/events", `{"n": 1.0,"s":"a<b"}`+"\n", "Content-Type", "application/json", "ce-specversion", "1.0", "ce-id", "x:1", "ce-source", "https://github.com/o/r",
		"ce-type", "github.pull_request.closed", "ce-subject", "github:o/r#7", "ce-time", "2026-01-31T12:00:00.123456+01:00",
		"ce-summary", `closed: %22%C3%BC%22 100%25`, "ce-subjects", "github:o/r#7, github:o/r,github:o", "ce-terminal", "true", "ce-seq", "12", "ce-other", "x")
	if a.Status != http.StatusAccepted || a.field("duplicate") != true {
		t.Errorf("in binary mode it is another one: %d %s", a.Status, a.Raw)
	}
	want := map[string]string{
		"/standard": `{"id":"x:1","type":"github.pull_request.closed","timestamp":"2026-01-31T11:00:00.123Z","data":{"n": 1.0,"s":"a<b"}}`,
		"/payload":  `{"n": 1.0,"s":"a<b"}`,
		"/thin":     `{"id":"x:1","type":"github.pull_request.closed","timestamp":"2026-01-31T11:00:00.123Z"}`,
		"/filtered": `{"id":"x:1","type":"github.pull_request.closed","timestamp":"2026-01-31T11:00:00.123Z"}`,
		"/cloudevents": `{"specversion":"1.0","id":"x:1","type":"github.pull_request.closed","source":"https://github.com/o/r","subject":"github:o/r#7","time":"2026-01-31T12:00:00.123456+01:00",` +
			`"datacontenttype":"application/json","other":"x","seq":12,"subjects":"github:o/r#7,github:o/r,github:o","summary":"closed: \"ü\" 100%","terminal":true,"data":{"n": 1.0,"s":"a<b"}}`,
	}
	for _, got := range r.Wait(t, 6) {
		path := strings.Fields(got.Line)[1]
		if w, ok := want[path]; got.ID() != "x:1" || ok && string(got.Body) != w || !ok && !strings.HasSuffix(string(got.Body), `,"data":{"n": 1.0,"s":"a<b"}}`) {
			t.Errorf("%s got %s", path, got.Body)
		}
	}
	var view struct {
		Subjects   []string
		OccurredAt string `json:"occurred_at"`
		CloudEvent map[string]any
		Data       json.RawMessage
	}
	s.admin("GET", "/v1/events/x:1", "").into(&view)
	if string(view.Data) != `{"n": 1.0,"s":"a<b"}` || view.CloudEvent["source"] != "https://github.com/o/r" || view.CloudEvent["terminal"] != true || view.OccurredAt != "2026-01-31T11:00:00.123Z" ||
		!slices.Equal(view.Subjects, []string{"github:o/r#7", "github:o/r", "github:o"}) {
		t.Errorf("%+v", view)
	}
}

// Whatever data is, it reaches endpoints as some JSON, and CloudEvents' own way
// in their envelope.
func TestCloudEventData(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	s.hook(`{"url":"` + r.URL + `/cloud","envelope":"cloudevents"}`)
	s.hook(`{"url":"` + r.URL + `/plain","envelope":"payload"}`)
	want := map[string][2]string{} // by id: as data, and in the envelope
	structured := func(id, members, plain, cloud string) {
		if a := s.cloud(`{"specversion":"1.0","id":"` + id + `","source":"/s","type":"a"` + members + `}`); a.Status != http.StatusAccepted {
			t.Errorf("%s: %d %s", id, a.Status, a.Raw)
		}
		want[id] = [2]string{plain, cloud}
	}
	bin := func(id, media, body, plain, cloud string) {
		if a := s.admin("POST", "/v1/events", body, "Ce-Specversion", "1.0", "Ce-Id", id, "Ce-Source", "/s", "Ce-Type", "a", "Content-Type", media); a.Status != http.StatusAccepted {
			t.Errorf("%s: %d %s", id, a.Status, a.Raw)
		}
		want[id] = [2]string{plain, cloud}
	}
	structured("none", ``, `null`, `}`)
	structured("null", `,"data":null,"subject":null`, `null`, `,"data":null}`)
	structured("array", `,"data":[1, {"$cloudevent":{}}]`, `[1, {"$cloudevent":{}}]`, `,"data":[1, {"$cloudevent":{}}]}`)
	structured("base64", `,"data_base64":"AP\u002b\/"`, `"AP+/"`, `,"data_base64":"AP+/"}`)
	structured("empty", `,"data_base64":""`, `""`, `,"data_base64":""}`)
	structured("text", `,"datacontenttype":"text/plain","data":"\u00e9}"`, `"\u00e9}"`, `,"data":"\u00e9}"}`)
	structured("huge", `,"data":1e400,"seq":"7"`, `1e400`, `"seq":7,"data":1e400}`)
	bin("b-json", "application/vnd.x+json; charset=utf-8", " [ 1 ] \n", `[ 1 ]`, `,"data":[ 1 ]}`)
	bin("b-text", "text/plain; charset=UTF-8", "a\"<\n", `"a\"\u003c\n"`, `,"data":"a\"\u003c\n"}`)
	bin("b-xml", "application/xml", "<a>é</a>", `"\u003ca\u003eé\u003c/a\u003e"`, `,"data":"\u003ca\u003eé\u003c/a\u003e"}`)
	bin("b-bytes", "application/octet-stream", "\x00\xff", `"AP8="`, `,"data_base64":"AP8="}`)
	bin("b-latin", "text/plain; charset=latin1", "\xe9", `"6Q=="`, `,"data_base64":"6Q=="}`)
	bin("b-none", "application/json", "", `null`, `"datacontenttype":"application/json"}`)
	for _, got := range r.Wait(t, 2*len(want)) {
		w, path := want[got.ID()], strings.Fields(got.Line)[1]
		if path == "/plain" && string(got.Body) != w[0] || path == "/cloud" && !strings.HasSuffix(string(got.Body), w[1]) || !json.Valid(got.Body) {
			t.Errorf("%s %s is %s, want %v", path, got.ID(), got.Body, w)
		}
	}
}

func TestCloudEventsAreRefusedByName(t *testing.T) {
	s := open(t)
	for members, path := range map[string]string{
		``: "id", `,"id":"a.b"`: "id", `,"id":""`: "id", `,"id":7`: "id", `,"id":null`: "id", `,"id":"` + strings.Repeat("x", 201) + `"`: "id", `,"id":"a b"`: "id", `,"id":"é"`: "id",
		`,"id":"a","specversion":"0.3"`: "specversion", `,"id":"a","Subject":"x"`: "Subject", `,"id":"a","a_b":"x"`: "a_b", `,"id":"a","":"x"`: "", `,"id":"a","x":{}`: "x",
		`,"id":"a","x":[1]`: "x", `,"id":"a","x":1.5`: "x", `,"id":"a","x":2147483648`: "x", `,"id":"a","x":tru`: "x", `,"id":"a","x":01`: "x", `,"id":"a","x":"\ud800"`: "x",
		`,"id":"a","subject":""`: "subject", `,"id":"a","subject":"\u0000"`: "subjects[0]", `,"id":"a","time":"yesterday"`: "time", `,"id":"a","time":7`: "time",
		`,"id":"a","datacontenttype":";"`: "datacontenttype", `,"id":"a","datacontenttype":""`: "datacontenttype", `,"id":"a","dataschema":"rel"`: "dataschema",
		`,"id":"a","data_base64":"x"`: "data_base64", `,"id":"a","data_base64":1`: "data_base64", `,"id":"a","data":1,"data_base64":"AA=="`: "data_base64", `,"id":"a","data":1,"data":1`: "data",
		`,"id":"a","data":tru`: "data", `,"id":"a","data":[}`: "data", `,"id":"a","datacontenttype":"text/plain","data":1`: "data",
		`,"id":"a","subjects":7`: "subjects", `,"id":"a","subjects":"a,,b"`: "subjects", `,"id":"a","subjects":["a",7]`: "subjects[1]", `,"id":"a","subjects":["a","b,c"]`: "subjects[1]",
		`,"id":"a","subjects":["a",""]`: "subjects[1]", `,"id":"a","subject":"s","subjects":"1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16"`: "subjects",
		`,"id":"a","terminal":1`: "terminal", `,"id":"a","terminal":"yes"`: "terminal", `,"id":"a","seq":-1`: "seq", `,"id":"a","seq":"1e3"`: "seq", `,"id":"a","seq":"2147483648"`: "seq",
		`,"id":"a","summary":true`: "summary", `,"id":"a","summary":"` + strings.Repeat("x", 4097) + `"`: "summary", `,"id":"a","tenantid":""`: "tenantid", `,"id":"a","source":"%zz"`: "source",
	} {
		head := `{"source":"/s","type":"a"`
		if !strings.Contains(members, "specversion") {
			head += `,"specversion":"1.0"`
		}
		if strings.Contains(members, `"source"`) {
			head = `{"specversion":"1.0","type":"a"`
		}
		body := head + members + `}`
		s.cloud(body).refused(400, surehook.InvalidRequest, path)
		a := s.admin("POST", "/v1/events/batch", `[`+body+`]`, "Content-Type", "application/cloudevents-batch+json")
		if !json.Valid([]byte(body)) {
			continue // the batch is no JSON, or the event is
		}
		if want := `"path":"events[0].` + path; a.Status != http.StatusAccepted || !strings.Contains(string(a.Raw), want) {
			t.Errorf("%s in a batch: %d %s, want %s", members, a.Status, a.Raw, want)
		}
	}
	for body, path := range map[string]string{`{}`: "specversion", `{"specversion":"1.0"}`: "source", `[]`: "body", `"x"`: "body", `{"a":1} x`: "body", ``: "body", "\xef\xbb\xbf{}": "body"} {
		s.cloud(body).refused(400, surehook.InvalidRequest, path)
	}
	if list := s.admin("GET", "/v1/events", ""); strings.Contains(string(list.Raw), `"id"`) {
		t.Errorf("something refused was kept: %s", list.Raw)
	}
}

func TestBinaryCloudEventsAreRefusedByName(t *testing.T) {
	s := open(t)
	post := func(body string, header ...string) answer {
		return s.admin("POST", "/v1/events", body, append([]string{"Content-Type", "application/json", "ce-source", "/s", "ce-type", "a"}, header...)...)
	}
	good := []string{"ce-specversion", "1.0", "ce-id", "a"}
	post(`1`).refused(400, surehook.InvalidRequest, "specversion")
	post(`1`, "ce-specversion", "1.0").refused(400, surehook.InvalidRequest, "id")
	post(`1`, "ce-specversion", "1.0", "ce-id", "a.b").refused(400, surehook.InvalidRequest, "id")
	for _, c := range [][3]string{{"ce-specversion", "1.1", "specversion"}, {"ce-data", "x", "data"}, {"ce-datacontenttype", "text/plain", "datacontenttype"}, {"ce-a_b", "x", "a_b"}, {"ce-summary", "%ff", "summary"},
		{"ce-subjects", ",", "subjects"}, {"ce-terminal", "1", "terminal"}, {"ce-time", "x", "time"}, {"Content-Type", ";", "datacontenttype"}, {"ce-id", "%00", "id"}} {
		post(`1`, append(slices.Clone(good), c[0], c[1])...).refused(400, surehook.InvalidRequest, c[2])
	}
	for _, body := range []string{`{`, `1,"y":2`, `1}`, "\"\xff\"", ` `} {
		post(body, good...).refused(400, surehook.InvalidRequest, "data")
	}
	post(`1`, append(slices.Clone(good), "Content-Type", "application/json; charset=latin1")...).refused(400, surehook.InvalidRequest, "data")
	for media, path := range map[string]string{"application/cloudevents-batch+json": "/v1/events", "application/cloudevents+xml": "/v1/events", "application/cloudevents+json; charset=latin1": "/v1/events", cloudJSON: "/v1/events/batch"} {
		s.admin("POST", path, `[]`, "Content-Type", media).refused(415, "unsupported_media_type", "")
	}
	if list := s.admin("GET", "/v1/events", ""); strings.Contains(string(list.Raw), `"id"`) {
		t.Errorf("something refused was kept: %s", list.Raw)
	}
}

// Header values are unquoted and percent-decoded once; who doesn't encode loses
// nothing.
func TestCloudEventHeaderValues(t *testing.T) {
	s := open(t)
	for i, c := range [][2]string{{`Euro%20%E2%82%AC%20%F0%9F%98%80`, "Euro € 😀"}, {`%e2%82%AC`, "€"}, {`100% done`, "100% done"}, {`100%`, "100%"}, {`%4`, "%4"}, {`%zz%+1`, "%zz%+1"}, {`%2525`, "%25"},
		{`"quoted \"text\" \\ %41"`, `quoted "text" \ A`}, {`"`, `"`}, {`""`, ``}, {"raw é", "raw é"}, {`a%0Ab`, "a\nb"}} {
		id := fmt.Sprint("h", i)
		a := s.admin("POST", "/v1/events", `1`, "ce-specversion", "1.0", "ce-id", id, "ce-source", "/s", "ce-type", "a", "ce-summary", c[0])
		if a.Status != http.StatusAccepted {
			t.Errorf("%s: %d %s", c[0], a.Status, a.Raw)
			continue
		}
		if got, _ := s.admin("GET", "/v1/events/"+id, "").field("cloudevent").(map[string]any); got["summary"] != c[1] {
			t.Errorf("%s is read as %q, want %q", c[0], got["summary"], c[1])
		}
	}
}

func TestCloudEventBatch(t *testing.T) {
	s := open(t)
	const media = "application/cloudevents-batch+json"
	a := s.admin("POST", "/v1/events/batch", `[{"specversion":"1.0","id":"a","source":"/s","type":"t","data":1}, {"specversion":"1.0","id":"a","source":"/other","type":"t","data":1},
		{"specversion":"1.0","id":"b.c","source":"/s","type":"t"}, {"specversion":"1.0","id":"d","source":"/s","type":"t","tenantid":"acme"}, 7]`, "Content-Type", media)
	var got struct {
		Results []struct {
			ID    string
			Error *struct {
				Code   surehook.ErrorCode
				Errors []surehook.FieldError
			}
		}
	}
	a.into(&got)
	if r := got.Results; a.Status != http.StatusAccepted || len(r) != 5 || r[0].ID != "a" || r[1].Error == nil || r[1].Error.Code != surehook.Conflict || r[2].Error == nil ||
		r[2].Error.Errors[0].Path != "events[2].id" || r[3].ID != "d" || r[4].Error == nil || r[4].Error.Errors[0].Path != "events[4].body" {
		t.Errorf("%d %s", a.Status, a.Raw)
	}
	if ev := s.admin("GET", "/v1/events/d?tenant_id=acme", ""); ev.field("tenant_id") != "acme" {
		t.Errorf("%s", ev.Raw)
	}
	for body, path := range map[string]string{`[]`: "body", `{}`: "body", `[1`: "body", `[1] 2`: "body", `[` + strings.Repeat("1,", 1000) + `1]`: "body"} {
		s.admin("POST", "/v1/events/batch", body, "Content-Type", media).refused(400, surehook.InvalidRequest, path)
	}
}

// A key's tenant is the event's; another's can't be named. The catalogue's schema
// is about the data.
func TestCloudEventsKeepToTheKeyAndTheCatalogue(t *testing.T) {
	s := open(t)
	key := s.key("acme", surehook.PermEventsWrite)
	const head = `{"specversion":"1.0","source":"/s","type":"order.paid","id":`
	post := func(body string) answer { return s.do(key, "POST", "/v1/events", body, "Content-Type", cloudJSON) }
	post(head+`"a","tenantid":"other"}`).refused(403, surehook.Forbidden, "")
	if a := post(head + `"a","data":{"n":1}}`); a.Status != 202 {
		t.Errorf("%s", a.Raw)
	}
	if a := s.admin("PUT", "/v1/event-types/order.paid", `{"schema":{"type":"object","required":["n"]},"validate":true}`); a.Status >= 300 {
		t.Fatalf("%s", a.Raw)
	}
	post(head+`"b","data":{}}`).refused(400, surehook.InvalidRequest, "")
	if a := post(head + `"b","data":{"n":1}}`); a.Status != 202 {
		t.Errorf("%s", a.Raw)
	}
}
