package receivers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gofrs/flock"
)

// What the examples need is installed once, under bin/, and found there by every
// later run: a folder's name is a hash of what it was made from.

// built gives such a folder, made by fill where it isn't there yet.
func built(t *testing.T, name string, from []string, fill func(dir string)) string {
	t.Helper()
	hash := sha256.New()
	for _, file := range from {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		hash.Write(b)
	}
	root, err := filepath.Abs("../../bin/examples")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(root, 0o755); err != nil {
		t.Fatal(err)
	}
	lock := flock.New(filepath.Join(root, name+".lock"))
	if _, err := lock.TryLockContext(t.Context(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	dir := filepath.Join(root, name+"-"+hex.EncodeToString(hash.Sum(nil))[:12])
	whole := filepath.Join(dir, ".whole")
	if _, err := os.Stat(whole); err == nil {
		return dir
	}
	if err := errors.Join(os.RemoveAll(dir), os.Mkdir(dir, 0o755)); err != nil {
		t.Fatal(err)
	}
	fill(dir)
	if err := os.WriteFile(whole, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// python gives the interpreter of a virtual environment with what the examples
// and the documentation need.
func python(t *testing.T) string {
	t.Helper()
	dir := built(t, "python", []string{"python/requirements.txt"}, func(dir string) {
		need(t, dir, []string{"python3", "-m", "venv", "."}, "python3", "python3-venv")
		run(t, dir, filepath.Join(dir, "bin/python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--requirement", absolute(t, "python/requirements.txt"))
	})
	return filepath.Join(dir, "bin/python")
}

// node gives a folder in which the TypeScript programs run.
func node(t *testing.T) string {
	t.Helper()
	files := []string{"typescript/package.json", "typescript/package-lock.json"}
	return built(t, "node", files, func(dir string) {
		for _, f := range files {
			copied(t, f, filepath.Join(dir, filepath.Base(f)))
		}
		need(t, dir, []string{"npm", "--version"}, "nodejs", "npm")
		run(t, dir, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
	})
}

// goPrograms gives a folder with the Go examples, built. Their go.mod is their
// own: what this module's asks for, newer than theirs, is taken into a copy.
var goPrograms = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "surehook-receivers")
	if err != nil {
		return "", err
	}
	goFolder = dir
	for _, name := range []string{"go.mod", "go.sum"} {
		b, err := os.ReadFile(filepath.Join("go", name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			return "", err
		}
	}
	cmd := exec.Command("go", "build", "-mod=mod", "-modfile="+filepath.Join(dir, "go.mod"), "-o", dir, "./...")
	cmd.Dir = "go"
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", errors.New(err.Error() + "\n" + string(out))
	}
	return dir, nil
})

var goFolder string // of goPrograms, once it was asked

func goProgram(t *testing.T, name string) string {
	t.Helper()
	dir, err := goPrograms()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func TestMain(m *testing.M) {
	asSurehook()
	// Most of the time goes into waiting, for timeouts and locks, not into work.
	if err := flag.Set("test.parallel", "6"); err != nil {
		panic(err)
	}
	code := m.Run()
	_ = os.RemoveAll(goFolder) // of the system's temporary files
	os.Exit(code)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	abs, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return abs
}

func copied(t *testing.T, from, to string) {
	t.Helper()
	b, err := os.ReadFile(from)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(to, b, 0o600); err != nil {
		t.Fatal(err)
	}
}

// run gives what a command prints, or fails the test.
func run(t *testing.T, dir, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Stderr = dir, &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.String())
	}
	return string(out)
}

// need runs a command. When it can't, and this is root on a system with apt-get,
// the packages are installed, and it is run again; else the test fails.
func need(t *testing.T, dir string, argv []string, packages ...string) {
	t.Helper()
	ctx := context.WithoutCancel(t.Context())
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir = dir
	out, missing := cmd.CombinedOutput()
	if missing == nil {
		return
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		t.Fatalf("%s: %v: install %s\n%s", strings.Join(argv, " "), missing, strings.Join(packages, " and "), out)
	}
	lock := flock.New(filepath.Join(os.TempDir(), "surehook-examples-install.lock"))
	if _, err := lock.TryLockContext(ctx, 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	_ = exec.CommandContext(ctx, "apt-get", "update", "-q").Run() // one list that can't be read is no reason to give up
	args := append([]string{"DEBIAN_FRONTEND=noninteractive", "apt-get", "install", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, packages...)
	run(t, dir, "env", args...)
	run(t, dir, argv[0], argv[1:]...)
}
