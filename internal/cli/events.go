package cli

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) eventsCmd() *cobra.Command {
	events := &cobra.Command{Use: "events", Short: "Publish events, and see what became of them", RunE: group}
	events.AddCommand(c.publishCmd(), c.eventListCmd(), c.eventGetCmd(), c.eraseCmd())
	return events
}

func (c *cmd) publishCmd() *cobra.Command {
	var ev client.Event
	var data, lines string
	publish := &cobra.Command{
		Use:   "publish",
		Short: "Publish one event, or a file of them",
		Long: `Publish one event: its type as a flag, its data as a flag, a file (@FILE) or on
standard input, byte for byte. When the command ends with 0, the event is on the
server's disk.

--lines publishes a file of JSON lines, one event a line as POST /v1/events takes it.
A line that is refused stops nothing: it is told on standard error with its number
and the reason, and the exit code is 1 in the end. With --json each line gives one
object, {"line","id","duplicate","deliveries"} or {"line","error"}, and the sums go
to standard error. Publishing the same ids again is safe: they are recognised.`,
		Example: "  surehook events publish --type order.paid --data '{\"total\":\"42.00\"}'\n  surehook events publish --type order.paid --tenant acme < body.json\n  surehook events publish --lines events.jsonl",
		Args:    exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			if lines != "" {
				return c.publishLines(ctx, api, lines)
			}
			return c.publish(ctx, api, ev, data)
		}),
	}
	f := publish.Flags()
	f.StringVar(&ev.Type, "type", "", "type, dotted")
	f.StringVar(&data, "data", "-", "data: JSON, @FILE, or - for standard input")
	f.StringVar(&ev.ID, "id", "", "id (default: a new one)")
	f.StringVar(&ev.TenantID, "tenant", "", "tenant")
	f.StringVar(&ev.IdentityID, "identity", "", "identity")
	f.StringVar(&ev.Owner, "owner", "", "name of the ordered sequence that it belongs to")
	f.StringArrayVar(&ev.Subjects, "subject", nil, "subject; may be repeated")
	f.StringVar(&ev.OccurredAt, "occurred-at", "", "when it happened, RFC 3339 (default now)")
	f.StringVar(&lines, "lines", "", "publish a file of JSON lines; - is standard input")
	for _, one := range []string{"type", "data", "id", "tenant", "identity", "owner", "subject", "occurred-at"} {
		publish.MarkFlagsMutuallyExclusive("lines", one) // a line says it all itself
	}
	return publish
}

func (c *cmd) publish(ctx context.Context, api *client.Client, ev client.Event, data string) error {
	if ev.Type == "" {
		return usage("--type is missing")
	}
	if data == "-" && c.env.StdinTerminal {
		return usage("the data is missing: give --data, or the data on standard input")
	}
	var err error
	if ev.Data, err = c.input("data", data); err != nil {
		return err
	}
	r, err := api.Publish(ctx, ev)
	if err != nil {
		return err
	}
	if c.json {
		return c.out.value(r)
	}
	if r.Duplicate {
		c.out.line("%s was there already", r.ID)
		return nil
	}
	c.out.line("%s accepted, %s", r.ID, plural(r.Deliveries, "delivery", "deliveries"))
	return nil
}

func plural[T int | int64](n T, single, many string) string {
	return fmt.Sprintf("%d %s", n, one(n, single, many))
}

// one chooses the words for one thing or for more.
func one[T int | int64](n T, single, many string) string {
	if n == 1 {
		return single
	}
	return many
}

func (c *cmd) eventListCmd() *cobra.Command {
	var f client.EventFilter
	var since, until when
	var limit int
	cc := &cobra.Command{
		Use: "list", Short: "List events, newest first", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			f.Since, f.Until, f.Limit = since.Time, until.Time, limit
			none := "no events; surehook events publish makes one"
			if f != (client.EventFilter{Page: f.Page}) {
				none = "no events of this kind"
			}
			return list(c, api.Events(ctx, f), listing[client.Event]{limit: limit, none: none,
				head: []string{"ID", "TYPE", "TENANT", "ACCEPTED"}, row: func(e client.Event) []cell {
					return []cell{text(e.ID), text(e.Type), optional(e.TenantID), stamp(&e.CreatedAt)}
				}})
		}),
	}
	fl := cc.Flags()
	fl.StringVar(&f.TenantID, "tenant", "", "of this tenant")
	fl.StringVar(&f.Type, "type", "", "of this type; a trailing .* for those below it")
	fl.StringVar(&f.Subject, "subject", "", "with this one among its subjects")
	fl.StringVar(&f.Status, "status", "", "with a delivery that is pending, succeeded or dead")
	fl.Var(&since, "since", "accepted at or after: a time, a day, or how long ago (24h)")
	fl.Var(&until, "until", "accepted before")
	offer(cc, "status", "pending", "succeeded", "dead")
	limitFlag(cc, &limit, 50)
	return cc
}

func (c *cmd) eventGetCmd() *cobra.Command {
	var showDeliveries, showAttempts bool
	cc := &cobra.Command{
		Use: "get ID", Short: "Show an event, its deliveries or its attempts", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			switch {
			case showDeliveries:
				return list(c, api.EventDeliveries(ctx, args[0]), deliveries(0, noDeliveries))
			case showAttempts:
				return list(c, api.EventAttempts(ctx, args[0]), attempts(0, "no attempts for this event yet; see --deliveries"))
			}
			ev, err := api.Event(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.out.value(ev)
			}
			return c.out.fields("id", ev.ID, "type", ev.Type, "tenant", ev.TenantID, "identity", ev.IdentityID, "owner", ev.Owner, "sequence", ordinal(ev.Sequence),
				"subjects", printable(strings.Join(ev.Subjects, ", ")), "occurred", moment(ev.OccurredAt), "accepted", moment(ev.CreatedAt), "data", printable(string(ev.Data)), "erased", erasedWord(ev.Erased))
		}),
	}
	cc.Flags().BoolVar(&showDeliveries, "deliveries", false, "what became of it at each endpoint")
	cc.Flags().BoolVar(&showAttempts, "attempts", false, "every request that it caused")
	cc.MarkFlagsMutuallyExclusive("deliveries", "attempts")
	return cc
}

// erasedWord says that an event's data is gone.
func erasedWord(erased bool) string {
	if erased {
		return "yes: its data is gone for ever"
	}
	return ""
}

// ordinal is a place in a sequence; 0 is none.
func ordinal(n int64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatInt(n, 10)
}

const noDeliveries = "no deliveries: no endpoint had asked for this event"

func deliveries(limit int, none string) listing[client.Delivery] {
	return listing[client.Delivery]{limit: limit, none: none, head: []string{"EVENT", "TYPE", "WEBHOOK", "STATUS", "ATTEMPTS", "LAST", "NEXT"}, row: deliveryRow}
}

func attempts(limit int, none string) listing[client.Attempt] {
	return listing[client.Attempt]{limit: limit, none: none, row: attemptRow,
		head: []string{"AT", "EVENT", "WEBHOOK", "ATTEMPT", "STATUS", "ANSWER", "DURATION", "MESSAGE"}}
}

func deliveryRow(d client.Delivery) []cell {
	return []cell{text(d.EventID), text(d.EventType), text(d.WebhookID), state(d.Status), count(d.Attempts), answer(d.LastHTTPStatus, d.LastError), stamp(d.NextAttemptAt)}
}

func attemptRow(a client.Attempt) []cell {
	return []cell{stamp(&a.CreatedAt), text(a.EventID), text(a.WebhookID), count(a.Attempt), state(a.Status), answer(a.HTTPStatus, a.Error),
		{text: fmt.Sprintf("%.1f ms", a.DurationMS), right: true}, optional(printable(deref(a.Message)))}
}

// answer shows what a receiver said, or why it said nothing.
func answer(status int, code *string) cell {
	if status != 0 {
		return text(strconv.Itoa(status))
	}
	return optional(deref(code))
}
