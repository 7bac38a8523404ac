package api

import (
	"context"
	"time"

	"github.com/surehook/surehook"
)

// StatsWindow says what is summed.
type StatsWindow struct {
	Since time.Time `query:"since" doc:"A day ago by default"`
	Until time.Time `query:"until" doc:"Now by default"`
	Step  int       `query:"step_s" minimum:"60" maximum:"86400" default:"3600" doc:"Seconds a bucket"`
	Wait  int       `query:"wait_ms" minimum:"0" maximum:"60000" doc:"After so many milliseconds the newest buckets are answered, and the others are left out: ask again for more. So are attempts that were recorded over five minutes after they began. 0: all of them. since and until must be on whole steps"`
}

type statsIn struct {
	ByWebhook
	StatsWindow
}

// StatsBucket sums the attempts of one step of time.
type StatsBucket struct {
	Start     stamp   `json:"start"`
	Attempts  int64   `json:"attempts"`
	Succeeded int64   `json:"succeeded"`
	Failed    int64   `json:"failed"`
	Dead      int64   `json:"dead"`
	P50MS     float64 `json:"p50_ms"`
	P95MS     float64 `json:"p95_ms"`
	P99MS     float64 `json:"p99_ms"`
}

type statsOut struct {
	Body struct {
		Items []StatsBucket `json:"items"`
		From  stamp         `json:"from" doc:"Where the items begin: after since where wait_ms was over"`
	}
}

const maxBuckets = 1000

func (s *server) stats(ctx context.Context, c *call, in *statsIn) (*statsOut, error) {
	ep, err := s.endpoint(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	return s.sum(ctx, surehook.StatsFilter{Endpoint: ep.Key}, in.StatsWindow)
}

type allStatsIn struct{ StatsWindow }

// allStats sums over all endpoints that the caller sees.
func (s *server) allStats(ctx context.Context, c *call, in *allStatsIn) (*statsOut, error) {
	return s.sum(ctx, surehook.StatsFilter{For: c.viewer()}, in.StatsWindow)
}

func (s *server) sum(ctx context.Context, f surehook.StatsFilter, in StatsWindow) (*statsOut, error) {
	until, since, step := in.Until, in.Since, time.Duration(in.Step)*time.Second
	if until.IsZero() {
		until = s.now()
	}
	if since.IsZero() {
		since = until.Add(-24 * time.Hour)
	}
	switch {
	case !since.Before(until):
		return nil, surehook.Invalid("until", "must be after since")
	case until.Sub(since)/step > maxBuckets:
		return nil, surehook.Invalid("step_s", "makes more than 1000 buckets of that window")
	}
	var rows []surehook.StatsBucket
	var err error
	from := since
	if in.Wait > 0 {
		if since.UnixNano()%int64(step) != 0 || until.UnixNano()%int64(step) != 0 {
			return nil, surehook.Invalid("wait_ms", "needs since and until on whole steps")
		}
		f.Late = 5 * time.Minute
		rows, from, err = s.sums.newest(ctx, f, since, until, step, time.Duration(in.Wait)*time.Millisecond)
	} else {
		rows, err = s.sums.get(ctx, f, since, until, step)
	}
	if err != nil {
		return nil, err
	}
	out := &statsOut{}
	out.Body.From = stamp(from)
	out.Body.Items = make([]StatsBucket, len(rows))
	for i, b := range rows {
		out.Body.Items[i] = StatsBucket{Start: stamp(b.Start), Attempts: b.Attempts, Succeeded: b.Succeeded, Failed: b.Failed, Dead: b.Dead,
			P50MS: millis(b.P50), P95MS: millis(b.P95), P99MS: millis(b.P99)}
	}
	return out, nil
}
