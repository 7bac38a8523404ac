package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"runtime"
)

// report is what --json prints.
type report struct {
	Raw     float64      `json:"raw_per_s"`
	SQLite  sqliteReport `json:"sqlite"`
	Noisy   noisyReport  `json:"noisy"`
	Lost    int64        `json:"lost"`
	Hundred *rateReport  `json:"endpoints_100,omitempty"`
	Loads   []loadReport `json:"loads,omitempty"`
	Backlog *backlogRow  `json:"backlog,omitempty"`
	REST    float64      `json:"rest_publish_per_s,omitempty"`
}

type sqliteReport struct {
	PerS   float64 `json:"per_s"`
	Ratio  float64 `json:"ratio"`
	P50    float64 `json:"p50_ms"`
	P99    float64 `json:"p99_ms"`
	CPU    float64 `json:"cpu_us_per_delivery"`
	RSS    float64 `json:"rss_mb"`
	RawCPU float64 `json:"raw_cpu_us"`
}

type noisyReport struct {
	Ratio float64 `json:"p99_ratio"`
	Alone float64 `json:"p99_alone_ms"`
	With  float64 `json:"p99_beside_ms"`
}

type rateReport struct {
	PerS  float64 `json:"per_s"`
	Ratio float64 `json:"ratio"`
}

type loadReport struct {
	Load float64 `json:"load"`
	PerS float64 `json:"per_s"`
	P50  float64 `json:"p50_ms"`
	P99  float64 `json:"p99_ms"`
}

type backlogRow struct {
	Pending int     `json:"pending"`
	Empty   float64 `json:"per_s_empty"`
	Beside  float64 `json:"per_s_beside"`
	Ratio   float64 `json:"ratio"`
	Drain   float64 `json:"drain_per_s"`
	RSS     float64 `json:"rss_mb"`
}

// bench is one run of the whole.
type bench struct {
	options
	rc  remote
	rep report
}

func run(ctx context.Context, o options) error {
	rc, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer rc.stop()
	b := &bench{options: o, rc: rc}
	steps := []func(context.Context) error{b.rates, b.half, b.noisy}
	if !o.quick {
		steps = append(steps, b.hundred, b.loads, b.backlog, b.rest)
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return err
		}
	}
	if o.json {
		return json.NewEncoder(os.Stdout).Encode(b.rep)
	}
	b.table()
	return nil
}

func (b *bench) base(endpoints int) scenario {
	return scenario{Remote: b.rc, Endpoints: endpoints, Size: b.size, WarmMs: 700, RunMs: 2000}
}

// against measures raw and engine in alternating rounds.
func (b *bench) against(ctx context.Context, endpoints int) (raw, rate, ratio, cpu, mem, rawCPU float64, err error) {
	var raws, rates, ratios, cpus, mems, rawCPUs []float64
	s := b.base(endpoints)
	for i := range b.rounds {
		r, err := in[figures](ctx, "raw", s)
		if err != nil {
			return 0, 0, 0, 0, 0, 0, err
		}
		f, err := in[figures](ctx, "sqlite", s)
		if err != nil {
			return 0, 0, 0, 0, 0, 0, err
		}
		raws, rates, ratios = append(raws, r.PerS), append(rates, f.PerS), append(ratios, f.PerS/r.PerS)
		cpus, mems, rawCPUs = append(cpus, f.CPU), append(mems, f.RSS), append(rawCPUs, r.CPU)
		b.rep.Lost += f.Lost
		progress("%d endpoints, round %d of %d: raw %.0f/s (%.0f µs CPU), sqlite %.0f/s (%.0f µs), ratio %.2f",
			endpoints, i+1, b.rounds, r.PerS, r.CPU, f.PerS, f.CPU, f.PerS/r.PerS)
	}
	return median(raws), median(rates), median(ratios), median(cpus), median(mems), median(rawCPUs), nil
}

func (b *bench) rates(ctx context.Context) (err error) {
	q := &b.rep.SQLite
	b.rep.Raw, q.PerS, q.Ratio, q.CPU, q.RSS, q.RawCPU, err = b.against(ctx, 1)
	return err
}

func (b *bench) half(ctx context.Context) error {
	f, err := b.latency(ctx, "latency", 0.5, 0)
	b.rep.SQLite.P50, b.rep.SQLite.P99 = f.P50, f.P99
	return err
}

func (b *bench) latency(ctx context.Context, role string, load float64, pending int) (figures, error) {
	s := b.base(1)
	s.PerS, s.RunMs, s.Pending = b.rep.SQLite.PerS*load, 3000, pending
	f, err := in[figures](ctx, role, s)
	b.rep.Lost += f.Lost
	progress("%s at %.0f/s: p50 %.2f ms, p99 %.2f ms", role, s.PerS, f.P50, f.P99)
	return f, err
}

// noisy compares a healthy endpoint's p99 beside a black hole with 100,000 due
// rows to the same without, in alternating rounds.
func (b *bench) noisy(ctx context.Context) error {
	rounds, pending := b.rounds, 100_000
	if b.quick {
		rounds = 3 // filling 100,000 rows is most of a round
	}
	const load = 0.2
	var alone, with, ratios []float64
	for range rounds {
		a, err := b.latency(ctx, "noisy", load, 0)
		if err != nil {
			return err
		}
		w, err := b.latency(ctx, "noisy", load, pending)
		if err != nil {
			return err
		}
		alone, with, ratios = append(alone, a.P99), append(with, w.P99), append(ratios, w.P99/a.P99)
	}
	b.rep.Noisy = noisyReport{Ratio: median(ratios), Alone: median(alone), With: median(with)}
	return nil
}

func (b *bench) hundred(ctx context.Context) error {
	_, rate, ratio, _, _, _, err := b.against(ctx, 100)
	b.rep.Hundred = &rateReport{PerS: rate, Ratio: ratio}
	return err
}

func (b *bench) loads(ctx context.Context) error {
	for _, load := range []float64{0.1, 0.5, 0.9} {
		f, err := b.latency(ctx, "latency", load, 0)
		if err != nil {
			return err
		}
		b.rep.Loads = append(b.rep.Loads, loadReport{Load: load, PerS: f.PerS, P50: f.P50, P99: f.P99})
	}
	return nil
}

func (b *bench) backlog(ctx context.Context) error {
	const pending = 1_000_000
	var empty, beside, ratios, mem, drain []float64
	for i := range b.rounds {
		s := b.base(1)
		e, err := in[figures](ctx, "sqlite", s)
		if err != nil {
			return err
		}
		s.Pending = pending
		f, err := in[backlogFigures](ctx, "backlog", s)
		if err != nil {
			return err
		}
		empty, beside, ratios = append(empty, e.PerS), append(beside, f.Beside.PerS), append(ratios, f.Beside.PerS/e.PerS)
		mem, drain = append(mem, f.RSS), append(drain, f.Drain.PerS)
		progress("backlog, round %d of %d: empty %.0f/s, beside %d pending %.0f/s, drain %.0f/s, %.0f MB",
			i+1, b.rounds, e.PerS, pending, f.Beside.PerS, f.Drain.PerS, f.RSS)
	}
	b.rep.Backlog = &backlogRow{Pending: pending, Empty: median(empty), Beside: median(beside), Ratio: median(ratios), RSS: median(mem), Drain: median(drain)}
	return nil
}

func (b *bench) rest(ctx context.Context) error {
	var rates []float64
	for range b.rounds {
		f, err := in[figures](ctx, "rest", b.base(1))
		if err != nil {
			return err
		}
		rates = append(rates, f.PerS)
		progress("REST: %.0f events/s", f.PerS)
	}
	b.rep.REST = median(rates)
	return nil
}

func (b *bench) table() {
	r := b.rep
	fmt.Printf("%d cores, %s, bodies of %d bytes, medians of %d alternating rounds\n\n", runtime.NumCPU(), runtime.Version(), b.size, b.rounds)
	fmt.Println("| what | figure |\n|---|---|")
	row := func(what, format string, a ...any) { fmt.Printf("| %s | %s |\n", what, fmt.Sprintf(format, a...)) }
	row("raw signed net/http loop, no store", "%.0f/s, %.0f µs CPU each", r.Raw, r.SQLite.RawCPU)
	row("SQLite, 1 endpoint", "%.0f/s, **%.2f × raw**, %.0f µs CPU each, %.0f MB", r.SQLite.PerS, r.SQLite.Ratio, r.SQLite.CPU, r.SQLite.RSS)
	row("publish to arrival at half load", "p50 %.1f ms, p99 %.1f ms", r.SQLite.P50, r.SQLite.P99)
	row("p99 beside a black hole with 100,000 due rows", "%.2f × alone (%.1f and %.1f ms)", r.Noisy.Ratio, r.Noisy.With, r.Noisy.Alone)
	if r.Hundred != nil {
		row("SQLite, 100 endpoints", "%.0f/s, **%.2f × raw**", r.Hundred.PerS, r.Hundred.Ratio)
	}
	for _, l := range r.Loads {
		row(fmt.Sprintf("publish to arrival at %.0f %% load", l.Load*100), "p50 %.1f ms, p99 %.1f ms at %.0f/s", l.P50, l.P99, l.PerS)
	}
	if l := r.Backlog; l != nil {
		row(fmt.Sprintf("beside %d pending rows", l.Pending), "%.0f/s, **%.2f ×** the rate without, %.0f MB", l.Beside, l.Ratio, l.RSS)
		row("draining that backlog", "%.0f/s", l.Drain)
	}
	if r.REST > 0 {
		row("publishing through the REST API", "%.0f/s", r.REST)
	}
	row("accepted and lost", "%d", r.Lost)
}
