package app

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/seal"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// openStore opens what the configuration names: a PostgreSQL database, or else
// the file in the data directory. batch hears of each transaction; nil: nobody.
func openStore(ctx context.Context, cfg config.Config, log *slog.Logger, batch func(jobs int, took time.Duration, err error)) (surehook.Store, error) {
	if batch == nil {
		batch = func(int, time.Duration, error) {}
	}
	if cfg.Database != "" {
		return postgres.Open(ctx, cfg.Database, postgres.Options{Schema: cfg.DatabaseSchema, MaxConns: cfg.DatabaseConns, ListenDSN: cfg.DatabaseListen,
			Lease: cfg.DatabaseLease, Dir: cfg.Data, APIOnly: !cfg.Deliver, Logger: log,
			OnBatch: func(b postgres.BatchStats) { batch(b.Jobs, b.Duration, b.Err) }})
	}
	sync := sqlite.Full
	if cfg.Sync == "normal" {
		sync = sqlite.Normal
	}
	store, err := sqlite.Open(ctx, filepath.Join(cfg.Data, StoreFile), sqlite.Options{Sync: sync, Logger: log,
		OnBatch: func(b sqlite.BatchStats) { batch(b.Jobs, b.Duration, b.Err) }})
	switch {
	case errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EROFS):
		return nil, fmt.Errorf("the data folder %s can't be written; make it writable, or name another with --data: %w", cfg.Data, err)
	case err != nil:
		return nil, err
	}
	return store, nil
}

// masterKeys finds the keys that seal secrets: given, in a file, or made. used
// tells whether the store holds secrets already: a new key could open none.
func masterKeys(cfg config.Config, used bool, notice func(string)) ([][]byte, error) {
	switch {
	case cfg.MasterKey != "":
		keys, err := seal.ParseKeys(cfg.MasterKey)
		if err != nil {
			return nil, fmt.Errorf("SUREHOOK_MASTER_KEY: %w", err)
		}
		return keys, nil
	case cfg.MasterKeyFile != "":
		return seal.ReadKeys(cfg.MasterKeyFile)
	}
	if err := os.MkdirAll(cfg.Data, 0o700); err != nil {
		return nil, fmt.Errorf("the data directory can't be made: %w", err)
	}
	path := filepath.Join(cfg.Data, KeyFile)
	if missing(path) && used {
		return nil, fmt.Errorf("the store is in use, but %s holds no %s: put the key that goes with it there, or name it by --master-key-file or SUREHOOK_MASTER_KEY; "+
			"a new key could open none of its secrets", cfg.Data, KeyFile)
	}
	keys, created, err := seal.LoadOrCreate(path, rand.Reader)
	if created && notice != nil {
		notice("A new master key was made in " + path + ". It seals the signing secrets: keep a copy apart from the data, and give every other node the same.")
	}
	return keys, err
}

// inUse tells whether an engine has run on the store before.
func inUse(ctx context.Context, s surehook.Store) (bool, error) {
	_, err := s.Setting(ctx, seal.CheckSetting)
	if surehook.CodeOf(err) == surehook.NotFound {
		return false, nil
	}
	return err == nil, err
}

func missing(path string) bool {
	_, err := os.Stat(path)
	return errors.Is(err, fs.ErrNotExist)
}
