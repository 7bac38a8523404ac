package sqlite

import (
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"

	_ "github.com/ncruces/go-sqlite3/driver" // goose works through database/sql
	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date. A schema that a newer version made is
// refused: this version can't know what its rows mean.
func migrate(ctx context.Context, path string) error {
	return migrating(path, func(p *goose.Provider) error {
		if err := checkSchema(ctx, p); err != nil {
			return err
		}
		if _, err := p.Up(ctx); err != nil {
			return fmt.Errorf("migrating the schema: %w", err)
		}
		return nil
	})
}

// migrating gives use what moves the file's schema.
func migrating(path string, use func(p *goose.Provider) error) (err error) {
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	files, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return err
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, files)
	if err != nil {
		return err
	}
	return use(p)
}

func checkSchema(ctx context.Context, p *goose.Provider) error {
	current, target, err := p.GetVersions(ctx)
	if err != nil {
		return fmt.Errorf("reading the schema's version: %w", err)
	}
	if current > target {
		return fmt.Errorf("the file has schema %d and this version knows %d: it was written by a newer surehook; use that one, or restore a backup",
			current, target)
	}
	return nil
}
