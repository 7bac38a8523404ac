package config

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/relay/audit"
)

func env(pairs ...string) Env {
	return func(name string) (string, bool) {
		for i := 0; i+1 < len(pairs); i += 2 {
			if pairs[i] == name {
				return pairs[i+1], true
			}
		}
		return "", false
	}
}

const full = `
sources:
  - type: log_tail
    path: /var/log/traefik/access.log
    from_beginning: true
  - type: stdin
enrichments:
  - type: lookup
    on_label: tenant
    table:
      acme: {owner: payments, oncall: "pager 1"}
      contoso:
        owner: identity
  - type: http
    on_label: tenant
    url: https://catalog.internal/tenants/{value}/labels
    cache_ttl_s: 0
subscribers:
  - id: siem-prod
    url: https://siem.example.com/ingest?x=1
    secret_env: SIEM
    timeout_ms: 5000
    filter:
      labels: {environment: prod}
      severity_min: high
      blocked_rule_pattern: "injection/*"
    retry: {max_attempts: 3, base_delay_ms: 10, max_delay_ms: 20}
    schemas: [1, 2]
  - id: local
    url: http://127.0.0.1:8080/
    secret_env: SIEM
    enabled: false
relay:
  instance_id: relay-1
  subscriber_queue: 5
  admin_token_env: TOKEN
`

func TestParse_Full(t *testing.T) {
	c, err := Parse("relay.yaml", []byte(full), env("SIEM", " raw bytes\n", "TOKEN", " t0ken "))
	if err != nil {
		t.Fatal(err)
	}
	if want := []Source{{LogTail, "/var/log/traefik/access.log", true}, {Type: Stdin}}; !reflect.DeepEqual(c.Sources, want) {
		t.Errorf("sources %+v", c.Sources)
	}
	if c.Sources[0].ID() != "log_tail:/var/log/traefik/access.log" || c.Sources[1].ID() != "stdin" {
		t.Error("ids of sources")
	}
	if c.Enrichments[0].Table["acme"]["oncall"] != "pager 1" || len(c.Enrichments[0].Table) != 2 {
		t.Errorf("lookup %+v", c.Enrichments[0])
	}
	h := c.Enrichments[1]
	if h.Timeout != 500*time.Millisecond || h.CacheTTL != 0 || h.CacheCapacity != 1024 || len(h.AllowNetworks) == 0 {
		t.Errorf("http %+v", h)
	}
	want := Subscriber{ID: "siem-prod", URL: "https://siem.example.com/ingest?x=1", Secret: Secret(" raw bytes\n"),
		Filter: audit.Filter{Labels: map[string]string{"environment": "prod"}, SeverityMin: audit.High, RulePattern: "injection/*"},
		Retry:  Retry{3, 10 * time.Millisecond, 20 * time.Millisecond}, Timeout: 5 * time.Second, Enabled: true, Schemas: []int{1, 2}}
	if !reflect.DeepEqual(c.Subscribers[0], want) {
		t.Errorf("subscriber %+v", c.Subscribers[0])
	}
	if s := c.Subscribers[1]; s.Enabled || s.Retry != (Retry{8, 500 * time.Millisecond, 10 * time.Minute}) || s.Timeout != 30*time.Second || !reflect.DeepEqual(s.Schemas, []int{1}) {
		t.Errorf("defaults %+v", s)
	}
	if c.Relay.InstanceID != "relay-1" || string(c.Relay.AdminToken) != "t0ken" || c.Relay.PublicOnly {
		t.Errorf("relay %+v", c.Relay)
	}
	if len(c.Warnings) != 1 || c.Warnings[0].Path != "relay.subscriber_queue" {
		t.Errorf("warnings %+v", c.Warnings)
	}
}

func TestParse_SmallestGetsDefaults(t *testing.T) {
	c, err := Parse("r.yml", []byte("sources: [{type: stdin}]\nsubscribers: []\n"), env())
	if err != nil {
		t.Fatal(err)
	}
	if host, _ := os.Hostname(); c.Relay.InstanceID != host && c.Relay.InstanceID != "purple-wolf-relay" {
		t.Errorf("instance %q", c.Relay.InstanceID)
	}
	if len(c.Relay.AdminToken) != 0 || len(c.Warnings) != 1 {
		t.Errorf("%+v", c)
	}
}

// The same file as JSON says the same, also with tabs and in the original's way.
func TestParse_JSON(t *testing.T) {
	text := "{\n\t\"sources\": [{\"type\": \"stdin\"}],\n\t\"subscribers\": [\n\t\t{\"id\": \"a\", \"url\": \"https://a.example/x\", \"secret_env\": \"S\", \"timeout_ms\": 1000, \"enabled\": true, \"filter\": null}\n\t]\n}\n"
	for _, path := range []string{"relay.json", "relay.yaml"} {
		c, err := Parse(path, []byte(text), env("S", "x"))
		if err != nil {
			t.Fatal(err)
		}
		if s := c.Subscribers[0]; s.ID != "a" || s.Timeout != time.Second || !s.Enabled {
			t.Errorf("%+v", s)
		}
	}
	_, err := Parse("relay.json", []byte(strings.Replace(text, `"id"`, `"idd"`, 1)), env("S", "x"))
	problems(t, err, "4:subscribers[0].idd: isn't a field; did you mean id?", "4:subscribers[0].id: is required")
	_, err = Parse("relay.json", []byte("{\n\"sources\": [},\n"), env())
	if p := (*Problems)(nil); !errors.As(err, &p) || p.List[0].Line != 2 || !strings.Contains(p.List[0].Message, "JSON") {
		t.Error(err)
	}
}

// problems compares a refusal with what it should hold, as "line:path: message".
func problems(t *testing.T, err error, want ...string) {
	t.Helper()
	p, ok := errors.AsType[*Problems](err)
	if !ok {
		t.Fatalf("error %v, want %q", err, want)
	}
	var got []string
	for _, x := range p.List {
		got = append(got, fmt.Sprintf("%d:%s: %s", x.Line, x.Path, x.Message))
	}
	for i := range max(len(got), len(want)) {
		g, w := "", ""
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if !strings.HasPrefix(g, w) || w == "" {
			t.Errorf("problem %d:\n got %q\nwant %q", i, g, w)
		}
	}
}

const faulty = `sources:
  - type: log_tail
    pth: /x
  - type: kafka
  - type: stdin
    path: /x
  - {type: stdin}
enrichments:
  - type: lookup
    on_label: Tenant
    table: {acme: {Owner: x, n: 1}}
  - type: http
    on_label: t
    url: https://{value}.example/
  - type: http
    on_label: t
    url: https://catalog.example/x
    allow_networks: [everything]
subscribers:
  - id: a
    url: ftp://a.example
    secret_env: NOT_SET
  - id: a
    url: https://a.example/
    secret: hunter2
    retry: {max_attempts: 0, base_delay_ms: 50, max_delay_ms: 10}
    enabled: "yes"
  - url: https://user:pass@a.example/
    secret_env: EMPTY
    secret_file: /x
    filter: {severity_min: urgent, labels: [], blocked_rule: x}
    timeout_ms: 1.5
    timeout_ms: 10
relay: {instance: x, admin_token_file: /does/not/exist}
extra: true
`

// Every fault at once, each with its line.
func TestParse_EveryFaultAtOnce(t *testing.T) {
	_, err := Parse("relay.yaml", []byte(faulty), env("EMPTY", ""))
	problems(t, err,
		"2:sources[0].path: is required",
		"3:sources[0].pth: isn't a field; did you mean path?",
		"4:sources[1].type: must be stdin or log_tail",
		"6:sources[2].path: isn't a field",
		"7:sources[3]: is there already",
		"10:enrichments[0].on_label: a label's name must",
		"11:enrichments[0].table.acme.n: must be text",
		"11:enrichments[0].table.acme: Owner: a label's name must",
		"14:enrichments[1].url: may hold {value} in its path and query alone",
		"17:enrichments[2].url: must hold {value}",
		"18:enrichments[2].allow_networks[0]: must be a network",
		"21:subscribers[0].url: the URL must start with https://",
		"22:subscribers[0].secret_env: names an environment variable that isn't set",
		"23:subscribers[1].secret: secret_env or secret_file is required",
		"23:subscribers[1].id: is another subscriber's already",
		"25:subscribers[1].secret: isn't a field",
		"26:subscribers[1].retry.max_attempts: must be a whole number from 1 to 100",
		"26:subscribers[1].retry: base_delay_ms is more than max_delay_ms",
		"27:subscribers[1].enabled: must be true or false",
		"28:subscribers[2].id: is required",
		"28:subscribers[2].url: the URL holds a user name or password",
		"30:subscribers[2].secret_file: secret_env is there too",
		"31:subscribers[2].filter.blocked_rule: isn't a field; there are labels, severity_min, blocked_rule_pattern",
		"31:subscribers[2].filter.labels: must be a mapping",
		"31:subscribers[2].filter.severity_min: must be one of low, medium, high, critical",
		"32:subscribers[2].timeout_ms: must be a whole number from 100 to 60000",
		"33:subscribers[2].timeout_ms: is there already, in line 32",
		"34:relay.instance: isn't a field; there are instance_id",
		"34:relay.admin_token_file: names a file that can't be read",
		"35:extra: isn't a field",
	)
	for _, secret := range []string{"hunter2", "pass@", "user:"} {
		if strings.Contains(err.Error(), secret) {
			t.Errorf("the error shows %q", secret)
		}
	}
}

func TestParse_OddDocuments(t *testing.T) {
	for text, want := range map[string]string{
		"":                              "0:: is empty",
		"# nothing\n":                   "0:: is empty",
		"~":                             "0:: is empty",
		"[]":                            "1:: must be a mapping",
		"a: [":                          "1:: isn't valid YAML",
		"a: b\n\tc: d":                  "2:: isn't valid YAML",
		"sources: x\n---\nsources: y":   "0:: holds more than one document",
		"a: &a [*a]":                    "", // one that holds itself
		"{\"sources\": [{\"type\": 1}]": "",
	} {
		_, err := Parse("relay.yaml", []byte(text), env())
		p, ok := errors.AsType[*Problems](err)
		if !ok {
			t.Errorf("%q: %v", text, err)
			continue
		}
		if got := fmt.Sprintf("%d:%s: %s", p.List[0].Line, p.List[0].Path, p.List[0].Message); !strings.HasPrefix(got, want) {
			t.Errorf("%q: %q", text, got)
		}
	}
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [%s]\n", c, c, strings.TrimSuffix(strings.Repeat("*"+string(c-1)+",", 9), ","))
	}
	_, err := Parse("relay.yaml", []byte(bomb), env())
	problems(t, err, "0:: is too large")
}

func TestParse_AliasesStandForWhatTheyName(t *testing.T) {
	c, err := Parse("r.yaml", []byte("sources: [{type: stdin}]\nsubscribers:\n - {id: a, url: https://a.example/, secret_env: S, retry: &r {max_attempts: 2}}\n - {id: b, url: https://a.example/, secret_env: S, retry: *r}\n"), env("S", "x"))
	if err != nil {
		t.Fatal(err)
	}
	if c.Subscribers[1].Retry.MaxAttempts != 2 {
		t.Errorf("%+v", c.Subscribers[1].Retry)
	}
	_, err = Parse("r.yaml", []byte("sources: [{type: stdin}]\nx: &r {id: a}\nsubscribers:\n - {<<: *r, url: https://a.example/, secret_env: S}\n"), env("S", "x"))
	problems(t, err, "2:x: isn't a field", "4:subscribers[0]: merges with <<", "4:subscribers[0].id: is required")
}

func TestParse_SecretFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	text := func(path string) []byte {
		return fmt.Appendf(nil, "sources: [{type: stdin}]\nsubscribers:\n - {id: a, url: https://a.example/, secret_file: %q}\n", path)
	}
	c, err := Parse("r.yaml", text(write("s", " in side \t\r\n\n")), env())
	if err != nil {
		t.Fatal(err)
	}
	if string(c.Subscribers[0].Secret) != " in side" {
		t.Errorf("%q", []byte(c.Subscribers[0].Secret))
	}
	_, err = Parse("r.yaml", text(write("blank", " \n")), env())
	problems(t, err, "3:subscribers[0].secret_file: names a file that is empty")
	_, err = Parse("r.yaml", text(write("big", strings.Repeat("x", 70_000))), env())
	problems(t, err, "3:subscribers[0].secret_file: names a file that is over")
	_, err = Parse("r.yaml", text(dir), env())
	problems(t, err, "3:subscribers[0].secret_file: names a file that can't be read")
	_, err = Parse("r.yaml", text(write("long", strings.Repeat("x", 16<<10+1))), env())
	problems(t, err, "3:subscribers[0].secret_file: names a file that holds over 16384 bytes")
	_, err = Parse("r.yaml", []byte("sources: [{type: stdin}]\nsubscribers:\n - {id: a, url: https://a.example/, secret_env: S}\n"), env("S", strings.Repeat("x", 16<<10+1)))
	problems(t, err, "3:subscribers[0].secret_env: names an environment variable that is over 16384 bytes")
}

// What the engine would refuse, or what would undo another setting, is seen before
// anything is started.
func TestParse_WhatClashes(t *testing.T) {
	const sub = "url: https://a.example/, secret_env: S"
	for _, c := range []struct{ text, want string }{
		{"subscribers:\n - {id: a, " + sub + ", schemas: [1, 2]}\n - {id: a@v2, " + sub + "}", "3:subscribers[1].id: its version 1 goes by the name of a@v2, and so does a version of the subscriber a;"},
		{"subscribers:\n - {id: a@v2, " + sub + "}\n - {id: a, " + sub + ", schemas: [2]}", "3:subscribers[1].id: its version 2 goes by the name of a@v2, and so does a version of the subscriber a@v2;"},
		{"subscribers:\n - {id: a@v2, " + sub + ", schemas: [3]}\n - {id: a, " + sub + ", schemas: [1, 2]}", ""},
		{"relay: {admin_token_env: BLANK}\nsubscribers: []", "1:relay: the admin token is white space alone"},
		{"enrichments: [{type: http, on_label: a, url: 'http://169.254.169.254/{value}'}]\nsubscribers: []", "1:enrichments[0].url: the host is an IP address outside the allowed networks$"},
	} {
		_, err := Parse("r.yaml", []byte(c.text+"\nsources: [{type: stdin}]"), env("S", "s", "BLANK", " \t"))
		if c.want == "" {
			if err != nil {
				t.Error(err)
			}
			continue
		}
		problems(t, err, strings.TrimSuffix(c.want, "$"))
		if strings.HasSuffix(c.want, "$") && strings.Contains(err.Error(), "--") {
			t.Errorf("a flag that a relay hasn't: %v", err)
		}
	}
	_, err := Parse("r.yaml", []byte("sources:\n - {type: log_tail, path: a.log}\n - {type: log_tail, path: ./b/../a.log}\nsubscribers: []"), env())
	problems(t, err, "3:sources[1]: is there already")
	many := strings.Repeat(" -\n", MaxSubscribers+1)
	_, err = Parse("r.yaml", []byte("sources: [{type: stdin}]\nsubscribers:\n"+many), env())
	if p, ok := errors.AsType[*Problems](err); !ok || !slices.ContainsFunc(p.List, func(p Problem) bool { return strings.HasPrefix(p.Message, "are more than 10000") }) {
		t.Error("more subscribers than an event can name are let through")
	}
}

// No way of printing a configuration shows its secrets.
func TestSecretsDontPrint(t *testing.T) {
	c, err := Parse("r.yaml", []byte(full), env("SIEM", "hunter2-secret", "TOKEN", "hunter2-token"))
	if err != nil {
		t.Fatal(err)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s"} {
		if s := fmt.Sprintf(format, *c) + fmt.Sprintf(format, c.Subscribers[0].Secret); strings.Contains(s, "hunter2") {
			t.Errorf("%s shows a secret", format)
		}
	}
}

func TestPublicAddressesOnly(t *testing.T) {
	text := "sources: [{type: stdin}]\nsubscribers:\n - {id: a, url: 'http://10.0.0.1/x', secret_env: S}\nrelay: {public_addresses_only: %v}\n"
	if _, err := Parse("r.yaml", fmt.Appendf(nil, text, false), env("S", "x")); err != nil {
		t.Error(err)
	}
	_, err := Parse("r.yaml", fmt.Appendf(nil, text, true), env("S", "x"))
	problems(t, err, "3:subscribers[0].url: the URL must start with https://")
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(full))
	f.Add([]byte("{\"sources\": [{\"type\": \"stdin\"}], \"subscribers\": []}"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("? [a]\n: b"))
	f.Fuzz(func(t *testing.T, text []byte) {
		c, err := Parse("relay.yaml", text, env("SIEM", "s", "TOKEN", "t"))
		if _, ok := errors.AsType[*Problems](err); err != nil && !ok || (c == nil) == (err == nil) {
			t.Fatalf("%v %v", c, err)
		}
	})
}
