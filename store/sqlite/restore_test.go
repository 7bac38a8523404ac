package sqlite

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/surehook/surehook"
)

// stored makes a store that holds these events, and closes it.
func stored(t *testing.T, path string, ids ...string) {
	t.Helper()
	s := openFile(t, path, Options{FreeFloor: -1})
	for _, id := range ids {
		if _, err := add(t, s, id, 10_000, false); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// holds tells whether a store opens and holds the event.
func holds(t *testing.T, path, id string) bool {
	t.Helper()
	s := openFile(t, path, Options{FreeFloor: -1})
	_, err := s.Event(t.Context(), nil, id)
	if surehook.CodeOf(err) != surehook.NotFound && err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return err == nil
}

func TestRestoreFile(t *testing.T) {
	dir := t.TempDir()
	store, backup := filepath.Join(dir, "data", "surehook.db"), filepath.Join(dir, "backup.db")
	stored(t, store, "old")
	if err := BackupFile(t.Context(), store, backup, nil); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(backup)
	if err != nil {
		t.Fatal(err)
	}
	s := openFile(t, store, Options{FreeFloor: -1})
	if _, err := add(t, s, "new", 10, false); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreFile(t.Context(), backup, store, true, nil); surehook.CodeOf(err) != surehook.Conflict || !strings.Contains(err.Error(), "another surehook process") {
		t.Fatalf("under a server: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreFile(t.Context(), backup, store, false, nil); surehook.CodeOf(err) != surehook.Conflict || !strings.Contains(err.Error(), "holds a store") {
		t.Fatalf("over a store: %v", err)
	}
	if !holds(t, store, "new") {
		t.Fatal("a refusal changed the store")
	}
	shown := 0
	kept, err := RestoreFile(t.Context(), backup, store, true, func(done, total int) { shown = total - done })
	if err != nil || kept == "" || shown != 0 {
		t.Fatal(kept, shown, err)
	}
	if !holds(t, store, "old") || holds(t, store, "new") || !holds(t, kept, "new") {
		t.Error("the backup isn't in place, or the old store isn't kept")
	}
	if now, err := os.ReadFile(backup); err != nil || string(now) != string(before) {
		t.Error("the backup was changed", err)
	}
	other := filepath.Join(dir, "made", "here", "surehook.db")
	if kept, err := RestoreFile(t.Context(), backup, other, false, nil); err != nil || kept != "" || !holds(t, other, "old") {
		t.Error("into a directory that wasn't there:", kept, err)
	}
}

// A store that wasn't stopped cleanly is kept with its log, and that log is
// never replayed over the backup.
func TestRestoreFilePutsALogAside(t *testing.T) {
	dir := t.TempDir()
	store, backup := filepath.Join(dir, "surehook.db"), filepath.Join(dir, "backup.db")
	stored(t, backup, "old")
	if err := os.WriteFile(store, []byte("no database at all"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(store+"-wal", []byte("its log"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept, err := RestoreFile(t.Context(), backup, store, true, nil)
	if err != nil || !holds(t, store, "old") {
		t.Fatal(err)
	}
	if b, err := os.ReadFile(kept); err != nil || string(b) != "no database at all" {
		t.Errorf("%q, %v", b, err)
	}
	if b, err := os.ReadFile(kept + "-wal"); err != nil || string(b) != "its log" {
		t.Errorf("%q, %v", b, err)
	}
	lone := filepath.Join(dir, "lone", "surehook.db")
	if err := errors.Join(os.Mkdir(filepath.Dir(lone), 0o700), os.WriteFile(lone+"-wal", []byte("its log"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, err := RestoreFile(t.Context(), backup, lone, false, nil); surehook.CodeOf(err) != surehook.Conflict {
		t.Errorf("over a log without its file: %v", err)
	}
}

func TestRestoreFileRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(t *testing.T, path string)
		code surehook.ErrorCode
		says string
	}{
		"nothing":     {func(t *testing.T, path string) { _ = os.Remove(path) }, surehook.NotFound, "no file"},
		"a directory": {func(t *testing.T, path string) { _ = errors.Join(os.Remove(path), os.Mkdir(path, 0o700)) }, surehook.InvalidRequest, "isn't a file"},
		"a newer schema": {func(t *testing.T, path string) {
			alter(t, path, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`)
		}, surehook.InvalidRequest, "newer surehook"},
		"a damaged page":    {func(t *testing.T, path string) { patch(t, path, 2*16384, strings.Repeat("\xff", 16384)) }, surehook.InvalidRequest, "damaged"},
		"half a file":       {func(t *testing.T, path string) { _ = os.Truncate(path, fileSize(path)/2) }, surehook.InvalidRequest, "malformed"},
		"an empty file":     {func(t *testing.T, path string) { _ = os.Truncate(path, 0) }, surehook.InvalidRequest, "isn't a store"},
		"something else":    {func(t *testing.T, path string) { patch(t, path, 0, "no database at all") }, surehook.InvalidRequest, "not a database"},
		"another database":  {func(t *testing.T, path string) { alter(t, path, `ALTER TABLE pending RENAME TO other`) }, surehook.InvalidRequest, "isn't a store"},
		"a store in pieces": {func(t *testing.T, path string) { _ = os.WriteFile(path+"-wal", []byte("log"), 0o600) }, surehook.InvalidRequest, "lies beside it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			store, backup := filepath.Join(dir, "data", "surehook.db"), filepath.Join(dir, "backup.db")
			stored(t, store, "mine")
			stored(t, backup, "a", "b", "c")
			c.harm(t, backup)
			_, err := RestoreFile(t.Context(), backup, store, true, nil)
			if surehook.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v, want %s that says %q", err, c.code, c.says)
			}
			intact(t, store)
		})
	}
	t.Run("the store itself", func(t *testing.T) {
		store := tempFile(t)
		stored(t, store, "mine")
		if _, err := RestoreFile(t.Context(), store, store, true, nil); surehook.CodeOf(err) != surehook.InvalidRequest {
			t.Error(err)
		}
		intact(t, store)
	})
	t.Run("a cancelled call", func(t *testing.T) {
		dir := t.TempDir()
		store, backup := filepath.Join(dir, "surehook.db"), filepath.Join(dir, "backup.db")
		stored(t, store, "mine")
		stored(t, backup, "a")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := RestoreFile(ctx, backup, store, true, nil); surehook.CodeOf(err) != surehook.Unavailable {
			t.Error(err)
		}
		intact(t, store)
	})
}

// intact checks that a refusal left the store and nothing else.
func intact(t *testing.T, store string) {
	t.Helper()
	if !holds(t, store, "mine") {
		t.Error("the store was changed")
	}
	left, err := filepath.Glob(store + ".partial*")
	if err != nil || len(left) > 0 {
		t.Error("left behind:", left, err)
	}
	if _, err := os.Stat(store + "-wal"); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a log is left", err)
	}
}
