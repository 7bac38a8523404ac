// Package outbox runs the examples beside it, as their readers would.
package outbox

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gofrs/flock"
	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/store/postgres"
)

func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }

func TestPython(t *testing.T) {
	dir := copied(t, "python", "order.py", "requirements.txt")
	need(t, dir, []string{"python3", "-m", "venv", ".venv"}, "python3", "python3-venv")
	run(t, dir, nil, ".venv/bin/python", "-m", "pip", "install", "--quiet", "--requirement", "requirements.txt")
	check(t, dir, ".venv/bin/python", "order.py")
}

func TestTypeScript(t *testing.T) {
	dir := copied(t, "typescript", "order.ts", "package.json", "package-lock.json")
	need(t, dir, []string{"npm", "--version"}, "nodejs", "npm")
	run(t, dir, nil, "npm", "ci", "--no-audit", "--no-fund", "--loglevel=error")
	check(t, dir, "node", "--import", "tsx", "order.ts")
}

// copied gives a folder with an example's files, where what is installed leaves
// nothing behind.
func copied(t *testing.T, from string, names ...string) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range names {
		b, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// check runs the example twice with one order: the second time the order is
// refused, and so there is no second event.
func check(t *testing.T, dir string, program ...string) {
	t.Helper()
	dsn := pgserver.Database(t)
	store, err := postgres.Open(t.Context(), dsn, postgres.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := engine.New(engine.Options{Store: store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)},
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := errors.Join(e.Stop(ctx), store.Close()); err != nil {
			t.Error(err)
		}
	}()
	r := receivertest.New(t, nil)
	if _, _, err := e.CreateWebhook(t.Context(), engine.Webhook{URL: r.URL + "/in", EventTypes: []string{"order.paid"}}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	env := []string{"DATABASE_URL=" + application(t, dsn)}
	args := append(slices.Clone(program[1:]), "A-17", "12.50")
	id := strings.TrimSpace(run(t, dir, env, program[0], args...))
	if out, err := command(t, dir, env, program[0], args...).CombinedOutput(); err == nil {
		t.Errorf("the same order was stored twice: %s", out)
	}
	args[len(args)-2] = "A-18"
	run(t, dir, env, program[0], args...)
	got := r.Wait(t, 2)
	if len(got) != 2 || got[0].ID() != id || got[0].Get("surehook-sequence") != "1" {
		t.Errorf("%d requests, the first is %s, want %s", len(got), got[0].ID(), id)
	}
	for i, order := range []string{"A-17", "A-18"} {
		if !bytes.Contains(got[i].Body, []byte(`"`+order+`"`)) {
			t.Errorf("%s isn't in %s", order, got[i].Body)
		}
	}
}

// application makes the application's table and its role, and gives the address
// under which it connects.
func application(t *testing.T, dsn string) string {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	name, password := "app_"+strings.ToLower(rand.Text()), rand.Text()
	t.Cleanup(func() {
		if _, err := conn.Exec(context.Background(), fmt.Sprintf(`DROP OWNED BY %[1]s; DROP ROLE %[1]s`, name)); err != nil {
			t.Error(err)
		}
		_ = conn.Close(context.Background())
	})
	if _, err := conn.Exec(t.Context(), fmt.Sprintf(`CREATE ROLE %[1]s LOGIN PASSWORD '%[2]s'; CREATE TABLE orders (id text PRIMARY KEY, total numeric);
		GRANT INSERT ON orders TO %[1]s; GRANT USAGE ON SCHEMA surehook TO %[1]s; GRANT EXECUTE ON FUNCTION surehook.enqueue TO %[1]s`, name, password)); err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, password)
	return u.String()
}

func command(t *testing.T, dir string, env []string, name string, args ...string) *exec.Cmd {
	t.Helper()
	if strings.HasPrefix(name, ".") {
		name = filepath.Join(dir, name)
	}
	cmd := exec.CommandContext(t.Context(), name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), env...)
	return cmd
}

// run gives what a command prints, or fails the test.
func run(t *testing.T, dir string, env []string, name string, args ...string) string {
	t.Helper()
	var stderr bytes.Buffer
	cmd := command(t, dir, env, name, args...)
	cmd.Stderr = &stderr
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
	out, missing := command(t, dir, nil, argv[0], argv[1:]...).CombinedOutput()
	if missing == nil {
		return
	}
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		t.Fatalf("%s: %v: install %s\n%s", strings.Join(argv, " "), missing, strings.Join(packages, " and "), out)
	}
	lock := flock.New(filepath.Join(os.TempDir(), "surehook-examples-install.lock"))
	if _, err := lock.TryLockContext(t.Context(), 100*time.Millisecond); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Close() }()
	env := []string{"DEBIAN_FRONTEND=noninteractive"}
	_ = command(t, dir, env, "apt-get", "update", "-q").Run() // one list that can't be read is no reason to give up
	run(t, dir, env, "apt-get", append([]string{"install", "-q", "-y", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, packages...)...)
	run(t, dir, nil, argv[0], argv[1:]...)
}
