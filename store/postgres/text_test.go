package postgres

import (
	"testing"

	"github.com/surehook/surehook"
)

// PostgreSQL's texts hold no U+0000. That is said, by whatever way one comes in;
// it is no failure of the store.
func TestTextsThatCantBeStored(t *testing.T) {
	s, ctx := reopenable(t, migrated(t), Options{})(), t.Context()
	for _, bad := range []string{"a\x00b", "caf\xe9"} {
		page := surehook.Page{Limit: 10}
		calls := map[string]func() error{
			"create": func() error { return s.CreateEndpoint(ctx, &surehook.Endpoint{ID: "whk_1", Description: bad}, 0, nil) },
			"limit":  func() error { return s.CreateEndpoint(ctx, &surehook.Endpoint{ID: "whk_1", Tenant: bad}, 1, nil) },
			"tenant": func() error { return s.PutTenant(ctx, &surehook.Tenant{ID: "t", Name: bad}, nil) },
			"type":   func() error { return s.PutEventType(ctx, &surehook.EventType{Name: "a.b", Description: bad}, nil) },
			"read":   func() error { _, err := s.Endpoint(ctx, bad); return err },
			"list":   func() error { _, err := s.ListEvents(ctx, surehook.EventFilter{Tenant: bad}, page); return err },
			"event":  func() error { _, err := s.Event(ctx, &bad, "e"); return err },
		}
		for name, call := range calls {
			if err := call(); surehook.CodeOf(err) != surehook.InvalidRequest {
				t.Errorf("%s of %q: %v", name, bad, err)
			}
		}
		// Lists are written as JSON, in which nothing is left that can't be stored.
		e := &surehook.Endpoint{ID: "whk_list", Subjects: []string{bad}}
		if err := s.CreateEndpoint(ctx, e, 0, nil); err != nil && surehook.CodeOf(err) != surehook.Conflict {
			t.Errorf("a subject of %q: %v", bad, err)
		}
	}
	got, err := s.Endpoint(ctx, "whk_list")
	if err != nil || got.Subjects[0] != "a\x00b" {
		t.Errorf("%q, %v", got.Subjects, err)
	}
}
