package pgserver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
)

// MinVersion is the oldest PostgreSQL that Surehook is tested with.
const MinVersion = 15

// places are where packages put the programs of a version, which are often not
// on the PATH.
var places = []string{
	"/usr/lib/postgresql/*/bin",                // Debian, Ubuntu
	"/usr/pgsql-*/bin",                         // the PostgreSQL project's RPMs
	"/usr/libexec/postgresql*",                 // Alpine
	"/opt/homebrew/opt/postgresql@*/bin",       // Homebrew
	"/usr/local/opt/postgresql@*/bin",          // Homebrew on Intel
	"/usr/local/pgsql/bin",                     // built from source
	"/Library/PostgreSQL/*/bin",                // the installer for macOS
	"/Applications/Postgres.app/*/*/*/bin",     // Postgres.app
	"/opt/local/lib/postgresql*/bin",           // MacPorts
	"/run/current-system/sw/bin",               // NixOS
	"/usr/local/lib/postgresql/bin",            // BSD
	"/home/linuxbrew/.linuxbrew/opt/*sql*/bin", // Homebrew on Linux
}

// Find tells the folder that holds initdb and postgres, of version MinVersion
// or later: the one on the PATH, else the newest of those where packages put
// them. The error says what to install.
func Find() (bin string, err error) { return find(places) }

func find(places []string) (string, error) {
	var tooOld []string
	try := func(dir string) int {
		v, err := version(dir)
		if err == nil && v < MinVersion {
			tooOld = append(tooOld, fmt.Sprintf("%s has version %d", dir, v))
		}
		return v
	}
	for _, program := range []string{"postgres", "initdb"} {
		if path, err := exec.LookPath(program); err == nil {
			// A link leads to the folder with the rest; beside a wrapper there
			// is none, and version says so.
			if path, err = filepath.EvalSymlinks(path); err == nil && try(filepath.Dir(path)) >= MinVersion {
				return filepath.Dir(path), nil
			}
		}
	}
	type found struct {
		dir     string
		version int
	}
	var all []found
	for _, p := range places {
		dirs, _ := filepath.Glob(p) // its only error is a bad pattern
		for _, dir := range dirs {
			if v := try(dir); v >= MinVersion {
				all = append(all, found{dir, v})
			}
		}
	}
	if len(all) > 0 {
		return slices.MaxFunc(all, func(a, b found) int { return cmp.Compare(a.version, b.version) }).dir, nil
	}
	why := "found none"
	if len(tooOld) > 0 {
		slices.Sort(tooOld)
		why = strings.Join(slices.Compact(tooOld), ", ")
	}
	return "", fmt.Errorf("pgserver: PostgreSQL %d or later is needed, with initdb and postgres: %s; %s", MinVersion, why, advice())
}

// advice says how to get a server here.
func advice() string {
	how := "install the package postgresql (Debian, Ubuntu: `apt-get install postgresql`; Fedora: `dnf install postgresql-server`; Alpine: `apk add postgresql`)"
	switch runtime.GOOS {
	case "darwin":
		how = "install it with `brew install postgresql@17`"
	case "windows":
		how = "servers can't be started on Windows"
	}
	return how + ", or name a running server in " + Env + " (a DSN like postgres://user:password@host:5432/postgres)"
}

// version asks the programs in a folder for their major version. It is an error
// when initdb or postgres isn't among them.
func version(dir string) (int, error) {
	if _, err := os.Stat(filepath.Join(dir, "initdb")); err != nil {
		return 0, err
	}
	out, err := exec.CommandContext(context.Background(), filepath.Join(dir, "postgres"), "--version").Output() //nolint:gosec // from the PATH, or where packages put it
	if err != nil {
		return 0, err
	}
	return parseVersion(string(out))
}

// parseVersion reads the major version from a line like
// "postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)", "… 18beta1" included.
func parseVersion(line string) (int, error) {
	_, v, ok := strings.Cut(line, "(PostgreSQL) ")
	if !ok {
		return 0, errors.New("pgserver: not a version line of PostgreSQL: " + strconv.Quote(line))
	}
	end := strings.IndexFunc(v, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(v)
	}
	return strconv.Atoi(v[:end])
}
