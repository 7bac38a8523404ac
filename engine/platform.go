package engine

import (
	"crypto/hmac"
	"crypto/sha256"
	"fmt"
	"strconv"

	"context"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
)

// disabledEvent makes the event that tells of a disabled endpoint. Its id is a
// function of what caused it, so that writing it twice writes it once.
func (e *Engine) disabledEvent(ep *surehook.Endpoint, reason string, trigger *surehook.Attempt) *surehook.Event {
	mac := hmac.New(sha256.New, e.idKey)
	mac.Write([]byte("webhook.disabled:" + ep.ID + ":" + trigger.EventID + ":" + strconv.Itoa(trigger.Number)))
	var id ulid.ULID
	_ = id.SetTime(ulid.Timestamp(trigger.CreatedAt)) // before the year 10889
	copy(id[6:], mac.Sum(nil)[:10])
	return &surehook.Event{ID: "evt_" + id.String(), Type: surehook.TypeDisabled, Tenant: ep.Tenant, About: ep.ID,
		OccurredAt: e.now(), Data: fmt.Appendf(nil, `{"webhook_id":%q,"reason":%q}`, ep.ID, reason)}
}

// onDisabled hears that attempts disabled endpoints: the lanes must know at
// once, the outbox has the events, and the operator is told.
func (e *Engine) onDisabled(eps []*surehook.Endpoint) {
	select {
	case e.outbox <- struct{}{}:
	default:
	}
	if err := e.reload(context.Background()); err != nil {
		e.log.Warn("the configuration couldn't be read again", "error", err)
		for _, ep := range eps {
			e.disp.Update(ep)
		}
	}
	for _, ep := range eps {
		e.log.Warn("an endpoint was disabled", "webhook_id", ep.ID, "tenant_id", ep.Tenant, "reason", ep.DisabledReason,
			"consecutive_failures", ep.Health.ConsecutiveFailures)
		if e.opt.Notify != nil {
			go e.opt.Notify(Notice{WebhookID: ep.ID, TenantID: ep.Tenant, Reason: ep.DisabledReason,
				Failures: ep.Health.ConsecutiveFailures, At: e.now()})
		}
	}
}
