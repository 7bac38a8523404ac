package audit

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/tidwall/gjson"
)

// Verdict is what a line turned out to be.
type Verdict uint8

// The verdicts.
const (
	Foreign   Verdict = iota // something else's line: most are
	Audit                    // an audit line
	Malformed                // meant to be one, but cut off or broken
)

// mark is the member that only purple-wolf's lines have.
const mark = "would_block_rules"

// Parser reads lines. It keeps a buffer, so each goroutine has its own; the zero
// value is ready.
type Parser struct {
	plain []byte // a line without its colours
}

// Parse reads a line, which it doesn't keep, and fills in what the line says of
// an event when the verdict is Audit. A line is anything, a JSON object, and
// key=value pairs; terminal colours don't count.
func (p *Parser) Parse(line []byte, ev *Event) Verdict {
	if !marked(line) { // nearly every line
		return Foreign
	}
	if bytes.IndexByte(line, escape) >= 0 {
		p.plain = appendPlain(p.plain[:0], line)
		line = p.plain
	}
	start := bytes.IndexByte(line, '{')
	if start < 0 {
		return Foreign
	}
	n := balanced(line[start:])
	if n == 0 {
		return broken(line[start:])
	}
	object, rest := line[start:start+n], line[start+n:]
	if !utf8.Valid(object) || !validJSON(object) {
		return broken(object)
	}
	if !ev.take(object) {
		return Foreign
	}
	ev.takeRest(rest)
	return Audit
}

// marked tells whether a member of that name may be in a line. JSON has another way
// to spell a name: letters as \u0061 and the like. No encoder writes them so, but
// many write \u0026, and such lines must cost nothing.
func marked(line []byte) bool {
	if bytes.Contains(line, []byte(mark+`"`)) { // a search for a quote would stop at every one
		return true
	}
	for {
		i := bytes.Index(line, []byte(`\u00`))
		if i < 0 || i+4 >= len(line) {
			return false
		}
		if c := line[i+4]; c >= '5' && c <= '7' { // _ and the small letters
			return true
		}
		line = line[i+5:]
	}
}

// broken judges an object that is none: one with the mark was meant to be an
// audit line's.
func broken(object []byte) Verdict {
	if bytes.Contains(object, []byte(`"`+mark+`"`)) {
		return Malformed
	}
	return Foreign
}

// balanced gives the length of the object at the start of b; 0: it doesn't end.
// Braces in strings don't count.
func balanced(b []byte) int {
	depth := 0
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '{':
			depth++
		case '}':
			if depth--; depth == 0 {
				return i + 1
			}
		case '"':
			n := stringEnd(b[i+1:])
			if n < 0 {
				return 0
			}
			i += n + 1
		}
	}
	return 0
}

// stringEnd finds the quote that ends a string; -1: there is none.
func stringEnd(b []byte) int {
	for i := 0; i < len(b); i++ {
		switch b[i] {
		case '"':
			return i
		case '\\':
			i++
		}
	}
	return -1
}

// validJSON is as the engine's own check: gjson is several times faster but
// recurses, so it gets only what can't nest deeply.
func validJSON(b []byte) bool {
	if len(b) <= 8<<10 {
		return gjson.ValidBytes(b)
	}
	return json.Valid(b)
}

// take reads a valid object, and tells whether it is an audit line's. Where a
// name comes twice the last one counts, as with most readers of JSON.
func (ev *Event) take(object []byte) bool {
	has := false
	var action, rule, severity, would, labels gjson.Result
	gjson.ParseBytes(object).ForEach(func(k, v gjson.Result) bool {
		switch k.Str {
		case mark:
			has, would = true, v
		case "action":
			action = v
		case "blocked_rule":
			rule = v
		case "blocked_severity":
			severity = v
		case "labels":
			labels = v
		}
		return true
	})
	if a := Action(action.Str); !has || action.Type != gjson.String || a != Block && a != Allow {
		return false
	}
	ev.JSON = bytes.Clone(object)
	ev.Action, ev.Rule = Action(action.Str), rule.Str
	ev.Severity, _ = ParseSeverity(severity.Str) // an unknown one is none
	ev.WouldBlock, ev.Labels = nil, nil
	if would.IsArray() {
		would.ForEach(func(_, v gjson.Result) bool {
			if v.Type == gjson.String {
				ev.WouldBlock = append(ev.WouldBlock, v.Str)
			}
			return true
		})
	}
	if labels.IsObject() {
		ev.takeLabels(labels)
	}
	return true
}

// takeLabels takes the labels that keep the rules. The others stay where they
// are, in the object.
func (ev *Event) takeLabels(labels gjson.Result) {
	size := 0
	labels.ForEach(func(k, v gjson.Result) bool {
		key, value := k.Str, v.Str
		if v.Type != gjson.String || CheckLabel(key, value) != nil {
			return true
		}
		old, had := ev.Labels[key]
		grown := size + len(value) - len(old)
		if !had {
			grown += len(key)
		}
		if grown > MaxLabelBytes || !had && len(ev.Labels) == MaxLabels {
			return true
		}
		if ev.Labels == nil {
			ev.Labels = make(map[string]string, 8)
		}
		ev.Labels[key], size = value, grown
		return true
	})
}

// takeRest reads what Traefik writes behind the object.
func (ev *Event) takeRest(rest []byte) {
	ev.Middleware, ev.Router, ev.EntryPoint = "", "", ""
	for len(rest) > 0 {
		key, value, more := pair(rest)
		rest = more
		switch key {
		case "middlewareName":
			first(&ev.Middleware, value, true)
		case "routerName":
			first(&ev.Router, value, true)
		case "entryPointName":
			first(&ev.EntryPoint, value, false)
		}
	}
}

// first keeps a value unless there is one, without its provider: strict@file is
// strict.
func first(to *string, value string, cut bool) {
	if cut {
		value, _, _ = strings.Cut(value, "@")
	}
	if *to == "" {
		*to = strings.ToValidUTF8(value, "\uFFFD")
	}
}

// pair takes the next word, key=value mostly. A value may be quoted.
func pair(b []byte) (key, value string, rest []byte) {
	b = bytes.TrimLeftFunc(b, unicode.IsSpace)
	end := bytes.IndexFunc(b, unicode.IsSpace)
	if end < 0 {
		end = len(b)
	}
	k, v, ok := bytes.Cut(b[:end], []byte("="))
	if !ok {
		return "", "", b[end:]
	}
	if len(v) > 0 && v[0] == '"' {
		quoted := b[len(k)+1:]
		if n := stringEnd(quoted[1:]); n >= 0 {
			if s, err := strconv.Unquote(string(quoted[:n+2])); err == nil {
				return string(k), s, quoted[n+2:]
			}
		}
	}
	return string(k), string(bytes.Trim(v, `"'`)), b[end:]
}
