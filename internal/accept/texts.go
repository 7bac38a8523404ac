package accept

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Bounds of the texts that are cut.
const (
	DefaultText = 16 << 10 // bytes of UTF-8
	MaxText     = 64 << 10
	maxFields   = 32
)

// Texts cuts long texts out of events' data: in fields that the operator names,
// to a number of bytes of UTF-8, between two characters. All other bytes stay as
// they are: white space, order, numbers, escapes.
type Texts struct {
	root *field
	max  int
}

// field is a name on the way to a text, or the text itself.
type field struct {
	below map[string]*field
	text  bool
}

// NewTexts reads names of fields, dotted from the top of the data:
// "extracted_text", "message.text". An array on the way stands for its elements.
func NewTexts(fields []string, most int) (Texts, error) {
	if most < 1 || most > MaxText {
		return Texts{}, fmt.Errorf("texts may be cut to 1 to %d bytes, not to %d", MaxText, most)
	}
	if len(fields) > maxFields {
		return Texts{}, fmt.Errorf("texts can be cut in %d fields at most", maxFields)
	}
	t := Texts{max: most}
	for _, f := range fields {
		if t.root == nil {
			t.root = &field{}
		}
		at := t.root
		for _, name := range strings.Split(f, ".") {
			if name == "" {
				return Texts{}, fmt.Errorf("%q doesn't name a field: give names with dots between them, from the top of the data", f)
			}
			if at.below == nil {
				at.below = make(map[string]*field)
			}
			if at.below[name] == nil {
				at.below[name] = &field{}
			}
			at = at.below[name]
		}
		at.text = true
	}
	return t, nil
}

// Cut gives data with its texts cut. data is one JSON value, and isn't changed;
// where there is nothing to cut, it is what is given back.
func (t Texts) Cut(data []byte) []byte {
	if t.root == nil || len(data) <= t.max {
		return data
	}
	c := cutter{data: data, max: t.max}
	c.value(t.root, true)
	if len(c.out) == 0 {
		return data
	}
	return append(c.out, data[c.kept:]...)
}

// cutter walks along the fields and skips everything else.
type cutter struct {
	data []byte
	i    int
	max  int
	out  []byte // what was kept before kept
	kept int
}

func (c *cutter) peek() byte {
	for c.i < len(c.data) {
		switch b := c.data[c.i]; b {
		case ' ', '\t', '\n', '\r':
			c.i++
		default:
			return b
		}
	}
	return 0
}

// value walks a value of a field. Arrays are looked into one deep.
func (c *cutter) value(f *field, arrays bool) {
	switch b := c.peek(); {
	case b == '"' && f.text:
		c.text()
	case b == '{' && f.below != nil:
		c.object(f)
	case b == '[' && arrays:
		c.list(func() { c.value(f, false) })
	default:
		c.skip()
	}
}

// list walks what stands between the brackets that begin here, with commas
// between.
func (c *cutter) list(item func()) {
	for c.i++; ; c.i++ {
		if b := c.peek(); b != ']' && b != '}' {
			item()
		}
		if c.peek() != ',' {
			c.i = min(c.i+1, len(c.data)) // the bracket
			return
		}
	}
}

func (c *cutter) object(f *field) {
	c.list(func() {
		start := c.i
		c.skip()
		name := c.data[start:c.i]
		if c.peek() != ':' {
			return
		}
		c.i++
		if below := f.below[unquoted(name)]; below != nil {
			c.value(below, true)
		} else {
			c.skip()
		}
	})
}

// unquoted is the name that a receiver reads.
func unquoted(raw []byte) string {
	if len(raw) < 2 {
		return ""
	}
	if s := string(raw[1 : len(raw)-1]); !strings.Contains(s, `\`) {
		return s
	}
	var s string
	if json.Unmarshal(raw, &s) != nil {
		return ""
	}
	return s
}

// skip passes a value.
func (c *cutter) skip() {
	c.peek()
	for depth := 0; c.i < len(c.data); {
		switch c.data[c.i] {
		case '"':
			for c.i++; c.i < len(c.data) && c.data[c.i] != '"'; c.i++ {
				if c.data[c.i] == '\\' {
					c.i++
				}
			}
			c.i = min(c.i+1, len(c.data))
		case '{', '[':
			depth++
			c.i++
		case '}', ']':
			if depth == 0 {
				return // of what it stands in
			}
			depth--
			c.i++
		case ',', ':', ' ', '\t', '\n', '\r':
			if depth == 0 {
				return
			}
			c.i++
			continue
		default:
			c.i++
			continue
		}
		if depth == 0 {
			return
		}
	}
}

// text passes a string, and cuts what is over the bound.
func (c *cutter) text() {
	size, cut := 0, 0
	for c.i++; c.i < len(c.data) && c.data[c.i] != '"'; {
		raw, n := c.char()
		if size += n; size > c.max && cut == 0 {
			cut = c.i
		}
		c.i = min(c.i+raw, len(c.data))
	}
	if cut > 0 {
		c.out = append(c.out, c.data[c.kept:cut]...)
		c.kept = c.i
	}
	c.i = min(c.i+1, len(c.data))
}

// char gives how long the character here is as it stands, and in UTF-8.
func (c *cutter) char() (raw, size int) {
	rest := c.data[c.i:]
	if rest[0] != '\\' {
		_, n := utf8.DecodeRune(rest)
		return n, n
	}
	if len(rest) < 6 || rest[1] != 'u' {
		return 2, 1
	}
	high := hex4(rest[2:6])
	if high >= 0xd800 && high < 0xdc00 && len(rest) >= 12 && rest[6] == '\\' && rest[7] == 'u' {
		if low := hex4(rest[8:12]); low >= 0xdc00 && low < 0xe000 {
			return 12, 4
		}
	}
	if n := utf8.RuneLen(high); n > 0 {
		return 6, n
	}
	return 6, utf8.RuneLen(utf8.RuneError) // half a pair
}

func hex4(b []byte) rune {
	n := rune(0)
	for _, c := range b {
		n <<= 4
		switch {
		case c >= '0' && c <= '9':
			n |= rune(c - '0')
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			n |= rune(c|0x20-'a') + 10
		}
	}
	return n
}
