package sentinel

import (
	"context"
	"log/slog"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// Options of a service. Engine is required.
type Options struct {
	Engine    *engine.Engine
	Providers *Registry // nil: webhook alone, without set-up
	Logger    *slog.Logger
	Now       func() time.Time // time.Now
	// SessionAlive tells whether a session may get a sentinel, by its id and whose it
	// is; nil: there are no sessions.
	SessionAlive func(ctx context.Context, c Caller, session string) (bool, error)
}

// Service is what REST, CLI and MCP do with sentinels.
type Service struct {
	e         *engine.Engine
	opt       Options
	log       *slog.Logger
	providers *Registry
}

// New makes a service.
func New(opt Options) *Service {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Providers == nil {
		opt.Providers = NewRegistry(Pushed{})
	}
	return &Service{e: opt.Engine, opt: opt, log: opt.Logger, providers: opt.Providers}
}

// Caller is who asks: an API key. It sees its own scope's sentinels alone.
type Caller struct {
	Principal string // the key's id
	Tenant    string // its tenant, or the one that it acts for
	Partner   string // its partner, with Tenant empty
	Manages   bool   // may see what may be a receiver's secret
	Sees      func(*surehook.Endpoint) bool
	Actor     engine.Actor
}

// Page asks for a page of a listing, newest first.
type Page struct {
	Cursor   int64
	Limit    int // 1–1000
	Session  string
	Group    string
	Provider string
	Status   string
}

// Create makes a sentinel. One with a webhook is stored once the callback has passed
// its challenge, and gets no event before.
func (s *Service) Create(ctx context.Context, c Caller, spec Spec) (View, error) {
	return View{}, notYet
}

// Get shows one.
func (s *Service) Get(ctx context.Context, c Caller, id string) (View, error) {
	return View{}, notYet
}

// List shows the caller's, newest first, with what became of their events; next is
// the next page's cursor, 0 at the end.
func (s *Service) List(ctx context.Context, c Caller, p Page) (views []View, next int64, err error) {
	return nil, 0, notYet
}

// Remove ends a sentinel for good: its secret goes, what waits for it becomes dead
// letters, its provider's watch is cancelled.
func (s *Service) Remove(ctx context.Context, c Caller, id string) error { return notYet }

// ChangeSecret gives a webhook's sentinel a new secret, once the callback has passed
// a challenge with it. The old one signs beside it for 10 minutes.
func (s *Service) ChangeSecret(ctx context.Context, c Caller, id, secret string) (View, error) {
	return View{}, notYet
}

// Pause keeps a sentinel from matching, or lets it match again.
func (s *Service) Pause(ctx context.Context, c Caller, id string, paused bool) (View, error) {
	return View{}, notYet
}

// Reported notes what a provider says of a sentinel's watch: broken puts the
// sentinel in error, until a report without one. message is for people.
func (s *Service) Reported(ctx context.Context, id string, broken bool, message string) error {
	return notYet
}

// OrphanSession ends the matching of a session's sentinels when it is gone, and
// tells how many there were.
func (s *Service) OrphanSession(ctx context.Context, tenant, partner, session string) (int, error) {
	return 0, notYet
}

// Providers are the providers that there are.
func (s *Service) Providers() *Registry { return s.providers }

var notYet = surehook.Errorf(NotImplemented, "sentinels aren't available yet")
