package surehook

import (
	"context"
	"time"
)

// OwnInbox is the Inbox of an endpoint that is being made, and that is to have one of its own.
const OwnInbox = -1

// Pulled tells an endpoint whose events wait in an inbox.
func (e *Endpoint) Pulled() bool { return e.Inbox != 0 }

// Item is an event that waits in an inbox.
type Item struct {
	Number   int64    // its place: ascends in order of arrival, and is never given out twice
	Delivery Delivery // its row, which nobody owns
	Event    *Event   // with Data
}

// Pulled is a page of an inbox.
type Pulled struct {
	Items   []Item
	More    bool  // there are more behind them
	Last    int64 // the last number that was given out
	Dropped int64 // events that ever left the inbox otherwise than by being finished
}

// InboxBound is what an inbox may hold. 0: no bound.
type InboxBound struct {
	Events int64
	Bytes  int64 // of events' data
}

// InboxState is how full an inbox is.
type InboxState struct {
	Inbox   int64
	Events  int64     // that wait
	Bytes   int64     // of their data
	Oldest  time.Time // when the first of them was accepted; zero: none waits
	Dropped int64     // as in Pulled
}

// Inboxes keep the deliveries of endpoints that are pulled. Such a delivery is a
// free pending row like any other, until it is finished (Queue.Record), ended or
// replayed. What arrived gets its number later, in a transaction that has the
// inbox to itself: so a row that is committed late gets a high one, and who has
// read up to a number never misses one below.
type Inboxes interface {
	// Pull numbers what has arrived, and gives events with numbers above one in
	// their order: at most limit, and no more than maxBytes of data (but at least one).
	Pull(ctx context.Context, inbox, after int64, limit, maxBytes int) (Pulled, error)
	// Numbered lists the rows with numbers up to one that aren't finished, lowest
	// first, at most limit. A number that was never given out is refused with
	// CursorExpired.
	Numbered(ctx context.Context, inbox, upTo int64, limit int) ([]Delivery, error)
	// Trim numbers what has arrived, and buries with code the oldest of what is over
	// the bound, in one bounded step of about limit rows. Bound nil: all of it.
	Trim(ctx context.Context, inbox int64, b *InboxBound, code Code, limit int) (ended int, more bool, err error)
	// InboxStates gives those of some inboxes, by key; without keys, of all that hold
	// events. What arrived in the last moment may not be counted yet.
	InboxStates(ctx context.Context, inboxes ...int64) ([]InboxState, error)
}

// PullSession is a reader that comes and goes, with an inbox that any number of
// endpoints of its scope may feed. It lives until it is closed, or idle for too long.
type PullSession struct {
	Key       int64 // also its inbox
	ID        string
	Tenant    string
	Partner   string
	CreatedAt time.Time
	SeenAt    time.Time // when it was last heard of
	EndedAt   time.Time // zero: it lives
	EndReason string    // PullSessionClosed or PullSessionIdle
}

// Why a session ended.
const (
	PullSessionClosed = "closed"
	PullSessionIdle   = "idle"
)

// PullSessions keep sessions. One that ended is remembered for a while; its id may be
// taken anew.
type PullSessions interface {
	// OpenPullSession finds the session of s's scope with its ID, and notes that it was
	// heard of; the first time it makes one. Of one that ended it tells NotAlive,
	// unless anew: then another one begins. One that lives, but wasn't heard of for so
	// long as idle, is to be ended first: NotAlive. s is filled in.
	OpenPullSession(ctx context.Context, s *PullSession, idle time.Duration, anew bool, a *AuditEntry) error
	// PullSession gives the latest with an id in a scope.
	PullSession(ctx context.Context, tenant, partner, id string) (*PullSession, error)
	// PullSessionOf gives the one that an inbox is of.
	PullSessionOf(ctx context.Context, inbox int64) (*PullSession, error)
	// ListPullSessions lists, newest first, a tenant's, or a partner's and those of its
	// tenants; for who sees all, all.
	ListPullSessions(ctx context.Context, of Viewer, p Page) ([]*PullSession, error)
	// IdlePullSessions lists sessions that live and weren't heard of for so long.
	IdlePullSessions(ctx context.Context, idle time.Duration, limit int) ([]*PullSession, error)
	// EndPullSession ends one that lives and wasn't heard of for so long, and disables the
	// endpoints that feed its inbox with ReasonSession, in one transaction. It tells
	// whether it did. What waits in the inbox is left to Trim.
	EndPullSession(ctx context.Context, session int64, reason string, idle time.Duration, a *AuditEntry) (bool, error)
	// EndedPullSessions lists those that ended and whose inbox holds something.
	EndedPullSessions(ctx context.Context, limit int) ([]*PullSession, error)
	// ForgetPullSessions removes those that ended so long ago, hold nothing, and are fed by
	// no endpoint any more, at most limit.
	ForgetPullSessions(ctx context.Context, ended time.Duration, limit int) (int, error)
}
