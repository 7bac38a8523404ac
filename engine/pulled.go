package engine

import (
	"context"
	"errors"

	"github.com/surehook/surehook"
)

// checkPulled refuses what makes no sense for an endpoint that is pulled, and finds its
// session's inbox.
func (e *Engine) checkPulled(ctx context.Context, ep *surehook.Endpoint, w Webhook) error {
	switch {
	case w.URL != "":
		return surehook.Invalid("url", "must be left out: events with target pull wait until they are pulled")
	case w.Secret != "":
		return surehook.Invalid("secret", "must be left out: what is pulled isn't signed")
	case len(w.Urgency) > 100:
		return surehook.Invalid("urgency", "is over 100 bytes")
	}
	if err := checkUnsent(ep); err != nil || w.Session == "" {
		return err
	}
	s, err := e.store.PullSession(ctx, ep.Tenant, ep.Partner, w.Session)
	switch {
	case surehook.CodeOf(err) == surehook.NotFound, err == nil && (!s.EndedAt.IsZero() || e.now().Sub(s.SeenAt) >= e.opt.SessionIdle):
		return errNotAlive
	case err != nil:
		return err
	}
	ep.Inbox = s.Key
	return nil
}

// checkUnsent refuses what is about requests on an endpoint to which none are made.
func checkUnsent(ep *surehook.Endpoint) error {
	if !ep.Pulled() {
		return nil
	}
	l := ep.Limits
	switch {
	case len(ep.Headers) > 0:
		return surehook.Invalid("headers", "must be left out: nothing is sent to a webhook that is pulled")
	case ep.Ordered:
		return surehook.Invalid("ordering", "must be left out: events are pulled in order of arrival, an owner's in its sequence")
	case len(l.Waits) > 0 || l.Attempts != 0 || l.Timeout != 0 || l.Rate != 0 || l.Concurrency != 0:
		return surehook.Invalid("limits", "must be left out: nothing is sent to a webhook that is pulled")
	case ep.Signature != "v1":
		return surehook.Invalid("signature", "must be left out: what is pulled isn't signed")
	}
	return nil
}

// testInbox puts a test into an inbox. The attempt that it gives says that it is there.
func (e *Engine) testInbox(ctx context.Context, ep *surehook.Endpoint, ev *surehook.Event) (*surehook.Attempt, error) {
	e.settle(ev)
	item := []surehook.Append{{Event: ev, Targets: []surehook.Target{{EndpointKey: ep.Key, Inbox: ep.Inbox, Remote: true}}}}
	for try := 1; ; try++ {
		out, err := e.store.Append(ctx, e.index.Version(), item)
		if errors.Is(err, surehook.ErrConfigChanged) && try < giveUp {
			err = e.reload(ctx)
			if err == nil {
				continue
			}
		}
		if err == nil {
			err = out[0].Err
		}
		if err != nil {
			return nil, err
		}
		break
	}
	e.inboxes.came(ep.Inbox)
	a := e.pullAttempt(surehook.Delivery{EventKey: ev.Key, EndpointKey: ep.Key})
	a.EventID, a.EventType, a.EndpointID, a.Test = ev.ID, ev.Type, ep.ID, true
	_, err := e.store.Record(ctx, []surehook.Outcome{{Decision: surehook.Note, Attempt: a, Version: ep.Version,
		Delivery: surehook.Delivery{EventKey: ev.Key, EndpointKey: ep.Key}}}, nil)
	return a, err
}
