package api

import (
	"context"

	"github.com/surehook/surehook"
)

type webhooksIn struct {
	Listing
	TenantID  string `query:"tenant_id"`
	PartnerID string `query:"partner_id"`
	Scope     string `query:"scope" enum:"platform" doc:"The platform's own only"`
	Enabled   string `query:"enabled" enum:"true,false"`
	SessionID string `query:"session_id" maxLength:"200" doc:"Those that feed the inbox of this session, of the tenant, of the partner, or else of the key's own scope"`
}

func (s *server) listWebhooks(ctx context.Context, c *call, in *webhooksIn) (*listOut[WebhookView], error) {
	p, err := in.page("webhooks")
	if err != nil {
		return nil, err
	}
	f := surehook.EndpointFilter{Partner: in.PartnerID, Of: c.partner(), Kind: surehook.Webhooks, Platform: in.Scope == "platform"}
	if f.Tenant, err = c.scope(in.TenantID); err != nil {
		return nil, err
	}
	if in.Enabled != "" {
		on := in.Enabled == "true"
		f.Enabled = &on
	}
	if in.SessionID != "" {
		if f.Inbox, err = s.inboxOf(ctx, c, BySession{ID: in.SessionID, TenantID: in.TenantID, PartnerID: in.PartnerID}); err != nil {
			return nil, err
		}
	}
	rows, err := s.store.ListEndpoints(ctx, f, p)
	if err != nil {
		return nil, err
	}
	views, err := s.fullViews(ctx, c, rows)
	if err != nil {
		return nil, err
	}
	return paged("webhooks", p, rows, func(e *surehook.Endpoint) int64 { return e.Key },
		func(e *surehook.Endpoint) (WebhookView, bool) { return views[e.Key], c.seesEndpoint(e) }), nil
}

// fullViews shows the endpoints of a list, by key, with how full their inboxes are.
func (s *server) fullViews(ctx context.Context, c *call, rows []*surehook.Endpoint) (map[int64]WebhookView, error) {
	shown, err := s.views(ctx, c, rows...)
	if err != nil {
		return nil, err
	}
	var keys []int64
	for _, e := range rows {
		if e.Pulled() && e.Inbox == e.Key {
			keys = append(keys, e.Key)
		}
	}
	inboxes, err := s.inboxes(ctx, keys)
	out := make(map[int64]WebhookView, len(rows))
	for i, e := range rows {
		if in, ok := inboxes[e.Key]; ok {
			shown[i].Inbox = &in
		}
		out[e.Key] = shown[i]
	}
	return out, err
}

// views shows endpoints, and whose session's inbox they feed.
func (s *server) views(ctx context.Context, c *call, eps ...*surehook.Endpoint) ([]WebhookView, error) {
	out, sessions := make([]WebhookView, len(eps)), map[int64]text{}
	for i, e := range eps {
		out[i] = viewWebhook(c, e)
		if !e.Pulled() || e.Inbox == e.Key {
			continue
		}
		if _, known := sessions[e.Inbox]; !known {
			p, err := s.store.PullSessionOf(ctx, e.Inbox)
			if err != nil {
				return nil, err
			}
			sessions[e.Inbox] = text(p.ID)
		}
		out[i].SessionID = sessions[e.Inbox]
	}
	return out, nil
}

func (s *server) oneWebhook(ctx context.Context, c *call, e *surehook.Endpoint) (*webhookOut, error) {
	v, err := s.views(ctx, c, e)
	if err != nil {
		return nil, err
	}
	return &webhookOut{v[0]}, nil
}
