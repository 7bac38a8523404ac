package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/surehook/surehook/signing"
)

// rawLoop is what the engine is measured against: sign and POST in a loop, no
// store, no queue, no retries, on a net/http transport tuned for it and called
// directly, which is the fastest that net/http offers.
func rawLoop(url string, workers, size int, warm, run time.Duration) (figures, error) {
	secret, err := signing.NewSecret(rand.Reader)
	if err != nil {
		return figures{}, err
	}
	signer, err := signing.NewSigner(secret)
	if err != nil {
		return figures{}, err
	}
	t := &http.Transport{MaxIdleConns: 2 * workers, MaxIdleConnsPerHost: 2 * workers, DisableCompression: true}
	ctx, cancel := context.WithTimeout(context.Background(), warm+run)
	defer cancel()
	var sent, failed atomic.Int64
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				if err := rawPost(ctx, t, signer, fmt.Sprintf("%s/hook/%d", url, w%8), fmt.Sprintf("evt_%d_%d", w, n), size); err == nil {
					sent.Add(1)
				} else if ctx.Err() == nil {
					failed.Add(1)
				}
			}
		})
	}
	time.Sleep(warm)
	from, cpu, start := sent.Load(), cpuTime(), time.Now()
	wg.Wait()
	took := time.Since(start)
	n := sent.Load() - from
	if failed.Load() > 0 {
		return figures{}, fmt.Errorf("%d raw requests failed", failed.Load())
	}
	return figures{PerS: float64(n) / took.Seconds(), CPU: micros(cpuTime()-cpu) / float64(n), RSS: rss()}, nil
}

func rawPost(ctx context.Context, t *http.Transport, signer *signing.Signer, url, id string, size int) error {
	now := time.Now()
	body := payload(size, now)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header["Content-Type"] = []string{"application/json"}
	req.Header[http.CanonicalHeaderKey(signing.HeaderID)] = []string{id}
	req.Header[http.CanonicalHeaderKey(signing.HeaderTimestamp)] = []string{strconv.FormatInt(now.Unix(), 10)}
	req.Header[http.CanonicalHeaderKey(signing.HeaderSignature)] = []string{signer.Sign(id, now.Unix(), body)}
	res, err := t.RoundTrip(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if _, err := io.Copy(io.Discard, io.LimitReader(res.Body, 4096)); err != nil {
		return err
	}
	if res.StatusCode/100 != 2 {
		return fmt.Errorf("status %d", res.StatusCode)
	}
	return nil
}
