package fanout

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/surehook/surehook"
)

func sentinel(key int64, tenant string, match ...surehook.Clause) *surehook.Endpoint {
	return endpoint(key, func(e *surehook.Endpoint) {
		e.Tenant, e.ID = tenant, fmt.Sprintf("sen_%d", key)
		e.Sentinel = &surehook.Sentinel{Match: match, Until: surehook.Until{Kind: surehook.UntilNever}, Status: surehook.SentinelActive}
	})
}

func TestSentinelsMatchBySubject(t *testing.T) {
	ending := sentinel(5, "", surehook.Clause{Subject: "github:o/r#7", Types: []string{"x"}})
	ending.Sentinel.Until.Kind = surehook.UntilTerminal
	all := []*surehook.Endpoint{
		sentinel(1, "", surehook.Clause{Subject: "github:O/r#7"}),
		sentinel(2, "", surehook.Clause{Subject: "github:o/*", Types: []string{"*.closed"}}, surehook.Clause{Subject: "github:o/r"}),
		sentinel(3, "acme", surehook.Clause{Subject: "*"}),
		sentinel(4, "", surehook.Clause{Subject: "a"}), ending,
	}
	x := New()
	x.Apply(all, 1)
	last := surehook.CloudEvent{Source: "s", Extensions: map[string]any{"terminal": true}}.Form()
	for _, c := range []struct {
		ev   surehook.Event
		want []int64
	}{
		{surehook.Event{Type: "pr.closed", Subjects: []string{"github:o/r#7", "github:o/r", "github:o"}}, []int64{1, 2}},
		{surehook.Event{Type: "pr.opened", Subjects: []string{"github:o/r#8"}}, nil},
		{surehook.Event{Type: "pr.closed", Subjects: []string{"github:o/r#8"}}, []int64{2}},
		{surehook.Event{Type: "pr.closed", Tenant: "acme", Subjects: []string{"b"}}, []int64{3}},
		{surehook.Event{Type: "pr.closed", Tenant: "acme"}, nil},
		{surehook.Event{Type: "x", Subjects: []string{"A"}}, nil},
	} {
		check(t, x, all, &c.ev, c.want...)
	}
	// One that only ends is looked at, though it isn't the sentinel's.
	got, _ := x.Match(&surehook.Event{Type: "pr.closed", Subjects: []string{"github:o/r#7"}, Data: last})
	if !slices.Equal(keys(got), []int64{1, 2, 5}) || Wants(ending, &surehook.Event{Type: "pr.closed", Subjects: []string{"github:o/r#7"}, Data: last}) {
		t.Errorf("%v", keys(got))
	}
	// It isn't the last of the repository's.
	if what, _ := (&surehook.Sentinel{Match: []surehook.Clause{{Subject: "github:o/r"}}, Until: ending.Sentinel.Until}).Sighting(
		&surehook.Event{Subjects: []string{"github:o/r#7", "github:o/r"}}, func() bool { return true }); what.Last || what.Silent {
		t.Errorf("%+v", what)
	}
	x.Retire([]int64{1, 99})
	check(t, x, nil, &surehook.Event{Type: "pr.closed", Subjects: []string{"github:o/r#7"}}, 2)
	paused := *all[1]
	n := *paused.Sentinel
	n.Status = surehook.SentinelPaused
	paused.Sentinel, paused.Version = &n, 2
	over, orphan := *all[0], *all[2]
	ended := *over.Sentinel
	ended.Status, ended.EndedAt = surehook.SentinelExpired, time.Unix(1, 0)
	over.Sentinel, over.Version = &ended, 2
	orphaned := *orphan.Sentinel
	orphaned.EndedAt = time.Unix(1, 0)
	orphan.Sentinel, orphan.Version, orphan.Enabled, orphan.DisabledReason = &orphaned, 2, false, surehook.ReasonSession
	x.Apply([]*surehook.Endpoint{&paused, &over, &orphan}, 2)
	if got, want := x.Sentinels(), map[surehook.SentinelStatus]int{surehook.SentinelActive: 2, surehook.SentinelPaused: 1, surehook.SentinelExpired: 1, surehook.SentinelOrphaned: 1}; !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if platform, acme := x.Watches(all[0]), x.Watches(all[2]); platform != 3 || acme != 0 {
		t.Errorf("%d and %d count to the bounds", platform, acme)
	}
	check(t, x, nil, &surehook.Event{Type: "pr.closed", Subjects: []string{"github:o/r#7"}})
}

// The index says what a look at each sentinel would, whatever came and went.
func TestWatchedIsAScan(t *testing.T) {
	subject := rapid.StringMatching(`(github:)?[abA]{0,3}`)
	rapid.Check(t, func(t *rapid.T) {
		x, live := New(), map[int64]*surehook.Endpoint{}
		for version := range rapid.Int64Range(1, 30).Draw(t, "changes") {
			key := rapid.Int64Range(1, 6).Draw(t, "key")
			var match []surehook.Clause
			for range rapid.IntRange(1, 3).Draw(t, "clauses") {
				c := surehook.Clause{Subject: subject.Draw(t, "subject") + rapid.SampledFrom([]string{"", "*"}).Draw(t, "star")}
				if c.Subject == "" {
					c.Subject = "*"
				}
				match = append(match, c)
			}
			e := sentinel(key, rapid.SampledFrom([]string{"", "acme"}).Draw(t, "tenant"), match...)
			if live[key] != nil {
				e.Tenant = live[key].Tenant
			}
			e.Version, e.Deleted = version+1, rapid.IntRange(0, 3).Draw(t, "deleted") == 0
			x.Apply([]*surehook.Endpoint{e}, version+1)
			if live[key] = e; e.Deleted {
				delete(live, key)
			}
		}
		ev := &surehook.Event{Type: "x", Tenant: rapid.SampledFrom([]string{"", "acme"}).Draw(t, "of"), Subjects: rapid.SliceOfN(subject, 0, 3).Draw(t, "subjects")}
		var want []int64
		for key, e := range live {
			if Wants(e, ev) {
				want = append(want, key)
			}
		}
		slices.Sort(want)
		if got, _ := x.Match(ev); !slices.Equal(keys(got), want) {
			t.Fatalf("%+v: %v, want %v", ev, keys(got), want)
		}
		for _, e := range live {
			gone := *e
			gone.Deleted, gone.Version = true, 100
			x.Apply([]*surehook.Endpoint{&gone}, 100)
		}
		if len(x.scopes) != 0 || len(x.byKey) != 0 || len(x.watches) != 0 {
			t.Fatalf("something is left: %+v", x.scopes)
		}
		for status, n := range x.Sentinels() {
			if n != 0 {
				t.Fatalf("%d are %s", n, status)
			}
		}
	})
}

// 100,000 sentinels, one in a hundred of a whole repository; an event is for two of
// them. The scan is what the index saves.
func BenchmarkSentinels(b *testing.B) {
	x := New()
	all := make([]*surehook.Endpoint, 0, 100_000)
	for i := range int64(100_000) {
		c := surehook.Clause{Subject: fmt.Sprintf("github:owner%d/repo%d#%d", i/100%100, i/100, i), Types: []string{"github.pull_request.*", "github.check_suite.completed"}}
		if i%100 == 0 {
			c.Subject = fmt.Sprintf("github:owner%d/repo%d#*", i/100%100, i/100)
		}
		all = append(all, sentinel(i+1, "", c))
	}
	x.Apply(all, 1)
	ev := &surehook.Event{Type: "github.pull_request.closed", Subjects: []string{"github:owner7/repo7#777", "github:owner7/repo7", "github:owner7"}}
	if got, _ := x.Match(ev); len(got) != 2 {
		b.Fatal(keys(got))
	}
	b.Run("index", func(b *testing.B) {
		for b.Loop() {
			x.Match(ev)
		}
	})
	b.Run("scan", func(b *testing.B) {
		for b.Loop() {
			for _, e := range all {
				Wants(e, ev)
			}
		}
	})
}
