package profile

import (
	"slices"

	"github.com/surehook/surehook"
)

// Decision is what the outcome of an attempt means for its delivery.
type Decision uint8

// The decisions. Retry is the zero value: what nobody decided is tried again.
const (
	Retry     Decision = iota // failed; the retry policy says whether and when again
	Succeeded                 // a 2xx
	Dead                      // failed for good
	Disable                   // failed for good, and the endpoint is to get nothing more
)

func (d Decision) String() string {
	switch d {
	case Succeeded:
		return "succeeded"
	case Dead:
		return "dead"
	case Disable:
		return "disable"
	}
	return "retry"
}

// Classify decides by the outcome's code and HTTP status (0: there was no
// answer). Retry doesn't promise another attempt: the policy may have run out.
//
// Any 2xx is a success. A 3xx is a failure: it is never followed. Network,
// name and certificate errors are retried in every profile, as is an address
// that the guard refused: names change, deploys end.
func Classify(p Profile, code surehook.Code, status int) Decision {
	switch {
	case code.Final() || slices.Contains(p.FinalCodes, code):
		return Dead
	case code == surehook.OK && status >= 200 && status <= 299:
		return Succeeded
	case code == surehook.Status410 || (code == surehook.OK && status == 410):
		if p.Gone {
			return Disable
		}
		return Dead
	case !answered(code):
		return Retry
	}
	for _, s := range p.Final {
		if status >= s.From && status <= s.To {
			return Dead
		}
	}
	return Retry
}

// answered reports whether the code speaks of a whole answer, so that its
// status counts. A success code with an odd status is judged by the status.
func answered(code surehook.Code) bool {
	switch code {
	case surehook.OK, surehook.Redirect, surehook.Status4xx, surehook.Status429, surehook.Status5xx:
		return true
	}
	return false
}
