// Package app wires a server together and takes it apart again.
//
// Guarantee: what was started is stopped in the opposite order, whatever
// failed; a first signal drains and a second one cancels; neither logs, metrics
// nor traces hold a path, a query or a secret, and none of them ever makes a
// delivery wait.
package app

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
	"github.com/surehook/surehook/internal/config"
)

// The files in a data directory.
const (
	StoreFile = "surehook.db"
	KeyFile   = "master.key"
)

// Options of a server beyond its configuration.
type Options struct {
	Version string
	Log     io.Writer             // where log lines go
	Text    bool                  // log as text where the configuration leaves it open
	Notice  func(line string)     // says something to the person who started it
	Observe func(t engine.Try)    // hears of every attempt as well; nil: nobody
	Environ func() []string       // of commands that it runs; nil: os.Environ
	Engine  func(*engine.Options) // last changes, for tests; nil: none
	Relay   *Relay                // run a relay in place of the API; nil: don't
}

// App is a running server.
type App struct {
	Addr        net.Addr
	ConsoleAddr net.Addr // nil: there is no console
	AdminKey    string   // the first admin key if it was made just now

	log    *slog.Logger
	stack  stack
	failed chan error
}

// stack stops what was started, last in first out.
type stack []part

type part struct {
	name string
	stop func(context.Context) error
}

func (s *stack) push(name string, stop func(context.Context) error) {
	*s = append(*s, part{name, stop})
}

// unwind stops everything; an error of one part doesn't keep the others.
func (s *stack) unwind(ctx context.Context) error {
	var errs []error
	for _, p := range slices.Backward(*s) {
		if err := p.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stopping %s: %w", p.name, err))
		}
	}
	*s = nil
	return errors.Join(errs...)
}

// Start opens the store and begins to serve and to deliver.
func Start(ctx context.Context, cfg config.Config, opt Options) (_ *App, err error) {
	a := &App{failed: make(chan error, 1)}
	defer func() {
		if err != nil {
			// The clean-up has its own bound: ctx may be what ended the start.
			done, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
			defer cancel()
			err = errors.Join(err, a.stack.unwind(done))
		}
	}()
	RaiseHeapFloor()
	lines := newLines(opt.Log)
	a.stack.push("the log", lines.stop)
	a.log = newLogger(cfg, opt, lines)
	m := newMetrics(lines, cfg.EventClasses)

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.Listen)
	if err != nil {
		return nil, fmt.Errorf("can't listen on %s: %w", cfg.Listen, err)
	}
	a.Addr = listener.Addr()
	a.stack.push("the listener", func(context.Context) error {
		if err := listener.Close(); !errors.Is(err, net.ErrClosed) {
			return err
		}
		return nil
	})

	if opt.Relay != nil {
		return a, a.startRelay(ctx, cfg, opt, m, listener)
	}
	e, err := a.startEngine(ctx, cfg, opt, m)
	if err != nil {
		return nil, err
	}
	if err := a.firstKey(ctx, e, cfg, opt); err != nil {
		return nil, err
	}
	return a, a.serveAPI(ctx, cfg, opt, e, m, listener)
}

// serveAPI serves everything that a server without a relay answers.
func (a *App) serveAPI(ctx context.Context, cfg config.Config, opt Options, e *engine.Engine, m *metrics, listener net.Listener) error {
	hooks, err := a.githubRoute(cfg, e)
	if err != nil {
		return err
	}
	watches := a.sentinels(cfg, opt, e, hooks != nil)
	if err := watches.Start(ctx); err != nil {
		return err
	}
	a.stack.push("the cancelling of watches", watches.Stop)
	login, rules, err := oidcLogin(cfg)
	if err != nil {
		return err
	}
	h := api.New(api.Options{Engine: e, Rules: rules, Sentinels: watches, Logger: a.log, Version: opt.Version, MaxEventBytes: int(cfg.MaxEventBytes),
		Metrics: m.handler(), OpenMetrics: cfg.MetricsAuth == "open", Store: storeName(cfg), Portal: portalOpen(cfg)})
	a.stack.push("what the API keeps in memory", func(ctx context.Context) error {
		h.Close(ctx)
		return nil
	})
	if !cfg.API {
		a.serve(listener, api.PagesAlone(h), nil)
		return nil
	}
	all, closing, err := a.withConsole(ctx, cfg, opt, e, h, login)
	if err != nil {
		return err
	}
	if hooks != nil {
		all = at(cfg.GitHubWebhookPath, hooks, all)
	}
	a.serve(listener, all, func() {
		h.EndWaits()
		if closing != nil {
			closing()
		}
	})
	return nil
}

// startEngine opens the store and starts the engine on it, with everything
// that watches it.
func (a *App) startEngine(ctx context.Context, cfg config.Config, opt Options, m *metrics) (*engine.Engine, error) {
	tracer, err := newTracer(ctx, cfg.OTLPEndpoint, opt.Version, a.log)
	if err != nil {
		return nil, err
	}
	a.stack.push("traces", tracer.stop)

	if cfg.Database == "" && !missing(filepath.Join(cfg.Data, StoreFile)) {
		if _, err := masterKeys(cfg, true, nil); err != nil { // before the store is touched
			return nil, err
		}
	}
	store, err := openStore(ctx, cfg, a.log, m.batch)
	if err != nil {
		return nil, err
	}
	a.stack.push("the store", func(context.Context) error { return store.Close() })
	used, err := inUse(ctx, store)
	if err != nil {
		return nil, err
	}
	keys, err := masterKeys(cfg, used, opt.Notice)
	if err != nil {
		return nil, err
	}

	tell := newTeller(cfg, a.log, opt.Environ) //nolint:contextcheck // it lives as long as the app
	a.stack.push("notices", tell.stop)

	eo, err := engineOptions(cfg, a.Addr.String())
	if err != nil {
		return nil, err
	}
	eo.Store, eo.MasterKeys, eo.Version, eo.Logger = store, keys, opt.Version, a.log
	eo.Observe = observer(a.log, m, tracer, opt.Observe) //nolint:contextcheck // attempts outlive the start
	eo.Arrived, eo.Died, eo.Ended = m.arrived, m.died, m.endedBy
	eo.Notify = func(n engine.Notice) {
		m.disabled.WithLabelValues(n.Reason).Inc()
		tell.tell(n)
	}
	if opt.Engine != nil {
		opt.Engine(&eo)
	}
	e, err := engine.New(eo)
	if err != nil {
		return nil, err
	}
	a.stack.push("the engine", e.Stop)
	m.watch(e)
	if err := e.Start(ctx); err != nil {
		return nil, err
	}
	return e, nil
}

// rootCAs are the authorities to trust; nil: the system's alone.
func rootCAs(cfg config.Config) (*x509.CertPool, error) {
	if cfg.CAFile == "" {
		return nil, nil
	}
	pem, err := os.ReadFile(cfg.CAFile)
	if err != nil {
		return nil, fmt.Errorf("ca-file: %w", err)
	}
	roots, err := x509.SystemCertPool()
	if err != nil {
		roots = x509.NewCertPool()
	}
	if !roots.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("ca-file: %s holds no certificate in PEM", cfg.CAFile)
	}
	return roots, nil
}

// engineOptions turns settings into the engine's.
func engineOptions(cfg config.Config, addr string) (engine.Options, error) {
	eo := engine.Options{AllowNetworks: cfg.AllowNetworks, OwnHosts: append(slices.Clone(cfg.OwnHosts), addr), EgressProxy: cfg.EgressProxy,
		MaxInFlight: cfg.MaxInFlight, MaxMemory: int(cfg.Memory), MaxEventBytes: int(cfg.MaxEventBytes), MaxWebhooks: cfg.MaxWebhooks, MaxSentinels: cfg.MaxSentinels, KeepSentinels: cfg.KeepSentinels, SentinelQueue: cfg.SentinelQueue,
		InboxEvents: cfg.InboxEvents, InboxBytes: cfg.InboxBytes, SessionIdle: cfg.SessionIdle,
		APIVersion: cfg.APIVersion, TextFields: cfg.TextFields, MaxTextBytes: int(cfg.TextBytes),
		APIOnly: !cfg.Deliver, CarryTrace: cfg.CarryTraceparent, Retain: cfg.Retain, KeyLost: cfg.KeyLost}
	var err error
	if eo.RootCAs, err = rootCAs(cfg); err != nil {
		return eo, err
	}
	if cfg.ClientCert != "" {
		cert, err := tls.LoadX509KeyPair(cfg.ClientCert, cfg.ClientKey)
		if err != nil {
			return eo, fmt.Errorf("client-cert: %w", err)
		}
		eo.ClientCertificates = []tls.Certificate{cert}
	}
	return eo, nil
}

// firstKey makes the first admin key, or takes the given one.
func (a *App) firstKey(ctx context.Context, e *engine.Engine, cfg config.Config, opt Options) error {
	shown, created, err := api.EnsureAdminKey(ctx, e, cfg.AdminKey)
	if err != nil || !created || opt.Notice == nil {
		a.AdminKey = shown
		return err
	}
	if a.AdminKey = shown; shown == "" {
		opt.Notice("The first admin key is the one in SUREHOOK_ADMIN_KEY; from now on it is needed no longer.")
		return nil
	}
	opt.Notice("The first admin key, shown this once: " + shown)
	return nil
}

// Failed tells, with an error, that the server can't go on.
func (a *App) Failed() <-chan error { return a.failed }

// Stop drains and stops everything. What is still running when ctx ends is
// cancelled; its outcome is recorded.
func (a *App) Stop(ctx context.Context) error { return a.stack.unwind(ctx) }

// serve answers requests until the app stops. closing ends what would go on for
// ever; nil: nothing does.
func (a *App) serve(l net.Listener, h http.Handler, closing func()) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: time.Minute, WriteTimeout: 2 * time.Minute,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(a.log.Handler(), slog.LevelDebug)}
	if closing != nil {
		srv.RegisterOnShutdown(closing)
	}
	go func() {
		if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
			a.failed <- fmt.Errorf("the API can't be served any more: %w", err)
		}
	}()
	a.stack.push("the API", func(ctx context.Context) error {
		// A caller that dawdles must not take the time of deliveries in flight.
		ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
		if err := srv.Shutdown(ctx); err != nil {
			return srv.Close()
		}
		return nil
	})
}
