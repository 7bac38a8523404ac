package sqlite

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gofrs/flock"
	"github.com/ncruces/go-sqlite3"
	"github.com/pressly/goose/v3"

	"github.com/surehook/surehook"
)

// RestoreFile puts a backup in place of a store that no process has open. The
// copy is checked first, and takes the store's name only when it is whole and on
// the disk. A store that is there is refused, or, with force, kept beside it
// under the name that is given back.
func RestoreFile(ctx context.Context, from, to string, force bool, progress func(done, total int)) (kept string, err error) {
	if err := checkBackupFile(from, to); err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", unavailable("the data directory can't be made", err)
	}
	lock := flock.New(to + ".lock")
	ok, err := lock.TryLock()
	if err != nil {
		return "", unavailable("the store can't be locked", err)
	}
	if !ok {
		return "", surehook.Errorf(surehook.Conflict, "%s is open in another surehook process; stop that one first", filepath.Base(to))
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()
	taken, err := occupied(to)
	if err != nil {
		return "", err
	}
	if taken && !force {
		return "", surehook.Errorf(surehook.Conflict, "%s holds a store already", filepath.Dir(to))
	}
	partial := to + ".partial" // the lock makes it ours, also one that a crash left
	defer func() {
		if err != nil {
			err = errors.Join(err, removeStore(partial))
		}
	}()
	if err := errors.Join(removeStore(partial), copyBytes(ctx, from, partial, progress)); err != nil {
		return "", err
	}
	if err := checkCopy(ctx, partial); err != nil {
		return "", err
	}
	if taken {
		if kept, err = setAside(to); err != nil {
			return "", err
		}
	}
	if err := errors.Join(os.Rename(partial, to), syncFile(filepath.Dir(to))); err != nil {
		return kept, unavailable("the copy can't be named", err)
	}
	return kept, nil
}

// checkBackupFile refuses what isn't a single, finished file.
func checkBackupFile(from, to string) error {
	info, err := os.Stat(from)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return surehook.Errorf(surehook.NotFound, "there is no file %s", from)
	case err != nil:
		return surehook.Errorf(surehook.InvalidRequest, "the backup can't be read").WithCause(err)
	case !info.Mode().IsRegular():
		return surehook.Errorf(surehook.InvalidRequest, "%s isn't a file", from)
	}
	if there, err := os.Stat(to); err == nil && os.SameFile(info, there) {
		return surehook.Errorf(surehook.InvalidRequest, "%s is the data directory's store itself", from)
	}
	if fileSize(from+"-wal") > 0 {
		return surehook.Errorf(surehook.InvalidRequest, "%s-wal lies beside it: this is a store in use or what is left of one; make a backup of it with surehook backup", filepath.Base(from))
	}
	return nil
}

// occupied tells whether a store, or a part of one, is at path.
func occupied(path string) (bool, error) {
	for _, p := range []string{path, path + "-wal"} {
		if _, err := os.Lstat(p); err == nil {
			return true, nil
		} else if !errors.Is(err, fs.ErrNotExist) {
			return false, unavailable("the data directory can't be read", err)
		}
	}
	return false, nil
}

// removeStore removes a file with what SQLite puts beside it.
func removeStore(path string) error {
	return errors.Join(removeIfThere(path), removeIfThere(path+"-wal"), removeIfThere(path+"-shm"), removeIfThere(path+"-journal"))
}

// copyBytes copies a file; progress counts MiB.
func copyBytes(ctx context.Context, from, to string, progress func(done, total int)) (err error) {
	in, err := os.Open(from)
	if err != nil {
		return surehook.Errorf(surehook.InvalidRequest, "the backup can't be read").WithCause(err)
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return unavailable("the copy can't be written", err)
	}
	total := int((fileSize(from) + 1<<20 - 1) >> 20)
	for done := 0; err == nil; done++ {
		if progress != nil {
			progress(min(done, total), total)
		}
		if err = ctx.Err(); err == nil {
			_, err = io.CopyN(out, in, 1<<20)
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
		if progress != nil {
			progress(total, total)
		}
	}
	if err := errors.Join(err, out.Close()); err != nil {
		return unavailable("the copy can't be written", err)
	}
	return nil
}

// checkCopy tells whether the file is a sound store that this version can open,
// and makes it durable.
func checkCopy(ctx context.Context, path string) error {
	refuse := func(err error) error {
		return surehook.Errorf(surehook.InvalidRequest, "the backup can't be used").WithCause(err)
	}
	c, err := open(path, false, 6<<10, Full)
	if err != nil {
		return refuse(err)
	}
	err = quickCheck(c)
	if err == nil {
		var n int64
		if n, err = c.int64(`SELECT count(*) FROM sqlite_schema WHERE name IN ('goose_db_version', 'events', 'pending', 'counters') AND type = 'table'`); err == nil && n != 4 {
			err = errors.New("it isn't a store of surehook")
		}
	}
	if err = errors.Join(err, c.close()); err != nil {
		return refuse(err)
	}
	if err := migrating(path, func(p *goose.Provider) error { return checkSchema(ctx, p) }); err != nil {
		return refuse(err)
	}
	if n := fileSize(path + "-wal"); n > 0 {
		return unavailable("the copy can't be finished", fmt.Errorf("%d bytes are left in its log", n))
	}
	if err := errors.Join(removeIfThere(path+"-wal"), removeIfThere(path+"-shm"), syncFile(path)); err != nil {
		return unavailable("the copy can't be written", err)
	}
	return nil
}

func quickCheck(c *conn) error {
	var verdict string
	if _, err := c.one(`PRAGMA quick_check(1)`, nil, func(r *sqlite3.Stmt) error {
		verdict = r.ColumnText(0)
		return nil
	}); err != nil || verdict != "ok" {
		return errors.Join(fmt.Errorf("the file is damaged (%s)", verdict), err)
	}
	return nil
}

// setAside gives the store that is there another name. Its log goes with it:
// beside another file SQLite would replay it over that one. Both have their new
// names before one loses its old one, so no crash takes them apart.
func setAside(path string) (string, error) {
	kept := path + ".old-" + time.Now().UTC().Format("20060102T150405.000Z")
	var errs []error
	for _, end := range []string{"", "-wal"} {
		err := os.Link(path+end, kept+end)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			err = os.Rename(path+end, kept+end) // a file system without links
		}
		if !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	dir := filepath.Dir(path)
	if err := errors.Join(append(errs, syncFile(dir))...); err != nil {
		return "", unavailable("the store that is there can't be put aside", err)
	}
	if err := errors.Join(removeStore(path), syncFile(dir)); err != nil {
		return "", unavailable("the store that is there can't be put aside", err)
	}
	return kept, nil
}
