package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) eraseCmd() *cobra.Command {
	var e client.Erasure
	var yes bool
	cc := &cobra.Command{
		Use:   "erase [ID...]",
		Short: "Erase the data of events for ever: by ids, by identity, or of a tenant",
		Long: `Erase the data of events for ever, and what receivers answered to it: of some ids,
of one identity, or of a whole tenant. Pending deliveries end as dead letters with
event_unavailable, and no replay brings them back. That the events were, and what
became of them, is kept. Backups that were made before still hold the data.`,
		Example: "  surehook events erase evt_01JD… --yes\n  surehook events erase --tenant acme --identity mbx_7 --yes\n  surehook events erase --tenant acme --yes",
		Args:    cobra.ArbitraryArgs,
	}
	f := cc.Flags()
	f.StringVar(&e.TenantID, "tenant", "", "all of this tenant; with ids or --identity, whose those are")
	f.StringVar(&e.IdentityID, "identity", "", "all of this identity; without --tenant, of events without a tenant")
	f.BoolVar(&yes, "yes", false, "don't ask: it can't be undone")
	cc.RunE = c.through(func(ctx context.Context, api *client.Client, args []string) error {
		e.IDs = args
		switch {
		case len(args) == 0 && e.TenantID == "" && e.IdentityID == "":
			return usage("say which: ids, --identity or --tenant")
		case !yes:
			return usage("it can't be undone: repeat it with --yes")
		}
		return c.erase(ctx, api, e)
	})
	return cc
}

// erase goes on until all is done. Interrupted, it can be repeated.
func (c *cmd) erase(ctx context.Context, api *client.Client, e client.Erasure) error {
	var sum client.Erased
	for {
		got, err := api.Erase(ctx, e)
		if err != nil {
			return err
		}
		sum.Events, sum.Deliveries = sum.Events+got.Events, sum.Deliveries+got.Deliveries
		if e.Next = got.Next; e.Next == "" {
			break
		}
	}
	if c.json {
		return c.out.value(sum)
	}
	c.out.line("%s erased, %s ended", plural(sum.Events, "event", "events"), plural(sum.Deliveries, "delivery", "deliveries"))
	return nil
}
