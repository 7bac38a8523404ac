package postgres

import (
	"os"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/store/storetest"
)

// Behind a pooler in transaction mode each statement may meet another session.
// The store finds that out, does without prepared statements, and goes on.
func TestBehindAPooler(t *testing.T) {
	direct := migrated(t)
	nodes := twoOn(t, pgserver.Pooler(t, direct), Options{ListenDSN: direct})
	heard := make(chan surehook.Change, 1000)
	nodes[0].Watch(func(c surehook.Change) { heard <- c })
	replaysAtOnce(t, nodes)
	for i, s := range nodes {
		if !s.pooled.Load() {
			t.Errorf("node %d goes on with prepared statements", i)
		}
	}
	// Notices come over the direct connection.
	for len(heard) > 0 {
		<-heard
	}
	if err := nodes[1].CreateEndpoint(t.Context(), &surehook.Endpoint{ID: "whk_two"}, 0, nil); err != nil {
		t.Fatal(err)
	}
	for limit := time.After(10 * time.Second); ; {
		select {
		case c := <-heard:
			if c.Config {
				return
			}
		case <-limit:
			t.Fatal("a change wasn't heard of")
		}
	}
}

// The model, and the whole suite where there is time for it.
func TestStoreBehindAPooler(t *testing.T) {
	run := storetest.Model
	if os.Getenv("SUREHOOK_PROOF") == "full" {
		run = storetest.Run
	} else {
		few(t, "rapid.checks", "15")
	}
	run(t, func(t *testing.T, clock *storetest.Clock) (surehook.Store, func() surehook.Store) {
		dsn := timed(t, clock)
		s := reopenable(t, pgserver.Pooler(t, dsn), Options{ListenDSN: dsn})
		return s(), func() surehook.Store { return s() }
	})
}
