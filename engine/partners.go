package engine

import (
	"context"
	"slices"
	"sync"

	"github.com/surehook/surehook"
)

// suspensions are the partners to whose endpoints, and to whose tenants'
// endpoints, nothing is sent now. Their deliveries wait as they are: see
// dispatch's hold.
type suspensions struct {
	mu       sync.RWMutex
	partners []string // ascending
	moves    int64    // of tenants between partners, as of the last look
}

// suspended tells whether an endpoint's partner is. Endpoints of the platform have
// none.
func (e *Engine) suspended(ep *surehook.Endpoint) bool {
	e.held.mu.RLock()
	defer e.held.mu.RUnlock()
	if len(e.held.partners) == 0 {
		return false
	}
	p := e.index.PartnerOf(ep)
	_, found := slices.BinarySearch(e.held.partners, p)
	return found && p != ""
}

// followSuspensions reads which partners are suspended, if the configuration has
// changed, and tells whether other endpoints may be held now. Callers hold refresh.
func (e *Engine) followSuspensions(ctx context.Context, version int64) (bool, error) {
	if version == e.index.Version() {
		return false, nil
	}
	now, err := e.store.Suspended(ctx)
	if err != nil {
		return false, err
	}
	slices.Sort(now)
	e.held.mu.Lock()
	defer e.held.mu.Unlock()
	moves := e.index.Moves()
	if slices.Equal(now, e.held.partners) && (moves == e.held.moves || len(now) == 0) {
		e.held.moves = moves
		return false, nil
	}
	e.held.partners, e.held.moves = now, moves
	return true, nil
}

// PutPartner creates or changes a partner. While it is suspended, nothing is sent
// to its endpoints and those of its tenants; what is to be delivered there waits,
// and is sent within a minute after that ends.
func (e *Engine) PutPartner(ctx context.Context, p *surehook.Partner, by Actor) error {
	if err := e.store.PutPartner(ctx, p, false, e.audit(by, "partner.put", p.ID, "", suspension(p))); err != nil {
		return err
	}
	e.refreshed()
	return nil
}

// NamePartner creates or renames a partner. One that is suspended stays so; p
// tells afterwards.
func (e *Engine) NamePartner(ctx context.Context, p *surehook.Partner, by Actor) error {
	return e.store.PutPartner(ctx, p, true, e.audit(by, "partner.put", p.ID, "", ""))
}

func suspension(p *surehook.Partner) string {
	if p.Suspended {
		return `{"status":"suspended"}`
	}
	return `{"status":"active"}`
}

// DeletePartner removes a partner's entry; its endpoints and tenants stay, and are
// not held any more.
func (e *Engine) DeletePartner(ctx context.Context, id string, by Actor) error {
	if err := e.store.DeletePartner(ctx, id, e.audit(by, "partner.delete", id, "", "")); err != nil {
		return err
	}
	e.refreshed()
	return nil
}
