package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/internal/row"
)

// inboxed makes an endpoint that is pulled.
func inboxed(t *testing.T, s *Store) *surehook.Endpoint {
	t.Helper()
	ep := &surehook.Endpoint{ID: "whk_inbox", EventTypes: []string{"*"}, Enabled: true, Inbox: surehook.OwnInbox}
	if err := s.CreateEndpoint(t.Context(), ep, 0, nil); err != nil {
		t.Fatal(err)
	}
	return ep
}

// On several nodes at once, some take events in, and others read: every reader sees
// each event once, in one order, whoever numbers.
func TestInboxOnSeveralNodes(t *testing.T) {
	const writers, each, readers = 6, 40, 6
	dsn := migrated(t)
	nodes := make([]*Store, 3)
	for i := range nodes {
		nodes[i] = reopenable(t, dsn, Options{})()
	}
	ctx := t.Context()
	ep := inboxed(t, nodes[0])
	_, version, err := nodes[0].Changes(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := range each {
				ev := &surehook.Event{ID: fmt.Sprintf("evt_%d_%d", w, i), Type: "a", Owner: fmt.Sprint("owner", w%2), Data: []byte(`1`)}
				out, err := nodes[w%3].Append(ctx, version, []surehook.Append{{Event: ev, Targets: []surehook.Target{{EndpointKey: ep.Key, Remote: true}}}})
				if err != nil || out[0].Err != nil {
					t.Error(err, out)
					return
				}
			}
		})
	}
	var seen [readers][]int64
	for r := range readers {
		wg.Go(func() {
			last := map[string]int64{}
			for after := int64(0); len(seen[r]) < writers*each && !t.Failed(); {
				p, err := nodes[r%3].Pull(ctx, ep.Key, after, 9, 1<<20)
				if err != nil {
					t.Error(err)
					return
				}
				for _, it := range p.Items {
					if it.Number != after+1 {
						t.Errorf("reader %d: number %d follows %d", r, it.Number, after)
						return
					}
					if it.Event.Sequence != last[it.Event.Owner]+1 {
						t.Errorf("reader %d: sequence %d of %s follows %d", r, it.Event.Sequence, it.Event.Owner, last[it.Event.Owner])
					}
					after, last[it.Event.Owner] = it.Number, it.Event.Sequence
					seen[r] = append(seen[r], it.Event.Key)
				}
			}
		})
	}
	wg.Wait()
	for r := range seen {
		if !slices.Equal(seen[r], seen[0]) {
			t.Errorf("reader %d has another order", r)
		}
	}
	if n := len(slices.Compact(slices.Sorted(slices.Values(seen[0])))); n != writers*each {
		t.Errorf("%d of %d events", n, writers*each)
	}
}

// A row that is committed after a later one was read comes behind that one.
func TestInboxAndALateCommit(t *testing.T) {
	dsn := migrated(t)
	s := reopenable(t, dsn, Options{})()
	ctx := t.Context()
	ep := inboxed(t, s)
	_, version, err := s.Changes(ctx, 0)
	if err != nil {
		t.Fatal(err)
	}
	publish := func(id string, targets ...surehook.Target) int64 {
		t.Helper()
		out, err := s.Append(ctx, version, []surehook.Append{{Event: &surehook.Event{ID: id, Type: "a", Data: []byte(`1`)}, Targets: targets}})
		if err != nil {
			t.Fatal(err)
		}
		return out[0].EventKey
	}
	to := surehook.Target{EndpointKey: ep.Key}
	early := publish("evt_early")
	late, err := connect(t, dsn).Begin(ctx) // an older event's row, in a transaction that takes its time
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = late.Rollback(context.Background()) }()
	if _, err := late.Exec(ctx, `INSERT INTO surehook.pending (event_key, endpoint_key, id, due, attempt, first_attempt, size)
		VALUES ($1, $2, 1, surehook.clock(), 0, 1, 1)`, early, ep.Key); err != nil {
		t.Fatal(err)
	}
	young := publish("evt_young", to)
	pull := func(after int64) surehook.Pulled {
		t.Helper()
		p, err := s.Pull(ctx, ep.Key, after, 10, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	p := pull(0)
	if len(p.Items) != 1 || p.Items[0].Event.Key != young {
		t.Fatalf("%+v", p)
	}
	if err := late.Commit(ctx); err != nil {
		t.Fatal(err)
	}
	if p = pull(p.Items[0].Number); len(p.Items) != 1 || p.Items[0].Event.Key != early || p.Items[0].Number != 2 {
		t.Fatalf("%+v", p)
	}
	// One that somebody else has locked is passed over, and isn't lost.
	third := publish("evt_third", to)
	held, err := connect(t, dsn).Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = held.Rollback(context.Background()) }()
	if _, err := held.Exec(ctx, `SELECT 1 FROM surehook.pending WHERE event_key = $1 FOR UPDATE`, third); err != nil {
		t.Fatal(err)
	}
	fourth := publish("evt_fourth", to)
	if p = pull(2); len(p.Items) != 1 || p.Items[0].Event.Key != fourth {
		t.Fatalf("%+v", p)
	}
	if err := held.Rollback(ctx); err != nil {
		t.Fatal(err)
	}
	if p = pull(3); len(p.Items) != 1 || p.Items[0].Event.Key != third {
		t.Fatalf("%+v", p)
	}
}

// With a hundred thousand rows, reading finds its own by index, and so does numbering.
func TestInboxPlans(t *testing.T) {
	s := reopenable(t, migrated(t), Options{})()
	ctx := t.Context()
	ep := inboxed(t, s)
	if err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `INSERT INTO surehook.pending (event_key, endpoint_key, id, due, attempt, first_attempt, size)
			SELECT n, $1::bigint + n % 7, n, 1, 0, 1, 10 FROM generate_series(1, 70000) n`, ep.Key); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `ANALYZE surehook.pending`)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	for {
		n, err := s.number(ctx, ep.Key, 5000)
		if err != nil {
			t.Fatal(err)
		}
		if n < 5000 {
			break
		}
	}
	exec(t, s.pool.Config().ConnString(), `ANALYZE surehook.pending`)
	if err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, inOrder+presorted); err != nil {
			return err
		}
		lines, err := collect(ctx, tx, pgx.RowTo[string], `EXPLAIN ANALYZE `+s.q(numberRows), ep.Key, 1000, row.Parked)
		if plan := strings.Join(lines, "\n"); err == nil && (seqScan.MatchString(plan) || strings.Contains(plan, "JIT:")) {
			t.Error(plan) // to compile it each time made pulling thirteen times as slow
		}
		return err
	}); err != nil {
		t.Error(err)
	}
	for sql, args := range map[string][]any{
		inboxPage:          {ep.Key, 9000, 100, 1 << 20},
		`SELECT ` + unread: {ep.Key},
		overBound:          {ep.Key, 100, 1000},
	} {
		lines, err := collect(ctx, s.pool, pgx.RowTo[string], `EXPLAIN (COSTS OFF) `+s.q(sql), args...)
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range lines {
			if seqScan.MatchString(l) {
				t.Errorf("%s\n%v", sql, lines)
			}
		}
	}
}
