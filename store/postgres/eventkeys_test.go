package postgres

import (
	"errors"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// of makes an event with an id, of a tenant, as the store takes it.
func of(id, tenant string) []surehook.Append {
	return []surehook.Append{{Event: &surehook.Event{ID: id, Tenant: tenant, Type: "order.paid", OccurredAt: time.UnixMilli(1767225600000), Data: []byte(`{}`)}}}
}

func (s *Store) appendOne(t *testing.T, id, tenant string) surehook.Appended {
	t.Helper()
	out, err := s.Append(t.Context(), 0, of(id, tenant))
	if err != nil || out[0].Err != nil {
		t.Fatal(err, out)
	}
	return out[0]
}

// A node that has met no alias yet must not store an event again whose id is
// free by now, and whose alias isn't.
func TestAnAliasIsKnownToEveryNode(t *testing.T) {
	nodes := two(t)
	first, again := nodes[0].appendOne(t, "evt_1", "acme"), nodes[0].appendOne(t, "evt_1", "globex")
	if first.Duplicate || again.Duplicate {
		t.Fatal("the ids are two tenants'")
	}
	if _, err := nodes[0].pool.Exec(t.Context(), `DELETE FROM surehook.event_keys WHERE id = 'evt_1'`); err != nil { // as retention does
		t.Fatal(err)
	}
	if !nodes[1].append.plain() {
		t.Fatal("the other node takes care before it has met anything")
	}
	if out := nodes[1].appendOne(t, "evt_1", "globex"); !out.Duplicate || out.EventKey != again.EventKey {
		t.Errorf("%+v, want a duplicate of %d", out, again.EventKey)
	}
	if nodes[1].append.plain() {
		t.Error("the node has met an alias, and takes no care")
	}
}

// An id that was there makes its batch begin again, and the next ones careful.
func TestABatchWithAKnownIDIsBegunAgain(t *testing.T) {
	s := two(t)[0]
	first := s.appendOne(t, "evt_1", "")
	if !s.append.plain() {
		t.Fatal("a new id made the node careful")
	}
	out, err := s.Append(t.Context(), 0, append(of("evt_2", ""), of("evt_1", "")...))
	if err != nil {
		t.Fatal(err)
	}
	if out[0].Duplicate || out[0].EventKey == 0 || !out[1].Duplicate || out[1].EventKey != first.EventKey {
		t.Errorf("%+v", out)
	}
	if s.append.plain() {
		t.Error("a known id didn't make the node careful")
	}
	s.append.careful.Store(0)
	if _, err := s.Append(t.Context(), 1, of("evt_3", "")); !errors.Is(err, surehook.ErrConfigChanged) {
		t.Errorf("%v, want that the configuration changed", err)
	}
}
