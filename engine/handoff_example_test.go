package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/store/sqlite"
)

// A program counts new mail for its notifications, beside the deliveries and
// without any part in them.
func ExampleOptions_handoff() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "surehook")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir) //nolint:errcheck // an example
	store, err := sqlite.Open(ctx, filepath.Join(dir, "surehook.db"), sqlite.Options{})
	if err != nil {
		panic(err)
	}
	defer store.Close() //nolint:errcheck // an example

	unread := map[string]int{} // one call at a time: no lock
	e, err := engine.New(engine.Options{
		Store: store, MasterKeys: [][]byte{bytes.Repeat([]byte{1}, 32)},
		Handoff: func(_ context.Context, ev surehook.Event) error {
			if ev.Type == "message.received" {
				unread[ev.Tenant]++
			}
			return nil
		},
	})
	if err != nil {
		panic(err)
	}
	if err := e.Start(ctx); err != nil {
		panic(err)
	}
	for _, typ := range []string{"message.received", "message.sent", "message.received"} {
		if _, err := e.Publish(ctx, surehook.Event{Type: typ, Tenant: "acme", Data: []byte(`{}`)}); err != nil {
			panic(err)
		}
	}
	if err := e.Stop(ctx); err != nil { // it hands over what waits
		panic(err)
	}
	fmt.Println(unread["acme"])
	// Output: 2
}
