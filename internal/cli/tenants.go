package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) tenantsCmd() *cobra.Command {
	tenants := &cobra.Command{Use: "tenants", Short: "Tenants, and the partners that they belong to", RunE: group}
	get := &cobra.Command{
		Use: "get ID", Short: "Show a named tenant", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			t, err := api.Tenant(ctx, args[0])
			if err != nil {
				return err
			}
			return c.tenant(t)
		}),
	}
	all := &cobra.Command{
		Use: "list", Short: "List named tenants", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			return list(c, api.Tenants(ctx), listing[client.Tenant]{none: "no named tenants; surehook tenants put names one, and tenants need no name",
				head: []string{"ID", "NAME", "PARTNER", "EVENTS DAYS", "CREATED"}, row: func(t client.Tenant) []cell {
					return []cell{text(t.ID), optional(printable(t.Name)), optional(deref(t.PartnerID)), optional(days(t.EventsDays)), stamp(&t.CreatedAt)}
				}})
		}),
	}
	remove := &cobra.Command{
		Use: "delete ID", Short: "Forget a tenant's name; its endpoints and events stay", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.DeleteTenant(ctx, args[0]); err != nil {
				return err
			}
			return c.did(args[0], "deleted")
		}),
	}
	tenants.AddCommand(c.tenantPutCmd(), get, all, remove)
	return tenants
}

func (c *cmd) tenant(t client.Tenant) error {
	if c.json {
		return c.out.value(t)
	}
	return c.out.fields("id", t.ID, "name", printable(t.Name), "partner", deref(t.PartnerID), "events days", days(t.EventsDays), "created", moment(t.CreatedAt))
}

func (c *cmd) tenantPutCmd() *cobra.Command {
	var in client.TenantInput
	put := &cobra.Command{
		Use:   "put ID",
		Short: "Name a tenant, or change it: what isn't given stays",
		Long: `Name a tenant, the partner that it belongs to and how long its events are kept, or
change them: what isn't given stays. An empty --name or --partner takes it away, and so
does --events-days 0.`,
		Example: "  surehook tenants put acme --name 'Acme Ltd' --partner hub",
		Args:    exactly("ID"),
	}
	f := put.Flags()
	f.StringVar(&in.Name, "name", "", "name")
	f.StringVar(&in.PartnerID, "partner", "", "partner that it belongs to")
	f.IntVar(&in.EventsDays, "events-days", 0, "days that its events are kept, with their attempts and dead letters; 0: as long as everybody's")
	put.RunE = c.through(func(ctx context.Context, api *client.Client, args []string) error {
		stored, err := stored(f, []string{"name", "partner", "events-days"}, func() (client.Tenant, error) { return api.Tenant(ctx, args[0]) })
		if err != nil {
			return err
		}
		keep(f, "name", &in.Name, stored.Name)
		keep(f, "partner", &in.PartnerID, deref(stored.PartnerID))
		keep(f, "events-days", &in.EventsDays, stored.EventsDays)
		t, err := api.PutTenant(ctx, args[0], in)
		if err != nil {
			return err
		}
		return c.tenant(t)
	})
	return put
}

// days shows how long events are kept, where the tenant says so.
func days(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}
