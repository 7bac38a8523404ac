// Package config reads the settings of a server: from flags, from SUREHOOK_*
// in the environment and from a YAML file, in that order of precedence.
//
// Guarantee: one table makes the flags, the names in the environment, the keys
// of the file and the documentation, so they can't drift apart; an unknown key
// in the file is refused with its line; every problem is reported at once; and
// no message repeats a value that is marked as secret.
package config

import (
	"cmp"
	"net/netip"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/surehook/surehook/internal/console"
)

// Config is what a server needs to know. Make one with Load or Default.
type Config struct {
	Listen string
	Data   string // directory

	Database       string // PostgreSQL; empty: the SQLite file
	DatabaseSchema string
	DatabaseConns  int
	DatabaseListen string
	DatabaseLease  time.Duration
	API            bool
	Deliver        bool

	Console       bool
	ConsoleListen string   // empty: with the API
	PublicURL     *url.URL // nil: unknown
	PortalName    string
	PortalLogo    string
	PortalAccent  string
	PortalFrames  []string

	OIDCIssuer           string // empty: operators sign in by key alone
	OIDCClientID         string
	OIDCClientSecret     string
	OIDCClientSecretFile string
	OIDCScopes           []string
	OIDCRules            []console.Rule
	OIDCSession          time.Duration

	AllowNetworks []netip.Prefix
	OwnHosts      []string
	EgressProxy   *url.URL
	CAFile        string
	ClientCert    string
	ClientKey     string

	MaxInFlight   int
	Memory        int64
	MaxEventBytes int64
	InboxEvents   int
	InboxBytes    int64
	SessionIdle   time.Duration
	MaxWebhooks   int           // negative: unlimited
	MaxSentinels  int           // negative: unlimited
	KeepSentinels time.Duration // negative: for ever
	SentinelQueue int           // 0: unlimited
	APIVersion    string
	TextFields    []string
	TextBytes     int64

	Sync   string        // full or normal
	Retain time.Duration // 0: for ever

	LogLevel  string
	LogFormat string // json, text, or empty: text on a terminal

	OTLPEndpoint     string
	CarryTraceparent bool

	NotifyCommand string
	NotifyURL     string

	GitHubWebhookPath       string
	GitHubWebhookSecret     string // one a line
	GitHubWebhookSecretFile string
	GitHubWebhookTenant     string
	GHCommand               string // off: none
	GHEvery                 time.Duration

	MetricsAuth  string // open or key
	EventClasses EventClasses

	ShutdownGrace time.Duration

	MasterKey     string
	MasterKeyFile string
	KeyLost       bool
	AdminKey      string
}

// Option is one setting and everything that is said about it.
type Option struct {
	Name    string // of the flag and of the key in the file
	Env     string
	Default string
	Help    string
	Value   string // what a value looks like, for help texts
	Secret  bool   // no message repeats its value
	EnvOnly bool   // neither a flag, which others can see, nor a line in a file
	Flag    bool   // true or false; the flag alone means true

	set func(*Config, string) error
}

// Options lists every setting, in the order of the documentation.
func Options() []Option { return append([]Option(nil), table...) }

// Default is the configuration of a server that was told nothing.
func Default() Config {
	var c Config
	for _, o := range table {
		if o.Default != "" {
			// The table's own defaults parse: a test sees to it.
			_ = o.set(&c, o.Default)
		}
	}
	return c
}

// AddFlags declares a flag for every setting that may be one. With defaults, for
// a command of another kind, only those that it names, and with its own; an empty
// one leaves the table's.
func AddFlags(f *pflag.FlagSet, defaults map[string]string) {
	for _, o := range table {
		own, named := defaults[o.Name]
		if o.EnvOnly || defaults != nil && !named {
			continue
		}
		o.Default = cmp.Or(own, o.Default)
		usage := o.Help + " [" + o.Env + "]"
		if o.Flag {
			f.Bool(o.Name, o.Default == "true", usage)
			continue
		}
		f.Var(&given{text: o.Default, kind: o.Value}, o.Name, usage)
	}
}

// given is a flag's text; the help names its kind.
type given struct{ text, kind string }

func (g *given) String() string     { return g.text }
func (g *given) Set(v string) error { g.text = v; return nil }
func (g *given) Type() string       { return g.kind }

// Markdown is the table of settings for the documentation.
func Markdown() string {
	var b strings.Builder
	b.WriteString("| flag and file key | environment | default | what it does |\n|---|---|---|---|\n")
	for _, o := range table {
		name := "`--" + o.Name + "`"
		if o.EnvOnly {
			name = "–"
		}
		def := "–"
		if o.Default != "" {
			def = "`" + o.Default + "`"
		}
		b.WriteString("| " + name + " | `" + o.Env + "` | " + def + " | " + strings.ReplaceAll(o.Help, "|", `\|`) + " |\n")
	}
	return b.String()
}
