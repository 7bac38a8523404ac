package postgres

import (
	"fmt"

	"github.com/jackc/pgx/v5"
)

// Address names the database and the schema that a DSN leads to, for people: never
// the user or the password.
func Address(dsn string, opt Options) (string, error) {
	setDefaults(&opt)
	cfg, err := poolConfig(dsn, opt)
	if err != nil {
		return "", err
	}
	return address(cfg.ConnConfig, opt.Schema), nil
}

func address(c *pgx.ConnConfig, schema string) string {
	return fmt.Sprintf("%s:%d/%s, schema %s", c.Host, c.Port, c.Database, schema)
}
