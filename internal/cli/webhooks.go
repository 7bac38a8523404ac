package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/surehook/surehook/client"
)

func (c *cmd) webhooksCmd() *cobra.Command {
	hooks := &cobra.Command{Use: "webhooks", Short: "Manage endpoints: who gets what, and how", RunE: group}
	hooks.AddCommand(c.hookCreateCmd(), c.hookListCmd(), c.hookGetCmd(), c.hookUpdateCmd(), c.hookDeleteCmd(), c.hookRotateCmd(),
		c.hookPauseCmd(), c.hookResumeCmd(), c.hookTestCmd(), c.hookReplayCmd(), c.hookAttemptsCmd(), c.hookStatsCmd())
	return hooks
}

// hookFlags are what an endpoint can be given.
type hookFlags struct {
	in      client.WebhookInput
	waits   waits
	timeout time.Duration
	limits  client.Limits
	headers []string
}

func (h *hookFlags) add(cc *cobra.Command) {
	f := cc.Flags()
	f.StringVar(&h.in.Description, "description", "", "what it is for")
	f.StringSliceVar(&h.in.EventTypes, "type", nil, "event types: names, names with a trailing .*, or * (default: every type)")
	f.StringSliceVar(&h.in.Subjects, "subject", nil, "only events about these subjects; a trailing * is a prefix")
	f.StringSliceVar(&h.in.IdentityIDs, "identity", nil, "only events of these identities")
	f.StringVar(&h.in.Profile, "profile", "", "how it is spoken to: standard, pylota, sentinel or purple-wolf")
	f.StringVar(&h.in.Envelope, "envelope", "", "body of a request: standard, payload, thin, cloudevents or pylota; with --profile purple-wolf: purple-wolf.audit/v1 or purple-wolf.audit/v2")
	f.StringArrayVar(&h.headers, "header", nil, "header added to each request, as 'Name: value'; may be repeated")
	f.Var(&h.waits, "waits", "waits between attempts, e.g. 5s,1m,1h, or default: the profile's")
	f.IntVar(&h.limits.Attempts, "attempts", 0, "attempts in all; 0: the profile's")
	f.DurationVar(&h.timeout, "timeout", 0, "of one attempt; 0: the profile's")
	f.Float64Var(&h.limits.RatePerSecond, "rate", 0, "attempts a second; 0: no limit")
	f.IntVar(&h.limits.Concurrency, "concurrency", 0, "requests in flight; 0: the default, 8")
	f.StringVar(&h.in.Ordering, "ordering", "", "sequence: an owner's events one at a time, in order; none: as they come (default)")
	offer(cc, "profile", "standard", "pylota", "sentinel", "purple-wolf")
	offer(cc, "envelope", "standard", "payload", "thin", "cloudevents", "pylota", "purple-wolf.audit/v1", "purple-wolf.audit/v2")
	offer(cc, "ordering", "none", "sequence")
}

// waits is a flag for the waits between attempts; none means the profile's.
type waits []time.Duration

func (w *waits) String() string {
	parts := make([]string, len(*w))
	for i, d := range *w {
		parts[i] = d.String()
	}
	return strings.Join(parts, ",")
}

func (w *waits) Type() string { return "durations" }

// Set implements pflag.Value.
func (w *waits) Set(s string) error {
	*w = nil
	if s == "" || s == "default" {
		return nil
	}
	for part := range strings.SplitSeq(s, ",") {
		d, err := time.ParseDuration(strings.TrimSpace(part))
		if err != nil || d < 0 {
			return errors.New("must be durations with commas between, e.g. 5s,1m,1h, or default")
		}
		*w = append(*w, d)
	}
	return nil
}

// limitFlags are the flags that make up an endpoint's limits.
var limitFlags = []string{"waits", "attempts", "timeout", "rate", "concurrency"}

func given(f *pflag.FlagSet, names []string) bool { return slices.ContainsFunc(names, f.Changed) }

// limitsOf gives the limits as stored, but for those that were given.
func (h *hookFlags) limitsOf(f *pflag.FlagSet, stored client.Limits) *client.Limits {
	l := client.Limits{Attempts: h.limits.Attempts, TimeoutMS: int(h.timeout.Milliseconds()), RatePerSecond: h.limits.RatePerSecond, Concurrency: h.limits.Concurrency}
	for _, w := range h.waits {
		l.WaitsMS = append(l.WaitsMS, int(w.Milliseconds()))
	}
	keep(f, "waits", &l.WaitsMS, stored.WaitsMS)
	keep(f, "attempts", &l.Attempts, stored.Attempts)
	keep(f, "timeout", &l.TimeoutMS, stored.TimeoutMS)
	keep(f, "rate", &l.RatePerSecond, stored.RatePerSecond)
	keep(f, "concurrency", &l.Concurrency, stored.Concurrency)
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
	var pull bool
	cc := &cobra.Command{
		Use:   "create [URL]",
		Short: "Register an endpoint, and print its signing secret once",
		Long: `Register an endpoint. Its signing secret is printed this once: give it to whoever
receives. --secret-file goes on with an existing one (whsec_…), which isn't printed.
With --signature v1a what is printed is the public key that receivers verify with.

With --pull there is no URL and no secret: events wait in an inbox, for surehook pull.

Without --tenant or --partner it is the platform's own endpoint, and gets the events
of every tenant: a customer's endpoint needs --tenant.`,
		Example: "  surehook webhooks create https://hooks.example.com/in --tenant acme --type 'order.*'",
		Args:    urlUnless(&pull),
	}
	h.add(cc)
	f := cc.Flags()
	f.BoolVar(&pull, "pull", false, "events wait in an inbox until they are pulled")
	f.StringVar(&h.in.SessionID, "session", "", "with --pull: they wait in this session's inbox")
	f.StringVar(&h.in.TenantID, "tenant", "", "a tenant's endpoint: it gets that tenant's events")
	f.StringVar(&h.in.PartnerID, "partner", "", "a partner's endpoint: it gets the events of the partner's tenants")
	f.StringVar(&h.in.Signature, "signature", "", "v1 (HMAC) or v1a (ed25519)")
	f.StringVar(&existing, "secret-file", "", "file with an existing secret; - is standard input")
	offer(cc, "signature", "v1", "v1a")
	cc.RunE = c.through(func(ctx context.Context, api *client.Client, args []string) error {
		var err error
		if pull {
			h.in.Target = "pull"
		} else {
			h.in.URL = args[0]
		}
		if given(f, limitFlags) {
			h.in.Limits = h.limitsOf(f, client.Limits{})
		}
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
			return urlHint(ctx, err, h.in.URL)
		}
		if existing != "" {
			made.Secret = ""
		}
		if err := c.hook(made); err != nil {
			return err
		}
		if pull {
			c.hint("Read its events with: surehook pull %s", made.ID)
			return nil
		}
		c.hint("Send a first request with: surehook webhooks test %s", made.ID)
		return nil
	})
	return cc
}

// pulled is the target that isn't the usual one.
func pulled(w client.Webhook) string {
	if w.Target == "pull" {
		return w.Target
	}
	return ""
}

// urlUnless takes a URL, or nothing where events are pulled.
func urlUnless(pull *bool) cobra.PositionalArgs {
	return func(cc *cobra.Command, args []string) error {
		if *pull {
			return exactly()(cc, args)
		}
		return exactly("URL")(cc, args)
	}
}

// hook shows one endpoint.
func (c *cmd) hook(w client.Webhook) error {
	if c.json {
		return c.out.value(w)
	}
	failures := ""
	if w.ConsecutiveFailures > 0 {
		failures = fmt.Sprintf("%d in a row", w.ConsecutiveFailures)
	}
	if err := c.out.fields("id", w.ID, "target", pulled(w), "url", w.URL, "state", hookState(w), "scope", w.Scope, "tenant", deref(w.TenantID), "partner", deref(w.PartnerID),
		"description", printable(w.Description), "types", strings.Join(w.EventTypes, ", "), "subjects", strings.Join(w.Subjects, ", "),
		"identities", strings.Join(w.IdentityIDs, ", "), "profile", w.Profile, "envelope", w.Envelope, "signature", w.Signature,
		"ordering", w.Ordering,
		"limits", limits(w), "failures", failures, "old secret signs until", moment(deref(w.PreviousSecretUntil)), "created", moment(w.CreatedAt),
		keyLabel(w.Secret), w.Secret); err != nil {
		return err
	}
	c.shownOnce(w.Secret)
	return nil
}

// limits shows what holds for an endpoint, and what of that isn't its own.
func limits(w client.Webhook) string {
	var out []string
	say := func(what string, own bool, whose string) {
		if !own {
			what += " (" + whose + ")"
		}
		out = append(out, what)
	}
	l, e := w.Limits, w.Effective
	millis := func(ms int) time.Duration { return time.Duration(ms) * time.Millisecond }
	if len(l.WaitsMS) > 0 {
		var all waits
		for _, ms := range l.WaitsMS {
			all = append(all, millis(ms))
		}
		say("waits "+all.String(), true, "")
	}
	const profiles = "the profile's"
	say(fmt.Sprintf("attempts %d", e.Attempts), l.Attempts > 0 || len(l.WaitsMS) > 0, profiles) // one more than waits of its own
	say("timeout "+millis(e.TimeoutMS).String(), l.TimeoutMS > 0, profiles)
	if l.RatePerSecond > 0 {
		say(fmt.Sprintf("rate %g", l.RatePerSecond), true, "")
	}
	say(fmt.Sprintf("concurrency %d", e.Concurrency), l.Concurrency > 0, "the default")
	return strings.Join(out, ", ")
}

// keyLabel names what a receiver verifies with. Of v1a it is the public half,
// and calling that a secret would make people treat it as one.
func keyLabel(key string) string {
	if strings.HasPrefix(key, "whpk_") {
		return "public key"
	}
	return "secret"
}

// shownOnce says what the key that was just shown is for.
func (c *cmd) shownOnce(key string) {
	switch {
	case key == "":
	case keyLabel(key) == "secret":
		c.hint("The secret is shown this once. Give it to whoever receives: it verifies the signatures, and could make some.")
	default:
		c.hint("Give the public key to whoever receives: it verifies the signatures, can't make any, and is no secret. Keep it: it is shown here alone, and what is stored is sealed.")
	}
}

func hookState(w client.Webhook) string {
	switch {
	case w.Enabled && w.Paused:
		return "paused"
	case w.Enabled:
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
			none := "no endpoints; surehook webhooks create registers one"
			if f != (client.WebhookFilter{Page: f.Page}) {
				none = "no endpoints of this kind"
			}
			return list(c, api.Webhooks(ctx, f), listing[client.Webhook]{limit: limit, none: none,
				head: []string{"ID", "STATE", "SCOPE", "TYPES", "FAILURES", "URL"}, row: func(w client.Webhook) []cell {
					owner := w.Scope
					if id := deref(w.TenantID) + deref(w.PartnerID); id != "" {
						owner += " " + id
					}
					return []cell{text(w.ID), state(hookState(w)), text(owner), text(strings.Join(w.EventTypes, ",")), count(w.ConsecutiveFailures), text(cmp.Or(w.URL, "(pull)"))}
				}})
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
		Long: `Change an endpoint: what isn't given stays. A limit of 0 (--waits default) goes back
to the profile's. A new URL disables the endpoint until a test has passed.`,
		Example: "  surehook webhooks update whk_… --type order.paid,order.created\n  surehook webhooks update whk_… --enable",
		Args:    exactly("ID"),
	}
	h.add(cc)
	f := cc.Flags()
	f.StringVar(&h.in.URL, "new-url", "", "another URL")
	f.BoolVar(&enable, "enable", false, "enable it, and forget its failures")
	f.BoolVar(&disable, "disable", false, "disable it")
	cc.MarkFlagsMutuallyExclusive("enable", "disable")
	cc.RunE = c.through(func(ctx context.Context, api *client.Client, args []string) error {
		var names []string
		cc.LocalNonPersistentFlags().VisitAll(func(fl *pflag.Flag) { names = append(names, fl.Name) })
		names = slices.DeleteFunc(names, func(n string) bool { return n == "help" })
		if !given(f, names) {
			return usage("nothing to change: give at least one of --%s", strings.Join(names, ", --"))
		}
		p, err := h.patch(f)
		if err != nil {
			return err
		}
		if given(f, limitFlags) { // the API takes them together
			stored, err := stored(f, limitFlags, func() (client.Webhook, error) { return api.Webhook(ctx, args[0]) })
			if err != nil {
				return err
			}
			p.Limits = h.limitsOf(f, stored.Limits)
		}
		if enable || disable {
			p.Enabled = &enable
		}
		w, err := api.UpdateWebhook(ctx, args[0], p)
		if err != nil {
			return urlHint(ctx, err, h.in.URL)
		}
		if err := c.hook(w); err != nil {
			return err
		}
		if deref(w.DisabledReason) == "url_changed" {
			c.hint("It is enabled again once a test has passed: surehook webhooks test %s", w.ID)
		}
		return nil
	})
	return cc
}

// patch holds the flags that were given.
func (h *hookFlags) patch(f *pflag.FlagSet) (p client.WebhookPatch, err error) {
	texts := map[string]struct {
		to   **string
		from *string
	}{"new-url": {&p.URL, &h.in.URL}, "description": {&p.Description, &h.in.Description}, "profile": {&p.Profile, &h.in.Profile}, "envelope": {&p.Envelope, &h.in.Envelope},
		"ordering": {&p.Ordering, &h.in.Ordering}}
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
	return p, nil
}

func (c *cmd) hookPauseCmd() *cobra.Command {
	return &cobra.Command{
		Use: "pause ID", Short: "Send nothing but tests to an endpoint: what is for it waits", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			w, err := api.PauseWebhook(ctx, args[0])
			if err != nil {
				return err
			}
			if err := c.hook(w); err != nil {
				return err
			}
			c.hint("What is for it waits, no longer than events are kept. It goes out after: surehook webhooks resume %s", w.ID)
			return nil
		}),
	}
}

func (c *cmd) hookResumeCmd() *cobra.Command {
	return &cobra.Command{
		Use: "resume ID", Short: "End a pause: what waits goes out", Args: exactly("ID"),
		RunE: c.through(func(ctx context.Context, api *client.Client, args []string) error {
			w, err := api.ResumeWebhook(ctx, args[0])
			if err != nil {
				return err
			}
			return c.hook(w)
		}),
	}
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
			if err := c.out.fields(keyLabel(r.Secret), r.Secret, "old secret signs until", moment(deref(r.PreviousSecretUntil))); err != nil {
				return err
			}
			c.shownOnce(r.Secret)
			return nil
		}),
	}
	cc.Flags().DurationVar(&overlap, "overlap", 24*time.Hour, "how long the old secret signs as well, 0 to 168h")
	cc.Flags().BoolVar(&revoke, "end-overlap", false, "end the overlap of an earlier rotation")
	cc.MarkFlagsMutuallyExclusive("overlap", "end-overlap")
	return cc
}
