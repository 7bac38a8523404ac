package surehook

import (
	"strings"
	"testing"
)

func TestMatchGlob(t *testing.T) {
	for _, c := range []struct {
		glob, text string
		want       bool
	}{
		{"", "", true}, {"", "a", false}, {"a", "", false}, {"*", "", true}, {"*", "github.pull_request.closed", true},
		{"github.*", "github.pull_request.closed", true}, {"github.*", "github", false}, {"github*", "github", true},
		{"github.*.closed", "github.pull_request.closed", true}, {"github.*.closed", "github.pull_request.closed.x", false},
		{"*.closed", "github.pull_request.closed", true}, {"*closed*", "closed", true}, {"a*b*c", "aXbXbXc", true}, {"a*b*c", "aXbXbX", false},
		{"a?c", "abc", false}, {"A", "a", false}, {"**", "x", true}, {"a**", "a", true},
	} {
		if got := MatchGlob(c.glob, c.text); got != c.want {
			t.Errorf("%q matches %q: %v", c.glob, c.text, got)
		}
	}
	// A glob that would take for ever if it were tried in every way.
	if MatchGlob(strings.Repeat("a*", 60)+"b", strings.Repeat("a", 128)) {
		t.Error("there is no b")
	}
}

func TestClause(t *testing.T) {
	c := Clause{Subject: "github:o/r*", Types: []string{"github.check_suite.*", "x"}}
	for subject, want := range map[string]bool{"github:o/r": true, "github:o/r#7": true, "github:o/rs": true, "github:o": false, "": false} {
		if c.MatchesSubject(subject) != want {
			t.Errorf("%q: %v", subject, !want)
		}
	}
	for typ, want := range map[string]bool{"github.check_suite.completed": true, "x": true, "y": false, "github.check_suite": false} {
		if c.MatchesType(typ) != want {
			t.Errorf("%q: %v", typ, !want)
		}
	}
	if c := (Clause{Subject: "a"}); !c.MatchesType("anything") || c.MatchesSubject("ab") || !c.MatchesSubject("a") {
		t.Error("exact, or any type")
	}
}

func TestTerminal(t *testing.T) {
	for want, ext := range map[bool]map[string]any{true: {"terminal": true}, false: {"terminal": "true"}} {
		ev := Event{Data: CloudEvent{Source: "s", Extensions: ext, Content: []byte(`{"terminal":true}`)}.Form()}
		if ev.Terminal() != want {
			t.Errorf("%v: %v", ext, !want)
		}
	}
	if (&Event{Data: []byte(`{"terminal":true}`)}).Terminal() {
		t.Error("other data says nothing of it")
	}
}

func TestFoldSubject(t *testing.T) {
	for _, c := range []struct {
		clause, subject string
		want            bool
	}{
		{"github:octocat/hello-world#1", "github:Octocat/Hello-World#1", true},
		{"github:Octocat/Hello-*", "github:octocat/hello-world", true},
		{"GitHub:octocat/*", "github:octocat/x", true},
		{"github:octocat/hello-world#1", "github:octocat/hello-world#12", false},
		{"order:A", "order:a", false},
		{"order:A*", "order:a1", false},
		{"*", "anything", true},
		{"Git*", "github:x", false},
	} {
		if got := (Clause{Subject: c.clause}).MatchesSubject(c.subject); got != c.want {
			t.Errorf("%s and %s: %v", c.clause, c.subject, got)
		}
	}
}
