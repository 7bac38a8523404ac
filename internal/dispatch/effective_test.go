package dispatch

import (
	"reflect"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/profile"
)

// What an endpoint doesn't say itself its profile says; its own waits bring their
// own number of attempts.
func TestEffectiveLimits(t *testing.T) {
	own := []time.Duration{time.Second, 2 * time.Second}
	for _, c := range []struct {
		profile   string
		own, want surehook.Limits
	}{
		{"", surehook.Limits{}, surehook.Limits{Waits: profile.Standard.Retry.Waits, Attempts: 8, Timeout: 15 * time.Second, Concurrency: 8}},
		{"pylota", surehook.Limits{Attempts: 3}, surehook.Limits{Waits: profile.Pylota.Retry.Waits, Attempts: 3, Timeout: 15 * time.Second, Concurrency: 8}},
		{"standard", surehook.Limits{Waits: own, Timeout: time.Second, Rate: 2, Concurrency: 1}, surehook.Limits{Waits: own, Attempts: 3, Timeout: time.Second, Rate: 2, Concurrency: 1}},
	} {
		if got := Effective(&surehook.Endpoint{Profile: c.profile, Limits: c.own}); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s %+v: %+v, want %+v", c.profile, c.own, got, c.want)
		}
	}
}
