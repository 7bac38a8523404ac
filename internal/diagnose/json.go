package diagnose

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
)

// value is JSON with its members in their order and its numbers as written.
type value struct {
	kind    byte // { [ " 0 and a literal's first letter
	text    string
	names   []string
	members []value
}

// parse reads one JSON value and nothing after it.
func parse(b []byte) (value, bool) {
	d := json.NewDecoder(bytes.NewReader(b))
	d.UseNumber()
	v, err := read(d, 0)
	if err != nil {
		return v, false
	}
	_, err = d.Token()
	return v, errors.Is(err, io.EOF)
}

const deepest = 200

func read(d *json.Decoder, depth int) (value, error) {
	tok, err := d.Token()
	if err != nil || depth > deepest {
		return value{}, errors.Join(err, errors.New("too deep"))
	}
	switch t := tok.(type) {
	case json.Delim:
		v := value{kind: byte(t)}
		for d.More() {
			if t == '{' {
				name, err := d.Token()
				if err != nil {
					return v, err
				}
				text, _ := name.(string)
				v.names = append(v.names, text)
			}
			m, err := read(d, depth+1)
			if err != nil {
				return v, err
			}
			v.members = append(v.members, m)
		}
		_, err := d.Token()
		return v, err
	case string:
		return value{kind: '"', text: t}, nil
	case json.Number:
		return value{kind: '0', text: t.String()}, nil
	case bool:
		return value{kind: 'b', text: strconv.FormatBool(t)}, nil
	}
	return value{kind: 'n', text: "null"}, nil
}

// style is how a library writes JSON.
type style struct {
	name         string
	comma, colon string
	indent       string
	sorted       bool
	ascii        string // fmt of what isn't ASCII: x, X, or empty for as it is
	escaped      string // more characters that are written as \u00xx, in that fmt
	slash        bool   // / as \/
	number       func(string) string
}

var styles = []style{
	{name: "JavaScript's JSON.stringify", comma: ",", colon: ":", number: jsNumber},
	{name: "a compact writer (Ruby, Jackson, Rust)", comma: ",", colon: ":"},
	{name: "Python's json.dumps", comma: ", ", colon: ": ", ascii: "x", number: pyNumber},
	{name: "Python's json.dumps with ensure_ascii=False", comma: ", ", colon: ": ", number: pyNumber},
	{name: "Python's json.dumps with compact separators", comma: ",", colon: ":", ascii: "x", number: pyNumber},
	{name: "Python's compact json.dumps with ensure_ascii=False", comma: ",", colon: ":", number: pyNumber},
	{name: "Python's json.dumps with sort_keys", comma: ", ", colon: ": ", ascii: "x", sorted: true, number: pyNumber},
	{name: "a compact writer that sorts names", comma: ",", colon: ":", sorted: true},
	{name: "a writer with blanks after commas and colons", comma: ", ", colon: ": "},
	{name: "Go's json.Marshal", comma: ",", colon: ":", escaped: "<>&\u2028\u2029", ascii: ""},
	{name: "Go's json.Marshal of a map", comma: ",", colon: ":", escaped: "<>&\u2028\u2029", sorted: true, number: jsNumber},
	{name: "PHP's json_encode", comma: ",", colon: ":", ascii: "x", slash: true},
	{name: "PHP's json_encode with JSON_UNESCAPED_SLASHES", comma: ",", colon: ":", ascii: "x"},
	{name: "PHP's json_encode with JSON_UNESCAPED_UNICODE", comma: ",", colon: ":", slash: true},
	{name: ".NET's System.Text.Json", comma: ",", colon: ":", ascii: "X", escaped: "<>&'+`\""},
	{name: "a writer with an indent of two blanks", comma: ",", colon: ": ", indent: "  "},
	{name: "a writer with an indent of four blanks", comma: ",", colon: ": ", indent: "    "},
	{name: "a writer with an indent of tabs", comma: ",", colon: ": ", indent: "\t"},
	{name: "Python's json.dumps with indent=2", comma: ",", colon: ": ", indent: "  ", ascii: "x", number: pyNumber},
	{name: "Python's json.dumps with indent=4", comma: ",", colon: ": ", indent: "    ", ascii: "x", number: pyNumber},
}

func (s style) write(v value) []byte {
	var b bytes.Buffer
	s.put(&b, v, "")
	return b.Bytes()
}

func (s style) put(b *bytes.Buffer, v value, margin string) {
	switch v.kind {
	case '{', '[':
		s.list(b, v, margin)
	case '"':
		s.quote(b, v.text)
	case '0':
		if s.number != nil {
			b.WriteString(s.number(v.text))
		} else {
			b.WriteString(v.text)
		}
	default:
		b.WriteString(v.text)
	}
}

func (s style) list(b *bytes.Buffer, v value, margin string) {
	order := make([]int, len(v.members))
	for i := range order {
		order[i] = i
	}
	if s.sorted && v.kind == '{' {
		slices.SortStableFunc(order, func(i, j int) int { return strings.Compare(v.names[i], v.names[j]) })
	}
	b.WriteByte(v.kind)
	inner := margin + s.indent
	for n, i := range order {
		if n > 0 {
			b.WriteString(s.comma)
		}
		if s.indent != "" {
			b.WriteString("\n" + inner)
		}
		if v.kind == '{' {
			s.quote(b, v.names[i])
			b.WriteString(s.colon)
		}
		s.put(b, v.members[i], inner)
	}
	if s.indent != "" && len(order) > 0 {
		b.WriteString("\n" + margin)
	}
	b.WriteByte(v.kind + 2) // } follows { by two, and ] follows [
}

var short = map[rune]string{'\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`, '\\': `\\`, '"': `\"`}

func (s style) quote(b *bytes.Buffer, text string) {
	b.WriteByte('"')
	for _, r := range text {
		known, isShort := short[r]
		switch {
		case strings.ContainsRune(s.escaped, r), r < 0x20 && !isShort, r > 0x7e && s.ascii != "":
			s.escape(b, r)
		case isShort:
			b.WriteString(known)
		case r == '/' && s.slash:
			b.WriteString(`\/`)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
}

func (s style) escape(b *bytes.Buffer, r rune) {
	units := []rune{r}
	if hi, lo := utf16.EncodeRune(r); r > 0xffff {
		units = []rune{hi, lo}
	}
	for _, u := range units {
		digits := strconv.FormatInt(int64(u), 16)
		if s.ascii == "X" {
			digits = strings.ToUpper(digits)
		}
		b.WriteString(`\u` + strings.Repeat("0", 4-len(digits)) + digits)
	}
}

// jsNumber writes a number as JavaScript and Go's float64 do.
func jsNumber(s string) string {
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	format := byte('f')
	if a := max(f, -f); a != 0 && (a < 1e-6 || a >= 1e21) {
		format = 'e'
	}
	out := strconv.FormatFloat(f, format, -1, 64)
	if format == 'e' { // e-09 is e-9 there
		mantissa, exp, _ := strings.Cut(out, "e")
		out = mantissa + "e" + exp[:1] + strings.TrimLeft(exp[1:], "0")
	}
	return out
}

// pyNumber writes a number as Python does: integers stay, floats have a point.
func pyNumber(s string) string {
	if !strings.ContainsAny(s, ".eE") {
		return s
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil {
		return s
	}
	if a := max(f, -f); a != 0 && (a < 1e-4 || a >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	out := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(out, ".") {
		out += ".0"
	}
	return out
}
