package audit

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFilter(t *testing.T) {
	block := &Event{Action: Block, Rule: "injection/sqli", Severity: High, WouldBlock: []string{"reputation/rate_limited"}, Labels: map[string]string{"tenant": "acme", "empty": ""}}
	allow := &Event{Action: Allow, WouldBlock: []string{"structural/header", "injection/xss"}}
	for i, c := range []struct {
		f            Filter
		block, allow bool
	}{
		{Filter{}, true, true},
		{Filter{SeverityMin: Low}, true, false}, // an allowed request has no severity
		{Filter{SeverityMin: High}, true, false},
		{Filter{SeverityMin: Critical}, false, false},
		{Filter{RulePattern: "injection/*"}, true, true},
		{Filter{RulePattern: "injection/sqli"}, true, false},
		{Filter{RulePattern: "reputation/*"}, false, false}, // a blocked request goes by the rule that blocked it
		{Filter{RulePattern: "*"}, true, true},
		{Filter{RulePattern: "*header"}, false, true},
		{Filter{RulePattern: "inject?on/sqli"}, false, false},
		{Filter{Labels: map[string]string{"tenant": "acme"}}, true, false},
		{Filter{Labels: map[string]string{"tenant": "acme", "empty": ""}}, true, false},
		{Filter{Labels: map[string]string{"tenant": "acme", "missing": ""}}, false, false},
		{Filter{Labels: map[string]string{"tenant": "ACME"}}, false, false},
		{Filter{Labels: map[string]string{"tenant": "acme"}, SeverityMin: Critical, RulePattern: "*"}, false, false},
	} {
		if got := c.f.Match(block); got != c.block {
			t.Errorf("%d: block %v", i, got)
		}
		if got := c.f.Match(allow); got != c.allow {
			t.Errorf("%d: allow %v", i, got)
		}
	}
	if (&Filter{RulePattern: "*"}).Match(&Event{Action: Block}) {
		t.Error("a pattern matched an event without a rule")
	}
}

// The wildcard against regular expressions, which say the same otherwise.
func TestWild(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*.]{0,8}`).Draw(t, "pattern")
		s := rapid.StringMatching(`[ab.]{0,10}`).Draw(t, "text")
		re := regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(pattern), `\*`, ".*") + "$")
		if got, want := wild(pattern, s), re.MatchString(s); got != want {
			t.Fatalf("wild(%q, %q) is %v", pattern, s, got)
		}
	})
}

func TestSeverity(t *testing.T) {
	for i, name := range []string{"low", "medium", "high", "critical"} {
		if s, err := ParseSeverity(name); err != nil || s != Severity(i+1) || s.String() != name {
			t.Errorf("%s: %v %v", name, s, err)
		}
	}
	for _, name := range []string{"", "High", "none"} {
		if s, err := ParseSeverity(name); err == nil || s != NoSeverity {
			t.Errorf("%q: %v", name, s)
		}
	}
	if NoSeverity.String() != "" || fmt.Sprint(Severity(9)) == "" {
		t.Error("names")
	}
}

func TestAdd(t *testing.T) {
	ev := &Event{}
	if !ev.Add("a", "1") || ev.Add("a", "2") || ev.Labels["a"] != "1" {
		t.Error("a label that is there stays")
	}
	if ev.Add("purple_wolf.a", "1") || ev.Add("A", "1") || ev.Add("b", strings.Repeat("v", 1025)) {
		t.Error("a label broke a rule")
	}
	for i := range 40 {
		ev.Add(fmt.Sprintf("k%d", i), "v")
	}
	if len(ev.Labels) != MaxLabels {
		t.Errorf("%d labels", len(ev.Labels))
	}
	heavy := &Event{}
	for i := range 5 {
		heavy.Add(fmt.Sprintf("k%d", i), strings.Repeat("v", 1000))
	}
	if len(heavy.Labels) != 4 {
		t.Errorf("%d heavy labels", len(heavy.Labels))
	}
}
