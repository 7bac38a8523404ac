// Package surehook is the vocabulary of the product: events, endpoints,
// deliveries, attempts and dead letters, the codes that errors and outcomes
// carry, and the contract that a store keeps. It has no behaviour of its own
// and depends on the standard library alone.
//
// The promise that every part keeps: an event whose append was answered is
// delivered at least once to each endpoint that matched, or ends as a dead
// letter that a person can replay. Crashes may repeat a request, under the
// same webhook-id; they never lose one.
package surehook

import (
	"strconv"
	"strings"
	"time"
)

// Event types that the engine itself emits.
const (
	TypeDisabled = "webhook.disabled" // an endpoint was disabled by its health or by a 410
	TypeTest     = "webhook.test"     // one synchronous attempt; never fanned out, retried or replayed
)

// TypeAudit is the type of the relay's events. Their data is the purple-wolf
// envelope from its labels on: {"labels":…,"source":…,"event":…}.
const TypeAudit = "purple-wolf.audit"

// Event is an immutable fact. Its ID is the webhook-id of every attempt and
// replay, to every endpoint.
type Event struct {
	Key        int64  // internal, ascending in order of acceptance
	ID         string // evt_… or the caller's own; unique within the tenant
	Alias      string // the webhook-id in its place where others' events are seen too; see WebhookID
	Type       string // dotted name
	Tenant     string // empty: a platform event
	Partner    string // that sees it: the tenant's when it was accepted, or that of the endpoint it is about
	Identity   string
	Owner      string // names the ordered sequence that the event belongs to
	Sequence   int64  // position in the owner's sequence; 0: none
	Subjects   []string
	OccurredAt time.Time
	CreatedAt  time.Time // when it was accepted
	APIVersion string    // of the pylota envelope; fixed when the event was accepted
	Data       []byte    // the caller's JSON value, byte for byte but for texts that were cut; nil once erased
	Trace      string    // the publisher's traceparent, if any
	About      string    // the endpoint that a platform event is about
	Erased     bool

	// Given is ContentHash of the event as the caller gave it, where texts in Data
	// were cut since; zero: of the event as it is.
	Given [16]byte
}

// WebhookID is the webhook-id of an event at an endpoint. Ids are a tenant's own,
// so that no tenant can take another one's. An endpoint that sees several
// tenants' events gets one whose id another tenant's had before under its Alias:
// a receiver that knows the id would take it for a repeat.
func (e *Event) WebhookID(at Scope) string {
	if e.Alias != "" && at != ScopeTenant {
		return e.Alias
	}
	return e.ID
}

// Scope says whose events an endpoint can see.
type Scope string

// The scopes of an endpoint.
const (
	ScopePlatform Scope = "platform" // every tenant's events
	ScopePartner  Scope = "partner"  // the events of the partner's own tenants
	ScopeTenant   Scope = "tenant"   // one tenant's events
)

// Envelope says what the body of a request looks like.
type Envelope string

// The envelopes.
const (
	EnvelopeStandard    Envelope = "standard"    // {id, type, timestamp, data}
	EnvelopePayload     Envelope = "payload"     // data alone, byte for byte
	EnvelopeThin        Envelope = "thin"        // {id, type, timestamp}: the receiver fetches the event
	EnvelopeCloudEvents Envelope = "cloudevents" // CloudEvents 1.0, structured
	EnvelopeSentinel    Envelope = "sentinel"    // {eventId, name, timestamp, data with subject and summary, cursor}; what the profile of that name sends for the standard one
	EnvelopePylota      Envelope = "pylota"      // with tenant, identity and sequence; what the profile of that name sends for the standard one

	// What the profile purple-wolf sends, and nothing else does; see PurpleWolfEnvelope.
	EnvelopePurpleWolf Envelope = "purple-wolf.audit/v1"
)

// PurpleWolfEnvelope is the envelope of a major version, 1 to 99. Others than 1
// have its shape under their own name, until one is defined.
func PurpleWolfEnvelope(major int) Envelope {
	return Envelope("purple-wolf.audit/v" + strconv.Itoa(major))
}

// PurpleWolf tells envelopes that PurpleWolfEnvelope gives.
func (e Envelope) PurpleWolf() bool {
	v, ok := strings.CutPrefix(string(e), "purple-wolf.audit/v")
	major, err := strconv.Atoi(v)
	return ok && err == nil && major >= 1 && major <= 99 && e == PurpleWolfEnvelope(major)
}

// Why an endpoint is disabled.
const (
	ReasonManual     = "manual"
	ReasonFailing    = "failing"
	ReasonGone       = "gone"
	ReasonURLChanged = "url_changed"
	ReasonSession    = "session_not_alive" // the session whose inbox it fed has ended
	ReasonExpired    = "expired"           // its sentinel's time is over
)

// Endpoint is a receiver: where to send, what, how, and how it has been doing.
type Endpoint struct {
	Key            int64
	ID             string // whk_…
	Version        int64  // goes up with each change of URL, secret, enablement or filter
	Tenant         string // set: tenant scope
	Partner        string // set, and Tenant empty: partner scope
	URL            string // empty where Inbox is set
	Inbox          int64  // where its events wait until they are pulled: its own or a session's; 0: they are sent to URL
	Urgency        string // what goes with each of its pulled events, as whoever made it said; mostly empty
	Description    string
	EventTypes     []string // "*", exact names, or a trailing ".*"
	Subjects       []string // empty: no filter; a trailing "*" is a prefix
	Identities     []string // empty: no filter
	Profile        string
	Envelope       Envelope
	Signature      string            // "v1" or "v1a"; empty: the profile's
	Headers        map[string]string // added to each request; ours always win
	Limits         Limits
	Ordered        bool // events of one owner go out one at a time, in sequence
	Enabled        bool
	DisabledReason string
	Health         Health
	Secrets        Secrets
	CreatedAt      time.Time
	UpdatedAt      time.Time
	Deleted        bool // a tombstone, kept while rows point at it

	// Sentinel chooses the endpoint's events, where it is there; EventTypes, Subjects
	// and Identities are nothing to it then.
	Sentinel *Sentinel
}

// Watches tells an endpoint that is, or was, a sentinel's.
func (e *Endpoint) Watches() bool { return e.Sentinel != nil || strings.HasPrefix(e.ID, "sen_") }

// Scope derives the endpoint's scope from its owner.
func (e *Endpoint) Scope() Scope {
	switch {
	case e.Tenant != "":
		return ScopeTenant
	case e.Partner != "":
		return ScopePartner
	}
	return ScopePlatform
}

// Limits override what the profile says, within bounds. Zero values keep the
// profile's.
type Limits struct {
	Waits       []time.Duration // between attempts
	Attempts    int             // 1–100
	Timeout     time.Duration   // of one attempt, 100 ms – 60 s
	Rate        float64         // attempts per second; 0: unlimited
	Concurrency int             // requests in flight, 1–256; 0: 8
	Paused      bool            // nothing is sent: what is for the endpoint waits until this is lifted
}

// Health is how an endpoint has been doing, as the rules for disabling see it.
type Health struct {
	ConsecutiveFailures int
	FirstFailureAt      time.Time // of the current run of failures
	LastFailureAt       time.Time
	LastSuccessAt       time.Time
}

// Secrets are an endpoint's sealed signing secrets. Previous signs beside
// Current until PreviousUntil.
type Secrets struct {
	Current       string
	Previous      string
	PreviousUntil time.Time
}

// Delivery is event × endpoint, while there is something to do for it.
type Delivery struct {
	ID           int64 // never reused
	Epoch        int64 // of the lease that owns the row
	EventKey     int64
	EndpointKey  int64
	Attempt      int // attempts recorded so far
	FirstAttempt int // number of the first attempt of the current run: 1, or a replay's
	Due          time.Time
	Lost         int // how often a crash took the row with it
}

// DeliveryStatus is what became of an event at an endpoint.
type DeliveryStatus string

// The statuses of a delivery.
const (
	Pending   DeliveryStatus = "pending"
	Succeeded DeliveryStatus = "succeeded"
	Dead      DeliveryStatus = "dead"
)

// AttemptStatus is what one attempt meant for its delivery.
type AttemptStatus string

// The statuses of an attempt.
const (
	AttemptSucceeded AttemptStatus = "succeeded"
	AttemptFailed    AttemptStatus = "failed" // another one follows
	AttemptDead      AttemptStatus = "dead"   // it was the last
)

// Attempt is one HTTP request and its outcome, or the record of why none was
// made.
type Attempt struct {
	Key         int64
	ID          string // dlv_…
	EventKey    int64
	EndpointKey int64
	EventID     string // filled when read
	EventType   string // filled when read
	EndpointID  string // filled when read
	Number      int    // 1 for a delivery's first
	Status      AttemptStatus
	Code        Code
	HTTPStatus  int
	Error       string // host at most; never a path, query or secret
	Response    []byte // excerpt of what a failing receiver answered, ≤ 1 KiB
	CreatedAt   time.Time
	Duration    time.Duration
	Phases      Phases
	NextDue     time.Time // zero: no further attempt is scheduled
	Late        bool      // recorded after the row had gone on without it
	Test        bool
}

// Phases are the parts of an attempt's time.
type Phases struct {
	Resolve, Connect, TLS, Write, Wait, Read time.Duration
}

// DeadLetter is a delivery that ended dead.
type DeadLetter struct {
	Key         int64
	EventKey    int64
	EndpointKey int64
	EventID     string // filled when read
	EventType   string // filled when read
	EndpointID  string // filled when read
	Code        Code   // why, as the last attempt saw it
	HTTPStatus  int
	Attempts    int
	CreatedAt   time.Time
}

// Tenant is a customer of the platform; it may belong to one partner.
type Tenant struct {
	Key        int64
	ID         string
	Name       string
	Partner    string
	EventsDays int // how long its events are kept; 0: as everybody's
	CreatedAt  time.Time
}

// MaxEventsDays bounds how long a tenant's events may be kept.
const MaxEventsDays = 3650

// Partner stands between the platform and tenants of its own. While it is
// suspended nothing is sent to its endpoints and to those of its tenants.
type Partner struct {
	Key       int64
	ID        string
	Name      string
	Suspended bool
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Window says how long after it occurred an event may still be delivered again.
type Window struct {
	Most time.Duration // whatever is kept for longer; 0: no bound
	Kept time.Duration // how long events are kept, those of tenants with EventsDays apart; 0: for ever
}

// Of is the window of events of a tenant with so many EventsDays; 0: no bound.
func (w Window) Of(eventsDays int) time.Duration {
	kept := w.Kept
	if eventsDays > 0 {
		kept = time.Duration(eventsDays) * 24 * time.Hour
	}
	if w.Most == 0 || (kept != 0 && kept < w.Most) {
		return kept
	}
	return w.Most
}

// APIKey is a credential of the REST API, of one of the three scopes. Its secret
// is stored as a hash.
type APIKey struct {
	Key         int64
	ID          string // key_…
	Name        string
	Hash        []byte // SHA-256 of the key
	Hint        string // last four characters
	Tenant      string // set: this tenant's alone
	Partner     string // set, and Tenant empty: this partner's and its tenants'; both empty: the platform's
	Permissions []string
	CreatedAt   time.Time
	RevokedAt   time.Time
	LastUsedAt  time.Time
}

// Permissions of an API key. Event types may require others, by any name.
const (
	PermEventsWrite    = "events:write"
	PermWebhooksManage = "webhooks:manage"
	PermEventsPull     = "events:pull" // take events out of inboxes, and have sessions
	PermRead           = "read"
	PermAdmin          = "admin" // keys, tenants, event types, audit log
)

// AuditEntry records who changed what.
type AuditEntry struct {
	Key       int64
	At        time.Time
	Actor     string // key id, or "system"
	Action    string // e.g. webhook.create
	Target    string // id of what was changed
	Tenant    string
	RequestID string
	Details   string // JSON; never a secret
}

// EventType is an entry of the catalogue.
type EventType struct {
	Name        string
	Description string
	Example     []byte // JSON
	Schema      []byte // JSON Schema; empty: none
	Validate    bool   // refuse published data that the schema refuses
	Requires    string // permission of a key that subscribes to it or replays it; empty: none
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// Replay is a background job that queues past events for an endpoint again.
type Replay struct {
	Key         int64
	ID          string // rpl_…
	EndpointKey int64
	EndpointID  string // filled when read
	Since       time.Time
	Until       time.Time
	Status      string // filter: "", dead, failed, succeeded
	State       ReplayState
	Cursor      int64 // the last event key looked at
	Scanned     int64
	Queued      int64
	Total       int64 // estimate of events in the window
	Error       string
	CreatedAt   time.Time
	UpdatedAt   time.Time
}

// ReplayState is where a background replay stands.
type ReplayState string

// The states of a background replay.
const (
	ReplayRunning   ReplayState = "running"
	ReplayDone      ReplayState = "done"
	ReplayCancelled ReplayState = "cancelled"
	ReplayFailed    ReplayState = "failed"
)
