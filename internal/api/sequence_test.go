package api_test

import (
	"strings"
	"testing"
)

// An event shows its owner and its place among the owner's, alone and in listings.
func TestEventsShowTheirSequence(t *testing.T) {
	s := open(t)
	for _, body := range []string{`{"id":"a","type":"a.b","data":1,"owner":"o"}`, `{"id":"b","type":"a.b","data":1,"owner":"o"}`, `{"id":"c","type":"a.b","data":1}`} {
		if a := s.admin("POST", "/v1/events", body); a.Status != 202 {
			t.Fatalf("%s", a.Raw)
		}
	}
	for path, want := range map[string][]string{
		"/v1/events/a": {`"owner":"o","sequence":1,`},
		"/v1/events/b": {`"owner":"o","sequence":2,`},
		"/v1/events/c": {`"owner":null,"sequence":null,`},
		"/v1/events":   {`"owner":"o","sequence":1,`, `"owner":"o","sequence":2,`, `"owner":null,"sequence":null,`},
	} {
		a := s.admin("GET", path, "")
		for _, w := range want {
			if !strings.Contains(string(a.Raw), w) {
				t.Errorf("%s: no %s in %s", path, w, a.Raw)
			}
		}
	}
}
