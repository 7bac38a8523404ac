package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "surehook.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func flags(t *testing.T, args ...string) *pflag.FlagSet {
	t.Helper()
	f := pflag.NewFlagSet("serve", pflag.ContinueOnError)
	AddFlags(f, nil)
	f.String("config", "", "")
	if err := f.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f
}

func TestDefaultsParse(t *testing.T) {
	var c Config
	for _, o := range table {
		if o.Default == "" {
			continue
		}
		if err := o.set(&c, o.Default); err != nil {
			t.Errorf("%s: %v", o.Name, err)
		}
	}
	d := Default()
	if d.Retain != 30*24*time.Hour { // P-05: a store that nobody configures is bounded
		t.Errorf("events are kept for %s", d.Retain)
	}
	if d.Listen != "127.0.0.1:8080" || d.Memory != 16<<20 || d.MaxEventBytes != 1<<20 || d.ShutdownGrace != 10*time.Second {
		t.Errorf("%+v", d)
	}
	if got, err := Load(Source{}); err != nil || got.Listen != d.Listen || got.MaxInFlight != d.MaxInFlight {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestFlagWinsOverEnvironmentOverFile(t *testing.T) {
	path := file(t, "listen: 127.0.0.1:1\ndata: from-file\nmax-webhooks: 7\nallow-networks: [127.0.0.0/8, 10.1.2.3]\ncarry-traceparent: true\n")
	c, err := Load(Source{File: path, Environ: []string{"SUREHOOK_LISTEN=127.0.0.1:2", "SUREHOOK_DATA=from-env", "SUREHOOK_OTHER=x", "SUREHOOK_SYNC="},
		Flags: flags(t, "--listen", "127.0.0.1:3", "--config", path)})
	if err != nil {
		t.Fatal(err)
	}
	if c.Listen != "127.0.0.1:3" || c.Data != "from-env" || c.MaxWebhooks != 7 || c.Sync != "full" || !c.CarryTraceparent {
		t.Errorf("%+v", c)
	}
	if len(c.AllowNetworks) != 2 || c.AllowNetworks[1].String() != "10.1.2.3/32" {
		t.Errorf("%v", c.AllowNetworks)
	}
	c, err = Load(Source{File: path, Flags: flags(t, "--carry-traceparent=false")})
	if err != nil || c.CarryTraceparent {
		t.Errorf("a flag that says no: %v, %v", c.CarryTraceparent, err)
	}
}

func TestEveryProblemAtOnce(t *testing.T) {
	_, err := Load(Source{File: file(t, "sync: fast\n\nmax-in-flight: 0\n"),
		Environ: []string{"SUREHOOK_DATABASE=mysql://u:hunter2@db/x", "SUREHOOK_ADMIN_KEY=short-secret", "SUREHOOK_CLIENT_CERT=c.pem"},
		Flags:   flags(t, "--memory", "much", "--listen", "8080")})
	var p Problems
	if !errors.As(err, &p) {
		t.Fatal(err)
	}
	for _, want := range []string{"line 1: sync: must be full or normal", "line 3: max-in-flight:", "SUREHOOK_DATABASE: must be a postgres:// URL",
		"SUREHOOK_ADMIN_KEY: must have 16", "--memory:", "--listen:", "client-cert"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("misses %q:\n%v", want, err)
		}
	}
	for _, secret := range []string{"hunter2", "short-secret"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("repeats a secret: %v", err)
		}
	}
}

func TestFileIsReadStrictly(t *testing.T) {
	for text, want := range map[string]string{
		"lisen: x\n":                       "line 1: unknown setting lisen",
		"# c\nmax_webhooks: 3\n":           "line 2: unknown setting max_webhooks; did you mean max-webhooks?",
		"data: a\nadmin-key: abcdefghij\n": "line 2: admin-key can't stand in a file; set SUREHOOK_ADMIN_KEY",
		"data:\n  dir: x\n":                "line 1: data takes a value",
		"- a\n":                            "must hold settings",
		"a: [\n":                           "isn't valid YAML",
		"data: a\ndata: b\n":               "already defined",
	} {
		if _, err := Load(Source{File: file(t, text)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := Load(Source{File: file(t, "# nothing\n")}); err != nil {
		t.Error(err)
	}
	if _, err := Load(Source{File: filepath.Join(t.TempDir(), "none")}); err == nil {
		t.Error("a file that isn't there")
	}
}

func TestSizes(t *testing.T) {
	for text, want := range map[string]int64{"2048": 2048, "2KiB": 2048, "2 kb": 2048, "3M": 3 << 20, "1GiB": 1 << 30} {
		if got, err := size(text, 0, 1<<40); err != nil || got != want {
			t.Errorf("%q: %d, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "-1", "x", "1.5MiB", "99999999999GiB", "MiB"} {
		if got, err := size(text, 0, 1<<40); err == nil {
			t.Errorf("%q: %d", text, got)
		}
	}
}

func TestTheTableDescribesItself(t *testing.T) {
	seen := map[string]bool{}
	md := Markdown()
	for _, o := range Options() {
		if o.Name == "" || o.Help == "" || seen[o.Name] || !strings.HasPrefix(o.Env, Prefix) {
			t.Errorf("%+v", o)
		}
		seen[o.Name] = true
		if !strings.Contains(md, "`"+o.Env+"`") {
			t.Errorf("%s isn't documented", o.Name)
		}
	}
	f := flags(t)
	if f.Lookup("admin-key") != nil || f.Lookup("master-key") != nil {
		t.Error("a secret is a flag, which other users of the machine can read")
	}
}

func FuzzFile(f *testing.F) {
	f.Add("listen: 127.0.0.1:1\nallow-networks: [127.0.0.0/8]\n")
	f.Add("a: &a [*a]\n")
	f.Add("data: {a: b}\n? [x]\n: y\n")
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(dir, "f.yaml")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		c, err := Load(Source{File: path})
		if err == nil && (c.Listen == "" || c.MaxInFlight < 1) {
			t.Errorf("accepted: %+v", c)
		}
	})
}

func TestWhereGitHubsWebhooksAreTaken(t *testing.T) {
	for v, ok := range map[string]bool{"/providers/x": true, "/providers/webhook/github": true, "/v1/events": false, "/providers": false, "/providers/": false, "/providers/../v1/events": false,
		"/providers//x": false, "providers/x": false, "/providers/a?b": false, "/providers/a b": false, "/providers/{x}": false, "/": false} {
		if _, err := Load(Source{Environ: []string{"SUREHOOK_GITHUB_WEBHOOK_PATH=" + v}}); (err == nil) != ok {
			t.Errorf("%s: %v", v, err)
		}
	}
	_, err := Load(Source{Environ: []string{"SUREHOOK_GITHUB_WEBHOOK_SECRET=planted-secret", "SUREHOOK_GITHUB_WEBHOOK_SECRET_FILE=x"}})
	if err == nil || !strings.Contains(err.Error(), "give one of the two") || strings.Contains(err.Error(), "planted") {
		t.Error(err)
	}
}

func TestLoginProvider(t *testing.T) {
	whole := []string{"SUREHOOK_OIDC_ISSUER=https://login.example.com/x", "SUREHOOK_OIDC_CLIENT_ID=us", "SUREHOOK_PUBLIC_URL=https://hooks.example.com"}
	c, err := Load(Source{Environ: whole, File: file(t, "oidc-rules: [\"groups=Platform Ops=admin\", \"email=*@example.com=read\"]\n")})
	if err != nil || len(c.OIDCRules) != 2 || c.OIDCRules[0].Value != "Platform Ops" || c.OIDCSession != 12*time.Hour || strings.Join(c.OIDCScopes, " ") != "email profile" {
		t.Errorf("%+v %v", c.OIDCRules, err)
	}
	for more, want := range map[string]string{
		"":                                    "needs oidc-client-id, oidc-rules",
		"SUREHOOK_OIDC_RULES=,":               "needs oidc-client-id, oidc-rules",
		"SUREHOOK_OIDC_RULES=ops=admin":       "must be claim=value=role",
		"SUREHOOK_OIDC_ISSUER=http://login.x": "must be https",
		"SUREHOOK_OIDC_ISSUER=https://l.x?a":  "as the provider writes it",
		"SUREHOOK_OIDC_SESSION=1m":            "from 5m0s",
	} {
		if _, err := Load(Source{Environ: append(whole[:len(whole):len(whole)], more)}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", more, err)
		}
	}
	_, err = Load(Source{Environ: []string{"SUREHOOK_OIDC_CLIENT_SECRET=planted-secret", "SUREHOOK_OIDC_CLIENT_SECRET_FILE=x"}})
	if err == nil || !strings.Contains(err.Error(), "give one of the two") || strings.Contains(err.Error(), "planted") {
		t.Error(err)
	}
}
