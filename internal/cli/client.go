package cli

import (
	"bytes"
	"cmp"
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
	cmds := []*cobra.Command{c.eventsCmd(), c.webhooksCmd(), c.pullCmd(), c.deliveriesCmd(), c.deadLettersCmd(), c.replaysCmd(), c.keysCmd(), c.tenantsCmd(), c.partnersCmd(), c.eventTypesCmd(), c.auditCmd(), c.sentinelCmd()}
	for _, sub := range cmds {
		sub.PersistentFlags().StringVar(&c.url, "server", "", "address of the server [SUREHOOK_URL] (default "+defaultURL+")")
	}
	return cmds
}

// server is the address of the server.
func (c *cmd) server() string { return cmp.Or(c.url, c.env.getenv("SUREHOOK_URL"), defaultURL) }

// api makes the client. The key comes from the environment alone: other users
// of the machine can read a command line.
func (c *cmd) api() (*client.Client, error) {
	key := c.env.getenv("SUREHOOK_KEY")
	if key == "" {
		return nil, fail(exitUsage, "set SUREHOOK_KEY to an API key; the first one was printed when the server first started", "no API key")
	}
	api, err := client.New(c.server(), key)
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

// listing is how a listing is shown.
type listing[T any] struct {
	limit int // rows at most; 0: all
	head  []string
	row   func(T) []cell
	none  string // what to say when there is nothing
}

// list prints a listing: JSON lines or a table. That there is nothing is said
// beside the result, which is empty then.
func list[T any](c *cmd, seq iter.Seq2[T, error], l listing[T]) error {
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
			rows = append(rows, l.row(v))
		}
		if n++; l.limit > 0 && n == l.limit {
			break
		}
	}
	switch {
	case n == 0:
		c.say("%s", l.none)
		return nil
	case c.json:
		return nil
	}
	return c.out.table(l.head, rows)
}

// each makes a sequence of what came in one answer.
func each[T any](all []T) iter.Seq2[T, error] {
	return func(yield func(T, error) bool) {
		for _, v := range all {
			if !yield(v, nil) {
				return
			}
		}
	}
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

// clock is how times are shown, all of them: in UTC, to the second, and so that
// flags take them.
func clock(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// moment shows a time of the API; nothing stays nothing.
func moment(s string) string {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return ""
	}
	return clock(t)
}

// stamp shows a time of the API in a table.
func stamp(s *string) cell { return optional(moment(deref(s))) }

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
	case "succeeded", "enabled", "done", "active":
		return cell{text: s, colour: green}
	case "dead", "failed", "revoked", "error":
		return cell{text: s, colour: red}
	case "pending", "running", "cancelled", "paused", "orphaned":
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

// input reads the JSON that a flag names: its text, @file, or - for standard
// input. It is judged here: the server sees it inside of a request, and could
// only say that the request is no JSON.
func (c *cmd) input(flag, s string) ([]byte, error) {
	raw, from, err := []byte(s), "--"+flag, error(nil)
	switch {
	case s == "-":
		from = "standard input (--" + flag + " -)"
		raw, err = readBody(c.env.Stdin)
	case strings.HasPrefix(s, "@"):
		from = "--" + flag + " " + s
		raw, err = os.ReadFile(s[1:])
	}
	if err != nil {
		return nil, fail(exitUsage, "", "%s can't be read: %w", from, err)
	}
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	if len(bytes.TrimSpace(raw)) == 0 {
		return nil, usage("%s is empty; it may be any JSON value, null too", from)
	}
	if e, ok := errors.AsType[*client.JSONError](client.CheckJSON(raw)); ok {
		hint := ""
		if from == "--"+flag {
			hint = "a shell takes quotes away: --" + flag + ` '{"like":"this"}', or put it into a file: --` + flag + " @FILE"
		}
		return nil, fail(exitUsage, hint, "%s isn't valid JSON at line %d, column %d: %s", from, e.Line, e.Column, e.Reason)
	}
	return raw, nil
}
