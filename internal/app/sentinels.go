package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"

	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/sentinel"
	"github.com/surehook/surehook/internal/sentinel/github"
	"github.com/surehook/surehook/internal/sentinel/localgh"
)

// sentinels makes the service of sentinels, with the providers that there are. What
// they do goes on until the app stops.
func (a *App) sentinels(cfg config.Config, opt Options, e *engine.Engine, served bool) *sentinel.Service {
	environ := opt.Environ
	if environ == nil {
		environ = os.Environ
	}
	var svc *sentinel.Service // it is there before the first look
	local := localgh.New(localgh.Options{Command: cfg.GHCommand, Every: cfg.GHEvery, Polls: e.Store(), Publish: e.Enqueue, Logger: a.log,
		Environ: func() []string { return slices.DeleteFunc(slices.Clone(environ()), secretEnv) },
		Report: func(ctx context.Context, id string, broken bool, message string) error {
			return svc.Reported(ctx, id, broken, message)
		}})
	svc = sentinel.New(sentinel.Options{Engine: e, Logger: a.log,
		Providers: sentinel.NewRegistry(github.Provider{Path: cfg.GitHubWebhookPath, Served: served}, local, sentinel.AgentPush{})})
	local.Start() //nolint:contextcheck // it looks until the app stops
	a.stack.push("the looks through gh", local.Stop)
	return svc
}

// githubRoute is where GitHub's webhooks are taken; nil: there is no secret.
func (a *App) githubRoute(cfg config.Config, e *engine.Engine) (http.Handler, error) {
	secrets, err := githubSecrets(cfg)
	if err != nil || len(secrets) == 0 {
		return nil, err
	}
	h, err := github.New(github.Options{Publish: e.Publish, Secrets: secrets, Tenant: cfg.GitHubWebhookTenant, Logger: a.log})
	if err != nil {
		return nil, fmt.Errorf("github-webhook-secret: %w", err)
	}
	return h, nil
}

const minGitHubSecret = 16

// githubSecrets reads the secrets, one a line.
func githubSecrets(cfg config.Config) ([]string, error) {
	from, text := "SUREHOOK_GITHUB_WEBHOOK_SECRET", cfg.GitHubWebhookSecret
	if cfg.GitHubWebhookSecretFile != "" {
		raw, err := os.ReadFile(cfg.GitHubWebhookSecretFile)
		if err != nil {
			return nil, fmt.Errorf("github-webhook-secret-file: %w", err)
		}
		from, text = "github-webhook-secret-file", string(raw)
		if strings.TrimSpace(text) == "" {
			return nil, errors.New("github-webhook-secret-file: the file is empty")
		}
	}
	var out []string
	for line := range strings.Lines(text) {
		switch s := strings.TrimSpace(line); {
		case s == "":
		case len(s) < minGitHubSecret:
			return nil, fmt.Errorf("%s: a secret must have %d characters at least; openssl rand -hex 32 makes a good one", from, minGitHubSecret)
		default:
			out = append(out, s)
		}
	}
	if len(out) > 8 {
		return nil, fmt.Errorf("%s: holds more than 8 secrets", from)
	}
	return out, nil
}

// at serves one path apart from all others.
func at(path string, h, others http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == path {
			h.ServeHTTP(w, r)
			return
		}
		others.ServeHTTP(w, r)
	})
}
