package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/storetest"
)

func TestStore(t *testing.T) {
	storetest.Run(t, func(t *testing.T, clock *storetest.Clock) (surehook.Store, func() surehook.Store) {
		path := filepath.Join(t.TempDir(), "surehook.db")
		s := reopenable(t, path, Options{Now: clock.Now, FreeFloor: -1})
		return s(), func() surehook.Store { return s() }
	})
}

// reopenable gives a function that opens the file, closing it before if it is
// open, so that the next process's life begins.
func reopenable(t *testing.T, path string, opt Options) func() *Store {
	var s *Store
	shut := func() {
		if s == nil {
			return
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(shut)
	return func() *Store {
		shut()
		var err error
		if s, err = Open(t.Context(), path, opt); err != nil {
			t.Fatal(err)
		}
		return s
	}
}
