package sentinel

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// Options of a service. Engine is required.
type Options struct {
	Engine    *engine.Engine
	Providers *Registry // nil: webhook alone, without set-up
	Logger    *slog.Logger
	Abandon   time.Duration // after which a watch is cancelled whose sentinel wasn't stored; 5 min
}

// Service is what REST, CLI and MCP do with sentinels.
type Service struct {
	e         *engine.Engine
	store     surehook.Store
	opt       Options
	log       *slog.Logger
	providers *Registry

	cancel context.CancelFunc
	done   sync.WaitGroup
	over   chan struct{} // rung when watches are to be cancelled
}

// New makes a service.
func New(opt Options) *Service {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Abandon == 0 {
		opt.Abandon = 5 * time.Minute
	}
	if opt.Providers == nil {
		opt.Providers = NewRegistry(Pushed{})
	}
	return &Service{e: opt.Engine, store: opt.Engine.Store(), opt: opt, log: opt.Logger, providers: opt.Providers, over: make(chan struct{}, 1)}
}

// Caller is who asks: an API key. It sees its own scope's sentinels alone.
type Caller struct {
	Principal string // the key's id
	Tenant    string // whose sentinels it makes, or looks for; "": its scope's own
	Partner   string // its partner, with Tenant empty
	Manages   bool   // may see what may be a receiver's secret
	Sees      func(*surehook.Endpoint) bool
	Actor     engine.Actor
}

// Page asks for a page of a listing, newest first. Empty fields select all.
type Page struct {
	Cursor   int64
	Limit    int // 1–1000
	Session  string
	Group    string
	Provider string
	Status   string
}

// Providers are the providers that there are.
func (s *Service) Providers() *Registry { return s.providers }

// Create makes a sentinel. One with a webhook is stored once the callback has passed
// its challenge, and gets no event before.
func (s *Service) Create(ctx context.Context, c Caller, spec Spec) (View, error) {
	p, err := s.providers.ByName(spec.Provider)
	if err != nil {
		return View{}, err
	}
	in := engine.Sentinel{ID: s.e.NewID("sen"), Tenant: c.Tenant, Partner: c.Partner, Principal: c.Principal, Provider: p.Slug(), Group: spec.Group, Label: spec.Label}
	if in.Match, err = clauses(spec.Match, p); err != nil {
		return View{}, err
	}
	if in.Until, err = spec.Until.domain(); err != nil {
		return View{}, err
	}
	if err := spec.Target.into(&in); err != nil {
		return View{}, err
	}
	if err := s.e.CheckSentinel(ctx, &in); err != nil { // before anything is asked of anybody
		return View{}, refused(err)
	}
	if err := s.watch(ctx, p, &in); err != nil {
		return View{}, err
	}
	ep, err := s.e.CreateSentinel(ctx, in, c.Actor)
	if err != nil {
		s.abandon(in)
		return View{}, refused(err)
	}
	return view(c, ep), nil
}

// watch has a sentinel's provider begin to watch. That the watch is to be cancelled is
// stored before; the sentinel's own row takes that back. So whatever ends in between,
// no watch is left that nobody knows of.
func (s *Service) watch(ctx context.Context, p Provider, in *engine.Sentinel) error {
	w := Watch{Sentinel: in.ID, Subjects: subjectsOf(in.Match), Tenant: in.Tenant, Partner: in.Partner, Terminal: in.Until.Kind == surehook.UntilTerminal}
	var err error
	if w.Handle, err = p.Handle(w); err == nil && w.Handle != "" {
		if in.Plan, err = s.store.PlanWatch(ctx, p.Slug(), w.Handle, s.opt.Abandon); err != nil {
			return err
		}
	}
	in.Watch = w.Handle
	if err == nil {
		limited, cancel := context.WithTimeout(ctx, s.opt.Abandon/2)
		defer cancel()
		err = p.CreateWatch(limited, w)
	}
	if err != nil {
		s.abandon(*in)
		return surehook.Errorf(ProviderCreateFailed, "the provider %s can't watch this: %s", p.Slug(), err).WithCause(err)
	}
	return nil
}

// abandon has a watch cancelled now that no sentinel came of.
func (s *Service) abandon(in engine.Sentinel) {
	if in.Plan == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), cancelLimit)
	defer cancel()
	if err := s.store.PutOffCancel(ctx, surehook.WatchCancel{Key: in.Plan}, 0); err != nil {
		s.log.Warn("a watch that isn't needed will be cancelled later", "provider", in.Provider, "error", err)
	}
	s.ring()
}

// clauses are those of a spec, with the provider's types where it names none.
func clauses(match []MatchClause, p Provider) ([]surehook.Clause, error) {
	if len(match) == 0 {
		return nil, refuse(MissingSubject, "match", "must hold at least one clause with a subject")
	}
	out := make([]surehook.Clause, len(match))
	for i, c := range match {
		if c.Subject == "" {
			return nil, refuse(MissingSubject, fmt.Sprintf("match[%d].subject", i), "is required")
		}
		if out[i] = (surehook.Clause{Subject: c.Subject, Types: c.Types}); len(c.Types) == 0 {
			out[i].Types = p.DefaultTypes(c.Subject)
		}
	}
	return out, nil
}

// into takes a target into what is to be created.
func (t Target) into(in *engine.Sentinel) error {
	const other = "goes with another kind of target"
	switch t.Kind {
	case TargetRoutine:
		return refuse(NotImplemented, "target.kind", "routine targets aren't implemented; use webhook or session")
	case TargetWebhook:
		switch {
		case t.URL == "":
			return surehook.Invalid("target.url", "is required")
		case t.Secret == "":
			return surehook.Invalid("target.secret", "is required: whsec_ and base64 of 24 to 64 random bytes")
		case t.SessionID != "":
			return surehook.Invalid("target.sessionId", other)
		case t.Urgency != "":
			return surehook.Invalid("target.urgency", other)
		case t.RoutineID != "":
			return surehook.Invalid("target.routineId", other)
		}
		in.URL, in.Secret = t.URL, t.Secret
	case TargetSession:
		switch {
		case t.SessionID == "":
			return refuse(NoCallerIdentity, "target.sessionId", "is required: it names the session that the events are for")
		case t.URL != "":
			return surehook.Invalid("target.url", other)
		case t.Secret != "":
			return surehook.Invalid("target.secret", other)
		case t.RoutineID != "":
			return surehook.Invalid("target.routineId", other)
		}
		in.Session, in.Urgency = t.SessionID, surehook.Urgency(cmp.Or(t.Urgency, string(surehook.UrgencyNextTurn)))
		if !slices.Contains([]surehook.Urgency{surehook.UrgencyFYI, surehook.UrgencyNextTurn, surehook.UrgencySteer, surehook.UrgencyInterrupt}, in.Urgency) {
			return surehook.Invalid("target.urgency", "must be fyi, next-turn, steer or interrupt")
		}
	default:
		return surehook.Invalid("target.kind", "must be webhook or session")
	}
	return nil
}

// refused gives a callback's failure its code.
func refused(err error) error {
	if c, ok := errors.AsType[*engine.ChallengeError](err); ok {
		path := "target.url"
		if c.Secret {
			path = "target.secret"
		}
		return &surehook.Error{Code: CreateFailed, Message: c.Error(), Cause: &CallbackError{Reason: c.Reason}, Fields: []surehook.FieldError{{Path: path, Message: c.Reason + ": " + c.Detail}}}
	}
	return err
}

// CallbackError is the cause of an error with CreateFailed.
type CallbackError struct{ Reason string }

func (e *CallbackError) Error() string { return e.Reason }

// find reads a sentinel that the caller may see.
func (s *Service) find(ctx context.Context, c Caller, id string) (*surehook.Endpoint, error) {
	ep, err := s.store.Endpoint(ctx, id)
	if surehook.CodeOf(err) == surehook.NotFound || err == nil && (ep.Sentinel == nil || !c.Sees(ep)) {
		return nil, surehook.Errorf(surehook.NotFound, "no such sentinel")
	}
	return ep, err
}

// Get shows one.
func (s *Service) Get(ctx context.Context, c Caller, id string) (View, error) {
	ep, err := s.find(ctx, c, id)
	if err != nil {
		return View{}, err
	}
	views, err := s.sum(ctx, c, []*surehook.Endpoint{ep})
	if err != nil {
		return View{}, err
	}
	return views[0], nil
}

// List shows the caller's, newest first, with what became of their events; next is
// the next page's cursor, 0 at the end.
func (s *Service) List(ctx context.Context, c Caller, p Page) (views []View, next int64, err error) {
	f := surehook.EndpointFilter{Kind: surehook.SentinelsOnly, Tenant: c.Tenant, Of: c.Partner, Provider: p.Provider, Group: p.Group, Session: p.Session}
	if c.Tenant != "" {
		f.Of = ""
	}
	var eps []*surehook.Endpoint
	for page := (surehook.Page{Cursor: p.Cursor, Limit: p.Limit}); len(eps) < p.Limit; {
		rows, err := s.store.ListEndpoints(ctx, f, page)
		if err != nil {
			return nil, 0, err
		}
		for _, ep := range rows {
			page.Cursor = ep.Key
			if c.Sees(ep) && (p.Status == "" || string(ep.SentinelStatus()) == p.Status) {
				eps = append(eps, ep)
			}
			if len(eps) == p.Limit {
				next = ep.Key
				break
			}
		}
		if len(rows) < page.Limit {
			break
		}
	}
	views, err = s.sum(ctx, c, eps)
	return views, next, err
}

// sum shows sentinels with what became of their events.
func (s *Service) sum(ctx context.Context, c Caller, eps []*surehook.Endpoint) ([]View, error) {
	keys := make([]int64, len(eps))
	for i, ep := range eps {
		keys[i] = ep.Key
	}
	sums, err := s.store.SentinelDeliveries(ctx, keys)
	if err != nil {
		return nil, err
	}
	views := make([]View, 0, len(eps))
	for _, ep := range eps {
		v := view(c, ep)
		if d, ok := sums[ep.Key]; ok {
			v.DeliveryStatus = deliveryStatus(d)
		}
		views = append(views, v)
	}
	return views, nil
}

// Remove ends a sentinel for good: its secret goes, what waits for it becomes dead
// letters, its provider's watch is cancelled.
func (s *Service) Remove(ctx context.Context, c Caller, id string) error {
	if _, err := s.find(ctx, c, id); err != nil {
		return err
	}
	err := s.e.RemoveSentinel(ctx, id, c.Actor)
	s.ring()
	return err
}

// ChangeSecret gives a webhook's sentinel a new secret, once the callback has passed
// a challenge with it. The old one signs beside it for 10 minutes.
func (s *Service) ChangeSecret(ctx context.Context, c Caller, id, secret string) (View, error) {
	if _, err := s.find(ctx, c, id); err != nil {
		return View{}, err
	}
	ep, err := s.e.ChangeSentinelSecret(ctx, c.Principal, id, secret, c.Actor)
	if err != nil {
		return View{}, refused(err)
	}
	return view(c, ep), nil
}

// Pause keeps a sentinel from matching, or lets it match again.
func (s *Service) Pause(ctx context.Context, c Caller, id string, paused bool) (View, error) {
	ep, err := s.find(ctx, c, id)
	if err != nil {
		return View{}, err
	}
	if now := ep.SentinelStatus(); now == surehook.SentinelExpired || now == surehook.SentinelOrphaned {
		return View{}, surehook.Errorf(surehook.Conflict, "the sentinel is %s for good; create another one", now)
	}
	action := "sentinel.resume"
	if paused {
		action = "sentinel.pause"
	}
	ep, err = s.e.ChangeSentinel(ctx, id, func(n *surehook.Sentinel) error {
		switch {
		case paused:
			n.Status = surehook.SentinelPaused
		case n.Status == surehook.SentinelPaused:
			n.Status = surehook.SentinelActive
		}
		return nil
	}, action, c.Actor)
	if err != nil {
		return View{}, err
	}
	return view(c, ep), nil
}

// PollNow has a sentinel's provider look for events at once, and gives how many were
// new.
func (s *Service) PollNow(ctx context.Context, c Caller, id string) (int, error) {
	ep, err := s.find(ctx, c, id)
	switch {
	case err != nil:
		return 0, err
	case !ep.SentinelStatus().Matches():
		return 0, surehook.Errorf(surehook.Conflict, "the sentinel isn't watching: it is %s", ep.SentinelStatus())
	}
	p, err := s.providers.ByName(ep.Sentinel.Provider)
	if err != nil {
		return 0, err
	}
	n, err := p.Poll(ctx, ep.Sentinel.Watch)
	if err != nil {
		return n, surehook.Errorf(ProviderFailed, "the provider %s couldn't look: %s", p.Slug(), err).WithCause(err)
	}
	return n, nil
}

// Reported notes what a provider says of a sentinel's watch: broken puts the
// sentinel in error, until a report without one. message is for people.
func (s *Service) Reported(ctx context.Context, id string, broken bool, message string) error {
	status := surehook.SentinelActive
	if broken {
		status = surehook.SentinelError
	}
	same := errors.New("nothing has changed")
	_, err := s.e.ChangeSentinel(ctx, id, func(n *surehook.Sentinel) error {
		if n.Status.Matches() {
			if n.Status == status && n.LastError == message {
				return same
			}
			n.Status = status
		} else if n.LastError == message {
			return same
		}
		n.LastError = message
		return nil
	}, "sentinel.report", engine.Actor{})
	if errors.Is(err, same) || surehook.CodeOf(err) == surehook.NotFound {
		return nil // it was removed meanwhile
	}
	return err
}
