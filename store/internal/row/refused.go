package row

import (
	"fmt"

	"github.com/surehook/surehook"
)

// RefusedEvent is what the audit log says of an event that was accepted into the
// outbox, and whose id another one with other content has had since.
func RefusedEvent(e *surehook.Event) *surehook.AuditEntry {
	return &surehook.AuditEntry{Actor: "system", Action: "event.refused", Target: e.ID, Tenant: e.Tenant,
		Details: `{"reason":"an event with this id and other content exists"}`}
}

// GivenUpEvent is what the audit log says of an event in the outbox that the store
// refused for as long as events are kept.
func GivenUpEvent(tenant, id string, times int) *surehook.AuditEntry {
	return &surehook.AuditEntry{Actor: "system", Action: "event.refused", Target: id, Tenant: tenant,
		Details: fmt.Sprintf(`{"reason":"the store refused it until its retention was over","times":%d}`, times)}
}
