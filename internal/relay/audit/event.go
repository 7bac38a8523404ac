// Package audit knows purple-wolf's audit lines: it finds them in a log, says
// what they hold, and which subscribers' filters they pass.
//
// Guarantee: no bytes make it panic, the event's JSON is what stood in the line,
// byte for byte, and the same line read again at the same place has the same id.
package audit

import (
	"errors"
	"fmt"
	"time"
)

// Action is what the firewall did with the request.
type Action string

// The actions. A line with any other isn't an audit line.
const (
	Block Action = "block"
	Allow Action = "allow"
)

// Severity grades a blocked rule.
type Severity uint8

// The severities, in their order. The zero value is that of an event without
// one: it is below every other.
const (
	NoSeverity Severity = iota
	Low
	Medium
	High
	Critical
)

var severities = [...]string{Low: "low", Medium: "medium", High: "high", Critical: "critical"}

// ParseSeverity reads a severity's name.
func ParseSeverity(s string) (Severity, error) {
	for sev, name := range severities {
		if name == s && s != "" {
			return Severity(sev), nil
		}
	}
	return NoSeverity, errors.New("must be one of low, medium, high, critical")
}

func (s Severity) String() string {
	if int(s) < len(severities) {
		return severities[s]
	}
	return fmt.Sprintf("severity(%d)", uint8(s))
}

// Event is one audit line.
type Event struct {
	ID       string    // a bare ULID: the same whenever the same line is read again
	Source   string    // the id of the source that it came from
	Received time.Time // when it was read

	JSON       []byte // the line's object, byte for byte
	Action     Action
	Rule       string   // blocked_rule; empty: none
	Severity   Severity // blocked_severity
	WouldBlock []string // would_block_rules
	// Labels are those of the line that keep the rules, and what enrichments
	// added; nil: none.
	Labels map[string]string

	// What Traefik says behind the object, without the provider behind the @.
	// Empty: the line didn't say.
	Middleware, Router, EntryPoint string
}
