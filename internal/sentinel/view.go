package sentinel

import (
	"cmp"
	"fmt"
	"net/url"
	"time"

	"github.com/surehook/surehook"
)

// View is a sentinel as it is shown: without its secret.
type View struct {
	ID             string          `json:"id"`
	Provider       string          `json:"provider"`
	Status         string          `json:"status"`
	Match          []MatchClause   `json:"match"`
	Until          Until           `json:"until"`
	Target         TargetView      `json:"target"`
	Group          string          `json:"group,omitempty"`
	Label          string          `json:"label,omitempty"`
	TenantID       string          `json:"tenant_id,omitempty"` // whose it is; neither: the platform's
	PartnerID      string          `json:"partner_id,omitempty"`
	CreatedTs      int64           `json:"createdTs"` // Unix milliseconds, as all times here
	EventCount     int64           `json:"eventCount"`
	LastEventTs    int64           `json:"lastEventTs,omitempty"`
	LastError      string          `json:"lastError,omitempty"`
	DeliveryStatus *DeliveryStatus `json:"deliveryStatus,omitempty"` // where it was read, and something was queued
}

// TargetView is where events go. A URL's query may be the receiver's secret, so only
// those who may manage webhooks see it.
type TargetView struct {
	Kind           string `json:"kind"`
	URL            string `json:"url,omitempty"`
	HasSecret      bool   `json:"hasSecret,omitempty"`
	SecretRedacted bool   `json:"secretRedacted,omitempty"`
	SessionID      string `json:"sessionId,omitempty"`
	Urgency        string `json:"urgency,omitempty"`
}

// DeliveryStatus sums up what became of a sentinel's events at its webhook.
type DeliveryStatus struct {
	Active         int64  `json:"active"` // deliveries that are still to be made
	LastDeliveryAt int64  `json:"lastDeliveryAt,omitempty"`
	LastStatus     string `json:"lastStatus"`          // pending, delivered or dead
	LastError      string `json:"lastError,omitempty"` // absent after delivered
	Attempts       int64  `json:"attempts"`            // of the last delivery
	Dead           int64  `json:"dead"`
}

// view shows a sentinel beside its endpoint.
func view(c Caller, ep *surehook.Endpoint) View {
	s := ep.Sentinel
	v := View{ID: ep.ID, Provider: s.Provider, Status: string(ep.SentinelStatus()), Group: s.Group, Label: s.Label, TenantID: ep.Tenant, PartnerID: ep.Partner, EventCount: s.Events, LastError: s.LastError,
		CreatedTs: stamp(ep.CreatedAt), LastEventTs: stamp(s.LastEventAt), Until: Until{Kind: string(s.Until.Kind), MS: stamp(s.Until.At), N: s.Until.Count}}
	for _, c := range s.Match {
		v.Match = append(v.Match, MatchClause{Subject: c.Subject, Types: c.Types})
	}
	if s.Session != "" {
		v.Target = TargetView{Kind: TargetSession, SessionID: s.Session, Urgency: ep.Urgency}
		return v
	}
	v.Target = TargetView{Kind: TargetWebhook, URL: shownURL(c, ep.URL), HasSecret: ep.Secrets.Current != "", SecretRedacted: true}
	return v
}

// The statuses of a delivery, as lists show them.
const (
	deliveryPending   = "pending"
	deliveryDelivered = "delivered"
	deliveryDead      = "dead"
)

func deliveryStatus(d surehook.SentinelDelivery) *DeliveryStatus {
	out := &DeliveryStatus{Active: d.Pending, Dead: d.Dead, LastStatus: deliveryPending}
	if d.Last == nil {
		return out
	}
	out.LastDeliveryAt, out.Attempts = stamp(d.Last.CreatedAt), int64(d.Last.Number)
	switch d.Last.Status {
	case surehook.AttemptSucceeded:
		out.LastStatus = deliveryDelivered
		return out
	case surehook.AttemptDead:
		out.LastStatus = deliveryDead
	case surehook.AttemptFailed:
	}
	out.LastError = lastError(d.Last)
	return out
}

// lastError says why an attempt failed, without a URL. What ended a delivery at
// once comes first.
func lastError(a *surehook.Attempt) string {
	why := cmp.Or(a.Error, string(a.Code))
	if a.HTTPStatus != 0 {
		why = fmt.Sprintf("%s: HTTP %d", a.Code, a.HTTPStatus)
	}
	switch {
	case a.Status != surehook.AttemptDead:
		return why
	case a.HTTPStatus == 410, a.HTTPStatus == 413, a.Code == surehook.SecretUnavailable:
		return DeliveredRejected + ": " + why
	case a.Code == surehook.ExpiredSentinel, a.Code == surehook.RemovedSentinel:
		return string(a.Code)
	}
	return why
}

// DeliveredRejected is why a delivery died that the callback refused for good.
const DeliveredRejected = "delivered_rejected"

// stamp is a time in Unix milliseconds; the zero time is 0.
func stamp(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMilli()
}

// shownURL is a URL as a caller sees it.
func shownURL(c Caller, raw string) string {
	u, err := url.Parse(raw)
	if c.Manages || err != nil || u.RawQuery == "" {
		return raw
	}
	u.RawQuery = "[hidden]"
	return u.String()
}
