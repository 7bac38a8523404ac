package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// engineNodes is deliveries a second over several nodes on one database. They
// share this process, and the machine with the server and the receiver.
func engineNodes(ctx context.Context, s scenario) (any, error) {
	var id, key [32]byte
	_, _ = rand.Read(id[:]) // never fails
	_, _ = rand.Read(key[:])
	nodes := make([]*rig, s.Nodes)
	for i := range nodes {
		var err error
		if nodes[i], err = newNode(ctx, s, "bench_"+hex.EncodeToString(id[:8]), key[:], i == 0); err != nil {
			return nil, err
		}
	}
	var mu sync.Mutex
	var sum figures
	var errs []error
	var wg sync.WaitGroup
	for _, r := range nodes {
		wg.Go(func() {
			f, err := r.flood(ctx, s.Endpoints, callers/len(nodes), s.Size, s.warm(), s.run())
			mu.Lock()
			defer mu.Unlock()
			sum.PerS, sum.CPU, sum.RSS = sum.PerS+f.PerS, f.CPU, f.RSS
			errs = append(errs, err)
		})
	}
	wg.Wait()
	for _, r := range nodes {
		errs = append(errs, r.close())
	}
	return sum, errors.Join(errs...)
}

// sqlPublish is how many events a second callers add by SELECT enqueue(…), each
// in a transaction of its own, while they are being delivered.
func sqlPublish(ctx context.Context, s scenario) (any, error) {
	r, err := newRig(ctx, s)
	if err != nil {
		return nil, err
	}
	f, err := r.sql(ctx, s)
	return f, errors.Join(err, r.close())
}

func (r *rig) sql(ctx context.Context, s scenario) (figures, error) {
	const callers = 16
	ctx, cancel := context.WithTimeout(ctx, s.warm()+s.run())
	defer cancel()
	var accepted atomic.Int64
	errs := make(chan error, callers)
	var wg sync.WaitGroup
	for range callers {
		conn, err := pgx.Connect(ctx, s.Database)
		if err != nil {
			return figures{}, err
		}
		defer func() { _ = conn.Close(context.Background()) }() // the run is over
		wg.Go(func() {
			call := fmt.Sprintf(`SELECT %s.enqueue('bench.0', $1::json)`, r.schema)
			for ctx.Err() == nil {
				if _, err := conn.Exec(ctx, call, string(payload(s.Size, time.Now()))); err != nil {
					if ctx.Err() == nil {
						errs <- err
					}
					return
				}
				accepted.Add(1)
			}
		})
	}
	time.Sleep(s.warm())
	from, start := accepted.Load(), time.Now()
	<-ctx.Done()
	n, took := accepted.Load()-from, time.Since(start)
	wg.Wait()
	select {
	case err := <-errs:
		return figures{}, err
	default:
		return figures{PerS: float64(n) / took.Seconds(), RSS: rss()}, nil
	}
}
