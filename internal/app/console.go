package app

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/api"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/console"
)

// withConsole gives the handler of the API's address: the API, and the console
// unless it is off or has an address of its own.
func (a *App) withConsole(ctx context.Context, cfg config.Config, opt Options, e *engine.Engine, h *api.Handler, login *console.OIDC) (http.Handler, func(), error) {
	if !cfg.Console {
		return h, nil, nil
	}
	c, err := console.New(console.Options{API: h.As, OIDC: login, Sessions: e.Store(), NewID: e.NewID, Logger: a.log, Version: opt.Version, Public: cfg.PublicURL,
		Theme: console.Theme{Name: cfg.PortalName, Logo: cfg.PortalLogo, Accent: cfg.PortalAccent, Frames: cfg.PortalFrames}})
	if err != nil {
		return nil, nil, err
	}
	if cfg.ConsoleListen != "" {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", cfg.ConsoleListen)
		if err != nil {
			return nil, nil, fmt.Errorf("can't listen on %s for the console: %w", cfg.ConsoleListen, err)
		}
		a.ConsoleAddr = l.Addr()
		a.stack.push("the console's listener", func(context.Context) error {
			if err := l.Close(); !errors.Is(err, net.ErrClosed) {
				return err
			}
			return nil
		})
		a.serve(l, front(c, http.NotFoundHandler()), c.Close)
		return h, nil, nil
	}
	a.ConsoleAddr = a.Addr
	return front(c, h), c.Close, nil
}

// front leads to the console what is its own, and whoever comes without a path.
func front(c *console.Console, rest http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case console.Takes(r.URL.Path):
			c.ServeHTTP(w, r)
		case r.URL.Path == "/" && r.Method == http.MethodGet:
			http.Redirect(w, r, "/console/", http.StatusFound)
		default:
			rest.ServeHTTP(w, r)
		}
	})
}

// oidcLogin is the provider that operators may sign in at; nil: none.
func oidcLogin(cfg config.Config) (*console.OIDC, []*surehook.APIKey, error) {
	if cfg.OIDCIssuer == "" {
		return nil, nil, nil
	}
	o := &console.OIDC{Issuer: cfg.OIDCIssuer, ClientID: cfg.OIDCClientID, ClientSecret: cfg.OIDCClientSecret, Scopes: cfg.OIDCScopes, Rules: cfg.OIDCRules, Lasts: cfg.OIDCSession}
	if cfg.OIDCClientSecretFile != "" {
		raw, err := os.ReadFile(cfg.OIDCClientSecretFile)
		if err != nil {
			return nil, nil, fmt.Errorf("oidc-client-secret-file: %w", err)
		}
		if o.ClientSecret = strings.TrimSpace(string(raw)); o.ClientSecret == "" {
			return nil, nil, errors.New("oidc-client-secret-file: the file is empty")
		}
	}
	roots, err := rootCAs(cfg)
	if err != nil {
		return nil, nil, err
	}
	if roots != nil {
		t := http.DefaultTransport.(*http.Transport).Clone()
		t.TLSClientConfig = &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}
		o.Client = &http.Client{Transport: t}
	}
	return o, o.Keys(), nil
}

// portalOpen is where links into portals lead.
func portalOpen(cfg config.Config) string {
	if cfg.PublicURL == nil {
		return ""
	}
	return cfg.PublicURL.JoinPath("portal", "open").String()
}

func storeName(cfg config.Config) string {
	if cfg.Database != "" {
		return "PostgreSQL"
	}
	return "SQLite"
}
