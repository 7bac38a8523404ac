package receiver_test

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"time"

	"github.com/surehook/surehook/receiver"
)

func Example() {
	_ = os.Setenv("WEBHOOK_SECRET", secret) // yours comes from where secrets are kept
	rc, err := receiver.New(receiver.Standard(os.Getenv("WEBHOOK_SECRET")), receiver.NewMemory(100_000, 48*time.Hour))
	if err != nil {
		fmt.Println(err)
		return
	}
	http.Handle("POST /hooks", rc.Handle(func(_ context.Context, m receiver.Message) error {
		fmt.Printf("%s: %s", m.ID, m.Body)
		return nil
	}))

	// A delivery, and the same again.
	for range 2 {
		answer := ask(http.DefaultServeMux, standard(secret, "evt_1", time.Now(), text), text)
		_ = answer
	}
	// Output:
	// evt_1: { "id":"evt_1","event_id":"Ev1", "name":"Łódź 🚀\u00e9" }
}
