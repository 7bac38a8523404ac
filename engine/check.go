package engine

import (
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/dispatch"
	"github.com/surehook/surehook/internal/egress"
)

func checkHeaders(h map[string]string) error {
	if len(h) > 20 {
		return surehook.Invalid("headers", "holds more than 20")
	}
	seen := make(map[string]string, len(h))
	for _, name := range slices.Sorted(maps.Keys(h)) {
		value, lower := h[name], strings.ToLower(name)
		switch {
		case len(name) > 100 || len(value) > 1024 || !egress.ValidHeader(name, value):
			return surehook.Invalid("headers", "one of the fields isn't a valid header field, its name is over 100 bytes, or its value over 1,024")
		case dispatch.ReservedHeader(name):
			return surehook.Invalid("headers."+name, "is set by surehook itself or belongs to the connection: leave it out")
		case seen[lower] != "":
			return surehook.Invalid("headers."+name, "is there as "+seen[lower]+" too, and case makes no difference: keep one")
		}
		seen[lower] = name
	}
	return nil
}

func checkLimits(l surehook.Limits) error {
	switch {
	case len(l.Waits) > 100 || slices.ContainsFunc(l.Waits, func(d time.Duration) bool { return d < time.Millisecond || d > 24*time.Hour }):
		return surehook.Invalid("limits.waits_ms", "must be at most 100 waits of 1 ms to 24 h")
	case l.Attempts < 0 || l.Attempts > 100:
		return surehook.Invalid("limits.attempts", "must be 1 to 100")
	case l.Timeout != 0 && (l.Timeout < 100*time.Millisecond || l.Timeout > time.Minute):
		return surehook.Invalid("limits.timeout_ms", "must be 100 to 60000")
	case l.Rate != 0 && !(l.Rate >= 0.001 && l.Rate <= 100_000): // NaN as well
		return surehook.Invalid("limits.rate_per_second", "must be 0.001 to 100000, or 0 for no limit")
	case l.Concurrency < 0 || l.Concurrency > 256:
		return surehook.Invalid("limits.concurrency", "must be 1 to 256")
	}
	return nil
}
