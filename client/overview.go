package client

import (
	"context"
	"net/http"
	"time"
)

// Overview is how the endpoints that the key sees do, and what waits.
type Overview struct {
	Webhooks struct {
		Healthy  int64 `json:"healthy"`  // enabled, and the last attempt succeeded, or there was none
		Failing  int64 `json:"failing"`  // enabled, and the last attempt failed
		Paused   int64 `json:"paused"`   // enabled, and nothing is sent
		Disabled int64 `json:"disabled"` // nothing is queued
	} `json:"webhooks"`
	Pending     int64 `json:"pending"`
	DeadLetters int64 `json:"dead_letters"`
}

// Overview sums up the endpoints that the key sees.
func (c *Client) Overview(ctx context.Context) (Overview, error) {
	return get[Overview](ctx, c, "/v1/overview", nil)
}

// AllStats sums the attempts of all endpoints that the key sees.
func (c *Client) AllStats(ctx context.Context, since, until time.Time, step time.Duration) ([]StatsBucket, error) {
	out, err := get[page[StatsBucket]](ctx, c, "/v1/stats", window(since, until, step))
	return out.Items, err
}

// System is what runs, and what its lanes hold. Lanes are those of the node that
// answered, the rest is the whole store's.
type System struct {
	Version        string  `json:"version"`
	Go             string  `json:"go"`
	Platform       string  `json:"platform"`
	Store          string  `json:"store"`
	StartedAt      *string `json:"started_at"`
	Nodes          int64   `json:"nodes"`
	LostNodes      int64   `json:"lost_nodes"` // gone without a word; their deliveries wait for the end of a lease
	UndispatchedAt *string `json:"oldest_undispatched_at"`
	Pending        struct {
		Owned       int64   `json:"owned"`
		Due         int64   `json:"due"`
		Waiting     int64   `json:"waiting"`
		Held        int64   `json:"held"`
		OldestDueAt *string `json:"oldest_due_at"`
	} `json:"pending"`
	Lanes struct {
		Lanes            int   `json:"lanes"`
		Queued           int   `json:"queued"`
		Bytes            int64 `json:"bytes"`
		InFlight         int   `json:"in_flight"`
		Backlog          int   `json:"backlog"` // outcomes that wait to be recorded
		BreakersOpen     int   `json:"breakers_open"`
		BreakersHalfOpen int   `json:"breakers_half_open"`
	} `json:"lanes"`
}

// System tells what runs.
func (c *Client) System(ctx context.Context) (System, error) {
	return get[System](ctx, c, "/v1/system", nil)
}

// Lane is where an endpoint's lane stands on the node that answered.
type Lane struct {
	Here      bool    `json:"here"` // the node has a lane for the endpoint
	Queued    int     `json:"queued"`
	InFlight  int     `json:"in_flight"`
	Breaker   string  `json:"breaker"` // closed, open or half_open
	OpenUntil *string `json:"open_until"`
}

// Lane tells where a webhook's lane stands.
func (c *Client) Lane(ctx context.Context, webhook string) (Lane, error) {
	return get[Lane](ctx, c, "/v1/webhooks/"+seg(webhook)+"/lane", nil)
}

// CheckedURL is what would become of a URL.
type CheckedURL struct {
	Allowed bool   `json:"allowed"`
	URL     string `json:"url"`    // as it would be kept
	Reason  string `json:"reason"` // why not
}

// CheckURL judges a URL as when a webhook is made. Nothing is sent there.
func (c *Client) CheckURL(ctx context.Context, url string) (CheckedURL, error) {
	return send[CheckedURL](ctx, c, http.MethodPost, "/v1/check-url", map[string]string{"url": url})
}

// PortalLinkInput asks for a link into a tenant's portal.
type PortalLinkInput struct {
	TenantID    string   `json:"tenant_id"`
	ExpiresIn   int      `json:"expires_in,omitempty"` // seconds; 0: 300
	Permissions []string `json:"permissions,omitempty"`
}

// PortalLink works once, and is shown this once.
type PortalLink struct {
	URL       string `json:"url"`
	ExpiresAt string `json:"expires_at"`
}

// CreatePortalLink makes a link into a tenant's portal.
func (c *Client) CreatePortalLink(ctx context.Context, in PortalLinkInput) (PortalLink, error) {
	return send[PortalLink](ctx, c, http.MethodPost, "/v1/portal-links", in)
}
