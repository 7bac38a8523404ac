package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"time"

	"github.com/surehook/surehook"
)

const (
	window  = 512 // events on their way at any time
	workers = 64  // requests in flight, of the raw loop and of the engine alike
	callers = 256 // who publish at the same time, an event each
)

// profiled runs f with a CPU profile when a file is named.
func profiled(file string, f func() (any, error)) (any, error) {
	if file == "" {
		return f()
	}
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, err
	}
	got, err := f()
	pprof.StopCPUProfile()
	return got, errors.Join(err, out.Close())
}

// engineRate is deliveries a second at full load, and whether all arrived.
func engineRate(ctx context.Context, s scenario) (any, error) {
	r, err := newRig(ctx, s)
	if err != nil {
		return nil, err
	}
	f, err := r.flood(ctx, s.Endpoints, callers, s.Size, s.warm(), s.run())
	return f, errors.Join(err, r.close())
}

// engineLatency is publish to arrival at a steady rate.
func engineLatency(ctx context.Context, s scenario) (any, error) {
	r, err := newRig(ctx, s)
	if err != nil {
		return nil, err
	}
	f, err := r.latency(ctx, s)
	return f, errors.Join(err, r.close())
}

func (r *rig) latency(ctx context.Context, s scenario) (f figures, err error) {
	if err := r.pace(ctx, s.Endpoints, s.Size, s.PerS, s.warm()); err != nil {
		return f, err
	}
	if err := r.idle(ctx, s.Pending); err != nil {
		return f, err
	}
	if err := s.Remote.reset(""); err != nil {
		return f, err
	}
	before := r.delivered.Load()
	if err := r.pace(ctx, s.Endpoints, s.Size, s.PerS, s.run()); err != nil {
		return f, err
	}
	if err := r.idle(ctx, s.Pending); err != nil {
		return f, err
	}
	a, err := s.Remote.arrivals()
	f = figures{PerS: float64(a.Count) / s.run().Seconds(), P50: a.P50Ms, P95: a.P95Ms, P99: a.P99Ms, RSS: rss(), Lost: r.delivered.Load() - before - a.Count}
	return f, err
}

// idle waits until no more than rest rows are pending.
func (r *rig) idle(ctx context.Context, rest int) error {
	for range 600 {
		n, err := r.store.PendingCount(ctx)
		if err != nil {
			return err
		}
		if n.Owned+n.Due+n.Waiting <= int64(rest) {
			return nil
		}
		time.Sleep(50 * time.Millisecond)
	}
	return errors.New("deliveries are still pending after 30 s")
}

// engineNoisy is latency beside a black hole with s.Pending rows due.
func engineNoisy(ctx context.Context, s scenario) (any, error) {
	r, err := newRig(ctx, s)
	if err != nil {
		return nil, err
	}
	if s.Pending > 0 {
		if err := r.endpoint(ctx, s.Remote.Black+"/", "bench.black", 8, 2*time.Second); err != nil {
			return nil, err
		}
		if err := r.fill(ctx, "bench.black", s.Pending, s.Size); err != nil {
			return nil, err
		}
	}
	f, err := r.latency(ctx, s)
	return f, errors.Join(err, r.close())
}

// fill publishes n events in batches.
func (r *rig) fill(ctx context.Context, typ string, n, size int) error {
	const batch = 500
	for n > 0 {
		events := make([]surehook.Event, min(batch, n))
		for i := range events {
			events[i] = surehook.Event{Type: typ, Data: payload(size, time.Now())}
		}
		if _, err := r.e.Enqueue(ctx, events...); err != nil {
			return err
		}
		n -= len(events)
	}
	return nil
}

// backlogFigures compare the rate beside a backlog, and of the backlog itself.
type backlogFigures struct {
	Beside figures `json:"beside"`
	Drain  figures `json:"drain"`
	RSS    float64 `json:"rss_mb"`
}

// engineBacklog leaves s.Pending rows for a hundred endpoints whose receiver is
// down, measures a healthy endpoint beside them, then brings the receiver back
// and measures how fast the backlog goes.
func engineBacklog(ctx context.Context, s scenario) (any, error) {
	r, err := newRig(ctx, s)
	if err != nil {
		return nil, err
	}
	const held = 100
	if err := s.Remote.reset("down=1"); err != nil {
		return nil, err
	}
	for i := range held {
		if err := r.endpoint(ctx, fmt.Sprintf("%s/held/%d", s.Remote.URL, i), fmt.Sprintf("held.%d", i), 8, 2*time.Second); err != nil {
			return nil, err
		}
	}
	for i := range held {
		if err := r.fill(ctx, fmt.Sprintf("held.%d", i), s.Pending/held, s.Size); err != nil {
			return nil, err
		}
	}
	var out backlogFigures
	if out.Beside, err = r.flood(ctx, s.Endpoints, workers, s.Size, s.warm(), s.run()); err != nil {
		return nil, err
	}
	out.RSS = rss()
	if err := s.Remote.reset(""); err != nil {
		return nil, err
	}
	time.Sleep(11 * time.Second) // every breaker has probed by then
	from, start := r.delivered.Load(), time.Now()
	time.Sleep(2 * s.run())
	out.Drain = figures{PerS: float64(r.delivered.Load()-from) / time.Since(start).Seconds()}
	out.RSS = max(out.RSS, rss())
	return out, r.close()
}
