package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

const backupStep = 100 // pages; a few milliseconds

// Backup implements surehook.Store. It steps on the writer's connection between
// transactions: what is written meanwhile reaches the copy too, so it never
// starts over, and it is as of its last step. The target appears whole or not
// at all.
func (s *Store) Backup(ctx context.Context, path string, progress func(done, total int)) error {
	return publishWhole(path, func(partial string) error { return s.copyTo(ctx, partial, progress) })
}

// publishWhole lets write fill a file beside path, which becomes path only when all of
// it is there. What exists is never overwritten.
func publishWhole(path string, write func(partial string) error) (err error) {
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		return errTargetExists(err)
	}
	partial := path + ".partial"
	f, err := os.OpenFile(partial, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return errTargetExists(err)
	}
	if err := f.Close(); err != nil {
		return unavailable("the backup can't be written", err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, removeIfThere(partial), removeIfThere(partial+"-journal"))
		}
	}()
	if err := write(partial); err != nil {
		return err
	}
	return publish(partial, path)
}

func errTargetExists(err error) error {
	if err == nil || errors.Is(err, fs.ErrExist) {
		return surehook.Errorf(surehook.Conflict, "the backup's file exists; it is never overwritten")
	}
	return surehook.Errorf(surehook.InvalidRequest, "the backup's file can't be made").WithCause(err)
}

func removeIfThere(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

var errBackupCut = surehook.Errorf(surehook.Unavailable, "the store's file was opened anew during the backup; start it again")

// copyTo copies the pages.
func (s *Store) copyTo(ctx context.Context, path string, progress func(done, total int)) error {
	var b *sqlite3.Backup
	err := s.bare(func(c *conn) (err error) {
		if s.w.backup != nil {
			return surehook.Errorf(surehook.Conflict, "a backup is under way")
		}
		b, err = c.BackupInit("main", "file:"+escapeURI(path))
		s.w.backup = b
		return err
	})
	if err != nil {
		return err
	}
	for done := false; !done; {
		if err = ctx.Err(); err != nil {
			err = unavailable("the backup was cancelled", err)
			break
		}
		var left, total int
		err = s.bare(func(*conn) (err error) {
			if s.w.backup != b {
				return errBackupCut
			}
			done, err = b.Step(backupStep)
			left, total = b.Remaining(), b.PageCount()
			return err
		})
		if err != nil {
			break
		}
		if progress != nil {
			progress(total-left, total)
		}
	}
	// Closed by the writer, unless it closed it itself.
	return errors.Join(err, s.bare(func(*conn) error {
		if s.w.backup != b {
			return nil
		}
		s.w.backup = nil
		return b.Close()
	}))
}

// bare runs f on the writer's connection, outside of a transaction.
func (s *Store) bare(f func(c *conn) error) error {
	return s.ask(&job{run: f, bare: true, done: make(chan error, 1)})
}

// escapeURI keeps a path a path in SQLite's file: URIs.
func escapeURI(path string) string {
	var out []byte
	for _, b := range []byte(path) {
		switch b {
		case '%', '?', '#':
			out = fmt.Appendf(out, "%%%02X", b)
		default:
			out = append(out, b)
		}
	}
	return string(out)
}

// publish makes the finished copy durable under its name, without replacing a
// file that came meanwhile.
func publish(partial, path string) error {
	if err := syncFile(partial); err != nil {
		return unavailable("the backup can't be written", err)
	}
	if err := os.Link(partial, path); errors.Is(err, fs.ErrExist) {
		return errTargetExists(err)
	} else if err != nil {
		// A file system without links: the target was seen not to be there.
		if err := os.Rename(partial, path); err != nil {
			return unavailable("the backup can't be named", err)
		}
	}
	if err := removeIfThere(partial); err != nil {
		return unavailable("the backup can't be named", err)
	}
	if err := syncFile(filepath.Dir(path)); err != nil {
		return unavailable("the backup can't be written", err)
	}
	return nil
}

func syncFile(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
