package dispatch

import (
	"strconv"
	"strings"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

// fields lists the header fields of one attempt, by the names that the profile
// has for them, with those that never change last.
func (r *route) fields(ev *surehook.Event, a *surehook.Attempt, body []byte) []egress.Field {
	p := &r.profile
	h := make([]egress.Field, 0, len(r.header)+8)
	add := func(name, value string) {
		h = append(h, egress.Field{Name: name, Value: value})
	}
	if p.SchemaHeader != "" {
		add(p.SchemaHeader, string(r.envelope))
	}
	if p.SubscriptionHeader != "" {
		add(p.SubscriptionHeader, r.ID)
	}
	id := ev.WebhookID(r.Scope())
	add(p.IDHeader, r.id(id))
	if p.DeliveryHeader != "" {
		add(p.DeliveryHeader, r.id(a.ID))
	}
	if p.AttemptHeader != "" {
		add(p.AttemptHeader, strconv.Itoa(a.Number))
	}
	ts := a.CreatedAt.Unix()
	add(p.TimestampHeader, strconv.FormatInt(ts, 10))
	add(p.SignatureHeader, r.signer.Sign(id, ts, body))
	if p.TimeHeader != "" {
		add(p.TimeHeader, Timestamp(ev.OccurredAt))
	}
	if p.SequenceHeader != "" && ev.Sequence > 0 {
		add(p.SequenceHeader, strconv.FormatInt(ev.Sequence, 10))
	}
	return append(h, r.header...)
}

// Body is what an endpoint gets of an event by an attempt: in a request, or out of
// its inbox.
func Body(e *surehook.Endpoint, ev *surehook.Event, a *surehook.Attempt) []byte {
	r := &route{Endpoint: e, profile: profileOf(e), envelope: Envelope(e)}
	return r.body(newParcel(ev), a)
}

// WebhookID is an event's id at an endpoint, as it stands there.
func WebhookID(e *surehook.Endpoint, ev *surehook.Event) string {
	r := &route{Endpoint: e, profile: profileOf(e)}
	return r.id(ev.WebhookID(e.Scope()))
}

// body is what is sent: the event's bytes, or around them what tells of this
// attempt, where the profile wants that.
func (r *route) body(p *parcel, a *surehook.Attempt) []byte {
	if r.profile.PerAttempt {
		return r.audit(p, a)
	}
	return p.body(r.envelope, p.event.WebhookID(r.Scope()))
}

// id is how an id stands in a request. One that a caller made up is never changed.
func (r *route) id(id string) string {
	if !r.profile.BareIDs {
		return id
	}
	for _, prefix := range [...]string{"evt_", "dlv_"} {
		if bare, ok := strings.CutPrefix(id, prefix); ok {
			if _, err := ulid.ParseStrict(bare); err == nil {
				return bare
			}
		}
	}
	return id
}
