package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook/internal/api"
)

const restKey = "bench-admin-key-0123456789"

// restPublish is how many events a second POST /v1/events takes, one an answer,
// while they are being delivered; server and publishers share this process.
func restPublish(ctx context.Context, s scenario) (any, error) {
	r, err := newRig(ctx, s)
	if err != nil {
		return nil, err
	}
	f, err := r.rest(ctx, s)
	return f, errors.Join(err, r.close())
}

func (r *rig) rest(ctx context.Context, s scenario) (figures, error) {
	if _, _, err := api.EnsureAdminKey(ctx, r.e, restKey); err != nil {
		return figures{}, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return figures{}, err
	}
	srv := &http.Server{Handler: api.New(api.Options{Engine: r.e, Version: "bench"}), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }() // ends with Close
	defer srv.Close()

	ctx, cancel := context.WithTimeout(ctx, s.warm()+s.run())
	defer cancel()
	const publishers = 64
	c := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: publishers}}
	var accepted atomic.Int64
	errs := make(chan error, publishers)
	var wg sync.WaitGroup
	for range publishers {
		wg.Go(func() {
			for ctx.Err() == nil {
				if err := restPost(ctx, c, "http://"+l.Addr().String()+"/v1/events", s.Size); err != nil {
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
	wg.Wait()
	n, took := accepted.Load()-from, time.Since(start)
	select {
	case err := <-errs:
		return figures{}, err
	default:
	}
	return figures{PerS: float64(n) / took.Seconds()}, r.idle(context.WithoutCancel(ctx), 0)
}

func restPost(ctx context.Context, c *http.Client, url string, size int) error {
	body := append([]byte(`{"type":"bench.0","data":`), payload(size, time.Now())...)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(append(body, '}')))
	if err != nil {
		return err
	}
	req.Header.Set("Authorization", "Bearer "+restKey)
	req.Header.Set("Content-Type", "application/json")
	res, err := c.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		return err
	}
	if res.StatusCode != http.StatusAccepted {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}
