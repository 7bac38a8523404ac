package cli

import (
	"bytes"
	"context"
	"errors"
	"iter"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
)

const defaultURL = "http://127.0.0.1:8080"

// clientCmds are the commands that go through the API.
func (c *cmd) clientCmds() []*cobra.Command {
	cmds := []*cobra.Command{c.eventsCmd(), c.webhooksCmd(), c.deliveriesCmd(), c.deadLettersCmd(), c.replaysCmd(), c.keysCmd(), c.tenantsCmd(), c.eventTypesCmd()}
	for _, sub := range cmds {
		sub.PersistentFlags().StringVar(&c.url, "server", "", "address of the server [SUREHOOK_URL] (default "+defaultURL+")")
	}
	return cmds
}

// api makes the client. The key comes from the environment alone: other users
// of the machine can read a command line.
func (c *cmd) api() (*client.Client, error) {
	url, key := c.url, c.env.getenv("SUREHOOK_KEY")
	if url == "" {
		url = c.env.getenv("SUREHOOK_URL")
	}
	if url == "" {
		url = defaultURL
	}
	if key == "" {
		return nil, fail(exitUsage, "set SUREHOOK_KEY to an API key; the first one was printed when the server first started", "no API key")
	}
	api, err := client.New(url, key)
	if err != nil {
		return nil, usage("%s", err)
	}
	return api, nil
}

// through is the action of a command that talks to the API: it ends with Ctrl-C,
// and its errors get their exit codes.
func (c *cmd) through(f func(ctx context.Context, api *client.Client, args []string) error) func(*cobra.Command, []string) error {
	return func(cc *cobra.Command, args []string) error {
		api, err := c.api()
		if err != nil {
			return err
		}
		ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		return c.explain(f(ctx, api, args))
	}
}

// explain gives an error of the API its exit code, and says what to do next.
func (c *cmd) explain(err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*exitError](err); ok {
		return err
	}
	p, ok := errors.AsType[*client.Problem](err)
	if !ok {
		if errors.Is(err, context.Canceled) {
			return fail(exitFailed, "", "interrupted")
		}
		if _, ok := errors.AsType[*client.ReachError](err); ok || errors.Is(err, context.DeadlineExceeded) {
			return fail(exitUnavailable, "is the server running, and is SUREHOOK_URL its address?", "%w", err)
		}
		return fail(exitUsage, "nothing was changed", "%w", err)
	}
	detail := p.Detail
	for _, f := range p.Errors {
		if !strings.Contains(detail, f.Message) {
			detail += "\n  " + f.Path + ": " + f.Message
		}
	}
	code, hint := exitFailed, ""
	switch {
	case p.Status == 401:
		code, hint = exitRefused, "set SUREHOOK_KEY to a key of this server"
	case p.Status == 403:
		code, hint = exitRefused, "use a key with that permission; surehook keys create makes one"
	case p.Status == 404:
		code = exitNotFound
	case p.Status == 400:
		code, hint = exitUsage, "nothing was changed"
	case p.Status == 503 || p.Status == 502 || p.Status == 504:
		code, hint = exitUnavailable, "try again in a moment"
	case p.Status >= 500 && p.RequestID != "":
		hint = "the server's log has more under the request " + p.RequestID
	}
	return fail(code, hint, "%s", detail)
}

// list prints a listing: JSON lines or a table. limit 0: everything.
func list[T any](c *cmd, seq iter.Seq2[T, error], limit int, head []string, row func(T) []cell) error {
	var rows [][]cell
	n := 0
	for v, err := range seq {
		if err != nil {
			return err
		}
		if c.json {
			if err := c.out.value(v); err != nil {
				return err
			}
		} else {
			rows = append(rows, row(v))
		}
		if n++; limit > 0 && n == limit {
			break
		}
	}
	if c.json {
		return nil
	}
	if len(rows) == 0 {
		if c.env.StdoutTerminal {
			c.out.line("%s", c.out.paint(dim, "none"))
		}
		return nil
	}
	return c.out.table(head, rows)
}

// limitFlag bounds a listing.
func limitFlag(cc *cobra.Command, limit *int, otherwise int) {
	cc.Flags().IntVar(limit, "limit", otherwise, "rows at most; 0: all")
}

// when is a flag for a moment: RFC 3339, a day, or how long ago.
type when struct {
	time.Time
	now func() time.Time
}

func (w *when) String() string {
	if w == nil || w.IsZero() {
		return ""
	}
	return w.Format(time.RFC3339)
}

func (w *when) Type() string { return "time" }

// Set implements pflag.Value.
func (w *when) Set(s string) error {
	if d, err := time.ParseDuration(s); err == nil && d >= 0 {
		now := time.Now
		if w.now != nil {
			now = w.now
		}
		w.Time = now().Add(-d).UTC()
		return nil
	}
	for _, layout := range []string{time.RFC3339, time.DateOnly} {
		if t, err := time.Parse(layout, s); err == nil {
			w.Time = t.UTC()
			return nil
		}
	}
	return errors.New("must be a time (2026-01-31T12:00:00Z), a day (2026-01-31), or how long ago (24h)")
}

// stamp shows a time of the API in a table.
func stamp(s *string) cell {
	t, err := time.Parse(time.RFC3339, deref(s))
	if err != nil {
		return text("–")
	}
	return text(t.UTC().Format("2006-01-02 15:04:05"))
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

func optional(s string) cell {
	if s == "" {
		return text("–")
	}
	return text(s)
}

// state colours a status.
func state(s string) cell {
	switch s {
	case "succeeded", "enabled", "done":
		return cell{text: s, colour: green}
	case "dead", "failed", "revoked":
		return cell{text: s, colour: red}
	case "pending", "running", "cancelled":
		return cell{text: s, colour: yellow}
	}
	if strings.HasPrefix(s, "disabled") {
		return cell{text: s, colour: yellow}
	}
	return text(s)
}

// did says that something without an answer was done.
func (c *cmd) did(id, what string) error {
	if c.json {
		return c.out.value(map[string]string{"id": id, "result": what})
	}
	c.out.line("%s %s", id, what)
	return nil
}

// input reads what a flag names: text, @file, or - for standard input.
func (c *cmd) input(s string) ([]byte, error) {
	switch {
	case s == "-":
		return readBody(c.env.Stdin)
	case strings.HasPrefix(s, "@"):
		raw, err := os.ReadFile(s[1:])
		return bytes.TrimRight(raw, "\n"), err
	}
	return []byte(s), nil
}
