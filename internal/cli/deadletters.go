package cli

import (
	"context"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) deadLettersCmd() *cobra.Command {
	dead := &cobra.Command{Use: "dead-letters", Short: "Deliveries that ended dead", RunE: group}
	dead.AddCommand(c.deadListCmd(), c.deadGetCmd(), c.deadReplayCmd(), c.deadDiscardCmd())
	return dead
}

func (c *cmd) deadListCmd() *cobra.Command {
	var f client.DeadLetterFilter
	var since, until when
	var limit int
	all := &cobra.Command{
		Use: "list", Short: "List dead letters, newest first", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			f.Since, f.Until, f.Limit = since.Time, until.Time, limit
			none := "no dead letters"
			if f.WebhookID != "" || f.TenantID != "" || !f.Since.IsZero() || !f.Until.IsZero() {
				none = "no dead letters of this kind"
			}
			return list(c, api.DeadLetters(ctx, f), listing[client.DeadLetter]{limit: limit, none: none,
				head: []string{"ID", "EVENT", "TYPE", "WEBHOOK", "WHY", "ATTEMPTS", "DIED"}, row: func(d client.DeadLetter) []cell {
					return []cell{text(d.ID), text(d.EventID), text(d.EventType), text(d.WebhookID), optional(deref(d.Error)), count(d.Attempts), stamp(&d.CreatedAt)}
				}})
		}),
	}
	all.Flags().StringVar(&f.WebhookID, "webhook", "", "of this endpoint")
	all.Flags().StringVar(&f.TenantID, "tenant", "", "of this tenant")
	all.Flags().Var(&since, "since", "died at or after: a time, a day, or how long ago (24h)")
	all.Flags().Var(&until, "until", "died before")
	limitFlag(all, &limit, 50)
	return all
}

func (c *cmd) deadGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show a dead letter", Args: exactly("ID"),
		Example: "  surehook dead-letters get ded_…\n  surehook events get EVENT --attempts    # every request that its event caused",
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			d, err := api.DeadLetter(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.out.value(d)
			}
			status := ""
			if d.HTTPStatus != 0 {
				status = strconv.Itoa(d.HTTPStatus)
			}
			return c.out.fields("id", d.ID, "event", d.EventID, "type", d.EventType, "webhook", d.WebhookID, "why", deref(d.Error), "answer", status,
				"attempts", strconv.Itoa(d.Attempts), "died", moment(d.CreatedAt))
		}),
	}
}

func (c *cmd) deadReplayCmd() *cobra.Command {
	return &cobra.Command{
		Use: "replay ID…", Short: "Deliver dead letters again", Args: atLeastOne,
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			q, err := api.ReplayDeadLetters(ctx, args)
			if err != nil {
				return err
			}
			if c.json {
				return c.out.value(q)
			}
			c.out.line("%s queued", plural(q.Queued, "delivery", "deliveries"))
			return nil
		}),
	}
}

func (c *cmd) deadDiscardCmd() *cobra.Command {
	return &cobra.Command{
		Use: "discard ID…", Short: "Give dead letters up; their attempts stay", Args: atLeastOne,
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			n, err := api.DiscardDeadLetters(ctx, args)
			if err != nil {
				return err
			}
			if c.json {
				return c.out.value(map[string]int{"discarded": n})
			}
			c.out.line("%s discarded", plural(n, "dead letter", "dead letters"))
			return nil
		}),
	}
}

func atLeastOne(_ *cobra.Command, args []string) error {
	if len(args) == 0 {
		return usage("an ID is missing")
	}
	return nil
}
