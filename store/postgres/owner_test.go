package postgres

import (
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook/internal/pgserver"
)

// A role that may not create in the database needs no more than a schema of its own.
func TestASchemaOfOnesOwnIsEnough(t *testing.T) {
	dsn := pgserver.Database(t)
	admin, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	name := "owner_" + itoa(time.Now().UnixNano()) // roles are the server's, not the database's
	for _, sql := range []string{`CREATE ROLE ` + name + ` LOGIN PASSWORD 'x'`, `CREATE SCHEMA hooks AUTHORIZATION ` + name} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatal(sql, err)
		}
	}
	t.Cleanup(func() {
		if _, err := admin.Exec(context.Background(), `DROP OWNED BY `+name+`; DROP ROLE `+name); err != nil {
			t.Error(err)
		}
		_ = admin.Close(context.Background())
	})
	u, err := url.Parse(dsn)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(name, "x")
	s, err := Open(t.Context(), u.String(), Options{Schema: "hooks"})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}
