package github

import (
	"context"

	"github.com/surehook/surehook/internal/sentinel"
)

// Provider is the provider webhook of a server. It is always ready: events may come
// by POST /v1/events. What it adds to sentinel.Pushed is how GitHub's come as well.
type Provider struct {
	sentinel.Pushed

	Path   string // of the route
	Served bool   // there is a secret, so the route is
}

// Readiness implements sentinel.Provider.
func (p Provider) Readiness(context.Context) sentinel.Readiness {
	r := sentinel.Readiness{Ready: true}
	if !p.Served {
		r.Setup = append(r.Setup, "For events of GitHub's: choose a secret, and start surehook with it in SUREHOOK_GITHUB_WEBHOOK_SECRET or in the file of --github-webhook-secret-file.")
	}
	r.Setup = append(r.Setup,
		"At GitHub, in the settings of the repository or the organisation, add a webhook: payload URL https://THIS-SERVER"+p.Path+", content type application/json, the secret, and the events "+
			"Check suites, Issue comments, Pull requests, Pull request reviews and Workflow runs.",
		"Anything else may publish events about a subject by POST /v1/events, as CloudEvents too.")
	return r
}
