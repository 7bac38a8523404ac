package retry

import (
	"strings"
	"time"
)

// The three forms of an HTTP date, each of which is in GMT by definition.
var dateForms = []string{
	"Mon, 02 Jan 2006 15:04:05 GMT",  // IMF-fixdate
	"Monday, 02-Jan-06 15:04:05 GMT", // RFC 850
	"Mon Jan _2 15:04:05 2006",       // asctime
}

// ParseRetryAfter reads the Retry-After headers of an answer and returns the
// first that makes sense: whole seconds, or an HTTP date that is not past.
// Everything else is as good as no header: a fraction, a sign, a unit, a word.
// A number too large is cut to a year; the policy has a bound of its own.
func ParseRetryAfter(values []string, now time.Time) (time.Duration, bool) {
	for _, v := range values {
		v = strings.Trim(v, " \t")
		if d, ok := seconds(v); ok {
			return d, true
		}
		if d, ok := until(v, now); ok {
			return d, true
		}
	}
	return 0, false
}

// After is ParseRetryAfter in the form that Next takes: 0 where there is nothing
// to honour.
func After(values []string, now time.Time) time.Duration {
	d, _ := ParseRetryAfter(values, now)
	return d
}

func seconds(v string) (time.Duration, bool) {
	if v == "" {
		return 0, false
	}
	var n time.Duration
	for i := range len(v) {
		if v[i] < '0' || v[i] > '9' {
			return 0, false
		}
		n = min(n*10+time.Duration(v[i]-'0'), longest/time.Second)
	}
	return n * time.Second, true //nolint:durationcheck // n counts seconds
}

func until(v string, now time.Time) (time.Duration, bool) {
	for _, form := range dateForms {
		if at, err := time.Parse(form, v); err == nil {
			if d := at.Sub(now); d >= 0 {
				return min(d, longest), true
			}
			return 0, false
		}
	}
	return 0, false
}
