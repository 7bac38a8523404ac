package profile

import (
	"time"

	"github.com/surehook/surehook"
)

const (
	surehookAgent = "Surehook/{version}"
	day           = 24 * time.Hour
)

// The profiles. They share no memory with what ByName returns.
var (
	Standard   = standard()
	Pylota     = pylota()
	Sentinel   = sentinel()
	PurpleWolf = purpleWolf()
)

// Each call makes a fresh value, so that no caller can change another's.
var all = []func() Profile{standard, pylota, sentinel, purpleWolf}

// standard is Standard Webhooks as its specification advises, and the default.
func standard() Profile {
	return Profile{
		Name:            "standard",
		Scheme:          StandardWebhooks,
		IDHeader:        "webhook-id",
		TimestampHeader: "webhook-timestamp",
		SignatureHeader: "webhook-signature",
		AttemptHeader:   "Surehook-Attempt",
		TimeHeader:      "Surehook-Event-Time",
		SequenceHeader:  "Surehook-Sequence",
		UserAgent:       surehookAgent,
		Retry: surehook.RetryPolicy{
			Waits: []time.Duration{5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour,
				5 * time.Hour, 10 * time.Hour, 10 * time.Hour},
			Attempts:         8,
			JitterHigh:       0.2,
			MaxWait:          day,
			HonourRetryAfter: true,
			MaxRetryAfter:    day,
		},
		Gone:           true,
		Throttle:       []int{429, 502, 504},
		Disable:        DisableRule{Over: 5 * day},
		Timeout:        15 * time.Second,
		ConnectTimeout: 5 * time.Second,
		OverlapDefault: day,
		OverlapMax:     7 * day,
	}
}

// pylota is Standard Webhooks with thirteen attempts over about three days, and
// the sequence of the event's owner in the body.
func pylota() Profile {
	p := standard()
	p.Name = "pylota"
	p.Envelope = surehook.EnvelopePylota
	p.UserAgentSettable = true
	p.Retry = surehook.RetryPolicy{
		Waits: []time.Duration{30 * time.Second, 2 * time.Minute, 10 * time.Minute, 30 * time.Minute,
			time.Hour, 2 * time.Hour, 4 * time.Hour, 8 * time.Hour, 12 * time.Hour, 12 * time.Hour, 12 * time.Hour, 19 * time.Hour},
		Attempts:   13,
		JitterLow:  -0.1,
		JitterHigh: 0.1,
		RoundTo:    time.Second,
		MaxWait:    day,
	}
	p.Disable = DisableRule{After: 100, Over: day}
	p.ConnectTimeout = 0
	p.OverlapMax = 168 * time.Hour
	return p
}

// sentinel is a short, fast schedule for someone who waits for the answer.
func sentinel() Profile {
	p := standard()
	p.Name = "sentinel"
	p.Envelope = surehook.EnvelopeSentinel
	p.SubscriptionHeader = "X-MCP-Subscription-Id"
	p.MaxBody = 256 << 10
	p.Retry = surehook.RetryPolicy{
		Waits:    []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second},
		Attempts: 5,
		MaxWait:  4 * time.Second,
	}
	p.Final = []Statuses{{413, 413}}
	p.FinalCodes = []surehook.Code{surehook.SecretUnavailable}
	p.Gone = false
	p.Disable = DisableRule{}
	p.ConnectTimeout = 0
	p.ChallengeTimeout = 10 * time.Second
	p.MaxAge = 7 * day
	p.OverlapDefault = 10 * time.Minute
	p.OverlapMax = 10 * time.Minute
	return p
}

// purpleWolf is the format of the purple-wolf relay.
func purpleWolf() Profile {
	return Profile{
		Name:            "purple-wolf",
		Scheme:          PurpleWolfHMAC,
		IDHeader:        "X-PurpleWolf-Event-Id",
		TimestampHeader: "X-PurpleWolf-Timestamp",
		SignatureHeader: "X-PurpleWolf-Signature",
		AttemptHeader:   "X-PurpleWolf-Attempt",
		DeliveryHeader:  "X-PurpleWolf-Delivery-Id",
		SchemaHeader:    "X-PurpleWolf-Schema",
		BareIDs:         true,
		UserAgent:       "purple-wolf-relay/{version}",
		Envelope:        surehook.EnvelopePurpleWolf,
		PerAttempt:      true,
		Retry: surehook.RetryPolicy{
			Base:       500 * time.Millisecond,
			Factor:     2,
			Max:        10 * time.Minute,
			Attempts:   8,
			JitterLow:  -0.2,
			JitterHigh: 0.2,
			MaxWait:    10 * time.Minute,
		},
		Final:    []Statuses{{300, 399}, {400, 407}, {409, 428}, {430, 499}},
		Throttle: []int{429, 502, 504},
		Timeout:  30 * time.Second,
	}
}
