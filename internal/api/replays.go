package api

import (
	"context"
	"net/http"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// ReplayInput says which events to deliver again.
type ReplayInput struct {
	IDs        []string   `json:"ids,omitempty" maxItems:"100" doc:"Event ids; or a window:"`
	Since      *time.Time `json:"since,omitempty" doc:"Occurred at or after; nothing older than the replay window (30 days, or as long as the event is kept) is sent"`
	Until      *time.Time `json:"until,omitempty" doc:"Occurred before; now by default"`
	Status     string     `json:"status,omitempty" enum:"dead,failed,succeeded" doc:"Of those, the ones that died and never succeeded there, whose latest attempt failed, or that succeeded"`
	Background bool       `json:"background,omitempty" doc:"As a job without the bounds of one request (1000 events, 20000 looked through); it survives restarts"`
}

// Queued tells what a replay did.
type Queued struct {
	Queued     int         `json:"queued"`
	InProgress int         `json:"in_progress,omitempty" doc:"An attempt is being made right now: left alone"`
	Replay     *ReplayView `json:"replay,omitempty" doc:"The background job"`
}

type queuedOut struct{ Body Queued }

func queued(r engine.ReplayReceipt) *queuedOut {
	return &queuedOut{Queued{Queued: r.Queued, InProgress: r.InProgress}}
}

// ReplayView is a background replay.
type ReplayView struct {
	ID        string `json:"id"`
	WebhookID string `json:"webhook_id"`
	Since     stamp  `json:"since"`
	Until     stamp  `json:"until"`
	Status    text   `json:"status" doc:"The filter"`
	State     string `json:"state" doc:"running, done, cancelled or failed"`
	Scanned   int64  `json:"scanned"`
	Queued    int64  `json:"queued"`
	Total     int64  `json:"total" doc:"Events in the window, estimated"`
	Error     text   `json:"error"`
	CreatedAt stamp  `json:"created_at"`
	UpdatedAt stamp  `json:"updated_at"`
}

func viewReplay(r *surehook.Replay) ReplayView {
	return ReplayView{ID: r.ID, WebhookID: r.EndpointID, Since: stamp(r.Since), Until: stamp(r.Until), Status: text(r.Status), State: string(r.State),
		Scanned: r.Scanned, Queued: r.Queued, Total: r.Total, Error: text(r.Error), CreatedAt: stamp(r.CreatedAt), UpdatedAt: stamp(r.UpdatedAt)}
}

func (s *server) replays() {
	const tag = "Replays"
	manage, read := surehook.PermWebhooksManage, surehook.PermRead
	route(s, op{method: "POST", path: "/v1/webhooks/{id}/replay", id: "replay", tag: tag, perm: manage, status: http.StatusAccepted, summary: "Deliver past events again",
		about: "By ids, by a window of time, or as a background job. The webhook-id stays; a new run of attempts begins."}, s.replay)
	route(s, op{method: "GET", path: "/v1/replays", id: "listReplays", tag: tag, perm: read, summary: "Background replays, newest first"}, s.listReplays)
	route(s, op{method: "GET", path: "/v1/replays/{id}", id: "getReplay", tag: tag, perm: read, summary: "A background replay's progress"}, s.getReplay)
	route(s, op{method: "POST", path: "/v1/replays/{id}/cancel", id: "cancelReplay", tag: tag, perm: manage, summary: "End a background replay",
		about: "What it queued stays queued."}, s.cancelReplay)
}

type replayIn struct {
	ByWebhook
	Once
	Body ReplayInput
}

func (s *server) replay(ctx context.Context, c *call, in *replayIn) (*queuedOut, error) {
	ep, err := s.endpoint(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	return once(ctx, s, c, "replay:"+in.ID, in.IdempotencyKey, in.Body, func() (*queuedOut, error) {
		return s.startReplay(ctx, c, ep, &in.Body)
	})
}

func (s *server) startReplay(ctx context.Context, c *call, ep *surehook.Endpoint, in *ReplayInput) (*queuedOut, error) {
	req := engine.ReplayRequest{IDs: in.IDs, Status: in.Status, Permit: func(typ string) error { return s.types.permit(ctx, c, []string{typ}) }}
	if in.Since != nil {
		req.Since = *in.Since
	}
	if in.Until != nil {
		req.Until = *in.Until
	}
	if len(req.IDs) > 0 && (in.Since != nil || in.Until != nil || req.Status != "") {
		return nil, surehook.Invalid("ids", "can't be given together with a window")
	}
	if in.Background {
		// Whoever asked is gone when the job meets the events.
		if err := s.types.permit(ctx, c, ep.EventTypes); err != nil {
			return nil, err
		}
		job, err := s.e.StartReplay(ctx, ep.ID, req, c.actor())
		if err != nil {
			return nil, err
		}
		v := viewReplay(job)
		return &queuedOut{Queued{Replay: &v}}, nil
	}
	r, err := s.e.Replay(ctx, ep.ID, req, c.actor())
	if err != nil {
		return nil, err
	}
	return queued(r), nil
}

type replaysIn struct {
	Listing
	WebhookID string `query:"webhook_id"`
}

func (s *server) listReplays(ctx context.Context, c *call, in *replaysIn) (*listOut[ReplayView], error) {
	p, err := in.page("replays")
	if err != nil {
		return nil, err
	}
	endpoint := int64(0)
	if in.WebhookID != "" {
		ep, err := s.endpoint(ctx, c, in.WebhookID)
		if err != nil {
			return nil, err
		}
		endpoint = ep.Key
	}
	rows, err := s.store.ListReplays(ctx, endpoint, c.viewer(), p)
	if err != nil {
		return nil, err
	}
	return paged("replays", p, rows, func(r *surehook.Replay) int64 { return r.Key },
		func(r *surehook.Replay) (ReplayView, bool) { return viewReplay(r), true }), nil
}

type replayOut struct{ Body ReplayView }

func (s *server) findReplay(ctx context.Context, c *call, id string) (*surehook.Replay, error) {
	r, err := s.store.GetReplay(ctx, id)
	if err == nil && !s.visibleEndpoints(ctx, c)(r.EndpointID) {
		err = surehook.Errorf(surehook.NotFound, "no such replay")
	}
	return r, err
}

func (s *server) getReplay(ctx context.Context, c *call, in *ByID) (*replayOut, error) {
	r, err := s.findReplay(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	return &replayOut{viewReplay(r)}, nil
}

func (s *server) cancelReplay(ctx context.Context, c *call, in *ByID) (*replayOut, error) {
	if _, err := s.findReplay(ctx, c, in.ID); err != nil {
		return nil, err
	}
	if err := s.e.CancelReplay(ctx, in.ID, c.actor()); err != nil {
		return nil, err
	}
	return s.getReplay(ctx, c, in)
}
