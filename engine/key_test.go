package engine_test

import (
	"errors"
	"path/filepath"
	"testing"

	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/seal"
	"github.com/surehook/surehook/store/sqlite"
)

// An engine with a key that can open none of the store's secrets would seal new
// ones that no other node can open, and fail every delivery.
func TestAnotherMasterKeyIsRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.db")
	start := func(lost bool, keys ...byte) error {
		t.Helper()
		s, err := sqlite.Open(t.Context(), path, sqlite.Options{FreeFloor: -1})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		}()
		var master [][]byte
		for _, k := range keys {
			key := make([]byte, 32)
			key[0] = k
			master = append(master, key)
		}
		e, err := engine.New(engine.Options{Store: s, MasterKeys: master, KeyLost: lost})
		if err != nil {
			t.Fatal(err)
		}
		err = e.Start(t.Context())
		if stop := e.Stop(t.Context()); stop != nil {
			t.Error(stop)
		}
		return err
	}
	for _, c := range []struct {
		what string
		lost bool
		keys []byte
		want error
	}{
		{"the first key", false, []byte{1}, nil},
		{"another one", false, []byte{2}, seal.ErrOtherKey},
		{"a new one before the old", false, []byte{2, 1}, nil},
		{"the new one alone", false, []byte{2}, nil},
		{"the old one alone", false, []byte{1}, seal.ErrOtherKey},
		{"a third, the others being lost", true, []byte{3}, nil},
		{"the third from then on", false, []byte{3}, nil},
	} {
		if err := start(c.lost, c.keys...); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", c.what, err, c.want)
		}
	}
}
