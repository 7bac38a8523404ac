package engine

import (
	"bytes"
	"context"
	"maps"
	"slices"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/dispatch"
)

// Declare makes the endpoint of an id, or brings it to what w says, secret
// included: for programs whose endpoints stand in a file. It is enabled unless w
// says otherwise. Where CreateWebhook and UpdateWebhook serve people who register
// a receiver, whoever wrote the file knows it: a new URL needs no test,
// and its name isn't looked up before the first attempt. What waits for the endpoint goes on by the new settings. Declaring the same again
// changes nothing.
func (e *Engine) Declare(ctx context.Context, id string, w Webhook, by Actor) (*surehook.Endpoint, error) {
	want := e.endpoint(id, w)
	if err := e.checkEndpoint(want); err != nil {
		return nil, err
	}
	if err := e.canonical(want); err != nil {
		return nil, err
	}
	was, err := e.store.Endpoint(ctx, id)
	if surehook.CodeOf(err) == surehook.NotFound && err != nil {
		was, _, err = e.create(ctx, want, w.Secret, by)
		return was, err
	}
	if err != nil {
		return nil, err
	}
	raw, _, err := e.secret(want, w.Secret)
	if err != nil {
		return nil, err
	}
	sameSecret := w.Secret == "" || e.holds(was, raw)
	if sameSecret && declared(was, want) {
		return was, nil
	}
	return e.change(ctx, id, func(ep *surehook.Endpoint) error {
		if !sameSecret {
			sealed, err := e.keys.Seal(dispatch.SecretTable, dispatch.CurrentColumn, id, raw)
			if err != nil {
				return err
			}
			ep.Secrets = surehook.Secrets{Current: sealed}
		}
		if !ep.Enabled && want.Enabled {
			ep.Health = surehook.Health{LastSuccessAt: ep.Health.LastSuccessAt}
		}
		ep.URL, ep.Description, ep.EventTypes, ep.Subjects, ep.Identities = want.URL, want.Description, want.EventTypes, want.Subjects, want.Identities
		ep.Profile, ep.Envelope, ep.Signature, ep.Headers, ep.Limits, ep.Ordered = want.Profile, want.Envelope, want.Signature, want.Headers, want.Limits, want.Ordered
		ep.Enabled, ep.DisabledReason, ep.UpdatedAt = want.Enabled, want.DisabledReason, e.now()
		return nil
	}, e.audit(by, "webhook.update", id, was.Tenant, ""))
}

// holds tells whether an endpoint's secret is this one.
func (e *Engine) holds(ep *surehook.Endpoint, raw []byte) bool {
	has, err := e.keys.Open(dispatch.SecretTable, dispatch.CurrentColumn, ep.ID, ep.Secrets.Current)
	return err == nil && ep.Secrets.Previous == "" && bytes.Equal(has, raw)
}

// declared tells whether an endpoint is what is wanted, all but its secret.
func declared(a, b *surehook.Endpoint) bool {
	return a.URL == b.URL && a.Description == b.Description && slices.Equal(a.EventTypes, b.EventTypes) && slices.Equal(a.Subjects, b.Subjects) &&
		slices.Equal(a.Identities, b.Identities) && a.Profile == b.Profile && a.Envelope == b.Envelope && a.Signature == b.Signature &&
		maps.Equal(a.Headers, b.Headers) && slices.Equal(a.Limits.Waits, b.Limits.Waits) && a.Limits.Attempts == b.Limits.Attempts &&
		a.Limits.Timeout == b.Limits.Timeout && a.Limits.Rate == b.Limits.Rate && a.Limits.Concurrency == b.Limits.Concurrency &&
		a.Limits.Paused == b.Limits.Paused && a.Ordered == b.Ordered && a.Enabled == b.Enabled && a.DisabledReason == b.DisabledReason
}
