package cli

import (
	"errors"
	"strings"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/config"
	relayconfig "github.com/surehook/surehook/internal/relay/config"
	"github.com/surehook/surehook/store/postgres"
)

// relayDefaults are the settings that a relay has, with those defaults that are
// its own.
var relayDefaults = map[string]string{"listen": "127.0.0.1:9464", "data": "surehook-relay", "database": "", "database-schema": "surehook_relay", "database-conns": "",
	"database-listen": "", "database-lease": "", "egress-proxy": "", "ca-file": "", "client-cert": "", "client-key": "", "max-in-flight": "", "memory": "", "sync": "",
	"retain": "168h", "log-level": "", "log-format": "", "otlp-endpoint": "", "shutdown-grace": "", "master-key-file": "", "master-key-lost": ""}

func (c *cmd) relayCmd() *cobra.Command {
	var file string
	var check bool
	relay := &cobra.Command{
		Use:   "relay",
		Short: "Relay a firewall's audit lines to subscribers (purple-wolf)",
		Long: `Run the purple-wolf relay: read audit lines, and deliver them, signed, to the
subscribers whose filters let them through. The file is the original relay's.

What was read is on the disk before its place in the log moves on, so that no crash
loses any of it; what couldn't be delivered is kept:

  surehook dead-letters list --subscriber ID

SIGHUP, or a change of the file, takes the file into use without a restart.`,
		Example: "  surehook relay --config relay.yaml --validate-only\n  surehook relay --config relay.yaml --data /var/lib/surehook-relay\n  tail -F access.log | surehook relay --config relay.yaml",
		Args:    exactly(),
		RunE: func(cc *cobra.Command, _ []string) error {
			if file == "" {
				return fail(exitUsage, "surehook relay --config relay.yaml", "--config is missing: the relay's file")
			}
			parsed, err := relayconfig.Load(file, c.lookup)
			if err != nil {
				return fail(exitUsage, "nothing was started", "%w", err)
			}
			for _, w := range parsed.Warnings {
				c.say("%s line %d: %s %s", file, w.Line, w.Path, w.Message)
			}
			if check {
				return c.relayIsValid(file, parsed)
			}
			cfg, err := config.Load(config.Source{Environ: c.env.Environ, Flags: cc.Flags(), Defaults: relayDefaults})
			if err != nil {
				return fail(exitUsage, "see surehook relay --help", "%w", err)
			}
			return c.relay(cc, cfg, parsed)
		},
	}
	relay.Flags().StringVar(&file, "config", "", "the relay's file, YAML or JSON (required)")
	relay.Flags().BoolVar(&check, "validate-only", false, "check the file, and end: 0 when it can be used, else 2")
	config.AddFlags(relay.Flags(), relayDefaults)
	offer(relay, "sync", "full", "normal")
	offer(relay, "log-level", "debug", "info", "warn", "error")
	offer(relay, "log-format", "json", "text")
	relay.Flags().SortFlags = false
	return relay
}

// lookup finds an environment variable.
func (c *cmd) lookup(name string) (string, bool) {
	for _, kv := range c.env.Environ {
		if k, v, ok := strings.Cut(kv, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

func (c *cmd) relayIsValid(file string, r *relayconfig.Config) error {
	if c.json {
		return c.out.value(map[string]any{"valid": true, "sources": len(r.Sources), "subscribers": len(r.Subscribers), "enrichments": len(r.Enrichments)})
	}
	c.out.line("%s is valid: %s, %s, %s", file, plural(len(r.Sources), "source", "sources"), plural(len(r.Enrichments), "enrichment", "enrichments"),
		plural(len(r.Subscribers), "subscriber", "subscribers"))
	return nil
}

func (c *cmd) relay(cc *cobra.Command, cfg config.Config, parsed *relayconfig.Config) error {
	where := cfg.Data
	if cfg.Database != "" {
		place, err := postgres.Address(cfg.Database, postgres.Options{Schema: cfg.DatabaseSchema})
		if err != nil {
			return err
		}
		where = "PostgreSQL at " + place
	}
	opt := app.Options{Version: version(), Log: c.env.Stderr, Text: c.env.StderrTerminal, Notice: func(line string) { c.say("%s", line) },
		Environ: func() []string { return c.env.Environ }, Relay: &app.Relay{Config: parsed, Env: c.lookup, Stdin: c.env.Stdin}}
	err := app.Run(cc.Context(), cfg, opt, func(a *app.App) {
		c.say("surehook relay %s listens on http://%s, data in %s", version(), a.Addr, where)
	})
	if _, bad := errors.AsType[*relayconfig.Problems](err); bad {
		return fail(exitUsage, "", "%w", err)
	}
	return err
}
