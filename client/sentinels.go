package client

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
)

// SentinelInput asks for a sentinel whose events go to a session: one subject, or
// the URL of a pull request of GitHub's.
type SentinelInput struct {
	Subject   string   `json:"subject,omitempty"`
	PRURL     string   `json:"prUrl,omitempty"`
	SessionID string   `json:"sessionId,omitempty"`
	Types     []string `json:"types,omitempty"`
	Urgency   string   `json:"urgency,omitempty"` // fyi, next-turn, steer or interrupt
	Until     string   `json:"until,omitempty"`   // subject_terminal or never
	Provider  string   `json:"provider,omitempty"`
	Group     string   `json:"group,omitempty"`
	Label     string   `json:"label,omitempty"`
}

// SentinelSpec asks for any sentinel, one with a webhook too.
type SentinelSpec struct {
	Match    []SentinelClause `json:"match"`
	Until    SentinelUntil    `json:"until"`
	Target   SentinelTarget   `json:"target"`
	Provider string           `json:"provider,omitempty"`
	Group    string           `json:"group,omitempty"`
	Label    string           `json:"label,omitempty"`
}

// SentinelClause is one of the ways to match.
type SentinelClause struct {
	Subject string   `json:"subject"`
	Types   []string `json:"types,omitempty"`
}

// SentinelUntil says when watching stops: Kind is subject_terminal, at (with MS, Unix
// milliseconds), count (with N) or never.
type SentinelUntil struct {
	Kind string `json:"kind"`
	MS   int64  `json:"ms,omitempty"`
	N    int64  `json:"n,omitempty"`
}

// SentinelTarget says where events go. Secret is only sent, never read.
type SentinelTarget struct {
	Kind           string `json:"kind"` // webhook or session
	URL            string `json:"url,omitempty"`
	Secret         string `json:"secret,omitempty"` // whsec_…
	HasSecret      bool   `json:"hasSecret,omitempty"`
	SecretRedacted bool   `json:"secretRedacted,omitempty"`
	SessionID      string `json:"sessionId,omitempty"`
	Urgency        string `json:"urgency,omitempty"`
}

// Sentinel is a watch with a lifetime. Times are Unix milliseconds.
type Sentinel struct {
	ID             string             `json:"id"`
	Provider       string             `json:"provider"`
	Status         string             `json:"status"` // active, paused, expired, orphaned or error
	Match          []SentinelClause   `json:"match"`
	Until          SentinelUntil      `json:"until"`
	Target         SentinelTarget     `json:"target"`
	Group          string             `json:"group,omitempty"`
	Label          string             `json:"label,omitempty"`
	TenantID       string             `json:"tenant_id,omitempty"` // whose it is; neither: the platform's
	PartnerID      string             `json:"partner_id,omitempty"`
	CreatedTs      int64              `json:"createdTs"`
	EventCount     int64              `json:"eventCount"`
	LastEventTs    int64              `json:"lastEventTs,omitempty"`
	LastError      string             `json:"lastError,omitempty"`
	DeliveryStatus *SentinelDelivered `json:"deliveryStatus,omitempty"` // where something was queued
}

// SentinelDelivered sums up what became of a sentinel's events.
type SentinelDelivered struct {
	Active         int64  `json:"active"`
	LastDeliveryAt int64  `json:"lastDeliveryAt,omitempty"`
	LastStatus     string `json:"lastStatus"` // pending, delivered or dead
	LastError      string `json:"lastError,omitempty"`
	Attempts       int64  `json:"attempts"`
	Dead           int64  `json:"dead"`
}

// SentinelProvider is a way by which events come.
type SentinelProvider struct {
	Slug    string   `json:"slug"`
	Default bool     `json:"default"` // it serves when a sentinel names none
	Ready   bool     `json:"ready"`
	Reason  string   `json:"reason,omitempty"` // why not
	Setup   []string `json:"setup,omitempty"`  // what a person has to do, one step each
}

// SentinelPolled is what looking at once has found.
type SentinelPolled struct {
	ID     string `json:"id"`
	Events int    `json:"events"` // that were new
}

// SentinelFilter selects sentinels. Empty fields select all.
type SentinelFilter struct {
	Page
	Session  string
	Group    string
	Provider string
	Status   string
}

// Watch makes a sentinel for a session.
func (c *Client) Watch(ctx context.Context, in SentinelInput) (Sentinel, error) {
	return send[Sentinel](ctx, c, http.MethodPost, "/sentinels", in)
}

// CreateSentinel makes any sentinel. One with a webhook exists once the callback has
// passed its challenge.
func (c *Client) CreateSentinel(ctx context.Context, in SentinelSpec) (Sentinel, error) {
	return send[Sentinel](ctx, c, http.MethodPost, "/sentinels", in)
}

// Sentinels lists the key's sentinels, newest first.
func (c *Client) Sentinels(ctx context.Context, f SentinelFilter) iter.Seq2[Sentinel, error] {
	return func(yield func(Sentinel, error) bool) {
		q := values("session", f.Session, "group", f.Group, "provider", f.Provider, "status", f.Status)
		if f.Limit > 0 {
			q.Set("limit", strconv.Itoa(min(f.Limit, 1000)))
		}
		for {
			got, err := get[struct {
				Sentinels []Sentinel `json:"sentinels"`
				Next      string     `json:"next"`
			}](ctx, c, "/sentinels", q)
			if err != nil {
				yield(Sentinel{}, err)
				return
			}
			for _, s := range got.Sentinels {
				if !yield(s, nil) {
					return
				}
			}
			if got.Next == "" {
				return
			}
			q.Set("cursor", got.Next)
		}
	}
}

// Sentinel reads one.
func (c *Client) Sentinel(ctx context.Context, id string) (Sentinel, error) {
	return get[Sentinel](ctx, c, "/sentinels/"+seg(id), nil)
}

// DeleteSentinel ends one for good: what waits for it isn't sent any more.
func (c *Client) DeleteSentinel(ctx context.Context, id string) error {
	_, err := send[struct{}](ctx, c, http.MethodDelete, "/sentinels/"+seg(id), nil)
	return err
}

// ChangeSentinelSecret gives a sentinel's webhook another secret, once the callback
// has passed a challenge with it.
func (c *Client) ChangeSentinelSecret(ctx context.Context, id, secret string) (Sentinel, error) {
	return send[Sentinel](ctx, c, http.MethodPatch, "/sentinels/"+seg(id), map[string]string{"secret": secret})
}

// PollSentinel has a sentinel's provider look for events at once.
func (c *Client) PollSentinel(ctx context.Context, id string) (SentinelPolled, error) {
	return send[SentinelPolled](ctx, c, http.MethodPost, "/sentinels/"+seg(id)+"/poll", nil)
}

// SentinelProviders lists the providers, and whether they are ready.
func (c *Client) SentinelProviders(ctx context.Context) ([]SentinelProvider, error) {
	got, err := get[struct {
		Providers []SentinelProvider `json:"providers"`
	}](ctx, c, "/v1/sentinel-providers", url.Values{})
	return got.Providers, err
}

// SentinelProvider tells whether one is ready, and what to do if not.
func (c *Client) SentinelProvider(ctx context.Context, slug string) (SentinelProvider, error) {
	return get[SentinelProvider](ctx, c, "/v1/sentinel-providers/"+seg(slug), nil)
}
