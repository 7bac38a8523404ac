package surehook

import (
	"testing"
	"time"
)

var dawn = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// failure is an attempt that failed, at a time after dawn.
func failure(at time.Duration, code Code) *Outcome {
	return &Outcome{Version: 1, Attempt: &Attempt{Status: AttemptFailed, Code: code, CreatedAt: dawn.Add(at), Duration: time.Second}}
}

func success(at time.Duration) *Outcome {
	return &Outcome{Version: 1, Attempt: &Attempt{Status: AttemptSucceeded, CreatedAt: dawn.Add(at), Duration: time.Second}}
}

// settle is one batch.
func settle(h Health, rule HealthRule, os ...*Outcome) (Health, string) {
	var t Tally
	for _, o := range os {
		t.Add(o)
	}
	next, _, reason, _ := t.Settle(h, 1, rule)
	return next, reason
}

var hundred = HealthRule{After: 100, Over: 24 * time.Hour}

// F-03: attempts are counted, not deliveries, and a success begins anew.
func TestF03_AttemptsAreCountedAndASuccessResets(t *testing.T) {
	var h Health
	at := time.Duration(0)
	step := func(o func(time.Duration) *Outcome) string {
		at += time.Hour
		var reason string
		h, reason = settle(h, HealthRule{After: 5}, o(at))
		return reason
	}
	fail := func(at time.Duration) *Outcome { return failure(at, Status5xx) }
	for i, o := range []func(time.Duration) *Outcome{fail, fail, fail, fail, success, fail, fail, fail, fail, fail} {
		if reason := step(o); (reason == ReasonFailing) != (i == 9) {
			t.Errorf("after step %d: %q with %d failures", i, reason, h.ConsecutiveFailures)
		}
	}
	// One delivery that fails again and again counts as often as it is attempted.
	h = Health{}
	for i := range 12 {
		if _, reason := settle(h, HealthRule{After: 12}, fail(0)); reason != "" {
			t.Errorf("disabled after %d attempts", i+1)
		}
		h, _ = settle(h, HealthRule{After: 12}, fail(time.Duration(i)*time.Minute))
	}
	if h.ConsecutiveFailures != 12 {
		t.Errorf("%d failures counted", h.ConsecutiveFailures)
	}
}

// F-04: every answer but a success counts, whatever follows of it; the same
// failure in two batches is for the store to see, and two in one batch are two.
func TestF04_FinalAnswersCount(t *testing.T) {
	dead := failure(0, Status4xx)
	dead.Attempt.Status = AttemptDead
	h, _ := settle(Health{}, hundred, dead, failure(time.Second, Timeout))
	if h.ConsecutiveFailures != 2 || !h.FirstFailureAt.Equal(dawn) || !h.LastFailureAt.Equal(dawn.Add(2*time.Second)) {
		t.Errorf("health %+v", h)
	}
}

// F-05: a burst is no reason, however many fail.
func TestF05_ABurstDisablesNothing(t *testing.T) {
	var os []*Outcome
	for i := range 1000 {
		os = append(os, failure(time.Duration(i)*60*time.Millisecond, Status5xx))
	}
	h, reason := settle(Health{}, hundred, os...)
	if reason != "" || h.ConsecutiveFailures != 1000 {
		t.Errorf("%q, %+v", reason, h)
	}
	if _, reason = settle(h, hundred, failure(23*time.Hour, Status5xx)); reason != "" {
		t.Error("disabled before the time was over")
	}
	if _, reason = settle(h, hundred, failure(25*time.Hour, Status5xx)); reason != ReasonFailing {
		t.Error("not disabled after a day of failures")
	}
	h, _ = settle(h, hundred, success(2*time.Minute))
	if _, reason = settle(h, hundred, failure(25*time.Hour, Status5xx)); reason != "" {
		t.Error("a success didn't count")
	}
}

// Failures that ended before the last success, those of an earlier version and
// those in which nothing was sent say nothing.
func TestFailuresThatSayNothing(t *testing.T) {
	old := failure(time.Minute, Status410)
	old.Version = 0
	for name, os := range map[string][]*Outcome{
		"before the success": {success(time.Minute), failure(time.Second, Status5xx)},
		"an old version":     {success(0), old},
		"our secret":         {success(0), failure(time.Minute, SecretUnavailable)},
		"our crash":          {success(0), failure(time.Minute, Crashed)},
		"an erased event":    {success(0), failure(time.Minute, EventUnavailable)},
	} {
		if h, reason := settle(Health{}, HealthRule{After: 1, Gone: true}, os...); h.ConsecutiveFailures != 0 || reason != "" {
			t.Errorf("%s: %+v, %q", name, h, reason)
		}
	}
}

func TestGoneDisablesAtOnceWhereTheProfileSaysSo(t *testing.T) {
	for _, gone := range []bool{true, false} {
		if _, reason := settle(Health{}, HealthRule{Gone: gone}, failure(0, Status5xx), failure(1, Status410)); (reason == ReasonGone) != gone {
			t.Errorf("%t: %q", gone, reason)
		}
	}
	// A rule without bounds never disables.
	if _, reason := settle(Health{ConsecutiveFailures: 1e6, FirstFailureAt: dawn.Add(-1e6 * time.Hour)}, HealthRule{}, failure(0, Status5xx)); reason != "" {
		t.Errorf("%q", reason)
	}
}

func TestContentHashTellsContentFromContent(t *testing.T) {
	base := Event{ID: "e", Type: "a", Tenant: "t", Data: []byte("1")}
	seen := map[[16]byte]bool{base.ContentHash(): true}
	for i, e := range []Event{
		{Type: "at", Data: []byte("1")}, {Type: "a", Tenant: "t", Data: []byte("2")}, {Type: "a", Tenant: "t", Identity: "i", Data: []byte("1")},
		{Type: "a", Tenant: "t", Owner: "i", Data: []byte("1")}, {Type: "a", Tenant: "t", Subjects: []string{"1"}}, {Type: "a", Tenant: "t", Subjects: []string{"", "1"}},
	} {
		if h := e.ContentHash(); seen[h] {
			t.Errorf("event %d has the hash of another", i)
		} else {
			seen[h] = true
		}
	}
	later := base
	later.OccurredAt, later.Trace = dawn, "x"
	if later.ContentHash() != base.ContentHash() {
		t.Error("when it was said is part of the content")
	}
}
