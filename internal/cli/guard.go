package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/egress"
)

const maxGuardLine = 1 << 20

func (c *cmd) guardCmd() *cobra.Command {
	guard := &cobra.Command{Use: "guard", Short: "What deliveries may reach", RunE: group}
	var ip, lexical bool
	var networks, own string
	check := &cobra.Command{
		Use:   "check [INPUT…]",
		Short: "Say for URLs or addresses whether they would be delivered to, and why not",
		Long: `Say for URLs or addresses whether they would be delivered to, and why not.

Inputs come as arguments, or one a line on standard input. The settings
SUREHOOK_ALLOW_NETWORKS and SUREHOOK_OWN_HOSTS count as they do for a server.

With --json each input gives one line: {"input","verdict","code","reason"}, where
verdict is allow or block.

Exit code 4: an argument is blocked. Of lines on standard input the verdicts are the
result, so the exit code is 0 whatever they are.`,
		Example: "  surehook guard check https://hooks.example.com/in\n  surehook guard check --ip 169.254.169.254\n  surehook guard check --no-resolve --json < urls.txt",
		RunE: func(cc *cobra.Command, args []string) error {
			client, err := c.guardClient(networks, own)
			if err != nil {
				return err
			}
			defer client.Close()
			judge := func(ctx context.Context, input string) egress.Verdict {
				if ip {
					return client.CheckAddr(input)
				}
				return client.Check(ctx, input, !lexical)
			}
			return c.check(cc.Context(), args, judge)
		},
	}
	f := check.Flags()
	f.BoolVar(&ip, "ip", false, "inputs are IP addresses")
	f.BoolVar(&lexical, "no-resolve", false, "judge the text of the URL alone; ask no name server")
	f.StringVar(&networks, "allow-networks", "", "private networks or addresses that may be reached, as of the server [SUREHOOK_ALLOW_NETWORKS]")
	f.StringVar(&own, "own-hosts", "", "our own host names, as of the server [SUREHOOK_OWN_HOSTS]")
	guard.AddCommand(check)
	return guard
}

// guardClient makes the client that a server with these settings would have.
func (c *cmd) guardClient(networks, own string) (*egress.Client, error) {
	environ := []string{"SUREHOOK_ALLOW_NETWORKS=" + c.env.getenv("SUREHOOK_ALLOW_NETWORKS"), "SUREHOOK_OWN_HOSTS=" + c.env.getenv("SUREHOOK_OWN_HOSTS")}
	if networks != "" {
		environ[0] = "SUREHOOK_ALLOW_NETWORKS=" + networks
	}
	if own != "" {
		environ[1] = "SUREHOOK_OWN_HOSTS=" + own
	}
	cfg, err := config.Load(config.Source{Environ: environ})
	if err != nil {
		return nil, usage("%s", err)
	}
	return egress.New(egress.Config{AllowNetworks: cfg.AllowNetworks, OwnHosts: cfg.OwnHosts, DNSCache: egress.DefaultDNSCache})
}

// check judges the arguments, or each line of standard input.
func (c *cmd) check(ctx context.Context, args []string, judge func(context.Context, string) egress.Verdict) error {
	if len(args) > 0 {
		blocked := false
		for _, input := range args {
			v := judge(ctx, input)
			blocked = blocked || v.Verdict != "allow"
			if err := c.verdict(v); err != nil {
				return err
			}
		}
		if blocked {
			return &exitError{code: exitRefused, err: errSilent}
		}
		return nil
	}
	if c.env.StdinTerminal {
		return usage("nothing to check: give a URL, or one a line on standard input")
	}
	in := bufio.NewReaderSize(c.env.Stdin, 64<<10)
	for {
		line, err := in.ReadString('\n')
		if len(line) > maxGuardLine {
			return fail(exitFailed, "", "a line is over %d bytes", maxGuardLine)
		}
		ended := strings.HasSuffix(line, "\n")
		if line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r"); line != "" || ended {
			if err := c.verdict(judge(ctx, line)); err != nil {
				return err
			}
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return fmt.Errorf("reading standard input: %w", err)
		}
	}
}

func (c *cmd) verdict(v egress.Verdict) error {
	if c.json {
		return c.out.value(v)
	}
	if v.Verdict == "allow" {
		c.out.line("%s  %s", c.out.paint(green, "allow"), v.Input)
		return nil
	}
	c.out.line("%s  %s  %s: %s", c.out.paint(red, "block"), v.Input, v.Code, v.Reason)
	return nil
}
