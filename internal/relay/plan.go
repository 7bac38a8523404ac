package relay

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/dispatch"
	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
	"github.com/surehook/surehook/profile"
)

// plan is a configuration as events meet it.
type plan struct {
	instance string
	token    []byte
	enrich   Enricher // nil: none
	subs     []subscriber
	hooks    map[string]bool // ids of the endpoints that it has
}

// subscriber is one as events meet it. Its subject stands in the events that it
// gets, and in the filters of its endpoints.
type subscriber struct {
	id, subject string
	filter      audit.Filter
}

// subject is how an event says that a subscriber's filter let it through. The
// last character keeps an id from being read as a pattern.
func subject(id string) string { return "[" + id + "]" }

// adopt puts a plan in force, once nobody is at the last one any more.
func (r *Relay) adopt(p *plan) {
	r.planning.Lock()
	defer r.planning.Unlock()
	if last := r.plan.Swap(p); last.enrich != nil {
		last.enrich.Close()
	}
}

// by is who changes endpoints, for the audit log.
var by = engine.Actor{ID: "relay"}

// declare brings the engine's endpoints to the subscribers of a file.
func (r *Relay) declare(ctx context.Context, c *config.Config, p *plan) error {
	p.hooks = make(map[string]bool)
	for i := range c.Subscribers {
		s := &c.Subscribers[i]
		for _, major := range s.Schemas {
			p.hooks[s.Hook(major)] = true
			if _, err := r.opt.Engine.Declare(ctx, s.Hook(major), webhook(s, major), by); err != nil {
				return fmt.Errorf("subscriber %s: %w", s.ID, err)
			}
		}
		p.subs = append(p.subs, subscriber{id: s.ID, subject: subject(s.ID), filter: s.Filter})
		r.opt.Metrics.subscriber(s.ID)
	}
	return nil
}

// webhook is a subscriber as the engine knows it.
func webhook(s *config.Subscriber, major int) engine.Webhook {
	return engine.Webhook{Tenant: Tenant, URL: s.URL, Description: s.ID, EventTypes: []string{surehook.TypeAudit}, Subjects: []string{subject(s.ID)},
		Profile: profile.PurpleWolf.Name, Envelope: surehook.PurpleWolfEnvelope(major), Secret: string(s.Secret),
		Limits: surehook.Limits{Waits: waits(s.Retry), Attempts: s.Retry.MaxAttempts, Timeout: s.Timeout, Paused: !s.Enabled}}
}

// waits is a subscriber's schedule as a table: doubling, and level from its bound
// on, where the table's last entry stands for all that follow.
func waits(r config.Retry) []time.Duration {
	out := []time.Duration{min(r.BaseDelay, r.MaxDelay)}
	for len(out) < r.MaxAttempts-1 && out[len(out)-1] < r.MaxDelay {
		out = append(out, min(2*out[len(out)-1], r.MaxDelay))
	}
	return out
}

// withdraw disables the endpoints of subscribers that the file names no longer.
// What waits for them becomes dead letters, and can be replayed when they are
// back.
func (r *Relay) withdraw(ctx context.Context, p *plan) error {
	for page := (surehook.Page{Limit: 500}); ; {
		eps, err := r.opt.Engine.Store().ListEndpoints(ctx, surehook.EndpointFilter{Tenant: Tenant}, page)
		if err != nil {
			return err
		}
		for _, ep := range eps {
			if off := false; ep.Enabled && !p.hooks[ep.ID] {
				if _, err := r.opt.Engine.UpdateWebhook(ctx, ep.ID, engine.Patch{Enabled: &off}, by); err != nil {
					return fmt.Errorf("subscriber %s: %w", ep.ID, err)
				}
				r.log.Info("a subscriber is gone from the configuration; what waits for it becomes dead letters", "subscriber_id", ep.ID)
			}
		}
		if len(eps) < page.Limit {
			return nil
		}
		page.Cursor = eps[len(eps)-1].Key
	}
}

// event makes the engine's event of an audit event: who it is for is decided here
// and stands in it. false: it is for nobody.
func (p *plan) event(ev *audit.Event, matched func(id string)) (surehook.Event, bool) {
	var subjects []string
	for i := range p.subs {
		if p.subs[i].filter.Match(ev) {
			subjects = append(subjects, p.subs[i].subject)
			matched(p.subs[i].id)
		}
	}
	if len(subjects) == 0 {
		return surehook.Event{}, false
	}
	return surehook.Event{ID: ev.ID, Type: surehook.TypeAudit, Tenant: Tenant, Subjects: subjects, OccurredAt: ev.Received,
		Data: dispatch.Audit(labels(ev.Labels), ev.Middleware, ev.Router, ev.EntryPoint, p.instance, ev.JSON)}, true
}

// labels are an event's as JSON, sorted by name; nil for none.
func labels(m map[string]string) []byte {
	if len(m) == 0 {
		return nil
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(m); err != nil {
		return nil // texts always marshal
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}
