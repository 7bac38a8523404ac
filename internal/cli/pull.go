package cli

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

const (
	pullWait  = 30 * time.Second // of one request
	pullAgain = 2 * time.Second  // after the server couldn't be reached
)

// pullFlags say what pull does.
type pullFlags struct {
	session bool
	tenant  string
	follow  bool
	noAck   bool
	limit   int
}

func (c *cmd) pullCmd() *cobra.Command {
	var f pullFlags
	cc := &cobra.Command{
		Use:   "pull WEBHOOK",
		Short: "Print the events that wait in an inbox, and acknowledge them",
		Long: `Print the events that wait in the inbox of a webhook with target pull, or with --session
in that of a session, in order of arrival. Each is acknowledged once it is printed: a
command that is stopped in the middle gets the rest, and at most its last page again,
the next time. --no-ack leaves all of them where they are.

Without --json a line is the event's id, its type and its body; with it, the whole item.
--follow waits for more until it is stopped, and rides out a server that is away.`,
		Example: "  surehook webhooks create --pull --type 'order.*'\n  surehook pull whk_01… --follow --json",
		Args:    exactly("WEBHOOK"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if f.tenant != "" && !f.session {
				return usage("--tenant says whose session is meant: it goes with --session")
			}
			in := client.WebhookInbox(args[0])
			if f.session {
				in = client.SessionInbox(args[0], f.tenant)
			}
			return c.pull(ctx, api, in, f)
		}),
	}
	fl := cc.Flags()
	fl.BoolVar(&f.session, "session", false, "the argument is a session's id; the first pull opens it")
	fl.StringVar(&f.tenant, "tenant", "", "with --session: whose, where the key isn't bound to one")
	fl.BoolVar(&f.follow, "follow", false, "wait for more")
	fl.BoolVar(&f.noAck, "no-ack", false, "acknowledge nothing")
	fl.IntVar(&f.limit, "limit", 0, "events at most; 0: all that there are")
	return cc
}

// pull prints page after page. Asking for the next one acknowledges the last.
func (c *cmd) pull(ctx context.Context, api *client.Client, in client.Inbox, f pullFlags) error {
	var next string
	printed := 0
	for {
		req := client.PullInput{From: next}
		if f.follow {
			req.Wait = pullWait
		}
		if f.limit > 0 {
			req.Limit = min(f.limit-printed, 100)
		}
		page, err := api.Pull(ctx, in, req)
		if again, gap := c.pullAgain(ctx, err, f.follow); again {
			if gap != "" {
				next = gap
			}
			continue
		}
		if ctx.Err() != nil {
			return nil //nolint:nilerr // it was told to stop
		}
		if err != nil {
			return err
		}
		for _, it := range page.Items {
			if err := c.printPulled(it); err != nil {
				return err
			}
		}
		printed += len(page.Items)
		if next = page.Next; len(page.Items) > 0 && !f.noAck {
			// What is printed is acknowledged, also when a signal came meanwhile.
			if _, err := api.Ack(context.WithoutCancel(ctx), in, next); err != nil {
				return err
			}
		}
		if (f.limit > 0 && printed >= f.limit) || (!page.More && !f.follow) {
			if printed == 0 && !c.json {
				c.hint("No events wait; --follow waits for some.")
			}
			return nil
		}
	}
}

// pullAgain tells whether a pull that failed is to be made again, and from where.
func (c *cmd) pullAgain(ctx context.Context, err error, follow bool) (again bool, from string) {
	p, answered := errors.AsType[*client.Problem](err)
	switch {
	case err == nil || ctx.Err() != nil:
		return false, ""
	case answered && p.Code == "cursor_expired" && p.Details.NextCursor != "":
		_, _ = fmt.Fprintf(c.env.Stderr, "%s\n", p.Detail) // told, and gone on
		return true, p.Details.NextCursor
	case answered && p.Status != 503 || !follow:
		return false, ""
	}
	_, _ = fmt.Fprintf(c.env.Stderr, "%s; trying again\n", err)
	select {
	case <-ctx.Done():
		return false, ""
	case <-time.After(pullAgain):
		return true, ""
	}
}

func (c *cmd) printPulled(it client.Pulled) error {
	if c.json {
		return c.out.value(it)
	}
	c.out.line("%s %s %s", it.ID, it.Type, strings.ReplaceAll(string(it.Body), "\n", " "))
	return nil
}
