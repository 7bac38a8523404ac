package surehook

import "context"

// Erasure selects events: those with Keys, or else those of a tenant, or of one of
// its identities, with keys above After. Tenant "" is the events without one, and
// then Identity is required.
type Erasure struct {
	Keys             []int64
	Tenant, Identity string
	After            int64
}

// Erased is what one step of an erasure did.
type Erased struct {
	Events     int   // whose data went
	Deliveries int   // that ended by it
	Next       int64 // where the next step goes on; 0: this was the last
}

// Erasing removes what events said. That there were such, and what became of them,
// is kept.
type Erasing interface {
	// Erase clears the data of selected events, and what receivers answered to it,
	// in one bounded step: at most limit are looked at. Their free rows end as dead
	// letters with EventUnavailable; those that a lane holds stay its own, and its
	// node hears of it by Watch, or by Erasures.
	Erase(ctx context.Context, sel Erasure, limit int, a *AuditEntry) (Erased, error)
	// EraseRefused takes out of the outbox, at most limit at once, selected events
	// that wait there because the store has refused them, those with ids alone if
	// there are any: they may never become events that Erase finds. It gives their
	// ids, and leaves a out when there are none.
	EraseRefused(ctx context.Context, sel Erasure, ids []string, limit int, a *AuditEntry) ([]string, error)
	// ErasureWaits counts selected events that wait for their fan-out, those of ids
	// alone if there are any; before is 0 or an earlier call's last. They can't be
	// erased yet.
	ErasureWaits(ctx context.Context, sel Erasure, ids []string, before int64) (n int, last int64, err error)
	// ErasedAmong gives those of the events that are erased, or gone altogether.
	ErasedAmong(ctx context.Context, events []int64) ([]int64, error)
	// Erasures goes up when another node may have erased something.
	Erasures(ctx context.Context) (int64, error)
	// Scrub clears what erased data may have left in the store's files, as far as
	// the store can: Unavailable when something was in the way.
	Scrub(ctx context.Context) error
}
