package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Problem is one fault of a file.
type Problem struct {
	Line    int    // 0: of the file as a whole
	Path    string // subscribers[0].retry.max_attempts
	Message string // never a value that may be secret
}

// Problems is everything that is wrong with a file.
type Problems struct {
	File string
	List []Problem

	files []string // that were read, as far as it came
}

func (p *Problems) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s can't be used:", p.File)
	for _, x := range p.List {
		b.WriteString("\n  ")
		if x.Line > 0 {
			fmt.Fprintf(&b, "line %d: ", x.Line)
		}
		if x.Path != "" {
			b.WriteString(x.Path + ": ")
		}
		b.WriteString(x.Message)
	}
	return b.String()
}

const (
	maxFile  = 4 << 20
	maxNodes = 500_000 // of the document, aliases counted each time
	maxDepth = 64
)

// parse reads a document into nodes that know their lines. JSON has its own
// reader: YAML's trips over tabs.
func parse(path string, text []byte) (*yaml.Node, *Problem) {
	text = bytes.TrimPrefix(text, []byte("\ufeff"))
	if strings.EqualFold(filepath.Ext(path), ".json") || json.Valid(text) {
		return parseJSON(text)
	}
	var doc yaml.Node
	d := yaml.NewDecoder(bytes.NewReader(text))
	switch err := d.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, &Problem{Message: "is empty; it needs sources and subscribers"}
	case err != nil:
		return nil, syntax(err)
	}
	if err := d.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return nil, &Problem{Message: "holds more than one document, or text behind the first that isn't YAML"}
	}
	if len(doc.Content) == 0 {
		return nil, &Problem{Message: "is empty; it needs sources and subscribers"}
	}
	root := doc.Content[0]
	if n := maxNodes; !bounded(root, &n, maxDepth) {
		return nil, &Problem{Message: fmt.Sprintf("is too large or nests too deeply (%d values, %d levels)", maxNodes, maxDepth)}
	}
	return root, nil
}

// bounded tells whether a document stays in bounds however often its aliases
// repeat parts of it.
func bounded(n *yaml.Node, left *int, depth int) bool {
	if *left--; *left < 0 || depth == 0 {
		return false
	}
	if n.Kind == yaml.AliasNode {
		return bounded(n.Alias, left, depth-1)
	}
	return !slices.ContainsFunc(n.Content, func(c *yaml.Node) bool { return !bounded(c, left, depth-1) })
}

var errorLine = regexp.MustCompile(`^yaml: line (\d+): `)

// syntax keeps the library's words, which name no values but anchors and tags.
func syntax(err error) *Problem {
	text := err.Error()
	if m := errorLine.FindStringSubmatch(text); m != nil {
		line, _ := strconv.Atoi(m[1])
		return &Problem{Line: line, Message: "isn't valid YAML: " + text[len(m[0]):]}
	}
	return &Problem{Message: "isn't valid YAML: " + strings.TrimPrefix(text, "yaml: ")}
}

// parseJSON makes the same nodes of a JSON document.
func parseJSON(text []byte) (*yaml.Node, *Problem) {
	line := func(offset int64) int { return 1 + bytes.Count(text[:min(int(offset), len(text))], []byte("\n")) }
	var whole json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		at := int64(len(text))
		if e, ok := errors.AsType[*json.SyntaxError](err); ok {
			at = e.Offset
		}
		return nil, &Problem{Line: line(at), Message: "isn't valid JSON: " + err.Error()}
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	token := func() (json.Token, int, error) {
		t, err := d.Token()
		return t, line(d.InputOffset()), err
	}
	left := maxNodes
	n, err := jsonNode(token, d.More, &left, maxDepth)
	if err != nil {
		return nil, &Problem{Line: line(d.InputOffset()), Message: "isn't a document that can be used: " + err.Error()}
	}
	return n, nil
}

func jsonNode(token func() (json.Token, int, error), more func() bool, left *int, depth int) (*yaml.Node, error) {
	t, line, err := token()
	if err != nil {
		return nil, err
	}
	if *left--; *left < 0 || depth == 0 {
		return nil, errors.New("it is too large or nests too deeply")
	}
	n := &yaml.Node{Kind: yaml.ScalarNode, Line: line}
	switch v := t.(type) {
	case json.Delim:
		n.Kind, n.Tag = yaml.SequenceNode, "!!seq"
		if v == '{' {
			n.Kind, n.Tag = yaml.MappingNode, "!!map"
		}
		for more() {
			c, err := jsonNode(token, more, left, depth-1)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, c)
		}
		_, _, err = token()
		return n, err
	case string:
		n.Tag, n.Value = "!!str", v
	case json.Number:
		n.Tag, n.Value = "!!float", v.String()
		if _, err := v.Int64(); err == nil {
			n.Tag = "!!int"
		}
	case bool:
		n.Tag, n.Value = "!!bool", strconv.FormatBool(v)
	default:
		n.Tag = "!!null"
	}
	return n, nil
}
