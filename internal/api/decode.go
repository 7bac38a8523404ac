package api

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/surehook/surehook"
)

// The bodies of POST /v1/events are read here and not by encoding/json: data
// is cut out as it stands and never decoded, and what can't be kept faithfully
// is refused by name. A value's own syntax is checked by the engine (data) or
// by whoever decodes it (the rest); the scanner finds where it ends.

type scanner struct {
	b []byte
	i int
}

// syntaxError says where a body stops being JSON.
type syntaxError struct{ at int }

func (e *syntaxError) Error() string { return fmt.Sprintf("isn't valid JSON (at byte %d)", e.at) }

func (s *scanner) fail() error { return &syntaxError{s.i} }

// next skips white space and gives the byte that follows, 0 at the end.
func (s *scanner) next() byte {
	for ; s.i < len(s.b); s.i++ {
		switch c := s.b[s.i]; c {
		case ' ', '\t', '\n', '\r':
		default:
			return c
		}
	}
	return 0
}

// value cuts the value that begins here.
func (s *scanner) value() ([]byte, error) {
	c := s.next()
	start := s.i
	var err error
	switch c {
	case '"':
		err = s.str()
	case '{', '[':
		err = s.nested()
	case 0, ',', ':', '}', ']':
		err = s.fail()
	default:
		for s.i < len(s.b) && !strings.ContainsRune(" \t\n\r,:]}[{\"", rune(s.b[s.i])) {
			s.i++
		}
	}
	return s.b[start:s.i:s.i], err
}

// str skips a string, from its quote to its quote.
func (s *scanner) str() error {
	for s.i++; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '\\':
			s.i++
		case '"':
			s.i++
			return nil
		}
	}
	s.i = len(s.b)
	return s.fail()
}

// nested skips an object or array by its brackets.
func (s *scanner) nested() error {
	for depth := 0; s.i < len(s.b); s.i++ {
		switch s.b[s.i] {
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				s.i++
				return nil
			}
		case '"':
			if err := s.str(); err != nil {
				return err
			}
			s.i--
		}
	}
	return s.fail()
}

// members walks an object; f gets each name, unquoted, and its value as it
// stands.
func (s *scanner) members(f func(name string, value []byte) error) error {
	if s.next() != '{' {
		return s.fail()
	}
	s.i++
	if s.next() == '}' {
		s.i++
		return nil
	}
	for {
		if s.next() != '"' {
			return s.fail()
		}
		raw, err := s.value()
		if err != nil {
			return err
		}
		name, ok := unquote(raw)
		if !ok || s.next() != ':' {
			return s.fail()
		}
		s.i++
		value, err := s.value()
		if err != nil {
			return err
		}
		if err := f(name, value); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.i++
		case '}':
			s.i++
			return nil
		default:
			return s.fail()
		}
	}
}

// items walks an array.
func (s *scanner) items(f func(i int, value []byte) error) error {
	if s.next() != '[' {
		return s.fail()
	}
	s.i++
	if s.next() == ']' {
		s.i++
		return nil
	}
	for i := 0; ; i++ {
		value, err := s.value()
		if err != nil {
			return err
		}
		if err := f(i, value); err != nil {
			return err
		}
		switch s.next() {
		case ',':
			s.i++
		case ']':
			s.i++
			return nil
		default:
			return s.fail()
		}
	}
}

// end checks that nothing follows.
func (s *scanner) end() error {
	if s.next() != 0 || s.i < len(s.b) {
		return s.fail()
	}
	return nil
}

// unquote decodes a string token, or says that it can't be kept as it is:
// invalid UTF-8 and lone surrogates would turn into U+FFFD.
func unquote(raw []byte) (string, bool) {
	if len(raw) < 2 || raw[0] != '"' || raw[len(raw)-1] != '"' || !utf8.Valid(raw) {
		return "", false
	}
	plain := raw[1 : len(raw)-1]
	escaped := false
	for _, c := range plain {
		if c < 0x20 {
			return "", false
		}
		escaped = escaped || c == '\\'
	}
	if !escaped {
		return string(plain), true
	}
	var s string
	if err := json.Unmarshal(raw, &s); err != nil {
		return "", false
	}
	// A lone surrogate would come out as U+FFFD. Who means that character can
	// write it as it is.
	if strings.Count(s, "\ufffd") != bytes.Count(plain, []byte("\ufffd")) {
		return "", false
	}
	return s, true
}

// decoder gathers what is wrong with one event.
type decoder struct {
	prefix string // "" or "events[3]."
	errs   []surehook.FieldError
}

const maxFieldErrors = 20

func (d *decoder) refuse(path, message string) {
	if len(d.errs) < maxFieldErrors {
		d.errs = append(d.errs, surehook.FieldError{Path: d.prefix + clip(path), Message: message})
	}
}

func (d *decoder) err() error {
	if len(d.errs) == 0 {
		return nil
	}
	f := d.errs[0]
	return &surehook.Error{Code: surehook.InvalidRequest, Message: "the request is invalid: " + f.Path + ": " + f.Message, Fields: d.errs}
}

// event decodes the fields of design's POST /v1/events. A syntax error is
// returned; everything else is gathered.
func (d *decoder) event(body []byte, ev *surehook.Event) error {
	if bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) {
		d.refuse("body", "begins with a byte order mark")
		return nil
	}
	s := scanner{b: body}
	if c := s.next(); c != '{' && c != 0 && len(body) > 0 {
		d.refuse("body", "must be an object with type and data")
		return nil
	}
	seen := 0
	err := s.members(func(name string, v []byte) error {
		bit, ok := eventFields[name]
		switch {
		case !ok:
			d.refuse(name, "is not a known field")
			return nil
		case seen&bit != 0:
			d.refuse(name, "is given twice")
			return nil
		}
		seen |= bit
		d.field(name, v, ev)
		return nil
	})
	if err != nil {
		return err
	}
	return s.end()
}

var eventFields = map[string]int{"type": 1, "data": 2, "id": 4, "tenant_id": 8, "identity_id": 16, "owner": 32, "subjects": 64, "occurred_at": 128}

func (d *decoder) field(name string, v []byte, ev *surehook.Event) {
	if name == "data" {
		ev.Data = v
		return
	}
	if string(v) == "null" {
		return // as if it weren't there
	}
	switch name {
	case "type":
		d.text(name, v, &ev.Type)
	case "id":
		d.given(name, v, &ev.ID)
	case "tenant_id":
		d.given(name, v, &ev.Tenant)
	case "identity_id":
		d.given(name, v, &ev.Identity)
	case "owner":
		d.given(name, v, &ev.Owner)
	case "occurred_at":
		d.time(name, v, &ev.OccurredAt)
	case "subjects":
		d.subjects(v, ev)
	}
}

func (d *decoder) text(path string, v []byte, to *string) bool {
	if v[0] != '"' {
		d.refuse(path, "must be a string")
		return false
	}
	s, ok := unquote(v)
	if !ok {
		d.refuse(path, "must be a JSON string of valid UTF-8")
		return false
	}
	*to = s
	return true
}

// given is text that, when it is there, isn't empty: an empty id or tenant is
// more likely a fault in the caller than a wish.
func (d *decoder) given(path string, v []byte, to *string) {
	if d.text(path, v, to) && *to == "" {
		d.refuse(path, "must not be empty; leave it out instead")
	}
}

func (d *decoder) time(path string, v []byte, to *time.Time) {
	var s string
	if d.text(path, v, &s) {
		d.at(path, s, to)
	}
}

func (d *decoder) at(path, s string, to *time.Time) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil || t.Year() < 1970 || t.Year() > 9998 {
		d.refuse(path, "must be a time as in RFC 3339, e.g. 2026-01-31T12:00:00Z")
		return
	}
	*to = t
}

func (d *decoder) subjects(v []byte, ev *surehook.Event) {
	if v[0] != '[' {
		d.refuse("subjects", "must be an array of strings")
		return
	}
	s := scanner{b: v}
	err := s.items(func(i int, v []byte) error {
		var one string
		if i < 1000 && d.text(fmt.Sprintf("subjects[%d]", i), v, &one) {
			ev.Subjects = append(ev.Subjects, one)
		}
		return nil
	})
	if err != nil {
		d.refuse("subjects", "isn't valid JSON")
	}
}

// batch cuts the events of POST /v1/events/batch.
func batch(body []byte) ([][]byte, error) {
	if bytes.HasPrefix(body, []byte("\xef\xbb\xbf")) {
		return nil, surehook.Invalid("body", "begins with a byte order mark")
	}
	s := scanner{b: body}
	if s.next() != '{' {
		return nil, surehook.Invalid("body", "must be an object with events")
	}
	var d decoder
	var out [][]byte
	err := s.members(func(name string, v []byte) error {
		switch {
		case name != "events":
			d.refuse(name, "is not a known field")
		case out != nil:
			d.refuse(name, "is given twice")
		case v[0] != '[':
			d.refuse(name, "must be an array")
		default:
			var err error
			out, err = cut(v)
			return err
		}
		return nil
	})
	if err == nil {
		err = s.end()
	}
	switch {
	case err != nil:
		return nil, bodyError(err)
	case d.err() != nil:
		return nil, d.err()
	}
	return counted(out, "events")
}

// counted refuses too few events and too many.
func counted(out [][]byte, path string) ([][]byte, error) {
	switch {
	case len(out) == 0:
		return nil, surehook.Invalid(path, "must hold at least one event")
	case len(out) > maxBatch:
		return nil, surehook.Invalid(path, fmt.Sprintf("holds more than %d", maxBatch))
	}
	return out, nil
}

// cut gives the values of an array, one more than a batch may have at most.
func cut(v []byte) ([][]byte, error) {
	out := make([][]byte, 0, 64)
	s := scanner{b: v}
	err := s.items(func(_ int, v []byte) error {
		if len(out) <= maxBatch {
			out = append(out, v)
		}
		return nil
	})
	return out, err
}

// bodyError makes a syntax error one about the body.
func bodyError(err error) error {
	if s, ok := errors.AsType[*syntaxError](err); ok {
		return surehook.Invalid("body", s.Error())
	}
	return err
}
