package client

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"
)

// Bounds of a batch that PublishLines makes.
const (
	linesBatch = 500
	linesBytes = 8 << 20
	maxLine    = 16 << 20
)

// Line is what became of one line: a receipt, or why it was refused.
type Line struct {
	N int `json:"line"` // from 1
	*Receipt
	Error *BatchError `json:"error,omitempty"`
}

// queued is a line that wasn't reported yet.
type queued struct {
	n     int
	event Event
	bad   error // why it is no event
}

// PublishLines reads JSON lines, each an event, and publishes them in batches;
// empty lines are passed over. done is called after each batch with what became
// of its lines, in their order. A line that is refused, here or by the server,
// stops nothing: its Line says why. An error means that what comes after the
// last reported line may not have been published.
//
// Events without an id get one here, so that a batch sent again is no other
// batch.
func (c *Client) PublishLines(ctx context.Context, r io.Reader, done func([]Line) error) error {
	in := bufio.NewReaderSize(r, 64<<10)
	var batch []queued
	size := 0
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		lines, err := c.publishLines(ctx, batch)
		batch, size = batch[:0], 0
		return errors.Join(done(lines), err)
	}
	for n := 1; ; n++ {
		raw, fits, err := readLine(in)
		if err != nil && !errors.Is(err, io.EOF) {
			return errors.Join(flush(), fmt.Errorf("line %d can't be read: %w", n, err))
		}
		if raw = bytes.TrimSpace(raw); len(raw) > 0 {
			if len(batch) == linesBatch || size+len(raw) > linesBytes {
				if err := flush(); err != nil {
					return err
				}
			}
			q := queued{n: n, bad: fmt.Errorf("it is over %d MiB long", maxLine>>20)}
			if fits {
				q.event, q.bad = ParseEvent(raw)
				if q.event.ID == "" {
					q.event.ID = newID()
				}
				size += len(raw)
			}
			batch = append(batch, q)
		}
		if err != nil {
			return flush()
		}
	}
}

// readLine reads one line. Of one that is over maxLine it gives the beginning
// and passes over the rest.
func readLine(in *bufio.Reader) (line []byte, fits bool, err error) {
	fits = true
	for {
		part, err := in.ReadSlice('\n')
		if fits = fits && len(line)+len(part) <= maxLine; fits {
			line = append(line, part...)
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return line, fits, err
		}
	}
}

// publishLines publishes those of a batch that are events. What was done before
// an error is told.
func (c *Client) publishLines(ctx context.Context, batch []queued) ([]Line, error) {
	events := make([]Event, 0, len(batch))
	for _, q := range batch {
		if q.bad == nil {
			events = append(events, q.event)
		}
	}
	results, err := c.publishAll(ctx, events)
	out := make([]Line, 0, len(batch))
	for _, q := range batch {
		switch {
		case q.bad != nil:
			out = append(out, Line{N: q.n, Error: &BatchError{Code: "invalid_request", Message: q.bad.Error()}})
			continue
		case len(results) == 0: // an error came before it
			return out, err
		case results[0].Error != nil:
			out = append(out, Line{N: q.n, Error: results[0].Error})
		default:
			out = append(out, Line{N: q.n, Receipt: &results[0].Receipt})
		}
		results = results[1:]
	}
	return out, err
}

// publishAll is PublishBatch for events of which one may spoil the request: a
// request that is refused as a whole is halved until that one is alone.
func (c *Client) publishAll(ctx context.Context, events []Event) ([]BatchResult, error) {
	if len(events) == 0 {
		return nil, nil
	}
	results, err := c.PublishBatch(ctx, events)
	p, ok := errors.AsType[*Problem](err)
	switch {
	case err == nil && len(results) != len(events):
		return nil, errors.New("the server answered for another number of events")
	case err == nil:
		for i := range results {
			results[i].Error.alone(i)
		}
		return results, nil
	case !ok || p.Status != http.StatusBadRequest && p.Status != http.StatusRequestEntityTooLarge:
		return nil, err
	case len(events) == 1:
		return []BatchResult{{Error: &BatchError{Code: p.Code, Message: p.Detail, Errors: p.Errors}}}, nil
	}
	half := len(events) / 2
	first, err := c.publishAll(ctx, events[:half])
	if err != nil {
		return first, err
	}
	second, err := c.publishAll(ctx, events[half:])
	return append(first, second...), err
}

// alone words an error for who doesn't know about the batch.
func (e *BatchError) alone(i int) {
	if e == nil || len(e.Errors) == 0 {
		return
	}
	words := make([]string, len(e.Errors))
	for j := range e.Errors {
		f := &e.Errors[j]
		f.Path = strings.TrimPrefix(f.Path, fmt.Sprintf("events[%d].", i))
		words[j] = f.Path + ": " + f.Message
	}
	e.Message = strings.Join(words, "; ")
}

// ParseEvent reads an event from a line of JSON, and strictly: a field that isn't
// known would be lost without a word, and invalid UTF-8 would be replaced.
func ParseEvent(raw []byte) (Event, error) {
	var e Event
	if bad, ok := errors.AsType[*JSONError](CheckJSON(raw)); ok {
		return e, fmt.Errorf("it isn't valid JSON at column %d: %s", bad.Column, bad.Reason)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&e); err != nil {
		return e, misfit(raw, err)
	}
	if len(e.Data) == 0 {
		return e, errors.New("it has no data")
	}
	e.Data = bytes.Clone(e.Data)
	return e, nil
}

var eventFields = []string{"id", "type", "tenant_id", "identity_id", "owner", "subjects", "occurred_at", "created_at", "data"}

// misfit says why JSON isn't an event; the decoder speaks of Go's types.
func misfit(raw []byte, err error) error {
	var members map[string]json.RawMessage
	if json.Unmarshal(raw, &members) != nil || members == nil {
		return errors.New("it must be an object with type and data")
	}
	for _, name := range slices.Sorted(maps.Keys(members)) {
		if !slices.ContainsFunc(eventFields, func(f string) bool { return strings.EqualFold(f, name) }) {
			return fmt.Errorf("%q is not a field of an event; %s are", name, strings.Join(eventFields, ", "))
		}
	}
	if t, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		want := "a text"
		if strings.HasPrefix(t.Field, "subjects") {
			want = "a list of texts"
		}
		return fmt.Errorf("%s must be %s", t.Field, want)
	}
	return errors.New("it isn't an event as POST /v1/events takes it")
}

// JSONError says where text isn't one JSON value. Lines and columns count from
// 1, columns in characters.
type JSONError struct {
	Line, Column int
	Reason       string
}

func (e *JSONError) Error() string {
	return fmt.Sprintf("it isn't valid JSON at line %d, column %d: %s", e.Line, e.Column, e.Reason)
}

// CheckJSON says where text isn't one JSON value in UTF-8: its error is a
// *JSONError.
func CheckJSON(text []byte) error {
	at, reason := len(text), "it isn't valid UTF-8"
	if utf8.Valid(text) {
		var v json.RawMessage
		err := json.Unmarshal(text, &v)
		if err == nil {
			return nil
		}
		reason = err.Error()
		if s, ok := errors.AsType[*json.SyntaxError](err); ok && int(s.Offset) <= len(text) && !unfinished(text, s) {
			at = max(int(s.Offset)-1, 0) // it counts the byte that is wrong
		}
	} else {
		for at = 0; ; {
			r, n := utf8.DecodeRune(text[at:])
			if r == utf8.RuneError && n == 1 {
				break
			}
			at += n
		}
	}
	before := text[:at]
	start := bytes.LastIndexByte(before, '\n') + 1
	return &JSONError{Line: bytes.Count(before, []byte{'\n'}) + 1, Column: utf8.RuneCount(before[start:]) + 1, Reason: reason}
}

// unfinished tells that text ends too early: then no byte of it is wrong.
func unfinished(text []byte, s *json.SyntaxError) bool {
	return int(s.Offset) == len(text) && s.Error() == "unexpected end of JSON input"
}
