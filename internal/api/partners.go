package api

import (
	"context"
	"net/http"

	"github.com/surehook/surehook"
)

func (s *server) partners() {
	admin, read := surehook.PermAdmin, surehook.PermRead
	const tag = "Partners"
	route(s, op{method: "PUT", path: "/v1/partners/{id}", id: "putPartner", tag: tag, perm: admin, platform: true, summary: "Name a partner, suspend it, or end that",
		about: "While it is suspended, nothing but tests is sent to its endpoints and those of its tenants. What is to be delivered there waits as it is, and is sent within a minute after " +
			"the suspension; what left the replay window meanwhile is dead with event_unavailable. Partners need not be named before they are used."}, s.putPartner)
	route(s, op{method: "GET", path: "/v1/partners", id: "listPartners", tag: tag, perm: read, platform: true, summary: "Named partners, newest first"}, s.listPartners)
	route(s, op{method: "GET", path: "/v1/partners/{id}", id: "getPartner", tag: tag, perm: read, platform: true, summary: "One partner"}, s.getPartner)
	route(s, op{method: "DELETE", path: "/v1/partners/{id}", id: "deletePartner", tag: tag, perm: admin, platform: true, status: http.StatusNoContent,
		summary: "Forget a partner's name and suspension", about: "Its endpoints and tenants stay."}, s.deletePartner)
}

// PartnerInput names a partner.
type PartnerInput struct {
	Name   string `json:"name,omitempty" maxLength:"200"`
	Status string `json:"status,omitempty" enum:"active,suspended" doc:"as it was when absent; a new partner is active"`
}

// PartnerView is a partner.
type PartnerView struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Status    string `json:"status" doc:"active or suspended"`
	CreatedAt stamp  `json:"created_at"`
	UpdatedAt stamp  `json:"updated_at"`
}

func viewPartner(p *surehook.Partner) PartnerView {
	v := PartnerView{ID: p.ID, Name: p.Name, Status: "active", CreatedAt: stamp(p.CreatedAt), UpdatedAt: stamp(p.UpdatedAt)}
	if p.Suspended {
		v.Status = "suspended"
	}
	return v
}

type partnerIn struct {
	ByID
	Body PartnerInput
}

type partnerOut struct{ Body PartnerView }

func (s *server) putPartner(ctx context.Context, c *call, in *partnerIn) (*partnerOut, error) {
	if !tenantName.MatchString(in.ID) {
		return nil, surehook.Invalid("id", "must be at most 200 printable ASCII characters without spaces")
	}
	p := &surehook.Partner{ID: in.ID, Name: in.Body.Name, Suspended: in.Body.Status == "suspended"}
	put := s.e.PutPartner
	if in.Body.Status == "" {
		put = s.e.NamePartner
	}
	if err := put(ctx, p, c.actor()); err != nil {
		return nil, err
	}
	return &partnerOut{viewPartner(p)}, nil
}

func (s *server) listPartners(ctx context.Context, _ *call, in *Listing) (*listOut[PartnerView], error) {
	p, err := in.page("partners")
	if err != nil {
		return nil, err
	}
	rows, err := s.store.ListPartners(ctx, p)
	if err != nil {
		return nil, err
	}
	return paged("partners", p, rows, func(p *surehook.Partner) int64 { return p.Key },
		func(p *surehook.Partner) (PartnerView, bool) { return viewPartner(p), true }), nil
}

func (s *server) getPartner(ctx context.Context, _ *call, in *ByID) (*partnerOut, error) {
	p, err := s.store.Partner(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	return &partnerOut{viewPartner(p)}, nil
}

func (s *server) deletePartner(ctx context.Context, c *call, in *ByID) (*none, error) {
	return nil, s.e.DeletePartner(ctx, in.ID, c.actor())
}
