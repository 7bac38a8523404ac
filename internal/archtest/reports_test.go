package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// reportRow is a line of the table in docs/field-reports.md.
type reportRow struct{ id, what, where string }

var (
	reportLine = regexp.MustCompile(`^\| ([A-Z]-\d\d) \|(.*)\|(.*)\|$`)
	testName   = regexp.MustCompile("`((?:Test|Fuzz|Example)[^`]*)`")
)

// readReports gives the rows, and complains of those that can't be read.
func readReports(page string, complain func(format string, args ...any)) []reportRow {
	var rows []reportRow
	seen := map[string]bool{}
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		m := reportLine.FindStringSubmatch(line)
		switch {
		case m == nil && regexp.MustCompile(`^\| *[A-Z]-\d`).MatchString(line):
			complain("no row: %s", line)
		case m == nil:
		case seen[m[1]]:
			complain("%s is there twice", m[1])
		default:
			seen[m[1]] = true
			rows = append(rows, reportRow{m[1], strings.TrimSpace(m[2]), strings.TrimSpace(m[3])})
		}
	}
	return rows
}

// missing tells what a row names that isn't in the code.
func (r reportRow) missing(code string) string {
	names := testName.FindAllStringSubmatch(r.where, -1)
	if r.what == "" || r.where == "" {
		return "it says nothing"
	}
	for _, n := range names {
		f, sub, _ := strings.Cut(n[1], "/")
		if !strings.Contains(code, "func "+f+"(") || !strings.Contains(code, sub) {
			return "there is no " + n[1]
		}
	}
	if len(names) > 0 && !regexp.MustCompile(`\b`+r.id+`\b`).MatchString(code) {
		return "no test is named by it"
	}
	return ""
}

// Every test that the page of field reports names is there, and bears the
// report's id.
func TestFieldReportsHaveTheirTests(t *testing.T) {
	root, paths := files(t)
	scripts, err := filepath.Glob(filepath.Join(root, "internal/*/testdata/*/*.txtar"))
	if err != nil {
		t.Fatal(err)
	}
	var code strings.Builder
	for _, path := range append(paths, scripts...) {
		if strings.HasSuffix(filepath.ToSlash(path), "internal/archtest/reports_test.go") {
			continue
		}
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		code.WriteString(filepath.Base(path) + "\n")
		code.Write(b)
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "field-reports.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := readReports(string(page), t.Errorf)
	if len(rows) < 60 {
		t.Errorf("%d rows: the table isn't read", len(rows))
	}
	for _, r := range rows {
		if why := r.missing(code.String()); why != "" {
			t.Errorf("%s: %s", r.id, why)
		}
	}
}

func TestReadReports(t *testing.T) {
	complaints := 0
	rows := readReports("| id | what | test |\n| A-01 | x | `TestA`, `TestB/sub` |\n| A-01 | x | y |\n| A-2 | x | y |\n| B-03 | x | none: later |\n",
		func(string, ...any) { complaints++ })
	if len(rows) != 2 || complaints != 2 {
		t.Fatalf("%v, %d complaints", rows, complaints)
	}
	for code, ok := range map[string]bool{
		"func TestA() // A-01 func TestB( sub":  true,
		"func TestA() // A-01 func TestB(":      false,
		"func TestA() // A-01 func TestB2( sub": false,
		"func TestA() // A-011 func TestB( sub": false,
	} {
		if why := rows[0].missing(code); (why == "") != ok {
			t.Errorf("%s: %q", code, why)
		}
	}
	if why := rows[1].missing(""); why != "" {
		t.Error(why)
	}
	if (reportRow{"A-01", "x", ""}).missing("") == "" {
		t.Error("a row without a test needs a reason")
	}
}
