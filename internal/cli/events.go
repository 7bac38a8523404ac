package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

func (c *cmd) eventsCmd() *cobra.Command {
	events := &cobra.Command{Use: "events", Short: "Publish events, and see what became of them", RunE: group}
	events.AddCommand(c.publishCmd(), c.eventListCmd(), c.eventGetCmd())
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
Publishing the same ids again is safe: they are recognised.`,
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
	publish.MarkFlagsMutuallyExclusive("lines", "type")
	publish.MarkFlagsMutuallyExclusive("lines", "data")
	return publish
}

func (c *cmd) publish(ctx context.Context, api *client.Client, ev client.Event, data string) error {
	if ev.Type == "" {
		return usage("--type is missing")
	}
	if data == "-" && c.env.StdinTerminal {
		return usage("the data is missing: give --data, or the data on standard input")
	}
	raw, err := c.input(data)
	if err != nil {
		return fail(exitUsage, "", "the data can't be read: %w", err)
	}
	if ev.Data = bytes.TrimSuffix(raw, []byte("\n")); len(bytes.TrimSpace(ev.Data)) == 0 {
		return usage("the data is empty; it may be any JSON value, null too")
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

func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// publishLines imports a file; refused lines don't stop it.
func (c *cmd) publishLines(ctx context.Context, api *client.Client, file string) error {
	in := c.env.Stdin
	total := int64(-1)
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return fail(exitUsage, "", "%w", err)
		}
		defer func() { _ = f.Close() }() // it was only read
		if info, err := f.Stat(); err == nil {
			total = info.Size()
		}
		in = f
	}
	read := &meter{r: in}
	accepted, duplicates, refused := 0, 0, 0
	show, end := c.bar("bytes read")
	err := api.PublishLines(ctx, read, func(_ []client.Event, results []client.BatchResult) error {
		for _, r := range results {
			switch {
			case r.Error != nil:
				refused++
				c.say("refused: event %d: %s", accepted+duplicates+refused, r.Error.Message)
			case r.Duplicate:
				duplicates++
			default:
				accepted++
			}
			if c.json {
				if err := c.out.value(r); err != nil {
					return err
				}
			}
		}
		if total > 0 {
			show(int(read.n), int(total))
		}
		return nil
	})
	end()
	if !c.json {
		c.out.line("%d accepted, %d were there already, %d refused", accepted, duplicates, refused)
	}
	switch {
	case err != nil && strings.HasPrefix(err.Error(), "line "):
		return fail(exitFailed, "the lines before it may be published again: their ids are recognised if they have any", "%w", err)
	case err != nil:
		return err
	case refused > 0:
		return fail(exitFailed, "", "%d events were refused", refused)
	}
	return nil
}

// meter counts what is read through it.
type meter struct {
	r io.Reader
	n int64
}

func (m *meter) Read(p []byte) (int, error) {
	n, err := m.r.Read(p)
	m.n += int64(n)
	return n, err
}

func (c *cmd) eventListCmd() *cobra.Command {
	var f client.EventFilter
	var since, until when
	var limit int
	cc := &cobra.Command{
		Use: "list", Short: "List events, newest first", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			f.Since, f.Until, f.Limit = since.Time, until.Time, limit
			return list(c, api.Events(ctx, f), limit, []string{"ID", "TYPE", "TENANT", "ACCEPTED"}, func(e client.Event) []cell {
				return []cell{text(e.ID), text(e.Type), optional(e.TenantID), stamp(&e.CreatedAt)}
			})
		}),
	}
	fl := cc.Flags()
	fl.StringVar(&f.TenantID, "tenant", "", "of this tenant")
	fl.StringVar(&f.Type, "type", "", "of this type; a trailing .* for those below it")
	fl.StringVar(&f.Status, "status", "", "with a delivery that is pending, succeeded or dead")
	fl.Var(&since, "since", "accepted at or after: a time, a day, or how long ago (24h)")
	fl.Var(&until, "until", "accepted before")
	limitFlag(cc, &limit, 50)
	return cc
}

func (c *cmd) eventGetCmd() *cobra.Command {
	var deliveries, attempts bool
	cc := &cobra.Command{
		Use: "get ID", Short: "Show an event, its deliveries or its attempts", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			switch {
			case deliveries:
				return list(c, api.EventDeliveries(ctx, args[0]), 0, deliveryHead, deliveryRow)
			case attempts:
				return list(c, api.EventAttempts(ctx, args[0]), 0, attemptHead, attemptRow)
			}
			ev, err := api.Event(ctx, args[0])
			if err != nil {
				return err
			}
			if c.json {
				return c.out.value(ev)
			}
			return c.out.fields("id", ev.ID, "type", ev.Type, "tenant", ev.TenantID, "identity", ev.IdentityID, "owner", ev.Owner,
				"subjects", strings.Join(ev.Subjects, ", "), "occurred", ev.OccurredAt, "accepted", ev.CreatedAt, "data", printable(string(ev.Data)))
		}),
	}
	cc.Flags().BoolVar(&deliveries, "deliveries", false, "what became of it at each endpoint")
	cc.Flags().BoolVar(&attempts, "attempts", false, "every request that it caused")
	cc.MarkFlagsMutuallyExclusive("deliveries", "attempts")
	return cc
}

var (
	deliveryHead = []string{"EVENT", "TYPE", "WEBHOOK", "STATUS", "ATTEMPTS", "LAST", "NEXT"}
	attemptHead  = []string{"AT", "EVENT", "WEBHOOK", "ATTEMPT", "STATUS", "ANSWER", "DURATION", "MESSAGE"}
)

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
