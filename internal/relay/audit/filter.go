package audit

import (
	"slices"
	"strings"
)

// Filter says which events a subscriber gets: those that every part of it lets
// through. The zero Filter lets all through.
type Filter struct {
	Labels      map[string]string // each must be there with this value
	SeverityMin Severity          // an event without a severity is below every minimum
	// RulePattern is matched against the rule that blocked the request, or where it
	// was allowed against any rule that would have. * stands for any characters, also
	// none; nothing else is special. Empty: no such condition.
	RulePattern string
}

// Match tells whether the filter lets an event through.
func (f *Filter) Match(ev *Event) bool {
	for k, v := range f.Labels {
		if got, ok := ev.Labels[k]; !ok || got != v {
			return false
		}
	}
	if ev.Severity < f.SeverityMin {
		return false
	}
	return f.RulePattern == "" || f.rule(ev)
}

func (f *Filter) rule(ev *Event) bool {
	if ev.Rule != "" && wild(f.RulePattern, ev.Rule) {
		return true
	}
	return ev.Action == Allow && slices.ContainsFunc(ev.WouldBlock, func(r string) bool { return wild(f.RulePattern, r) })
}

// wild matches a whole text against a pattern, in which * stands for any
// characters. It takes time in proportion to the pattern's parts times the text
// at worst.
func wild(pattern, s string) bool {
	head, rest, ok := strings.Cut(pattern, "*")
	if !ok {
		return pattern == s
	}
	if s, ok = strings.CutPrefix(s, head); !ok {
		return false
	}
	for {
		part, more, ok := strings.Cut(rest, "*")
		if !ok {
			return strings.HasSuffix(s, rest)
		}
		i := strings.Index(s, part)
		if i < 0 {
			return false
		}
		s, rest = s[i+len(part):], more
	}
}
