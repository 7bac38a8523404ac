package postgres

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook/internal/pgserver"
)

// A step of retention goes on where the last one ended: the rows of a day that is
// over stay until the day is dropped, and to read them in every step would take
// the square of their number.
func TestEachStepOfRetentionGoesOn(t *testing.T) {
	const step, steps = 10, 4
	s, ctx := reopenable(t, pgserver.Database(t), Options{})(), t.Context()
	day := time.Now().UnixMilli()/dayMs - 40
	old := partition{"events", day}
	for _, p := range []partition{old, {"attempts", day}} {
		if err := s.change(ctx, func(ctx context.Context, tx pgx.Tx) error { return p.make(ctx, tx, s.schema) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.pool.Exec(ctx, fmt.Sprintf(`WITH k AS (INSERT INTO surehook.event_keys (id, tenant, key, hash)
		SELECT 'evt_' || i, '', %[1]d + i, '' FROM generate_series(1, %[2]d) i RETURNING id, key)
		INSERT INTO surehook.events (key, tenant, id, type, identity, owner, sequence, subjects, occurred_at, created_at, trace, about, partner, alias, api_version, data)
		SELECT key, '', id, 'a', '', '', 0, '[]', 0, 0, '', '', '', '', '', '' FROM k`, keyAt(day*dayMs), step*steps)); err != nil {
		t.Fatal(err)
	}
	for n := range steps {
		gone, more, err := s.Prune(ctx, time.Now().AddDate(0, 0, -30), step)
		if err != nil || gone != step || !more {
			t.Fatalf("step %d: %d gone, more %t, %v", n, gone, more, err)
		}
		if got, want := s.days.reached(old)[0], keyAt(day*dayMs)+int64((n+1)*step); got != want {
			t.Errorf("step %d reached row %d, want %d", n, got-keyAt(day*dayMs), want-keyAt(day*dayMs))
		}
	}
	for range 2 { // its partitions, then nothing
		if _, _, err := s.Prune(ctx, time.Now().AddDate(0, 0, -30), step); err != nil {
			t.Fatal(err)
		}
	}
	if there, err := s.hasDay(ctx, s.pool, "events", day); err != nil || there {
		t.Errorf("the day is there still: %v", err)
	}
	if at := s.days.reached(old); at != [3]int64{} {
		t.Errorf("a day that is gone is remembered: %v", at)
	}
}

// A step that was under way when a tenant's days changed has looked at its rows by
// the old ones: what it saw isn't remembered, and they are looked at again.
func TestAStepDoesntOutliveAChangeOfDays(t *testing.T) {
	d, p, key := &days{}, partition{"events", 7}, [3]int64{9}
	began := d.began()
	d.forget()
	d.reach(p, key, began)
	d.over(p.day, true, began)
	if d.reached(p) != [3]int64{} || d.fresh(p.day) {
		t.Errorf("remembered: %v, %v", d.reached(p), d.kept)
	}
	d.reach(p, key, d.began())
	if d.reached(p) != key {
		t.Error("the next step isn't remembered")
	}
	if d.over(p.day, true, d.began()); d.reached(p) != [3]int64{} || !d.fresh(p.day) {
		t.Errorf("%v, %v after the day's end", d.reached(p), d.kept)
	}
}
