package cli

import (
	"context"
	"errors"
	"net/http"
	"slices"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) deadLettersCmd() *cobra.Command {
	dead := &cobra.Command{Use: "dead-letters", Short: "Deliveries that ended dead", RunE: group,
		Long: `Deliveries that ended dead, at a server or at a relay.

--subscriber selects the dead letters of a relay's subscriber. Without --server and
SUREHOOK_URL it asks the relay at ` + relayURL + `; SUREHOOK_KEY is the relay's admin token then.`}
	dead.AddCommand(c.deadListCmd(), c.deadGetCmd(), c.deadExportCmd(), c.deadReplayCmd(), c.deadDiscardCmd())
	return dead
}

// relayURL is where a relay listens that was told nothing.
const relayURL = "http://127.0.0.1:9464"

// deadFlags are the flags that select dead letters.
type deadFlags struct {
	f            client.DeadLetterFilter
	subscriber   string
	since, until when
}

func (d *deadFlags) add(cc *cobra.Command) {
	cc.Flags().StringVar(&d.f.WebhookID, "webhook", "", "of this endpoint")
	cc.Flags().StringVar(&d.subscriber, "subscriber", "", "of this subscriber of a relay; ID@v2 for its second schema's")
	cc.Flags().StringVar(&d.f.TenantID, "tenant", "", "of this tenant")
	cc.Flags().Var(&d.since, "since", "died at or after: a time, a day, or how long ago (24h)")
	cc.Flags().Var(&d.until, "until", "died before")
	cc.MarkFlagsMutuallyExclusive("webhook", "subscriber")
}

// any tells whether anything is selected.
func (d *deadFlags) any() bool {
	return d.f.WebhookID != "" || d.subscriber != "" || d.f.TenantID != "" || !d.since.IsZero() || !d.until.IsZero()
}

// filter gives what was selected. A subscriber is an endpoint of its relay.
func (d *deadFlags) filter() client.DeadLetterFilter {
	f := d.f
	f.Since, f.Until = d.since.Time, d.until.Time
	if d.subscriber != "" {
		f.WebhookID = d.subscriber
	}
	return f
}

// throughRelay is through, at the relay's own address if a subscriber is named and
// no server is.
func (c *cmd) throughRelay(d *deadFlags, f func(ctx context.Context, api *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cc *cobra.Command, args []string) error {
		if d.subscriber != "" && c.url == "" && c.env.getenv("SUREHOOK_URL") == "" {
			c.url = relayURL
		}
		return c.through(func(ctx context.Context, api *client.Client, args []string) error {
			return d.refused(f(ctx, api, args))
		})(cc, args)
	}
}

// refused says a relay's refusal in a relay's words.
func (d *deadFlags) refused(err error) error {
	p, ok := errors.AsType[*client.Problem](err)
	switch {
	case !ok || d.subscriber == "":
		return err
	case p.Status == http.StatusNotFound && p.Code != "":
		return fail(exitNotFound, "a subscriber goes by its id in the relay's file, its second schema by ID@v2", "no such subscriber")
	case p.Status == http.StatusForbidden:
		return fail(exitRefused, "", "%s", p.Detail)
	}
	return err
}

func (c *cmd) deadListCmd() *cobra.Command {
	var d deadFlags
	var limit int
	all := &cobra.Command{Use: "list", Short: "List dead letters, newest first", Args: exactly()}
	all.RunE = c.throughRelay(&d, func(ctx context.Context, api *client.Client, _ []string) error {
		f := d.filter()
		f.Limit = limit
		none := "no dead letters"
		if d.any() {
			none = "no dead letters of this kind"
		}
		return list(c, api.DeadLetters(ctx, f), listing[client.DeadLetter]{limit: limit, none: none,
			head: []string{"ID", "EVENT", "TYPE", "WEBHOOK", "WHY", "ATTEMPTS", "DIED"}, row: func(d client.DeadLetter) []cell {
				return []cell{text(d.ID), text(d.EventID), text(d.EventType), text(d.WebhookID), optional(deref(d.Error)), count(d.Attempts), stamp(&d.CreatedAt)}
			}})
	})
	d.add(all)
	limitFlag(all, &limit, 50)
	return all
}

func (c *cmd) deadExportCmd() *cobra.Command {
	var d deadFlags
	export := &cobra.Command{
		Use: "export", Short: "Write dead letters as JSON lines, with the data of their events", Args: exactly(),
		Example: "  surehook dead-letters export --subscriber siem > siem.jsonl",
	}
	export.RunE = c.throughRelay(&d, func(ctx context.Context, api *client.Client, _ []string) error {
		f := d.filter()
		f.Data = true
		for letter, err := range api.DeadLetters(ctx, f) {
			if err != nil {
				return err
			}
			if err := c.out.value(letter); err != nil {
				return err
			}
		}
		return nil
	})
	d.add(export)
	return export
}

// each100 does something to the dead letters that are named, or to all that are
// selected, in steps of what one request may name.
func (c *cmd) each100(ctx context.Context, api *client.Client, d *deadFlags, ids []string, do func([]string) error) error {
	const step = 100
	switch {
	case len(ids) > 0 && d.any():
		return usage("name dead letters, or select them by flags; not both")
	case len(ids) == 0 && !d.any():
		return usage("an ID is missing, or a flag that selects dead letters, such as --subscriber")
	case len(ids) > 0:
		for chunk := range slices.Chunk(ids, step) {
			if err := do(chunk); err != nil {
				return err
			}
		}
		return nil
	}
	for letter, err := range api.DeadLetters(ctx, d.filter()) {
		if err != nil {
			return err
		}
		if ids = append(ids, letter.ID); len(ids) == step {
			if err := do(ids); err != nil {
				return err
			}
			ids = ids[:0]
		}
	}
	if len(ids) == 0 {
		return nil
	}
	return do(ids)
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
	var d deadFlags
	replay := &cobra.Command{Use: "replay ID…", Short: "Deliver dead letters again: those named, or all that flags select",
		Example: "  surehook dead-letters replay ded_7 ded_8\n  surehook dead-letters replay --subscriber siem --since 24h"}
	replay.RunE = c.throughRelay(&d, func(ctx context.Context, api *client.Client, args []string) error {
		var sum client.Queued
		err := c.each100(ctx, api, &d, args, func(ids []string) error {
			q, err := api.ReplayDeadLetters(ctx, ids)
			sum.Queued, sum.InProgress = sum.Queued+q.Queued, sum.InProgress+q.InProgress
			return err
		})
		if err != nil {
			return err
		}
		if c.json {
			return c.out.value(sum)
		}
		c.out.line("%s queued", plural(sum.Queued, "delivery", "deliveries"))
		return nil
	})
	d.add(replay)
	return replay
}

func (c *cmd) deadDiscardCmd() *cobra.Command {
	var d deadFlags
	discard := &cobra.Command{Use: "discard ID…", Short: "Give dead letters up, those named or all that flags select; their attempts stay"}
	discard.RunE = c.throughRelay(&d, func(ctx context.Context, api *client.Client, args []string) error {
		gone := 0
		err := c.each100(ctx, api, &d, args, func(ids []string) error {
			n, err := api.DiscardDeadLetters(ctx, ids)
			gone += n
			return err
		})
		if err != nil {
			return err
		}
		if c.json {
			return c.out.value(map[string]int{"discarded": gone})
		}
		c.out.line("%s discarded", plural(gone, "dead letter", "dead letters"))
		return nil
	})
	d.add(discard)
	return discard
}
