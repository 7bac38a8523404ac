package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// rig is an engine on a fresh store, with the receiver's endpoints.
type rig struct {
	store     surehook.Store
	e         *engine.Engine
	dir       string
	schema    string       // in PostgreSQL
	back      atomic.Int64 // how far the clock of SQLite is behind
	delivered atomic.Int64
	done      chan struct{} // a token a delivery that counted
}

// newRig opens an engine whose endpoints n receive "bench.<i>" each.
func newRig(ctx context.Context, s scenario) (*rig, error) {
	app.RaiseHeapFloor() // as a server does
	var id, key [32]byte
	_, _ = rand.Read(id[:]) // never fails
	_, _ = rand.Read(key[:])
	return newNode(ctx, s, "bench_"+hex.EncodeToString(id[:8]), key[:], true)
}

// newNode is newRig on a schema that others may share; the first one makes the
// endpoints.
func newNode(ctx context.Context, s scenario, schema string, key []byte, first bool) (*rig, error) {
	dir, err := os.MkdirTemp("", "surehook-bench-")
	if err != nil {
		return nil, err
	}
	r := &rig{dir: dir, schema: schema, done: make(chan struct{}, window)}
	if s.Database == "" {
		r.store, err = sqlite.Open(ctx, filepath.Join(dir, "bench.db"), sqlite.Options{Now: func() time.Time { return time.Now().Add(-time.Duration(r.back.Load())) }})
	} else {
		r.store, err = postgres.Open(ctx, s.Database, postgres.Options{Schema: schema})
	}
	if err != nil {
		return nil, err
	}
	r.e, err = engine.New(engine.Options{Store: r.store, MasterKeys: [][]byte{key}, MaxWebhooks: -1, MaxInFlight: s.InFlight, Observe: r.observe,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}})
	if err != nil {
		return nil, err
	}
	for i := range s.Endpoints {
		if !first {
			break
		}
		if err := r.endpoint(ctx, fmt.Sprintf("%s/hook/%d", s.Remote.URL, i), fmt.Sprintf("bench.%d", i), max(64/s.Endpoints, 8), 0); err != nil {
			return nil, err
		}
	}
	return r, r.e.Start(ctx)
}

func (r *rig) endpoint(ctx context.Context, url, typ string, concurrency int, timeout time.Duration) error {
	_, _, err := r.e.CreateWebhook(ctx, engine.Webhook{URL: url, EventTypes: []string{typ}, Envelope: surehook.EnvelopePayload,
		Limits: surehook.Limits{Concurrency: concurrency, Timeout: timeout}}, engine.Actor{})
	return err
}

func (r *rig) observe(t engine.Try) {
	if t.Decision != surehook.Finish {
		return
	}
	r.delivered.Add(1)
	select {
	case r.done <- struct{}{}:
	default:
	}
}

func (r *rig) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return errors.Join(r.e.Stop(ctx), r.store.Close(), os.RemoveAll(r.dir))
}

// publish stores one event for endpoint i.
func (r *rig) publish(ctx context.Context, i, size int) error {
	_, err := r.e.Publish(ctx, surehook.Event{Type: fmt.Sprintf("bench.%d", i), Data: payload(size, time.Now())})
	return err
}

// flood publishes as fast as deliveries come back: window events are on their
// way at any time.
func (r *rig) flood(ctx context.Context, endpoints, publishers, size int, warm, run time.Duration) (figures, error) {
	ctx, cancel := context.WithTimeout(ctx, warm+run)
	defer cancel()
	tokens := r.done
	for range window {
		tokens <- struct{}{}
	}
	var wg sync.WaitGroup
	var next atomic.Int64
	errs := make(chan error, publishers)
	for range publishers {
		wg.Go(func() {
			for {
				select {
				case <-ctx.Done():
					return
				case <-tokens:
				}
				if err := r.publish(ctx, int(next.Add(1))%endpoints, size); err != nil && ctx.Err() == nil {
					errs <- err
					return
				}
			}
		})
	}
	time.Sleep(warm)
	from, cpu, start := r.delivered.Load(), cpuTime(), time.Now()
	<-ctx.Done()
	n, took, used := r.delivered.Load()-from, time.Since(start), cpuTime()-cpu
	wg.Wait()
	select {
	case err := <-errs:
		return figures{}, err
	default:
	}
	return figures{PerS: float64(n) / took.Seconds(), CPU: micros(used) / float64(n), RSS: rss()}, nil
}

// pace publishes at a steady rate, spread evenly.
func (r *rig) pace(ctx context.Context, endpoints, size int, perS float64, run time.Duration) error {
	const lanes = 32
	var wg sync.WaitGroup
	start := time.Now()
	errs := make(chan error, lanes)
	for l := range lanes {
		wg.Go(func() {
			for n := l; ; n += lanes {
				at := start.Add(time.Duration(float64(n) / perS * float64(time.Second)))
				if at.Sub(start) > run {
					return
				}
				time.Sleep(time.Until(at))
				if err := r.publish(ctx, n%endpoints, size); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	wg.Wait()
	select {
	case err := <-errs:
		return err
	default:
		return nil
	}
}
