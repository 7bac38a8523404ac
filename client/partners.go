package client

import (
	"context"
	"iter"
	"net/http"
)

// Partner is a named partner.
type Partner struct {
	ID        string `json:"id"`
	Name      string `json:"name"`
	Status    string `json:"status"` // active or suspended
	CreatedAt string `json:"created_at"`
	UpdatedAt string `json:"updated_at"`
}

// Partners lists partners.
func (c *Client) Partners(ctx context.Context) iter.Seq2[Partner, error] {
	return pages[Partner](ctx, c, "/v1/partners", nil, Page{})
}

// Partner reads a named partner.
func (c *Client) Partner(ctx context.Context, id string) (Partner, error) {
	return get[Partner](ctx, c, "/v1/partners/"+seg(id), nil)
}

// PutPartner names a partner, and suspends it or ends that; status "" leaves that
// as it was. While it is suspended, nothing is sent to its endpoints and those of
// its tenants.
func (c *Client) PutPartner(ctx context.Context, id, name, status string) (Partner, error) {
	in := map[string]string{"name": name}
	if status != "" {
		in["status"] = status
	}
	return send[Partner](ctx, c, http.MethodPut, "/v1/partners/"+seg(id), in)
}

// DeletePartner forgets a partner's name and suspension.
func (c *Client) DeletePartner(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, "/v1/partners/"+seg(id), nil)
	return err
}
