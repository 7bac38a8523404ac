package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

func TestOpenRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(t *testing.T, path string)
		says string
	}{
		"a newer schema": {func(t *testing.T, path string) {
			alter(t, path, `INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, 1)`)
		}, "newer surehook"},
		"a damaged page": {func(t *testing.T, path string) {
			patch(t, path, 2*16384, strings.Repeat("\xff", 16384))
		}, "damaged"},
		"a damaged start": {func(t *testing.T, path string) { patch(t, path, 0, "no database at all") }, "not a database"},
		"half a file": {func(t *testing.T, path string) {
			if err := os.Truncate(path, fileSize(path)/2); err != nil {
				t.Fatal(err)
			}
		}, "malformed"},
	} {
		t.Run(name, func(t *testing.T) {
			path := tempFile(t)
			s := openFile(t, path, Options{FreeFloor: -1})
			for i := range 20 {
				if _, err := add(t, s, fmt.Sprintf("e%d", i), 10_000, true); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			if n := fileSize(path + "-wal"); n > 0 {
				t.Fatalf("a clean stop left %d bytes outside of the file", n)
			}
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			c.harm(t, path)
			if _, err := Open(t.Context(), path, Options{FreeFloor: -1}); err == nil || !strings.Contains(err.Error(), c.says) {
				t.Fatalf("got %v, want a refusal that says %q", err, c.says)
			}
			// The refusal holds no lock and changed nothing that a backup can't mend.
			if err := errors.Join(os.WriteFile(path, good, 0o600), removeIfThere(path+"-wal"), removeIfThere(path+"-shm")); err != nil {
				t.Fatal(err)
			}
			whole(t, openFile(t, path, Options{FreeFloor: -1}))
		})
	}
}

func alter(t *testing.T, path, statements string) {
	t.Helper()
	c, err := sqlite3.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(c.Exec(statements), c.Close()); err != nil {
		t.Fatal(err)
	}
}

func patch(t *testing.T, path string, offset int64, data string) {
	t.Helper()
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	_, err = f.WriteAt([]byte(data), offset)
	if err := errors.Join(err, f.Close()); err != nil {
		t.Fatal(err)
	}
}

func TestSecondOpenIsRefused(t *testing.T) {
	path := tempFile(t)
	s := openFile(t, path, Options{FreeFloor: -1})
	if _, err := Open(t.Context(), path, Options{}); err == nil || !strings.Contains(err.Error(), "another surehook process") {
		t.Fatal(err)
	}
	if _, err := add(t, s, "e1", 10, true); err != nil {
		t.Fatal(err)
	}
}

func TestFileIsAsDesigned(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	err := s.bare(func(c *conn) error {
		for pragma, want := range map[string]int64{"page_size": 16384, "synchronous": 2, "journal_size_limit": walKeep} {
			if got, err := c.int64("PRAGMA " + pragma); err != nil || got != want {
				t.Errorf("%s is %d, want %d, %v", pragma, got, want, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// setWriter changes a setting of the writer's connection, as a disk would.
func setWriter(t *testing.T, s *Store, pragma string) {
	t.Helper()
	if err := s.bare(func(c *conn) error { return c.Exec("PRAGMA " + pragma) }); err != nil {
		t.Fatal(err)
	}
}

func TestReadOnlyFileIsUnavailable(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	held, err := add(t, s, "e1", 10, true)
	if err != nil {
		t.Fatal(err)
	}
	setWriter(t, s, "query_only = ON")
	if err := s.Health(t.Context()); surehook.CodeOf(err) != surehook.Unavailable {
		t.Errorf("health: %v", err)
	}
	if _, err := add(t, s, "e2", 10, true); surehook.CodeOf(err) != surehook.Unavailable {
		t.Errorf("append: %v", err)
	}
	if _, err := s.Record(t.Context(), []surehook.Outcome{success(1, held.Deliveries[0])}, nil); surehook.CodeOf(err) != surehook.Unavailable {
		t.Errorf("record: %v", err)
	}
	if ev, err := s.Event(t.Context(), nil, "e1"); err != nil || ev.ID != "e1" {
		t.Errorf("what is there can't be read: %v", err)
	}
	setWriter(t, s, "query_only = OFF")
	if err := s.Health(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := add(t, s, "e2", 10, true); err != nil {
		t.Error(err)
	}
}

func TestFullDisk(t *testing.T) {
	path := tempFile(t)
	s := openFile(t, path, Options{FreeFloor: -1})
	held, err := add(t, s, "held", 10, true)
	if err != nil {
		t.Fatal(err)
	}
	pages := int64(0)
	if err := s.bare(func(c *conn) (err error) {
		pages, err = c.int64(`PRAGMA page_count`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	setWriter(t, s, fmt.Sprintf("max_page_count = %d", pages+8))
	var answered []string
	for i := 0; ; i++ {
		id := fmt.Sprintf("e%d", i)
		_, err := add(t, s, id, 20_000, true)
		if surehook.CodeOf(err) == surehook.Unavailable {
			break
		}
		if err != nil || i > 100 {
			t.Fatal(i, err)
		}
		answered = append(answered, id)
	}
	done := make(chan error)
	for i := range 16 {
		go func() {
			_, err := add(t, s, fmt.Sprintf("full-%d", i), 40_000, true)
			done <- err
		}()
	}
	for range 16 {
		if err := <-done; surehook.CodeOf(err) != surehook.Unavailable {
			t.Errorf("on a full disk: %v", err)
		}
	}
	// What was delivered can still be written: its page is there.
	if _, err := s.Record(t.Context(), []surehook.Outcome{success(1, held.Deliveries[0])}, nil); err != nil {
		t.Errorf("record: %v", err)
	}
	setWriter(t, s, "max_page_count = 1000000")
	if _, err := add(t, s, "after", 20_000, true); err != nil {
		t.Fatal("no recovery:", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	answered = append(answered, "after", "held")
	checkAnswered(t, path, answered, len(answered))
	s, err = Open(t.Context(), path, Options{FreeFloor: -1})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Event(t.Context(), nil, "full-0"); surehook.CodeOf(err) != surehook.NotFound {
		t.Errorf("a refused event is there: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// Below the floor of free space new events are refused and outcomes aren't.
func TestFreeFloor(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	held, err := add(t, s, "e1", 10, true)
	if err != nil {
		t.Fatal(err)
	}
	s.space.free.Store(1 << 20)
	s.space.floor = 1 << 60 // more than any disk has, whatever is measured meanwhile
	if _, err := add(t, s, "e2", 10, true); surehook.CodeOf(err) != surehook.Unavailable {
		t.Errorf("append: %v", err)
	}
	if err := s.Health(t.Context()); surehook.CodeOf(err) != surehook.Unavailable {
		t.Errorf("health: %v", err)
	}
	if _, err := s.Record(t.Context(), []surehook.Outcome{success(1, held.Deliveries[0])}, nil); err != nil {
		t.Errorf("record: %v", err)
	}
}

// M-06: a reader that stays keeps the write-ahead log from being cut back, and must
// not hold up those who write.
func TestLongReaderDoesNotStallTheWriter(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	if _, err := add(t, s, "e0", 10, true); err != nil {
		t.Fatal(err)
	}
	r, err := open(s.path, true, 1<<10, Full)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Exec(`BEGIN`); err != nil {
		t.Fatal(err)
	}
	if _, err := r.int64(`SELECT count(*) FROM events`); err != nil {
		t.Fatal(err)
	}
	if _, err := add(t, s, "e1", 10, true); err != nil { // so that the snapshot is an old one
		t.Fatal(err)
	}
	s.space.wal.Store(walSoftLimit) // as if it had grown
	start := time.Now()
	for i := range 20 {
		if _, err := add(t, s, fmt.Sprintf("n%d", i), 10, true); err != nil {
			t.Fatal(err)
		}
		s.space.wal.Store(walSoftLimit)
	}
	if took := time.Since(start); took > busyTimeout/2 {
		t.Errorf("20 appends beside a reader took %v", took)
	}
	if err := errors.Join(r.Exec(`ROLLBACK`), r.close()); err != nil {
		t.Fatal(err)
	}
}

func TestClosedStore(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	if err := errors.Join(s.Close(), s.Close()); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Append(t.Context(), 0, []surehook.Append{{Event: &surehook.Event{ID: "e"}}}); surehook.CodeOf(err) != surehook.Stopping {
		t.Errorf("append: %v", err)
	}
	if _, err := s.Event(t.Context(), nil, "e"); surehook.CodeOf(err) != surehook.Stopping {
		t.Errorf("read: %v", err)
	}
	if err := s.Health(t.Context()); surehook.CodeOf(err) != surehook.Stopping {
		t.Errorf("health: %v", err)
	}
	if err := s.Backup(t.Context(), filepath.Join(t.TempDir(), "x"), nil); surehook.CodeOf(err) != surehook.Stopping {
		t.Errorf("backup: %v", err)
	}
}

func TestCancelledBackupLeavesNothing(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	for i := range 50 {
		if _, err := add(t, s, fmt.Sprintf("e%d", i), 64<<10, true); err != nil {
			t.Fatal(err)
		}
	}
	dir := t.TempDir()
	ctx, cancel := context.WithCancel(t.Context())
	if err := s.Backup(ctx, filepath.Join(dir, "b.db"), func(int, int) { cancel() }); surehook.CodeOf(err) != surehook.Unavailable {
		t.Errorf("cancelled: %v", err)
	}
	// A file that is opened anew in between ends the backup too.
	err := s.Backup(t.Context(), filepath.Join(dir, "b.db"), func(int, int) {
		_ = s.write(1, func(*conn) error { return sqlite3.IOERR })
		if err := s.Health(t.Context()); err != nil {
			t.Error(err)
		}
	})
	if surehook.CodeOf(err) != surehook.Unavailable {
		t.Errorf("cut: %v", err)
	}
	left, err := fs.ReadDir(os.DirFS(dir), ".")
	if err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := s.Backup(t.Context(), filepath.Join(dir, "b.db"), nil); err != nil {
		t.Error(err)
	}
}

// A read that its caller gives up tells so: the caller asks for its own end.
func TestAReadGivenUpTellsSo(t *testing.T) {
	s := openFile(t, tempFile(t), Options{FreeFloor: -1})
	ctx, cancel := context.WithCancel(t.Context())
	err := s.read(ctx, func(c *conn) error {
		cancel()
		_, err := c.int64(`WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n) SELECT max(x) FROM n`)
		return err
	})
	if !errors.Is(err, context.Canceled) || surehook.CodeOf(err) != surehook.Unavailable {
		t.Errorf("%v", err)
	}
}
