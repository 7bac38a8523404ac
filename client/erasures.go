package client

import (
	"context"
	"net/http"
)

// Erasure says whose events' data to erase: those with some ids, of one identity,
// or of a whole tenant.
type Erasure struct {
	IDs        []string `json:"ids,omitempty"`
	TenantID   string   `json:"tenant_id,omitempty"`
	IdentityID string   `json:"identity_id,omitempty"`
	Next       string   `json:"next,omitempty"` // of the answer before, to go on
}

// Erased tells what was erased. While Next is set there is more to do.
type Erased struct {
	Events     int    `json:"events"`
	Deliveries int    `json:"deliveries"`
	Next       string `json:"next,omitempty"`
}

// Erase erases the data of events for ever, and ends their deliveries. It is one
// step of some seconds at most; see Erased.Next.
func (c *Client) Erase(ctx context.Context, e Erasure) (Erased, error) {
	return send[Erased](ctx, c, http.MethodPost, "/v1/erasures", e)
}
