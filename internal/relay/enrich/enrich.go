// Package enrich adds labels to audit events, from tables in the relay's file and
// from catalogues that are asked over HTTP.
//
// Guarantee: a label that an event has is never changed, none breaks the rules of
// labels, and a catalogue that is slow or away costs an event its labels and a
// bounded wait, never more.
package enrich

import (
	"context"
	"crypto/x509"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
)

// Result is what became of one event at one enrichment that was for it.
type Result string

// The results.
const (
	OK     Result = "ok"     // it was looked up
	Cached Result = "cached" // it was known from before
	Miss   Result = "miss"   // the table has nothing for the value
	Failed Result = "error"  // the catalogue gave no answer that can be used
)

// Options of New; the zero value is good.
type Options struct {
	Log      *slog.Logger
	Now      func() time.Time
	Observe  func(enricher string, r Result) // for each event; enricher is the type
	Resolver egress.Resolver
	RootCAs  *x509.CertPool
	Agent    string // the User-Agent
}

// Chain is the enrichments of a configuration, in their order.
type Chain struct {
	steps   []step
	observe func(enricher string, r Result)
}

// step is one enrichment.
type step interface {
	apply(ctx context.Context, events []audit.Event, observe func(Result))
	name() string
	close()
}

// New makes the enrichments of a configuration.
func New(list []config.Enrichment, o Options) (*Chain, error) {
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Observe == nil {
		o.Observe = func(string, Result) {}
	}
	c := &Chain{observe: o.Observe}
	for _, e := range list {
		if e.Type == config.Lookup {
			c.steps = append(c.steps, lookup{e})
			continue
		}
		s, err := newCatalogue(e, o)
		if err != nil {
			c.Close()
			return nil, err
		}
		c.steps = append(c.steps, s)
	}
	return c, nil
}

// Apply adds labels to events: by each enrichment in turn, so that one may go by
// what another added.
func (c *Chain) Apply(ctx context.Context, events []audit.Event) {
	for _, s := range c.steps {
		s.apply(ctx, events, func(r Result) { c.observe(s.name(), r) })
	}
}

// Close lets go of connections.
func (c *Chain) Close() {
	for _, s := range c.steps {
		s.close()
	}
}

// lookup is a table.
type lookup struct{ e config.Enrichment }

func (l lookup) name() string { return config.Lookup }
func (l lookup) close()       {}

func (l lookup) apply(_ context.Context, events []audit.Event, observe func(Result)) {
	for i := range events {
		value, ok := events[i].Labels[l.e.OnLabel]
		if !ok {
			continue
		}
		row, ok := l.e.Table[value]
		if !ok {
			observe(Miss)
			continue
		}
		add(&events[i], row)
		observe(OK)
	}
}

// add goes by name, so that the same labels win wherever there isn't room for all.
func add(ev *audit.Event, labels map[string]string) {
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		ev.Add(k, labels[k])
	}
}
