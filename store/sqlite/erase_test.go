package sqlite

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// What is erased is nowhere in the files: not in the tables, not in pages that came
// free before, not in the write-ahead log, although somebody reads for a while.
func TestErasedBytesAreInNoFile(t *testing.T) {
	path := tempFile(t)
	s := openFile(t, path, Options{FreeFloor: -1})
	ep, err := s.Endpoint(t.Context(), "whk_1")
	if err != nil {
		t.Fatal(err)
	}
	mark := []byte("MARK-OF-A-PERSON")
	small, large := fmt.Appendf(nil, `"%s"`, mark), fmt.Appendf(nil, `"%s%s"`, bytes.Repeat([]byte("x"), 60_000), mark)
	var keys []int64
	for i := range 40 {
		data := small
		if i%5 == 0 {
			data = large // in pages of its own
		}
		ev := surehook.Event{ID: fmt.Sprint("evt_", i), Type: "a.b", Data: data, OccurredAt: time.Now()}
		if err := s.Tx(t.Context(), func(tx *Tx) error { _, err := tx.Enqueue(ev); return err }); err != nil { // it was in the outbox too
			t.Fatal(err)
		}
	}
	rows, err := s.Outbox(t.Context(), 100)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		out, err := s.Append(t.Context(), s.config.Load(), []surehook.Append{{Event: r.Event, Outbox: r.ID, Targets: []surehook.Target{{EndpointKey: ep.Key, Owned: true}}}})
		if err != nil {
			t.Fatal(err)
		}
		d := out[0].Deliveries[0]
		keys = append(keys, d.EventKey)
		a := &surehook.Attempt{ID: newAttemptID(time.Now()), EventKey: d.EventKey, EndpointKey: ep.Key, Number: 1, Status: surehook.AttemptFailed,
			Code: surehook.Status5xx, Response: mark, CreatedAt: time.Now()}
		if _, err := s.Record(t.Context(), []surehook.Outcome{{Delivery: d, Decision: surehook.Again, Attempt: a, Wait: time.Hour, Version: 1}}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if inFiles(t, path, mark) < 80 {
		t.Fatal("the test looks in the wrong place")
	}
	reading, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		_ = s.read(context.Background(), func(c *conn) error { // an old snapshot
			_, err := c.int64(`SELECT count(*) FROM events`)
			close(reading)
			<-time.After(300 * time.Millisecond)
			return err
		})
	}()
	<-reading
	got, err := s.Erase(t.Context(), surehook.Erasure{Keys: keys}, len(keys), nil)
	if err != nil || got != (surehook.Erased{Events: 40, Deliveries: 40}) {
		t.Fatal(got, err)
	}
	if err := s.Scrub(t.Context()); err != nil {
		t.Fatal(err)
	}
	<-done
	if n := inFiles(t, path, mark); n != 0 {
		t.Errorf("it is there %d times", n)
	}
}

// inFiles counts a text in the store's files.
func inFiles(t *testing.T, path string, mark []byte) (n int) {
	t.Helper()
	for _, suffix := range []string{"", "-wal"} {
		b, err := os.ReadFile(path + suffix)
		if err != nil {
			t.Fatal(err)
		}
		n += bytes.Count(b, mark)
	}
	return n
}
