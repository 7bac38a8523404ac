package egress

import (
	"os"
	"strconv"
	"strings"
	"testing"
)

// row is one line of testdata/ssrf.tsv.
type row struct{ id, kind, input, verdict, reason string }

// unescape decodes the file's \t, \n, \r, \\, \", \xNN, \uXXXX and \UXXXXXXXX.
func unescape(t *testing.T, s string) string {
	t.Helper()
	out, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.ReplaceAll(s, `\"`, `"`), `"`, `\"`) + `"`)
	if err != nil {
		t.Fatalf("unescape %q: %v", s, err)
	}
	return out
}

func lines(t *testing.T, file string, columns int) [][]string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out [][]string
	for i, line := range strings.Split(strings.TrimSuffix(string(data), "\n"), "\n") {
		if i == 0 || line == "" {
			continue
		}
		f := strings.Split(line, "\t")
		if len(f) != columns {
			t.Fatalf("%s:%d: %d columns", file, i+1, len(f))
		}
		out = append(out, f)
	}
	return out
}

func rows(t *testing.T) []row {
	t.Helper()
	var out []row
	for _, f := range lines(t, "testdata/ssrf.tsv", 5) {
		out = append(out, row{f[0], f[1], unescape(t, f[2]), f[3], f[4]})
	}
	if len(out) < 500 {
		t.Fatalf("only %d rows", len(out))
	}
	return out
}

// ownHost is the host that rows about our own service mean.
const ownHost = "hooks.our-own-service.example.com"

func TestRowsAddresses(t *testing.T) {
	g := NewGuard(nil, nil)
	for _, r := range rows(t) {
		if r.kind != "ip" {
			continue
		}
		t.Run(r.id, func(t *testing.T) {
			if v := g.CheckAddr(r.input); v.Verdict != r.verdict || (v.Code == "") != (r.verdict == "allow") {
				t.Errorf("%q: %+v, want %s (%s)", r.input, v, r.verdict, r.reason)
			}
		})
	}
}

// Rows whose verdict needs a look-up are run in dns_test.go and e2e_test.go.
func lexical(r row) bool {
	return r.kind == "url" && !strings.HasPrefix(r.id, "dns-") && !strings.HasPrefix(r.id, "redir-")
}

func TestRowsURLs(t *testing.T) {
	g := NewGuard(nil, []string{ownHost})
	for _, r := range rows(t) {
		if r.kind != "url" {
			continue
		}
		want := r.verdict
		if !lexical(r) {
			want = "allow" // by its text
		}
		t.Run(r.id, func(t *testing.T) {
			target, err := g.ParseURL(r.input)
			if got := map[bool]string{true: "allow", false: "block"}[err == nil]; got != want {
				t.Errorf("%q: %s (%v), want %s (%s)", r.input, got, err, want, r.reason)
			}
			if err != nil && len(r.input) > 12 && strings.Contains(err.Error(), r.input) {
				t.Errorf("the refusal echoes the URL: %v", err)
			}
			if err == nil {
				again, err := g.ParseURL(target.URL())
				if err != nil || again.URL() != target.URL() {
					t.Errorf("%q isn't canonical: %v", target.URL(), err)
				}
			}
		})
	}
}
