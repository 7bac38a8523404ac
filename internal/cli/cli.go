// Package cli is the surehook command. Everything but the server itself and
// the tools that work on files goes through client/, so the commands can do
// nothing that the REST API doesn't offer.
//
// Guarantee: exit codes are 0 done, 1 failed, 2 wrong usage (also where the server
// finds a request invalid), 3 not found, 4 refused (by a key, by guard check, by a
// signature), 5 unavailable; with --json
// standard output holds JSON alone, one value a line; a secret is printed only
// by the command that makes it.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"strings"

	"github.com/spf13/cobra"
	"golang.org/x/term"
)

// The exit codes.
const (
	exitOK          = 0
	exitFailed      = 1
	exitUsage       = 2
	exitNotFound    = 3
	exitRefused     = 4
	exitUnavailable = 5
)

// Version is set by the linker in releases.
var Version = ""

// Env is the process around a command.
type Env struct {
	Args    []string // without the program's name
	Environ []string
	Stdin   io.Reader
	Stdout  io.Writer
	Stderr  io.Writer

	StdinTerminal  bool
	StdoutTerminal bool
	StderrTerminal bool
}

// Process is the real one.
func Process() Env {
	return Env{Args: os.Args[1:], Environ: os.Environ(), Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr,
		StdinTerminal:  term.IsTerminal(int(os.Stdin.Fd())),
		StdoutTerminal: term.IsTerminal(int(os.Stdout.Fd())), StderrTerminal: term.IsTerminal(int(os.Stderr.Fd()))}
}

func (e Env) getenv(name string) string {
	for _, kv := range e.Environ {
		if k, v, _ := strings.Cut(kv, "="); k == name {
			return v
		}
	}
	return ""
}

// exitError is an error with its exit code, and what to do about it.
type exitError struct {
	code int
	err  error
	hint string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func fail(code int, hint, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...), hint: hint}
}

func usage(format string, args ...any) error { return fail(exitUsage, "", format, args...) }

// errSilent ends a command whose output has said everything.
var errSilent = errors.New("")

// cmd is what every command has at hand.
type cmd struct {
	env  Env
	out  *output
	json bool
	url  string
}

// Main runs one command and gives its exit code.
func Main(ctx context.Context, env Env) int {
	c := &cmd{env: env}
	root := c.root() //nolint:contextcheck // commands get theirs when they run
	root.SetArgs(env.Args)
	root.SetIn(env.Stdin)
	root.SetOut(env.Stdout)
	root.SetErr(env.Stderr)
	ran, err := root.ExecuteContextC(ctx)
	if err == nil {
		return exitOK
	}
	return c.report(ran, err)
}

// report says what went wrong, and what to do next.
func (c *cmd) report(ran *cobra.Command, err error) int {
	code, hint := exitFailed, ""
	if e, ok := errors.AsType[*exitError](err); ok {
		code, hint = e.code, e.hint
	} else if strings.HasPrefix(err.Error(), "unknown command") || strings.HasPrefix(err.Error(), "required flag") || strings.HasPrefix(err.Error(), "if any flags in the group") {
		code = exitUsage // cobra's own errors carry no code
	}
	if errors.Is(err, errSilent) && err.Error() == "" {
		return code
	}
	if code == exitUsage && hint == "" {
		hint = "see " + ran.CommandPath() + " --help"
	}
	c.say("surehook: %s", strings.TrimSpace(err.Error()))
	if hint != "" {
		c.say("  %s", hint)
	}
	return code
}

// say tells people something, beside the result.
func (c *cmd) say(format string, args ...any) {
	_, _ = fmt.Fprintf(c.env.Stderr, format+"\n", args...) // nowhere is left to say that it failed
}

// hint tells people what they may want to do next; programs know.
func (c *cmd) hint(format string, args ...any) {
	if !c.json {
		c.say(format, args...)
	}
}

func (c *cmd) root() *cobra.Command {
	var showVersion bool
	root := &cobra.Command{
		Use:   "surehook",
		Short: "Webhooks that arrive: events in, signed deliveries out, nothing lost",
		Long: `Surehook delivers webhooks that arrive.

  surehook demo     watch real events being delivered, signed, retried and accounted for
  surehook serve    run a server

Client commands read the server's address from SUREHOOK_URL and the API key from
SUREHOOK_KEY.

With --json standard output holds JSON alone, one value a line; of an empty listing
that is no line. Errors and notes are plain text on standard error, always.

Exit codes: 0 done; 1 failed; 2 wrong usage, or a request that the server refuses as
invalid, such as an endpoint at a private address; 3 not found; 4 refused: the key
may not, guard check blocked an argument, a signature is wrong; 5 unavailable.`,
		SilenceErrors: true, SilenceUsage: true,
		PersistentPreRunE: func(cc *cobra.Command, _ []string) error {
			c.out = c.output()
			if c.json && cc.HasParent() && cc.Parent().Name() == "completion" {
				return usage("a completion script isn't JSON; leave --json out")
			}
			return nil
		},
		RunE: func(cc *cobra.Command, args []string) error {
			if showVersion && len(args) == 0 {
				return c.version()
			}
			return group(cc, args)
		},
	}
	root.Flags().BoolVar(&showVersion, "version", false, "print the version, as surehook version does")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return usage("%s", err) })
	root.PersistentFlags().BoolVar(&c.json, "json", false, "write JSON, one value a line")
	root.AddGroup(&cobra.Group{ID: "run", Title: "Running:"}, &cobra.Group{ID: "client", Title: "Through the API (SUREHOOK_URL, SUREHOOK_KEY):"},
		&cobra.Group{ID: "tools", Title: "Tools:"})
	add(root, "run", c.serveCmd(), c.relayCmd(), c.demoCmd(), c.listenCmd(), c.mcpCmd(), c.backupCmd(), c.restoreCmd(), c.migrateStoreCmd(), c.secretsCmd())
	add(root, "client", c.clientCmds()...)
	add(root, "tools", c.signCmd(), c.verifyCmd(), c.conformanceCmd(), c.guardCmd(), c.versionCmd())
	root.SetCompletionCommandGroupID("tools")
	root.SetHelpCommandGroupID("tools")
	return root
}

func add(root *cobra.Command, group string, cmds ...*cobra.Command) {
	for _, sub := range cmds {
		sub.GroupID = group
		root.AddCommand(sub)
	}
}

// group is the action of a command that only holds others.
func group(cc *cobra.Command, args []string) error {
	if len(args) == 0 {
		if asJSON, err := cc.Flags().GetBool("json"); err == nil && asJSON {
			return usage("a command is missing, and help isn't JSON")
		}
		return cc.Help()
	}
	if near := cc.SuggestionsFor(args[0]); len(near) > 0 {
		return usage("%s has no command %q; did you mean %s?", cc.CommandPath(), args[0], strings.Join(near, " or "))
	}
	return usage("%s has no command %q", cc.CommandPath(), args[0])
}

// exactly asks for as many arguments as there are names.
func exactly(names ...string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		switch {
		case len(args) < len(names):
			return usage("%s is missing", names[len(args)])
		case len(args) > len(names):
			return usage("%d arguments are too many; %d are taken", len(args), len(names))
		}
		return nil
	}
}

// upTo takes that many arguments at most.
func upTo(most int) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) > most {
			return usage("%d arguments are too many; %d are taken", len(args), most)
		}
		return nil
	}
}

func (c *cmd) versionCmd() *cobra.Command {
	return &cobra.Command{Use: "version", Short: "Print the version", Args: exactly(),
		RunE: func(*cobra.Command, []string) error { return c.version() }}
}

func (c *cmd) version() error {
	if c.json {
		return c.out.value(map[string]string{"version": version()})
	}
	c.out.line("surehook %s", version())
	return nil
}

// version is the release's, or what the build knows of itself.
func version() string {
	if Version != "" {
		return Version
	}
	info, ok := debug.ReadBuildInfo()
	if ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return strings.TrimPrefix(info.Main.Version, "v")
	}
	return "dev"
}
