package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/schollz/progressbar/v3"
	"github.com/spf13/cobra"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/store/sqlite"
)

// bar makes a progress bar on a terminal, and a line now and then elsewhere.
func (c *cmd) bar(what string) (show func(done, total int), end func()) {
	if !c.env.StderrTerminal || c.json {
		p := c.progress()
		return func(done, total int) { p.show("", fmt.Sprintf("%s: %d of %d", what, done, total)) }, p.end
	}
	var b *progressbar.ProgressBar
	return func(done, total int) {
			if b == nil {
				b = progressbar.NewOptions(total, progressbar.OptionSetWriter(c.env.Stderr), progressbar.OptionSetDescription(what),
					progressbar.OptionShowCount(), progressbar.OptionSetWidth(30), progressbar.OptionClearOnFinish())
			}
			b.ChangeMax(total)
			_ = b.Set(done) // a bar that can't be drawn is no reason to stop
		}, func() {
			if b != nil {
				_ = b.Finish()
			}
		}
}

// dataFlags are the settings that tools on files share with the server.
func (c *cmd) dataFlags(cc *cobra.Command, data, keyFile *string) {
	cc.Flags().StringVar(data, "data", "", "data directory of the server [SUREHOOK_DATA]")
	if keyFile != nil {
		cc.Flags().StringVar(keyFile, "master-key-file", "", "the server's key file [SUREHOOK_MASTER_KEY_FILE]")
	}
}

func (c *cmd) dataConfig(data, keyFile string) (config.Config, error) {
	environ := c.env.Environ
	if data != "" {
		environ = append(environ[:len(environ):len(environ)], "SUREHOOK_DATA="+data)
	}
	if keyFile != "" {
		environ = append(environ[:len(environ):len(environ)], "SUREHOOK_MASTER_KEY_FILE="+keyFile)
	}
	cfg, err := config.Load(config.Source{File: c.env.getenv("SUREHOOK_CONFIG"), Environ: environ})
	if err != nil {
		return cfg, fail(exitUsage, "", "%w", err)
	}
	return cfg, nil
}

func (c *cmd) backupCmd() *cobra.Command {
	var data string
	backup := &cobra.Command{
		Use:   "backup FILE",
		Short: "Copy the store to a file, beside a running server or a stopped one",
		Long: `Copy the store in the data directory to a new file, as of this moment. The server
may be running; deliveries go on. The file appears whole or not at all, and an
existing one is never replaced. A store in PostgreSQL is for pg_dump.

The master key isn't in the copy: keep it, apart from it, as well.`,
		Example: "  surehook backup --data /var/lib/surehook /backup/surehook-2026-01-14.db",
		Args:    exactly("FILE"),
		RunE: func(cc *cobra.Command, args []string) error {
			ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return c.backup(ctx, data, args[0])
		},
	}
	c.dataFlags(backup, &data, nil)
	return backup
}

// fileConfig is the configuration of a tool that works on the SQLite file. With
// a database the file would be another node's past, or nothing at all.
func (c *cmd) fileConfig(data, instead string) (config.Config, error) {
	cfg, err := c.dataConfig(data, "")
	if err == nil && cfg.Database != "" {
		err = fail(exitUsage, "for a SQLite file, take SUREHOOK_DATABASE out of the environment and the file of settings",
			"this store is in PostgreSQL: use "+instead, cfg.DatabaseSchema)
	}
	return cfg, err
}

func (c *cmd) backup(ctx context.Context, data, to string) error {
	cfg, err := c.fileConfig(data, "pg_dump --schema=%s")
	if err != nil {
		return err
	}
	show, end := c.bar("pages copied")
	err = sqlite.BackupFile(ctx, filepath.Join(cfg.Data, app.StoreFile), to, show)
	end()
	if err != nil {
		return c.local(err)
	}
	info, err := os.Stat(to)
	if err != nil {
		return err
	}
	if c.json {
		return c.out.value(map[string]any{"file": to, "bytes": info.Size()})
	}
	c.out.line("backed up to %s (%d bytes)", to, info.Size())
	return nil
}

// local gives an error of the engine's packages its exit code.
func (c *cmd) local(err error) error {
	e, ok := errors.AsType[*surehook.Error](err)
	if !ok {
		return err
	}
	switch e.Code {
	case surehook.NotFound:
		return fail(exitNotFound, "--data or SUREHOOK_DATA says where it is", "%s", e.Message)
	case surehook.Conflict:
		return fail(exitFailed, "", "%s", e.Message)
	case surehook.Unavailable:
		return fail(exitUnavailable, "", "%w", err)
	default:
		return err
	}
}

func (c *cmd) secretsCmd() *cobra.Command {
	secrets := &cobra.Command{Use: "secrets", Short: "Work on the secrets at rest", RunE: group}
	var data, keyFile string
	var online bool
	rotate := &cobra.Command{
		Use:   "rotate-master",
		Short: "Bring every stored secret under a new master key",
		Long: `Bring every stored signing secret under a new master key. The server must be
stopped. The new key is put first in the key file, every secret is sealed again
under it, and the old key is taken out once nothing is left under it. It can be
interrupted at any time; the next call goes on.

With the key in SUREHOOK_MASTER_KEY, put the new one in front of the old one there,
on a line of its own, and run this: it seals everything again under the first.

On PostgreSQL every node must be stopped too, or: give each node both keys, the new
one in front, and restart them one by one; then run this with --online; then take
the old key away from each.

A backup made before is sealed under the old key: keep that key for as long as you
keep the backup.`,
		Args: exactly(),
		RunE: func(cc *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return c.rotateMaster(ctx, data, keyFile, online)
		},
	}
	c.dataFlags(rotate, &data, &keyFile)
	rotate.Flags().BoolVar(&online, "online", false, "PostgreSQL: nodes run, and every one of them has both keys, the new one first")
	secrets.AddCommand(rotate)
	return secrets
}

func (c *cmd) rotateMaster(ctx context.Context, data, keyFile string, online bool) error {
	cfg, err := c.dataConfig(data, keyFile)
	if err != nil {
		return err
	}
	show, end := c.bar("secrets sealed again")
	r, err := app.RotateMaster(ctx, cfg, online, nil, show)
	end()
	switch {
	case err != nil && ctx.Err() != nil:
		return fail(exitFailed, "call it again to go on", "interrupted after %s; both keys stay in use", plural(r.Resealed, "secret", "secrets"))
	case err != nil:
		return c.local(err)
	}
	if c.json {
		return c.out.value(r)
	}
	c.out.line("%s sealed again, %s under the current key already", plural(r.Resealed, "secret", "secrets"), plural(r.Current, "was", "were"))
	switch {
	case r.FromEnv && r.Kept == 0:
		c.out.line("nothing is sealed under the older keys in SUREHOOK_MASTER_KEY any more: take them out")
	case r.Removed > 0:
		c.out.line("%s taken out of the key file; keep a copy of the new one apart from the data", plural(r.Removed, "old key was", "old keys were"))
	}
	if r.Lost > 0 {
		c.out.line("%s can't be read under any of the keys: rotate %s", plural(r.Lost, "secret", "secrets"), one(r.Lost, "that endpoint's secret", "those endpoints' secrets"))
	}
	return nil
}
