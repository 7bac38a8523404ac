package app

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/move"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// Moved is what Move did.
type Moved struct {
	From string `json:"from"` // the file
	To   string `json:"to"`   // the database, without its password
	move.Report
}

// sourceFile finds the file that sqlite:PATH names: itself, or that in a data
// directory; "" is the configured one.
func sourceFile(cfg config.Config, from string) (string, error) {
	if from == "" {
		return filepath.Join(cfg.Data, StoreFile), nil
	}
	path, ok := strings.CutPrefix(from, "sqlite:")
	if !ok || path == "" {
		return "", surehook.Errorf(surehook.InvalidRequest, "--from must be sqlite: and a data directory; stores are moved from SQLite to PostgreSQL only")
	}
	switch info, err := os.Stat(path); {
	case errors.Is(err, fs.ErrNotExist): // it may have been meant as the directory or as the file
		return "", surehook.Errorf(surehook.NotFound, "there is no store at %s", path)
	case err == nil && info.IsDir():
		path = filepath.Join(path, StoreFile)
	}
	return path, nil
}

// openSource opens the file of a stopped server.
func openSource(ctx context.Context, cfg config.Config, from string) (*sqlite.Source, string, error) {
	path, err := sourceFile(cfg, from)
	if err != nil {
		return nil, "", err
	}
	src, err := sqlite.OpenSource(ctx, path, sqlite.Options{})
	return src, path, err
}

// Move brings what is in a SQLite file into the configured PostgreSQL database,
// or goes on with that.
func Move(ctx context.Context, cfg config.Config, from string, progress move.Progress) (out Moved, err error) {
	if cfg.Database == "" {
		return out, surehook.Errorf(surehook.InvalidRequest, "--to must be postgres://user:password@host:5432/name, here or in SUREHOOK_DATABASE")
	}
	if _, err := sourceFile(cfg, from); err != nil {
		return out, err // before the target is given a schema
	}
	dst, err := postgres.OpenTarget(ctx, cfg.Database, postgres.Options{Schema: cfg.DatabaseSchema, MaxConns: 2, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return out, err
	}
	defer dst.Close()
	src, path, err := openSource(ctx, cfg, from)
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, src.Close()) }()
	out.From, out.To = path, dst.Name()
	out.Report, err = move.Run(ctx, src, dst, progress)
	return out, err
}

// Abandon takes a SQLite file into use again that was moved, or was to be.
func Abandon(ctx context.Context, cfg config.Config, from string) (path string, err error) {
	src, path, err := openSource(ctx, cfg, from)
	if err != nil {
		return path, err
	}
	return path, errors.Join(src.SetMark(ctx, nil), src.Close())
}
