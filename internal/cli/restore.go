package cli

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/store/sqlite"
)

func (c *cmd) restoreCmd() *cobra.Command {
	var data string
	var force bool
	restore := &cobra.Command{
		Use:   "restore FILE",
		Short: "Put a backup in place of the store of a stopped server",
		Long: `Put a backup in place of the store in the data directory. The server must be
stopped. The backup is checked first; the store is replaced whole or not at all,
and FILE stays as it is.

The master key isn't in a backup: the one of the backup's time must be in the data
directory, or be given to the server as usual.

Deliveries that were made since the backup are made again, under the same
webhook-id. Events that were accepted since aren't in it: publish them again, with
their ids.`,
		Example: "  surehook restore --data /var/lib/surehook /backup/surehook-2026-01-14.db",
		Args:    exactly("FILE"),
		RunE: func(cc *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return c.restore(ctx, data, args[0], force)
		},
	}
	c.dataFlags(restore, &data, nil)
	restore.Flags().BoolVar(&force, "force", false, "replace a store that is there; it is kept beside the new one, under a dated name")
	return restore
}

func (c *cmd) restore(ctx context.Context, data, from string, force bool) error {
	cfg, err := c.fileConfig(data, "psql, with what pg_dump --schema=%s wrote")
	if err != nil {
		return err
	}
	to := filepath.Join(cfg.Data, app.StoreFile)
	show, end := c.bar("MiB copied")
	kept, err := sqlite.RestoreFile(ctx, from, to, force, show)
	end()
	switch code := surehook.CodeOf(err); {
	case err == nil:
	case code == surehook.NotFound:
		return fail(exitNotFound, "", "%w", err)
	case code == surehook.Conflict && !force:
		return fail(exitFailed, "--force replaces the store of a stopped server, and keeps the old one beside it", "%w", err)
	default:
		return c.local(err)
	}
	info, err := os.Stat(to)
	if err != nil {
		return err
	}
	if c.json {
		return c.out.value(map[string]any{"file": to, "bytes": info.Size(), "kept": kept})
	}
	c.out.line("restored %s from %s (%d bytes)", to, from, info.Size())
	if kept != "" {
		c.out.line("the store that was there is %s now; delete it when you don't need it", kept)
	}
	if _, err := os.Stat(filepath.Join(cfg.Data, app.KeyFile)); errors.Is(err, fs.ErrNotExist) && cfg.MasterKey == "" && cfg.MasterKeyFile == "" {
		c.out.line("first put the master key of the backup's time there as %s: no other opens its secrets", app.KeyFile)
	}
	c.out.line("next: surehook serve --data %s", cfg.Data)
	c.out.line("deliveries made since the backup are made again, under the same webhook-id; events accepted since aren't in it: publish them again, with their ids")
	return nil
}
