package surehook

import (
	"context"
	"time"
)

// SessionKind says what a session's token opens.
type SessionKind string

// The kinds of sessions.
const (
	SessionConsole SessionKind = "console" // the console, with all that the API key may do
	SessionLink    SessionKind = "link"    // nothing yet: the first who takes it up gets a portal's session
	SessionPortal  SessionKind = "portal"  // one tenant's portal
)

// Session is a browser's right to ask in the name of an API key. The token that
// the browser holds is stored as a hash. A session lasts no longer than its key,
// or the rule that stands for one.
type Session struct {
	ID          string // ses_…
	Kind        SessionKind
	Hash        []byte   // SHA-256 of the token
	KeyHash     []byte   // SHA-256 of the API key that it was opened with, or of the rule that let a login provider's word open it
	Subject     string   // who, where a login provider said so; empty: whoever holds the key
	Tenant      string   // a link's and a portal's: this tenant's alone
	Permissions []string // a link's and a portal's; a console's are its key's
	CreatedAt   time.Time
	UsedAt      time.Time // to the minute
	ExpiresAt   time.Time
}

// Sessions keeps sessions: in the store, so that they outlive a restart, every
// node knows them, and one that was ended is ended everywhere.
type Sessions interface {
	// OpenSession stores a session, and forgets some that expired before it was
	// made. With link, the hash of a link's token, it takes the link's place: the
	// link is gone with it, and NotFound says that it was gone before.
	OpenSession(ctx context.Context, s *Session, link []byte, a *AuditEntry) error
	Session(ctx context.Context, hash []byte) (*Session, error) // NotFound for unknown; an expired one may still be there
	// UseSession notes that a session was used. Nothing goes back in time; one that
	// isn't there is left out.
	UseSession(ctx context.Context, hash []byte, at time.Time) error
	// EndSession forgets a session; one that isn't there is ended already.
	EndSession(ctx context.Context, hash []byte) error
}
