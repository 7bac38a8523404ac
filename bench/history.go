package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
)

// historyFigures compare a steady load with many finished events in the tables
// to the same while retention removes them, in alternating rounds.
type historyFigures struct {
	P95     float64 `json:"p95_ms"`
	Pruning float64 `json:"p95_pruning_ms"`
	Ratio   float64 `json:"p95_ratio"` // the median of the rounds' ratios
	Pruned  float64 `json:"pruned_per_s"`
}

const (
	historyRounds = 5
	maxHistory    = 1_000_000 // on SQLite
	historyAge    = 35 * 24 * time.Hour
)

// engineHistory fills s.Pending finished events of one endpoint, 40 to 31 days
// old, then measures publish to arrival without and with retention at work.
func engineHistory(ctx context.Context, s scenario) (any, error) {
	r, err := newRig(ctx, s)
	if err != nil {
		return nil, err
	}
	got, err := r.history(ctx, s)
	return got, errors.Join(err, r.close())
}

func (r *rig) history(ctx context.Context, s scenario) (historyFigures, error) {
	fill := r.delivers
	if s.Database != "" {
		fill = func(ctx context.Context, n int) error { return r.finished(ctx, s.Database, n) }
	}
	if err := fill(ctx, s.Pending); err != nil {
		return historyFigures{}, err
	}
	s.Pending = 0
	var beside, pruning, ratio, rate []float64
	for range historyRounds {
		alone, err := r.latency(ctx, s)
		if err != nil {
			return historyFigures{}, err
		}
		with, removed, err := r.whilePruning(ctx, s)
		if err != nil {
			return historyFigures{}, err
		}
		progress("history: p95 %.2f ms, while retention removes %.0f/s: %.2f ms", alone.P95, removed, with.P95)
		beside, pruning, ratio, rate = append(beside, alone.P95), append(pruning, with.P95), append(ratio, with.P95/alone.P95), append(rate, removed)
	}
	return historyFigures{P95: median(beside), Pruning: median(pruning), Ratio: median(ratio), Pruned: median(rate)}, nil
}

// whilePruning measures while retention works, and tells how many events a second
// it removes.
func (r *rig) whilePruning(ctx context.Context, s scenario) (figures, float64, error) {
	stop, done := make(chan struct{}), make(chan error, 1)
	var pruned int64
	start := time.Now()
	go func() {
		var err error
		for more := true; more && err == nil; {
			select {
			case <-stop:
				more = false
			default:
				var n int64
				step := time.Now()
				n, more, err = r.store.Prune(ctx, time.Now().Add(-30*24*time.Hour), 500)
				pruned += n
				time.Sleep(4 * time.Since(step)) // as the engine does
			}
		}
		done <- err
	}()
	f, err := r.latency(ctx, s)
	close(stop)
	err = errors.Join(err, <-done)
	return f, float64(pruned) / time.Since(start).Seconds(), err
}

// delivers has the store accept and record events at a time long ago.
func (r *rig) delivers(ctx context.Context, n int) error {
	eps, err := r.store.ListEndpoints(ctx, surehook.EndpointFilter{}, surehook.Page{Limit: 1})
	if err != nil {
		return err
	}
	_, version, err := r.store.Changes(ctx, 0)
	if err != nil {
		return err
	}
	r.back.Store(int64(historyAge))
	defer r.back.Store(0)
	at := time.Now().Add(-historyAge)
	const batch = 500
	for done := 0; done < n; done += batch {
		items, outcomes := make([]surehook.Append, batch), make([]surehook.Outcome, batch)
		for i := range items {
			items[i] = surehook.Append{Event: &surehook.Event{ID: r.e.NewID("evt"), Type: "bench.0", OccurredAt: at, Data: []byte(`{"n":1}`)},
				Targets: []surehook.Target{{EndpointKey: eps[0].Key, Owned: true}}}
		}
		got, err := r.store.Append(ctx, version, items)
		if err != nil {
			return err
		}
		for i, a := range got {
			if a.Err != nil {
				return a.Err
			}
			d := a.Deliveries[0]
			outcomes[i] = surehook.Outcome{Delivery: d, Decision: surehook.Finish, Version: eps[0].Version, Attempt: &surehook.Attempt{ID: r.e.NewID("dlv"),
				EventKey: d.EventKey, EndpointKey: d.EndpointKey, Number: 1, Status: surehook.AttemptSucceeded, HTTPStatus: 200, CreatedAt: at, Duration: 5 * time.Millisecond}}
		}
		if _, err := r.store.Record(ctx, outcomes, nil); err != nil {
			return err
		}
		if done%100_000 == 0 {
			progress("history: %d finished events", done)
		}
	}
	return nil
}

// finished writes events that were delivered long ago, straight into the tables.
func (r *rig) finished(ctx context.Context, dsn string, n int) error {
	eps, err := r.store.ListEndpoints(ctx, surehook.EndpointFilter{}, surehook.Page{Limit: 1})
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(context.Background()) }() // its work is done
	const days = 10
	for day := range days {
		from := time.Now().UTC().Truncate(24*time.Hour).AddDate(0, 0, -40+day)
		key := (from.UnixMilli() - 1_577_836_800_000) << 22
		to := (from.AddDate(0, 0, 1).UnixMilli() - 1_577_836_800_000) << 22
		step := (to - key) / int64(n/days+1)
		name := from.Format("20060102")
		for _, sql := range []string{
			fmt.Sprintf(`CREATE TABLE %[1]s.events_%[2]s PARTITION OF %[1]s.events FOR VALUES FROM (%[3]d) TO (%[4]d)`, r.schema, name, key, to),
			fmt.Sprintf(`CREATE TABLE %[1]s.attempts_%[2]s PARTITION OF %[1]s.attempts FOR VALUES FROM (%[3]d) TO (%[4]d)`, r.schema, name, key, to),
			fmt.Sprintf(`WITH k AS MATERIALIZED (SELECT %[2]d + i::bigint * %[3]d AS key FROM generate_series(1, %[4]d) i), e AS (
				INSERT INTO %[1]s.event_keys (id, tenant, key, hash) SELECT 'evt_old_' || key, '', key, '\x00'::bytea FROM k)
				INSERT INTO %[1]s.events (key, tenant, id, type, identity, owner, sequence, subjects, occurred_at, created_at, trace, about, partner, alias, api_version, data)
				SELECT key, '', 'evt_old_' || key, 'bench.0', '', '', 0, '[]', (key >> 22) + 1577836800000, (key >> 22) + 1577836800000, '', '', '', '', '2026-10-01', '{"n":1}' FROM k`,
				r.schema, key, step, n/days),
			fmt.Sprintf(`INSERT INTO %[1]s.attempts SELECT e.key + 1, e.key, %[2]d, gen_random_uuid(), e.created_at, 5000, 0, 1, 200, 0, 0, 0, 0, 0, 0, 1, 0, '', '', NULL
				FROM %[1]s.events_%[3]s e`, r.schema, eps[0].Key, name),
		} {
			if _, err := conn.Exec(ctx, sql); err != nil {
				return err
			}
		}
		progress("history: %d finished events", (day+1)*(n/days))
	}
	_, err = conn.Exec(ctx, fmt.Sprintf(`ANALYZE %[1]s.events, %[1]s.attempts, %[1]s.event_keys`, r.schema))
	return err
}
