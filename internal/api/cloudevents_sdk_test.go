package api_test

import (
	"bytes"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cloudevents/sdk-go/v2/binding"
	"github.com/cloudevents/sdk-go/v2/event"
	cehttp "github.com/cloudevents/sdk-go/v2/protocol/http"
	"github.com/cloudevents/sdk-go/v2/types"
	"pgregory.net/rapid"

	"github.com/surehook/surehook/internal/receivertest"
)

// The official SDK is the oracle: what it sends in either mode, it reads again,
// the same, from what an endpoint gets.
func TestCloudEventsOfTheSDKComeThrough(t *testing.T) {
	s := open(t)
	r := receivertest.New(t, nil)
	s.hook(`{"url":"` + r.URL + `","envelope":"cloudevents"}`)
	sent := map[string]event.Event{}
	rapid.Check(t, func(t *rapid.T) {
		e := anyCloudEvent(t, fmt.Sprint("sdk:", len(sent)))
		structured := rapid.Bool().Draw(t, "structured")
		if !structured && strings.ContainsAny(e.Source()+e.Subject()+fmt.Sprint(e.Extensions()), `%"`) {
			structured = true // the SDK sends headers without percent-encoding, and quoted strings as they are
		}
		body, header := written(t, e, structured)
		if a := s.admin("POST", "/v1/events", body, header...); a.Status != http.StatusAccepted {
			t.Fatalf("%v\n%s\n%d %s", header, body, a.Status, a.Raw)
		}
		sent[e.ID()] = e
	})
	for _, got := range r.Wait(t, len(sent)) {
		m := cehttp.NewMessage(http.Header{"Content-Type": {got.Get("Content-Type")}}, io.NopCloser(bytes.NewReader(got.Body)))
		back, err := binding.ToEvent(t.Context(), m)
		if err != nil {
			t.Errorf("%v: %s", err, got.Body)
			continue
		}
		if want := sent[got.ID()]; describe(t, *back) != describe(t, want) {
			t.Errorf("%s\nwas\n%s\nand is\n%s", got.Body, describe(t, want), describe(t, *back))
		}
	}
}

// anyCloudEvent draws an event that the SDK takes for valid.
func anyCloudEvent(t *rapid.T, id string) event.Event {
	text := rapid.StringMatching(`[ -~äé€😀]{0,20}[!-~]`)
	e := event.New()
	e.SetID(id)
	e.SetType(rapid.StringMatching(`[a-z][a-zA-Z0-9_-]{0,9}(\.[a-zA-Z0-9_-]{1,9}){0,3}`).Draw(t, "type"))
	e.SetSource(rapid.SampledFrom([]string{"/", "urn:x:y", "https://e.example/a?b=c&d=%20#f", "surehook", "mailto:a@e.example", "//host/ä"}).Draw(t, "source"))
	if rapid.Bool().Draw(t, "has subject") {
		e.SetSubject(text.Draw(t, "subject"))
	}
	if rapid.Bool().Draw(t, "has time") {
		e.SetTime(time.Unix(rapid.Int64Range(0, 4e9).Draw(t, "time"), rapid.Int64Range(0, 999999999).Draw(t, "ns")).UTC())
	}
	if rapid.Bool().Draw(t, "has schema") {
		e.SetDataSchema("https://e.example/schema.json")
	}
	extensions := map[string]func() any{
		"summary": func() any { return text.Draw(t, "summary") },
		"subjects": func() any {
			return rapid.SampledFrom([]string{"github:o/r#7,github:o/r,github:o", "a", "a, b"}).Draw(t, "subjects")
		},
		"terminal": func() any { return rapid.Bool().Draw(t, "terminal") },
		"seq":      func() any { return rapid.Int32Range(0, 1<<31-1).Draw(t, "seq") },
		"number":   func() any { return rapid.Int32().Draw(t, "number") },
		"flag":     func() any { return rapid.Bool().Draw(t, "flag") },
		"x0":       func() any { return text.Draw(t, "x0") },
	}
	for _, name := range slices.Sorted(maps.Keys(extensions)) {
		if rapid.Bool().Draw(t, "has "+name) {
			e.SetExtension(name, extensions[name]())
		}
	}
	anyData(t, &e, text)
	if err := e.Validate(); err != nil {
		t.Fatal(err)
	}
	return e
}

func anyData(t *rapid.T, e *event.Event, text *rapid.Generator[string]) {
	set := func(media string, data []byte) {
		if err := e.SetData(media, data); err != nil {
			t.Fatal(err)
		}
	}
	switch rapid.IntRange(0, 5).Draw(t, "data") {
	case 0:
	case 1:
		set("application/json", []byte(rapid.SampledFrom([]string{`{"a": [1, "}"]}`, `null`, `"x"`, `1e400`, `[ ]`, "{\"\":\"\u2028\"}"}).Draw(t, "json")))
	case 2:
		set("application/json; charset=utf-8", []byte(`{"n":12345678901234567890}`))
	case 3:
		set("text/plain", []byte(text.Draw(t, "text")))
	case 4:
		set("application/xml", []byte(`<a b="c">&lt;é</a>`))
	case 5:
		set("application/octet-stream", rapid.SliceOfN(rapid.Byte(), 1, 40).Draw(t, "bytes"))
		e.DataBase64 = true
	}
}

// written is how the SDK sends an event.
func written(t *rapid.T, e event.Event, structured bool) (body string, header []string) {
	ctx := binding.WithForceBinary(t.Context())
	if structured {
		ctx = binding.WithForceStructured(t.Context())
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://surehook.example/v1/events", nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := cehttp.WriteRequest(ctx, binding.ToMessage(&e), req); err != nil {
		t.Fatal(err)
	}
	if req.Body != nil {
		b, err := io.ReadAll(req.Body)
		if err != nil {
			t.Fatal(err)
		}
		body = string(b)
	}
	for name, v := range req.Header {
		header = append(header, name, v[0])
	}
	return body, header
}

// describe puts an event in words, with extensions as text: headers have no types.
func describe(t testing.TB, e event.Event) string {
	t.Helper()
	if err := e.Validate(); err != nil {
		t.Error(err)
	}
	out := fmt.Sprintf("%s %s %s %q %s %s %s %x", e.ID(), e.Source(), e.Type(), e.Subject(), e.Time().Format(time.RFC3339Nano), e.DataContentType(), e.DataSchema(), e.Data())
	for _, name := range slices.Sorted(maps.Keys(e.Extensions())) {
		v, err := types.Format(e.Extensions()[name])
		if err != nil {
			t.Error(err)
		}
		if name == "subjects" {
			v = strings.ReplaceAll(v, ", ", ",")
		}
		out += fmt.Sprintf(" %s=%q", name, v)
	}
	return out
}

// What the SDK refuses in a structured event is refused here.
func TestCloudEventsThatTheSDKRefuses(t *testing.T) {
	s := open(t)
	refused := 0
	for i, members := range []string{``, `"id":"ID"`, `"id":"ID","source":"/s"`, `"id":"ID","source":"/s","type":"a"`, `"id":"ID","source":"","type":"a"`, `"id":"ID","source":"/s","type":""`, `"id":" ","source":"/s","type":"a"`,
		`"id":"ID","source":"/s","type":"a","time":"x"`, `"id":"ID","source":"/s","type":"a","time":"2026-01-31"`, `"id":"ID","source":"/s","type":"a","x":{}`, `"id":"ID","source":"/s","type":"a","x":[]`,
		`"id":"ID","source":"/s","type":"a","x":3000000000`, `"id":"ID","source":"/s","type":"a","a_b":"c"`, `"id":"ID","source":"/s","type":"a","datacontenttype":"a b"`,
		`"id":"ID","source":"/s","type":"a","data_base64":"?"`, `"id":"ID","source":"/s","type":"a","datacontenttype":"text/plain","data":{}`, `"id":"ID","source":":","type":"a"`, `"id":"ID","source":"/s","type":"a","subject":" "`,
		`"id":"ID","source":"/s","type":"a","x":true,"y":-1,"z":""`, `"id":"ID","source":"/s","type":"a","data":null`, `"id":"ID","source":"/s","type":"a","datacontenttype":"text/plain","data":"a"`} {
		for _, version := range []string{`"1.0"`, `"2.0"`, `1`, ``} {
			body := `{` + strings.ReplaceAll(members, "ID", fmt.Sprint("r", i)) + `}`
			if version != "" {
				body = strings.Replace(body, "{", `{"specversion":`+version+",", 1)
				body = strings.Replace(body, ",}", "}", 1)
			}
			var e event.Event
			err := e.UnmarshalJSON([]byte(body))
			if err == nil {
				err = e.Validate()
			}
			if err != nil {
				refused++
			}
			if a := s.cloud(body); (a.Status == http.StatusAccepted) != (err == nil) {
				t.Errorf("%s\nthe SDK says %v, and we %d %s", body, err, a.Status, a.Raw)
			}
		}
	}
	if refused < 60 {
		t.Errorf("the SDK refused %d only", refused)
	}
}
