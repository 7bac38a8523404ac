// Package relay turns a web application firewall's audit lines into signed
// deliveries: what it reads from its sources goes, by the subscribers' filters,
// into the engine, which delivers it.
//
// Guarantee: a line's place in its file moves on only when its event is in the
// store together with a pending delivery for each subscriber whose filter let it
// through. A line that is read again after a crash has the id that it had, so the
// store recognises it. Nothing is dropped for want of room: a source isn't read
// faster than the store takes what it holds.
package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"sync"
	"sync/atomic"

	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
	"github.com/surehook/surehook/internal/relay/source"
)

// Tenant owns the relay's endpoints and events, so that neither meets others in
// the same store.
const Tenant = "purple-wolf-relay"

// Bounds that the engine needs to be told.
const (
	MaxSubjects   = config.MaxSubscribers // an event may be for all of them
	MaxEventBytes = 2 << 20
)

// Enricher adds labels to events. What it can't find out it leaves out.
type Enricher interface {
	Apply(ctx context.Context, events []audit.Event)
	Close()
}

// Options of a relay. All but Enrich are required.
type Options struct {
	Engine  *engine.Engine // started
	Open    func(config.Source) source.Source
	Enrich  func([]config.Enrichment) (Enricher, error) // nil: nothing is enriched
	Metrics *Metrics
	Logger  *slog.Logger
}

// Relay reads sources into an engine. Make one with New; Use starts it.
type Relay struct {
	opt Options
	log *slog.Logger

	planning sync.RWMutex // held for reading while events meet the plan
	plan     atomic.Pointer[plan]

	mu     sync.Mutex // one change at a time
	public *bool      // addresses alone: how the engine was made
	ended  bool

	reading sync.Mutex // guards feeds
	feeds   map[string]*feed

	read context.Context // ends when no more is to be read
	halt context.CancelFunc
	keep context.Context // ends when storing must end, too
	cut  context.CancelFunc
}

// New makes a relay that reads nothing yet.
func New(opt Options) *Relay {
	r := &Relay{opt: opt, log: opt.Logger, feeds: make(map[string]*feed)}
	r.keep, r.cut = context.WithCancel(context.Background())
	r.read, r.halt = context.WithCancel(r.keep)
	r.plan.Store(&plan{})
	return r
}

// Use brings the relay to a configuration: the first one, or another while it
// runs. Subscribers keep their ids and what waits for them. On an error some of
// them may be changed already, and the same may be tried again.
func (r *Relay) Use(ctx context.Context, c *config.Config) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.ended {
		return errors.New("the relay is stopping")
	}
	next := &plan{instance: c.Relay.InstanceID, token: c.Relay.AdminToken}
	if err := r.declare(ctx, c, next); err != nil {
		return err
	}
	if r.opt.Enrich != nil && len(c.Enrichments) > 0 {
		var err error
		if next.enrich, err = r.opt.Enrich(c.Enrichments); err != nil {
			return fmt.Errorf("enrichments: %w", err)
		}
	}
	r.adopt(next) // whoever is new gets events from here on
	if err := r.withdraw(ctx, next); err != nil {
		return err
	}
	if r.public == nil {
		r.public = &c.Relay.PublicOnly
	} else if *r.public != c.Relay.PublicOnly {
		r.log.Warn("relay.public_addresses_only was changed: that takes effect at the next start")
	}
	r.follow(c.Sources)
	return nil
}

// follow reads the sources that are named, and no others.
func (r *Relay) follow(sources []config.Source) {
	named := make(map[string]bool, len(sources))
	for _, s := range sources {
		named[s.ID()] = true
		r.reading.Lock()
		if r.feeds[s.ID()] == nil {
			r.feeds[s.ID()] = r.start(s)
		}
		r.reading.Unlock()
	}
	for id, f := range r.running() {
		if !named[id] {
			r.log.Info("a source isn't read any more", "source", id)
			f.stop()
			r.end(id, f)
		}
	}
}

func (r *Relay) running() map[string]*feed {
	r.reading.Lock()
	defer r.reading.Unlock()
	return maps.Clone(r.feeds)
}

// end waits for a feed that was told to stop.
func (r *Relay) end(id string, f *feed) {
	<-f.done
	r.reading.Lock()
	defer r.reading.Unlock()
	delete(r.feeds, id)
}

// Ready tells whether all sources are being read, or came to their end.
func (r *Relay) Ready() error {
	feeds := r.running()
	if len(feeds) == 0 || r.read.Err() != nil {
		return errors.New("no source is being read")
	}
	for id, f := range feeds {
		if err := f.failed.Load(); err != nil {
			return fmt.Errorf("the source %s failed: %w", id, *err)
		}
		if f.stuck.Load() {
			return errors.New("the store doesn't take what is read")
		}
		if err := f.src.Stuck(); err != nil {
			return fmt.Errorf("the source %s can't be read for now: %w", id, err)
		}
	}
	return nil
}

// Token is the admin token in force; nil: none is set.
func (r *Relay) Token() []byte { return r.plan.Load().token }

// Stop ends the reading, and waits until what was read is in the store, or until
// ctx ends: what isn't then is read again at the next start. It may be called
// twice.
func (r *Relay) Stop(ctx context.Context) error {
	r.halt()
	defer context.AfterFunc(ctx, r.cut)()
	r.mu.Lock() // a change that is under way ends
	defer r.mu.Unlock()
	r.ended = true
	for id, f := range r.running() {
		r.end(id, f)
	}
	r.adopt(&plan{})
	r.cut()
	return nil
}
