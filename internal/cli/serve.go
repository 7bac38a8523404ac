package cli

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/store/postgres"
)

func (c *cmd) serveCmd() *cobra.Command {
	var file string
	var docs bool
	serve := &cobra.Command{
		Use:   "serve",
		Short: "Run a server",
		Long: `Run a server: the REST API, the web console, and the deliveries.

Settings come from flags, from the environment (the names in brackets) and from a
YAML file with the flags' names as keys, in that order of precedence.
SUREHOOK_MASTER_KEY and SUREHOOK_ADMIN_KEY are taken from the environment alone.

SIGTERM or SIGINT drains: no new attempts start, those in flight end, and the
process exits 0. A second signal cancels what is in flight; whatever that was is
delivered by the next process.`,
		Example: "  surehook serve\n  surehook serve --data /var/lib/surehook --listen 0.0.0.0:8080\n  surehook serve --config surehook.yaml",
		Args:    exactly(),
		RunE: func(cc *cobra.Command, _ []string) error {
			if docs {
				return c.settings()
			}
			if file == "" {
				file = c.env.getenv("SUREHOOK_CONFIG")
			}
			cfg, err := config.Load(config.Source{File: file, Environ: c.env.Environ, Flags: cc.Flags()})
			if err != nil {
				return fail(exitUsage, "see surehook serve --help", "%w", err)
			}
			return c.serve(cc, cfg)
		},
	}
	config.AddFlags(serve.Flags(), nil)
	serve.Flags().StringVar(&file, "config", "", "YAML file of settings [SUREHOOK_CONFIG]")
	serve.Flags().BoolVar(&docs, "print-settings", false, "print every setting as a Markdown table, or with --json one a line, and end")
	offer(serve, "sync", "full", "normal")
	offer(serve, "log-level", "debug", "info", "warn", "error")
	offer(serve, "log-format", "json", "text")
	offer(serve, "metrics-auth", "open", "key")
	serve.Flags().SortFlags = false
	return serve
}

// settings prints what a server can be told.
func (c *cmd) settings() error {
	if !c.json {
		_, err := fmt.Fprint(c.env.Stdout, config.Markdown())
		return err
	}
	for _, o := range config.Options() {
		flag := "--" + o.Name
		if o.EnvOnly {
			flag = ""
		}
		err := c.out.value(struct {
			Flag    string `json:"flag,omitempty"`
			Env     string `json:"env"`
			Default string `json:"default,omitempty"`
			Help    string `json:"help"`
		}{flag, o.Env, o.Default, o.Help})
		if err != nil {
			return err
		}
	}
	return nil
}

func (c *cmd) serve(cc *cobra.Command, cfg config.Config) error {
	say := func(line string) { c.say("%s", line) }
	if len(cfg.AllowNetworks) > 0 {
		parts := make([]string, len(cfg.AllowNetworks))
		for i, p := range cfg.AllowNetworks {
			parts[i] = p.String()
		}
		say("Development setting: deliveries may reach " + strings.Join(parts, ", ") + ". Leave --allow-networks out in production.")
	}
	opt := app.Options{Version: version(), Log: c.env.Stderr, Text: c.env.StderrTerminal, Notice: say,
		Environ: func() []string { return c.env.Environ }}
	where := cfg.Data
	if cfg.Database != "" {
		place, err := postgres.Address(cfg.Database, postgres.Options{Schema: cfg.DatabaseSchema})
		if err != nil {
			return err
		}
		where = "PostgreSQL at " + place
	}
	return app.Run(cc.Context(), cfg, opt, func(a *app.App) {
		say("surehook " + version() + " listens on http://" + a.Addr.String() + ", data in " + where)
		if a.ConsoleAddr != nil {
			say("console: http://" + a.ConsoleAddr.String() + "/console/")
		}
	})
}
