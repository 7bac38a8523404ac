package main

import (
	"context"
	"encoding/json"
	"os"
)

// report is what --json prints.
type report struct {
	Raw    float64 `json:"raw_per_s"`
	SQLite struct {
		PerS  float64 `json:"per_s"`
		Ratio float64 `json:"ratio"`
		P50   float64 `json:"p50_ms"`
		P99   float64 `json:"p99_ms"`
		CPU   float64 `json:"cpu_us_per_delivery"`
		RSS   float64 `json:"rss_mb"`
	} `json:"sqlite"`
	Noisy struct {
		Ratio float64 `json:"p99_ratio"`
	} `json:"noisy"`
	Lost int64 `json:"lost"`
}

func run(ctx context.Context, o options) error {
	rc, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer rc.stop()
	base := scenario{Remote: rc, Endpoints: 1, Size: o.size, WarmMs: 700, RunMs: 2000}
	var rep report
	var raw, rate, ratio, cpu, mem []float64
	for i := range o.rounds {
		a, err := in[figures](ctx, "raw", base)
		if err != nil {
			return err
		}
		b, err := in[figures](ctx, "sqlite", base)
		if err != nil {
			return err
		}
		raw, rate, ratio = append(raw, a.PerS), append(rate, b.PerS), append(ratio, b.PerS/a.PerS)
		cpu, mem = append(cpu, b.CPU), append(mem, b.RSS)
		rep.Lost += b.Lost
		progress("round %d: raw %.0f/s (%.0f µs), sqlite %.0f/s (%.0f µs), ratio %.2f", i+1, a.PerS, a.CPU, b.PerS, b.CPU, b.PerS/a.PerS)
	}
	rep.Raw, rep.SQLite.PerS, rep.SQLite.Ratio = median(raw), median(rate), median(ratio)
	rep.SQLite.CPU, rep.SQLite.RSS = median(cpu), median(mem)
	half := base
	half.PerS, half.RunMs = rep.SQLite.PerS/2, 4000
	f, err := in[figures](ctx, "latency", half)
	if err != nil {
		return err
	}
	rep.SQLite.P50, rep.SQLite.P99 = f.P50, f.P99
	rep.Lost += f.Lost
	progress("half load: p50 %.2f ms, p99 %.2f ms", f.P50, f.P99)
	return json.NewEncoder(os.Stdout).Encode(rep)
}
