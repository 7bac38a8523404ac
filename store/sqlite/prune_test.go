package sqlite

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/ncruces/go-sqlite3"

	"github.com/surehook/surehook"
)

// steps is how many steps of its machine the writer makes for what f does, and the
// statements that made them.
func steps(t *testing.T, s *Store, f func()) (n int, used []string) {
	t.Helper()
	count := func() (n int, used []string) {
		if err := s.bare(func(c *conn) error {
			for sql, st := range c.stmts {
				if k := st.Status(sqlite3.STMTSTATUS_VM_STEP, true); k > 0 {
					n, used = n+k, append(used, strings.Join(strings.Fields(sql), " "))
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return n, used
	}
	count()
	f()
	return count()
}

// grown is a file with n events, of which the first 600 are a hundred days old and
// the others an hour. One in ten is a dead letter, one waits for a retry, and the
// others have been delivered.
func grown(t *testing.T, n int) *Store {
	t.Helper()
	now := time.Now()
	at := now.Add(-100 * 24 * time.Hour)
	s := openFile(t, tempFile(t), Options{FreeFloor: -1, Now: func() time.Time { return at }})
	ep, err := s.Endpoint(t.Context(), "whk_1")
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < n; i += 100 {
		if i == 600 {
			at = now.Add(-time.Hour)
		}
		var items []surehook.Append
		for k := range 100 {
			items = append(items, surehook.Append{Event: &surehook.Event{ID: fmt.Sprint("e", i+k), Type: "a.b", Data: []byte(`1`), OccurredAt: at},
				Targets: []surehook.Target{{EndpointKey: ep.Key, Owned: true}}})
		}
		out, err := s.Append(t.Context(), s.config.Load(), items)
		if err != nil {
			t.Fatal(err)
		}
		var outcomes []surehook.Outcome
		for k, a := range out {
			o := success(int64(i+k+1), a.Deliveries[0])
			o.Attempt.CreatedAt = at
			switch k % 10 {
			case 0:
				o.Decision, o.Attempt.Status, o.Attempt.Code = surehook.Bury, surehook.AttemptDead, surehook.Status5xx
			case 1:
				o.Decision, o.Attempt.Status, o.Attempt.Code, o.Wait = surehook.Again, surehook.AttemptFailed, surehook.Status5xx, time.Hour
			}
			outcomes = append(outcomes, o)
		}
		if _, err := s.Record(t.Context(), outcomes, nil); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// P-01, P-03: a step of retention costs what it removes, whatever the file holds,
// and next to nothing when there is nothing to remove; nobody waits for a step for
// longer than for others.
func TestRetentionCostsWhatItRemoves(t *testing.T) {
	const limit = pruneMost
	before := time.Now().Add(-24 * time.Hour)
	prune := func(s *Store, want int64) int {
		n, _ := steps(t, s, func() {
			if n, _, err := s.Prune(t.Context(), before, 10*limit); err != nil || n != want {
				t.Fatalf("%d events were removed, want %d, %v", n, want, err)
			}
		})
		return n
	}
	small, large := grown(t, 1_000), grown(t, 8_000)
	first, much := prune(small, limit), prune(large, limit)
	if much > first*3/2 {
		t.Errorf("%d steps with 8,000 events, %d with 1,000", much, first)
	}
	if perEvent := much / limit; perEvent > 2_000 {
		t.Errorf("%d steps for an event", perEvent)
	}
	for _, s := range []*Store{small, large} {
		for more := true; more; {
			var err error
			if _, more, err = s.Prune(t.Context(), before, limit); err != nil {
				t.Fatal(err)
			}
		}
	}
	idle, idleMuch := prune(small, 0), prune(large, 0)
	if idleMuch > idle*3/2 || idleMuch > 2_000 {
		t.Errorf("nothing to remove: %d steps with 7,400 events, %d with 400", idleMuch, idle)
	}
}

// P-06: publishing and recording remove nothing that is old, however much of it
// there is; they touch their own rows.
func TestNothingOldIsRemovedOnTheWay(t *testing.T) {
	s := grown(t, 1_000)
	_, used := steps(t, s, func() {
		for i := range 20 {
			a, err := add(t, s, fmt.Sprint("fresh-", i), 10, true)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := s.Record(t.Context(), []surehook.Outcome{success(int64(5_000+i), a.Deliveries[0])}, nil); err != nil {
				t.Fatal(err)
			}
		}
	})
	deletes := 0
	for _, sql := range used {
		if !strings.HasPrefix(sql, "DELETE") {
			continue
		}
		deletes++
		if !strings.HasPrefix(sql, "DELETE FROM pending WHERE") && !strings.HasPrefix(sql, "DELETE FROM dead_letters WHERE event_key = ? AND endpoint_key = ?") {
			t.Errorf("on the way: %s", sql)
		}
	}
	if deletes == 0 || len(used) < 4 {
		t.Errorf("the statements weren't seen: %q", used)
	}
	if _, err := s.Event(t.Context(), nil, "e0"); err != nil {
		t.Errorf("an old event: %v", err)
	}
}

// A step that was under way when a tenant's days changed has passed over events by
// the old ones: they are looked at again.
func TestAStepDoesntOutliveAChangeOfDays(t *testing.T) {
	s := grown(t, 10)
	put := func(days int) {
		t.Helper()
		if err := s.PutTenant(t.Context(), &surehook.Tenant{ID: "acme", EventsDays: days}, nil); err != nil {
			t.Fatal(err)
		}
	}
	for days := range 3 {
		from := s.pruned.Load()
		put(days + 1)
		if s.pruned.CompareAndSwap(from, 7) {
			t.Errorf("what a step before change %d has seen, from %d on, is remembered", days, from)
		}
	}
	if _, more, err := s.Prune(t.Context(), time.Now().Add(-24*time.Hour), 5); err != nil || !more || s.pruned.Load() <= 0 {
		t.Errorf("the next step isn't remembered: %d, %v, %v", s.pruned.Load(), more, err)
	}
}
