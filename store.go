package surehook

import (
	"context"
	"time"
)

// Store is everything that a database does for Surehook. It is the sum of
// small contracts, so that each part asks only for what it uses. Both stores
// pass store/storetest; that suite is the contract's fine print.
//
// All times that decide something (due, leases) are the database's own. A
// method that can't write because the store is full, read-only or gone returns
// an Error with code Unavailable, and the caller's event was not accepted
// unless it says otherwise.
type Store interface {
	Appender
	Queue
	Inboxes
	PullSessions
	Endpoints
	Sessions
	Sentinels
	History
	DeadLetters
	Replays
	Tenants
	Keys
	Catalogue
	Settings
	Retention
	Erasing
	Polls
	Health(ctx context.Context) error // nil when the store can be written
	// Counts is what the whole store looks like, for metrics.
	Counts(ctx context.Context) (Counts, error)
	// Watch has f called, from any goroutine, when something was changed that
	// this process didn't do itself: by another node, or in a caller's own
	// transaction. Notices are hints; polling stands behind them. nil ends it.
	Watch(f func(Change))
	// MaxTargets is how many pending rows one transaction should write.
	MaxTargets() int
	Backup(ctx context.Context, path string, progress func(done, total int)) error
	Close() error
}

// Change says what may have changed.
type Change struct {
	Config    bool    // endpoints or tenants
	Erased    bool    // events were erased: lanes may hold copies
	Outbox    bool    // the outbox has events
	Rows      bool    // rows of any endpoint may be free and due
	Endpoints []int64 // rows of these are
}

// Append is an event to be stored together with what is to be delivered.
type Append struct {
	Event   *Event // Key and CreatedAt are filled in
	Targets []Target
	Outbox  int64 // the outbox row that this fan-out takes away; 0: none
}

// Target is a pending row to be written.
type Target struct {
	EndpointKey int64
	Owned       bool  // a lane slot is reserved: hand the row over after the commit
	Ordered     bool  // the endpoint takes its events in their owners' sequences; never Owned
	Remote      bool  // this node won't send it: others are to be told
	Inbox       int64 // where it will wait to be pulled; 0: it is sent
	Sighting    Sighting
}

// Appended is what became of one Append.
type Appended struct {
	Duplicate  bool       // the id was there already, with the same content
	Queued     bool       // it waits in the outbox, behind others of its owner
	EventKey   int64      // also of the one that was there
	Deliveries []Delivery // as Targets, in their order; without ID: the sentinel didn't take it; empty for a duplicate
	Ended      []int64    // endpoints whose sentinels it has ended
	Err        error      // this one alone was refused
}

// OutboxEvent is an event that waits for its fan-out.
type OutboxEvent struct {
	ID      int64
	Event   *Event
	NotFor  []int64 // endpoints that were made after the event was accepted
	Refused int     // how often the store has refused it
}

// PutOff is an event in the outbox that is to wait.
type PutOff struct {
	ID      int64
	Refused int // as the OutboxEvent was read
	Wait    time.Duration
}

// Appender takes events in.
type Appender interface {
	// Append stores events and their pending rows in one transaction, which
	// concurrent callers share. An event that can't be stored is refused alone.
	// ErrConfigChanged: endpoints changed since version; match again.
	//
	// An event with an owner gets the next Sequence of its tenant and owner, in
	// order of acceptance and without gaps. While others of the owner wait in the
	// outbox, it joins them there. An id that another tenant's event has already
	// gives the event an Alias; of those that come at once, one gets none.
	Append(ctx context.Context, version int64, items []Append) ([]Appended, error)
	// Outbox reads events that wait for their fan-out, oldest first: at most limit,
	// and a few megabytes of data (but at least one). Those that are put off it
	// doesn't give before their time.
	Outbox(ctx context.Context, limit int) ([]OutboxEvent, error)
	// PutOff has events that the store refused wait in the outbox. One that another
	// fan-out has put off or taken out meanwhile stays as it is.
	PutOff(ctx context.Context, events []PutOff) error
}

// Decision is what an attempt meant for its pending row.
type Decision uint8

// The decisions.
const (
	Release Decision = iota // no attempt was made: free the row, count nothing
	Finish                  // succeeded: the row goes
	Again                   // failed: due again after Wait
	Bury                    // failed for good: the row becomes a dead letter
	Note                    // no row: a test's attempt is recorded alone
)

// Outcome is one attempt to be recorded.
type Outcome struct {
	Delivery Delivery
	Decision Decision
	Attempt  *Attempt // nil for Release
	Wait     time.Duration
	Version  int64 // of the endpoint, as the attempt used it
	Arrived  bool  // filled in: by this attempt the delivery succeeded for the first time
}

// HealthRule says when an endpoint's failures disable it.
type HealthRule struct {
	After int           // consecutive failures; 0: any number
	Over  time.Duration // and failing at least this long; 0 with After 0: never
	Gone  bool          // a 410 disables at once
	// Disabled makes the event that tells of it, in the disabling transaction.
	// trigger is the attempt that caused it.
	Disabled func(e *Endpoint, reason string, trigger *Attempt) *Event
}

// Recorded is what a batch of outcomes did beyond its rows.
type Recorded struct {
	Late     int         // outcomes whose row had gone on without them
	Disabled []*Endpoint // endpoints that this batch disabled
}

// Claimed is a due row that this node owns now, with its event.
type Claimed struct {
	Delivery Delivery
	Event    *Event
}

// Claim is the answer to a claim.
type Claim struct {
	Rows []Claimed
	More bool      // more rows are due
	Next time.Time // when the next free row is due; zero: none
	// Version is the endpoint's, as the claim found it; 0 where it takes no rows.
	Version int64
}

// EndpointDue tells when an endpoint's first free row is due.
type EndpointDue struct {
	EndpointKey int64
	Due         time.Time
}

// Queue is the dispatcher's side of the pending rows.
type Queue interface {
	// Record writes outcomes in one transaction: attempts are always kept, rows
	// move only under the guard of owner and attempt, endpoint health is updated
	// once per endpoint by rules. Repeating a batch changes nothing.
	Record(ctx context.Context, outcomes []Outcome, rules map[int64]HealthRule) (Recorded, error)
	// Claim takes due rows of an enabled endpoint: at most limit, and no more
	// than maxBytes of event data (but at least one). A row that three crashes
	// took with them is a suspect: it is given alone, and only while this epoch
	// holds no other one. Rows behind it don't wait; Next is soon then.
	//
	// Of an ordered endpoint's rows in one sequence it takes the first alone, and
	// that while no other is owned. Those that can't go are due at no time until a
	// row of their sequence goes or comes free.
	Claim(ctx context.Context, endpoint int64, limit, maxBytes int) (Claim, error)
	// Due lists the endpoints that have free rows, with their first due time.
	Due(ctx context.Context) ([]EndpointDue, error)
	// End buries free rows of a disabled or deleted endpoint, at most limit; an
	// enabled one's stay. Those that are due when dueOnly, and those that waited
	// in sequences for them. With letters they become dead letters with this code;
	// without, they just go (the endpoint was deleted).
	End(ctx context.Context, endpoint int64, code Code, dueOnly, letters bool, limit int) (int, error)
	// Expire looks at free rows of an endpoint that is held back, at most limit,
	// after a place, and buries those whose event left its window with
	// EventUnavailable. next is where to go on; the zero Place is the end.
	Expire(ctx context.Context, endpoint int64, w Window, after Place, limit int) (ended int, next Place, err error)
	// Lease is this node's right to own rows now.
	Lease() Lease
	// PendingCount counts the rows that are still to do.
	PendingCount(ctx context.Context) (PendingCount, error)
}

// Place is a row's place among those of its endpoint, by when they are due.
type Place struct {
	Due   time.Time
	Event int64
}

// EndpointFilter selects endpoints. Zero fields select all.
type EndpointFilter struct {
	Tenant   string
	Partner  string
	Of       string // a partner: its endpoints, and those of its tenants
	Platform bool   // endpoints of the platform scope alone
	Enabled  *bool
	Kind     EndpointKind
	Inbox    int64 // where their events wait

	// Of sentinels' endpoints alone.
	Provider, Group, Session string
}

// Viewer is who looks: a tenant, which sees its endpoints, or a partner, which sees
// its own and those of its tenants. Zero: sees all. Nobody else's endpoints, and
// nothing that happens there, exist for a viewer, a deleted one's neither.
type Viewer struct {
	Tenant, Partner string
}

// Page asks for one page of a listing: rows after the cursor, in the
// listing's order. Cursor 0 starts at the top.
type Page struct {
	Cursor int64
	Limit  int // 1–1000
}

// Endpoints keeps endpoints and their configuration version.
type Endpoints interface {
	// CreateEndpoint stores a new endpoint, with its Sentinel if there is one, and
	// fills in its Key. most > 0 refuses one more than that many of its kind in its
	// scope with LimitReached.
	CreateEndpoint(ctx context.Context, e *Endpoint, most int, a *AuditEntry) error
	// UpdateEndpoint changes the stored row by what change does to a copy, in
	// one transaction, and gives the new row. Version goes up. Of its Sentinel it
	// changes what isn't counted: Status, Ended, Watch, Group, Label and LastError.
	UpdateEndpoint(ctx context.Context, id string, change func(*Endpoint) error, a *AuditEntry) (*Endpoint, error)
	// DeleteEndpoint leaves a tombstone and removes the secrets, and a sentinel, whose
	// watch joins Cancels.
	DeleteEndpoint(ctx context.Context, id string, a *AuditEntry) error
	Endpoint(ctx context.Context, id string) (*Endpoint, error)  // never a tombstone
	Tombstone(ctx context.Context, key int64) (*Endpoint, error) // of one that was deleted
	ListEndpoints(ctx context.Context, f EndpointFilter, p Page) ([]*Endpoint, error)
	// Changes gives every endpoint changed after version, tombstones included,
	// and the current version. Version 0 gives all.
	Changes(ctx context.Context, version int64) ([]*Endpoint, int64, error)
	// Stats sums attempts in a window.
	Stats(ctx context.Context, f StatsFilter, since, until time.Time, step time.Duration) ([]StatsBucket, error)
	// Standing is how the endpoints stand that a viewer sees, and what waits there.
	Standing(ctx context.Context, of Viewer) (Standing, error)
}

// EventFilter selects events. Zero fields select all.
type EventFilter struct {
	Tenant   string
	Partner  string // events that it sees
	Type     string // exact, or a trailing ".*"
	Subject  string // one of its subjects
	Since    time.Time
	Until    time.Time
	Above    int64          // at this key and above
	Status   DeliveryStatus // events with a delivery in this status
	Endpoint int64          // with Status: at this endpoint
	For      Viewer         // with Status: at an endpoint that it sees
}

// DeliveryView is a delivery as the API shows it.
type DeliveryView struct {
	EventKey      int64
	EndpointKey   int64
	EventID       string
	EventType     string
	EndpointID    string
	Status        DeliveryStatus
	Attempts      int
	NextAttemptAt time.Time // zero: none is scheduled
	LastCode      Code
	LastStatus    int
	LastAttemptAt time.Time
}

// DeliveryFilter selects deliveries of an endpoint by status; newest event
// first.
type DeliveryFilter struct {
	Endpoint int64
	Status   DeliveryStatus
}

// History reads what has happened.
type History interface {
	// Event finds an event by id. tenant nil: by its webhook-id at an endpoint that
	// sees all tenants' events.
	Event(ctx context.Context, tenant *string, id string) (*Event, error)
	EventByKey(ctx context.Context, key int64) (*Event, error)
	ListEvents(ctx context.Context, f EventFilter, p Page) ([]*Event, error) // newest first, by Key; without Data
	// EventBelow gives the key of the n-th newest event below the cursor that is of the
	// filter's tenant and partner, and in its window, whatever else it asks for; 0: there
	// are fewer.
	EventBelow(ctx context.Context, f EventFilter, cursor int64, n int) (int64, error)
	EventDeliveries(ctx context.Context, event int64, p Page) ([]DeliveryView, error)
	EventAttempts(ctx context.Context, event int64, endpoint int64, p Page) ([]Attempt, error) // endpoint 0: all
	EndpointAttempts(ctx context.Context, endpoint int64, p Page) ([]Attempt, error)           // newest first, by Key
	ListDeliveries(ctx context.Context, f DeliveryFilter, p Page) ([]DeliveryView, error)
}

// DeadLetterFilter selects dead letters. Zero fields select all.
type DeadLetterFilter struct {
	Endpoint int64
	Tenant   string // of the events
	For      Viewer // at endpoints that it sees
	Since    time.Time
	Until    time.Time
}

// DeadLetters keeps deliveries that ended dead.
type DeadLetters interface {
	ListDeadLetters(ctx context.Context, f DeadLetterFilter, p Page) ([]DeadLetter, error) // newest first, by Key
	DeadLetter(ctx context.Context, key int64) (*DeadLetter, error)
	// CountDeadLetters counts them by endpoint; those that have none aren't there.
	CountDeadLetters(ctx context.Context) (map[int64]int64, error)
	DiscardDeadLetters(ctx context.Context, keys []int64, a *AuditEntry) (int, error)
}

// ReplayResult is what a replay did to one delivery.
type ReplayResult struct {
	EventKey   int64
	InProgress bool // an attempt is being made right now: nothing was changed
}

// ReplayFilter selects events that occurred since and before two times, and are
// still in their Window. Status is what became of them at the endpoint:
//
//	dead       some attempt was the last of a run, and none succeeded; those whose
//	           dead letter was discarded are left out
//	failed     the latest attempt failed, and another one follows
//	succeeded  some attempt succeeded
type ReplayFilter struct {
	Since, Until time.Time // zero: no bound
	Status       string    // "": whatever
	Window       Window
}

// Replays puts past events into the queue again.
type Replays interface {
	// Replay makes pending rows, due at once, for events at one endpoint: a
	// waiting row starts a new run, a dead letter goes, attempts stay.
	Replay(ctx context.Context, endpoint int64, events []int64, a *AuditEntry) ([]ReplayResult, error)
	// Replayable lists events for an endpoint by Key; never webhook.test, never
	// erased ones; without Data.
	Replayable(ctx context.Context, endpoint int64, f ReplayFilter, after int64, limit int) ([]*Event, error)
	CreateReplay(ctx context.Context, r *Replay, a *AuditEntry) error
	// AdvanceReplay queues events and moves the job's cursor in one
	// transaction. It does nothing once the job isn't running any more.
	AdvanceReplay(ctx context.Context, r *Replay, events []int64) error
	GetReplay(ctx context.Context, id string) (*Replay, error)
	ListReplays(ctx context.Context, endpoint int64, of Viewer, p Page) ([]*Replay, error) // endpoint 0: all that it sees; newest first
	RunningReplays(ctx context.Context) ([]*Replay, error)
	// EndReplay ends a job that runs; one that has ended stays as it ended, and a
	// is left out.
	EndReplay(ctx context.Context, id string, state ReplayState, errText string, a *AuditEntry) error
}

// Tenants keeps tenants and the audit log.
type Tenants interface {
	PutTenant(ctx context.Context, t *Tenant, a *AuditEntry) error
	Tenant(ctx context.Context, id string) (*Tenant, error)
	ListTenants(ctx context.Context, partner string, p Page) ([]*Tenant, error) // partner "": all; newest first
	DeleteTenant(ctx context.Context, id string, a *AuditEntry) error
	// Partners gives the partner of each tenant for which it changed after a
	// configuration version, "" for none. A store with one process gives nothing:
	// that process has made the change.
	Partners(ctx context.Context, version int64) (map[string]string, error)
	ListAudit(ctx context.Context, tenant string, p Page) ([]AuditEntry, error) // tenant "": all; newest first
	AuditOf(ctx context.Context, target string, p Page) ([]AuditEntry, error)   // of one target, newest first

	// PutPartner creates or changes a partner. Suspending one, or ending that, is
	// a change of the configuration. With keep the status stays as it is, and p
	// tells it afterwards; that of a new one is active.
	PutPartner(ctx context.Context, p *Partner, keep bool, a *AuditEntry) error
	Partner(ctx context.Context, id string) (*Partner, error)
	ListPartners(ctx context.Context, p Page) ([]*Partner, error) // newest first
	DeletePartner(ctx context.Context, id string, a *AuditEntry) error
	Suspended(ctx context.Context) ([]string, error) // ids of the partners that are
}

// Keys keeps API keys.
type Keys interface {
	CreateKey(ctx context.Context, k *APIKey, a *AuditEntry) error
	KeyByHash(ctx context.Context, hash []byte) (*APIKey, error) // NotFound for unknown; revoked ones are given with RevokedAt
	ListKeys(ctx context.Context, p Page) ([]*APIKey, error)
	// RevokeKey ends a key. The last platform key that is live and has
	// PermAdmin is kept, with Conflict: nobody could get in any more. The audit log
	// names the key's tenant.
	RevokeKey(ctx context.Context, id string, a *AuditEntry) error
	// KeysUsed notes when keys, by Key, were used last, in one transaction.
	// Nothing goes back in time; keys that aren't there are left out.
	KeysUsed(ctx context.Context, used map[int64]time.Time) error
}

// Catalogue keeps event types.
type Catalogue interface {
	PutEventType(ctx context.Context, t *EventType, a *AuditEntry) error
	EventTypes(ctx context.Context) ([]*EventType, error)
	DeleteEventType(ctx context.Context, name string, a *AuditEntry) error
}

// Retention removes what is old.
type Retention interface {
	// Prune removes, in one bounded step, some of the events that were accepted
	// before a time, oldest first, with their ids, attempts and dead letters: about
	// limit of them, or a whole day where a store keeps days apart. What is still
	// to be delivered of them ends as event_unavailable; an event that is being
	// delivered right now stays until that is over. more: another step would find
	// something to do.
	//
	// Events of tenants with EventsDays are left alone, for as long as those say: a
	// day that holds some is not removed as a whole, and its others go one by one.
	//
	// An event of the outbox that the store has refused since before that time goes
	// as well; the audit log tells of it. Others there stay: they are no events yet.
	Prune(ctx context.Context, before time.Time, limit int) (events int64, more bool, err error)
	// PruneTenant does the same with one tenant's events, at most limit of them.
	PruneTenant(ctx context.Context, tenant string, before time.Time, limit int) (events int64, more bool, err error)
}

// ReservedFor is how long a request with an Idempotency-Key may be under way. A
// test delivery takes the longest: a minute.
const ReservedFor = 2 * time.Minute

// Settings keeps small values: the ones that outlive a process, and answers to
// requests with an Idempotency-Key (sealed by the caller).
type Settings interface {
	Setting(ctx context.Context, name string) (value []byte, err error) // NotFound for unknown
	// PutSetting stores value unless the name exists, and gives what is stored.
	PutSetting(ctx context.Context, name string, value []byte, overwrite bool) ([]byte, error)
	// Reserve takes a key for a request that is about to be done; requestHash is
	// nil then. Otherwise it is that of the request that had the key before, in the
	// last day, and answer is its answer: empty while it is under way. One that has been
	// under way for ReservedFor has died with its node, and is taken over.
	Reserve(ctx context.Context, scope, key string, hash []byte) (requestHash, answer []byte, err error)
	// Remember keeps the answer to a reserved key for a day; the first one wins.
	Remember(ctx context.Context, scope, key string, requestHash, answer []byte) error
	// Unreserve gives a key back that brought no answer.
	Unreserve(ctx context.Context, scope, key string) error
}
