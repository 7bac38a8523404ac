package sqlite

import (
	"encoding/binary"
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
)

// BenchmarkThrough takes events of 1 KB through the store, as 64 callers would
// that each wait for their own, and one recorder that gathers outcomes.
func BenchmarkThrough(b *testing.B) {
	for _, sync := range []Sync{Full, Normal} {
		b.Run(string(sync), func(b *testing.B) { through(b, sync) })
	}
}

func through(b *testing.B, mode Sync) {
	s, err := Open(b.Context(), filepath.Join(b.TempDir(), "bench.db"), Options{Sync: mode})
	if err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Error(err)
		}
	}()
	ep := &surehook.Endpoint{ID: "whk_1", URL: "https://example.com/", Enabled: true}
	if err := s.CreateEndpoint(b.Context(), ep, 0, nil); err != nil {
		b.Fatal(err)
	}
	version := s.config.Load()
	data := make([]byte, 1024)
	outcomes := make(chan surehook.Outcome, 1024)
	recorded := make(chan error)
	go func() { recorded <- recorder(b, s, outcomes) }()
	var n atomic.Int64
	var callers sync.WaitGroup
	b.ResetTimer()
	start, cpu := time.Now(), cpuTime()
	for range 64 {
		callers.Go(func() {
			for {
				i := n.Add(1)
				if i > int64(b.N) {
					return
				}
				ev := &surehook.Event{ID: fmt.Sprintf("evt_%026d", i), Type: "order.paid", OccurredAt: time.Now(), Data: data}
				out, err := s.Append(b.Context(), version, []surehook.Append{{Event: ev, Targets: []surehook.Target{{EndpointKey: ep.Key, Owned: true}}}})
				if err != nil {
					b.Error(err)
					return
				}
				outcomes <- success(i, out[0].Deliveries[0])
			}
		})
	}
	callers.Wait()
	close(outcomes)
	if err := <-recorded; err != nil {
		b.Fatal(err)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/time.Since(start).Seconds(), "events/s")
	b.ReportMetric(float64((cpuTime()-cpu).Microseconds())/float64(b.N), "cpu-µs/event")
}

func success(i int64, d surehook.Delivery) surehook.Outcome {
	var id ulid.ULID
	binary.BigEndian.PutUint64(id[8:], uint64(i))
	return surehook.Outcome{Delivery: d, Decision: surehook.Finish, Version: 1, Attempt: &surehook.Attempt{
		ID: "dlv_" + id.String(), EventKey: d.EventKey, EndpointKey: d.EndpointKey, Number: 1, Status: surehook.AttemptSucceeded, HTTPStatus: 200,
		CreatedAt: time.Now(), Duration: time.Millisecond,
		Phases: surehook.Phases{Write: 50 * time.Microsecond, Wait: 900 * time.Microsecond, Read: 20 * time.Microsecond},
	}}
}

// recorder gathers what waits, up to a batch.
func recorder(b *testing.B, s *Store, outcomes <-chan surehook.Outcome) error {
	for o := range outcomes {
		batch := []surehook.Outcome{o}
	gather:
		for len(batch) < 256 {
			select {
			case o, ok := <-outcomes:
				if !ok {
					break gather
				}
				batch = append(batch, o)
			default:
				break gather
			}
		}
		if _, err := s.Record(b.Context(), batch, nil); err != nil {
			return err
		}
	}
	return nil
}
