package sentinel

import (
	"context"
	"slices"

	"github.com/surehook/surehook"
)

// Provider brings events about subjects. Its methods are called from many
// goroutines.
type Provider interface {
	// Slug is its name in specs: local-gh, agentpush, webhook.
	Slug() string
	// Readiness tells whether it can watch now, and else what to do about it.
	Readiness(ctx context.Context) Readiness
	// DefaultTypes are the types that a clause without any asks for; nil: every
	// type.
	DefaultTypes(subject string) []string
	// Handle gives what the provider will know a watch by, asking nobody: a text of at
	// most 4 KiB that CancelWatch and Poll get again, after a restart too; empty: there
	// will be nothing to cancel. An error refuses the sentinel, as one of CreateWatch.
	Handle(w Watch) (string, error)
	// CreateWatch begins to watch for a sentinel, under its Handle. It is called before
	// the sentinel is stored. An error refuses the sentinel with
	// provider_create_failed; its text is shown to the caller, so it must hold no secret.
	CreateWatch(ctx context.Context, w Watch) error
	// CancelWatch ends a watch. It is called again until it succeeds; a watch that
	// isn't there (any more), or only in part, is no error: it is called for each that
	// no sentinel came of. Others may share what is watched: the provider counts them.
	CancelWatch(ctx context.Context, handle string) error
	// Poll looks for events now, rather than when it is time, and gives how many it
	// has published. Providers that are told of events answer 0 and no error.
	Poll(ctx context.Context, handle string) (events int, err error)
}

// Resumer is a provider that must hear, at a start, which watches there are.
type Resumer interface {
	// Resume goes on with the watches of live sentinels. It must not wait for anything
	// outside.
	Resume(ctx context.Context, watches []Watch) error
}

// Watch is what a provider is asked to look at.
type Watch struct {
	Sentinel string // its id
	Subjects []string
	Tenant   string // whose events they will be
	Partner  string // whose, with Tenant empty; both empty: the platform's
	Terminal bool   // it ends with its subject: one that has ended already would be watched for ever
	Handle   string // what Handle gave; not given to it
}

// Readiness is whether a provider can be used.
type Readiness struct {
	Ready  bool     `json:"ready"`
	Reason string   `json:"reason,omitempty"` // why not
	Setup  []string `json:"setup,omitempty"`  // what a person has to do, one step each
}

// DefaultProvider serves when a spec names none.
const DefaultProvider = "webhook"

// Registry is the providers that there are.
type Registry struct{ all []Provider }

// NewRegistry makes one.
func NewRegistry(all ...Provider) *Registry { return &Registry{all: all} }

// All lists them in their order.
func (r *Registry) All() []Provider { return slices.Clone(r.all) }

// ByName finds one; "" is the default.
func (r *Registry) ByName(slug string) (Provider, error) {
	if slug == "" {
		slug = DefaultProvider
	}
	for _, p := range r.all {
		if p.Slug() == slug {
			return p, nil
		}
	}
	if slug == DefaultProvider {
		return Pushed{}, nil
	}
	return nil, refuse(UnknownProvider, "provider", "isn't the name of a provider; GET /v1/sentinel-providers lists them")
}

// Pushed is the provider webhook without any set-up: events come as they are
// published, by POST /v1/events or from GitHub's webhooks, and nothing has to be
// asked of anybody.
type Pushed struct{}

var _ Provider = Pushed{}

// Slug implements Provider.
func (Pushed) Slug() string { return DefaultProvider }

// Readiness implements Provider.
func (Pushed) Readiness(context.Context) Readiness { return Readiness{Ready: true} }

// DefaultTypes implements Provider.
func (Pushed) DefaultTypes(subject string) []string { return DefaultTypes(subject) }

// Handle implements Provider.
func (Pushed) Handle(Watch) (string, error) { return "", nil }

// CreateWatch implements Provider.
func (Pushed) CreateWatch(context.Context, Watch) error { return nil }

// CancelWatch implements Provider.
func (Pushed) CancelWatch(context.Context, string) error { return nil }

// Poll implements Provider.
func (Pushed) Poll(context.Context, string) (int, error) { return 0, nil }

// subjectsOf lists the subjects of clauses.
func subjectsOf(match []surehook.Clause) []string {
	out := make([]string, len(match))
	for i, c := range match {
		out[i] = c.Subject
	}
	return out
}
