package dispatch

import (
	"context"
	"net/textproto"
	"strconv"
	"strings"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/internal/retry"
	"github.com/surehook/surehook/profile"
)

const excerpt = 1 << 10 // of a failing receiver's answer

// ReservedHeader tells names that an endpoint's own headers may not have.
func ReservedHeader(name string) bool {
	switch n := strings.ToLower(textproto.TrimString(name)); {
	case egress.ReservedHeader(n), n == "content-type", n == "content-encoding", n == "user-agent", n == "traceparent", n == "idempotency-key", n == "x-mcp-subscription-id":
		return true
	default:
		return strings.HasPrefix(n, "webhook-") || strings.HasPrefix(n, "surehook-") || strings.HasPrefix(n, "x-purplewolf-")
	}
}

// Try is one attempt as observers see it.
type Try struct {
	Endpoint *surehook.Endpoint
	Event    *surehook.Event
	Attempt  *surehook.Attempt
	Decision surehook.Decision
	Wait     time.Duration // until the next attempt
	Host     string
	First    bool // the delivery's first attempt
}

// send makes one attempt, whatever for: first try, retry, replay and test come
// this way. The timestamp and the signatures are fresh; the bytes are only where
// the profile says so.
func (d *Dispatcher) send(ctx context.Context, r *route, p *parcel, number int) (*surehook.Attempt, egress.Result) {
	a := d.begun(r, p, number)
	res := d.request(ctx, r, p, a)
	a.Code, a.HTTPStatus, a.Error, a.Duration = res.Code, res.Status, res.Err, res.Phases.Total
	a.Phases = surehook.Phases{Resolve: res.Phases.Resolve, Connect: res.Phases.Connect, TLS: res.Phases.TLS,
		Write: res.Phases.Write, Wait: res.Phases.Wait, Read: res.Phases.Read}
	if res.Code != surehook.OK && len(res.Body) > 0 {
		a.Response = append([]byte(nil), res.Body[:min(len(res.Body), excerpt)]...)
	}
	return a, res
}

func (d *Dispatcher) request(ctx context.Context, r *route, p *parcel, a *surehook.Attempt) egress.Result {
	switch {
	case r.broken != surehook.OK:
		return egress.Result{Code: r.broken, Err: r.reason}
	case p.event.Erased || p.erased.Load():
		return egress.Result{Code: surehook.EventUnavailable, Err: "the event was erased"}
	}
	body := r.body(p, a)
	if r.profile.MaxBody > 0 && len(body) > r.profile.MaxBody {
		return egress.Result{Code: surehook.PayloadTooLarge, Err: "the body is over " + strconv.Itoa(r.profile.MaxBody) + " bytes"}
	}
	h := r.fields(p.event, a, body)
	if d.opt.CarryTrace && p.event.Trace != "" {
		h = append(h, egress.Field{Name: "traceparent", Value: p.event.Trace})
	}
	return d.client.Do(ctx, &egress.Request{Target: r.target, Header: h, Body: body, Timeout: r.timeout, ConnectTimeout: r.profile.ConnectTimeout})
}

// attempt makes a row's next attempt and hands its outcome to the recorder.
func (l *lane) attempt(t turn) {
	d, r := l.d, t.route
	var a *surehook.Attempt
	var res egress.Result
	if code, why := r.outlived(t, d.now()); code != surehook.OK {
		a = d.begun(r, t.parcel, t.Attempt+1)
		a.Code, a.Error = code, why
	} else {
		a, res = d.safeSend(d.ctx, r, t.parcel, t.Attempt+1)
	}
	if res.Cancelled {
		l.finished(end{mute: true, probe: t.probe})
		d.recorder.put(result{Outcome: surehook.Outcome{Delivery: t.Delivery, Decision: surehook.Release}, lane: l})
		return
	}
	o := surehook.Outcome{Delivery: t.Delivery, Attempt: a, Version: r.Version}
	later := retry.After(res.RetryAfter, d.now())
	o.Decision, o.Wait = d.decide(r, a, t.FirstAttempt, later)
	a.Status = statusOf(o.Decision)
	e := end{ok: o.Decision == surehook.Finish, mute: a.Code.Ours(), probe: t.probe,
		throttled: r.profile.Throttles(a.HTTPStatus), pause: min(later, probeLatest)}
	if a.Code == surehook.Status410 && r.profile.Gone {
		e.throttled, e.pause = true, probeLatest // nothing more is sent while the disabling is written
	}
	l.finished(e)
	d.observe(Try{Endpoint: r.Endpoint, Event: t.parcel.event, Attempt: a, Decision: o.Decision, Wait: o.Wait,
		Host: r.host(), First: t.FirstAttempt == 1 && t.Attempt == 0})
	d.recorder.put(result{Outcome: o, lane: l, rule: r.rule(d), occurred: t.parcel.event.OccurredAt})
}

// Arrival is a delivery's first success, after it was recorded.
type Arrival struct {
	Attempt    *surehook.Attempt
	OccurredAt time.Time // of the event
}

// Latency is the time from the event to the receiver's answer.
func (a Arrival) Latency() time.Duration {
	return max(a.Attempt.CreatedAt.Add(a.Attempt.Duration).Sub(a.OccurredAt), 0)
}

// arrived tells of a first success.
func (d *Dispatcher) arrived(a Arrival) {
	if d.opt.Arrived != nil {
		d.spare("of arrivals", func() { d.opt.Arrived(a) })
	}
}

// died tells of dead letters, by the types of their events.
func (d *Dispatcher) died(byType map[string]int) {
	if d.opt.Died != nil && len(byType) > 0 {
		d.spare("of dead letters", func() { d.opt.Died(byType) })
	}
}

// ended tells of dead letters that no attempt made.
func (d *Dispatcher) ended(why surehook.Code, n int) {
	if d.opt.Ended != nil && n > 0 {
		d.spare("of ended deliveries", func() { d.opt.Ended(why, n) })
	}
}

// observe tells the observer.
func (d *Dispatcher) observe(t Try) { d.spare("of attempts", func() { d.opt.Observe(t) }) }

// spare calls an observer. What it does wrong is no delivery's fault.
func (d *Dispatcher) spare(of string, f func()) {
	defer func() {
		if v := recover(); v != nil {
			d.log.Error("an observer "+of+" panicked", "panic", v)
		}
	}()
	f()
}

// safeSend keeps a panic in one attempt from taking the process, and every other
// delivery, with it.
func (d *Dispatcher) safeSend(ctx context.Context, r *route, p *parcel, number int) (a *surehook.Attempt, res egress.Result) {
	defer func() {
		if v := recover(); v != nil {
			d.log.Error("an attempt panicked", "webhook_id", r.ID, "event_id", p.event.ID, "panic", v)
			a, res = d.begun(r, p, number), egress.Result{Code: surehook.Crashed}
			a.Code, a.Error = surehook.Crashed, "the attempt failed inside the sender"
		}
	}()
	return d.send(ctx, r, p, number)
}

// begun is the record of an attempt that starts now.
func (d *Dispatcher) begun(r *route, p *parcel, number int) *surehook.Attempt {
	now := d.now()
	return &surehook.Attempt{ID: "dlv_" + d.opt.NewID(now), EventKey: p.event.Key, EndpointKey: r.Key, EventID: p.event.ID,
		EventType: p.event.Type, EndpointID: r.ID, Number: number, CreatedAt: now}
}

// decide is the one place where an outcome becomes a decision.
func (d *Dispatcher) decide(r *route, a *surehook.Attempt, first int, after time.Duration) (surehook.Decision, time.Duration) {
	switch profile.Classify(r.profile, a.Code, a.HTTPStatus) {
	case profile.Succeeded:
		return surehook.Finish, 0
	case profile.Retry:
		if wait, again := retry.Next(r.retry, a.Number-first+1, after, d.opt.Random()); again {
			return surehook.Again, wait
		}
	}
	return surehook.Bury, 0
}

func statusOf(d surehook.Decision) surehook.AttemptStatus {
	switch d {
	case surehook.Finish:
		return surehook.AttemptSucceeded
	case surehook.Again:
		return surehook.AttemptFailed
	}
	return surehook.AttemptDead
}

func (r *route) host() string {
	if r.target == nil {
		return ""
	}
	return r.target.Host()
}
