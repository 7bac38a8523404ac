package postgres

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"testing/fstest"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/database"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrateLock is held while one process migrates; others wait.
const migrateLock = 0x5375_7265_686f_6f6b // "Surehook"

// migrate brings the schema up to date. A transaction of its own holds the lock,
// which works behind a pooler too.
func migrate(ctx context.Context, cfg *pgx.ConnConfig, schema string) error {
	cfg = cfg.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // no statement is prepared: a pooler may be in the way
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return wrap(err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }() // after the commit there is nothing left to lose
	return wrap(pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `SET LOCAL lock_timeout = '60s'`); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock($1)`, int64(migrateLock)); err != nil {
			if sqlState(err) == "55P03" {
				err = unavailable("another session has held the lock for migrations for a minute (pg_locks, locktype advisory, says which)", err)
			}
			return err
		}
		return migrating(ctx, cfg, schema, func(p *goose.Provider) error {
			current, target, err := p.GetVersions(ctx)
			switch {
			case err != nil:
				return fmt.Errorf("reading the schema's version: %w", err)
			case current > target:
				return fmt.Errorf("the database has schema %d and this version knows %d: a newer surehook migrated it; use that one", current, target)
			case current == target:
				return nil
			}
			if _, err := p.Up(ctx); err != nil {
				return fmt.Errorf("migrating the schema: %w", err)
			}
			return nil
		})
	}))
}

// migrating gives use what moves the schema.
func migrating(ctx context.Context, cfg *pgx.ConnConfig, schema string, use func(p *goose.Provider) error) (err error) {
	db := stdlib.OpenDB(*cfg)
	defer func() { err = errors.Join(err, db.Close()) }()
	quoted := pgx.Identifier{schema}.Sanitize()
	// IF NOT EXISTS alone asks for the right to create, whether it is needed or not.
	if _, err := db.ExecContext(ctx, `DO $$ BEGIN
		IF to_regnamespace('`+quoted+`') IS NULL THEN CREATE SCHEMA IF NOT EXISTS `+quoted+`; END IF;
	END $$`); err != nil {
		return err
	}
	files, err := filesFor(quoted)
	if err != nil {
		return err
	}
	versions, err := database.NewStore(database.DialectPostgres, schema+".schema_versions")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectCustom, db, files, goose.WithStore(versions))
	if err != nil {
		return err
	}
	return use(p)
}

// filesFor gives the migrations for a schema's name.
func filesFor(quoted string) (fs.FS, error) {
	out := make(fstest.MapFS)
	names, err := fs.Glob(migrations, "migrations/*.sql")
	for _, name := range names {
		b, e := migrations.ReadFile(name)
		err = errors.Join(err, e)
		out[name[len("migrations/"):]] = &fstest.MapFile{Data: []byte(inSchema(string(b), quoted))}
	}
	return out, err
}
