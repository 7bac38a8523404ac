package cli

import (
	"context"

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
				head: []string{"ID", "NAME", "PARTNER", "CREATED"}, row: func(t client.Tenant) []cell {
					return []cell{text(t.ID), optional(printable(t.Name)), optional(deref(t.PartnerID)), stamp(&t.CreatedAt)}
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
	return c.out.fields("id", t.ID, "name", printable(t.Name), "partner", deref(t.PartnerID), "created", moment(t.CreatedAt))
}

func (c *cmd) tenantPutCmd() *cobra.Command {
	var name, partner string
	put := &cobra.Command{
		Use:   "put ID",
		Short: "Name a tenant, or change it: what isn't given stays",
		Long: `Name a tenant and the partner that it belongs to, or change them: what isn't given
stays. An empty --name or --partner takes it away.`,
		Example: "  surehook tenants put acme --name 'Acme Ltd' --partner hub",
		Args:    exactly("ID"),
	}
	f := put.Flags()
	f.StringVar(&name, "name", "", "name")
	f.StringVar(&partner, "partner", "", "partner that it belongs to")
	put.RunE = c.through(func(ctx context.Context, api *client.Client, args []string) error {
		stored, err := stored(f, []string{"name", "partner"}, func() (client.Tenant, error) { return api.Tenant(ctx, args[0]) })
		if err != nil {
			return err
		}
		keep(f, "name", &name, stored.Name)
		keep(f, "partner", &partner, deref(stored.PartnerID))
		t, err := api.PutTenant(ctx, args[0], name, partner)
		if err != nil {
			return err
		}
		return c.tenant(t)
	})
	return put
}
