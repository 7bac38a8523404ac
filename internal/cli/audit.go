package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) auditCmd() *cobra.Command {
	var tenant string
	var limit int
	audit := &cobra.Command{
		Use:   "audit",
		Short: "Who changed what, newest first",
		Long: `List the audit log, newest first: every change to endpoints, keys, tenants and event
types, with the key that made it. It needs a platform key with the permission admin.`,
		Example: "  surehook audit --limit 10\n  surehook audit --tenant acme --json",
		Args:    exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			none := "the audit log is empty"
			if tenant != "" {
				none = "nothing about this tenant is in the audit log"
			}
			return list(c, api.AuditLog(ctx, tenant, client.Page{Limit: limit}), listing[client.AuditEntry]{limit: limit, none: none,
				head: []string{"AT", "ACTOR", "ACTION", "TARGET", "TENANT", "DETAILS"}, row: func(e client.AuditEntry) []cell {
					return []cell{stamp(&e.At), text(e.Actor), text(e.Action), text(printable(e.Target)), optional(deref(e.TenantID)), optional(printable(string(e.Details)))}
				}})
		}),
	}
	audit.Flags().StringVar(&tenant, "tenant", "", "of this tenant")
	limitFlag(audit, &limit, 50)
	return audit
}
