package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// Faults that other senders had with their leases; see docs/field-reports.md.

// holding appends n events with a row each at one endpoint, which the node holds.
func holding(t *testing.T, s *Store, n int) *surehook.Endpoint {
	t.Helper()
	e := &surehook.Endpoint{ID: "whk", Enabled: true}
	if err := s.CreateEndpoint(t.Context(), e, 0, nil); err != nil {
		t.Fatal(err)
	}
	_, version, err := s.Changes(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	items := make([]surehook.Append, n)
	for i := range items {
		items[i] = surehook.Append{Event: &surehook.Event{ID: fmt.Sprint("evt_", i), Type: "a.b", Data: []byte(`1`), OccurredAt: time.Now()},
			Targets: []surehook.Target{{EndpointKey: e.Key, Owned: true}}}
	}
	out, err := s.Append(t.Context(), version, items)
	if err != nil || out[0].Err != nil {
		t.Fatal(out, err)
	}
	if count, err := s.PendingCount(t.Context()); err != nil || count.Owned != int64(n) {
		t.Fatalf("%+v, %v", count, err)
	}
	return e
}

// claimable claims what is free, and tells how many rows that were.
func claimable(t *testing.T, s *Store, e *surehook.Endpoint) int {
	t.Helper()
	c, err := s.Claim(t.Context(), e.Key, 1000, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return len(c.Rows)
}

// C-05: however long ago a lease ran out, the next sweep frees what it held. A
// row without an owner is free as it is.
func TestC05_OldLeasesAreSwept(t *testing.T) {
	dsn := migrated(t)
	nodes := twoOn(t, dsn, Options{})
	e := holding(t, nodes[0], 10)
	nodes[0].die()
	exec(t, dsn, fmt.Sprintf(`UPDATE surehook.nodes SET expires_at = surehook.clock() - 90 * 86400000::bigint WHERE epoch = %d;
		UPDATE surehook.pending SET owner = NULL WHERE id = (SELECT min(id) FROM surehook.pending)`, nodes[0].Lease().Epoch))
	if n := claimable(t, nodes[1], e); n != 1 {
		t.Errorf("%d rows are free before the sweep, want the one without an owner", n)
	}
	if err := nodes[1].reap(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := claimable(t, nodes[1], e); n != 9 {
		t.Errorf("the sweep freed %d rows of 9", n)
	}
}

// C-06: rows that are held under a lease of which there is no record, since
// somebody deleted it by hand, come free; a node whose record it was has none
// of them left.
func TestC06_RowsWithoutALeaseAreFound(t *testing.T) {
	for name, sweep := range map[string]func(nodes [2]*Store) error{
		"Another node looks": func(nodes [2]*Store) error {
			nodes[0].die()
			nodes[1].orphans(context.Background())
			return nil
		},
		"The node itself asks": func(nodes [2]*Store) error { return nodes[0].renew(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			dsn := migrated(t)
			nodes := twoOn(t, dsn, Options{})
			e := holding(t, nodes[0], 10)
			before := nodes[0].Lease().Epoch
			exec(t, dsn, fmt.Sprintf(`DELETE FROM surehook.nodes WHERE epoch = %d`, before))
			if err := sweep(nodes); err != nil {
				t.Fatal(err)
			}
			if n := claimable(t, nodes[1], e); n != 10 {
				t.Errorf("%d rows of 10 are free", n)
			}
		})
	}
}

// C-07: whoever sweeps at the same instant, each row is rescued once.
func TestC07_SweepersAtOnceFreeEachRowOnce(t *testing.T) {
	const rows, sweepers = 1000, 5
	dsn := migrated(t)
	dead := reopenable(t, dsn, Options{})()
	e := holding(t, dead, rows)
	var nodes []*Store
	for range sweepers {
		nodes = append(nodes, reopenable(t, dsn, Options{})())
	}
	dead.die()
	exec(t, dsn, fmt.Sprintf(`UPDATE surehook.nodes SET expires_at = 0 WHERE epoch = %d`, dead.Lease().Epoch))
	start := make(chan struct{})
	var work sync.WaitGroup
	for _, s := range nodes {
		work.Go(func() {
			<-start
			if err := s.reap(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	close(start)
	work.Wait()
	type freed struct{ Free, Least, Most int }
	got, err := find(t.Context(), nodes[0], "rows", pgx.RowToStructByPos[freed],
		`SELECT count(*), min(lost), max(lost) FROM surehook.pending WHERE owner IS NULL AND endpoint_key = $1`, e.Key)
	if err != nil || got != (freed{rows, 1, 1}) {
		t.Errorf("%+v of %d rows, %v", got, rows, err)
	}
}
