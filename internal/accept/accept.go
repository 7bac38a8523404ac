// Package accept says which events are taken in, and gives them what they lack:
// in one place for the engine and for what writes into a store's outbox.
//
// Guarantee: what it lets through can be delivered faithfully, and what it
// refuses is refused with the name of the field and never its value.
package accept

import (
	cryptorand "crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/oklog/ulid/v2"
	"github.com/tidwall/gjson"

	"github.com/surehook/surehook"
)

// Bounds of an event.
type Bounds struct {
	Bytes    int // of its data
	Subjects int
}

// Usual are the bounds where nobody set others.
var Usual = Bounds{Bytes: 1 << 20, Subjects: 16}

// Event checks an event of a caller's and makes it ready to be stored: what
// isn't the caller's to say is cleared, and an id and a time are given where
// there are none.
func Event(ev *surehook.Event, most Bounds, now time.Time, newULID func(time.Time) string) error {
	if err := check(ev, most); err != nil {
		return err
	}
	ev.Key, ev.Sequence, ev.About, ev.Erased = 0, 0, "", false // ours to say
	if !traceparent(ev.Trace) {
		ev.Trace = "" // as the standard for it says
	}
	if ev.ID == "" {
		ev.ID = "evt_" + newULID(now)
	}
	if ev.OccurredAt.IsZero() {
		ev.OccurredAt = now
	}
	ev.OccurredAt = ev.OccurredAt.UTC().Truncate(time.Millisecond)
	return nil
}

// Events is Event for all that a caller adds in one transaction: all are taken,
// or none. The events given stay as they are.
func Events(events []surehook.Event, now time.Time) ([]*surehook.Event, error) {
	out := make([]*surehook.Event, len(events))
	for i := range events {
		ev := events[i]
		if err := Event(&ev, Usual, now, newULID); err != nil {
			return nil, among(err, i, len(events))
		}
		out[i] = &ev
	}
	return out, nil
}

// among names the event too, where there are several.
func among(err error, i, n int) error {
	invalid, ok := errors.AsType[*surehook.Error](err)
	if !ok || n == 1 || len(invalid.Fields) == 0 {
		return err
	}
	return surehook.Invalid(fmt.Sprintf("events[%d].%s", i, invalid.Fields[0].Path), invalid.Fields[0].Message)
}

// newULID needs no process of its own to be unique.
func newULID(now time.Time) string {
	return ulid.MustNew(ulid.Timestamp(now), cryptorand.Reader).String() // which never fails
}

// validJSON tells whether data is one JSON value. gjson's check is several times
// faster than the standard library's but recurses, so it gets only what can't
// nest deeply.
func validJSON(data []byte) bool {
	if len(data) <= 8<<10 {
		return gjson.ValidBytes(data)
	}
	return json.Valid(data)
}

// Dotted tells dotted names: letters, digits, - and _, at most 128 in all.
func Dotted(s string) bool {
	ok := false // the character before may end a name
	for i := range len(s) {
		switch c := s[i]; {
		case alnum(c) || c == '-' || c == '_':
			ok = true
		case c == '.' && ok:
			ok = false
		default:
			return false
		}
	}
	return ok && len(s) <= 128
}

// eventID tells ids that can be a webhook-id: no dot, which the signature uses.
func eventID(s string) bool {
	for i := range len(s) {
		if c := s[i]; !alnum(c) && c != '-' && c != '_' && c != ':' {
			return false
		}
	}
	return len(s) >= 1 && len(s) <= 200
}

// traceparent tells values of the W3C header of that name: four groups of hex
// digits. It goes into a header, so nothing else may.
func traceparent(s string) bool {
	if len(s) != 55 {
		return false
	}
	for i := range len(s) {
		switch c := s[i]; i {
		case 2, 35, 52:
			if c != '-' {
				return false
			}
		default:
			if !(c >= '0' && c <= '9' || c >= 'a' && c <= 'f') {
				return false
			}
		}
	}
	return true
}

// Printable tells names of tenants and the like: ASCII without spaces.
func Printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= 200
}

func alnum(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' }

// subject tells texts that every store can keep: PostgreSQL's can't hold a NUL.
func subject(s string) bool {
	return s != "" && len(s) <= 256 && utf8.ValidString(s) && !strings.Contains(s, "\x00")
}

// check refuses what can't be delivered faithfully. Messages name the field and
// never the value. The function surehook.enqueue of store/postgres says the same
// in SQL.
func check(ev *surehook.Event, most Bounds) error {
	switch {
	case ev.Type == "":
		return surehook.Invalid("type", "is required")
	case !Dotted(ev.Type):
		return surehook.Invalid("type", "must be dotted names of letters, digits, - and _, at most 128 characters")
	case ev.Type == surehook.TypeTest || ev.Type == surehook.TypeDisabled:
		return surehook.Invalid("type", "is one that only surehook itself emits")
	case ev.ID != "" && !eventID(ev.ID):
		return surehook.Invalid("id", "must be at most 200 characters of A-Z a-z 0-9 _ : - (no dot)")
	case !ev.OccurredAt.IsZero() && (ev.OccurredAt.UTC().Year() < 1 || ev.OccurredAt.UTC().Year() > 9999):
		return surehook.Invalid("occurred_at", "must lie in the years 1 to 9999")
	case len(ev.Data) == 0:
		return surehook.Invalid("data", "is required; it may be any JSON value")
	case len(ev.Data) > most.Bytes:
		return surehook.Invalid("data", fmt.Sprintf("is over %d bytes", most.Bytes))
	case !utf8.Valid(ev.Data):
		return surehook.Invalid("data", "must be valid UTF-8")
	case !validJSON(ev.Data):
		return surehook.Invalid("data", "must be one JSON value")
	}
	for _, f := range [...]struct{ name, value string }{{"tenant_id", ev.Tenant}, {"identity_id", ev.Identity}, {"owner", ev.Owner}} {
		if !Printable(f.value) {
			return surehook.Invalid(f.name, "must be at most 200 printable ASCII characters without spaces")
		}
	}
	if len(ev.Subjects) > most.Subjects {
		return surehook.Invalid("subjects", fmt.Sprintf("holds more than %d", most.Subjects))
	}
	if i := slices.IndexFunc(ev.Subjects, func(s string) bool { return !subject(s) }); i >= 0 {
		return surehook.Invalid(fmt.Sprintf("subjects[%d]", i), "must be 1 to 256 bytes of UTF-8 without NUL")
	}
	return nil
}

// APIVersion refuses what can't be a date, or another name of a version.
func APIVersion(v string) error {
	if v == "" || len(v) > 40 || !Printable(v) || strings.ContainsAny(v, `"\\<>&`) {
		return errors.New("must have 1 to 40 printable ASCII characters without spaces and quotes, such as 2026-10-01")
	}
	return nil
}
