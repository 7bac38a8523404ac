package deploy

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/config"
)

const (
	rulesFile     = "prometheus/rules.yml"
	dashboardFile = "grafana/surehook.json"
	metricsPage   = "../docs/metrics.md"
)

type rule struct {
	Alert string `yaml:"alert"`
	Expr  string `yaml:"expr"`
}

func rules(t *testing.T) []rule {
	t.Helper()
	text, err := os.ReadFile(rulesFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Rules []rule `yaml:"rules"`
		} `yaml:"groups"`
	}
	if err := yaml.Unmarshal(text, &file); err != nil || len(file.Groups) != 1 {
		t.Fatal(err)
	}
	return file.Groups[0].Rules
}

type dashboard struct {
	Panels []struct {
		Title, Description, Type string
		Targets                  []struct{ Expr string }
	}
}

func board(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile(dashboardFile)
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	if len(d.Panels) < 15 {
		t.Fatalf("%d panels", len(d.Panels))
	}
	return d
}

// Each alert has a case that fires it and one in which it is silent.
func TestAlertRules(t *testing.T) {
	tool(t, "prometheus", "check", "rules", "rules.yml")
	tool(t, "prometheus", "test", "rules", "rules_test.yml")
	cases, err := os.ReadFile("prometheus/rules_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rules(t) {
		if n := strings.Count(string(cases), "alertname: "+r.Alert); n < 3 {
			t.Errorf("%s: %d cases; one in which all is well, one before it fires and one in which it does are needed", r.Alert, n)
		}
	}
}

// What the panels ask for is PromQL: promtool reads it as recording rules.
func TestDashboardExpressions(t *testing.T) {
	var b strings.Builder
	b.WriteString("groups:\n  - name: dashboard\n    rules:\n")
	n := 0
	for _, p := range board(t).Panels {
		if p.Type != "row" && (len(p.Targets) == 0 || p.Description == "") {
			t.Errorf("%s asks for nothing, or doesn't say what it shows", p.Title)
		}
		for _, target := range p.Targets {
			n++
			expr := strings.NewReplacer("$__rate_interval", "5m", "$__range", "6h", "$job", ".*").Replace(target.Expr)
			fmt.Fprintf(&b, "      - record: panel:%d\n        expr: %q\n", n, expr)
		}
	}
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "panels.yml"), []byte(b.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	tool(t, dir, "check", "rules", "panels.yml")
}

// scrape gives what a running server exposes: each family's labels.
func scrape(t *testing.T) map[string][]string {
	t.Helper()
	cfg := config.Default()
	cfg.Listen, cfg.Data = "127.0.0.1:0", filepath.Join(t.TempDir(), "d")
	a, err := app.Start(t.Context(), cfg, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Addr.String()+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatal(resp.StatusCode, err)
	}
	out := map[string][]string{}
	sample := regexp.MustCompile(`(?m)^([a-z_]+)(?:\{(.*)\})? \S+$`)
	for _, m := range sample.FindAllStringSubmatch(string(body), -1) {
		labels := out[m[1]]
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			if !slices.Contains(labels, l[1]) {
				labels = append(labels, l[1])
			}
		}
		out[m[1]] = labels
	}
	return out
}

var (
	label    = regexp.MustCompile(`([a-z_]+)(?:=|!=|=~|!~)"`)
	selector = regexp.MustCompile(`\b((?:webhook|outbox|store|surehook)_[a-z_]+)(?:\{([^}]*)\})?`)
	grouping = regexp.MustCompile(`\bby \(([^)]*)\)`)
)

// asked gives what an expression asks for: metrics, with the labels that they are
// to have.
func asked(expr string) map[string][]string {
	out := map[string][]string{}
	var by []string
	for _, m := range grouping.FindAllStringSubmatch(expr, -1) {
		by = append(by, strings.Split(strings.ReplaceAll(m[1], " ", ""), ",")...)
	}
	for _, m := range selector.FindAllStringSubmatch(grouping.ReplaceAllString(expr, ""), -1) {
		out[m[1]] = append(out[m[1]], by...)
		for _, l := range label.FindAllStringSubmatch(m[2], -1) {
			out[m[1]] = append(out[m[1]], l[1])
		}
	}
	return out
}

// Whatever the dashboard and the rules ask for, a running server has.
func TestMetricsExist(t *testing.T) {
	exposed := scrape(t)
	check := func(where, expr string) {
		names := asked(expr)
		if len(names) == 0 {
			t.Errorf("%s asks for no metric: %s", where, expr)
		}
		for name, labels := range names {
			has, ok := exposed[name]
			if !ok {
				t.Errorf("%s: the server has no %s", where, name)
			}
			for _, l := range labels {
				if !slices.Contains(has, l) && l != "job" && l != "instance" { // Prometheus adds these
					t.Errorf("%s: %s has no label %s", where, name, l)
				}
			}
		}
	}
	for _, r := range rules(t) {
		check(r.Alert, r.Expr)
	}
	for _, p := range board(t).Panels {
		for _, target := range p.Targets {
			check(p.Title, target.Expr)
		}
	}
}

// The page of metrics has each one, with its labels; and none that isn't there.
func TestMetricsAreDocumented(t *testing.T) {
	page, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	documented := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1) {
		documented[m[1]] = m[2]
	}
	seen := map[string]bool{}
	for name, labels := range scrape(t) {
		if !selector.MatchString(name) {
			continue // the language's and the process's own
		}
		for _, part := range []string{"_bucket", "_sum", "_count"} {
			name = strings.TrimSuffix(name, part)
		}
		seen[name] = true
		row, ok := documented[name]
		if !ok {
			t.Errorf("%s isn't in %s", name, metricsPage)
		}
		for _, l := range labels {
			if l != "le" && !strings.Contains(row, "`"+l+"`") {
				t.Errorf("%s: %s doesn't tell of the label %s", metricsPage, name, l)
			}
		}
	}
	for name := range documented {
		if !seen[name] {
			t.Errorf("%s tells of %s, which no server exposes", metricsPage, name)
		}
	}
}
