package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/internal/move"
)

const sourceHint = "--from or SUREHOOK_DATA says where it is"

// moveFlags are the settings of migrate-store.
type moveFlags struct {
	from, to, schema string
	abandon          bool
}

func (c *cmd) migrateStoreCmd() *cobra.Command {
	var f moveFlags
	cc := &cobra.Command{
		Use:   "migrate-store",
		Short: "Move the store of a stopped server from SQLite to PostgreSQL",
		Long: `Move everything in a SQLite store into an empty PostgreSQL schema: endpoints with
their sealed secrets, events, what is still to be delivered, dead letters, attempts,
API keys, replays, the audit log. The server must be stopped, and none may run on the
target.

It can be interrupted at any time; the next call goes on. At the end both sides are
read again and compared, by count and by checksum; until they are the same, no server
starts on the target. Nothing is taken out of the file, but no server starts on it
from the first row on: what is to be delivered is delivered from one place alone.

The database's address may have a password in it: in SUREHOOK_DATABASE other users
can't see it.

The master key isn't moved: give the new nodes the one from the data directory.`,
		Example: `  SUREHOOK_DATABASE=postgres://surehook:…@db:5432/app surehook migrate-store --from sqlite:/var/lib/surehook
  surehook migrate-store --from sqlite:/var/lib/surehook --to postgres://surehook@db:5432/app
  surehook migrate-store --from sqlite:/var/lib/surehook --abandon`,
		Args: exactly(),
		RunE: func(cc *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return c.migrateStore(ctx, f)
		},
	}
	cc.Flags().StringVar(&f.from, "from", "", "the store to be moved, as sqlite: and its data directory [SUREHOOK_DATA]")
	cc.Flags().StringVar(&f.to, "to", "", "where to, as postgres://user:password@host:5432/name [SUREHOOK_DATABASE]")
	cc.Flags().StringVar(&f.schema, "database-schema", "", "schema that will hold everything [SUREHOOK_DATABASE_SCHEMA]")
	cc.Flags().BoolVar(&f.abandon, "abandon", false, "take the file into use again, whatever became of its move")
	return cc
}

func (c *cmd) moveConfig(f moveFlags) (config.Config, error) {
	environ := c.env.Environ
	for name, v := range map[string]string{"SUREHOOK_DATABASE": f.to, "SUREHOOK_DATABASE_SCHEMA": f.schema} {
		if v != "" {
			environ = append(environ[:len(environ):len(environ)], name+"="+v)
		}
	}
	cfg, err := config.Load(config.Source{File: c.env.getenv("SUREHOOK_CONFIG"), Environ: environ})
	if err != nil {
		return cfg, fail(exitUsage, "", "%w", err)
	}
	return cfg, nil
}

func (c *cmd) migrateStore(ctx context.Context, f moveFlags) error {
	cfg, err := c.moveConfig(f)
	if err != nil {
		return err
	}
	if f.abandon {
		return c.abandon(ctx, cfg, f)
	}
	p, start := c.progress(), time.Now()
	m, err := app.Move(ctx, cfg, f.from, pace(p))
	p.end()
	if err == nil {
		return c.moved(m, time.Since(start))
	}
	if m.Tables != nil {
		if e := c.compared(m); e != nil {
			return e
		}
	}
	switch code := surehook.CodeOf(err); {
	case ctx.Err() != nil:
		return fail(exitFailed, "call it again to go on", "interrupted after %s", plural(m.Rows, "row", "rows"))
	case code == surehook.NotFound:
		return fail(exitNotFound, sourceHint, "%w", err)
	case code == surehook.InvalidRequest:
		return usage("%w", err)
	case code == surehook.Unavailable:
		return fail(exitUnavailable, "call it again to go on", "%w", err)
	}
	return fail(exitFailed, "", "%w", err)
}

// pace shows rows and how many a second; a step that goes on from an earlier call
// counts its own.
func pace(p progress) move.Progress {
	var start time.Time
	var first int64
	return func(step, table string, done, total int64) {
		if table == "" {
			first, start = done, time.Now()
			return
		}
		rate := int64(float64(done-first) / max(time.Since(start).Seconds(), 0.001))
		p.show("", fmt.Sprintf("%s %s: %d of %d rows, %d/s", step, table, done, total, rate))
	}
}

// compared prints what each side holds.
func (c *cmd) compared(m app.Moved) error {
	if c.json {
		return c.out.value(m)
	}
	rows := make([][]cell, 0, len(m.Tables))
	for _, t := range m.Tables {
		verdict := cell{text: "same", colour: green}
		if !t.Equal {
			verdict = cell{text: "DIFFERS", colour: red}
		}
		rows = append(rows, []cell{text(t.Table), count(t.Rows), text(t.Checksum), count(t.There), text(t.SumThere), verdict})
	}
	return c.out.table([]string{"TABLE", "ROWS", "CHECKSUM", "ON THE TARGET", "CHECKSUM", ""}, rows)
}

func (c *cmd) moved(m app.Moved, took time.Duration) error {
	if c.json || !m.Already {
		if err := c.compared(m); err != nil || c.json {
			return err
		}
	}
	if m.Already {
		c.out.line("nothing to do: %s was moved to %s before", m.From, m.To)
		return nil
	}
	c.out.line("moved %s from %s to %s in %s; both hold the same", plural(m.Rows, "row", "rows"), m.From, m.To, took.Round(time.Second/10))
	c.out.line("next: give every node this database and the master key in %s, and start: surehook serve", filepath.Join(filepath.Dir(m.From), app.KeyFile))
	c.out.line("%s isn't used any more; keep it until you trust the new one", m.From)
	return nil
}

func (c *cmd) abandon(ctx context.Context, cfg config.Config, f moveFlags) error {
	path, err := app.Abandon(ctx, cfg, f.from)
	switch {
	case surehook.CodeOf(err) == surehook.InvalidRequest:
		return usage("%w", err)
	case surehook.CodeOf(err) == surehook.NotFound:
		return fail(exitNotFound, sourceHint, "%w", err)
	case err != nil:
		return c.local(err)
	case c.json:
		return c.out.value(map[string]string{"file": path})
	}
	c.out.line("%s can be served again; what a target holds of it is of no use any more: empty it before another move", path)
	c.out.line("where the target was in use already, don't serve both: each would deliver what was pending at the move")
	return nil
}
