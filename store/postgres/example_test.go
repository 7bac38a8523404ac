package postgres_test

import (
	"context"
	"database/sql"
	"fmt"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx" of database/sql

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/postgres"
)

// exampleDatabase stands for the application's database, which surehook serve
// uses too: a new one with a table of orders.
func exampleDatabase(ctx context.Context) (dsn string, drop func()) {
	dsn, remove, err := pgserver.Fresh()
	if err != nil {
		panic(err)
	}
	store, err := postgres.Open(ctx, dsn, postgres.Options{})
	if err != nil {
		panic(err)
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		panic(err)
	}
	defer conn.Close(ctx) //nolint:errcheck // an example
	if _, err := conn.Exec(ctx, `CREATE TABLE orders (id text PRIMARY KEY, total numeric)`); err != nil {
		panic(err)
	}
	return dsn, func() {
		if err := store.Close(); err != nil {
			panic(err)
		}
		if err := remove(); err != nil {
			panic(err)
		}
	}
}

// An order and the event that tells of it are there together, or not at all.
func ExampleEnqueueTx() {
	ctx := context.Background()
	dsn, drop := exampleDatabase(ctx)
	defer drop()
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		panic(err)
	}
	defer conn.Close(ctx) //nolint:errcheck // an example

	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO orders (id, total) VALUES ('A-17', 12.50)`); err != nil {
			return err
		}
		ids, err := postgres.EnqueueTx(ctx, tx, surehook.Event{
			ID: "order_A-17_paid", Type: "order.paid", Owner: "order-A-17", Data: []byte(`{"order":"A-17","total":12.50}`)})
		fmt.Println(ids)
		return err
	})
	fmt.Println(err)
	// Output:
	// [order_A-17_paid]
	// <nil>
}

// With database/sql, and a schema of another name than "surehook".
func ExampleSchema_EnqueueSQL() {
	ctx := context.Background()
	dsn, drop := exampleDatabase(ctx)
	defer drop()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		panic(err)
	}
	defer db.Close() //nolint:errcheck // an example
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing

	_, err = postgres.Schema("hooks").EnqueueSQL(ctx, tx, surehook.Event{Type: "order.paid", Data: []byte(`{"order":"A-17"}`)})
	fmt.Println(surehook.CodeOf(err))
	// Output: not_found
}

// With database/sql.
func ExampleEnqueueSQL() {
	ctx := context.Background()
	dsn, drop := exampleDatabase(ctx)
	defer drop()
	db, err := sql.Open("pgx", dsn)
	if err != nil {
		panic(err)
	}
	defer db.Close() //nolint:errcheck // an example
	tx, err := db.BeginTx(ctx, nil)
	if err != nil {
		panic(err)
	}
	defer tx.Rollback() //nolint:errcheck // after the commit it does nothing
	if _, err := tx.ExecContext(ctx, `INSERT INTO orders (id, total) VALUES ('A-17', 12.50)`); err != nil {
		panic(err)
	}
	ids, err := postgres.EnqueueSQL(ctx, tx, surehook.Event{
		ID: "order_A-17_paid", Type: "order.paid", Data: []byte(`{"order":"A-17","total":12.50}`)})
	if err != nil {
		panic(err)
	}
	fmt.Println(ids, tx.Commit())
	// Output: [order_A-17_paid] <nil>
}
