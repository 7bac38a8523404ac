package archtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/surehook/surehook"

// floors is the table of the house: imports point down only, and siblings on a
// floor don't import each other. The empty path is the root package.
var floors = map[string]int{
	"":                     0,
	"signing":              0,
	"store/internal/row":   0,
	"internal/accept":      0,
	"internal/move":        0,
	"receiver":             1,
	"profile":              1,
	"internal/retry":       1,
	"internal/egress":      1,
	"internal/seal":        1,
	"internal/conformance": 1,
	"internal/diagnose":    1,
	"store/sqlite":         1,
	"store/postgres":       1,
	"store/storetest":      1,
	"internal/fanout":      2,
	"internal/dispatch":    2,
	"engine":               3,
	"internal/api":         4,
	"internal/console":     4,
	"internal/sentinel":    4,
	"internal/relay":       4,
	"client":               4,
	"internal/mcp":         5,
	"internal/config":      5,
	"internal/app":         5,
	"internal/cli":         5,
	"cmd/surehook":         5,
}

// Sibling imports that the table allows, each with its reason.
var siblings = map[string]string{
	"cmd/surehook -> internal/cli":      "main starts the commands",
	"internal/cli -> internal/app":      "the serve command starts the wiring",
	"internal/cli -> internal/config":   "every command reads its options",
	"internal/app -> internal/config":   "the wiring follows the options",
	"internal/cli -> examples/events":   "the demo publishes the examples, from anywhere",
	"store/internal/row -> ":            "what it writes down are the domain's values",
	"internal/accept -> ":               "what it accepts are the domain's events",
	"internal/api -> internal/sentinel": "it answers what callers see of sentinels",
	"internal/move -> ":                 "its errors are the domain's",
	"internal/cli -> internal/mcp":      "the mcp command starts it",
}

// exempt packages may import anything of the module, and nothing on a floor
// may import them: they measure, test or show.
var exempt = []string{"bench", "internal/receivertest", "internal/pgserver", "internal/archtest", "examples", "deploy", "docs", "internal/tools"}

// pure packages use the standard library and each other alone, so that a
// receiver who imports them gets nothing else.
var pure = []string{"", "signing", "receiver"}

// pkg is what go list tells of a package.
type pkg struct {
	ImportPath, Dir                    string
	GoFiles, TestGoFiles, XTestGoFiles []string
	Imports, TestImports, XTestImports []string
}

// name is the path within the module.
func (p pkg) name() string { return name(p.ImportPath) }

func name(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

// list asks go list once for all tests.
var list = sync.OnceValues(func() ([]pkg, error) {
	cmd := exec.Command("go", "list", "-e", "-json=ImportPath,Dir,GoFiles,TestGoFiles,XTestGoFiles,Imports,TestImports,XTestImports", module+"/...")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, errors.Join(err, errors.New(stderr.String()))
	}
	var pkgs []pkg
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return pkgs, nil
		} else if err != nil {
			return nil, err
		}
		pkgs = append(pkgs, p)
	}
})

func packages(t *testing.T) []pkg {
	t.Helper()
	pkgs, err := list()
	if err != nil {
		t.Fatal(err)
	}
	if len(pkgs) < 2 {
		t.Fatal("go list found no packages")
	}
	return pkgs
}

func isExempt(name string) bool {
	return slices.ContainsFunc(exempt, func(e string) bool { return name == e || strings.HasPrefix(name, e+"/") })
}

// floor finds the floor of a package: its own, or that of the package above it
// whose part it is.
func floor(name string) (home string, level int, ok bool) {
	for home = name; ; home = filepath.ToSlash(filepath.Dir(home)) {
		if level, ok = floors[home]; ok && (home != "" || name == "") {
			return home, level, true
		}
		if !strings.Contains(home, "/") {
			return "", 0, false
		}
	}
}

// judge says what is wrong with from importing to, both names within the
// module; empty: nothing.
func judge(from, to string) string {
	if isExempt(from) {
		return ""
	}
	if isExempt(to) && siblings[from+" -> "+to] == "" {
		return "it is for tests and measuring only"
	}
	fromHome, fromFloor, ok := floor(from)
	if !ok {
		return "" // TestEveryPackageHasAFloor tells
	}
	toHome, toFloor, ok := floor(to)
	switch {
	case !ok:
		return ""
	case fromHome == toHome:
		return ""
	case toFloor > fromFloor:
		return "imports point down only"
	case toFloor == fromFloor && siblings[fromHome+" -> "+toHome] == "":
		return "siblings on a floor don't import each other"
	}
	return ""
}

func TestEveryPackageHasAFloor(t *testing.T) {
	for _, p := range packages(t) {
		if _, _, ok := floor(p.name()); !ok && !isExempt(p.name()) {
			t.Errorf("%s stands on no floor: add it to the table, and to the one in the design", p.ImportPath)
		}
	}
}

func TestImportsPointDown(t *testing.T) {
	for _, p := range packages(t) {
		for _, path := range p.Imports {
			if path != module && !strings.HasPrefix(path, module+"/") {
				continue
			}
			if why := judge(p.name(), name(path)); why != "" {
				t.Errorf("%s imports %s: %s", p.ImportPath, path, why)
			}
		}
	}
}

func TestPurePackagesUseTheStandardLibraryAlone(t *testing.T) {
	for _, p := range packages(t) {
		if !slices.Contains(pure, p.name()) {
			continue
		}
		for _, path := range p.Imports {
			if slices.Contains(pure, name(path)) && strings.HasPrefix(path, module) {
				continue
			}
			if first, _, _ := strings.Cut(path, "/"); strings.Contains(first, ".") {
				t.Errorf("%s imports %s", p.ImportPath, path)
			}
		}
	}
}

// The rule itself, held against cases.
func TestJudge(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"engine", "internal/dispatch", true},
		{"engine", "", true},
		{"engine", "internal/api", false},
		{"internal/dispatch", "internal/fanout", false},
		{"internal/dispatch", "profile", true},
		{"profile", "internal/retry", false},
		{"store/sqlite/migrations", "store/sqlite", true},
		{"store/sqlite/migrations", "store/postgres", false},
		{"signing", "", false},
		{"internal/cli", "internal/app", true},
		{"internal/app", "internal/cli", false},
		{"engine", "internal/receivertest", false},
		{"bench", "internal/cli", true},
		{"examples/receivers/go", "receiver", true},
	} {
		if why := judge(c.from, c.to); (why == "") != c.ok {
			t.Errorf("%s -> %s: %q", c.from, c.to, why)
		}
	}
	for _, n := range []string{"util", "internal/util", "store", "internal"} {
		if _, _, ok := floor(n); ok {
			t.Errorf("%s has a floor", n)
		}
	}
}
