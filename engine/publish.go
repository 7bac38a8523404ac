package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/tidwall/gjson"

	"github.com/surehook/surehook"
)

// Receipt says what became of a published event.
type Receipt struct {
	ID         string
	Duplicate  bool // the id was there already, with the same content
	Deliveries int  // endpoints that will get it; unknown (0) for a duplicate
	Err        error
}

// Publish stores one event and delivers it. Type and Data are required; an empty
// ID is made. When it returns without an error the event is on the disk.
func (e *Engine) Publish(ctx context.Context, ev surehook.Event) (Receipt, error) {
	rs, err := e.Enqueue(ctx, ev)
	if err != nil {
		return Receipt{}, err
	}
	return rs[0], rs[0].Err
}

// Enqueue stores events and delivers them. Each is accepted or refused by itself
// (Receipt.Err); those that are accepted share a transaction, or several if their
// deliveries are many thousands. An error means that none was accepted. With code
// store_unavailable, of Enqueue or of a receipt, that isn't known: publishing
// again with the same ids is safe.
func (e *Engine) Enqueue(ctx context.Context, events ...surehook.Event) ([]Receipt, error) {
	e.gate.RLock()
	defer e.gate.RUnlock()
	if e.stopped {
		return nil, errStopping
	}
	receipts := make([]Receipt, len(events))
	good := make([]*surehook.Event, 0, len(events))
	where := make([]int, 0, len(events))
	now := e.now()
	for i := range events {
		ev := events[i]
		if err := e.check(&ev); err != nil {
			receipts[i].Err = err
			continue
		}
		ev.Key, ev.Sequence, ev.About, ev.Erased = 0, 0, "", false // ours to say
		if !traceparent(ev.Trace) {
			ev.Trace = "" // as the standard for it says
		}
		if ev.ID == "" {
			ev.ID = "evt_" + e.newULID(now)
		}
		if ev.OccurredAt.IsZero() {
			ev.OccurredAt = now
		}
		ev.OccurredAt = ev.OccurredAt.UTC().Truncate(time.Millisecond)
		receipts[i].ID = ev.ID
		good, where = append(good, &ev), append(where, i)
	}
	if len(good) == 0 {
		return receipts, ctx.Err()
	}
	for done := 0; done < len(good); {
		stored, wide, err := e.append(ctx, good[done:], nil)
		if err != nil && done == 0 {
			return nil, err
		}
		if err != nil { // what was accepted before stays accepted
			for _, i := range where[done:] {
				receipts[i].Err = err
			}
			break
		}
		for i, a := range stored {
			r := &receipts[where[done+i]]
			r.Duplicate, r.Deliveries, r.Err = a.Duplicate, len(a.Deliveries), a.Err
			if job := wide[i]; job != nil {
				r.Deliveries += job.all
			}
		}
		done += len(stored)
	}
	return receipts, nil
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

// dotted tells dotted names: letters, digits, - and _, at most 128 in all.
func dotted(s string) bool {
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

// printable tells names of tenants and the like: ASCII without spaces.
func printable(s string) bool {
	for i := range len(s) {
		if s[i] <= ' ' || s[i] > '~' {
			return false
		}
	}
	return len(s) <= 200
}

func alnum(c byte) bool { return c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' }

// check refuses what can't be delivered faithfully. Messages name the field and
// never the value.
func (e *Engine) check(ev *surehook.Event) error {
	switch {
	case ev.Type == "":
		return surehook.Invalid("type", "is required")
	case !dotted(ev.Type):
		return surehook.Invalid("type", "must be dotted names of letters, digits, - and _, at most 128 characters")
	case ev.Type == surehook.TypeTest || ev.Type == surehook.TypeDisabled:
		return surehook.Invalid("type", "is one that only surehook itself emits")
	case ev.ID != "" && !eventID(ev.ID):
		return surehook.Invalid("id", "must be at most 200 characters of A-Z a-z 0-9 _ : - (no dot)")
	case !ev.OccurredAt.IsZero() && (ev.OccurredAt.UTC().Year() < 1 || ev.OccurredAt.UTC().Year() > 9999):
		return surehook.Invalid("occurred_at", "must lie in the years 1 to 9999")
	case len(ev.Data) == 0:
		return surehook.Invalid("data", "is required; it may be any JSON value")
	case len(ev.Data) > e.opt.MaxEventBytes:
		return surehook.Invalid("data", fmt.Sprintf("is over %d bytes", e.opt.MaxEventBytes))
	case !utf8.Valid(ev.Data):
		return surehook.Invalid("data", "must be valid UTF-8")
	case !validJSON(ev.Data):
		return surehook.Invalid("data", "must be one JSON value")
	}
	for _, f := range [...]struct{ name, value string }{{"tenant_id", ev.Tenant}, {"identity_id", ev.Identity}, {"owner", ev.Owner}} {
		if !printable(f.value) {
			return surehook.Invalid(f.name, "must be at most 200 printable ASCII characters without spaces")
		}
	}
	if len(ev.Subjects) > 16 {
		return surehook.Invalid("subjects", "holds more than 16")
	}
	if i := slices.IndexFunc(ev.Subjects, func(s string) bool { return s == "" || len(s) > 256 || !utf8.ValidString(s) }); i >= 0 {
		return surehook.Invalid(fmt.Sprintf("subjects[%d]", i), "must be 1 to 256 bytes of UTF-8")
	}
	return nil
}
