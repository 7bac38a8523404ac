// Package config reads the relay's file: the original's, with a few settings
// more.
//
// Guarantee: a file is taken whole or not at all, what is wrong with it is said
// all at once with the line of each fault, and no message holds a secret.
package config

import (
	"crypto/sha256"
	"fmt"
	"net/netip"
	"path/filepath"
	"time"

	"github.com/surehook/surehook/internal/relay/audit"
)

// Config is a file that was read, checked and completed.
type Config struct {
	Sources     []Source
	Enrichments []Enrichment
	Subscribers []Subscriber
	Relay       Relay
	Warnings    []Problem // what can be used but is hardly meant

	path  string
	files []string // all that was read
	sum   [sha256.Size]byte
}

// The types of a source.
const (
	Stdin   = "stdin"
	LogTail = "log_tail"
)

// Source is where lines come from.
type Source struct {
	Type          string // Stdin or LogTail
	Path          string // of LogTail
	FromBeginning bool   // of LogTail: the first start reads what is there already
}

// ID names the source in metrics and in the store: "stdin", or "log_tail:" and the
// path as it stands in the file.
func (s Source) ID() string {
	if s.Type == LogTail {
		return LogTail + ":" + s.Path
	}
	return s.Type
}

// where tells sources of the same file, however its path is written.
func (s Source) where() string {
	if abs, err := filepath.Abs(s.Path); err == nil && s.Path != "" {
		return abs
	}
	return s.ID()
}

// The types of an enrichment.
const (
	Lookup = "lookup"
	HTTP   = "http"
)

// Enrichment adds labels to events that have the label OnLabel.
type Enrichment struct {
	Type    string // Lookup or HTTP
	OnLabel string

	Table map[string]map[string]string // of Lookup: value of OnLabel → labels

	// Of HTTP:
	URL           string         // with {value}
	Timeout       time.Duration  // 500 ms
	CacheTTL      time.Duration  // 300 s; 0: nothing is kept
	CacheCapacity int            // 1024
	AllowNetworks []netip.Prefix // networks that it may reach beside the public ones
}

// Subscriber is who gets events.
type Subscriber struct {
	ID      string
	URL     string // http or https; may hold a token: never log it
	Secret  Secret
	Filter  audit.Filter
	Retry   Retry
	Timeout time.Duration // of one attempt; 30 s
	Enabled bool
	// Schemas are the envelope's majors that it gets, each in a delivery of its own;
	// [1] where the file doesn't say.
	Schemas []int
}

// MaxSubscribers is how many there may be: an event names each that it is for.
const MaxSubscribers = 10_000

// Hook is the id of the endpoint that gets one version of a subscriber's events:
// the subscriber's own, for the first version.
func (s *Subscriber) Hook(major int) string {
	if major == 1 {
		return s.ID
	}
	return fmt.Sprintf("%s@v%d", s.ID, major)
}

// The bounds of a secret. That of a file is larger for the white space at its end.
const (
	maxSecret     = 16 << 10 // bytes; the engine takes no more
	maxSecretFile = 64 << 10
)

// Secret is a subscriber's signing secret, or the admin token. Printing it shows
// nothing.
type Secret []byte

func (Secret) String() string { return "(secret)" }

// GoString keeps %#v from showing what String hides.
func (Secret) GoString() string { return "config.Secret" }

// MarshalText keeps encoders from it too.
func (Secret) MarshalText() ([]byte, error) { return []byte("(secret)"), nil }

// Retry is a subscriber's schedule: BaseDelay before the second attempt, doubling
// up to MaxDelay.
type Retry struct {
	MaxAttempts int           // 8
	BaseDelay   time.Duration // 500 ms
	MaxDelay    time.Duration // 10 min
}

// Relay holds what concerns the process as a whole.
type Relay struct {
	InstanceID      string // the host's name where the file doesn't say
	SubscriberQueue int    // 10000. Taken for the original's sake: nothing is dropped here, so nothing depends on it
	AdminToken      Secret // nil: the admin routes are open
	// PublicOnly turns the guard's address rules on for subscribers: https to public
	// addresses alone.
	PublicOnly bool
}
