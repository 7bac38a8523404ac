package console

import (
	"encoding/json"
	"fmt"
	"html/template"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode"
)

// word is a text that somebody else wrote, as a page shows it: whatever could move
// the cursor, change the direction of what follows, or hide, is made visible.
type word string

// UnmarshalJSON makes a text from outside inert. null is none.
func (w *word) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*w = word(inert(s))
	return nil
}

// inert makes control and format characters visible, all but line breaks and tabs.
func inert(s string) string {
	clean := true
	for _, r := range s {
		if hidden(r) {
			clean = false
			break
		}
	}
	if clean {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case !hidden(r):
			b.WriteRune(r)
		case r < 0x20:
			b.WriteRune('␀' + r) // its picture
		case r == 0x7f:
			b.WriteRune('␡')
		default:
			fmt.Fprintf(&b, "‹U+%04X›", r)
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	switch {
	case r == '\n' || r == '\t':
		return false
	case r == '\u00ad', r == '\u2028', r == '\u2029', r == '\u115f', r == '\u1160', r == '\u3164', r == '\uffa0', r == unicode.ReplacementChar:
		return true
	}
	return unicode.Is(unicode.Cc, r) || unicode.Is(unicode.Cf, r) || unicode.Is(unicode.Co, r)
}

// stamp is a time of the API's.
type stamp struct{ time.Time }

// UnmarshalJSON reads a time; null is none.
func (s *stamp) UnmarshalJSON(b []byte) error {
	if string(b) == "null" {
		return nil
	}
	return s.Time.UnmarshalJSON(b)
}

var funcs = template.FuncMap{
	"when":    when,
	"ms":      millis,
	"count":   countAny,
	"bytes":   sizeAny,
	"reason":  reason,
	"why":     why,
	"advice":  advice,
	"query":   func(s any) string { return url.QueryEscape(fmt.Sprint(s)) },
	"seg":     func(s any) string { return url.PathEscape(fmt.Sprint(s)) },
	"join":    joined,
	"plural":  plural,
	"percent": percent,
	"dict":    dict,
	"inert":   func(s any) string { return inert(fmt.Sprint(s)) },
	"bars":    bars,
	"lines":   lines,
	"once":    newToken,
	"options": func(names ...string) []string { return names },
	"int64":   func(n int) int64 { return int64(n) },
	"float":   func(n int64) float64 { return float64(n) },
	"cond": func(yes bool, a, b string) string {
		if yes {
			return a
		}
		return b
	},
}

// when shows a time in UTC; the script of the page turns it into the viewer's zone,
// and the exact UTC stays on hover.
func when(s stamp) template.HTML {
	if s.IsZero() {
		return `<span class="none">never</span>`
	}
	t := s.UTC()
	return template.HTML(fmt.Sprintf(`<time datetime="%s" title="%s UTC">%s UTC</time>`, //nolint:gosec // digits alone
		t.Format(time.RFC3339Nano), t.Format("2006-01-02 15:04:05.000"), t.Format("2 Jan 15:04:05")))
}

// millis shows milliseconds as people say them.
func millis(ms float64) string {
	switch {
	case ms <= 0:
		return "0 ms"
	case ms < 10:
		return strconv.FormatFloat(ms, 'f', 1, 64) + " ms"
	case ms < 1000:
		return strconv.FormatFloat(ms, 'f', 0, 64) + " ms"
	case ms < 60_000:
		return strconv.FormatFloat(ms/1000, 'f', 1, 64) + " s"
	}
	return spell(time.Duration(ms * float64(time.Millisecond)))
}

// spell writes a duration with its two largest units.
func spell(d time.Duration) string {
	units := []struct {
		name string
		d    time.Duration
	}{{"d", 24 * time.Hour}, {"h", time.Hour}, {"min", time.Minute}, {"s", time.Second}}
	var out []string
	for _, u := range units {
		if n := int64(d / u.d); n > 0 {
			out = append(out, fmt.Sprintf("%d %s", n, u.name))
			d %= u.d
		} else if len(out) > 0 {
			break
		}
		if len(out) == 2 {
			break
		}
	}
	if len(out) == 0 {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return strings.Join(out, " ")
}

func whole(n any) int64 {
	switch n := n.(type) {
	case int:
		return int64(n)
	case int64:
		return n
	}
	return 0
}

func countAny(n any) string { return count(whole(n)) }

// count groups the digits of a number.
func count(n int64) string {
	s := strconv.FormatInt(n, 10)
	for i := len(s) - 3; i > 0 && s[i-1] != '-'; i -= 3 {
		s = s[:i] + "\u202f" + s[i:]
	}
	return s
}

func sizeAny(size any) string {
	n := whole(size)
	switch {
	case n >= 1<<20:
		return strconv.FormatFloat(float64(n)/(1<<20), 'f', 1, 64) + " MiB"
	case n >= 1<<10:
		return strconv.FormatFloat(float64(n)/(1<<10), 'f', 1, 64) + " KiB"
	}
	return strconv.FormatInt(n, 10) + " bytes"
}

func plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return count(n) + " " + many
}

func percent(part, whole int64) string {
	switch {
	case whole == 0:
		return "–"
	case part == whole:
		return "100 %"
	}
	share := min(99.99, float64(part)/float64(whole)*100)
	if share < 99 {
		return strconv.FormatFloat(share, 'f', 1, 64) + " %"
	}
	return strconv.FormatFloat(share, 'f', 2, 64) + " %"
}

func joined(words any) string {
	switch list := words.(type) {
	case []word:
		out := make([]string, len(list))
		for i, w := range list {
			out[i] = string(w)
		}
		return strings.Join(out, ", ")
	case []string:
		return inert(strings.Join(list, ", "))
	}
	return ""
}

func dict(pairs ...any) (map[string]any, error) {
	out := make(map[string]any)
	for i := 0; i+1 < len(pairs); i += 2 {
		name, ok := pairs[i].(string)
		if !ok {
			return nil, fmt.Errorf("%v is no name", pairs[i])
		}
		out[name] = pairs[i+1]
	}
	return out, nil
}

func seconds(d time.Duration) string {
	return strconv.FormatInt(int64((d+time.Second-1)/time.Second), 10)
}
