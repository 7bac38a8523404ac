// Command river measures River, a job queue on PostgreSQL, on the server that it
// is told: jobs that do nothing, inserted by some callers while they are worked.
// It is a module of its own, so that Surehook doesn't depend on it.
//
//	cd bench/river && go run . --database postgres://…
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"
)

type noop struct {
	Body string `json:"body"`
}

func (noop) Kind() string { return "noop" }

type worker struct {
	river.WorkerDefaults[noop]
	done *atomic.Int64
}

func (w *worker) Work(context.Context, *river.Job[noop]) error {
	w.done.Add(1)
	return nil
}

func main() {
	dsn := flag.String("database", "", "postgres:// URL of an empty database")
	run := flag.Duration("run", 10*time.Second, "how long to measure, after a second's warm-up")
	callers := flag.Int("callers", 8, "who insert at the same time")
	batch := flag.Int("batch", 100, "jobs an insert")
	flag.Parse()
	if err := measure(context.Background(), *dsn, *run, *callers, *batch); err != nil {
		fmt.Fprintln(os.Stderr, "river:", err)
		os.Exit(1)
	}
}

func measure(ctx context.Context, dsn string, run time.Duration, callers, batch int) error {
	pool, err := pgxpool.New(ctx, dsn)
	if err != nil {
		return err
	}
	defer pool.Close()
	migrator, err := rivermigrate.New(riverpgxv5.New(pool), nil)
	if err != nil {
		return err
	}
	if _, err := migrator.Migrate(ctx, rivermigrate.DirectionUp, nil); err != nil {
		return err
	}
	var done atomic.Int64
	workers := river.NewWorkers()
	river.AddWorker(workers, &worker{done: &done})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2000}},
		FetchCooldown:     2 * time.Millisecond,
		FetchPollInterval: 20 * time.Millisecond,
		Workers:           workers,
	})
	if err != nil {
		return err
	}
	if err := client.Start(ctx); err != nil {
		return err
	}
	stop := make(chan struct{})
	var inserted atomic.Int64
	var wg sync.WaitGroup
	for range callers {
		wg.Go(func() {
			jobs := make([]river.InsertManyParams, batch)
			for i := range jobs {
				jobs[i].Args = noop{Body: "x"}
			}
			for {
				select {
				case <-stop:
					return
				default:
				}
				if inserted.Load()-done.Load() > 5000 {
					time.Sleep(5 * time.Millisecond)
					continue
				}
				if _, err := client.InsertManyFast(ctx, jobs); err != nil {
					fmt.Fprintln(os.Stderr, "insert:", err)
					return
				}
				inserted.Add(int64(batch))
			}
		})
	}
	time.Sleep(time.Second)
	from, start := done.Load(), time.Now()
	time.Sleep(run)
	rate := float64(done.Load()-from) / time.Since(start).Seconds()
	close(stop)
	wg.Wait()
	fmt.Printf("%.0f jobs/s inserted and worked\n", rate)
	return client.Stop(ctx)
}
