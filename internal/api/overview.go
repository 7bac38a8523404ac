package api

import (
	"context"
	"runtime"

	"github.com/surehook/surehook"
)

func (s *server) overviews() {
	const tag = "Overview"
	route(s, op{method: "GET", path: "/v1/overview", id: "overview", tag: tag, perm: surehook.PermRead, summary: "How endpoints do, and what waits",
		about: "Of those that the key sees."}, s.overview)
	route(s, op{method: "GET", path: "/v1/stats", id: "stats", tag: tag, perm: surehook.PermRead, summary: "Counts and latency over time, over all endpoints",
		about: "Of those that the key sees; tests aren't counted. The newest may be 10 s late where since is a whole step."}, s.allStats)
	route(s, op{method: "GET", path: "/v1/webhooks/{id}/lane", id: "webhookLane", tag: tag, perm: surehook.PermRead, summary: "Where an endpoint's lane stands on this node",
		about: "Each node that delivers has its own."}, s.lane)
	route(s, op{method: "GET", path: "/v1/system", id: "system", tag: tag, perm: surehook.PermRead, platform: true, summary: "What runs here, and what its lanes hold",
		about: "Lanes are this node's; the rest is of the whole store."}, s.system)
}

// EndpointCounts counts endpoints, each once.
type EndpointCounts struct {
	Healthy  int64 `json:"healthy" doc:"Enabled, and the last attempt succeeded, or there was none"`
	Failing  int64 `json:"failing" doc:"Enabled, and the last attempt failed"`
	Paused   int64 `json:"paused" doc:"Enabled, and nothing is sent"`
	Disabled int64 `json:"disabled"`
}

type overviewOut struct {
	Body struct {
		Webhooks    EndpointCounts `json:"webhooks"`
		Pending     int64          `json:"pending" doc:"Deliveries that are still to do"`
		DeadLetters int64          `json:"dead_letters"`
	}
}

func (s *server) overview(ctx context.Context, c *call, _ *none) (*overviewOut, error) {
	st, err := s.store.Standing(ctx, c.viewer())
	if err != nil {
		return nil, err
	}
	out := &overviewOut{}
	out.Body.Webhooks = EndpointCounts{Healthy: st.Healthy, Failing: st.Failing, Paused: st.Paused, Disabled: st.Disabled}
	out.Body.Pending, out.Body.DeadLetters = st.Pending, st.DeadLetters
	return out, nil
}

// PendingView counts deliveries that are still to do.
type PendingView struct {
	Owned     int64 `json:"owned" doc:"A lane holds them"`
	Due       int64 `json:"due" doc:"Due now, and in no lane"`
	Waiting   int64 `json:"waiting" doc:"For their time"`
	Held      int64 `json:"held" doc:"Due, but their partner is suspended"`
	OldestDue stamp `json:"oldest_due_at"`
}

// LanesView is where a node's lanes stand.
type LanesView struct {
	Lanes    int   `json:"lanes" doc:"Endpoints that have one"`
	Queued   int   `json:"queued" doc:"Deliveries in memory"`
	Bytes    int64 `json:"bytes" doc:"Their events' data"`
	InFlight int   `json:"in_flight" doc:"Requests"`
	Backlog  int   `json:"backlog" doc:"Outcomes that wait to be recorded"`
	Open     int   `json:"breakers_open"`
	HalfOpen int   `json:"breakers_half_open" doc:"One request at a time finds out"`
}

type systemOut struct {
	Body struct {
		Version      string      `json:"version"`
		Go           string      `json:"go"`
		Platform     string      `json:"platform"`
		Store        string      `json:"store"`
		StartedAt    stamp       `json:"started_at"`
		Nodes        int64       `json:"nodes" doc:"That are there"`
		LostNodes    int64       `json:"lost_nodes" doc:"Gone without a word; their deliveries wait for the end of a lease"`
		Undispatched stamp       `json:"oldest_undispatched_at" doc:"Of events that wait for their fan-out"`
		Pending      PendingView `json:"pending"`
		Lanes        LanesView   `json:"lanes"`
	}
}

func (s *server) system(ctx context.Context, _ *call, _ *none) (*systemOut, error) {
	counts, err := s.store.Counts(ctx)
	if err != nil {
		return nil, err
	}
	p, err := s.store.PendingCount(ctx)
	if err != nil {
		return nil, err
	}
	l := s.e.Stats()
	out := &systemOut{}
	b := &out.Body
	b.Version, b.Go, b.Platform, b.Store, b.StartedAt = s.version, runtime.Version(), runtime.GOOS+"/"+runtime.GOARCH, s.opt.Store, stamp(s.started)
	b.Nodes, b.LostNodes, b.Undispatched = counts.Leases, counts.ExpiredLeases, stamp(counts.Undispatched)
	b.Pending = PendingView{Owned: p.Owned, Due: p.Due, Waiting: p.Waiting, Held: p.Held, OldestDue: stamp(p.OldestDue)}
	b.Lanes = LanesView{Lanes: l.Lanes, Queued: l.Queued, Bytes: l.Bytes, InFlight: l.InFlight, Backlog: l.Backlog, Open: l.Open, HalfOpen: l.HalfOpen}
	return out, nil
}

type laneOut struct {
	Body struct {
		Here     bool   `json:"here" doc:"This node has a lane for the endpoint"`
		Queued   int    `json:"queued" doc:"Deliveries in memory"`
		InFlight int    `json:"in_flight" doc:"Requests"`
		Breaker  string `json:"breaker" enum:"closed,open,half_open" doc:"open: nothing is sent for a moment, after 10 failures in a row; half_open: one request at a time finds out"`
		Until    stamp  `json:"open_until"`
	}
}

func (s *server) lane(ctx context.Context, c *call, in *ByWebhook) (*laneOut, error) {
	ep, err := s.endpoint(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	l, here := s.e.LaneStats(ep.Key)
	out := &laneOut{}
	b := &out.Body
	b.Here, b.Queued, b.InFlight, b.Breaker, b.Until = here, l.Queued, l.InFlight, l.Breaker, stamp(l.Until)
	return out, nil
}
