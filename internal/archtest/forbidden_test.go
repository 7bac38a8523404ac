package archtest

import (
	"path"
	"slices"
	"strings"
	"testing"
)

// ban is an import that nobody may have, why, and who may after all.
type ban struct {
	path   string // with a trailing /: everything below it
	why    string
	except []string // packages within the module; their tests too
	tests  bool     // tests are held to it as well
}

var bans = []ban{
	{path: "math/rand", why: "v1 has a global source; inject a random function, or use math/rand/v2 in tests", tests: true},
	{path: "math/rand/v2", why: "randomness is injected, so that tests can repeat a run",
		except: []string{"cmd/surehook", "internal/app", "bench", "internal/receivertest", "engine"}},
	{path: "io/ioutil", why: "deprecated; io and os have it all", tests: true},
	{path: "log", why: "use log/slog with an injected logger"},
	{path: "database/sql", why: "the stores use their drivers' native API, which is what the speed rests on",
		except: []string{"store/sqlite", "store/postgres", "engine", "examples", "receiver"}}, // receiver works in its user's database
	{path: "unsafe", why: "nothing here needs it"},
	{path: "plugin", why: "needs cgo"},
	{path: "expvar", why: "publishes on the default mux and in global variables; metrics go through a registry"},
	{path: "net/http/pprof", why: "registers itself on the default mux",
		except: []string{"internal/app", "bench"}},
	{path: "C", why: "the binary is built with cgo off", tests: true},
	{path: "github.com/pkg/errors", why: "fmt.Errorf with %w does it", tests: true},
	{path: "github.com/sirupsen/logrus", why: "use log/slog", tests: true},
	{path: "go.uber.org/zap", why: "use log/slog", tests: true},
	{path: "github.com/mattn/go-sqlite3", why: "needs cgo; two SQLite libraries in one process break each other's locks",
		except: []string{"bench"}},
	{path: "modernc.org/sqlite", why: "two SQLite libraries in one process break each other's locks",
		except: []string{"bench"}},
	{path: "github.com/lib/pq", why: "pgx is the one driver", tests: true},
	{path: "github.com/spf13/viper", why: "options come from one table through koanf", tests: true},
	{path: "github.com/google/uuid", why: "ids are ULIDs, from an injected source", tests: true},
	{path: "github.com/stretchr/testify", why: "the standard library's testing is enough, and reads the same everywhere", tests: true},
	{path: "github.com/standard-webhooks/", why: "it is the oracle of our tests, not a part of the product"},
	{path: "github.com/cloudevents/", why: "it is the oracle of our tests, not a part of the product"},
	{path: "code.dny.dev/ssrf", why: "it is the oracle of our tests, not a part of the product"},
}

func (b ban) covers(imported string) bool {
	return imported == b.path || strings.HasSuffix(b.path, "/") && strings.HasPrefix(imported, b.path) ||
		strings.Contains(b.path, ".") && strings.HasPrefix(imported, b.path+"/")
}

func (b ban) excepts(pkg string) bool {
	return slices.ContainsFunc(b.except, func(e string) bool { return pkg == e || strings.HasPrefix(pkg, e+"/") })
}

// banned finds the ban that an import breaks.
func banned(pkg, imported string, test bool) (ban, bool) {
	for _, b := range bans {
		if b.covers(imported) && (!test || b.tests) && !b.excepts(pkg) {
			return b, true
		}
	}
	return ban{}, false
}

func TestForbiddenImports(t *testing.T) {
	for _, p := range packages(t) {
		check := func(imports []string, test bool) {
			for _, imported := range imports {
				if b, hit := banned(p.name(), imported, test); hit {
					t.Errorf("%s imports %s: %s", p.ImportPath, imported, b.why)
				}
			}
		}
		check(p.Imports, false)
		check(p.TestImports, true)
		check(p.XTestImports, true)
	}
}

// Names that say nothing about what is inside collect everything.
func TestNoPackageIsABagOfThings(t *testing.T) {
	vague := []string{"util", "utils", "common", "helper", "helpers", "misc", "shared", "manager", "models", "base", "lib", "core"}
	for _, p := range packages(t) {
		if slices.Contains(vague, path.Base(p.name())) {
			t.Errorf("%s: a package is named for what it does", p.ImportPath)
		}
	}
}

func TestBans(t *testing.T) {
	for _, b := range bans {
		if b.path == "" || b.why == "" {
			t.Errorf("%+v: a ban has a path and a reason", b)
		}
	}
	for _, c := range []struct {
		pkg, imported string
		test, hit     bool
	}{
		{"engine", "math/rand", false, true},
		{"engine", "math/rand", true, true},
		{"internal/dispatch", "math/rand/v2", false, true},
		{"internal/dispatch", "math/rand/v2", true, false},
		{"engine", "log", false, true},
		{"engine", "log/slog", false, false},
		{"internal/api", "database/sql", false, true},
		{"internal/api", "database/sql/driver", false, false},
		{"store/postgres", "database/sql", false, false},
		{"signing", "github.com/standard-webhooks/standard-webhooks/libraries/go", false, true},
		{"signing", "github.com/standard-webhooks/standard-webhooks/libraries/go", true, false},
		{"signing", "github.com/stretchr/testify/require", true, true},
	} {
		if _, hit := banned(c.pkg, c.imported, c.test); hit != c.hit {
			t.Errorf("%s -> %s, test %v: %v", c.pkg, c.imported, c.test, hit)
		}
	}
}
