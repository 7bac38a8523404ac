package pgserver

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
)

// createCluster keeps Debian's and Ubuntu's packages from starting a server of
// their own while we install.
const createCluster = "/etc/postgresql-common/createcluster.d/surehook.conf"

// Install sees to it that Find finds PostgreSQL: where there is none, it
// installs the package postgresql, which takes root and apt-get. It leaves no
// server running. The error says what to do by hand. Processes that install at
// the same time take turns.
func Install(ctx context.Context) error {
	return installed(ctx, "postgresql", func() error {
		_, err := Find()
		return err
	})
}

// installed sees to it that find succeeds, by installing a package.
func installed(ctx context.Context, name string, find func() error) error {
	missing := find()
	if missing == nil {
		return nil
	}
	apt, err := exec.LookPath("apt-get")
	if err != nil || os.Geteuid() != 0 {
		return missing
	}
	lock := flock.New(filepath.Join(os.TempDir(), "surehook-pgserver-install.lock"))
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		return fmt.Errorf("pgserver: waiting for another process that installs: %w", err)
	}
	defer func() { _ = lock.Close() }() // it ends with the process anyway
	if missing = find(); missing == nil {
		return nil
	}
	if err := install(ctx, apt, name); err != nil {
		return errors.Join(missing, err)
	}
	return find()
}

func install(ctx context.Context, apt, name string) (err error) {
	run := func(args ...string) error {
		cmd := exec.CommandContext(ctx, apt, args...) //nolint:gosec // apt-get from the PATH
		cmd.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("pgserver: apt-get %s: %w\n%s", args[0], err, tail(string(out)))
		}
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(createCluster), 0o755); err != nil { //nolint:gosec // the package makes it so too
		return err
	}
	if err := os.WriteFile(createCluster, []byte("create_main_cluster = false\n"), 0o644); err != nil { //nolint:gosec // others may read what it says
		return err
	}
	defer func() { err = errors.Join(err, os.Remove(createCluster)) }()
	// A list of packages that can't be read, of some other source, is no reason
	// to give up: what is known may do.
	stale := run("update", "-q")
	if err := run("install", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300", name); err != nil {
		return errors.Join(stale, err)
	}
	return nil
}
