package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/surehook/surehook"
)

// The copy is of one moment, whatever is written while it is made, and needs
// nothing from the process that has the file open.
func TestBackupFileBesideAWriter(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "live.db"), filepath.Join(dir, "copy.db")
	s, err := Open(t.Context(), from, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	put := func(n int) {
		t.Helper()
		e := &surehook.Event{ID: fmt.Sprintf("e%d", n), Type: "a.b", Data: make([]byte, 64<<10)}
		if _, err := s.Append(t.Context(), s.config.Load(), []surehook.Append{{Event: e}}); err != nil {
			t.Fatal(err)
		}
	}
	for n := range 100 {
		put(n)
	}
	steps := 0
	err = BackupFile(t.Context(), from, to, func(done, total int) {
		if steps++; done > total {
			t.Errorf("%d of %d", done, total)
		}
		put(1000 + steps)
	})
	if err != nil || steps < 2 {
		t.Fatal(steps, err)
	}
	copied, err := Open(t.Context(), to, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = copied.Close() }()
	for _, c := range []struct {
		id    string
		there bool
	}{{"e0", true}, {"e99", true}, {"e1001", false}} {
		if _, err := copied.Event(t.Context(), nil, c.id); (err == nil) != c.there {
			t.Errorf("%s: %v", c.id, err)
		}
	}
}

func TestBackupFileAppearsWholeOrNotAtAll(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "live.db"), filepath.Join(dir, "copy.db")
	if err := BackupFile(t.Context(), from, to, nil); surehook.CodeOf(err) != surehook.NotFound {
		t.Errorf("of nothing: %v", err)
	}
	s, err := Open(t.Context(), from, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := BackupFile(ctx, from, to, nil); surehook.CodeOf(err) != surehook.Unavailable {
		t.Errorf("cancelled: %v", err)
	}
	for _, path := range []string{to, to + ".partial"} {
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s was left", path)
		}
	}
	if err := os.WriteFile(to, []byte("precious"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := BackupFile(t.Context(), from, to, nil); surehook.CodeOf(err) != surehook.Conflict {
		t.Errorf("over a file: %v", err)
	}
	if b, err := os.ReadFile(to); err != nil || string(b) != "precious" {
		t.Errorf("%q, %v", b, err)
	}
}
