package config

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/parsers/yaml"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/posflag"
	"github.com/knadh/koanf/v2"
	"github.com/spf13/pflag"
	node "go.yaml.in/yaml/v3"
)

// Problem is one setting that can't be used.
type Problem struct {
	Option  string
	From    string // "--listen", "SUREHOOK_LISTEN", "surehook.yaml line 3"
	Message string // never a secret's value
}

// Problems is everything that is wrong with a configuration.
type Problems []Problem

func (p Problems) Error() string {
	lines := make([]string, len(p))
	for i, x := range p {
		lines[i] = x.From + ": " + x.Message
	}
	return "the configuration can't be used:\n  " + strings.Join(lines, "\n  ")
}

// Source says where settings come from.
type Source struct {
	File    string         // "": none
	Environ []string       // as of os.Environ
	Flags   *pflag.FlagSet // as declared by AddFlags, and parsed; nil: none
	// Defaults of a command that has others than the table's; see AddFlags.
	Defaults map[string]string
}

const maxFile = 1 << 20

// content hands bytes that were read already to koanf.
type content []byte

func (c content) ReadBytes() ([]byte, error) { return c, nil }
func (content) Read() (map[string]any, error) {
	return nil, errors.New("config: read as bytes")
}

// Load gathers the settings. The error is Problems, unless the file can't be
// read at all.
func Load(src Source) (Config, error) {
	k := koanf.New(".")
	lines := map[string]int{}
	var bad Problems
	if src.File != "" {
		var err error
		if lines, bad, err = loadFile(k, src.File); err != nil {
			return Config{}, err
		}
	}
	if err := loadEnv(k, src.Environ); err != nil {
		return Config{}, err
	}
	if src.Flags != nil {
		if err := loadFlags(k, src.Flags); err != nil {
			return Config{}, err
		}
	}
	c := Default()
	for _, o := range table {
		v := cmp.Or(strings.TrimSpace(text(k.Get(o.Name))), src.Defaults[o.Name])
		if v == "" {
			continue
		}
		if err := o.set(&c, v); err != nil {
			bad = append(bad, Problem{Option: o.Name, From: origin(o, src, lines), Message: err.Error()})
		}
	}
	bad = append(bad, together(&c)...)
	if len(bad) > 0 {
		return Config{}, bad
	}
	return c, nil
}

// loadFile reads the file's settings, and notes each one's line.
func loadFile(k *koanf.Koanf, path string) (map[string]int, Problems, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, fmt.Errorf("the configuration file can't be read: %w", err)
	}
	if len(raw) > maxFile {
		return nil, nil, fmt.Errorf("%s is over %d bytes", path, maxFile)
	}
	var doc node.Node
	if err := node.Unmarshal(raw, &doc); err != nil {
		return nil, nil, fmt.Errorf("%s isn't valid YAML: %s", path, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	if len(doc.Content) == 0 {
		return nil, nil, nil
	}
	root := doc.Content[0]
	if root.Kind != node.MappingNode {
		return nil, nil, fmt.Errorf("%s: line %d: must hold settings as \"name: value\"", path, root.Line)
	}
	lines, bad := map[string]int{}, Problems(nil)
	for i := 0; i+1 < len(root.Content); i += 2 {
		key := root.Content[i]
		at := fmt.Sprintf("%s line %d", path, key.Line)
		if why := refuseKey(key.Value); why != "" {
			bad = append(bad, Problem{Option: key.Value, From: at, Message: why})
			continue
		}
		if !flat(root.Content[i+1]) {
			bad = append(bad, Problem{Option: key.Value, From: at, Message: key.Value + " takes a value or a list of values, not a group of settings"})
			continue
		}
		lines[key.Value] = key.Line
	}
	if len(bad) > 0 {
		return lines, bad, nil // what is around an error says little
	}
	return lines, nil, k.Load(content(raw), yaml.Parser())
}

// flat tells a value, or a list of values. Aliases are neither: a few of them
// can stand for a million values.
func flat(n *node.Node) bool {
	if n.Kind == node.SequenceNode {
		return !slices.ContainsFunc(n.Content, func(item *node.Node) bool { return item.Kind != node.ScalarNode })
	}
	return n.Kind == node.ScalarNode
}

// refuseKey says why a key may not stand in a file; empty: it may.
func refuseKey(key string) string {
	i := slices.IndexFunc(table, func(o Option) bool { return o.Name == key })
	switch {
	case i < 0:
		why := "unknown setting " + key
		if near := closest(key); near != "" {
			why += "; did you mean " + near + "?"
		}
		return why
	case table[i].EnvOnly:
		return key + " can't stand in a file; set " + table[i].Env + " in the environment"
	}
	return ""
}

// closest finds the name that someone may have meant.
func closest(key string) string {
	plain := func(s string) string { return strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(s)) }
	for _, o := range table {
		a, b := plain(o.Name), plain(key)
		if a == b || len(b) > 3 && (strings.HasPrefix(a, b) || strings.HasPrefix(b, a)) {
			return o.Name
		}
	}
	return ""
}

func loadEnv(k *koanf.Koanf, environ []string) error {
	names := make(map[string]string, len(table))
	for _, o := range table {
		names[o.Env] = o.Name
	}
	return k.Load(env.Provider(".", env.Opt{Prefix: Prefix, EnvironFunc: func() []string { return environ },
		TransformFunc: func(key, v string) (string, any) {
			if v == "" {
				return "", nil // set to nothing means not set
			}
			return names[key], v // unknown ones are other programs', or the client's
		}}), nil)
}

// loadFlags takes the flags that were given; the defaults stand in the table.
func loadFlags(k *koanf.Koanf, flags *pflag.FlagSet) error {
	given := pflag.NewFlagSet("", pflag.ContinueOnError)
	flags.Visit(func(f *pflag.Flag) {
		if slices.ContainsFunc(table, func(o Option) bool { return o.Name == f.Name && !o.EnvOnly }) {
			given.AddFlag(f)
		}
	})
	return k.Load(posflag.ProviderWithValue(given, ".", k, func(name, v string) (string, any) { return name, v }), nil)
}

// text is a value as it would be written on a command line.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return ""
	case string:
		return v
	case []any:
		parts := make([]string, len(v))
		for i, x := range v {
			parts[i] = text(x)
		}
		return strings.Join(parts, ",")
	}
	return fmt.Sprint(v)
}

// origin says where a setting's value came from.
func origin(o Option, src Source, lines map[string]int) string {
	if src.Flags != nil && src.Flags.Changed(o.Name) {
		return "--" + o.Name
	}
	for _, kv := range src.Environ {
		if name, v, _ := strings.Cut(kv, "="); name == o.Env && v != "" {
			return o.Env
		}
	}
	return fmt.Sprintf("%s line %d: %s", src.File, lines[o.Name], o.Name)
}

// together refuses settings that don't go with each other.
func together(c *Config) Problems {
	var bad Problems
	if !c.Deliver && c.Database == "" {
		bad = append(bad, Problem{Option: "deliver", From: "--deliver", Message: "can be false only with --database: nobody else could deliver from a SQLite file"})
	}
	if !c.API && !c.Deliver {
		bad = append(bad, Problem{Option: "api", From: "--api and --deliver", Message: "one of them must be true"})
	}
	if (c.ClientCert == "") != (c.ClientKey == "") {
		bad = append(bad, Problem{Option: "client-cert", From: "--client-cert and --client-key", Message: "one needs the other"})
	}
	if c.MasterKey != "" && c.MasterKeyFile != "" {
		bad = append(bad, Problem{Option: "master-key", From: "SUREHOOK_MASTER_KEY and master-key-file", Message: "give one of the two"})
	}
	if c.GitHubWebhookSecret != "" && c.GitHubWebhookSecretFile != "" {
		bad = append(bad, Problem{Option: "github-webhook-secret", From: "SUREHOOK_GITHUB_WEBHOOK_SECRET and github-webhook-secret-file", Message: "give one of the two"})
	}
	if c.OIDCClientSecret != "" && c.OIDCClientSecretFile != "" {
		bad = append(bad, Problem{Option: "oidc-client-secret", From: "SUREHOOK_OIDC_CLIENT_SECRET and oidc-client-secret-file", Message: "give one of the two"})
	}
	if c.OIDCIssuer != "" && (c.OIDCClientID == "" || len(c.OIDCRules) == 0 || c.PublicURL == nil) {
		bad = append(bad, Problem{Option: "oidc-issuer", From: "oidc-issuer", Message: "needs oidc-client-id, oidc-rules (nobody is let in without one) and public-url (the provider leads back there) beside it"})
	}
	if c.Memory < c.MaxEventBytes {
		bad = append(bad, Problem{Option: "memory", From: "memory and max-event-bytes", Message: "one event must fit into memory"})
	}
	return bad
}
