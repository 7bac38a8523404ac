//go:build unix

package pgserver

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// fake makes a folder with programs of a version.
func fake(t *testing.T, dir, version string, programs ...string) string {
	t.Helper()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, p := range programs {
		script := fmt.Sprintf("#!/bin/sh\necho '%s (PostgreSQL) %s'\n", p, version)
		if err := os.WriteFile(filepath.Join(dir, p), []byte(script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestFind(t *testing.T) {
	root, err := absolute(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) string { return filepath.Join(root, name) }
	fake(t, at("lib/9/bin"), "9.6", "postgres", "initdb")
	fake(t, at("lib/14/bin"), "14.2", "postgres", "initdb")
	old := []string{at("lib/*/bin")}
	path := at("path")
	t.Setenv("PATH", path)

	if _, err := find(nil); err == nil || !strings.Contains(err.Error(), "found none") || !strings.Contains(err.Error(), "install") || !strings.Contains(err.Error(), Env) {
		t.Error(err)
	}
	if _, err := find(old); err == nil || !strings.Contains(err.Error(), "lib/14/bin has version 14") {
		t.Error(err)
	}
	fake(t, at("new/15/bin"), "15.18 (Debian 15.18-0+deb12u1)", "postgres", "initdb")
	fake(t, at("new/101/bin"), "101beta1", "postgres", "initdb")
	fake(t, at("new/102/bin"), "102", "postgres") // a server without initdb
	places := []string{at("lib/*/bin"), at("new/*/bin")}
	want := func(dir string) {
		t.Helper()
		if got, err := find(places); err != nil || got != at(dir) {
			t.Errorf("%s %v, want %s", got, err, at(dir))
		}
	}
	want("new/101/bin")
	fake(t, path, "103", "postgres") // a wrapper, with no initdb beside it
	want("new/101/bin")
	fake(t, path, "14", "initdb")
	fake(t, path, "14", "postgres")
	want("new/101/bin")
	for _, p := range []string{"postgres", "initdb"} {
		if err := os.Remove(filepath.Join(path, p)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(at("new/15/bin/initdb"), filepath.Join(path, "initdb")); err != nil {
		t.Fatal(err)
	}
	want("new/15/bin")
}

func TestVersion(t *testing.T) {
	for line, want := range map[string]int{
		"postgres (PostgreSQL) 15.18 (Debian 15.18-0+deb12u1)\n": 15,
		"postgres (PostgreSQL) 18beta1":                          18,
		"postgres (PostgreSQL) 17":                               17,
	} {
		if got, err := parseVersion(line); err != nil || got != want {
			t.Error(line, got, err)
		}
	}
	for _, line := range []string{"", "postgres (EnterpriseDB) 15", "postgres (PostgreSQL) x"} {
		if got, err := parseVersion(line); err == nil {
			t.Error(line, got)
		}
	}
}
