package app

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/dispatch"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/internal/seal"
)

func TestMain(m *testing.M) { os.Exit(pgserver.Main(m)) }

// onBoth runs a test with each of the stores.
func onBoth(t *testing.T, f func(t *testing.T, database string)) {
	t.Run("SQLite", func(t *testing.T) { f(t, "") })
	t.Run("PostgreSQL", func(t *testing.T) { f(t, pgserver.Database(t)) })
}

func mustOpen(t *testing.T, cfg config.Config) surehook.Store {
	t.Helper()
	store, err := openStore(t.Context(), cfg, slog.New(slog.DiscardHandler), nil)
	if err != nil {
		t.Fatal(err)
	}
	return store
}

// filled makes a store with n endpoints, and gives their secrets.
func filled(t *testing.T, database string, n int) (config.Config, map[string]string) {
	t.Helper()
	cfg := config.Default()
	cfg.Data, cfg.Database = t.TempDir(), database
	keys, err := masterKeys(cfg, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	store := mustOpen(t, cfg)
	e, err := engine.New(engine.Options{Store: store, MasterKeys: keys, MaxWebhooks: -1,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}})
	if err != nil {
		t.Fatal(err)
	}
	secrets := map[string]string{}
	for i := range n {
		ep, secret, err := e.CreateWebhook(t.Context(), engine.Webhook{URL: fmt.Sprintf("http://127.0.0.1/%d", i)}, engine.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		if i%2 == 1 { // in an overlap: both of its secrets are to be sealed anew
			if ep, secret, err = e.RotateSecret(t.Context(), ep.ID, time.Hour, engine.Actor{}); err != nil || ep.Secrets.Previous == "" {
				t.Fatal(err)
			}
		}
		secrets[ep.ID] = secret
	}
	if err := errors.Join(e.Stop(t.Context()), store.Close()); err != nil {
		t.Fatal(err)
	}
	return cfg, secrets
}

// check opens every secret with the keys of the file alone.
func checkSecrets(t *testing.T, cfg config.Config, want map[string]string, keysLeft int) {
	t.Helper()
	keys, err := seal.ReadKeys(filepath.Join(cfg.Data, KeyFile))
	if err != nil || len(keys) != keysLeft {
		t.Fatalf("%d keys, %v", len(keys), err)
	}
	ring, err := seal.NewKeyring(rand.Reader, keys...)
	if err != nil {
		t.Fatal(err)
	}
	store := mustOpen(t, cfg)
	defer func() { _ = store.Close() }()
	eps, err := store.ListEndpoints(t.Context(), surehook.EndpointFilter{}, surehook.Page{Limit: 1000})
	if err != nil || len(eps) != len(want) {
		t.Fatal(len(eps), err)
	}
	for _, ep := range eps {
		if _, err := ring.Open(dispatch.SecretTable, dispatch.CurrentColumn, ep.ID, ep.Secrets.Current); err != nil {
			t.Errorf("%s: %v", ep.ID, err)
		}
		if _, err := ring.Open(dispatch.SecretTable, dispatch.PreviousColumn, ep.ID, ep.Secrets.Previous); ep.Secrets.Previous != "" && err != nil {
			t.Errorf("%s, previous: %v", ep.ID, err)
		}
	}
}

func TestRotateMaster(t *testing.T) { onBoth(t, testRotateMaster) }

func testRotateMaster(t *testing.T, database string) {
	cfg, secrets := filled(t, database, 20)
	before, err := seal.ReadKeys(filepath.Join(cfg.Data, KeyFile))
	if err != nil {
		t.Fatal(err)
	}
	steps := 0
	r, err := RotateMaster(t.Context(), cfg, false, nil, func(_, total int) {
		if steps++; total != 20 {
			t.Errorf("of %d", total)
		}
	})
	if err != nil || !r.NewKey || r.Resealed != 20 || r.Removed != 1 || r.Kept != 0 || r.Lost != 0 || steps != 20 {
		t.Fatalf("%+v, %d steps, %v", r, steps, err)
	}
	checkSecrets(t, cfg, secrets, 1)
	after, err := seal.ReadKeys(filepath.Join(cfg.Data, KeyFile))
	if err != nil || string(after[0]) == string(before[0]) {
		t.Error("the key is the old one", err)
	}
	if info, err := os.Stat(filepath.Join(cfg.Data, KeyFile)); err != nil || info.Mode().Perm() != 0o600 {
		t.Error(info.Mode(), err)
	}
}

// The key of the deterministic ids is another secret under the master key: after a
// rotation it is the same, and the old key opens it no longer.
func TestRotateMasterKeepsTheKeyOfIDs(t *testing.T) { onBoth(t, testRotateMasterKeepsTheKeyOfIDs) }

func testRotateMasterKeepsTheKeyOfIDs(t *testing.T, database string) {
	cfg, _ := filled(t, database, 1)
	read := func() (key, sealed []byte) {
		t.Helper()
		keys, err := seal.ReadKeys(filepath.Join(cfg.Data, KeyFile))
		if err != nil || len(keys) != 1 {
			t.Fatal(len(keys), err)
		}
		ring, err := seal.NewKeyring(rand.Reader, keys...)
		if err != nil {
			t.Fatal(err)
		}
		store := mustOpen(t, cfg)
		defer func() { _ = store.Close() }()
		key, err = ring.Setting(t.Context(), store, seal.EventIDKey, false)
		if err != nil {
			t.Fatal(err)
		}
		sealed, err = store.Setting(t.Context(), seal.EventIDKey)
		if err != nil {
			t.Fatal(err)
		}
		return key, sealed
	}
	before, old := read()
	if _, err := RotateMaster(t.Context(), cfg, false, nil, nil); err != nil {
		t.Fatal(err)
	}
	after, fresh := read()
	if !bytes.Equal(before, after) || bytes.Equal(old, fresh) || bytes.Contains(fresh, after) {
		t.Error("the key didn't survive, or wasn't resealed")
	}
}

func TestRotateMasterGoesOnWhereItWasInterrupted(t *testing.T) {
	onBoth(t, testRotateMasterGoesOnWhereItWasInterrupted)
}

func testRotateMasterGoesOnWhereItWasInterrupted(t *testing.T, database string) {
	cfg, secrets := filled(t, database, 200)
	ctx, cancel := context.WithCancel(t.Context())
	first, err := RotateMaster(ctx, cfg, false, nil, func(done, _ int) {
		if done == 40 {
			cancel()
		}
	})
	if !errors.Is(err, context.Canceled) || !first.NewKey || first.Resealed < 40 || first.Resealed == 200 {
		t.Fatalf("%+v, %v", first, err)
	}
	checkSecrets(t, cfg, secrets, 2) // both keys, and everything opens
	second, err := RotateMaster(t.Context(), cfg, false, nil, nil)
	if err != nil || second.NewKey || second.Resealed+first.Resealed != 200 || second.Current != first.Resealed || second.Removed != 1 {
		t.Fatalf("%+v after %+v, %v", second, first, err)
	}
	checkSecrets(t, cfg, secrets, 1)
}

func TestRotateMasterKeepsAKeyThatIsStillNeeded(t *testing.T) {
	onBoth(t, testRotateMasterKeepsAKeyThatIsStillNeeded)
}

func testRotateMasterKeepsAKeyThatIsStillNeeded(t *testing.T, database string) {
	cfg, _ := filled(t, database, 3)
	store := mustOpen(t, cfg)
	eps, err := store.ListEndpoints(t.Context(), surehook.EndpointFilter{}, surehook.Page{Limit: 10})
	if err != nil {
		t.Fatal(err)
	}
	_, err = store.UpdateEndpoint(t.Context(), eps[0].ID, func(e *surehook.Endpoint) error {
		e.Secrets.Current = eps[1].Secrets.Current // another row's: it doesn't open here
		return nil
	}, nil)
	if err := errors.Join(err, store.Close()); err != nil {
		t.Fatal(err)
	}
	r, err := RotateMaster(t.Context(), cfg, false, nil, nil)
	if err != nil || r.Resealed != 2 || r.Lost != 1 || r.Kept != 1 || r.Removed != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	if keys, err := seal.ReadKeys(filepath.Join(cfg.Data, KeyFile)); err != nil || len(keys) != 2 {
		t.Error(len(keys), err)
	}
}

func TestRotateMasterNeedsAStoppedServer(t *testing.T) {
	onBoth(t, testRotateMasterNeedsAStoppedServer)
}

func testRotateMasterNeedsAStoppedServer(t *testing.T, database string) {
	cfg, _ := filled(t, database, 1)
	store := mustOpen(t, cfg)
	defer func() { _ = store.Close() }()
	if _, err := RotateMaster(t.Context(), cfg, false, nil, nil); err == nil {
		t.Error("rotated beside a running server")
	}
	if keys, err := seal.ReadKeys(filepath.Join(cfg.Data, KeyFile)); err != nil || len(keys) != 1 {
		t.Error("the key file was touched", err)
	}
}

// A data folder that can't be written is an error that says so, and what to do.
func TestADataFolderThatCantBeWritten(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it takes a folder that root can't write in either")
	}
	cfg := config.Default()
	cfg.Data = "/sys/surehook"
	store, err := openStore(t.Context(), cfg, slog.New(slog.DiscardHandler), nil)
	if err == nil {
		_ = store.Close()
	}
	if err == nil || !strings.Contains(err.Error(), "/sys/surehook can't be written") || !strings.Contains(err.Error(), "--data") {
		t.Errorf("%v", err)
	}
}
