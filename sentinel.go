package surehook

import (
	"context"
	"strings"
	"time"
)

// Sentinel is a watch with a lifetime. It has an endpoint of its own, of the same
// id, which says whose it is and how its events go out: secrets, attempts, dead
// letters and replay are that endpoint's. The sentinel says which events match,
// and until when.
type Sentinel struct {
	EndpointKey int64
	ID          string   // sen_…; the endpoint's too
	Match       []Clause // never empty
	Until       Until
	Status      SentinelStatus
	Ended       UntilKind // of one that is expired: what ended it
	Provider    string    // who is asked to watch
	Watch       string    // what the provider knows the watch by; "": there is none, or none any more
	Plan        int64     // of one that is being stored: its watch's, by PlanWatch; 0: there is none
	Group       string    // what it belongs to, for people
	Label       string
	Session     string // whose inbox the events go to; "": the endpoint has a URL
	Principal   string // the key that made it
	Events      int64  // that matched
	LastEventAt time.Time
	LastError   string // the provider's, for people; never a secret or a URL's path
	CreatedAt   time.Time
	EndedAt     time.Time // when it expired, or its session ended; zero: neither
}

// Clause is one of the ways to match: a subject, and types. An event matches when
// one of its subjects and its type do.
type Clause struct {
	Subject string   // exact, or a prefix with a trailing "*"
	Types   []string // globs: "*" stands for any text; empty: any type
}

// UntilKind says what ends a sentinel.
type UntilKind string

// What may end a sentinel.
const (
	UntilTerminal UntilKind = "subject_terminal" // an event that is the last about its own subject
	UntilAt       UntilKind = "at"               // a time; what still waits then is not sent any more
	UntilCount    UntilKind = "count"            // so many events
	UntilNever    UntilKind = "never"            // its removal alone
)

// Until is when a sentinel ends.
type Until struct {
	Kind  UntilKind
	At    time.Time // with UntilAt
	Count int64     // with UntilCount
}

// SentinelStatus is where a sentinel stands. Those that are active or in error
// match events.
type SentinelStatus string

// The statuses of a sentinel.
const (
	SentinelActive   SentinelStatus = "active"
	SentinelPaused   SentinelStatus = "paused"   // by hand
	SentinelExpired  SentinelStatus = "expired"  // for good; see Ended
	SentinelOrphaned SentinelStatus = "orphaned" // its session is gone
	SentinelError    SentinelStatus = "error"    // its provider can't watch; events that come another way match
)

// SentinelStatuses are all of them.
var SentinelStatuses = []SentinelStatus{SentinelActive, SentinelPaused, SentinelExpired, SentinelOrphaned, SentinelError}

// SentinelStatus is where an endpoint's sentinel stands: its end outlasts everything,
// and no session is no matching.
func (e *Endpoint) SentinelStatus() SentinelStatus {
	if e.Sentinel.Status != SentinelExpired && e.DisabledReason == ReasonSession {
		return SentinelOrphaned
	}
	return e.Sentinel.Status
}

// Matches tells whether events are matched in this status.
func (s SentinelStatus) Matches() bool { return s == SentinelActive || s == SentinelError }

// Urgency says how a session should take an event.
type Urgency string

// The urgencies.
const (
	UrgencyFYI       Urgency = "fyi"
	UrgencyNextTurn  Urgency = "next-turn"
	UrgencySteer     Urgency = "steer"
	UrgencyInterrupt Urgency = "interrupt"
)

// MatchesSubject tells whether a subject is the clause's.
func (c Clause) MatchesSubject(subject string) bool {
	subject, mine := FoldSubject(subject), FoldSubject(c.Subject)
	if stem, ok := strings.CutSuffix(mine, "*"); ok {
		return strings.HasPrefix(subject, stem)
	}
	return mine == subject
}

// FoldSubject gives the form in which sentinels compare subjects. Names at GitHub are
// the same in any case: who watches github:octocat/hello-world must not miss what
// happens at github:octocat/Hello-World. Other subjects are what they are.
func FoldSubject(s string) string {
	const github = "github:"
	if len(s) >= len(github) && strings.EqualFold(s[:len(github)], github) {
		return strings.ToLower(s)
	}
	return s
}

// MatchesType tells whether a type is among the clause's.
func (c Clause) MatchesType(typ string) bool {
	if len(c.Types) == 0 {
		return true
	}
	for _, glob := range c.Types {
		if MatchGlob(glob, typ) {
			return true
		}
	}
	return false
}

// MatchGlob tells whether a text is that of a glob, in which "*" stands for any
// text, none and dots included. It takes no longer than the product of their
// lengths.
func MatchGlob(glob, text string) bool {
	g, t, star, mark := 0, 0, -1, 0
	for t < len(text) {
		switch {
		case g < len(glob) && glob[g] == '*':
			star, mark = g, t
			g++
		case g < len(glob) && glob[g] == text[t]:
			g++
			t++
		case star >= 0: // let the last star take one more
			mark++
			g, t = star+1, mark
		default:
			return false
		}
	}
	return strings.Trim(glob[g:], "*") == ""
}

// Sighting is what an event is to a sentinel, by what it says. The sentinel's row
// has the last word.
type Sighting struct {
	Sentinel bool // the target is a sentinel's
	Silent   bool // the event isn't of its types: it may end it, and isn't for it
	Last     bool // the event is the last about what the sentinel watches
}

// Sighting gives what an event is to a sentinel; ok: it is something to it. terminal
// is the event's Terminal, which is asked for at most once.
func (s *Sentinel) Sighting(ev *Event, terminal func() bool) (_ Sighting, ok bool) {
	out := Sighting{Sentinel: true, Silent: true}
	for _, c := range s.Match {
		for i, subject := range ev.Subjects {
			if !c.MatchesSubject(subject) {
				continue
			}
			out.Last = out.Last || i == 0 && s.Until.Kind == UntilTerminal
			out.Silent = out.Silent && !c.MatchesType(ev.Type)
		}
	}
	out.Last = out.Last && terminal()
	return out, out.Last || !out.Silent
}

// See takes an event into account: mine tells whether it is one of the sentinel's.
// It may be its last; Status is SentinelExpired then.
func (s *Sentinel) See(what Sighting, now time.Time) (mine bool) {
	if !s.Status.Matches() || s.Until.Kind == UntilAt && !now.Before(s.Until.At) {
		return false
	}
	if mine = !what.Silent; mine {
		s.Events++
		s.LastEventAt = now
	}
	if s.Until.Kind == UntilTerminal && what.Last || s.Until.Kind == UntilCount && s.Events >= s.Until.Count {
		s.Status, s.Ended = SentinelExpired, s.Until.Kind
	}
	return mine
}

// Terminal tells whether an event is the last about its own subject, the first of
// its Subjects: a CloudEvent with the extension terminal.
func (e *Event) Terminal() bool {
	c, ok := e.CloudEvent()
	if !ok {
		return false
	}
	yes, _ := c.Extensions["terminal"].(bool)
	return yes
}

// EndpointKind is whether an endpoint has a sentinel.
type EndpointKind uint8

// The kinds of endpoints.
const (
	AnyKind EndpointKind = iota
	Webhooks
	SentinelsOnly
)

// SentinelDelivery is what became of a sentinel's events at its endpoint.
type SentinelDelivery struct {
	Pending int64
	Dead    int64    // dead letters
	Any     bool     // something was ever for it
	Last    *Attempt // the latest; nil: there is none yet
}

// WatchCancel is a provider's watch that is to be cancelled: its sentinel has ended,
// or was never stored.
type WatchCancel struct {
	Key      int64
	Provider string
	Watch    string
	Tries    int // that failed
}

// Sentinels keep sentinels, and which events were theirs.
//
// An event is a sentinel's if Sentinel.See says so of the row as it is in the
// transaction that stores the event's pending rows, by the database's clock; and
// if its endpoint is enabled, and none of its events had the tenant and id before:
// the last 1,000 of them at least are known, and all whose delivery is still to be
// made. Append decides this for each target with a Sighting.
type Sentinels interface {
	// Sight makes pending rows of an event that is stored, for targets that all have a
	// Sighting, as Append would. Doing it twice makes each once.
	Sight(ctx context.Context, ev *Event, targets []Target) (Appended, error)
	// EndSentinels takes one bounded step of what follows ends: sentinels whose time is
	// over expire, and their endpoints are disabled with ReasonExpired; other nodes get
	// to know all that ended; and watches join Cancels. more: another step would find
	// something.
	EndSentinels(ctx context.Context, limit int) (ended int, more bool, err error)
	// ReapSentinels removes, in one bounded step, sentinels that ended so long ago, and of
	// whose events none is still to be delivered. Each leaves an audit entry like a.
	ReapSentinels(ctx context.Context, ended time.Duration, limit int, a *AuditEntry) (reaped int, more bool, err error)
	// TrimSentinel buries with SentinelFull the oldest of a sentinel's rows that nobody
	// owns, in one bounded step, until most are left.
	TrimSentinel(ctx context.Context, endpoint int64, most, limit int) (ended int, more bool, err error)
	// PlanWatch has a watch that is about to be made cancelled after a while, unless a
	// Sentinel with this Plan is stored by then. So a crash between the two leaves none.
	PlanWatch(ctx context.Context, provider, watch string, wait time.Duration) (plan int64, err error)
	// Cancels lists watches whose cancelling is due.
	Cancels(ctx context.Context, limit int) ([]WatchCancel, error)
	// Cancelled strikes one off.
	Cancelled(ctx context.Context, key int64) error
	// PutOffCancel has one wait that failed.
	PutOffCancel(ctx context.Context, c WatchCancel, wait time.Duration) error
	// SentinelDeliveries tells what became of the events of some sentinels, by their
	// endpoints. Those that never had any aren't there.
	SentinelDeliveries(ctx context.Context, endpoints []int64) (map[int64]SentinelDelivery, error)
}
