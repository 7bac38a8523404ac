package main

import (
	"fmt"
	"runtime"
)

// report is what --json prints.
type report struct {
	Raw      float64      `json:"raw_per_s"`
	RawCPU   float64      `json:"raw_cpu_us"`
	SQLite   *storeReport `json:"sqlite,omitempty"`
	Postgres *storeReport `json:"postgres,omitempty"`
	Noisy    *noisyReport `json:"noisy,omitempty"`
	Lost     int64        `json:"lost"`
	Loads    []loadReport `json:"loads,omitempty"`
	Backlog  *backlogRow  `json:"backlog,omitempty"`
	Nodes    []nodesRow   `json:"nodes,omitempty"`
	SQL      float64      `json:"sql_publish_per_s,omitempty"`
	Many     []manyRow    `json:"endpoints_10000,omitempty"`
	History  []historyRow `json:"history,omitempty"`
}

// nodesRow is several nodes on one database.
type nodesRow struct {
	Nodes int     `json:"nodes"`
	PerS  float64 `json:"per_s"`
}

// historyRow is a store that holds many finished events.
type historyRow struct {
	Store  string `json:"store"`
	Events int    `json:"events"`
	historyFigures
}

// manyRow is a store with 10,000 endpoints.
type manyRow struct {
	Store string  `json:"store"`
	PerS  float64 `json:"per_s"`
	RSS   float64 `json:"rss_mb"`
}

// storeReport is one store against the raw loop of the same rounds.
type storeReport struct {
	PerS    float64     `json:"per_s"`
	Ratio   float64     `json:"ratio"`
	P50     float64     `json:"p50_ms"`
	P99     float64     `json:"p99_ms"`
	CPU     float64     `json:"cpu_us_per_delivery"` // of the sender; a database server's comes on top
	RSS     float64     `json:"rss_mb"`
	Hundred *rateReport `json:"endpoints_100,omitempty"`
	REST    float64     `json:"rest_publish_per_s,omitempty"`
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

// table prints the report for people.
func (b *bench) table() {
	r := b.rep
	fmt.Printf("%d cores, %s, bodies of %d bytes, medians of %d alternating rounds, %d requests in flight\n\n",
		runtime.NumCPU(), runtime.Version(), b.size, b.rounds, workers)
	fmt.Println("| what | figure |\n|---|---|")
	row("raw signed net/http loop, no store", "%.0f/s, %.0f µs CPU each", r.Raw, r.RawCPU)
	for _, s := range b.stores {
		q := *s.report(&b.rep)
		row(s.name+", 1 endpoint", "%.0f/s, **%.2f × raw**, %.0f µs CPU each, %.0f MB", q.PerS, q.Ratio, q.CPU, q.RSS)
		if q.Hundred != nil {
			row(s.name+", 100 endpoints", "%.0f/s, **%.2f × raw**", q.Hundred.PerS, q.Hundred.Ratio)
		}
		row(s.name+", publish to arrival at half load", "p50 %.1f ms, p99 %.1f ms", q.P50, q.P99)
		if q.REST > 0 {
			row(s.name+", publishing through the REST API", "%.0f/s", q.REST)
		}
	}
	if n := r.Noisy; n != nil {
		row("p99 beside a black hole with 100,000 due rows", "%.2f × alone (%.1f and %.1f ms)", n.Ratio, n.With, n.Alone)
	}
	for _, l := range r.Loads {
		row(fmt.Sprintf("publish to arrival at %.0f %% load", l.Load*100), "p50 %.1f ms, p99 %.1f ms at %.0f/s", l.P50, l.P99, l.PerS)
	}
	if l := r.Backlog; l != nil {
		row(fmt.Sprintf("beside %d pending rows", l.Pending), "%.0f/s, **%.2f ×** the rate without, %.0f MB", l.Beside, l.Ratio, l.RSS)
		row("draining that backlog", "%.0f/s", l.Drain)
	}
	for _, n := range r.Nodes {
		row(fmt.Sprintf("PostgreSQL, %d nodes in one process", n.Nodes), "%.0f/s", n.PerS)
	}
	if r.SQL > 0 {
		row("publishing by SELECT surehook.enqueue(…), 16 callers", "%.0f/s", r.SQL)
	}
	for _, m := range r.Many {
		row(m.Store+", 10,000 endpoints", "%.0f/s, %.0f MB", m.PerS, m.RSS)
	}
	for _, h := range r.History {
		row(fmt.Sprintf("%s, %d finished events in the tables", h.Store, h.Events), "p95 %.1f ms; %.1f ms while retention removes %.0f events a second", h.P95, h.Pruning, h.Pruned)
	}
	row("accepted and lost", "%d", r.Lost)
}

func row(what, format string, a ...any) { fmt.Printf("| %s | %s |\n", what, fmt.Sprintf(format, a...)) }
