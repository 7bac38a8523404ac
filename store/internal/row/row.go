// Package row is how the stores write down values that have no type of their own
// in a database. All stores do it alike, so that data can move between them.
package row

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/surehook/surehook"
)

// Statuses are stored as their place in this list.
var Statuses = []surehook.AttemptStatus{1: surehook.AttemptSucceeded, 2: surehook.AttemptFailed, 3: surehook.AttemptDead}

// The flags of an attempt, added up.
const (
	Late = 1
	Test = 2
)

// List is how lists of text are stored.
func List(v []string) string {
	if len(v) == 0 {
		return "[]"
	}
	b, _ := json.Marshal(v) // a []string always marshals
	return string(b)
}

// Item is how a text stands in a List. Its quotes delimit it: it is in a list that
// has the text as an item, and in no other.
func Item(text string) string { return strings.Trim(List([]string{text}), "[]") }

// ParseList is List backwards.
func ParseList[T string | []byte](raw T) ([]string, error) {
	if string(raw) == "[]" {
		return nil, nil
	}
	var v []string
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return nil, fmt.Errorf("a stored list can't be read: %w", err)
	}
	return v, nil
}

// Headers is how an endpoint's headers are stored.
func Headers(v map[string]string) string {
	if len(v) == 0 {
		return "{}"
	}
	b, _ := json.Marshal(v) // strings always marshal
	return string(b)
}

// ParseHeaders is Headers backwards.
func ParseHeaders[T string | []byte](raw T) (map[string]string, error) {
	if string(raw) == "{}" {
		return nil, nil
	}
	var v map[string]string
	if err := json.Unmarshal([]byte(raw), &v); err != nil {
		return nil, fmt.Errorf("stored headers can't be read: %w", err)
	}
	return v, nil
}

// limits is how surehook.Limits are stored: durations in milliseconds.
type limits struct {
	Waits       []int64 `json:"waits,omitempty"`
	Attempts    int     `json:"attempts,omitempty"`
	Timeout     int64   `json:"timeout,omitempty"`
	Rate        float64 `json:"rate,omitempty"`
	Concurrency int     `json:"concurrency,omitempty"`
	Paused      bool    `json:"paused,omitempty"`
}

// Limits is how an endpoint's limits are stored. Its error is that of a rate
// which is no number.
func Limits(l surehook.Limits) (string, error) {
	out := limits{Attempts: l.Attempts, Timeout: l.Timeout.Milliseconds(), Rate: l.Rate, Concurrency: l.Concurrency, Paused: l.Paused}
	for _, w := range l.Waits {
		out.Waits = append(out.Waits, w.Milliseconds())
	}
	b, err := json.Marshal(out)
	return string(b), err
}

// ParseLimits is Limits backwards.
func ParseLimits[T string | []byte](raw T) (surehook.Limits, error) {
	var in limits
	if err := json.Unmarshal([]byte(raw), &in); err != nil {
		return surehook.Limits{}, fmt.Errorf("stored limits can't be read: %w", err)
	}
	out := surehook.Limits{Attempts: in.Attempts, Timeout: time.Duration(in.Timeout) * time.Millisecond, Rate: in.Rate, Concurrency: in.Concurrency, Paused: in.Paused}
	for _, w := range in.Waits {
		out.Waits = append(out.Waits, time.Duration(w)*time.Millisecond)
	}
	return out, nil
}

// PageSize is how many rows a page has.
func PageSize(p surehook.Page) int { return min(max(p.Limit, 1), 1000) }

// CeilMillis is a bound in whole milliseconds: stored times are cut to them, so
// that a row of 12.3 ms stored as 12 isn't before a bound of 12.3 ms by chance
// alone, and x ≥ ceil(bound) is what x ≥ bound means for whole x.
func CeilMillis(t time.Time) int64 {
	ms := t.UnixMilli()
	if t.Sub(time.UnixMilli(ms)) > 0 {
		ms++
	}
	return ms
}

const maxBuckets = 10_000

// Buckets makes the buckets of a window: every step has one.
func Buckets(since, until time.Time, step time.Duration) ([]surehook.StatsBucket, error) {
	if step < time.Millisecond || !since.Before(until) {
		return nil, surehook.Invalid("step", "the window and its step must be positive")
	}
	window := until.Sub(since)
	n := window / step
	if window%step > 0 {
		n++
	}
	if n > maxBuckets {
		return nil, surehook.Invalid("step", "is too small for the window")
	}
	out := make([]surehook.StatsBucket, n)
	for i := range out {
		out[i].Start = since.Add(time.Duration(i) * step)
	}
	return out, nil
}

// OfTenant is an audit entry about what belongs to a tenant, which the store alone
// knows.
func OfTenant(a *surehook.AuditEntry, tenant string) *surehook.AuditEntry {
	if a == nil {
		return nil
	}
	b := *a
	b.Tenant = tenant
	return &b
}
