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

// BackupFile copies a store's file that another process may have open and be
// writing to: the copy is as of one moment, that of the call. The target
// appears whole or not at all. Store.Backup does the same from inside.
//
// Deliveries go on meanwhile; the server's write-ahead log can't be cut back
// until the copy is done.
func BackupFile(ctx context.Context, from, to string, progress func(done, total int)) (err error) {
	if _, err := os.Stat(from); err != nil {
		return surehook.Errorf(surehook.NotFound, "there is no store in %s", filepath.Dir(from)).WithCause(err)
	}
	if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
		return errTargetExists(err)
	}
	partial := to + ".partial"
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
	c, err := open(from, true, 4<<10, Full)
	if err != nil {
		return wrap(err)
	}
	if err := errors.Join(copySnapshot(ctx, c, partial, progress), c.close()); err != nil {
		return err
	}
	return publish(partial, to)
}

// copySnapshot copies within one read transaction: without it, each write of
// the other process would make the copy start over.
func copySnapshot(ctx context.Context, c *conn, path string, progress func(done, total int)) error {
	if err := c.Exec(`BEGIN`); err != nil {
		return wrap(err)
	}
	if _, err := c.int64(`SELECT count(*) FROM sqlite_schema`); err != nil { // takes the snapshot
		return wrap(fmt.Errorf("reading the store: %w", err))
	}
	b, err := c.BackupInit("main", "file:"+escapeURI(path))
	if err != nil {
		return wrap(err)
	}
	err = stepAll(ctx, b, progress)
	return wrap(errors.Join(err, b.Close()))
}

func stepAll(ctx context.Context, b *sqlite3.Backup, progress func(done, total int)) error {
	for {
		if err := ctx.Err(); err != nil {
			return unavailable("the backup was cancelled", err)
		}
		done, err := b.Step(backupStep)
		if err != nil {
			return err
		}
		if progress != nil {
			progress(b.PageCount()-b.Remaining(), b.PageCount())
		}
		if done {
			return nil
		}
	}
}
