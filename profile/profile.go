// Package profile holds how endpoints are spoken to, as values: signature
// scheme, headers, retry schedule, which answers are final, when to disable.
// The engine has one code path; what differs between the systems that it
// speaks for is here.
//
// It guarantees that nothing but a 2xx is a success, and that every failure is
// either retried or ends its delivery visibly.
package profile

import (
	"slices"
	"strings"
	"time"

	"github.com/surehook/surehook"
)

// Scheme is how requests are signed.
type Scheme string

// The schemes.
const (
	StandardWebhooks Scheme = "standard-webhooks" // v1, or v1a where the endpoint says so
	PurpleWolfHMAC   Scheme = "purple-wolf"       // sha256= hex, one secret
)

// Statuses is a range of HTTP statuses, both ends included.
type Statuses struct{ From, To int }

// DisableRule says when failures disable an endpoint: After of them in a row,
// the first at least Over ago. The zero rule never does.
type DisableRule struct {
	After int // 0: any number
	Over  time.Duration
}

// Profile is how an endpoint is spoken to.
type Profile struct {
	Name   string
	Scheme Scheme

	// The names of the headers. An empty one isn't sent.
	IDHeader           string
	TimestampHeader    string
	SignatureHeader    string
	AttemptHeader      string
	DeliveryHeader     string
	SchemaHeader       string // has the envelope's name
	SubscriptionHeader string
	TimeHeader         string // when the event occurred
	SequenceHeader     string // the event's place with its owner; absent where it has none
	BareIDs            bool   // ids are ULIDs alone: our own go without their prefix
	UserAgent          string // "{version}" stands for the version
	UserAgentSettable  bool

	// Envelope is the body's form at endpoints that have the standard one; empty:
	// the standard one.
	Envelope surehook.Envelope

	// PerAttempt: the body is rendered for each attempt rather than stored once.
	PerAttempt bool
	MaxBody    int // bytes; beyond it the data is clamped or the delivery is dead. 0: the server's bound

	Retry      surehook.RetryPolicy
	Final      []Statuses      // answers that end the delivery at once
	FinalCodes []surehook.Code // outcomes that do, beyond those that always do
	Gone       bool            // a 410 disables the endpoint; else it ends the delivery alone
	Throttle   []int           // statuses that slow the endpoint's lane down
	Disable    DisableRule

	Timeout          time.Duration // of one attempt
	ConnectTimeout   time.Duration // its share for connecting; 0: all of it
	MaxAge           time.Duration // how long after its event was accepted a delivery's first run may begin; 0: for ever
	ChallengeTimeout time.Duration // of the request that proves an endpoint's owner; 0: Timeout

	// How long a rotated secret goes on signing beside the new one.
	// OverlapMax 0: the scheme has no room for two signatures.
	OverlapDefault time.Duration
	OverlapMax     time.Duration
}

// Agent is the User-Agent of a version.
func (p Profile) Agent(version string) string {
	return strings.ReplaceAll(p.UserAgent, "{version}", version)
}

// Throttles reports whether a status slows the endpoint's lane down.
func (p Profile) Throttles(status int) bool { return slices.Contains(p.Throttle, status) }

// Overlap checks how long a rotated secret is to go on signing.
func (p Profile) Overlap(d time.Duration) error {
	switch {
	case d < 0:
		return surehook.Invalid("overlap_hours", "must not be negative")
	case d > 0 && p.OverlapMax == 0:
		return surehook.Invalid("overlap_hours", "the "+p.Name+" profile signs with one secret; only 0 is possible")
	case d > p.OverlapMax:
		return surehook.Invalid("overlap_hours", "is more than the "+p.Name+" profile allows ("+p.OverlapMax.String()+")")
	}
	return nil
}

// ByName finds a profile. The empty name is the default.
func ByName(name string) (Profile, bool) {
	if name == "" {
		return standard(), true
	}
	for _, make := range all {
		if p := make(); p.Name == name {
			return p, true
		}
	}
	return Profile{}, false
}

// Names lists the profiles, the default first.
func Names() []string {
	names := make([]string, 0, len(all))
	for _, make := range all {
		names = append(names, make().Name)
	}
	return names
}
