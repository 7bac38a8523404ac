package api

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/surehook/surehook"
)

// settled is how long after its end a bucket may still change: an attempt is
// recorded after it ended, and clocks differ.
const settled = 2 * time.Minute

// maxSums bounds what is remembered: a bucket is some 100 bytes.
const maxSums = 20_000

// sums remembers the buckets of the past, which don't change any more, so that who
// looks again waits only for the newest ones to be summed.
type sums struct {
	store surehook.Endpoints
	now   func() time.Time
	once  singleflight.Group

	mu   sync.Mutex
	past map[sumOf]surehook.StatsBucket
}

type sumOf struct {
	f     surehook.StatsFilter
	step  time.Duration
	start int64
}

// get sums attempts. Windows that begin on a whole step share their buckets.
func (s *sums) get(ctx context.Context, f surehook.StatsFilter, since, until time.Time, step time.Duration) ([]surehook.StatsBucket, error) {
	if since.UnixNano()%int64(step) != 0 {
		return s.store.Stats(ctx, f, since, until, step)
	}
	var out []surehook.StatsBucket
	s.mu.Lock()
	for next := since; next.Before(until); next = next.Add(step) {
		b, ok := s.past[sumOf{f, step, next.UnixNano()}]
		if !ok {
			break
		}
		out = append(out, b)
	}
	s.mu.Unlock()
	rest := since.Add(time.Duration(len(out)) * step)
	if !rest.Before(until) {
		return out, nil
	}
	// One caller sums for all that ask for the same; its own end must not fail them.
	name := fmt.Sprintf("%q %q %d %v %d %d", f.For.Tenant, f.For.Partner, f.Endpoint, step, rest.Unix(), until.Unix())
	fresh, err, _ := s.once.Do(name, func() (any, error) {
		return s.store.Stats(context.WithoutCancel(ctx), f, rest, until, step)
	})
	if err != nil {
		return nil, err
	}
	rows := fresh.([]surehook.StatsBucket)
	s.keep(f, step, rows)
	return append(out, rows...), nil
}

func (s *sums) keep(f surehook.StatsFilter, step time.Duration, rows []surehook.StatsBucket) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past == nil || len(s.past)+len(rows) > maxSums {
		s.past = make(map[sumOf]surehook.StatsBucket)
	}
	for _, b := range rows {
		if b.Start.Add(step + settled).Before(now) {
			s.past[sumOf{f, step, b.Start.UnixNano()}] = b
		}
	}
}
