package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/internal/conformance"
)

func (c *cmd) conformanceCmd() *cobra.Command {
	var secret secretFlags
	var o conformance.Options
	var effects, retired string
	run := &cobra.Command{
		Use:   "conformance URL",
		Short: "Send a receiver right and wrong requests, and say which it treats wrongly",
		Long: `Send a receiver some fifty requests: signed, unsigned, tampered, stale, from the
future, replayed, rotated, with several signatures, huge, binary, in chunks. Say which of
them it treats wrongly, and what that risks. The right ones are events of type
conformance.test: the receiver should take them, and do nothing that matters.

Give the receiver's secret and, to test a rotation, the one before after a comma.
--effects is a command that prints how many events the receiver has handled: with it,
duplicates are judged by what they did, not by their answers alone. Count where events
are kept, as in an inbox: then an answer that comes before that shows too.
--retired-secret-file has a secret that was valid once: the receiver must refuse it now.

Exit code 1: the receiver failed at least one case.`,
		Example: "  SUREHOOK_SECRET=whsec_… surehook conformance http://127.0.0.1:3000/hooks\n" +
			"  surehook conformance https://dev.example.com/hooks --secret-file s.txt --profile purple-wolf --effects \"sqlite3 inbox.db 'SELECT count(*) FROM inbox'\"",
		Args: exactly("URL"),
		RunE: func(cc *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			list, err := secret.read(c)
			if err != nil {
				return err
			}
			o.URL, o.Secrets = args[0], list
			if retired != "" {
				raw, err := os.ReadFile(retired)
				if err != nil {
					return fail(exitUsage, "", "--retired-secret-file: %w", err)
				}
				o.Retired = strings.TrimRight(string(raw), "\r\n")
			}
			if effects != "" {
				o.Effects = counted(effects)
			}
			return c.conformance(ctx, o)
		},
	}
	secret.add(run.Flags())
	f := run.Flags()
	f.StringVar(&o.Profile, "profile", "standard", "how the receiver's endpoint is spoken to")
	offer(run, "profile", conformance.Profiles()...)
	f.DurationVar(&o.Timeout, "timeout", 15*time.Second, "how long to wait for an answer")
	f.StringVar(&retired, "retired-secret-file", "", "file with a secret that was valid once, and must be refused now")
	f.StringVar(&effects, "effects", "", "shell command that prints how many events were handled")
	return run
}

// counted runs a command that prints a number.
func counted(command string) func(context.Context) (int, error) {
	return func(ctx context.Context) (int, error) {
		out, err := exec.CommandContext(ctx, "sh", "-c", command).Output() //nolint:gosec // the user's own command
		if err != nil {
			return 0, err
		}
		n, err := strconv.Atoi(strings.TrimSpace(string(out)))
		if err != nil {
			return 0, errors.New("--effects must print one number")
		}
		return n, nil
	}
}

func (c *cmd) conformance(ctx context.Context, o conformance.Options) error {
	p := c.progress()
	n := 0
	o.Each = func(conformance.Result) { n++; p.show("", plural(n, "case", "cases")) }
	report, err := conformance.Run(ctx, o)
	p.end()
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(exitFailed, "", "interrupted")
	case err != nil && strings.Contains(err.Error(), "reached"):
		return fail(exitUnavailable, "is the receiver running, and is that its URL?", "%w", err)
	case err != nil:
		return usage("%s", err)
	}
	if c.json {
		if err := c.out.value(report); err != nil {
			return err
		}
	} else if err := c.conformed(report); err != nil {
		return err
	}
	if report.Failed > 0 {
		return &exitError{code: exitFailed, err: errSilent}
	}
	return nil
}

// conformed writes the table, and then what the failures risk.
func (c *cmd) conformed(report *conformance.Report) error {
	rows := make([][]cell, 0, len(report.Results))
	for _, r := range report.Results {
		verdict := cell{text: "pass", colour: green}
		got := r.Got
		switch {
		case r.Skipped != "":
			verdict, got = cell{text: "skipped", colour: yellow}, r.Skipped
		case !r.Pass:
			verdict = cell{text: "FAIL", colour: red}
		}
		rows = append(rows, []cell{verdict, text(r.Name), text(r.Want), text(printable(got))})
	}
	if err := c.out.table([]string{"", "CASE", "RIGHT IS", "CAME"}, rows); err != nil {
		return err
	}
	for _, r := range report.Results {
		if !r.Pass && r.Skipped == "" {
			c.out.line("\n%s  %s\n  right is %s; came %s\n  risk: %s", c.out.paint(red, r.Name), r.What, r.Want, printable(r.Got), c.out.paint(bold, r.Risk))
		}
	}
	sum := fmt.Sprintf("%d passed, %d failed", report.Passed, report.Failed)
	if report.Skipped > 0 {
		sum += fmt.Sprintf(", %d skipped", report.Skipped)
	}
	c.out.line("\n%s", sum)
	if report.Late > 0 {
		c.hint("%s not counted yet when the 2xx came: either --effects counts work that is done later, or the receiver answers before it has kept the event, which a crash then loses", plural(report.Late, "event was", "events were"))
	}
	if !report.Effects {
		c.hint("duplicates were judged by their answers alone: --effects counts what they did")
	}
	return nil
}
