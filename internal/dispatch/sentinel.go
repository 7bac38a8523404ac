package dispatch

import (
	"bytes"
	"encoding/json"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/profile"
)

// sentinelBody is {eventId, name, timestamp, data, cursor}. data is the event's own,
// with its subject and summary in it; what isn't an object is its value. A body over
// the profile's bound has those two alone, and says so.
func sentinelBody(e *surehook.Event, id string, data []byte) []byte {
	subject, summary := "", ""
	if len(e.Subjects) > 0 {
		subject = e.Subjects[0]
	}
	if c, ok := e.CloudEvent(); ok {
		summary, _ = c.Extensions["summary"].(string)
	}
	tail := member(nil, "subject", subject)
	tail = member(append(tail, ','), "summary", summary)
	tail = append(tail, `},"cursor":null`...)
	b := make([]byte, 0, len(data)+len(tail)+len(id)+len(e.Type)+128)
	b = member(append(b, '{'), "eventId", id)
	b = member(append(b, ','), "name", e.Type)
	b = member(append(b, ','), "timestamp", Timestamp(e.OccurredAt))
	b = append(b, `,"data":{`...)
	head := len(b)
	b = append(append(spread(b, data), tail...), '}')
	if most := profile.Sentinel.MaxBody; len(b) > most {
		b = append(append(b[:head], tail...), `,"truncated":true}`...)
	}
	return b
}

// spread writes the members of an object as they stand, but for those that are
// written behind them, each followed by a comma. Another value becomes one member.
func spread(b, data []byte) []byte {
	d := json.NewDecoder(bytes.NewReader(data))
	if open, err := d.Token(); err != nil || open != json.Delim('{') {
		return append(append(append(b, `"value":`...), data...), ',')
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			break // it was valid JSON when it was accepted
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			break
		}
		if key, _ := name.(string); key != "subject" && key != "summary" {
			b = append(append(append(quoted(b, key), ':'), value...), ',')
		}
	}
	return b
}

// outlived tells why a row isn't to be sent any more, though its endpoint takes
// others: its sentinel's time is over, or it has waited for longer than its profile
// lets it. A replay is somebody's wish, however old its event.
func (r *route) outlived(t turn, now time.Time) (surehook.Code, string) {
	if n := r.Sentinel; n != nil && n.Until.Kind == surehook.UntilAt && !now.Before(n.Until.At) {
		return surehook.ExpiredSentinel, "the sentinel's time was over"
	}
	if most := r.profile.MaxAge; most > 0 && t.FirstAttempt == 1 && now.Sub(t.parcel.event.CreatedAt) > most {
		return surehook.EventUnavailable, "it waited for longer than " + most.String()
	}
	return surehook.OK, ""
}

// endCode is how the rows of an endpoint end that is disabled or deleted. Those of
// a sentinel's leave dead letters after it as well.
func endCode(e *surehook.Endpoint) (code surehook.Code, letters bool) {
	switch {
	case e.Deleted && e.Watches():
		return surehook.RemovedSentinel, true
	case e.DisabledReason == surehook.ReasonExpired:
		return surehook.ExpiredSentinel, true
	}
	return surehook.EndpointDisabled, !e.Deleted
}
