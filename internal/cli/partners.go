package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) partnersCmd() *cobra.Command {
	partners := &cobra.Command{Use: "partners", Short: "Partners, and which of them are suspended", RunE: group}
	get := &cobra.Command{
		Use: "get ID", Short: "Show a named partner", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			p, err := api.Partner(ctx, args[0])
			if err != nil {
				return err
			}
			return c.partner(p)
		}),
	}
	all := &cobra.Command{
		Use: "list", Short: "List named partners", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			return list(c, api.Partners(ctx), listing[client.Partner]{none: "no named partners; surehook partners put names one, and partners need no name",
				head: []string{"ID", "NAME", "STATUS", "CHANGED"}, row: func(p client.Partner) []cell {
					return []cell{text(p.ID), optional(printable(p.Name)), state(p.Status), stamp(&p.UpdatedAt)}
				}})
		}),
	}
	remove := &cobra.Command{
		Use: "delete ID", Short: "Forget a partner's name and suspension; its endpoints and tenants stay", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.DeletePartner(ctx, args[0]); err != nil {
				return err
			}
			return c.did(args[0], "deleted")
		}),
	}
	partners.AddCommand(c.partnerPutCmd(), get, all, remove)
	return partners
}

func (c *cmd) partner(p client.Partner) error {
	if c.json {
		return c.out.value(p)
	}
	return c.out.fields("id", p.ID, "name", printable(p.Name), "status", p.Status, "created", moment(p.CreatedAt), "changed", moment(p.UpdatedAt))
}

func (c *cmd) partnerPutCmd() *cobra.Command {
	var name, status string
	put := &cobra.Command{
		Use:   "put ID",
		Short: "Name a partner, suspend it or end that: what isn't given stays",
		Long: `Name a partner, suspend it, or make it active again: what isn't given stays.

While a partner is suspended, nothing but tests is sent to its endpoints and those of its
tenants. What is to be delivered there waits, and is sent within a minute after it is
active again; what left the replay window meanwhile is a dead letter then.`,
		Example: "  surehook partners put hub --status suspended\n  surehook partners put hub --status active",
		Args:    exactly("ID"),
	}
	f := put.Flags()
	f.StringVar(&name, "name", "", "name")
	f.StringVar(&status, "status", "", "active or suspended")
	offer(put, "status", "active", "suspended")
	put.RunE = c.through(func(ctx context.Context, api *client.Client, args []string) error {
		stored, err := stored(f, []string{"name"}, func() (client.Partner, error) { return api.Partner(ctx, args[0]) })
		if err != nil {
			return err
		}
		keep(f, "name", &name, stored.Name)
		p, err := api.PutPartner(ctx, args[0], name, status)
		if err != nil {
			return err
		}
		return c.partner(p)
	})
	return put
}
