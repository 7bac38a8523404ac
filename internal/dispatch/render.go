package dispatch

import (
	"cmp"
	"encoding/json"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook"
)

// parcel is an event on its way to any number of endpoints. Each envelope is
// rendered once and shared: a pure function of stored columns, so the bytes of
// a delivery are the same on every attempt, whatever process makes it.
type parcel struct {
	event  *surehook.Event
	held   atomic.Int32 // rows in lanes and attempts that need it; see memory
	erased atomic.Bool  // its data is gone from the store: no request may hold it any more
	bodies [2 * forms]atomic.Pointer[[]byte]
	tail   atomic.Pointer[[]byte] // of the purple-wolf envelope, whose head is another on each attempt
}

const forms = 6 // of bodies

func newParcel(e *surehook.Event) *parcel { return &parcel{event: e} }

// size is what a parcel costs in memory: its data, and about as much again as
// small events have in strings and bookkeeping.
func (p *parcel) size() int { return len(p.event.Data) + 512 }

// body gives the body under a webhook-id, which is the event's id or its alias.
func (p *parcel) body(env surehook.Envelope, id string) []byte {
	slot := &p.bodies[envelopeIndex(env)]
	if id != p.event.ID {
		slot = &p.bodies[forms+envelopeIndex(env)]
	}
	if b := slot.Load(); b != nil {
		return *b
	}
	b := Render(p.event, env, id)
	slot.Store(&b)
	return b
}

func envelopeIndex(env surehook.Envelope) int {
	switch env {
	case surehook.EnvelopePayload:
		return 1
	case surehook.EnvelopeThin:
		return 2
	case surehook.EnvelopeCloudEvents:
		return 3
	case surehook.EnvelopePylota:
		return 4
	case surehook.EnvelopeSentinel:
		return 5
	}
	return 0
}

// Render makes an event's body in an envelope, under a webhook-id. The caller's
// data is copied into it byte for byte.
func Render(e *surehook.Event, env surehook.Envelope, id string) []byte {
	data := e.Content()
	if len(data) == 0 {
		data = []byte("null")
	}
	b := make([]byte, 0, len(data)+len(id)+len(e.Type)+128)
	switch env {
	case surehook.EnvelopePayload:
		return data
	case surehook.EnvelopeThin:
		b = member(append(b, '{'), "id", id)
		b = member(append(b, ','), "type", e.Type)
		b = member(append(b, ','), "timestamp", Timestamp(e.OccurredAt))
		return append(b, '}')
	case surehook.EnvelopeCloudEvents:
		if attributes, content, base64, ok := surehook.SplitCloudEvent(e.Data); ok {
			return cameSo(b, e, id, attributes, content, base64)
		}
		b = append(b, `{"specversion":"1.0",`...)
		b = member(b, "id", id)
		b = member(append(b, ','), "source", source(e))
		b = member(append(b, ','), "type", e.Type)
		if len(e.Subjects) > 0 {
			b = member(append(b, ','), "subject", e.Subjects[0])
		}
		b = member(append(b, ','), "time", Timestamp(e.OccurredAt))
		b = append(b, `,"datacontenttype":"application/json","data":`...)
		return append(append(b, data...), '}')
	case surehook.EnvelopeSentinel:
		return sentinelBody(e, id, data)
	case surehook.EnvelopePylota:
		return append(append(pylotaHead(b, e, id), data...), '}')
	}
	b = member(append(b, '{'), "id", id)
	b = member(append(b, ','), "type", e.Type)
	b = member(append(b, ','), "timestamp", Timestamp(e.OccurredAt))
	b = append(b, `,"data":`...)
	return append(append(b, data...), '}')
}

// cameSo is the CloudEvent that an event came as. Only its id may be another one.
func cameSo(b []byte, e *surehook.Event, id string, attributes, content []byte, base64 bool) []byte {
	b = append(b, `{"specversion":"1.0",`...)
	b = member(b, "id", id)
	b = member(append(b, ','), "type", e.Type)
	b = append(append(b, ','), attributes[1:len(attributes)-1]...)
	switch {
	case content == nil:
		return append(b, '}')
	case base64:
		b = append(b, `,"data_base64":`...)
	default:
		b = append(b, `,"data":`...)
	}
	return append(append(b, content...), '}')
}

// PylotaVersion is the envelope's api_version unless the operator sets another one.
// Each event keeps the one that it was accepted under.
const PylotaVersion = "2026-10-01"

// pylotaHead is all of the envelope before the data. What an event hasn't is null.
func pylotaHead(b []byte, e *surehook.Event, id string) []byte {
	b = member(append(b, '{'), "id", id)
	b = member(append(b, ','), "type", e.Type)
	b = member(append(b, ','), "api_version", cmp.Or(e.APIVersion, PylotaVersion))
	b = member(append(b, ','), "occurred_at", Timestamp(e.OccurredAt))
	b = orNull(append(b, ','), "tenant_id", e.Tenant)
	b = orNull(append(b, ','), "identity_id", e.Identity)
	if e.Sequence == 0 {
		return append(b, `,"sequence":null,"data":`...)
	}
	b = strconv.AppendInt(append(b, `,"sequence":`...), e.Sequence, 10)
	return append(b, `,"data":`...)
}

func orNull(b []byte, name, value string) []byte {
	if value != "" {
		return member(b, name, value)
	}
	return append(append(append(b, '"'), name...), `":null`...)
}

// Timestamp is how times stand in bodies: RFC 3339, UTC, milliseconds.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// source is the event's producer, as CloudEvents wants one.
func source(e *surehook.Event) string {
	if e.Tenant == "" {
		return "surehook"
	}
	return "surehook/" + e.Tenant
}

func member(b []byte, name, value string) []byte {
	b = append(b, '"')
	b = append(b, name...)
	return quoted(append(b, `":`...), value)
}

// quoted writes a JSON string.
func quoted(b []byte, s string) []byte {
	if plain(s) {
		return append(append(append(b, '"'), s...), '"')
	}
	quoted, err := json.Marshal(s)
	if err != nil {
		quoted = []byte(`""`) // a string always marshals
	}
	return append(b, quoted...)
}

// plain tells strings that need no escaping in JSON.
func plain(s string) bool {
	for i := range len(s) {
		if c := s[i]; c < 0x20 || c >= 0x7f || c == '"' || c == '\\' || c == '<' || c == '>' || c == '&' {
			return false
		}
	}
	return true
}
