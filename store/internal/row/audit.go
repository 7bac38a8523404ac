package row

import (
	"fmt"

	"github.com/surehook/surehook"
)

// Disabling is the audit log's entry of an endpoint that its attempts disabled.
func Disabling(e *surehook.Endpoint, reason string, trigger *surehook.Attempt) *surehook.AuditEntry {
	return &surehook.AuditEntry{Actor: "system", Action: "webhook.disable", Target: e.ID, Tenant: e.Tenant,
		Details: fmt.Sprintf(`{"reason":%q,"event_id":%q}`, reason, trigger.EventID)}
}
