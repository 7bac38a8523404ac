package postgres

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/storetest"
)

var buffers = regexp.MustCompile(`Buffers: shared( hit=(\d+))?( read=(\d+))?`)

// looked is how many pages a statement of a claim looks at, and its plan. What it
// did is undone.
func looked(t *testing.T, s *Store, sql string, args ...any) (pages int, plan string) {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	lines, err := collect(t.Context(), tx, pgx.RowTo[string], `EXPLAIN (ANALYZE, BUFFERS, COSTS OFF) `+s.q(sql), args...)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	plan = strings.Join(lines, "\n")
	for i, n := range buffers.FindStringSubmatch(plan) {
		if i == 2 || i == 4 {
			k, _ := strconv.Atoi(n) // "" is none
			pages += k
		}
	}
	if pages == 0 {
		t.Fatalf("no pages in\n%s", plan)
	}
	return pages, plan
}

// N-02, N-03: what a claim reads are the rows that are due at its endpoint, by the
// index of free ones, beside any history and any number of endpoints.
func TestN02_ClaimsReadWhatIsDue(t *testing.T) {
	s := reopenable(t, migrated(t), Options{})()
	fill(t, s)
	for _, c := range []struct {
		sql  string
		args []any
		most int
	}{
		{claimRows, []any{1, 50, false}, 400},   // of thousands that are due
		{claimRows, []any{50, 50, false}, 400},  // of some
		{claimRows, []any{101, 50, false}, 30},  // of none
		{claimRows, []any{9999, 50, false}, 30}, // at no endpoint
		{claimGate, []any{1, 1}, 30},
		{claimNext, []any{1, false}, 30},
		{claimNext, []any{101, true}, 30},
	} {
		pages, plan := looked(t, s, c.sql, c.args...)
		if pages > c.most || strings.Contains(plan, "Seq Scan on pending") || strings.Contains(plan, "attempts") {
			t.Errorf("%v: %d pages, at most %d\n%s", c.args, pages, c.most, plan)
		}
	}
}

// N-01: a transaction that stays open keeps all that was deleted since. What is
// delivered straight away never was in the index that claims read, so they don't
// walk over it; over what was claimed they do, page by page rather than row by row.
func TestN01_AnOldSnapshotDoesNotSlowClaims(t *testing.T) {
	dsn := migrated(t)
	s := reopenable(t, dsn, Options{})()
	ep := &surehook.Endpoint{ID: "whk_1", Enabled: true}
	if err := s.CreateEndpoint(t.Context(), ep, 0, nil); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM surehook.pending`); err != nil {
		t.Fatal(err)
	}
	churn(t, s, ep, 1, true)
	before, _ := looked(t, s, claimRows, ep.Key, 50, false)
	churn(t, s, ep, 50, true)
	after, plan := looked(t, s, claimRows, ep.Key, 50, false)
	if after > before+20 {
		t.Errorf("%d pages after 5,000 deliveries, %d before\n%s", after, before, plan)
	}
	churn(t, s, ep, 50, false)
	if after, plan = looked(t, s, claimRows, ep.Key, 50, false); after > before+5_000/20 {
		t.Errorf("%d pages after 5,000 more that were claimed\n%s", after, plan)
	}
}

var churned int

// churn publishes a hundred events at a time and delivers them, straight away or by
// claims.
func churn(t *testing.T, s *Store, ep *surehook.Endpoint, rounds int, owned bool) {
	t.Helper()
	for range rounds {
		_, version, err := s.Changes(t.Context(), 0)
		if err != nil {
			t.Fatal(err)
		}
		var items []surehook.Append
		for range 100 {
			churned++
			items = append(items, surehook.Append{Event: &surehook.Event{ID: fmt.Sprint("c", churned), Type: "a.b", Data: []byte(`1`)},
				Targets: []surehook.Target{{EndpointKey: ep.Key, Owned: owned}}})
		}
		out, err := s.Append(t.Context(), version, items)
		if err != nil {
			t.Fatal(err)
		}
		var rows []surehook.Delivery
		for _, a := range out {
			rows = append(rows, a.Deliveries...)
		}
		if !owned {
			c, err := s.Claim(t.Context(), ep.Key, 100, 1<<20)
			if err != nil || len(c.Rows) != 100 {
				t.Fatal(len(c.Rows), err)
			}
			rows = rows[:0]
			for _, r := range c.Rows {
				rows = append(rows, r.Delivery)
			}
		}
		var batch []surehook.Outcome
		for _, d := range rows {
			batch = append(batch, surehook.Outcome{Delivery: d, Decision: surehook.Finish, Attempt: &surehook.Attempt{ID: newAttemptID(time.Now().UnixMilli()),
				EventKey: d.EventKey, EndpointKey: ep.Key, Number: 1, Status: surehook.AttemptSucceeded, CreatedAt: time.Now()}})
		}
		if _, err := s.Record(t.Context(), batch, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// N-06: nodes that remove the same days at once get in nobody's way.
func TestN06_RetentionOnTwoNodesAtOnce(t *testing.T) {
	nodes := two(t)
	newest := fill(t, nodes[0])
	before := time.Now().Add(-2 * 24 * time.Hour)
	codes := race(nodes, func(s *Store, _ int) error {
		for range 1000 {
			if _, more, err := s.Prune(t.Context(), before, 2000); err != nil || !more {
				return err
			}
		}
		return fmt.Errorf("there is always more")
	})
	if codes["ok"] != racers {
		t.Errorf("%v", codes)
	}
	for _, s := range nodes {
		if _, _, err := s.Prune(t.Context(), before, 2000); err != nil { // what another one was at when it was asked
			t.Fatal(err)
		}
	}
	if days, err := nodes[1].daysBefore(t.Context(), before.UnixMilli()/dayMs); err != nil || len(days) > 0 {
		t.Errorf("days %v are left, %v", days, err)
	}
	if _, err := nodes[0].EventByKey(t.Context(), newest); err != nil {
		t.Errorf("the newest event: %v", err)
	}
	var orphans int
	if err := nodes[0].pool.QueryRow(t.Context(), `SELECT count(*) FROM surehook.pending p WHERE NOT EXISTS (SELECT 1 FROM surehook.events e WHERE e.key = p.event_key)`).Scan(&orphans); err != nil || orphans > 0 {
		t.Errorf("%d rows without an event, %v", orphans, err)
	}
}

// N-11: whose lease is over is for the database to say. The clock of this process
// is months ahead of it here, and nobody loses a row.
func TestN11_TheDatabaseSaysWhoseLeaseIsOver(t *testing.T) {
	clock := storetest.NewClock()
	dsn := timed(t, clock)
	nodes := twoOn(t, dsn, Options{})
	ep := &surehook.Endpoint{ID: "whk_1", Enabled: true}
	if err := nodes[0].CreateEndpoint(t.Context(), ep, 0, nil); err != nil {
		t.Fatal(err)
	}
	_, version, err := nodes[0].Changes(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := nodes[0].Append(t.Context(), version, []surehook.Append{{Event: &surehook.Event{ID: "e1", Type: "a.b", Data: []byte(`1`)},
		Targets: []surehook.Target{{EndpointKey: ep.Key}}}}); err != nil {
		t.Fatal(err)
	}
	claim := func(s *Store) int {
		t.Helper()
		if err := s.reap(t.Context()); err != nil {
			t.Fatal(err)
		}
		c, err := s.Claim(t.Context(), ep.Key, 10, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return len(c.Rows)
	}
	if ahead := time.Until(clock.Now()); ahead > -time.Hour && ahead < time.Hour {
		t.Fatal("the clocks agree: this shows nothing")
	}
	if n := claim(nodes[0]); n != 1 {
		t.Fatalf("%d rows for the first node", n)
	}
	clock.Advance(defaultLease / 2)
	if n := claim(nodes[1]); n != 0 {
		t.Error("a row was taken from a node that lives")
	}
	nodes[0].die()
	if n := claim(nodes[1]); n != 0 {
		t.Error("a row was taken before its node's lease was over")
	}
	clock.Advance(defaultLease)
	if err := nodes[1].renew(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := claim(nodes[1]); n != 1 {
		t.Errorf("%d rows once the lease is over", n)
	}
}
