package api_test

import (
	"strings"
	"testing"

	"github.com/surehook/surehook"
)

// A schema that can't be used is refused with the reason and the place, and
// never with a path of the server's own.
func TestSchemasAreRefusedWithReasonAndPlace(t *testing.T) {
	s := open(t)
	for schema, want := range map[string]string{
		`{"properties":{"total":{"type":"strng"}}}`:       "/properties/total/type must be ",
		`{"properties":{"a/b":{"minLength":"x"}}}`:        "/properties/a~1b/minLength must be of type integer, and is string",
		`{"required":"n"}`:                                "/required must be of type array, and is string",
		`{"items":{"pattern":"(s3cret"}}`:                 "/items/pattern isn't a regular expression of Go's kind: missing closing )",
		`{"patternProperties":{"(s3cret":{}}}`:            "isn't a regular expression",
		`{"properties":{"a":{"$ref":"#/$defs/nowhere"}}}`: "/properties/a/$ref refers to a place that isn't in this schema",
		`{"properties":{"a":{"$ref":"#nowhere"}}}`:        "/properties/a/$ref refers to an anchor that isn't in this schema",
		`{"properties":{"a":{"$ref":"other.json"}}}`:      "/properties/a/$ref refers to another document",
		`{"$schema":"http://127.0.0.1:1/x"}`:              "/$schema ",
		`{"properties":{"a":{"maximum":1e999999999}}}`:    "/properties/a/maximum is a number that is too large",
		`"x"`:          "/ must be of type",
		`{"anyOf":[]}`: "/anyOf must not be empty",
		`{"$id":"a","$defs":{"x":{"$id":"b#c"}}}`:                         "$id",
		`{"enum":[1],"properties":{"a":{"type":7},"b":{"maxLength":-1}}}`: "; /properties/b/maxLength is too small",
	} {
		a := s.admin("PUT", "/v1/event-types/a", `{"validate":true,"schema":`+schema+`}`)
		if a.refused(400, surehook.InvalidRequest, "schema"); !strings.Contains(string(a.Raw), want) {
			t.Errorf("%s: misses %q: %s", schema, want, a.Raw)
		}
		if raw := string(a.Raw); strings.Contains(raw, "file:") || strings.Contains(raw, "s3cret: ") || strings.Contains(raw, "surehook/internal") {
			t.Errorf("%s: %s", schema, raw)
		}
	}
}

func TestDocsWithASlash(t *testing.T) {
	s := open(t)
	if a := s.do("", "GET", "/docs/", ""); a.Status != 301 || a.Header.Get("Location") != "/docs" {
		t.Errorf("%d %v", a.Status, a.Header)
	}
	s.do("", "GET", "/docs/more", "").refused(404, surehook.NotFound, "")
}
