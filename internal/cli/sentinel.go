package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) sentinelCmd() *cobra.Command {
	all := &cobra.Command{Use: "sentinel", Aliases: []string{"sentinels"}, Short: "Watches with a lifetime, whose events a session pulls", RunE: group,
		Long: `Watches with a lifetime on pull requests and other subjects. What happens there waits in
a session's inbox until the session pulls it. A watch whose events go to a webhook is
made through the API: POST /sentinels.`}
	all.AddCommand(c.sentinelWatchCmd(), c.sentinelListCmd(), c.sentinelStatusCmd(), c.sentinelRmCmd(), c.sentinelPollCmd(), c.sentinelProvidersCmd())
	return all
}

const sessionEnv = "SUREHOOK_SESSION"

func (c *cmd) sentinelWatchCmd() *cobra.Command {
	var in client.SentinelInput
	run := func(ctx context.Context, api *client.Client) error {
		if in.SessionID == "" {
			in.SessionID = c.env.getenv(sessionEnv)
		}
		if in.SessionID == "" {
			return fail(exitUsage, "name the session that is to pull the events, by --session or in "+sessionEnv, "no session")
		}
		// It lives from now on, pulled or not yet.
		if _, err := api.OpenSession(ctx, in.SessionID, false); err != nil {
			return err
		}
		made, err := api.Watch(ctx, in)
		if err != nil {
			return err
		}
		if err := c.sentinel(made); err != nil {
			return err
		}
		c.hint("Pull its events with: surehook pull --session %s\nEnd it with: surehook sentinel rm %s", in.SessionID, made.ID)
		return nil
	}
	watch := &cobra.Command{
		Use:   "watch SUBJECT",
		Short: "Watch a subject, or a pull request: watch pr URL",
		Long: `Watch a subject. With a trailing * it is a prefix: github:octocat/* is every repository
of octocat's and all their pull requests.`,
		Example: "  surehook sentinel watch github:octocat/hello-world#7 --session s1\n  surehook sentinel watch pr https://github.com/octocat/hello-world/pull/7 --session s1 --urgency interrupt",
		Args:    exactly("SUBJECT"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if in.Subject = args[0]; strings.HasPrefix(args[0], "https://") || strings.HasPrefix(args[0], "http://") {
				return fail(exitUsage, "for a pull request: surehook sentinel watch pr URL", "SUBJECT is a URL")
			}
			return run(ctx, api)
		}),
	}
	pr := &cobra.Command{
		Use: "pr URL", Short: "Watch a pull request of GitHub's", Args: exactly("URL"),
		Example: "  surehook sentinel watch pr https://github.com/octocat/hello-world/pull/7 --session s1",
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			in.PRURL = args[0]
			return run(ctx, api)
		}),
	}
	watch.AddCommand(pr)
	for _, cc := range []*cobra.Command{watch, pr} {
		watchFlags(cc, &in)
	}
	return watch
}

func watchFlags(cc *cobra.Command, in *client.SentinelInput) {
	f := cc.Flags()
	f.StringVar(&in.SessionID, "session", "", "session that pulls the events ["+sessionEnv+"]")
	f.StringSliceVar(&in.Types, "type", nil, "event types; * stands for any text (default: those that the provider has for the subject)")
	f.StringVar(&in.Urgency, "urgency", "", "how the session should take an event: fyi, next-turn (default), steer or interrupt")
	f.StringVar(&in.Until, "until", "", "when it ends by itself: subject_terminal, as when a pull request is closed (default), or never")
	f.StringVar(&in.Provider, "provider", "", "how the events come: webhook (default) or local-gh; surehook sentinel providers lists them")
	f.StringVar(&in.Group, "group", "", "what it belongs to, for people")
	f.StringVar(&in.Label, "label", "", "a name for people")
	offer(cc, "urgency", "fyi", "next-turn", "steer", "interrupt")
	offer(cc, "until", "subject_terminal", "never")
	offer(cc, "provider", "webhook", "local-gh")
}

// sentinel shows one.
func (c *cmd) sentinel(s client.Sentinel) error {
	if c.json {
		return c.out.value(s)
	}
	var match []string
	for _, m := range s.Match {
		one := printable(m.Subject)
		if len(m.Types) > 0 {
			one += " (" + printable(strings.Join(m.Types, ", ")) + ")"
		}
		match = append(match, one)
	}
	return c.out.fields("id", s.ID, "status", s.Status, "watches", strings.Join(match, "; "), "until", until(s.Until), "target", target(s.Target), "urgency", s.Target.Urgency, "provider", s.Provider,
		"group", printable(s.Group), "label", printable(s.Label), "events", strconv.FormatInt(s.EventCount, 10), "last event", millis(s.LastEventTs), "last error", printable(s.LastError),
		"deliveries", delivered(s.DeliveryStatus), "created", millis(s.CreatedTs))
}

func until(u client.SentinelUntil) string {
	switch u.Kind {
	case "at":
		return millis(u.MS)
	case "count":
		return fmt.Sprintf("%d events", u.N)
	}
	return u.Kind
}

func target(t client.SentinelTarget) string {
	if t.Kind == "session" {
		return "session " + printable(t.SessionID)
	}
	return t.Kind + " " + printable(t.URL)
}

func delivered(d *client.SentinelDelivered) string {
	if d == nil {
		return ""
	}
	out := fmt.Sprintf("%d to be made, %d dead, last %s", d.Active, d.Dead, d.LastStatus)
	if d.LastError != "" {
		out += ": " + printable(d.LastError)
	}
	return out
}

// millis shows a time in Unix milliseconds; none stays none.
func millis(ms int64) string {
	if ms == 0 {
		return ""
	}
	return clock(time.UnixMilli(ms))
}

func (c *cmd) sentinelListCmd() *cobra.Command {
	var f client.SentinelFilter
	var limit int
	cc := &cobra.Command{
		Use: "list", Short: "List sentinels, newest first", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			f.Limit = limit
			return list(c, api.Sentinels(ctx, f), listing[client.Sentinel]{limit: limit, none: "no sentinels; surehook sentinel watch makes one",
				head: []string{"ID", "STATUS", "UNTIL", "EVENTS", "PROVIDER", "TARGET", "WATCHES"}, row: func(s client.Sentinel) []cell {
					var subjects []string
					for _, m := range s.Match {
						subjects = append(subjects, printable(m.Subject))
					}
					return []cell{text(s.ID), state(s.Status), text(until(s.Until)), count(s.EventCount), text(s.Provider), text(target(s.Target)), text(strings.Join(subjects, ", "))}
				}})
		}),
	}
	cc.Flags().StringVar(&f.Session, "session", "", "of this session")
	cc.Flags().StringVar(&f.Provider, "provider", "", "of this provider")
	cc.Flags().StringVar(&f.Group, "group", "", "of this group")
	limitFlag(cc, &limit, 0)
	return cc
}

func (c *cmd) sentinelStatusCmd() *cobra.Command {
	return &cobra.Command{
		Use: "status ID", Aliases: []string{"get"}, Short: "Show a sentinel", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			s, err := api.Sentinel(ctx, args[0])
			if err != nil {
				return err
			}
			return c.sentinel(s)
		}),
	}
}

func (c *cmd) sentinelRmCmd() *cobra.Command {
	return &cobra.Command{
		Use: "rm ID", Aliases: []string{"delete", "unwatch"}, Short: "End a sentinel for good; what waits for it isn't delivered any more", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.DeleteSentinel(ctx, args[0]); err != nil {
				return err
			}
			return c.did(args[0], "removed")
		}),
	}
}

func (c *cmd) sentinelPollCmd() *cobra.Command {
	return &cobra.Command{
		Use: "poll ID", Short: "Have a sentinel's provider look for events now", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			p, err := api.PollSentinel(ctx, args[0])
			switch {
			case err != nil:
				return err
			case c.json:
				return c.out.value(p)
			}
			c.out.line("%s %d new events", p.ID, p.Events)
			return nil
		}),
	}
}

func (c *cmd) sentinelProvidersCmd() *cobra.Command {
	return &cobra.Command{
		Use: "providers [NAME]", Short: "How events come, whether each way is ready, and what to do if not", Args: upTo(1),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if len(args) == 1 {
				p, err := api.SentinelProvider(ctx, args[0])
				if err != nil {
					return err
				}
				return c.sentinelProvider(p)
			}
			all, err := api.SentinelProviders(ctx)
			if err != nil {
				return err
			}
			return list(c, each(all), listing[client.SentinelProvider]{none: "no providers", head: []string{"NAME", "READY", "WHY NOT"}, row: func(p client.SentinelProvider) []cell {
				return []cell{text(p.Slug), text(yesNo(p.Ready)), optional(printable(p.Reason))}
			}})
		}),
	}
}

func (c *cmd) sentinelProvider(p client.SentinelProvider) error {
	if c.json {
		return c.out.value(p)
	}
	if err := c.out.fields("name", p.Slug, "ready", yesNo(p.Ready), "default", yesNo(p.Default), "why not", printable(p.Reason)); err != nil {
		return err
	}
	for i, step := range p.Setup {
		c.out.line("%d. %s", i+1, printable(step))
	}
	return nil
}

func yesNo(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}
