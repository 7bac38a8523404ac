package deploy

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// promtool finds the program, or fetches it: out of Debian's package prometheus,
// which isn't installed, so that no server begins to run. Without it the test
// fails.
func promtool(t *testing.T) string {
	t.Helper()
	if path, err := exec.LookPath("promtool"); err == nil {
		return path
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	dir := filepath.Join(cache, "surehook-prometheus")
	path := filepath.Join(dir, "usr", "bin", "promtool")
	if err := fetch(t.Context(), dir, path); err != nil {
		t.Fatalf("promtool is needed: put it on the PATH, or install the package prometheus: %v", err)
	}
	return path
}

// fetch unpacks the package into dir, once; processes take turns.
func fetch(ctx context.Context, dir, path string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	lock := flock.New(filepath.Join(dir, "lock"))
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return err
	}
	defer func() { _ = lock.Close() }() // it ends with the process anyway
	if exec.CommandContext(ctx, path, "--version").Run() == nil {
		return nil
	}
	run := func(name string, args ...string) error {
		cmd := exec.CommandContext(ctx, name, args...)
		cmd.Dir, cmd.Env = dir, append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%s %s: %w\n%s", name, args[0], err, out)
		}
		return nil
	}
	// "-o APT::Sandbox::User=root" keeps apt from warning of the private directory.
	download := func() error { return run("apt-get", "download", "-q", "-o", "APT::Sandbox::User=root", "prometheus") }
	if err := download(); err != nil { // the list of packages may be old, or not be there
		if err := errors.Join(run("apt-get", "update", "-q"), download()); err != nil {
			return err
		}
	}
	packages, err := filepath.Glob(filepath.Join(dir, "prometheus_*.deb"))
	if err != nil || len(packages) == 0 {
		return errors.Join(errors.New("apt-get downloaded no package"), err)
	}
	if err := run("dpkg", "-x", packages[len(packages)-1], "."); err != nil {
		return err
	}
	return exec.CommandContext(ctx, path, "--version").Run()
}

// tool runs promtool in a directory.
func tool(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), promtool(t), args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("promtool %v: %v\n%s", args, err, out)
	}
}
