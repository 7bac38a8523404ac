package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/danielgtaylor/huma/v2"
)

// huma's settings for the whole process. Names are matched exactly, arrays
// can't be null, and errors are ours.
func init() {
	huma.ValidateStrictCasing = true
	huma.DefaultArrayNullable = false
	huma.NewError = humaError
	huma.NewErrorWithContext = func(ctx huma.Context, status int, detail string, errs ...error) huma.StatusError {
		err := humaError(status, detail, errs...)
		if p, ok := err.(*Problem); ok && ctx != nil {
			p.RequestID = requestID(ctx.Context())
		}
		return err
	}
}

// pathMark separates a field's path from the message in an error that passes
// through huma as text.
const pathMark = "\x00"

// format is JSON that refuses what encoding/json would quietly mend, in words
// that never repeat the caller's.
var format = huma.Format{
	Marshal: func(w io.Writer, v any) error {
		enc := json.NewEncoder(w)
		enc.SetEscapeHTML(false)
		return enc.Encode(v)
	},
	Unmarshal: func(data []byte, v any) error {
		if bytes.HasPrefix(data, []byte("\xef\xbb\xbf")) {
			return errors.New("begins with a byte order mark")
		}
		if !utf8.Valid(data) {
			return errors.New("must be valid UTF-8")
		}
		if to, ok := v.(*any); ok {
			return jsonError(loose(data, to))
		}
		return jsonError(json.Unmarshal(data, v))
	},
}

// loose decodes a body for huma to hold against the document. Numbers of any
// size get through: they may stand where any JSON may, in a schema or example.
func loose(data []byte, to *any) error {
	var whole json.RawMessage
	if err := json.Unmarshal(data, &whole); err != nil {
		return err
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.UseNumber()
	if err := dec.Decode(to); err != nil {
		return err
	}
	*to = floats(*to)
	return nil
}

// floats makes huma's numbers of a decoded value's.
func floats(v any) any {
	switch v := v.(type) {
	case json.Number:
		f, _ := v.Float64() // out of range it is infinite, and over every bound
		return f
	case []any:
		for i := range v {
			v[i] = floats(v[i])
		}
	case map[string]any:
		for name := range v {
			v[name] = floats(v[name])
		}
	}
	return v
}

func jsonError(err error) error {
	if s, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("isn't valid JSON (at byte %d)", s.Offset)
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return errors.New(t.Field + pathMark + "must be " + kindName(t.Type))
	}
	if err != nil && errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("isn't valid JSON: it ends early")
	}
	if err != nil {
		return errors.New("isn't what is documented")
	}
	return nil
}

func kindName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.String:
		return "a string"
	case reflect.Int, reflect.Int64:
		return "a whole number"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "an array"
	}
	return "an object"
}

// layout is how times stand in answers: RFC 3339, UTC, milliseconds.
const layout = "2006-01-02T15:04:05.000Z"

// stamp is a time in an answer; the zero time is null.
type stamp time.Time

// MarshalJSON implements json.Marshaler.
func (t stamp) MarshalJSON() ([]byte, error) {
	if time.Time(t).IsZero() {
		return []byte("null"), nil
	}
	return []byte(time.Time(t).UTC().Format(`"` + layout + `"`)), nil
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *stamp) UnmarshalJSON(data []byte) error {
	var at *time.Time
	if err := json.Unmarshal(data, &at); err != nil || at == nil {
		return err
	}
	*t = stamp(*at)
	return nil
}

// Schema implements huma.SchemaProvider.
func (stamp) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Format: "date-time", Nullable: true}
}

// text is a string in an answer; the empty one is null.
type text string

// MarshalJSON implements json.Marshaler.
func (t text) MarshalJSON() ([]byte, error) {
	if t == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(t))
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *text) UnmarshalJSON(data []byte) error {
	var v *string
	if err := json.Unmarshal(data, &v); err != nil || v == nil {
		return err
	}
	*t = text(*v)
	return nil
}

// Schema implements huma.SchemaProvider.
func (text) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "string", Nullable: true}
}

// ordinal is a number from 1 in an answer; 0 is null.
type ordinal int64

// MarshalJSON implements json.Marshaler.
func (p ordinal) MarshalJSON() ([]byte, error) {
	if p == 0 {
		return []byte("null"), nil
	}
	return strconv.AppendInt(nil, int64(p), 10), nil
}

// Schema implements huma.SchemaProvider.
func (ordinal) Schema(huma.Registry) *huma.Schema {
	return &huma.Schema{Type: "integer", Format: "int64", Nullable: true}
}

// opt is an input that tells "not given" from null.
type opt[T any] struct {
	Set   bool
	Null  bool
	Value T
}

// UnmarshalJSON implements json.Unmarshaler.
func (o *opt[T]) UnmarshalJSON(data []byte) error {
	o.Set = true
	if string(data) == "null" {
		o.Null = true
		return nil
	}
	return json.Unmarshal(data, &o.Value)
}

// Schema implements huma.SchemaProvider: T's, or null.
func (opt[T]) Schema(r huma.Registry) *huma.Schema {
	s := *r.Schema(reflect.TypeFor[T](), false, "")
	s.Nullable = true
	return &s
}

// patch gives what to set: nothing, the value, or empty for null.
func (o opt[T]) patch(empty T) *T {
	switch {
	case !o.Set:
		return nil
	case o.Null:
		return &empty
	}
	return &o.Value
}

// millis gives a duration in milliseconds, to the microsecond.
func millis(d time.Duration) float64 {
	return float64(d.Microseconds()) / 1000
}
