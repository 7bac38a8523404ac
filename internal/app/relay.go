package app

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/relay"
	relayconfig "github.com/surehook/surehook/internal/relay/config"
	"github.com/surehook/surehook/internal/relay/enrich"
	"github.com/surehook/surehook/internal/relay/source"
	"github.com/surehook/surehook/profile"
)

// Relay is what a relay needs to know beyond a server's settings.
type Relay struct {
	Config *relayconfig.Config
	Env    relayconfig.Env // where its file's secrets are looked up when it is read again
	Stdin  io.Reader
}

// startRelay starts an engine, and a relay on it with its admin routes.
func (a *App) startRelay(ctx context.Context, cfg config.Config, opt Options, m *metrics, l net.Listener) error {
	first := opt.Relay.Config
	hangup := a.hangups()
	sha := revision()
	counts := relay.NewMetrics(opt.Version, sha)
	also, change := opt.Observe, opt.Engine
	opt.Observe = func(t engine.Try) {
		counts.Observe(t)
		if also != nil {
			also(t)
		}
	}
	var roots *x509.CertPool
	opt.Engine = func(eo *engine.Options) {
		roots = eo.RootCAs
		eo.AllowNetworks, eo.OwnHosts = first.Relay.Networks(), nil
		eo.MaxWebhooks, eo.MaxSubjects, eo.MaxEventBytes = -1, relay.MaxSubjects, relay.MaxEventBytes
		if change != nil {
			change(eo)
		}
	}
	e, err := a.startEngine(ctx, cfg, opt, m)
	if err != nil {
		return err
	}
	scope := "" // a store of its own
	if cfg.Database != "" {
		scope = first.Relay.InstanceID
	}
	so := source.Options{States: source.Settings{Store: e.Store(), Scope: scope}, Log: a.log, Stdin: opt.Relay.Stdin}
	r := relay.New(relay.Options{Engine: e, Open: func(c relayconfig.Source) source.Source { return source.Open(c, so) },
		Enrich: func(list []relayconfig.Enrichment) (relay.Enricher, error) {
			return enrich.New(list, enrich.Options{Log: a.log, Agent: profile.PurpleWolf.Agent(opt.Version), RootCAs: roots,
				Observe: func(enricher string, result enrich.Result) { counts.Enriched(enricher, string(result)) }})
		}, Metrics: counts, Logger: a.log})
	a.stack.push("the relay", r.Stop)
	if err := r.Use(ctx, first); err != nil {
		return err
	}
	ready := func(ctx context.Context) error { return errors.Join(e.Store().Health(ctx), e.Alive(), r.Ready()) }
	if err := counts.Register(m.registry, r.Ready, e.Store(), func(err error) {
		a.log.Warn("dead letters couldn't be counted", "error", err)
	}); err != nil {
		return err
	}
	admin := &relay.Admin{Token: r.Token, Ready: ready, Metrics: m.handler(), Version: opt.Version, SHA: sha}
	h := api.New(api.Options{Engine: e, Logger: a.log, Version: opt.Version, Operator: admin.Allowed})
	admin.DeadLetters = api.DeadLettersAlone(h)
	a.stack.push("what the API keeps in memory", func(ctx context.Context) error {
		h.Close(ctx)
		return nil
	})
	a.serve(l, admin.Handler(), nil)
	a.follow(r, opt.Relay, hangup) //nolint:contextcheck // it goes on until the app stops
	return nil
}

// hangups gives the SIGHUPs that come from here to the end of the stop: one that is
// sent while the relay starts or drains would kill it.
func (a *App) hangups() <-chan os.Signal {
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGHUP)
	a.stack.push("SIGHUP", func(context.Context) error {
		signal.Stop(c)
		return nil
	})
	return c
}

// follow brings the relay to each new state of its file.
func (a *App) follow(r *relay.Relay, from *Relay, hangup <-chan os.Signal) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		relayconfig.Watch(ctx, from.Config, relayconfig.WatchOptions{Env: from.Env, Reload: hangup, Log: a.log}, func(c *relayconfig.Config) error {
			return r.Use(ctx, c)
		})
	}()
	a.stack.push("the relay's file", func(stop context.Context) error {
		cancel()
		select {
		case <-done:
			return nil
		case <-stop.Done():
			return fmt.Errorf("a change of the configuration is still under way: %w", context.Cause(stop))
		}
	})
}

// revision is the commit that was built, as far as the build knows.
func revision() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "vcs.revision" {
				return s.Value
			}
		}
	}
	return "unknown"
}
