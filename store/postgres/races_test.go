package postgres

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
)

const (
	racers     = 8
	raceRounds = 10
)

// two opens two nodes on one database.
func two(t *testing.T) [2]*Store {
	t.Helper()
	return twoOn(t, migrated(t), Options{})
}

func twoOn(t *testing.T, dsn string, opt Options) [2]*Store {
	t.Helper()
	return [2]*Store{reopenable(t, dsn, opt)(), reopenable(t, dsn, opt)()}
}

// race runs f at once, on both nodes in turn, and gives the errors' codes.
func race(nodes [2]*Store, f func(s *Store, n int) error) map[surehook.ErrorCode]int {
	var mu sync.Mutex
	var wg sync.WaitGroup
	out := make(map[surehook.ErrorCode]int)
	start := make(chan struct{})
	for n := range racers {
		wg.Go(func() {
			<-start
			err := f(nodes[n%2], n)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				out["ok"]++
			} else {
				out[surehook.CodeOf(err)]++
			}
		})
	}
	close(start)
	wg.Wait()
	return out
}

func TestTheLastPlaceIsTakenOnce(t *testing.T) {
	nodes, ctx := two(t), t.Context()
	for round := range raceRounds {
		tenant := fmt.Sprint("t", round)
		got := race(nodes, func(s *Store, n int) error {
			return s.CreateEndpoint(ctx, &surehook.Endpoint{ID: fmt.Sprintf("whk_%d_%d", round, n), Tenant: tenant}, 3, nil)
		})
		if got["ok"] != 3 || got[surehook.LimitReached] != racers-3 {
			t.Fatalf("round %d: %v", round, got)
		}
		got = race(nodes, func(s *Store, _ int) error {
			return s.CreateEndpoint(ctx, &surehook.Endpoint{ID: "whk_one_" + tenant}, 0, nil)
		})
		if got["ok"] != 1 || got[surehook.Conflict] != racers-1 {
			t.Fatalf("round %d, one id: %v", round, got)
		}
	}
}

// A secret that one changes isn't lost when another changes the row meanwhile.
func TestUpdatesSeeEachOthersSecrets(t *testing.T) {
	nodes, ctx := two(t), t.Context()
	if err := nodes[0].CreateEndpoint(ctx, &surehook.Endpoint{ID: "whk"}, 0, nil); err != nil {
		t.Fatal(err)
	}
	for range raceRounds {
		got := race(nodes, func(s *Store, _ int) error {
			_, err := s.UpdateEndpoint(ctx, "whk", func(e *surehook.Endpoint) error {
				e.Secrets.Current += "x"
				return nil
			}, nil)
			return err
		})
		if got["ok"] != racers {
			t.Fatalf("%v", got)
		}
	}
	e, err := nodes[1].Endpoint(ctx, "whk")
	if err != nil || len(e.Secrets.Current) != racers*raceRounds || e.Version != racers*raceRounds+1 {
		t.Errorf("%d changes and version %d, %v", len(e.Secrets.Current), e.Version, err)
	}
}

// Whoever reads changes up to a version misses none that comes with a lower one.
func TestChangesAscendInTheOrderOfCommits(t *testing.T) {
	nodes, ctx := two(t), t.Context()
	done := make(chan struct{})
	seen := make(map[string]bool)
	var last int64
	look := func() {
		es, now, err := nodes[0].Changes(ctx, last)
		if err != nil || now < last {
			t.Errorf("version %d after %d, %v", now, last, err)
		}
		for _, e := range es {
			seen[e.ID] = true
		}
		last = now
	}
	go func() {
		defer close(done)
		for round := range raceRounds {
			got := race(nodes, func(s *Store, n int) error {
				return s.CreateEndpoint(ctx, &surehook.Endpoint{ID: fmt.Sprintf("whk_%d_%d", round, n)}, 0, nil)
			})
			if got["ok"] != racers {
				t.Errorf("round %d: %v", round, got)
			}
		}
	}()
	for running := true; running; {
		select {
		case <-done:
			running = false
		default:
		}
		look()
	}
	if len(seen) != racers*raceRounds {
		t.Errorf("%d of %d endpoints were seen", len(seen), racers*raceRounds)
	}
}

func TestTenantsPutAtOnce(t *testing.T) {
	nodes, ctx := two(t), t.Context()
	for round := range raceRounds {
		id := fmt.Sprint("t", round)
		_, before, err := nodes[0].Changes(ctx, 0)
		if err != nil {
			t.Fatal(err)
		}
		got := race(nodes, func(s *Store, n int) error {
			if n == racers-1 {
				if err := s.DeleteTenant(ctx, id, nil); surehook.CodeOf(err) != surehook.NotFound {
					return err
				}
				return nil
			}
			return s.PutTenant(ctx, &surehook.Tenant{ID: id, Partner: "p"}, nil)
		})
		if got["ok"] != racers {
			t.Fatalf("round %d: %v", round, got)
		}
		_, after, err := nodes[0].Changes(ctx, before)
		// Once it was made; perhaps it was deleted and made again.
		if n := after - before; err != nil || n < 1 || n > 3 {
			t.Errorf("round %d: %d changes, %v", round, n, err)
		}
	}
}

// Replays of the same events, claims and outcomes at once: each delivery is in
// the queue once, its attempts are numbered in a row, and nothing is lost.
func TestReplaysAtOnce(t *testing.T) {
	replaysAtOnce(t, two(t))
}

func replaysAtOnce(t *testing.T, nodes [2]*Store) {
	ctx := t.Context()
	e := &surehook.Endpoint{ID: "whk", Enabled: true}
	if err := nodes[0].CreateEndpoint(ctx, e, 0, nil); err != nil {
		t.Fatal(err)
	}
	events := publishSome(t, nodes[0], 30)
	stop := make(chan struct{})
	var senders sync.WaitGroup
	for _, s := range nodes {
		senders.Go(func() { sendAll(t, s, e.Key, stop) })
	}
	for round := range raceRounds {
		got := race(nodes, func(s *Store, n int) error {
			mine := append(append([]int64{}, events[n:]...), events[:n]...)
			_, err := s.Replay(ctx, e.Key, mine, nil)
			return err
		})
		if got["ok"] != racers {
			t.Errorf("round %d: %v", round, got)
		}
	}
	deadline := time.Now().Add(20 * time.Second)
	for {
		n, err := nodes[0].PendingCount(ctx)
		if err != nil || time.Now().After(deadline) {
			t.Fatalf("%+v, %v", n, err)
		}
		if n.Due+n.Owned+n.Waiting == 0 {
			break
		}
	}
	close(stop)
	senders.Wait()
	for _, event := range events {
		as, err := nodes[0].EventAttempts(ctx, event, e.Key, surehook.Page{Limit: 1000})
		if err != nil || len(as) == 0 {
			t.Fatalf("%d attempts, %v", len(as), err)
		}
		numbers := make(map[int]bool)
		for _, a := range as {
			numbers[a.Number] = true
		}
		if len(numbers) != len(as) || !numbers[1] || !numbers[len(as)] {
			t.Errorf("%d attempts are numbered %v", len(as), numbers)
		}
	}
}

// publishSome stores events for nobody.
func publishSome(t *testing.T, s *Store, n int) (keys []int64) {
	t.Helper()
	_, version, err := s.Changes(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		out, err := s.Append(t.Context(), version, []surehook.Append{{Event: &surehook.Event{ID: fmt.Sprint("e", i), Type: "a.b", Data: []byte(`{}`)}}})
		if err != nil || out[0].Err != nil {
			t.Fatal(err, out)
		}
		keys = append(keys, out[0].EventKey)
	}
	return keys
}

// sendAll claims and records until it is told to stop: most succeed, some end
// dead.
func sendAll(t *testing.T, s *Store, endpoint int64, stop <-chan struct{}) {
	for n := 0; ; {
		select {
		case <-stop:
			return
		default:
		}
		c, err := s.Claim(context.Background(), endpoint, 10, 1<<20)
		if err != nil {
			t.Error(err)
			return
		}
		var batch []surehook.Outcome
		for _, r := range c.Rows {
			n++
			a := &surehook.Attempt{ID: newAttemptID(time.Now().UnixMilli()), EventKey: r.Delivery.EventKey, EndpointKey: endpoint,
				Number: r.Delivery.Attempt + 1, Status: surehook.AttemptSucceeded, CreatedAt: time.Now()}
			o := surehook.Outcome{Delivery: r.Delivery, Decision: surehook.Finish, Attempt: a, Version: 1}
			if n%3 == 0 {
				o.Decision, a.Status, a.Code = surehook.Bury, surehook.AttemptDead, surehook.Status5xx
			}
			batch = append(batch, o)
		}
		if len(batch) == 0 {
			continue // a claim takes its time by itself
		}
		if _, err := s.Record(context.Background(), batch, nil); err != nil {
			t.Error(err)
			return
		}
	}
}

// A read whose caller is gone ends on the server too.
func TestReadsAreBounded(t *testing.T) {
	s := two(t)[0]
	limit, err := find(t.Context(), s, "limit", pgx.RowTo[string], `SHOW statement_timeout`)
	if err != nil || limit != "5s" {
		t.Errorf("%s, %v", limit, err)
	}
}

// Nodes that start at once on an empty database don't get in each other's way.
func TestFirstStartsAtOnce(t *testing.T) {
	for range raceRounds {
		dsn := pgserver.Database(t)
		var work sync.WaitGroup
		for range 3 {
			work.Go(func() {
				s, err := Open(t.Context(), dsn, Options{})
				if err != nil {
					t.Error(err)
					return
				}
				if err := s.Close(); err != nil {
					t.Error(err)
				}
			})
		}
		work.Wait()
	}
}

// Who must be alone on a schema is told of nodes that run there.
func TestAlone(t *testing.T) {
	dsn := pgserver.Database(t)
	a, err := Open(t.Context(), dsn, Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = a.Close() })
	if err := a.Alone(t.Context()); err != nil {
		t.Error(err)
	}
	b, err := Open(t.Context(), dsn, Options{APIOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := a.Alone(t.Context()); surehook.CodeOf(err) != surehook.Conflict {
		t.Errorf("beside another node: %v", err)
	}
	if err := b.Close(); err != nil {
		t.Fatal(err)
	}
	if err := a.Alone(t.Context()); err != nil {
		t.Errorf("after it ended: %v", err)
	}
}
