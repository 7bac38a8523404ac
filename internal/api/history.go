package api

import (
	"context"
	"encoding/json"

	"github.com/surehook/surehook"
)

// HistoryView is one thing that was done to an endpoint.
type HistoryView struct {
	At      stamp           `json:"at"`
	Action  string          `json:"action" doc:"As in the audit log: webhook.create, webhook.update, webhook.disable, webhook.enable, webhook.rotate_secret, webhook.revoke_previous_secret, webhook.replay"`
	Actor   text            `json:"actor" doc:"The key's id, or system for what the server did by itself; null where it was somebody whom the caller doesn't see"`
	Details json.RawMessage `json:"details" doc:"What an action adds, such as the names of what an update changed; null: nothing"`
}

// webhookHistory is the audit log of one endpoint, for who sees the endpoint. Whose
// keys the others are is the platform's to know.
func (s *server) webhookHistory(ctx context.Context, c *call, in *webhookPageIn) (*listOut[HistoryView], error) {
	p, err := in.page("history")
	if err != nil {
		return nil, err
	}
	ep, err := s.endpoint(ctx, c, in.ID)
	if err != nil {
		return nil, err
	}
	rows, err := s.store.AuditOf(ctx, ep.ID, p)
	if err != nil {
		return nil, err
	}
	return paged("history", p, rows, func(a surehook.AuditEntry) int64 { return a.Key }, func(a surehook.AuditEntry) (HistoryView, bool) {
		v := HistoryView{At: stamp(a.At), Action: a.Action}
		if c.platform() || a.Actor == c.key.ID || a.Actor == "system" {
			v.Actor = text(a.Actor)
		}
		if a.Details != "" {
			v.Details = json.RawMessage(a.Details)
		}
		return v, true
	}), nil
}
