package row

import "github.com/surehook/surehook"

// RefusedEvent is what the audit log says of an event that was accepted into the
// outbox, and whose id another one with other content has had since.
func RefusedEvent(e *surehook.Event) *surehook.AuditEntry {
	return &surehook.AuditEntry{Actor: "system", Action: "event.refused", Target: e.ID, Tenant: e.Tenant,
		Details: `{"reason":"an event with this id and other content exists"}`}
}
