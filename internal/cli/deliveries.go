package cli

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) hookTestCmd() *cobra.Command {
	return &cobra.Command{
		Use: "test ID", Short: "Send one webhook.test now, and show the answer", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			a, err := api.TestWebhook(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json {
				err = c.out.value(a)
			} else {
				err = c.out.fields("result", c.out.paint(state(tested(a.Status)).colour, tested(a.Status)), said(a.HTTPStatus), answer(a.HTTPStatus, a.Error).text, "message", printable(deref(a.Message)),
					"response", printable(deref(a.Response)), "duration", ms(time.Duration(a.DurationMS*1e6)))
			}
			if err == nil && a.Status != "succeeded" {
				return &exitError{code: exitFailed, err: errSilent}
			}
			return err
		}),
	}
}

// tested names the result of a test. The API calls one that failed dead, as every
// delivery without another attempt; to people that sounds like the endpoint's end.
func tested(status string) string {
	if status == "dead" {
		return "failed"
	}
	return status
}

// said names what an attempt brought: an answer, or the reason that there is none.
func said(status int) string {
	if status == 0 {
		return "error"
	}
	return "answer"
}

func (c *cmd) hookAttemptsCmd() *cobra.Command {
	var limit int
	cc := &cobra.Command{
		Use: "attempts ID", Short: "List an endpoint's attempts, newest first", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			return list(c, api.WebhookAttempts(ctx, args[0], client.Page{Limit: limit}), attempts(limit, "no attempts at this endpoint yet; surehook webhooks test "+args[0]+" makes one"))
		}),
	}
	limitFlag(cc, &limit, 50)
	return cc
}

func (c *cmd) hookStatsCmd() *cobra.Command {
	var since, until when
	var step time.Duration
	cc := &cobra.Command{
		Use: "stats ID", Short: "Counts and latency of an endpoint over time", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			buckets, err := api.Stats(ctx, args[0], since.Time, until.Time, step)
			if err != nil {
				return err
			}
			return list(c, each(buckets), listing[client.StatsBucket]{none: "no attempts in that time; see --since",
				head: []string{"FROM", "ATTEMPTS", "SUCCEEDED", "FAILED", "DEAD", "P50", "P99"}, row: func(b client.StatsBucket) []cell {
					p50, p99 := "–", "–"
					if b.Attempts > 0 {
						p50, p99 = ms(time.Duration(b.P50MS*1e6)), ms(time.Duration(b.P99MS*1e6))
					}
					return []cell{stamp(&b.Start), count(b.Attempts), count(b.Succeeded), count(b.Failed), count(b.Dead), {text: p50, right: true}, {text: p99, right: true}}
				}})
		}),
	}
	cc.Flags().Var(&since, "since", "from: a time, a day, or how long ago (default 24h)")
	cc.Flags().Var(&until, "until", "up to (default now)")
	cc.Flags().DurationVar(&step, "step", time.Hour, "time that a row sums up")
	return cc
}

// replayFlags say which events to deliver again.
type replayFlags struct {
	in           client.ReplayInput
	since, until when
	wait         bool
}

func (c *cmd) hookReplayCmd() *cobra.Command {
	var f replayFlags
	cc := &cobra.Command{
		Use:   "replay ID",
		Short: "Deliver past events to an endpoint again",
		Long: `Deliver past events to an endpoint again, under the same webhook-id: events by their
ids (up to 100), or those of a window of time, by what became of them if --status is
given. More than 1,000 need --background: a job that survives a restart. --wait stays
with it and shows its progress.`,
		Example: "  surehook webhooks replay whk_… --event evt_…\n  surehook webhooks replay whk_… --since 24h --status dead --background --wait",
		Args:    exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			return c.replay(ctx, api, args[0], f)
		}),
	}
	fl := cc.Flags()
	fl.StringSliceVar(&f.in.IDs, "event", nil, "ids of events")
	fl.Var(&f.since, "since", "events that occurred at or after: a time, a day, or how long ago (24h)")
	fl.Var(&f.until, "until", "events that occurred before (default now)")
	fl.StringVar(&f.in.Status, "status", "", "only those that are dead here and never succeeded, whose latest attempt failed, or that succeeded once")
	fl.BoolVar(&f.in.Background, "background", false, "as a job, any number of events")
	fl.BoolVar(&f.wait, "wait", false, "stay until the job has queued everything")
	offer(cc, "status", "dead", "failed", "succeeded")
	return cc
}

func (c *cmd) replay(ctx context.Context, api *client.Client, id string, f replayFlags) error {
	for _, t := range []struct {
		from *when
		to   **time.Time
	}{{&f.since, &f.in.Since}, {&f.until, &f.in.Until}} {
		if !t.from.IsZero() {
			*t.to = &t.from.Time
		}
	}
	if len(f.in.IDs) == 0 && f.in.Since == nil {
		return usage("say which events: --event ID, or --since a time")
	}
	f.in.Background = f.in.Background || f.wait
	q, err := api.Replay(ctx, id, f.in)
	if err != nil {
		return err
	}
	if q.Replay != nil {
		if f.wait {
			return c.watch(ctx, api, q.Replay.ID)
		}
		return c.job(*q.Replay)
	}
	if c.json {
		return c.out.value(q)
	}
	c.out.line("%s queued", plural(q.Queued, "delivery", "deliveries"))
	if q.InProgress > 0 {
		c.out.line("%s being attempted right now and %s left alone", plural(q.InProgress, "is", "are"), one(q.InProgress, "was", "were"))
	}
	return nil
}

// watch stays with a background replay until it ends.
func (c *cmd) watch(ctx context.Context, api *client.Client, id string) error {
	show, end := c.bar("events looked at")
	defer end()
	poll := time.NewTicker(200 * time.Millisecond)
	defer poll.Stop()
	for {
		r, err := api.GetReplay(ctx, id)
		if err != nil {
			return err
		}
		if r.State == "done" {
			r.Total = r.Scanned // it was a guess
		}
		show(int(r.Scanned), int(max(r.Total, r.Scanned)))
		if r.State != "running" {
			end()
			if err := c.job(r); err != nil {
				return err
			}
			if r.State == "failed" {
				return &exitError{code: exitFailed, err: errSilent}
			}
			return nil
		}
		select {
		case <-poll.C:
		case <-ctx.Done():
			return fail(exitFailed, "surehook replays wait "+id+" stays with it; surehook replays cancel "+id+" ends it", "interrupted; the replay goes on")
		}
	}
}

// job shows one background replay.
func (c *cmd) job(r client.Replay) error {
	if c.json {
		return c.out.value(r)
	}
	looked := strconv.FormatInt(r.Scanned, 10)
	if r.State != "done" { // the sum is a guess, of all events in that time
		looked = fmt.Sprintf("%d of about %d", r.Scanned, max(r.Total, r.Scanned))
	}
	if r.State == "done" && r.Queued == 0 {
		c.hint("Nothing had to be queued: no such event of that time is for this endpoint, or those that are wait in its queue already.")
	}
	return c.out.fields("id", r.ID, "webhook", r.WebhookID, "state", c.out.paint(state(r.State).colour, r.State), "since", moment(deref(r.Since)), "until", moment(deref(r.Until)),
		"status", deref(r.Status), "looked at", looked, "queued", strconv.FormatInt(r.Queued, 10), "error", deref(r.Error))
}

func (c *cmd) replaysCmd() *cobra.Command {
	replays := &cobra.Command{Use: "replays", Short: "Background replays", RunE: group}
	var hook string
	all := &cobra.Command{
		Use: "list", Short: "List background replays, newest first", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			return list(c, api.Replays(ctx, hook), listing[client.Replay]{none: "no background replays; surehook webhooks replay --background starts one",
				head: []string{"ID", "WEBHOOK", "STATE", "LOOKED AT", "QUEUED", "STARTED"}, row: func(r client.Replay) []cell {
					return []cell{text(r.ID), text(r.WebhookID), state(r.State), count(r.Scanned), count(r.Queued), stamp(&r.CreatedAt)}
				}})
		}),
	}
	all.Flags().StringVar(&hook, "webhook", "", "of this endpoint")
	one := func(use, short string, do func(context.Context, *client.Client, string) error) *cobra.Command {
		return &cobra.Command{Use: use + " ID", Short: short, Args: exactly("ID"),
			RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error { return do(ctx, api, args[0]) })}
	}
	show := func(get func(*client.Client, context.Context, string) (client.Replay, error)) func(context.Context, *client.Client, string) error {
		return func(ctx context.Context, api *client.Client, id string) error {
			r, err := get(api, ctx, id)
			if err != nil {
				return err
			}
			return c.job(r)
		}
	}
	replays.AddCommand(all, one("get", "Show a background replay", show((*client.Client).GetReplay)),
		one("cancel", "End a background replay; what it queued stays queued", show((*client.Client).CancelReplay)),
		one("wait", "Stay with a background replay until it ends", c.watch))
	return replays
}

func (c *cmd) deliveriesCmd() *cobra.Command {
	var hook, event, status string
	var limit int
	cc := &cobra.Command{
		Use: "deliveries", Short: "What became of events at an endpoint", Args: exactly(),
		Example: "  surehook deliveries --webhook whk_… --status dead\n  surehook deliveries --event evt_…",
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			switch {
			case event != "":
				return list(c, api.EventDeliveries(ctx, event), deliveries(limit, noDeliveries))
			case hook != "":
				return list(c, api.Deliveries(ctx, hook, status, client.Page{Limit: limit}), deliveries(limit, "no "+status+" deliveries at this endpoint; see --status"))
			}
			return usage("say whose: --webhook ID or --event ID")
		}),
	}
	cc.Flags().StringVar(&hook, "webhook", "", "at this endpoint")
	cc.Flags().StringVar(&event, "event", "", "of this event, at every endpoint")
	cc.Flags().StringVar(&status, "status", "pending", "with --webhook: pending, succeeded or dead")
	cc.MarkFlagsMutuallyExclusive("webhook", "event")
	cc.MarkFlagsMutuallyExclusive("status", "event")
	offer(cc, "status", "pending", "succeeded", "dead")
	limitFlag(cc, &limit, 50)
	return cc
}
