package archtest

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var rowName = regexp.MustCompile(`"([^"]+)"`)

// Every rule of the page names tests that are there, and rows of theirs.
func TestRulesOfTheMailPlatformHaveTheirTests(t *testing.T) {
	root, paths := files(t)
	var code strings.Builder
	for _, path := range paths {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(filepath.ToSlash(path), "store/storetest/") {
			b, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(b)
		}
	}
	page, err := os.ReadFile(filepath.Join(root, "docs", "pylota.md"))
	if err != nil {
		t.Fatal(err)
	}
	rules := rulesOf(string(page))
	if len(rules) < 30 {
		t.Errorf("%d rules: the tables aren't read", len(rules))
	}
	for _, r := range rules {
		if why := r.without(code.String()); why != "" {
			t.Errorf("%s: %s", r.what, why)
		}
	}
}

// rulesOf reads the rows of all tables.
func rulesOf(page string) []reportRow {
	var rows []reportRow
	section := ""
	for line := range strings.Lines(page) {
		if name, ok := strings.CutPrefix(line, "## "); ok {
			section = strings.TrimSpace(name)
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), " | ")
		if section == "" || !strings.HasPrefix(line, "| ") || len(cells) != 2 || strings.TrimSpace(cells[0]) == "rule" {
			continue
		}
		rows = append(rows, reportRow{id: section, what: strings.TrimSpace(cells[0]), where: strings.TrimSpace(cells[1])})
	}
	return rows
}

// without tells what a rule names that isn't in the code. One without a test says
// why, after a dash.
func (r reportRow) without(code string) string {
	names := testName.FindAllStringSubmatch(r.where, -1)
	if len(names) == 0 && !strings.HasPrefix(r.where, "– ") {
		return "no test is named, and no reason given"
	}
	for _, n := range names {
		f, sub, _ := strings.Cut(n[1], "/")
		if !strings.Contains(code, "func "+f+"(") || !strings.Contains(code, sub) {
			return "there is no " + n[1]
		}
	}
	for _, n := range rowName.FindAllStringSubmatch(r.where, -1) {
		if !strings.Contains(code, `"`+n[1]+`"`) {
			return "no test has a row " + n[0]
		}
	}
	return ""
}

func TestRulesOf(t *testing.T) {
	rows := rulesOf("| rule | x |\n## A\n| rule | test |\n|---|---|\n| one | `TestA`: \"row\" |\n| two | – nothing to test |\n| three | |\n")
	if len(rows) != 3 || rows[0].what != "one" || rows[1].id != "A" {
		t.Fatalf("%+v", rows)
	}
	for code, ok := range map[string]bool{`func TestA() { "row" }`: true, `func TestA() { row }`: false, `func TestB() { "row" }`: false} {
		if why := rows[0].without(code); (why == "") != ok {
			t.Errorf("%s: %q", code, why)
		}
	}
	if why := rows[1].without(""); why != "" {
		t.Error(why)
	}
	if rows[2].without("") == "" || (reportRow{where: "later"}).without("") == "" {
		t.Error("a rule without a test needs a reason")
	}
}
