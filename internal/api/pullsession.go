package api

import (
	"context"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// PullSessionView is a session that pulls.
type PullSessionView struct {
	ID        string `json:"id"`
	TenantID  text   `json:"tenant_id"`
	PartnerID text   `json:"partner_id"`
	Alive     bool   `json:"alive"`
	CreatedAt stamp  `json:"created_at"`
	SeenAt    stamp  `json:"seen_at" doc:"When it was last heard of, to some seconds"`
	EndedAt   stamp  `json:"ended_at"`
	EndReason text   `json:"end_reason" doc:"closed, or idle"`

	Inbox InboxView `json:"inbox" doc:"What waits for it"`
}

func viewPullSession(p *surehook.PullSession, in InboxView) PullSessionView {
	return PullSessionView{ID: p.ID, TenantID: text(p.Tenant), PartnerID: text(p.Partner), Alive: p.EndedAt.IsZero(), CreatedAt: stamp(p.CreatedAt),
		SeenAt: stamp(p.SeenAt), EndedAt: stamp(p.EndedAt), EndReason: text(p.EndReason), Inbox: in}
}

// BySession names a session, in the caller's scope or that of a tenant which it sees.
type BySession struct {
	ID       string `path:"id" maxLength:"200"`
	TenantID string `query:"tenant_id" doc:"Whose; absent: that of the key's tenant or partner, or the platform's"`

	PartnerID string `query:"partner_id" doc:"A partner whose own it is, for platform keys"`
}

func sessionScope(c *call, in BySession) (engine.SessionScope, error) {
	tenant, err := c.scope(in.TenantID)
	switch {
	case err != nil:
		return engine.SessionScope{}, err
	case in.PartnerID == "":
	case in.TenantID != "":
		return engine.SessionScope{}, surehook.Invalid("partner_id", "can't be given beside tenant_id")
	case c.platform():
		return engine.SessionScope{Partner: in.PartnerID}, nil
	case c.partner() != in.PartnerID:
		return engine.SessionScope{}, &denied{required: surehook.PermAdmin, scope: "platform"}
	}
	if tenant != "" {
		return engine.SessionScope{Tenant: tenant}, nil
	}
	return engine.SessionScope{Partner: c.partner()}, nil
}

func (s *server) pullSessionView(ctx context.Context, p *surehook.PullSession) (*pullSessionOut, error) {
	inboxes, err := s.inboxes(ctx, []int64{p.Key})
	if err != nil {
		return nil, err
	}
	return &pullSessionOut{viewPullSession(p, inboxes[p.Key])}, nil
}

type pullSessionOut struct{ Body PullSessionView }

// inboxOf finds a session's inbox.
func (s *server) inboxOf(ctx context.Context, c *call, in BySession) (int64, error) {
	of, err := sessionScope(c, in)
	if err != nil {
		return 0, err
	}
	p, err := s.store.PullSession(ctx, of.Tenant, of.Partner, in.ID)
	if err != nil {
		return 0, err
	}
	return p.Key, nil
}

type openSessionIn struct {
	BySession
	Body *SessionInput
}

// SessionInput opens a session.
type SessionInput struct {
	Anew bool `json:"anew,omitempty" doc:"Begin another one where it has ended"`
}

func (s *server) openSession(ctx context.Context, c *call, in *openSessionIn) (*pullSessionOut, error) {
	of, err := sessionScope(c, in.BySession)
	if err != nil {
		return nil, err
	}
	p, err := s.e.OpenSession(ctx, of, in.ID, in.Body != nil && in.Body.Anew, c.actor())
	if err != nil {
		return nil, err
	}
	return s.pullSessionView(ctx, p)
}

func (s *server) getSession(ctx context.Context, c *call, in *BySession) (*pullSessionOut, error) {
	of, err := sessionScope(c, *in)
	if err != nil {
		return nil, err
	}
	p, err := s.store.PullSession(ctx, of.Tenant, of.Partner, in.ID)
	if err != nil {
		return nil, err
	}
	return s.pullSessionView(ctx, p)
}

type sessionsIn struct {
	Listing
	TenantID string `query:"tenant_id" doc:"Whose; absent: all that the key sees"`
}

func (s *server) listSessions(ctx context.Context, c *call, in *sessionsIn) (*listOut[PullSessionView], error) {
	p, err := in.page("sessions")
	if err != nil {
		return nil, err
	}
	of := c.viewer()
	if of.Tenant, err = c.scope(in.TenantID); err != nil {
		return nil, err
	}
	rows, err := s.store.ListPullSessions(ctx, of, p)
	if err != nil {
		return nil, err
	}
	keys := make([]int64, len(rows))
	for i, r := range rows {
		keys[i] = r.Key
	}
	inboxes, err := s.inboxes(ctx, keys)
	if err != nil {
		return nil, err
	}
	return paged("sessions", p, rows, func(x *surehook.PullSession) int64 { return x.Key },
		func(x *surehook.PullSession) (PullSessionView, bool) { return viewPullSession(x, inboxes[x.Key]), true }), nil
}

func (s *server) closeSession(ctx context.Context, c *call, in *BySession) (*none, error) {
	of, err := sessionScope(c, *in)
	if err != nil {
		return nil, err
	}
	return nil, s.e.CloseSession(ctx, of, in.ID, c.actor())
}

type pullSessionIn struct {
	BySession
	PullIn
}

func (s *server) pullSession(ctx context.Context, c *call, in *pullSessionIn) (*pullOut, error) {
	of, err := sessionScope(c, in.BySession)
	if err != nil {
		return nil, err
	}
	if _, err := s.e.OpenSession(ctx, of, in.ID, false, c.actor()); err != nil {
		return nil, err // before a stream begins
	}
	return s.serveInbox(ctx, c, &in.PullIn, func(ctx context.Context, req engine.PullRequest) (engine.PullPage, error) {
		return s.e.PullSession(ctx, of, in.ID, req, c.actor())
	})
}

type ackSessionIn struct {
	BySession
	Body struct {
		Cursor string `json:"cursor" maxLength:"64"`
	}
}

func (s *server) ackSession(ctx context.Context, c *call, in *ackSessionIn) (*ackedOut, error) {
	of, err := sessionScope(c, in.BySession)
	if err != nil {
		return nil, err
	}
	return acked(s.e.AckSession(ctx, of, in.ID, in.Body.Cursor, c.actor()))
}
