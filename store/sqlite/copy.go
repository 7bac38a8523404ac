package sqlite

import (
	"context"
	"errors"
	"fmt"
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
func BackupFile(ctx context.Context, from, to string, progress func(done, total int)) error {
	if _, err := os.Stat(from); err != nil {
		return surehook.Errorf(surehook.NotFound, "there is no store in %s", filepath.Dir(from)).WithCause(err)
	}
	return publishWhole(to, func(partial string) error {
		c, err := open(from, true, 4<<10, Full)
		if err != nil {
			return wrap(err)
		}
		return errors.Join(copySnapshot(ctx, c, partial, progress), c.close())
	})
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
