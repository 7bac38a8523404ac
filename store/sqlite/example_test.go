package sqlite_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/sqlite"
)

// An order and the event that tells of it are there together, or not at all.
func ExampleTx_Enqueue() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "surehook")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)                                                             //nolint:errcheck // an example
	store, err := sqlite.Open(ctx, filepath.Join(dir, "surehook.db"), sqlite.Options{}) // the engine's
	if err != nil {
		panic(err)
	}
	defer store.Close() //nolint:errcheck // an example

	err = store.Tx(ctx, func(tx *sqlite.Tx) error {
		_, err := tx.Exec(`CREATE TABLE IF NOT EXISTS app_orders (id TEXT PRIMARY KEY, total REAL)`)
		return err
	})
	if err != nil {
		panic(err)
	}
	err = store.Tx(ctx, func(tx *sqlite.Tx) error {
		if _, err := tx.Exec(`INSERT INTO app_orders (id, total) VALUES (?, ?)`, "A-17", 12.5); err != nil {
			return err
		}
		ids, err := tx.Enqueue(surehook.Event{
			ID: "order_A-17_paid", Type: "order.paid", Owner: "order-A-17", Data: []byte(`{"order":"A-17","total":12.50}`)})
		fmt.Println(ids)
		return err
	})
	fmt.Println(err)
	// Output:
	// [order_A-17_paid]
	// <nil>
}
