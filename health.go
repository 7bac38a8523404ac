package surehook

import (
	"crypto/sha256"
	"encoding/binary"
	"time"
)

// Tally gathers what a batch of attempts says about one endpoint's health.
// Stores use it so that both judge alike.
type Tally struct {
	failures    []*Outcome
	lastSuccess time.Time // when the last success of the batch finished
}

// Add counts an outcome whose attempt was stored for the first time.
func (t *Tally) Add(o *Outcome) {
	if o.Attempt.Status == AttemptSucceeded {
		if done := finished(o.Attempt); done.After(t.lastSuccess) {
			t.lastSuccess = done
		}
		return
	}
	t.failures = append(t.failures, o)
}

func finished(a *Attempt) time.Time { return a.CreatedAt.Add(a.Duration) }

// Settle gives an endpoint's health after the batch, whether it changed, and
// the reason for disabling it ("" for none) with the attempt that caused it.
// Failures that finished before the last success don't count, nor do those of
// an earlier version of the endpoint, nor those in which no request was made.
// version and rule are today's.
func (t *Tally) Settle(h Health, version int64, rule HealthRule) (next Health, changed bool, reason string, trigger *Attempt) {
	next = h
	if !t.lastSuccess.IsZero() {
		// A success in a healthy run changes nothing worth a write; the attempts
		// themselves tell when the last one was.
		if h.ConsecutiveFailures > 0 || h.LastSuccessAt.IsZero() {
			next.ConsecutiveFailures, next.FirstFailureAt, changed = 0, time.Time{}, true
		}
		if t.lastSuccess.After(h.LastSuccessAt) {
			next.LastSuccessAt = t.lastSuccess
		}
	}
	for _, o := range t.failures {
		a := o.Attempt
		if o.Version != version || a.Code.Ours() || finished(a).Before(next.LastSuccessAt) {
			continue
		}
		next.ConsecutiveFailures++
		changed = true
		if next.FirstFailureAt.IsZero() || a.CreatedAt.Before(next.FirstFailureAt) {
			next.FirstFailureAt = a.CreatedAt
		}
		if done := finished(a); done.After(next.LastFailureAt) {
			next.LastFailureAt, trigger = done, a
		}
		if a.Code == Status410 && rule.Gone {
			reason, trigger = ReasonGone, a
			break
		}
	}
	if reason == "" && trigger != nil && rule.broken(next) {
		reason = ReasonFailing
	}
	return next, changed, reason, trigger
}

func (r HealthRule) broken(h Health) bool {
	if r.After == 0 && r.Over == 0 {
		return false
	}
	return h.ConsecutiveFailures >= max(r.After, 1) && h.LastFailureAt.Sub(h.FirstFailureAt) >= r.Over
}

// Ours tells codes of attempts that made no request for a reason of our own: they
// say nothing about the receiver.
func (c Code) Ours() bool {
	switch c {
	case SecretUnavailable, EventUnavailable, EndpointDisabled, PayloadTooLarge, InboxFull, SessionEnded, ExpiredSentinel, RemovedSentinel, SentinelFull, Crashed:
		return true
	}
	return false
}

// FailingFrom is how many consecutive failures make an endpoint a failing one.
const FailingFrom = 10

// Counts are numbers of the whole store.
type Counts struct {
	Failing       int64 // enabled endpoints with FailingFrom or more consecutive failures
	Leases        int64 // of nodes that are there; 1 where a store has one process
	ExpiredLeases int64 // of nodes that are gone without a word, whose deliveries wait to be freed
	// Undispatched is when the oldest event occurred that waits for its fan-out, put
	// off or not; zero: none waits.
	Undispatched time.Time
}

// PendingCount is the number of pending rows by state.
type PendingCount struct {
	Owned, Due, Waiting int64
	Held                int64     // due, but of paused endpoints, or of a suspended partner's or its tenants': not in Due
	OldestDue           time.Time // zero: none due
}

// ContentHash tells whether two events with the same id are the same event. It
// covers what the caller says, not when it was said.
func (e *Event) ContentHash() [16]byte {
	if e.Given != [16]byte{} {
		return e.Given
	}
	h := sha256.New()
	var n [8]byte
	part := func(b []byte) {
		binary.LittleEndian.PutUint64(n[:], uint64(len(b)))
		h.Write(n[:])
		h.Write(b)
	}
	for _, s := range []string{e.Type, e.Tenant, e.Identity, e.Owner, e.About} {
		part([]byte(s))
	}
	for _, s := range e.Subjects {
		part([]byte(s))
	}
	part(e.Data)
	return [16]byte(h.Sum(nil)[:16])
}
