package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strconv"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
)

// disabledEvent makes the event that tells of a disabled endpoint. Its id is a
// function of what caused it, so that writing it twice writes it once. There is
// none about an endpoint that failed on such an event itself: watchers that all
// fail would tell each other of it, each of all the others. The log and the
// operator's hook tell of that one.
func (e *Engine) disabledEvent(ep *surehook.Endpoint, reason string, trigger *surehook.Attempt) *surehook.Event {
	if trigger.EventType == surehook.TypeDisabled {
		return nil
	}
	mac := hmac.New(sha256.New, e.idKey)
	mac.Write([]byte("webhook.disabled:" + ep.ID + ":" + trigger.EventID + ":" + strconv.Itoa(trigger.Number)))
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(trigger.CreatedAt)) // before the year 10889
	copy(id[6:], mac.Sum(nil)[:10])
	return &surehook.Event{ID: "evt_" + id.String(), Type: surehook.TypeDisabled, Tenant: ep.Tenant, Partner: e.index.PartnerOf(ep), About: ep.ID,
		OccurredAt: e.now(), Data: fmt.Appendf(nil, `{"webhook_id":%q,"reason":%q}`, ep.ID, reason)}
}

// onDisabled hears that attempts disabled endpoints: the lanes must know at
// once, the outbox has the events, and the operator is told.
func (e *Engine) onDisabled(eps []*surehook.Endpoint) {
	signal(e.outbox)
	ctx, cancel := context.WithTimeout(context.Background(), refreshLimit)
	defer cancel()
	if err := e.reload(ctx); err != nil {
		e.log.Warn("the configuration couldn't be read again; trying again", "error", err)
		for _, ep := range eps {
			e.disp.Update(ep)
		}
		signal(e.stale)
	}
	for _, ep := range eps {
		e.log.Warn("an endpoint was disabled", "webhook_id", ep.ID, "tenant_id", ep.Tenant, "reason", ep.DisabledReason,
			"consecutive_failures", ep.Health.ConsecutiveFailures)
		if e.opt.Notify != nil {
			n := Notice{WebhookID: ep.ID, TenantID: ep.Tenant, Reason: ep.DisabledReason, Failures: ep.Health.ConsecutiveFailures, At: e.now()}
			e.notices.Go(func() { e.notify(n) })
		}
	}
}

// notify calls the operator's hook. What it does wrong must not end the process.
func (e *Engine) notify(n Notice) {
	defer func() {
		if v := recover(); v != nil {
			e.log.Error("the hook for disabled endpoints panicked", "webhook_id", n.WebhookID, "panic", v)
		}
	}()
	e.opt.Notify(n)
}

// signal rings a bell of one place; who listens looks at everything.
func signal(bell chan struct{}) {
	select {
	case bell <- struct{}{}:
	default:
	}
}
