package postgres

import (
	"fmt"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// BenchmarkBatch is a batch's way through the store: 40 events for one endpoint
// each, appended in one call, and their successes recorded in another.
func BenchmarkBatch(b *testing.B) {
	n := 40
	if v := os.Getenv("N"); v != "" {
		n, _ = strconv.Atoi(v)
	}
	s, err := Open(b.Context(), migrated(b), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	data := make([]byte, 1024)
	for i := range data {
		data[i] = byte('a' + i%26)
	}
	var appending, recording time.Duration
	for i := 0; b.Loop(); i++ {
		items := make([]surehook.Append, n)
		for k := range items {
			items[k] = surehook.Append{
				Event:   &surehook.Event{ID: fmt.Sprintf("evt_%020d", i*n+k), Type: "order.paid", OccurredAt: time.Now(), Data: data},
				Targets: []surehook.Target{{EndpointKey: 7, Owned: true}},
			}
		}
		start := time.Now()
		out, err := s.Append(b.Context(), 0, items)
		if err != nil {
			b.Fatal(err)
		}
		middle := time.Now()
		outcomes := make([]surehook.Outcome, n)
		for k := range outcomes {
			d := out[k].Deliveries[0]
			outcomes[k] = surehook.Outcome{Delivery: d, Decision: surehook.Finish, Attempt: &surehook.Attempt{ID: newAttemptID(time.Now().UnixMilli()),
				EventKey: d.EventKey, EndpointKey: d.EndpointKey, Number: 1, Status: surehook.AttemptSucceeded, HTTPStatus: 200, CreatedAt: time.Now(), Duration: time.Millisecond}}
		}
		if _, err := s.Record(b.Context(), outcomes, nil); err != nil {
			b.Fatal(err)
		}
		appending, recording = appending+middle.Sub(start), recording+time.Since(middle)
	}
	b.ReportMetric(float64(appending.Microseconds())/float64(b.N*n), "µs/append")
	b.ReportMetric(float64(recording.Microseconds())/float64(b.N*n), "µs/record")
	b.ReportMetric(0, "ns/op")
}
