package api

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/surehook/surehook"
)

// settled is how long after its end a bucket may still change: an attempt is
// recorded after it ended, and clocks differ.
const settled = 2 * time.Minute

// sumsAge is how late the newest sums over all endpoints may be: many may look at them
// at once, and each would have an hour's attempts read.
const sumsAge = 10 * time.Second

// maxSums bounds what is remembered: a bucket is some 100 bytes.
const maxSums = 20_000

// sums remembers the buckets of the past, which don't change any more, so that who
// looks again waits only for the newest ones to be summed.
type sums struct {
	store surehook.Endpoints
	now   func() time.Time
	once  singleflight.Group

	mu     sync.Mutex
	past   map[sumOf]surehook.StatsBucket
	latest map[sumOf]latestSums
}

// latestSums are the buckets that may still change, as they were a moment ago.
type latestSums struct {
	at    time.Time
	until time.Time
	rows  []surehook.StatsBucket
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
	rest := since.Add(time.Duration(len(out)) * step)
	l, ok := s.latest[sumOf{f, step, rest.UnixNano()}]
	s.mu.Unlock()
	switch age := s.now().Sub(l.at); {
	case !rest.Before(until):
		return out, nil
	case ok && f.Endpoint == 0 && age >= 0 && age < sumsAge && l.until.Equal(until):
		return append(out, l.rows...), nil
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
	s.keep(f, step, until, rows)
	return append(out, rows...), nil
}

// most is how many unknown buckets are summed at once, where they are quick.
const most = 8

// newest sums from the newest bucket back until the window is whole or wait is over, and
// tells where its sums begin. Those that may still change are always among them, and at
// least one other, so that whoever asks again gets on.
func (s *sums) newest(ctx context.Context, f surehook.StatsFilter, since, until time.Time, step, wait time.Duration) (out []surehook.StatsBucket, from time.Time, err error) {
	from = until
	for from.After(since) && !from.Add(settled).Before(s.now()) {
		from = from.Add(-step)
	}
	if from.Before(until) {
		if out, err = s.get(ctx, f, from, until, step); err != nil {
			return nil, from, err
		}
		slices.Reverse(out)
	}
	begun, n := time.Now(), 1
	for asked := 0; from.After(since); {
		if b, ok := s.known(sumOf{f, step, from.Add(-step).UnixNano()}); ok {
			out, from = append(out, b), b.Start
			continue
		}
		now := time.Now()
		if asked++; asked > 1 && now.Sub(begun) >= wait {
			break
		}
		low := from.Add(-time.Duration(n) * step)
		if low.Before(since) {
			low = since
		}
		rows, err := s.get(ctx, f, low, from, step)
		if err != nil {
			return nil, from, err
		}
		slices.Reverse(rows)
		out, from = append(out, rows...), low
		if n = min(2*n, most); time.Since(now) > wait/8 {
			n = 1
		}
	}
	slices.Reverse(out)
	return out, from, nil
}

func (s *sums) known(of sumOf) (surehook.StatsBucket, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.past[of]
	return b, ok
}

func (s *sums) keep(f surehook.StatsFilter, step time.Duration, until time.Time, rows []surehook.StatsBucket) {
	now := s.now()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.past == nil || len(s.past)+len(s.latest)*2+len(rows) > maxSums {
		s.past, s.latest = make(map[sumOf]surehook.StatsBucket), make(map[sumOf]latestSums)
	}
	for i, b := range rows {
		if b.Start.Add(step + settled).Before(now) {
			s.past[sumOf{f, step, b.Start.UnixNano()}] = b
			continue
		}
		if f.Endpoint == 0 {
			s.latest[sumOf{f, step, b.Start.UnixNano()}] = latestSums{now, until, rows[i:]}
		}
		return
	}
}
