package api

import (
	"context"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

func (s *server) erasures() {
	route(s, op{method: "POST", path: "/v1/erasures", id: "erase", tag: "Events", perm: surehook.PermAdmin, platform: true, summary: "Erase events' data",
		about: "For ever: the data of events, and what receivers answered to it, by ids, by identity or of a whole tenant. Pending deliveries end as dead letters with " +
			"event_unavailable, and no replay brings them back; that the events were, and what became of them, stays. Other nodes follow within seconds; a request that is " +
			"on the wire ends by itself. Repeating it is safe."}, s.erase)
}

// EraseInput says whose data to erase.
type EraseInput struct {
	IDs        []string `json:"ids,omitempty" maxItems:"100" doc:"Event ids; or:"`
	TenantID   string   `json:"tenant_id,omitempty" maxLength:"200" doc:"All events of this tenant; with ids or identity_id, whose those are. With identity_id absent: the events without a tenant"`
	IdentityID string   `json:"identity_id,omitempty" maxLength:"200" doc:"All events of this identity"`
	Next       string   `json:"next,omitempty" maxLength:"64" doc:"The last answer's, to go on"`
}

// EraseOutput tells what was erased.
type EraseOutput struct {
	Events     int    `json:"events" doc:"Whose data went now; those without any weren't counted"`
	Deliveries int    `json:"deliveries" doc:"That ended by it"`
	Next       string `json:"next,omitempty" doc:"There is more: repeat the request with it"`
}

type eraseIn struct{ Body EraseInput }

type eraseOut struct{ Body EraseOutput }

func (s *server) erase(ctx context.Context, c *call, in *eraseIn) (*eraseOut, error) {
	b := &in.Body
	p, err := Listing{Cursor: b.Next}.page("erasure")
	if err != nil {
		return nil, surehook.Invalid("next", "isn't one that an erasure gave")
	}
	got, err := s.e.Erase(ctx, engine.EraseRequest{IDs: b.IDs, Tenant: b.TenantID, Identity: b.IdentityID, After: p.Cursor}, c.actor())
	if err != nil {
		return nil, err
	}
	out := &eraseOut{EraseOutput{Events: got.Events, Deliveries: got.Deliveries}}
	if got.Next != 0 {
		out.Body.Next = cursor("erasure", got.Next)
	}
	return out, nil
}
