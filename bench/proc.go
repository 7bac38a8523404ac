package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// figures are what one round measured.
type figures struct {
	PerS float64 `json:"per_s"`
	CPU  float64 `json:"cpu_us"` // of the sending process, a delivery
	RSS  float64 `json:"rss_mb"`
	P50  float64 `json:"p50_ms"`
	P95  float64 `json:"p95_ms,omitempty"`
	P99  float64 `json:"p99_ms"`
	Lost int64   `json:"lost"`
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// rss is this process's resident memory in MB.
func rss() float64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	fields := strings.Fields(string(b))
	if len(fields) < 2 {
		return 0
	}
	pages, err := strconv.ParseFloat(fields[1], 64)
	if err != nil {
		return 0
	}
	return pages * float64(os.Getpagesize()) / (1 << 20)
}
