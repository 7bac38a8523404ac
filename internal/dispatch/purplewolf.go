package dispatch

import (
	"bytes"
	"strconv"

	"github.com/tidwall/gjson"

	"github.com/surehook/surehook"
)

// audit makes the body of one attempt in the purple-wolf envelope. What it says
// of the attempt stands first, so that the rest is made once for all of them.
func (r *route) audit(p *parcel, a *surehook.Attempt) []byte {
	tail := p.auditTail()
	b := make([]byte, 0, len(tail)+192)
	b = member(append(b, '{'), "schema", string(r.envelope))
	b = member(append(b, ','), "event_id", r.id(p.event.WebhookID(r.Scope())))
	b = member(append(b, ','), "delivery_id", r.id(a.ID))
	b = member(append(b, ','), "delivered_at", Timestamp(a.CreatedAt))
	b = append(b, `,"attempt":`...)
	b = strconv.AppendInt(b, int64(a.Number), 10)
	return append(append(b, ','), tail...)
}

// auditTail is the envelope behind the attempt's number: labels, source and event.
func (p *parcel) auditTail() []byte {
	if t := p.tail.Load(); t != nil {
		return *t
	}
	t := auditTail(p.event)
	p.tail.Store(&t)
	return t
}

func auditTail(e *surehook.Event) []byte {
	if e.Type == surehook.TypeAudit && IsAudit(e.Data) {
		return e.Data[1:]
	}
	data := e.Content()
	if len(data) == 0 {
		data = []byte("null")
	}
	b := make([]byte, 0, len(data)+128)
	b = append(b, `"source":{"middleware":null,"router":null,"entry_point":null,`...)
	b = member(b, "relay_instance", source(e))
	b = append(b, `},"event":`...)
	return append(append(b, data...), '}')
}

// Audit makes the data of an audit event: the purple-wolf envelope from its labels
// on. labels are JSON, nil for none; the event's bytes are taken as they are.
func Audit(labels []byte, middleware, router, entryPoint, instance string, event []byte) []byte {
	b := make([]byte, 0, len(labels)+len(event)+len(middleware)+len(router)+len(entryPoint)+len(instance)+128)
	b = append(b, '{')
	if len(labels) > 0 {
		b = append(append(append(b, `"labels":`...), labels...), ',')
	}
	b = orNull(append(b, `"source":{`...), "middleware", middleware)
	b = orNull(append(b, ','), "router", router)
	b = orNull(append(b, ','), "entry_point", entryPoint)
	b = member(append(b, ','), "relay_instance", instance)
	b = append(b, `},"event":`...)
	return append(append(b, event...), '}')
}

// IsAudit tells data that Audit made, or that could be: anything else, of whatever
// type, becomes the envelope's event as a whole.
func IsAudit(data []byte) bool {
	if !bytes.HasPrefix(data, []byte(`{"source":{`)) && !bytes.HasPrefix(data, []byte(`{"labels":{`)) || data[len(data)-1] != '}' {
		return false
	}
	want := []string{"labels", "source", "event"}
	if data[2] == 's' {
		want = want[1:]
	}
	ok := true
	gjson.ParseBytes(data).ForEach(func(key, value gjson.Result) bool {
		if ok = len(want) > 0 && key.Str == want[0] && value.IsObject(); ok && key.Str != "event" {
			ok = texts(value, want[0])
		}
		if ok {
			want = want[1:]
		}
		return ok
	})
	return ok && len(want) == 0
}

// texts tells whether labels are texts, and the source has its four fields.
func texts(object gjson.Result, name string) bool {
	want, n, ok := []string{"middleware", "router", "entry_point", "relay_instance"}, 0, true
	object.ForEach(func(key, value gjson.Result) bool {
		n++
		switch {
		case name == "labels":
			ok = value.Type == gjson.String
		case n > len(want) || key.Str != want[n-1]:
			ok = false
		default:
			ok = value.Type == gjson.String || value.Type == gjson.Null && n < len(want)
		}
		return ok
	})
	return ok && n > 0 && (name == "labels" || n == len(want))
}
