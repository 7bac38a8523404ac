package engine_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// BenchmarkPull reads an inbox from end to end, each page acknowledged by the next.
func BenchmarkPull(b *testing.B) {
	for _, store := range []string{"SQLite", "PostgreSQL"} {
		for _, limit := range []int{100, 1000} {
			b.Run(fmt.Sprintf("%s/%d a page", store, limit), func(b *testing.B) { benchmarkPull(b, store, limit) })
		}
	}
}

func benchmarkPull(b *testing.B, store string, limit int) {
	dsn := ""
	if store == "PostgreSQL" {
		dsn = database(b) // it outlives the engine
	}
	bed := prepare(b, func(o *engine.Options) { o.InboxEvents, o.InboxBytes = -1, -1 })
	bed.dsn = dsn
	bed.open()
	ep := bed.inbox()
	data := []byte(`"` + strings.Repeat("x", 1000) + `"`)
	batch := make([]surehook.Event, 500)
	for i := range batch {
		batch[i] = surehook.Event{Type: "a", Data: data}
	}
	for n := 0; n < b.N; n += len(batch) {
		if _, err := bed.Enqueue(b.Context(), batch...); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	var cursor string
	for n := 0; n < b.N; {
		p := bed.pull(ep, engine.PullRequest{Cursor: cursor, Limit: limit})
		if len(p.Items) == 0 {
			break
		}
		n, cursor = n+len(p.Items), p.Next
	}
	if _, err := bed.Ack(b.Context(), ep.ID, cursor); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "events/s")
}
