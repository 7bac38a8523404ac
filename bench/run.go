package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/surehook/surehook/internal/pgserver"
)

// bench is one run of the whole.
type bench struct {
	options
	rc     remote
	stores []store
	rep    report
}

// store is one that is measured.
type store struct {
	name   string
	dsn    string // empty: SQLite
	report func(*report) **storeReport
}

func run(ctx context.Context, o options) error {
	rc, err := startReceiver(ctx)
	if err != nil {
		return err
	}
	defer rc.stop()
	b := &bench{options: o, rc: rc}
	b.stores = []store{{name: "SQLite", report: func(r *report) **storeReport { return &r.SQLite }}}
	if o.postgres {
		srv, err := startPostgres(ctx)
		if err != nil {
			return err
		}
		defer func() { _ = srv.Close() }() // a temporary one
		b.stores = append(b.stores, store{"PostgreSQL", srv.DSN("postgres"), func(r *report) **storeReport { return &r.Postgres }})
	}
	steps := []func(context.Context) error{b.rates, b.half, b.noisy}
	if !o.quick {
		steps = append(steps, b.hundred, b.rest, b.loads, b.many, b.cluster, b.backlog, b.old)
	}
	if o.quick && o.history > 0 {
		steps = []func(context.Context) error{b.rates, b.old}
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

// startPostgres runs a server as a careful operator would: durable, with memory
// for its pages, and checkpoints far apart.
func startPostgres(ctx context.Context) (*pgserver.Server, error) {
	return pgserver.Start(ctx, pgserver.Config{Settings: map[string]string{
		"shared_buffers": "512MB", "max_wal_size": "4GB", "checkpoint_timeout": "15min", "wal_compression": "on"}})
}

func (b *bench) base(endpoints int) scenario {
	s := scenario{Remote: b.rc, Endpoints: endpoints, Size: b.size, WarmMs: 700, RunMs: 2000}
	if b.quick {
		s.WarmMs, s.RunMs = 500, 1500
	}
	return s
}

// compared is one store's rounds against the raw loop.
type compared struct{ rates, ratios, cpus, mems []float64 }

// against measures each store between two runs of the raw loop, in rounds: a ratio is to
// the mean of the two, since the machine's own speed drifts by more than what is measured.
func (b *bench) against(ctx context.Context, endpoints int) (raw, rawCPU float64, out []compared, err error) {
	var raws, rawCPUs []float64
	loop := func() (float64, error) {
		r, err := in[figures](ctx, "raw", b.base(endpoints))
		raws, rawCPUs = append(raws, r.PerS), append(rawCPUs, r.CPU)
		return r.PerS, err
	}
	before, err := loop()
	if err != nil {
		return 0, 0, nil, err
	}
	out = make([]compared, len(b.stores))
	for i := range b.rounds {
		progress("%d endpoints, round %d of %d", endpoints, i+1, b.rounds)
		for n, st := range b.stores {
			s := b.base(endpoints)
			s.Database, s.InFlight = st.dsn, workers
			f, err := in[figures](ctx, "rate", s)
			if err != nil {
				return 0, 0, nil, err
			}
			after, err := loop()
			if err != nil {
				return 0, 0, nil, err
			}
			ratio := f.PerS / ((before + after) / 2)
			before = after
			c := &out[n]
			c.rates, c.ratios = append(c.rates, f.PerS), append(c.ratios, ratio)
			c.cpus, c.mems = append(c.cpus, f.CPU), append(c.mems, f.RSS)
			b.rep.Lost += f.Lost
			progress("  %s %.0f/s (%.0f µs CPU), then raw %.0f/s: ratio %.2f", st.name, f.PerS, f.CPU, after, ratio)
		}
	}
	return median(raws), median(rawCPUs), out, nil
}

func (b *bench) rates(ctx context.Context) error {
	raw, cpu, out, err := b.against(ctx, 1)
	if err != nil {
		return err
	}
	b.rep.Raw, b.rep.RawCPU = raw, cpu
	for n, c := range out {
		*b.stores[n].report(&b.rep) = &storeReport{PerS: median(c.rates), Ratio: median(c.ratios), CPU: median(c.cpus), RSS: median(c.mems)}
	}
	return nil
}

func (b *bench) hundred(ctx context.Context) error {
	_, _, out, err := b.against(ctx, 100)
	if err != nil {
		return err
	}
	for n, c := range out {
		(*b.stores[n].report(&b.rep)).Hundred = &rateReport{PerS: median(c.rates), Ratio: median(c.ratios)}
	}
	return nil
}

func (b *bench) half(ctx context.Context) error {
	for _, st := range b.stores {
		q := *st.report(&b.rep)
		f, err := b.latency(ctx, "latency", st, q.PerS*0.5, 0)
		if err != nil {
			return err
		}
		q.P50, q.P99 = f.P50, f.P99
	}
	return nil
}

func (b *bench) latency(ctx context.Context, role string, st store, perS float64, pending int) (figures, error) {
	s := b.base(1)
	s.PerS, s.RunMs, s.Pending, s.Database = perS, s.RunMs*2, pending, st.dsn
	f, err := in[figures](ctx, role, s)
	b.rep.Lost += f.Lost
	progress("%s, %s at %.0f/s: p50 %.2f ms, p99 %.2f ms", st.name, role, s.PerS, f.P50, f.P99)
	return f, err
}

// noisy compares a healthy endpoint's p99 beside a black hole with 100,000 due
// rows to the same without, in alternating rounds.
func (b *bench) noisy(ctx context.Context) error {
	rounds, pending := b.rounds, 100_000
	if b.quick {
		rounds = 3 // filling 100,000 rows is most of a round
	}
	perS := b.rep.SQLite.PerS * 0.2
	var alone, with, ratios []float64
	for range rounds {
		a, err := b.latency(ctx, "noisy", b.stores[0], perS, 0)
		if err != nil {
			return err
		}
		w, err := b.latency(ctx, "noisy", b.stores[0], perS, pending)
		if err != nil {
			return err
		}
		alone, with, ratios = append(alone, a.P99), append(with, w.P99), append(ratios, w.P99/a.P99)
	}
	b.rep.Noisy = &noisyReport{Ratio: median(ratios), Alone: median(alone), With: median(with)}
	return nil
}

func (b *bench) loads(ctx context.Context) error {
	for _, load := range []float64{0.1, 0.5, 0.9} {
		f, err := b.latency(ctx, "latency", b.stores[0], b.rep.SQLite.PerS*load, 0)
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
		s.InFlight = workers
		e, err := in[figures](ctx, "rate", s)
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
	for _, st := range b.stores {
		var rates []float64
		for range b.rounds {
			s := b.base(1)
			s.Database = st.dsn
			f, err := in[figures](ctx, "rest", s)
			if err != nil {
				return err
			}
			rates = append(rates, f.PerS)
			progress("%s, REST: %.0f events/s", st.name, f.PerS)
		}
		(*st.report(&b.rep)).REST = median(rates)
	}
	return nil
}

// many measures each store with 10,000 endpoints that take turns.
func (b *bench) many(ctx context.Context) error {
	for _, st := range b.stores {
		s := b.base(10_000)
		s.Database, s.InFlight = st.dsn, workers
		f, err := in[figures](ctx, "rate", s)
		if err != nil {
			return err
		}
		b.rep.Many = append(b.rep.Many, manyRow{Store: st.name, PerS: f.PerS, RSS: f.RSS})
		progress("%s, 10,000 endpoints: %.0f/s, %.0f MB", st.name, f.PerS, f.RSS)
	}
	return nil
}

// cluster measures what needs PostgreSQL: several nodes, and callers that write
// events by SQL.
func (b *bench) cluster(ctx context.Context) error {
	for _, st := range b.stores {
		if st.dsn == "" {
			continue
		}
		for _, n := range []int{1, 2, 4} {
			var rates []float64
			for range b.rounds {
				s := b.base(16)
				s.Database, s.InFlight, s.Nodes = st.dsn, workers/n, n
				f, err := in[figures](ctx, "nodes", s)
				if err != nil {
					return err
				}
				rates = append(rates, f.PerS)
				progress("%d nodes: %.0f/s", n, f.PerS)
			}
			b.rep.Nodes = append(b.rep.Nodes, nodesRow{Nodes: n, PerS: median(rates)})
		}
		var rates []float64
		for range b.rounds {
			s := b.base(1)
			s.Database = st.dsn
			f, err := in[figures](ctx, "sql", s)
			if err != nil {
				return err
			}
			rates = append(rates, f.PerS)
			progress("SQL: %.0f events/s", f.PerS)
		}
		b.rep.SQL = median(rates)
	}
	return nil
}

// old measures beside many finished events, and while retention removes them.
func (b *bench) old(ctx context.Context) error {
	if b.history == 0 {
		return nil
	}
	for _, st := range b.stores {
		s := b.base(1)
		s.Database, s.PerS, s.Pending, s.RunMs = st.dsn, (*st.report(&b.rep)).PerS*0.2, b.history, 10_000
		if st.dsn == "" { // they are written as others are
			s.Pending, s.RunMs = min(s.Pending, maxHistory), 4_000
		}
		f, err := in[historyFigures](ctx, "history", s)
		if err != nil {
			return err
		}
		b.rep.History = append(b.rep.History, historyRow{Store: st.name, Events: s.Pending, historyFigures: f})
		progress("%s, %d finished events: p95 %.2f ms, while retention removes %.0f/s: %.2f ms", st.name, s.Pending, f.P95, f.Pruned, f.Pruning)
	}
	return nil
}
