package engine_test

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/profile"
)

// key is a delivery, by event and endpoint.
type key struct{ id, hook string }

// in tells whether a time lies within a span.
func (s span) in(at time.Time) bool {
	return !at.Before(s.from) && (s.to.IsZero() || at.Before(s.to))
}

// meets tells whether a span has a part of from to to.
func (s span) meets(from, to time.Time) bool {
	return s.from.Before(to) && (s.to.IsZero() || s.to.After(from))
}

func within(spans []span, at time.Time) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.in(at) })
}

func meet(spans []span, from, to time.Time) bool {
	return slices.ContainsFunc(spans, func(s span) bool { return s.meets(from, to) })
}

// deliveries are those at an endpoint, by event.
func (y *year) deliveries(h *hook, status surehook.DeliveryStatus) map[string]surehook.DeliveryView {
	out := map[string]surehook.DeliveryView{}
	for p := (surehook.Page{Limit: 1000}); ; {
		views, err := y.store.ListDeliveries(y.t.Context(), surehook.DeliveryFilter{Endpoint: h.ep.Key, Status: status}, p)
		if err != nil {
			y.t.Fatal(err)
		}
		for _, v := range views {
			out[v.EventID] = v
		}
		if len(views) < p.Limit {
			return out
		}
		p.Cursor = views[len(views)-1].EventKey
	}
}

// check holds the whole year against the model.
func (y *year) check() {
	y.arrived = map[key]bool{}
	y.mustnts = map[surehook.Code]int{}
	y.readLetters()
	for _, h := range y.hooks {
		h.views = y.deliveries(h, "")
		y.checkRequests(h)
		y.checkDisabling(h)
		for _, ev := range y.events {
			view, ok := h.views[ev.id]
			if ok != slices.Contains(ev.to, h) {
				y.t.Errorf("%s at %s: queued: %v", ev.id, h.name, ok)
			}
			if ok {
				y.checkDelivery(ev, h, view)
			}
		}
	}
}

// envelope is what the model reads of a body.
type envelope struct {
	ID, Type string
	Sequence *int64
	Data     struct {
		Webhook string `json:"webhook_id"`
		Reason  string
	}
}

// checkRequests looks at everything that an endpoint's receivers got.
func (y *year) checkRequests(h *hook) {
	last, tries, causes := map[string]int64{}, map[string][]seen{}, y.causes(h)
	for i, addr := range append(slices.Clone(h.old), h.addr) {
		log := y.net.requests(addr)
		if moved := i < len(h.old); moved && len(log) > 0 {
			changes := slices.DeleteFunc(slices.Clone(h.off), func(s span) bool { return s.why != surehook.ReasonURLChanged })
			if late := log[len(log)-1].at; late.After(changes[i].from) {
				y.t.Errorf("%s: a request to the old address at %s", h.name, late)
			}
		}
		for _, r := range log {
			if r.header == nil {
				continue // refused before it was said
			}
			var body envelope
			if err := json.Unmarshal(r.body, &body); err != nil || body.ID != r.header.Get("webhook-id") {
				y.t.Fatalf("%s: %s, %v", h.name, r.body, err)
			}
			y.checkSignature(h, r)
			if body.Type == surehook.TypeTest {
				continue
			}
			// One answer disables the endpoint in the same moment, for the clock stands
			// still while somebody works: that request was sent before.
			cause := slices.ContainsFunc(causes, r.same)
			if (within(h.off, r.at) && !cause) || within(h.suspended, r.at) {
				y.t.Errorf("%s: %s is sent at %s, while it is disabled or held", h.name, body.ID, r.at)
			}
			if body.Type == surehook.TypeDisabled {
				continue
			}
			tries[body.ID] = append(tries[body.ID], r)
			if ev := y.event(body.ID); r.accepted {
				y.checkOrder(h, ev, r, body, last)
			}
		}
	}
	if !h.ep.Ordered {
		for id, log := range tries {
			y.checkWaits(h, id, log)
		}
	}
}

func (y *year) event(id string) *happened {
	n, err := strconv.Atoi(strings.TrimPrefix(id, "evt_"))
	if err != nil || n >= len(y.events) {
		y.t.Fatalf("nobody published %s", id)
	}
	return y.events[n]
}

// checkOrder: an event arrives once, with its place, and at the ordered endpoint
// after those before it.
func (y *year) checkOrder(h *hook, ev *happened, r seen, body envelope, last map[string]int64) {
	k := key{ev.id, h.name}
	if y.arrived[k] {
		y.t.Errorf("%s: %s arrives twice", h.name, ev.id)
	}
	y.arrived[k] = true
	if body.Sequence == nil || *body.Sequence != ev.sequence || r.header.Get("Surehook-Sequence") != strconv.FormatInt(ev.sequence, 10) {
		y.t.Errorf("%s: %s has sequence %v, not %d", h.name, ev.id, body.Sequence, ev.sequence)
	}
	if !h.ep.Ordered || ev.replayed[h] {
		return
	}
	if ev.sequence <= last[ev.owner] {
		y.t.Errorf("%s: %s, number %d of %s, arrives after number %d", h.name, ev.id, ev.sequence, ev.owner, last[ev.owner])
	}
	last[ev.owner] = ev.sequence
}

// checkSignature: every secret of the time signs, the newest first, and no other.
func (y *year) checkSignature(h *hook, r seen) {
	ts, err := strconv.ParseInt(r.header.Get("webhook-timestamp"), 10, 64)
	if err != nil || r.at.Sub(time.Unix(ts, 0)).Abs() > time.Second {
		y.t.Errorf("%s: timestamp %d at %s", h.name, ts, r.at)
	}
	as := receivertest.Request{Body: r.body}
	for _, name := range []string{"webhook-id", "webhook-timestamp"} {
		as.Header = append(as.Header, name+": "+r.header.Get(name))
	}
	var want []string
	for _, s := range slices.Backward(h.secrets) {
		if (span{from: s.from, to: s.to}).in(r.at) {
			want = append(want, signature(y.t, s.text, as))
		}
	}
	if got := r.header.Get("webhook-signature"); got != strings.Join(want, " ") || len(want) == 0 || len(want) > 2 {
		y.t.Errorf("%s at %s: %d signatures, %d secrets are valid then, or others", h.name, r.at, len(strings.Fields(got)), len(want))
	}
}

// checkWaits: no retry comes before its time, and no run has more than 13 attempts.
func (y *year) checkWaits(h *hook, id string, log []seen) {
	waits := profile.Pylota.Retry.Waits
	if y.event(id).replayed[h] {
		return // two runs
	}
	if len(log) > len(waits)+1 {
		y.t.Errorf("%s: %d attempts of %s", h.name, len(log), id)
		return
	}
	n, ok := h.views[id]
	if !ok || n.Attempts != len(log) {
		return // some were refused before they were said
	}
	for i := 1; i < len(log); i++ {
		gap := log[i].at.Sub(log[i-1].at)
		if least := waits[i-1]*9/10 - time.Second; gap < least {
			y.t.Errorf("%s: attempt %d of %s comes %s after the one before, not %s at least", h.name, i+1, id, gap, least)
		}
	}
}

// checkDelivery: what arrived is succeeded; what didn't is dead, for a reason that
// the model knows; and where the model knows which of them it must be, it is.
func (y *year) checkDelivery(ev *happened, h *hook, view surehook.DeliveryView) {
	arrived := y.arrived[key{ev.id, h.name}]
	must, mustnt := y.mustArrive(ev, h), y.mustDie(ev, h)
	if must {
		y.musts++
	}
	if mustnt {
		y.mustnts[y.letters[[2]int64{view.EventKey, view.EndpointKey}].Code]++
	}
	switch {
	case arrived != (view.Status == surehook.Succeeded), !arrived && view.Status != surehook.Dead:
		y.t.Errorf("%s at %s: arrived: %v, status %s", ev.id, h.name, arrived, view.Status)
		return
	case !arrived && !y.mayDie(ev, h, view):
		y.t.Errorf("%s at %s died of %q after %d attempts at %s, which has no cause", ev.id, h.name, view.LastCode, view.Attempts, view.LastAttemptAt)
	case !arrived && must:
		y.t.Errorf("%s at %s died, although there was time", ev.id, h.name)
	case arrived && mustnt:
		y.t.Errorf("%s at %s arrived, although nobody was there", ev.id, h.name)
	}
}

// mayDie: 13 attempts, the last of them in an outage of that kind; or what was left
// of it when the endpoint was disabled; or its window, which ended in a suspension.
func (y *year) mayDie(ev *happened, h *hook, view surehook.DeliveryView) bool {
	letter := y.letters[[2]int64{view.EventKey, view.EndpointKey}]
	switch letter.Code {
	case surehook.EndpointDisabled:
		return within(h.off, letter.CreatedAt)
	case surehook.EventUnavailable:
		look := letter.CreatedAt.Add(-time.Millisecond) // the last may have been in the moment of the end
		return within(h.suspended, look) && !letter.CreatedAt.Before(ev.at.Add(window))
	}
	return view.Attempts == 13 && slices.ContainsFunc(h.faults, func(s span) bool {
		return s.in(view.LastAttemptAt) && string(s.why) == string(letter.Code)
	})
}

// mustArrive: nothing but outages came between, and they left room for an attempt.
func (y *year) mustArrive(ev *happened, h *hook) bool {
	if meet(h.off, ev.at, ev.at.Add(longest)) || meet(h.suspended, ev.at, ev.at.Add(longest)) {
		return slices.ContainsFunc(h.suspended, func(s span) bool { // a short one costs nothing
			return s.meets(ev.at, ev.at.Add(longest)) && s.to.Before(ev.at.Add(window-day)) && !meet(h.off, ev.at, s.to.Add(longest)) && !meet(h.faults, ev.at, s.to.Add(longest))
		})
	}
	if h.ep.Ordered {
		return !meet(h.faults, ev.at.Add(-2*longest), ev.at.Add(longest)) // else those before it take their time
	}
	return !meet(h.faults, ev.at.Add(shortest), ev.at.Add(longest))
}

// mustDie: an outage took all the attempts, or a suspension all the window.
func (y *year) mustDie(ev *happened, h *hook) bool {
	if ev.replayed[h] {
		return false
	}
	for _, s := range h.faults {
		if s.in(ev.at) && s.in(ev.at.Add(longest)) {
			return true
		}
	}
	for _, s := range h.suspended {
		if s.in(ev.at) && s.in(ev.at.Add(window+day)) {
			return true
		}
	}
	return false
}

// same tells whether two requests are one.
func (s seen) same(as seen) bool {
	return s.at.Equal(as.at) && s.header.Get("webhook-id") == as.header.Get("webhook-id")
}

// causes finds the requests that disable an endpoint: the hundredth failure in a
// row if they took a day, and a 410.
func (y *year) causes(h *hook) (causes []seen) {
	var log []seen
	for _, addr := range append(slices.Clone(h.old), h.addr) {
		log = append(log, y.net.requests(addr)...)
	}
	var run []time.Time
	for _, r := range log {
		for _, off := range h.off {
			if len(run) > 0 && run[len(run)-1].Before(off.to) && !r.at.Before(off.to) {
				run = nil // it was enabled again
			}
		}
		if r.accepted {
			run = nil
			continue
		}
		run = append(run, r.at)
		gone := slices.ContainsFunc(h.faults, func(s span) bool { return s.in(r.at) && s.why == leaves })
		if gone || len(run) >= 100 && r.at.Sub(run[0]) >= day {
			causes, run = append(causes, r), nil
		}
	}
	return causes
}

// checkDisabling: an endpoint is disabled within a minute of each cause, and by
// nothing less; the platform is told of each once.
func (y *year) checkDisabling(h *hook) {
	var due []time.Time
	for _, r := range y.causes(h) {
		due = append(due, r.at)
	}
	told := y.toldOf(h)
	n := 0
	for _, off := range h.off {
		if off.why == surehook.ReasonURLChanged {
			continue
		}
		if n >= len(due) || off.from.Sub(due[n]).Abs() > time.Minute {
			y.t.Errorf("%s is disabled (%s) at %s; %v were due", h.name, off.why, off.from, due)
		}
		n++
	}
	if n != len(due) || told != n {
		y.t.Errorf("%s: disabled %d times, %d were due, %d times told of", h.name, n, len(due), told)
	}
}

// toldOf counts what the platform's endpoint got about another one.
func (y *year) toldOf(h *hook) int {
	platform, n := y.hooks[len(y.hooks)-1], 0
	for _, addr := range append(append([]netip.Addr(nil), platform.old...), platform.addr) {
		for _, r := range y.net.requests(addr) {
			var body envelope
			if r.accepted && json.Unmarshal(r.body, &body) == nil && body.Type == surehook.TypeDisabled && body.Data.Webhook == h.ep.ID {
				n++
			}
		}
	}
	return n
}

// readLetters reads all dead letters, by event and endpoint.
func (y *year) readLetters() {
	y.letters = map[[2]int64]surehook.DeadLetter{}
	for p := (surehook.Page{Limit: 1000}); ; {
		letters, err := y.store.ListDeadLetters(y.t.Context(), surehook.DeadLetterFilter{}, p)
		if err != nil {
			y.t.Fatal(err)
		}
		for _, l := range letters {
			y.letters[[2]int64{l.EventKey, l.EndpointKey}] = l
		}
		if len(letters) < p.Limit {
			return
		}
		p.Cursor = letters[len(letters)-1].Key
	}
}
