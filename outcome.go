package surehook

// Code says how one attempt ended. An empty code is success. Codes are stored
// with each attempt and are part of the public contract: they never change.
type Code string

// The outcome codes of an attempt.
const (
	OK                Code = ""
	Timeout           Code = "timeout"            // the attempt's one deadline passed, in whichever phase
	DNS               Code = "dns"                // no usable answer for the host name
	TLS               Code = "tls"                // handshake or certificate refused
	Connect           Code = "connect"            // no connection, or it broke before an answer
	Redirect          Code = "redirect"           // 3xx; never followed
	Status4xx         Code = "status_4xx"         // any 4xx without a code of its own
	Status410         Code = "status_410"         // the receiver says "stop for ever"
	Status429         Code = "status_429"         // the receiver says "slower"
	Status5xx         Code = "status_5xx"         // 5xx, and any status outside 200–499: a 101 or a 600 too
	SSRFBlocked       Code = "ssrf_blocked"       // the guard refused the address
	InvalidURL        Code = "invalid_url"        // the guard refused the URL itself
	SecretUnavailable Code = "secret_unavailable" // the endpoint's secret can't be unsealed
	EventUnavailable  Code = "event_unavailable"  // the event's bytes are gone (retention, erasure)
	EndpointDisabled  Code = "endpoint_disabled"  // disabled while the delivery waited
	PayloadTooLarge   Code = "payload_too_large"  // the rendered body is over the profile's bound
	InboxFull         Code = "inbox_full"         // the inbox held more than it may, and this was its oldest
	SessionEnded      Code = "session_ended"      // the session ended before it was pulled
	ExpiredSentinel   Code = "sentinel_expired"   // its sentinel's time was over before it was sent
	RemovedSentinel   Code = "sentinel_removed"   // its sentinel was removed before it was sent
	SentinelFull      Code = "sentinel_full"      // more waited for its sentinel than may, and this was the oldest
	Crashed           Code = "crashed"            // the row was lost with its process too often
)

// Final reports whether another attempt can't change the outcome, whatever the
// profile says. A refused URL is none: it was fine when the endpoint was made,
// so it is this process's settings that refuse it, and those may be put right.
func (c Code) Final() bool {
	switch c {
	case EventUnavailable, EndpointDisabled, PayloadTooLarge, InboxFull, SessionEnded, ExpiredSentinel, RemovedSentinel, SentinelFull, Crashed:
		return true
	}
	return false
}
