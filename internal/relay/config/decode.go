package config

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// decoder collects what is wrong while it reads.
type decoder struct {
	bad []Problem
}

func (d *decoder) fault(n *yaml.Node, path, format string, args ...any) {
	line := 0
	if n != nil {
		line = n.Line
	}
	d.bad = append(d.bad, Problem{Line: line, Path: path, Message: fmt.Sprintf(format, args...)})
}

// value is one place of the file: its node, nil where the file says nothing (a
// null says as much), and its path.
type value struct {
	d    *decoder
	node *yaml.Node
	path string
}

func (v value) fault(format string, args ...any) { v.d.fault(v.node, v.path, format, args...) }

func (v value) given() bool { return v.node != nil }

func place(d *decoder, n *yaml.Node, path string) value {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	if n != nil && n.Kind == yaml.ScalarNode && n.Tag == "!!null" {
		n = nil
	}
	return value{d, n, path}
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

// fields reads a mapping and refuses what isn't known in it. The function that
// it gives finds a field by its name; all may be asked, also of a mapping that
// isn't there.
func (v value) fields(known ...string) func(name string) value {
	found := map[string]value{}
	if v.mapping() {
		for key, val := range v.pairs() {
			if !slices.Contains(known, key.Value) {
				v.d.fault(key, join(v.path, key.Value), "isn't a field%s", hint(key.Value, known))
				continue
			}
			found[key.Value] = place(v.d, val, join(v.path, key.Value))
		}
	}
	return func(name string) value {
		if f, ok := found[name]; ok {
			return f
		}
		return value{v.d, nil, join(v.path, name)}
	}
}

func (v value) mapping() bool {
	if v.given() && v.node.Kind != yaml.MappingNode {
		v.fault("must be a mapping of names to values")
		return false
	}
	return v.given()
}

// pairs gives a mapping's keys and values. A key that is no text, or comes twice,
// is a fault.
func (v value) pairs() func(yield func(key, val *yaml.Node) bool) {
	return func(yield func(key, val *yaml.Node) bool) {
		seen := map[string]int{}
		for i := 0; i+1 < len(v.node.Content); i += 2 {
			key, val := v.node.Content[i], v.node.Content[i+1]
			for key.Kind == yaml.AliasNode {
				key = key.Alias
			}
			switch {
			case key.Tag == "!!merge":
				v.d.fault(key, v.path, "merges with <<, which isn't supported; write the fields out")
				continue
			case key.Kind != yaml.ScalarNode || key.Tag != "!!str":
				v.d.fault(key, v.path, "holds a key that isn't text; put it in quotes")
				continue
			}
			if first := seen[key.Value]; first != 0 {
				v.d.fault(key, join(v.path, key.Value), "is there already, in line %d", first)
				continue
			}
			seen[key.Value] = key.Line
			if !yield(key, val) {
				return
			}
		}
	}
}

// hint names the known field that was meant, where one is near.
func hint(name string, known []string) string {
	best, least := "", 3
	for _, k := range known {
		if n := distance(name, k); n < least {
			best, least = k, n
		}
	}
	if best != "" {
		return "; did you mean " + best + "?"
	}
	return "; there are " + strings.Join(known, ", ")
}

// distance counts the letters to put in, take out or change.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		corner := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := corner
			if a[i] != b[j] {
				cost++
			}
			corner = row[j+1]
			row[j+1] = min(cost, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// list gives the entries of a sequence.
func (v value) list() []value {
	if !v.given() {
		return nil
	}
	if v.node.Kind != yaml.SequenceNode {
		v.fault("must be a list")
		return nil
	}
	out := make([]value, len(v.node.Content))
	for i, n := range v.node.Content {
		out[i] = place(v.d, n, fmt.Sprintf("%s[%d]", v.path, i))
		if !out[i].given() {
			v.d.fault(n, out[i].path, "is empty")
		}
	}
	return out
}

// text reads a text; "" where there is none.
func (v value) text() string {
	if !v.given() {
		return ""
	}
	if v.node.Kind != yaml.ScalarNode || v.node.Tag != "!!str" {
		v.fault("must be text; put a number or a word like yes in quotes")
		return ""
	}
	return v.node.Value
}

// required is text that must be there.
func (v value) required(parent value) string {
	if !v.given() {
		parent.d.fault(parent.node, v.path, "is required")
		return ""
	}
	s := v.text()
	if s == "" && v.node.Kind == yaml.ScalarNode && v.node.Tag == "!!str" {
		v.fault("is required")
	}
	return s
}

// number reads a whole number within bounds.
func (v value) number(low, high, otherwise int) int {
	if !v.given() {
		return otherwise
	}
	n, err := strconv.ParseInt(v.node.Value, 10, 64)
	if v.node.Kind != yaml.ScalarNode || v.node.Tag != "!!int" || err != nil || n < int64(low) || n > int64(high) {
		v.fault("must be a whole number from %d to %d", low, high)
		return otherwise
	}
	return int(n)
}

// flag reads true or false.
func (v value) flag(otherwise bool) bool {
	if !v.given() {
		return otherwise
	}
	b, err := strconv.ParseBool(strings.ToLower(v.node.Value))
	if v.node.Kind != yaml.ScalarNode || v.node.Tag != "!!bool" || err != nil {
		v.fault("must be true or false")
		return otherwise
	}
	return b
}

// texts reads a mapping of texts.
func (v value) texts() map[string]string {
	if !v.mapping() {
		return nil
	}
	out := make(map[string]string, len(v.node.Content)/2)
	for key, val := range v.pairs() {
		at := place(v.d, val, join(v.path, key.Value))
		if !at.given() {
			v.d.fault(val, at.path, "is empty")
			continue
		}
		out[key.Value] = at.text()
	}
	return out
}

// sortedKeys is for messages that come in one order.
func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
