package surehook

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"unicode/utf8"
)

// CloudEvent is what a CloudEvent says beside an event's own fields. It is kept
// in the event's Data, in a form of its own:
//
//	{"$cloudevent":{"source":…, …},"data":…}
//
// with data_base64 in place of data where it is binary, and neither where there
// is none. Nothing else is written so; who writes into an outbox publishes a
// CloudEvent by Form. Endpoints get the content as the event's data, and the
// attributes too in the envelope cloudevents.
type CloudEvent struct {
	Source          string // who says so; required
	Subject         string // as it was given; the event's Subjects begin with it
	Time            string // RFC 3339, as it was given
	DataContentType string
	DataSchema      string
	Extensions      map[string]any // string, bool or int64
	Content         []byte         // JSON; nil: none. With Base64 a JSON string
	Base64          bool
}

const cloudEventHead = `{"$cloudevent":{"source":"`

// Form gives the Data of an event that stands for c. Equal CloudEvents have equal
// forms: attributes come in the order of the fields, extensions by name.
func (c CloudEvent) Form() []byte {
	b := make([]byte, 0, len(c.Content)+len(c.Source)+256)
	b = appendString(append(b, cloudEventHead[:len(cloudEventHead)-1]...), c.Source)
	for _, f := range [...]struct{ name, value string }{{"subject", c.Subject}, {"time", c.Time}, {"datacontenttype", c.DataContentType}, {"dataschema", c.DataSchema}} {
		if f.value != "" {
			b = appendString(appendName(b, f.name), f.value)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Extensions)) {
		b = appendName(b, name)
		switch v := c.Extensions[name].(type) {
		case string:
			b = appendString(b, v)
		case bool:
			b = strconv.AppendBool(b, v)
		case int64:
			b = strconv.AppendInt(b, v, 10)
		default:
			b = append(b, "null"...) // as if it weren't there
		}
	}
	b = append(b, '}')
	switch {
	case c.Content == nil:
	case c.Base64:
		b = append(appendName(b, "data_base64"), c.Content...)
	default:
		b = append(appendName(b, "data"), c.Content...)
	}
	return append(b, '}')
}

// CloudEvent gives what Form wrote; false for any other data.
func (e *Event) CloudEvent() (CloudEvent, bool) {
	raw, content, base64, ok := SplitCloudEvent(e.Data)
	if !ok {
		return CloudEvent{}, false
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var all map[string]any
	if err := d.Decode(&all); err != nil {
		return CloudEvent{}, false
	}
	c := CloudEvent{Content: content, Base64: base64}
	for name, to := range map[string]*string{"source": &c.Source, "subject": &c.Subject, "time": &c.Time, "datacontenttype": &c.DataContentType, "dataschema": &c.DataSchema} {
		*to, _ = all[name].(string)
		delete(all, name)
	}
	for name, v := range all {
		if n, isNumber := v.(json.Number); isNumber {
			i, err := n.Int64()
			if v = i; err != nil {
				v = n.String()
			}
		}
		if c.Extensions == nil {
			c.Extensions = make(map[string]any, len(all))
		}
		c.Extensions[name] = v
	}
	return c, true
}

// Content is an event's data as endpoints get it: Data, but of a CloudEvent its
// own data, as a JSON string where that is base64, and null where there is none.
func (e *Event) Content() []byte {
	_, content, _, ok := SplitCloudEvent(e.Data)
	switch {
	case !ok:
		return e.Data
	case content == nil:
		return []byte("null")
	}
	return content
}

// SplitCloudEvent cuts data of CloudEvent's form, which is valid JSON, into the
// object of the attributes and the content; nil where there is none.
func SplitCloudEvent(data []byte) (attributes, content []byte, base64, ok bool) {
	if len(data) < len(cloudEventHead) || string(data[:len(cloudEventHead)]) != cloudEventHead || data[len(data)-1] != '}' {
		return nil, nil, false, false
	}
	const at = len(`{"$cloudevent":`)
	end := skipValue(data, at)
	if end == len(data) {
		return nil, nil, false, false
	}
	attributes, rest := data[at:end:end], data[end:len(data)-1]
	if len(rest) == 0 {
		return attributes, nil, false, true
	}
	content, ok = bytes.CutPrefix(rest, []byte(`,"data":`))
	if !ok {
		content, ok = bytes.CutPrefix(rest, []byte(`,"data_base64":`))
		base64 = ok && len(content) > 0 && content[0] == '"'
		ok = base64
	}
	if !ok || len(content) == 0 || skipValue(content, 0) != len(content) {
		return nil, nil, false, false
	}
	return attributes, content[:len(content):len(content)], base64, true
}

// skipValue gives the end of the value that begins at i in valid JSON.
func skipValue(b []byte, i int) int {
	for depth := 0; i < len(b); i++ {
		switch b[i] {
		case '{', '[':
			depth++
			continue
		case '}', ']':
			depth--
		case '"':
			for i++; i < len(b) && b[i] != '"'; i++ {
				if b[i] == '\\' {
					i++
				}
			}
		case ',':
			if depth == 0 {
				return i // behind a number or a word
			}
			continue
		default:
			if depth > 0 || i+1 < len(b) && b[i+1] != ',' {
				continue
			}
		}
		if depth == 0 {
			return min(i+1, len(b))
		}
	}
	return len(b)
}

func appendName(b []byte, name string) []byte {
	return append(appendString(append(b, ','), name), ':')
}

// appendString writes a JSON string; what isn't UTF-8 becomes U+FFFD.
func appendString(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
