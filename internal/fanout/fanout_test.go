package fanout

import (
	"fmt"
	"slices"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/surehook/surehook"
)

func endpoint(key int64, change ...func(*surehook.Endpoint)) *surehook.Endpoint {
	e := &surehook.Endpoint{Key: key, ID: fmt.Sprintf("whk_%d", key), Version: 1, Enabled: true, EventTypes: []string{"*"}}
	for _, f := range change {
		f(e)
	}
	return e
}

func types(p ...string) func(*surehook.Endpoint) {
	return func(e *surehook.Endpoint) { e.EventTypes = p }
}

func keys(es []*surehook.Endpoint) []int64 {
	var out []int64
	for _, e := range es {
		out = append(out, e.Key)
	}
	return out
}

// check asks both ways of matching, which must agree.
func check(t testing.TB, x *Index, all []*surehook.Endpoint, ev *surehook.Event, want ...int64) {
	t.Helper()
	if ev.About == "" {
		ev.Partner = x.Partner(ev.Tenant) // as an append does
	}
	got, _ := x.Match(ev)
	if !slices.Equal(keys(got), want) {
		t.Errorf("%+v is for %v, want %v", ev, keys(got), want)
	}
	for _, e := range all {
		if Wants(e, ev) != slices.Contains(want, e.Key) {
			t.Errorf("%+v: Wants says otherwise of %d", ev, e.Key)
		}
	}
}

// E-14: the table of matches, as documented.
func TestE14_TableOfMatches(t *testing.T) {
	all := []*surehook.Endpoint{endpoint(1, types("order")), endpoint(2, types("order.*")), endpoint(3), endpoint(4, types("order.paid", "order.*", "*"))}
	x := New()
	x.Apply(all, 1)
	for typ, want := range map[string][]int64{
		"order":           {1, 3, 4},
		"order.paid":      {2, 3, 4},
		"orders.paid":     {3, 4},
		"order.paid.late": {2, 3, 4},
		"ORDER.paid":      {3, 4},
		"orde":            {3, 4},
		"reorder.paid":    {3, 4},
		"order-x.paid":    {3, 4},
	} {
		check(t, x, all, &surehook.Event{Type: typ}, want...)
	}
}

// E-15: a filter without entries lets everything through, one with entries only
// those; an event without the property matches no filter for it.
func TestE15_EmptyFilters(t *testing.T) {
	all := []*surehook.Endpoint{endpoint(1),
		endpoint(2, func(e *surehook.Endpoint) { e.Subjects = []string{"a", "b/*"} }),
		endpoint(3, func(e *surehook.Endpoint) { e.Identities = []string{"me"} }),
		endpoint(4, types())}
	x := New()
	x.Apply(all, 1)
	for _, c := range []struct {
		subjects []string
		identity string
		want     []int64
	}{
		{nil, "", []int64{1}},
		{[]string{"a"}, "", []int64{1, 2}},
		{[]string{"aa"}, "", []int64{1}},
		{[]string{"x", "b/c"}, "me", []int64{1, 2, 3}},
		{[]string{"b"}, "you", []int64{1}},
	} {
		check(t, x, all, &surehook.Event{Type: "t", Subjects: c.subjects, Identity: c.identity}, c.want...)
	}
}

func TestScopes(t *testing.T) {
	all := []*surehook.Endpoint{endpoint(1),
		endpoint(2, func(e *surehook.Endpoint) { e.Tenant = "t1" }), endpoint(3, func(e *surehook.Endpoint) { e.Tenant = "t2" }),
		endpoint(4, func(e *surehook.Endpoint) { e.Partner = "p" }), endpoint(5, func(e *surehook.Endpoint) { e.Partner = "q" })}
	x := New()
	x.Apply(all, 1)
	x.SetPartner("t1", "p")
	check(t, x, all, &surehook.Event{Type: "t"}, 1)
	check(t, x, all, &surehook.Event{Type: "t", Tenant: "t1"}, 1, 2, 4)
	check(t, x, all, &surehook.Event{Type: "t", Tenant: "t2"}, 1, 3)
	check(t, x, all, &surehook.Event{Type: "t", Tenant: "p"}, 1) // a partner's name isn't a tenant's
	check(t, x, all, &surehook.Event{Type: surehook.TypeTest, Tenant: "t1"})
	// What the platform says of an endpoint is for the platform and that endpoint's partner, and never for itself.
	check(t, x, all, &surehook.Event{Type: surehook.TypeDisabled, Tenant: "t1", Partner: "p", About: "whk_2"}, 1, 4)
	check(t, x, all, &surehook.Event{Type: surehook.TypeDisabled, Tenant: "t2", About: "whk_3"}, 1)
	check(t, x, all, &surehook.Event{Type: surehook.TypeDisabled, Partner: "p", About: "whk_4"}, 1)
	check(t, x, all, &surehook.Event{Type: surehook.TypeDisabled, Partner: "p", About: "whk_gone"}, 1, 4)
	check(t, x, all, &surehook.Event{Type: surehook.TypeDisabled, About: "whk_1"})
	// What was accepted before a tenant went to another partner stays with the first.
	if old := (&surehook.Event{Type: "t", Tenant: "t1", Partner: "p"}); Wants(all[4], old) || !Wants(all[3], old) {
		t.Error("a partner sees what was another's")
	}
	x.SetPartner("t1", "")
	check(t, x, all, &surehook.Event{Type: "t", Tenant: "t1"}, 1, 2)
}

func TestOlderChangesAreIgnored(t *testing.T) {
	x := New()
	x.Apply([]*surehook.Endpoint{endpoint(1, func(e *surehook.Endpoint) { e.Version = 3 })}, 5)
	x.Apply([]*surehook.Endpoint{endpoint(1, func(e *surehook.Endpoint) { e.Version, e.Enabled = 2, false })}, 5)
	x.Apply([]*surehook.Endpoint{endpoint(2)}, 4)
	check(t, x, nil, &surehook.Event{Type: "t"}, 1)
	if x.Version() != 5 || x.Endpoint(2) != nil {
		t.Error("an older version was applied")
	}
}

// Endpoints that come and go leave nothing in the index.
func TestNothingStaysOfTheDeleted(t *testing.T) {
	x := New()
	for key := int64(1); key <= 100; key++ {
		e := endpoint(key, types("*", "a", "b.*"), func(e *surehook.Endpoint) { e.Tenant = fmt.Sprint(key) })
		x.SetPartner(e.Tenant, "p")
		x.Apply([]*surehook.Endpoint{e}, 2*key)
		gone := *e
		gone.Deleted, gone.Enabled, gone.Version = true, false, 2
		x.Apply([]*surehook.Endpoint{&gone}, 2*key+1)
		x.SetPartner(e.Tenant, "")
	}
	if n := len(x.byKey) + len(x.scopes) + len(x.partner); n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// Whatever is applied, the index finds what a look at every endpoint finds.
func TestIndexAgreesWithALookAtAll(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		x, all := New(), map[int64]*surehook.Endpoint{}
		pattern := rapid.SampledFrom([]string{"*", "a", "a.*", "a.b", "a.b.*", "b", "ab"})
		for v := range rapid.IntRange(1, 30).Draw(r, "changes") {
			key := int64(rapid.IntRange(1, 6).Draw(r, "key"))
			e := endpoint(key, func(e *surehook.Endpoint) {
				e.Version = int64(v + 1)
				e.EventTypes = rapid.SliceOfN(pattern, 1, 3).Draw(r, "types")
				e.Enabled = rapid.Bool().Draw(r, "enabled")
				e.Deleted = rapid.IntRange(0, 4).Draw(r, "deleted") == 0
				e.Tenant = rapid.SampledFrom([]string{"", "t"}).Draw(r, "tenant")
			})
			all[key] = e
			x.Apply([]*surehook.Endpoint{e}, int64(v+1))
		}
		ev := &surehook.Event{Type: rapid.SampledFrom([]string{"a", "a.b", "a.b.c", "ab.c", "b"}).Draw(r, "type"), Tenant: rapid.SampledFrom([]string{"", "t"}).Draw(r, "of")}
		var want []int64
		for key := int64(1); key <= 6; key++ {
			if e := all[key]; e != nil && e.Enabled && !e.Deleted && Wants(e, ev) {
				want = append(want, key)
			}
		}
		if got, _ := x.Match(ev); !slices.Equal(keys(got), want) {
			r.Fatalf("%v, want %v", keys(got), want)
		}
	})
}

func TestConcurrentUse(t *testing.T) {
	x := New()
	var wg sync.WaitGroup
	for key := int64(1); key <= 8; key++ {
		wg.Go(func() {
			for v := range int64(200) {
				x.Apply([]*surehook.Endpoint{endpoint(key, func(e *surehook.Endpoint) { e.Version = v })}, x.Version()+1)
				x.Match(&surehook.Event{Type: "a", Tenant: "t"})
				x.SetPartner("t", fmt.Sprint(v%2))
			}
		})
	}
	wg.Wait()
}

func BenchmarkMatch(b *testing.B) {
	x := New()
	var all []*surehook.Endpoint
	for key := range int64(1000) {
		all = append(all, endpoint(key, types(fmt.Sprintf("a%d.*", key))))
	}
	x.Apply(all, 1)
	ev := &surehook.Event{Type: "a7.b"}
	b.ReportAllocs()
	for b.Loop() {
		x.Match(ev)
	}
}
