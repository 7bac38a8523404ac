package engine

import (
	"context"
	"fmt"
	"strings"

	"github.com/surehook/surehook"
)

// MaxEventBytes bounds one event's data.
func (e *Engine) MaxEventBytes() int { return e.opt.MaxEventBytes }

// Endpoint gives an endpoint as the engine knows it now; nil for an unknown or
// deleted one. It must not be changed.
func (e *Engine) Endpoint(key int64) *surehook.Endpoint { return e.index.Endpoint(key) }

// PutTenant creates or changes a tenant. Its events belong to its partner from now
// on; those that were accepted before stay where they were.
func (e *Engine) PutTenant(ctx context.Context, t *surehook.Tenant, action string, by Actor) error {
	if t.EventsDays < 0 || t.EventsDays > surehook.MaxEventsDays {
		return surehook.Invalid("events_days", fmt.Sprintf("must be 1 to %d, or 0 for as long as everybody's", surehook.MaxEventsDays))
	}
	if t.CreatedAt.IsZero() {
		t.CreatedAt = e.now()
	}
	e.tenancy.Lock()
	defer e.tenancy.Unlock()
	if err := e.moveTenant(t.ID, func() (string, error) {
		return t.Partner, e.store.PutTenant(ctx, t, e.audit(by, action, t.ID, t.ID, ""))
	}); err != nil {
		return err
	}
	signal(e.kept)
	e.refreshed() // matching by another partner is another configuration
	return nil
}

// DeleteTenant removes a tenant's entry; its events and endpoints stay.
func (e *Engine) DeleteTenant(ctx context.Context, id string, by Actor) error {
	e.tenancy.Lock()
	defer e.tenancy.Unlock()
	if err := e.moveTenant(id, func() (string, error) {
		return "", e.store.DeleteTenant(ctx, id, e.audit(by, "tenant.delete", id, id, ""))
	}); err != nil {
		return err
	}
	e.refreshed()
	return nil
}

// moveTenant keeps the new configuration version from being taken into use before
// the tenant's partner is.
func (e *Engine) moveTenant(id string, write func() (partner string, err error)) error {
	e.refresh.Lock()
	defer e.refresh.Unlock()
	partner, err := write()
	if err == nil {
		e.index.SetPartner(id, partner)
	}
	return err
}

// Partner gives the partner that a tenant belongs to; "" for none.
func (e *Engine) Partner(tenant string) string { return e.index.Partner(tenant) }

// PartnerOf gives the partner whose endpoint this is, or whose tenant's; "" for
// none.
func (e *Engine) PartnerOf(ep *surehook.Endpoint) string { return e.index.PartnerOf(ep) }

// ReplayEvents queues given events for an endpoint again; at most
// MaxReplayEvents. path names the i-th event in an error. All are queued, or
// none.
func (e *Engine) ReplayEvents(ctx context.Context, id string, keys []int64, path func(i int) string, by Actor) (ReplayReceipt, error) {
	ep, err := e.CheckReplay(ctx, id, keys, path)
	if err != nil || len(keys) == 0 {
		return ReplayReceipt{}, err
	}
	return e.replay(ctx, ep, keys, e.audit(by, "webhook.replay", id, ep.Tenant, fmt.Sprintf(`{"events":%d}`, len(keys))))
}

// CheckReplay tells whether ReplayEvents would queue these events.
func (e *Engine) CheckReplay(ctx context.Context, id string, keys []int64, path func(i int) string) (*surehook.Endpoint, error) {
	ep, err := e.replayTarget(ctx, id)
	if err != nil {
		return nil, err
	}
	if len(keys) > MaxReplayEvents {
		return nil, surehook.Invalid(path(MaxReplayEvents), fmt.Sprintf("more than %d events at a time", MaxReplayEvents))
	}
	for i, key := range keys {
		ev, err := e.store.EventByKey(ctx, key)
		switch {
		case surehook.CodeOf(err) == surehook.NotFound:
			return nil, surehook.Invalid(path(i), "is event_unavailable: the event left retention")
		case err != nil:
			return nil, err
		}
		if err := e.replayable(ctx, ep, ev, path(i)); err != nil {
			return nil, err
		}
	}
	return ep, nil
}

// A remembered answer may be longer than a keyring seals in one piece.
const sealPiece = 32 << 10

// SealAnswer seals an answer that is kept for a repeat of its request; it may
// hold a secret. name says which request, and must be given again to open it.
func (e *Engine) SealAnswer(name string, plain []byte) ([]byte, error) {
	var out []string
	for i := 0; i == 0 || i*sealPiece < len(plain); i++ {
		piece := plain[i*sealPiece : min((i+1)*sealPiece, len(plain))]
		s, err := e.keys.Seal("idempotency", "answer", fmt.Sprintf("%s#%d", name, i), piece)
		if err != nil {
			return nil, err
		}
		out = append(out, s)
	}
	return []byte(strings.Join(out, "\n")), nil
}

// OpenAnswer is the inverse of SealAnswer.
func (e *Engine) OpenAnswer(name string, sealed []byte) ([]byte, error) {
	var out []byte
	for i, s := range strings.Split(string(sealed), "\n") {
		piece, err := e.keys.Open("idempotency", "answer", fmt.Sprintf("%s#%d", name, i), s)
		if err != nil {
			return nil, err
		}
		out = append(out, piece...)
	}
	return out, nil
}
