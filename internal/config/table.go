package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/surehook/surehook/internal/accept"
	"github.com/surehook/surehook/internal/console"
)

// Prefix begins the name of every setting in the environment.
const Prefix = "SUREHOOK_"

var table = []Option{
	{Name: "listen", Default: "127.0.0.1:8080", Value: "host:port", Help: "address of the API and metrics",
		set: func(c *Config, v string) error { c.Listen = v; return hostPort(v) }},
	{Name: "data", Default: "surehook-data", Value: "dir", Help: "directory of the SQLite file and the master key; a node's own",
		set: func(c *Config, v string) error { c.Data = v; return nil }},
	{Name: "database", Value: "url", Secret: true, Help: "PostgreSQL instead of the SQLite file, as postgres://user:…@host:5432/name; any number of nodes may share it. Better in the environment, which other users can't see",
		set: func(c *Config, v string) error { c.Database = v; return database(v) }},
	{Name: "database-schema", Default: "surehook", Value: "name", Help: "PostgreSQL: schema that holds everything",
		set: func(c *Config, v string) error { c.DatabaseSchema = v; return schema(v) }},
	{Name: "database-conns", Default: "12", Value: "n", Help: "PostgreSQL: connections of this node",
		set: func(c *Config, v string) (err error) { c.DatabaseConns, err = number(v, 4, 1000); return err }},
	{Name: "database-listen", Value: "url", Secret: true, Help: "PostgreSQL: address for notices, straight to the server, where database leads to a pooler in transaction mode",
		set: func(c *Config, v string) error { c.DatabaseListen = v; return database(v) }},
	{Name: "database-lease", Default: "90s", Value: "duration", Help: "PostgreSQL: how long the deliveries of a node that died wait for it, unless it starts again with the same data directory; an attempt takes 3/4 of it less 5s at most",
		set: func(c *Config, v string) (err error) {
			c.DatabaseLease, err = duration(v, 10*time.Second, 10*time.Minute)
			return err
		}},
	{Name: "api", Default: "true", Flag: true, Help: "serve the API; without it only health and metrics",
		set: func(c *Config, v string) (err error) { c.API, err = boolean(v); return err }},
	{Name: "deliver", Default: "true", Flag: true, Help: "deliver; without it other nodes on the same database must",
		set: func(c *Config, v string) (err error) { c.Deliver, err = boolean(v); return err }},

	{Name: "console", Default: "true", Flag: true, Help: "serve the web console under /console and tenants' portals under /portal, beside the API",
		set: func(c *Config, v string) (err error) { c.Console, err = boolean(v); return err }},
	{Name: "console-listen", Value: "host:port", Help: "address of the console and the portals alone; with the API if not set",
		set: func(c *Config, v string) error { c.ConsoleListen = v; return hostPort(v) }},
	{Name: "public-url", Value: "url", Help: "address under which browsers reach the console, such as https://hooks.example.com; links into portals begin with it, and cookies are for TLS alone where it is https",
		set: func(c *Config, v string) (err error) { c.PublicURL, err = publicURL(v); return err }},
	{Name: "oidc-issuer", Value: "url", Help: "OpenID Connect provider that operators may sign in to the console at; it must know public-url/console/oidc/callback; none if not set",
		set: func(c *Config, v string) (err error) { c.OIDCIssuer, err = v, issuer(v); return err }},
	{Name: "oidc-client-id", Value: "id", Help: "what this server is called there",
		set: func(c *Config, v string) error { c.OIDCClientID = v; return nil }},
	{Name: "oidc-client-secret", Secret: true, EnvOnly: true, Help: "its secret there; none: a public client, which PKCE alone protects",
		set: func(c *Config, v string) error { c.OIDCClientSecret = v; return nil }},
	{Name: "oidc-client-secret-file", Value: "file", Help: "file that holds the secret in place of that",
		set: func(c *Config, v string) error { c.OIDCClientSecretFile = v; return nil }},
	{Name: "oidc-scopes", Default: "email,profile", Value: "scope,...", Help: "scopes that are asked for beside openid, such as groups",
		set: func(c *Config, v string) error { c.OIDCScopes = items(v); return nil }},
	{Name: "oidc-rules", Value: "rule,...", Help: "whom to let in, as claim=value=role: groups=ops=admin,email=*@example.com=read; role is read, manage, admin or permissions joined by +, and @tenant:id or @partner:id after it bounds it; the first that fits counts",
		set: func(c *Config, v string) (err error) { c.OIDCRules, err = oidcRules(v); return err }},
	{Name: "oidc-session", Default: "12h", Value: "duration", Help: "after which who signed in there must sign in again; an hour without a request ends it sooner",
		set: func(c *Config, v string) (err error) {
			c.OIDCSession, err = duration(v, 5*time.Minute, 24*time.Hour)
			return err
		}},

	{Name: "portal-name", Default: "Webhooks", Value: "name", Help: "what tenants see their portal called",
		set: func(c *Config, v string) error { c.PortalName = v; return nil }},
	{Name: "portal-logo", Value: "file", Help: "PNG, JPEG, WebP or SVG of at most 256 KiB, shown in portals",
		set: func(c *Config, v string) error { c.PortalLogo = v; return nil }},
	{Name: "portal-accent", Value: "colour", Help: "colour of buttons and of the menu in portals, as #1d4ed8; texts on it are black or white, whichever is read better",
		set: func(c *Config, v string) error { c.PortalAccent = v; return colour(v) }},
	{Name: "portal-frames", Value: "origin,...", Help: "origins whose pages may show a portal in a frame, such as https://app.example.com; the portal must be reached over TLS then; none if not set",
		set: func(c *Config, v string) error { c.PortalFrames = items(v); return origins(c.PortalFrames) }},

	{Name: "allow-networks", Value: "network,...", Help: "development only: private networks or addresses that deliveries may reach, and where URL rules are lifted",
		set: func(c *Config, v string) (err error) { c.AllowNetworks, err = prefixes(v); return err }},
	{Name: "own-hosts", Value: "host,...", Help: "our own public host names, refused as endpoints",
		set: func(c *Config, v string) error { c.OwnHosts = items(v); return nil }},
	{Name: "egress-proxy", Value: "url", Secret: true, Help: "HTTP proxy that all deliveries go through by CONNECT; the environment's proxies are ignored",
		set: func(c *Config, v string) (err error) { c.EgressProxy, err = httpURL(v); return err }},
	{Name: "ca-file", Value: "file", Help: "PEM file of certificate authorities to trust beside the system's",
		set: func(c *Config, v string) error { c.CAFile = v; return nil }},
	{Name: "client-cert", Value: "file", Help: "PEM certificate shown to receivers that ask for one",
		set: func(c *Config, v string) error { c.ClientCert = v; return nil }},
	{Name: "client-key", Value: "file", Help: "PEM key of client-cert",
		set: func(c *Config, v string) error { c.ClientKey = v; return nil }},

	{Name: "max-in-flight", Default: "1024", Value: "n", Help: "requests in flight over all endpoints",
		set: func(c *Config, v string) (err error) { c.MaxInFlight, err = number(v, 1, 100_000); return err }},
	{Name: "memory", Default: "16MiB", Value: "size", Help: "event data held in memory for delivery; the rest waits in the store",
		set: func(c *Config, v string) (err error) { c.Memory, err = size(v, 1<<20, 1<<40); return err }},
	{Name: "max-event-bytes", Default: "1MiB", Value: "size", Help: "largest data of one event",
		set: func(c *Config, v string) (err error) { c.MaxEventBytes, err = size(v, 1<<10, 64<<20); return err }},
	{Name: "max-webhooks", Default: "20", Value: "n", Help: "endpoints that a tenant, a partner or the platform may have; -1: any number",
		set: func(c *Config, v string) (err error) { c.MaxWebhooks, err = webhooks(v); return err }},
	{Name: "max-sentinels", Default: "100000", Value: "n", Help: "sentinels that a tenant, a partner or the platform may have, beside those that ended; -1: any number",
		set: func(c *Config, v string) (err error) { c.MaxSentinels, err = webhooks(v); return err }},
	{Name: "keep-sentinels", Default: "168h", Value: "duration", Help: "how long a sentinel that ended, by itself or with its session, is kept before it is removed; 0: until somebody removes it",
		set: func(c *Config, v string) (err error) {
			if c.KeepSentinels, err = duration(v, 0, 100*365*24*time.Hour); c.KeepSentinels == 0 {
				c.KeepSentinels = -1
			}
			return err
		}},
	{Name: "sentinel-queue", Default: "0", Value: "n", Help: "events that may wait for the webhook of one sentinel; past it the oldest become dead letters; 0: any number",
		set: func(c *Config, v string) (err error) { c.SentinelQueue, err = number(v, 0, 100_000_000); return err }},

	{Name: "inbox-events", Default: "100000", Value: "n", Help: "events that an inbox of a webhook with target pull, or of a session, may hold; past it the oldest become dead letters; -1: any number",
		set: func(c *Config, v string) (err error) { c.InboxEvents, err = inboxEvents(v); return err }},
	{Name: "inbox-bytes", Default: "256MiB", Value: "size", Help: "data of events that an inbox may hold, likewise",
		set: func(c *Config, v string) (err error) { c.InboxBytes, err = size(v, 1<<20, 1<<40); return err }},
	{Name: "session-idle", Default: "1h", Value: "duration", Help: "without a pull, after which a session ends with what wasn't pulled",
		set: func(c *Config, v string) (err error) {
			c.SessionIdle, err = duration(v, 2*time.Minute, 30*24*time.Hour)
			return err
		}},

	{Name: "api-version", Default: "2026-10-01", Value: "date", Help: "api_version in the envelope pylota; events keep the one that they were accepted under",
		set: func(c *Config, v string) error { c.APIVersion = v; return accept.APIVersion(v) }},
	{Name: "text-fields", Value: "field,...", Help: "texts in events' data that are cut when they are long, by name from the top of the data: extracted_text,message.text; the same on every node; none if not set",
		set: func(c *Config, v string) error { c.TextFields = items(v); return textFields(c.TextFields) }},
	{Name: "text-bytes", Default: "16KiB", Value: "size", Help: "to how many bytes of UTF-8 they are cut, between two characters; 64KiB at most",
		set: func(c *Config, v string) (err error) { c.TextBytes, err = size(v, 1<<10, accept.MaxText); return err }},

	{Name: "sync", Default: "full", Value: "mode", Help: "full, or normal: faster, but a power cut can lose the last fraction of a second",
		set: func(c *Config, v string) error { c.Sync = v; return oneOf(v, "full", "normal") }},
	{Name: "retain", Default: "720h", Value: "duration", Help: "how long events are kept, with their attempts and dead letters; PostgreSQL drops whole days; 0: for ever",
		set: func(c *Config, v string) (err error) {
			if c.Retain, err = duration(v, 0, 100*365*24*time.Hour); err == nil && c.Retain != 0 && c.Retain < 48*time.Hour {
				err = errors.New("must be 48h at least, or 0: retries go on for 28 hours")
			}
			return err
		}},

	{Name: "log-level", Default: "info", Value: "level", Help: "debug, info, warn or error",
		set: func(c *Config, v string) error { c.LogLevel = v; return oneOf(v, "debug", "info", "warn", "error") }},
	{Name: "log-format", Value: "format", Help: "json or text; text on a terminal and json elsewhere if not set",
		set: func(c *Config, v string) error { c.LogFormat = v; return oneOf(v, "json", "text") }},

	{Name: "otlp-endpoint", Value: "url", Help: "OpenTelemetry collector that traces are sent to over OTLP/HTTP; none if not set",
		set: func(c *Config, v string) error { c.OTLPEndpoint = v; _, err := httpURL(v); return err }},
	{Name: "carry-traceparent", Default: "false", Flag: true, Help: "send the publisher's traceparent on to receivers",
		set: func(c *Config, v string) (err error) { c.CarryTraceparent, err = boolean(v); return err }},

	{Name: "notify-command", Value: "command", Help: "program run when an endpoint was disabled, with a JSON notice on its standard input",
		set: func(c *Config, v string) error { c.NotifyCommand = v; return nil }},
	{Name: "notify-url", Value: "url", Secret: true, Help: "URL that the same notice is posted to, by a plain HTTP client",
		set: func(c *Config, v string) error { c.NotifyURL = v; _, err := httpURL(v); return err }},

	{Name: "github-webhook-path", Default: "/providers/webhook/github", Value: "path", Help: "where GitHub's webhooks are taken, once there is a secret",
		set: func(c *Config, v string) error { c.GitHubWebhookPath = v; return hookPath(v) }},
	{Name: "github-webhook-secret", Secret: true, EnvOnly: true, Help: "secret of GitHub's webhooks; while it is changed the new one and the old one, one a line; none: they aren't taken",
		set: func(c *Config, v string) error { c.GitHubWebhookSecret = v; return nil }},
	{Name: "github-webhook-secret-file", Value: "file", Help: "file that holds the secret in place of that",
		set: func(c *Config, v string) error { c.GitHubWebhookSecretFile = v; return nil }},
	{Name: "github-webhook-tenant", Value: "tenant", Help: "whose the events of GitHub's webhooks are; the platform's if not set",
		set: func(c *Config, v string) error { c.GitHubWebhookTenant = v; return tenantName(v) }},
	{Name: "gh-command", Default: "gh", Value: "program", Help: "GitHub CLI that the sentinel provider local-gh looks through, with the account that it is logged in with; off: none",
		set: func(c *Config, v string) error { c.GHCommand = v; return nil }},
	{Name: "gh-every", Default: "1m", Value: "duration", Help: "how often local-gh looks at a pull request",
		set: func(c *Config, v string) (err error) {
			c.GHEvery, err = duration(v, 10*time.Second, 24*time.Hour)
			return err
		}},

	{Name: "metrics-auth", Default: "open", Value: "who", Help: "open: anybody may read /metrics, which names no tenant, endpoint or host; key: an API key that may read",
		set: func(c *Config, v string) error { c.MetricsAuth = v; return oneOf(v, "open", "key") }},

	{Name: "event-class", Value: "name=type,...", Help: "classes that metrics sum event types by, such as inbound=message.received,message.quarantined,money=invoice.*; all others are the class other",
		set: func(c *Config, v string) (err error) { c.EventClasses, err = eventClasses(v); return err }},

	{Name: "shutdown-grace", Default: "10s", Value: "duration", Help: "how long attempts in flight may take to end after SIGTERM; a process ends within this and 5 s",
		set: func(c *Config, v string) (err error) {
			c.ShutdownGrace, err = duration(v, 0, 10*time.Minute)
			return err
		}},

	{Name: "master-key", Secret: true, EnvOnly: true, Help: "key that seals signing secrets: 32 bytes in base64 or hex, older ones after it, one a line",
		set: func(c *Config, v string) error { c.MasterKey = v; return nil }},
	{Name: "master-key-file", Value: "file", Help: "file that holds the master key, mode 0600; master.key in the data directory, made at first start, if not set",
		set: func(c *Config, v string) error { c.MasterKeyFile = v; return nil }},
	{Name: "master-key-lost", Default: "false", Flag: true, Help: "start with a new master key although the store's secrets were sealed under one that is lost: each webhook fails with secret_unavailable until its secret is rotated",
		set: func(c *Config, v string) (err error) { c.KeyLost, err = boolean(v); return err }},
	{Name: "admin-key", Secret: true, EnvOnly: true, Help: "first admin key, taken at first start and ignored later; one is made and printed once if not set",
		set: func(c *Config, v string) error { c.AdminKey = v; return adminKey(v) }},
}

func init() {
	for i := range table {
		table[i].Env = Prefix + strings.ToUpper(strings.ReplaceAll(table[i].Name, "-", "_"))
	}
}

// items splits a list at commas and white space.
func items(v string) []string {
	return strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == ' ' || r == '\t' || r == '\n' })
}

func hostPort(v string) error {
	_, port, err := net.SplitHostPort(v)
	if err != nil {
		return errors.New("must be host:port, e.g. 127.0.0.1:8080")
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return errors.New("its port must be a number from 0 to 65535")
	}
	return nil
}

func database(v string) error {
	u, err := url.Parse(v)
	if err != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql") {
		return errors.New("must be a postgres:// URL; for SQLite leave it out, and set data to a directory")
	}
	return nil
}

// hookPath is where a provider's webhooks are taken: apart from all that the API
// serves, now and later.
func hookPath(v string) error {
	name, ok := strings.CutPrefix(v, "/providers/")
	if !ok || name == "" || path.Clean(v) != v || len(v) > 200 || strings.ContainsFunc(v, func(r rune) bool { return r <= ' ' || r > '~' || strings.ContainsRune(`?#%{}\`, r) }) {
		return errors.New("must be a path below /providers/, such as /providers/webhook/github")
	}
	return nil
}

func tenantName(v string) error {
	if !accept.Printable(v) {
		return errors.New("must be at most 200 printable ASCII characters without spaces")
	}
	return nil
}

func schema(v string) error {
	for i, r := range v {
		if r != '_' && (r < 'a' || r > 'z') && (i == 0 || r < '0' || r > '9') {
			return errors.New("must be lower-case letters, digits and _")
		}
	}
	if v == "" || len(v) > 63 {
		return errors.New("must have 1 to 63 characters")
	}
	return nil
}

func prefixes(v string) ([]netip.Prefix, error) {
	var out []netip.Prefix
	for _, item := range items(v) {
		p, err := netip.ParsePrefix(item)
		if err != nil {
			a, aerr := netip.ParseAddr(item)
			if aerr != nil {
				return nil, fmt.Errorf("%q is neither a network (127.0.0.0/8) nor an address", item)
			}
			p = netip.PrefixFrom(a, a.BitLen())
		}
		out = append(out, p)
	}
	return out, nil
}

func httpURL(v string) (*url.URL, error) {
	u, err := url.Parse(v)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("must be an http:// or https:// URL")
	}
	return u, nil
}

func publicURL(v string) (*url.URL, error) {
	u, err := httpURL(v)
	if err == nil && (u.RawQuery != "" || u.Fragment != "" || u.User != nil || strings.Trim(u.Path, "/") != "") {
		err = errors.New("must be a scheme and a host alone, such as https://hooks.example.com")
	}
	return u, err
}

// issuer is a provider's name for itself, which it is found under.
func issuer(v string) error {
	u, err := httpURL(v)
	switch {
	case err != nil:
		return err
	case u.RawQuery != "" || u.Fragment != "" || u.User != nil:
		return errors.New("must be the issuer as the provider writes it, such as https://login.example.com")
	case u.Scheme != "https" && u.Hostname() != "localhost" && u.Hostname() != "127.0.0.1":
		return errors.New("must be https, unless it is on this machine")
	}
	return nil
}

func oidcRules(v string) ([]console.Rule, error) {
	var out []console.Rule
	for _, text := range strings.FieldsFunc(v, func(r rune) bool { return r == ',' || r == '\n' }) { // a group's name may hold blanks
		r, err := console.ParseRule(strings.TrimSpace(text))
		if err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}

func colour(v string) error {
	if _, err := strconv.ParseUint(strings.TrimPrefix(v, "#"), 16, 32); err != nil || len(v) != 7 || v[0] != '#' {
		return errors.New("must be a colour such as #1d4ed8")
	}
	return nil
}

// origins refuses what would let more than these pages in, or break the header that
// they are written into.
func origins(list []string) error {
	for _, o := range list {
		u, err := url.Parse(o)
		if err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Scheme+"://"+u.Host != o || u.Hostname() == "" || strings.ContainsAny(o, "*;'\"") {
			return fmt.Errorf("%q must be an origin such as https://app.example.com", o)
		}
	}
	return nil
}

func number(v string, low, high int) (int, error) {
	n, err := strconv.Atoi(v)
	if err != nil || n < low || n > high {
		return 0, fmt.Errorf("must be a number from %d to %d", low, high)
	}
	return n, nil
}

func webhooks(v string) (int, error) {
	if v == "-1" {
		return -1, nil
	}
	n, err := number(v, 1, 1_000_000)
	if err != nil {
		return 0, errors.New("must be a number from 1 to 1000000, or -1")
	}
	return n, nil
}

func inboxEvents(v string) (int, error) {
	if v == "-1" {
		return -1, nil
	}
	n, err := number(v, 100, 10_000_000)
	if err != nil {
		return 0, errors.New("must be a number from 100 to 10000000, or -1")
	}
	return n, nil
}

// size reads bytes: a number alone, or with KiB, MiB or GiB (KB, K and so on
// mean the same here).
func size(v string, low, high int64) (int64, error) {
	text, unit := strings.ToUpper(strings.TrimSpace(v)), int64(1)
	text = strings.TrimSuffix(strings.TrimSuffix(text, "B"), "I")
	for suffix, n := range map[string]int64{"K": 1 << 10, "M": 1 << 20, "G": 1 << 30} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, unit = rest, n
			break
		}
	}
	n, err := strconv.ParseInt(strings.TrimSpace(text), 10, 64)
	if err != nil || n < 0 || n > high/unit || n*unit < low {
		return 0, fmt.Errorf("must be a size from %s to %s, such as 512KiB or 32MiB", showSize(low), showSize(high))
	}
	return n * unit, nil
}

func showSize(n int64) string {
	switch {
	case n >= 1<<30:
		return strconv.FormatInt(n>>30, 10) + "GiB"
	case n >= 1<<20:
		return strconv.FormatInt(n>>20, 10) + "MiB"
	}
	return strconv.FormatInt(n>>10, 10) + "KiB"
}

func duration(v string, low, high time.Duration) (time.Duration, error) {
	d, err := time.ParseDuration(v)
	if err != nil || d < low || d > high {
		return 0, fmt.Errorf("must be a duration from %v to %v, such as 10s", low, high)
	}
	return d, nil
}

func boolean(v string) (bool, error) {
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, errors.New("must be true or false")
	}
	return b, nil
}

func textFields(names []string) error {
	_, err := accept.NewTexts(names, accept.DefaultText)
	return err
}

func oneOf(v string, choices ...string) error {
	for _, c := range choices {
		if v == c {
			return nil
		}
	}
	return errors.New("must be " + strings.Join(choices, " or "))
}

func adminKey(v string) error {
	if len(v) < 16 {
		return errors.New("must have 16 or more printable characters")
	}
	for _, r := range v {
		if r <= ' ' || r > '~' {
			return errors.New("must have printable ASCII characters alone, without spaces")
		}
	}
	return nil
}
