package api

import (
	"net/http"

	"github.com/surehook/surehook"
)

// Patterns lists the routes that a handler answers, "METHOD /path".
func Patterns(h http.Handler) []string {
	s := h.(*Handler)
	out := append([]string(nil), s.routes.patterns...)
	for pattern := range s.raw {
		out = append(out, pattern)
	}
	return out
}

// First claims the making of the first admin key.
var First = first

// The decoding of events, for fuzzing.
var (
	Batch      = batch
	HugeNumber = hugeNumber
)

// DecodeEvent decodes one event.
var DecodeEvent = func(body []byte) (*surehook.Event, error) {
	var ev surehook.Event
	d := decoder{}
	if err := d.event(body, &ev); err != nil {
		return nil, err
	}
	return &ev, d.err()
}
