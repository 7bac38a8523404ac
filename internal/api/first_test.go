package api_test

import (
	"testing"
	"time"

	"github.com/surehook/surehook/internal/api"
)

// Of nodes that start at once on an empty store, one makes the first admin key.
func TestOneFirstAdminKey(t *testing.T) {
	s := open(t)
	store := s.e.Store()
	now := time.Now()
	for i, want := range []bool{true, false, false} {
		mine, err := api.First(t.Context(), store, now.Add(time.Duration(i)*time.Second))
		if err != nil || mine != want {
			t.Errorf("call %d: %v, %v", i, mine, err)
		}
	}
	if mine, err := api.First(t.Context(), store, now.Add(2*time.Minute)); err != nil || !mine {
		t.Errorf("after whoever claimed it died: %v, %v", mine, err)
	}
}
