package engine

import (
	"testing"
	"testing/synctest"
	"time"
)

// P-03: half of the time, at least, is others'.
func TestRetentionRestsForAsLongAsItWorks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, start, steps := &Engine{ctx: t.Context()}, time.Now(), []time.Duration{time.Millisecond, time.Second, 10 * time.Millisecond}
		total, err := e.pruneSteps(func() (int64, bool, error) {
			time.Sleep(steps[0]) //nolint:forbidigo // in the bubble it moves the clock
			steps = steps[1:]
			return 5, len(steps) > 0, nil
		})
		if took := time.Since(start); total != 15 || err != nil || took != 2*time.Millisecond+2*time.Second+10*time.Millisecond {
			t.Errorf("%d events in %s, %v", total, took, err)
		}
	})
}
