package client_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/surehook/surehook/client"
)

// publishLines gives what became of each line.
func publishLines(t *testing.T, c *client.Client, text string) []client.Line {
	t.Helper()
	var all []client.Line
	if err := c.PublishLines(t.Context(), strings.NewReader(text), func(lines []client.Line) error {
		all = append(all, lines...)
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

// A line that is refused stops nothing, whoever refuses it.
func TestRefusedLinesStopNothing(t *testing.T) {
	_, c := start(t)
	const good = `{"type":"a","data":1}`
	for bad, why := range map[string]string{
		`{"type":"a"}`:                           "no data",
		`{"type":"a","data":1,"tennant_id":"x"}`: `"tennant_id" is not a field`,
		`[]`:                                     "must be an object", `null`: "no data", `7`: "must be an object",
		`{`: "JSON at column 2", `{"type":"a","data":1} {}`: "JSON at column 23",
		"{\"type\":\"a\",\"data\":\"\xff\"}":                        "UTF-8",
		`{"type":7,"data":1}`:                                       "type must be a text",
		`{"type":"a","subjects":"x","data":1}`:                      "subjects must be a list",
		`{"type":"a b","data":1}`:                                   "type: must be dotted names",
		`{"type":"a","id":"x y","data":1}`:                          "id: ",
		`{"type":"a","data":"` + strings.Repeat("x", 16<<20) + `"}`: "over 16 MiB",
		`{"type":"a","data":"` + strings.Repeat("x", 2<<20) + `"}`:  "",
	} {
		lines := publishLines(t, c, good+"\n\n"+bad+"\n"+good)
		if len(lines) != 3 || lines[0].Receipt == nil || lines[2].Receipt == nil || lines[1].Error == nil || lines[1].Receipt != nil {
			t.Errorf("%.60s: %d lines", bad, len(lines))
			continue
		}
		if lines[0].N != 1 || lines[1].N != 3 || lines[2].N != 4 || !strings.Contains(lines[1].Error.Message, why) || strings.Contains(lines[1].Error.Message, "events[") {
			t.Errorf("%.60s: %d %d %d: %s", bad, lines[0].N, lines[1].N, lines[2].N, lines[1].Error.Message)
		}
	}
	if lines := publishLines(t, c, ""); len(lines) != 0 {
		t.Errorf("%+v", lines)
	}
}

func TestALineAsJSON(t *testing.T) {
	for want, l := range map[string]client.Line{
		`{"line":2,"id":"e","duplicate":true,"deliveries":0}`: {N: 2, Receipt: &client.Receipt{ID: "e", Duplicate: true}},
		`{"line":3,"error":{"code":"c","message":"m"}}`:       {N: 3, Error: &client.BatchError{Code: "c", Message: "m"}},
	} {
		if got, err := json.Marshal(l); err != nil || string(got) != want {
			t.Errorf("%s, %v", got, err)
		}
	}
}

// Large lines make small batches.
func TestLargeLinesMakeSmallBatches(t *testing.T) {
	c, bodies := busy(t, 0)
	line := `{"type":"a","data":"` + strings.Repeat("x", 5<<20) + `"}` + "\n"
	if lines := publishLines(t, c, strings.Repeat(line, 3)); len(lines) != 3 || len(bodies()) != 3 {
		t.Errorf("%d lines in %d batches", len(lines), len(bodies()))
	}
}

// When the server has gone, it is told which lines were done.
func TestLinesUntilTheServerGoes(t *testing.T) {
	s, c := start(t)
	var text strings.Builder
	for i := range 700 {
		fmt.Fprintf(&text, "{\"type\":\"a\",\"data\":%d}\n", i)
	}
	n := 0
	err := c.PublishLines(t.Context(), strings.NewReader("no\n"+text.String()), func(lines []client.Line) error {
		if n += len(lines); n == 500 {
			s.CloseClientConnections()
			s.Close()
		}
		return nil
	})
	if _, ok := errors.AsType[*client.ReachError](err); !ok || n != 500 {
		t.Errorf("%d lines, %v", n, err)
	}
}

func TestWhereJSONBreaks(t *testing.T) {
	for text, want := range map[string][2]int{
		"{\"a\":1,}": {1, 8}, "{\n  \"ä\": nope\n}": {2, 9}, "[1,\n2": {2, 2}, "": {1, 1}, "1 2": {1, 3}, "\"\xff\"": {1, 2}, "'a'": {1, 1}, "{\"a\":": {1, 6},
	} {
		e, ok := errors.AsType[*client.JSONError](client.CheckJSON([]byte(text)))
		if !ok || e.Line != want[0] || e.Column != want[1] || e.Reason == "" {
			t.Errorf("%q: %+v", text, e)
		}
	}
	for _, text := range []string{"1", " {\"a\": [1e400, null]}\n", `"ä"`} {
		if err := client.CheckJSON([]byte(text)); err != nil {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// What the server says about a permission reaches the caller.
func TestAProblemTellsWhichPermissionIsMissing(t *testing.T) {
	s, c := start(t)
	k := must[client.Key](t)(c.CreateKey(t.Context(), client.KeyInput{TenantID: "acme", Permissions: []string{"read"}}))
	limited := must[*client.Client](t)(client.New(s.URL, k.Key))
	_, err := limited.Publish(t.Context(), client.Event{Type: "a", Data: json.RawMessage("1")})
	if p, ok := errors.AsType[*client.Problem](err); !ok || p.Details.Required != "events:write" {
		t.Errorf("%+v", err)
	}
	_, err = limited.Tenant(t.Context(), "acme")
	if p, ok := errors.AsType[*client.Problem](err); !ok || p.Details.Scope != "platform" {
		t.Errorf("%+v", err)
	}
}

// An answer that makes no sense is no refusal: what was asked may be done.
func TestAnAnswerThatIsntUnderstood(t *testing.T) {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>") }))
	defer s.Close()
	c := must[*client.Client](t)(client.New(s.URL, key))
	_, err := c.Publish(t.Context(), client.Event{Type: "a", Data: json.RawMessage("1")})
	if _, ok := errors.AsType[*client.AnswerError](err); !ok || strings.Contains(err.Error(), "json:") {
		t.Errorf("%v", err)
	}
}
