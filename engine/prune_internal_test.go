package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// P-03: half of the time, at least, is others'.
func TestRetentionRestsByHowLongItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, start, steps := &Engine{ctx: t.Context()}, time.Now(), []time.Duration{time.Millisecond, time.Second, pruneBehind, time.Second, time.Millisecond}
		total, err := e.pruneSteps(func() (int64, bool, error) {
			time.Sleep(steps[0]) //nolint:forbidigo // in the bubble it moves the clock
			steps = steps[1:]
			return 5, len(steps) > 0, nil
		})
		if took := time.Since(start); total != 25 || err != nil || took != 5*time.Millisecond+5*time.Second+5*pruneBehind+2*time.Second+time.Millisecond {
			t.Errorf("%d events in %s, %v", total, took, err)
		}
	})
}
