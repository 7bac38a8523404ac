package api

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
)

// keyStore counts what is written of keys.
type keyStore struct {
	surehook.Keys
	writes []map[int64]time.Time
	err    error
}

func (s *keyStore) KeysUsed(_ context.Context, used map[int64]time.Time) error {
	s.writes = append(s.writes, maps.Clone(used))
	return s.err
}

func TestKeyUsesAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &keyStore{}
		u := &keyUses{store: s, log: slog.New(slog.DiscardHandler), every: keyUseEvery}
		start := time.Now()
		at := func(n int) time.Time { return start.Add(time.Duration(n) * time.Second) }
		// wrote checks the writes since it was asked last.
		wrote := func(what string, want ...map[int64]time.Time) {
			t.Helper()
			synctest.Wait()
			if len(s.writes) != len(want) {
				t.Fatalf("%s: %d writes, want %d: %v", what, len(s.writes), len(want), s.writes)
			}
			for i := range want {
				if !maps.Equal(s.writes[i], want[i]) {
					t.Errorf("%s: wrote %v, want %v", what, s.writes[i], want[i])
				}
			}
			s.writes = nil
		}
		u.saw(1, at(0))
		wrote("the first use, at once", map[int64]time.Time{1: at(0)})
		for n := range 50 {
			time.Sleep(time.Second) //nolint:forbidigo // in a bubble, where it moves the clock
			u.saw(int64(1+n%3), at(n+1))
		}
		wrote("within a minute")
		time.Sleep(10 * time.Second) //nolint:forbidigo // in a bubble
		wrote("after it, each key's last", map[int64]time.Time{1: at(49), 2: at(50), 3: at(48)})
		time.Sleep(time.Hour) //nolint:forbidigo // in a bubble
		wrote("nothing is used")

		s.err = errors.New("the disk is full")
		u.saw(1, at(100))
		u.saw(2, at(100))
		wrote("a failure", map[int64]time.Time{1: at(100), 2: at(100)})
		s.err = nil
		u.saw(2, at(200))
		time.Sleep(time.Minute) //nolint:forbidigo // in a bubble
		wrote("again, with what came since", map[int64]time.Time{1: at(100), 2: at(200)})
		u.saw(3, at(300))
		u.close(t.Context())
		wrote("the end waits for no minute", map[int64]time.Time{3: at(300)})
		u.saw(3, at(400))     // a request that was under way
		time.Sleep(time.Hour) //nolint:forbidigo // in a bubble
		wrote("nothing after it")
	})
}
