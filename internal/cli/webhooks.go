package cli

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/surehook/surehook/client"
)

func (c *cmd) webhooksCmd() *cobra.Command {
	hooks := &cobra.Command{Use: "webhooks", Short: "Manage endpoints: who gets what, and how", RunE: group}
	hooks.AddCommand(c.hookCreateCmd(), c.hookListCmd(), c.hookGetCmd(), c.hookUpdateCmd(), c.hookDeleteCmd(), c.hookRotateCmd(),
		c.hookTestCmd(), c.hookReplayCmd(), c.hookAttemptsCmd(), c.hookStatsCmd())
	return hooks
}

// hookFlags are what an endpoint can be given.
type hookFlags struct {
	in      client.WebhookInput
	waits   []time.Duration
	timeout time.Duration
	limits  client.Limits
	headers []string
}

func (h *hookFlags) add(f *pflag.FlagSet) {
	f.StringVar(&h.in.Description, "description", "", "what it is for")
	f.StringSliceVar(&h.in.EventTypes, "type", nil, "event types: names, names with a trailing .*, or * (default: every type)")
	f.StringSliceVar(&h.in.Subjects, "subject", nil, "only events about these subjects; a trailing * is a prefix")
	f.StringSliceVar(&h.in.IdentityIDs, "identity", nil, "only events of these identities")
	f.StringVar(&h.in.Profile, "profile", "", "how it is spoken to: standard or pylota")
	f.StringVar(&h.in.Envelope, "envelope", "", "body of a request: standard, payload, thin or cloudevents")
	f.StringArrayVar(&h.headers, "header", nil, "header added to each request, as 'Name: value'; may be repeated")
	f.DurationSliceVar(&h.waits, "waits", nil, "waits between attempts, e.g. 5s,1m,1h (default: the profile's)")
	f.IntVar(&h.limits.Attempts, "attempts", 0, "attempts in all (default: the profile's)")
	f.DurationVar(&h.timeout, "timeout", 0, "of one attempt (default: the profile's)")
	f.Float64Var(&h.limits.RatePerSecond, "rate", 0, "attempts a second (default: no limit)")
	f.IntVar(&h.limits.Concurrency, "concurrency", 0, "requests in flight (default 8)")
}

// limitsOf gives the limits if any was set.
func (h *hookFlags) limitsOf(f *pflag.FlagSet) *client.Limits {
	given := false
	for _, name := range []string{"waits", "attempts", "timeout", "rate", "concurrency"} {
		given = given || f.Changed(name)
	}
	if !given {
		return nil
	}
	l := h.limits
	for _, w := range h.waits {
		l.WaitsMS = append(l.WaitsMS, int(w.Milliseconds()))
	}
	l.TimeoutMS = int(h.timeout.Milliseconds())
	return &l
}

func (h *hookFlags) headersOf() (map[string]string, error) {
	if len(h.headers) == 0 {
		return nil, nil
	}
	out := make(map[string]string, len(h.headers))
	for _, s := range h.headers {
		name, value, ok := strings.Cut(s, ":")
		if !ok {
			return nil, usage("--header must be 'Name: value'")
		}
		out[strings.TrimSpace(name)] = strings.TrimSpace(value)
	}
	return out, nil
}

func (c *cmd) hookCreateCmd() *cobra.Command {
	var h hookFlags
	var existing string
	cc := &cobra.Command{
		Use:   "create URL",
		Short: "Register an endpoint, and print its signing secret once",
		Long: `Register an endpoint. Its signing secret is printed this once: give it to whoever
receives. --secret-file goes on with an existing one (whsec_…), which isn't printed.`,
		Example: "  surehook webhooks create https://hooks.example.com/in --type 'order.*'",
		Args:    exactly("URL"),
	}
	h.add(cc.Flags())
	f := cc.Flags()
	f.StringVar(&h.in.TenantID, "tenant", "", "a tenant's endpoint: it gets that tenant's events")
	f.StringVar(&h.in.PartnerID, "partner", "", "a partner's endpoint: it gets the events of the partner's tenants")
	f.StringVar(&h.in.Signature, "signature", "", "v1 (HMAC) or v1a (ed25519)")
	f.StringVar(&existing, "secret-file", "", "file with an existing secret; - is standard input")
	cc.RunE = c.through(func(ctx context.Context, api *client.Client, args []string) error {
		var err error
		h.in.URL, h.in.Limits = args[0], h.limitsOf(f)
		if h.in.Headers, err = h.headersOf(); err != nil {
			return err
		}
		if existing != "" {
			s, err := (&secretFlags{file: existing}).read(c)
			if err != nil {
				return err
			}
			h.in.Secret = strings.TrimSpace(s[0])
		}
		made, err := api.CreateWebhook(ctx, h.in)
		if err != nil {
			return err
		}
		if existing != "" {
			made.Secret = ""
		}
		return c.hook(made)
	})
	return cc
}

// hook shows one endpoint.
func (c *cmd) hook(w client.Webhook) error {
	if c.json {
		return c.out.value(w)
	}
	var limits []string
	if len(w.Limits.WaitsMS) > 0 {
		waits := make([]string, len(w.Limits.WaitsMS))
		for i, ms := range w.Limits.WaitsMS {
			waits[i] = (time.Duration(ms) * time.Millisecond).String()
		}
		limits = append(limits, "waits "+strings.Join(waits, ","))
	}
	for _, l := range []struct {
		name  string
		value float64
	}{{"attempts", float64(w.Limits.Attempts)}, {"rate", w.Limits.RatePerSecond}, {"concurrency", float64(w.Limits.Concurrency)}} {
		if l.value > 0 {
			limits = append(limits, fmt.Sprintf("%s %g", l.name, l.value))
		}
	}
	if t := w.Limits.TimeoutMS; t > 0 {
		limits = append(limits, "timeout "+(time.Duration(t)*time.Millisecond).String())
	}
	failures := ""
	if w.ConsecutiveFailures > 0 {
		failures = fmt.Sprintf("%d in a row", w.ConsecutiveFailures)
	}
	if err := c.out.fields("id", w.ID, "url", w.URL, "state", hookState(w), "scope", w.Scope, "tenant", deref(w.TenantID), "partner", deref(w.PartnerID),
		"description", printable(w.Description), "types", strings.Join(w.EventTypes, ", "), "subjects", strings.Join(w.Subjects, ", "),
		"identities", strings.Join(w.IdentityIDs, ", "), "profile", w.Profile, "envelope", w.Envelope, "signature", w.Signature,
		"limits", strings.Join(limits, ", "), "failures", failures, "old secret signs until", deref(w.PreviousSecretUntil), "created", w.CreatedAt,
		"secret", w.Secret); err != nil {
		return err
	}
	if w.Secret != "" {
		c.say("The secret is shown this once.")
	}
	return nil
}

func hookState(w client.Webhook) string {
	if w.Enabled {
		return "enabled"
	}
	return "disabled (" + deref(w.DisabledReason) + ")"
}

func (c *cmd) hookListCmd() *cobra.Command {
	var f client.WebhookFilter
	var limit int
	var enabled, disabled bool
	cc := &cobra.Command{
		Use: "list", Short: "List endpoints", Args: exactly(),
		RunE: c.through(func(ctx context.Context, api *client.Client, _ []string) error {
			f.Limit = limit
			switch {
			case enabled:
				f.Enabled = "true"
			case disabled:
				f.Enabled = "false"
			}
			return list(c, api.Webhooks(ctx, f), limit, []string{"ID", "STATE", "SCOPE", "TYPES", "FAILURES", "URL"}, func(w client.Webhook) []cell {
				owner := w.Scope
				if id := deref(w.TenantID) + deref(w.PartnerID); id != "" {
					owner += " " + id
				}
				return []cell{text(w.ID), state(hookState(w)), text(owner), text(strings.Join(w.EventTypes, ",")), count(w.ConsecutiveFailures), text(w.URL)}
			})
		}),
	}
	cc.Flags().StringVar(&f.TenantID, "tenant", "", "of this tenant")
	cc.Flags().StringVar(&f.PartnerID, "partner", "", "of this partner")
	cc.Flags().BoolVar(&f.Platform, "platform", false, "of the platform alone")
	cc.Flags().BoolVar(&enabled, "enabled", false, "enabled ones")
	cc.Flags().BoolVar(&disabled, "disabled", false, "disabled ones")
	cc.MarkFlagsMutuallyExclusive("enabled", "disabled")
	limitFlag(cc, &limit, 0)
	return cc
}

func (c *cmd) hookGetCmd() *cobra.Command {
	return &cobra.Command{
		Use: "get ID", Short: "Show an endpoint", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			w, err := api.Webhook(ctx, args[0])
			if err != nil {
				return err
			}
			return c.hook(w)
		}),
	}
}

func (c *cmd) hookUpdateCmd() *cobra.Command {
	var h hookFlags
	var enable, disable bool
	cc := &cobra.Command{
		Use:   "update ID",
		Short: "Change an endpoint: what isn't given stays",
		Long: `Change an endpoint: what isn't given stays. Limits are replaced together. A new URL
disables the endpoint until a test has passed.`,
		Args: exactly("ID"),
	}
	h.add(cc.Flags())
	f := cc.Flags()
	f.StringVar(&h.in.URL, "new-url", "", "another URL")
	f.BoolVar(&enable, "enable", false, "enable it, and forget its failures")
	f.BoolVar(&disable, "disable", false, "disable it")
	cc.MarkFlagsMutuallyExclusive("enable", "disable")
	cc.RunE = c.through(func(ctx context.Context, api *client.Client, args []string) error {
		p, err := h.patch(f)
		if err != nil {
			return err
		}
		if enable || disable {
			p.Enabled = &enable
		}
		w, err := api.UpdateWebhook(ctx, args[0], p)
		if err != nil {
			return err
		}
		return c.hook(w)
	})
	return cc
}

// patch holds the flags that were given.
func (h *hookFlags) patch(f *pflag.FlagSet) (p client.WebhookPatch, err error) {
	texts := map[string]struct {
		to   **string
		from *string
	}{"new-url": {&p.URL, &h.in.URL}, "description": {&p.Description, &h.in.Description}, "profile": {&p.Profile, &h.in.Profile}, "envelope": {&p.Envelope, &h.in.Envelope}}
	for name, t := range texts {
		if f.Changed(name) {
			*t.to = t.from
		}
	}
	lists := map[string]struct {
		to   **[]string
		from *[]string
	}{"type": {&p.EventTypes, &h.in.EventTypes}, "subject": {&p.Subjects, &h.in.Subjects}, "identity": {&p.IdentityIDs, &h.in.IdentityIDs}}
	for name, l := range lists {
		if f.Changed(name) {
			*l.to = l.from
		}
	}
	if f.Changed("header") {
		headers, err := h.headersOf()
		if err != nil {
			return p, err
		}
		p.Headers = &headers
	}
	p.Limits = h.limitsOf(f)
	return p, nil
}

func (c *cmd) hookDeleteCmd() *cobra.Command {
	return &cobra.Command{
		Use: "delete ID", Short: "Remove an endpoint; what waits for it is dropped", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if err := api.DeleteWebhook(ctx, args[0]); err != nil {
				return err
			}
			return c.did(args[0], "deleted")
		}),
	}
}

func (c *cmd) hookRotateCmd() *cobra.Command {
	var overlap time.Duration
	var revoke bool
	cc := &cobra.Command{
		Use:   "rotate-secret ID",
		Short: "Give an endpoint a new secret, and print it once",
		Long: `Give an endpoint a new signing secret, and print it this once. For the time of
--overlap the old one signs as well, so that the receiver can change over.
--end-overlap ends that at once.`,
		Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			if revoke {
				if err := api.RevokePreviousSecret(ctx, args[0]); err != nil {
					return err
				}
				return c.did(args[0], "signs with its current secret alone")
			}
			r, err := api.RotateSecret(ctx, args[0], overlap)
			if err != nil {
				return err
			}
			if c.json {
				return c.out.value(r)
			}
			return c.out.fields("secret", r.Secret, "old secret signs until", deref(r.PreviousSecretUntil))
		}),
	}
	cc.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the old secret signs as well, 0 to 168h")
	cc.Flags().BoolVar(&revoke, "end-overlap", false, "end the overlap of an earlier rotation")
	cc.MarkFlagsMutuallyExclusive("overlap", "end-overlap")
	return cc
}
