package surehook

import "time"

// StatsFilter selects attempts. Zero fields select all.
type StatsFilter struct {
	Endpoint int64
	For      Viewer // at endpoints that it sees
	// Late is how much later than it began an attempt must have been recorded for it to
	// be left out, where that saves work; 0: an hour.
	Late time.Duration
}

// Standing counts endpoints by how they do, each once, and their deliveries.
type Standing struct {
	Healthy  int64 // enabled, and the last attempt succeeded, or there was none
	Failing  int64 // enabled, and the last attempt failed
	Paused   int64 // enabled, and nothing is sent
	Disabled int64

	Pending     int64
	DeadLetters int64
}

// StatsBucket sums the attempts of one step of time.
type StatsBucket struct {
	Start         time.Time
	Attempts      int64
	Succeeded     int64
	Failed        int64
	Dead          int64
	P50, P95, P99 time.Duration // of the attempts' durations
}
