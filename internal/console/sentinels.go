package console

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// millisecond is a time in Unix milliseconds, as sentinels have them.
type millisecond struct{ stamp }

// UnmarshalJSON reads a time; 0 is none.
func (m *millisecond) UnmarshalJSON(b []byte) error {
	var n int64
	if err := json.Unmarshal(b, &n); err != nil || n == 0 {
		return err
	}
	m.Time = time.UnixMilli(n).UTC()
	return nil
}

// Stamp is the time as pages show times.
func (m millisecond) Stamp() stamp { return m.stamp }

// watch is a sentinel as the API shows it.
type watch struct {
	ID       word `json:"id"`
	Provider word `json:"provider"`
	Status   word `json:"status"`
	Match    []struct {
		Subject word   `json:"subject"`
		Types   []word `json:"types"`
	} `json:"match"`
	Until struct {
		Kind string      `json:"kind"`
		At   millisecond `json:"ms"`
		N    int64       `json:"n"`
	} `json:"until"`
	Target struct {
		Kind      string `json:"kind"`
		URL       word   `json:"url"`
		SessionID word   `json:"sessionId"`
		Urgency   word   `json:"urgency"`
	} `json:"target"`
	Group       word        `json:"group"`
	Label       word        `json:"label"`
	TenantID    word        `json:"tenant_id"`
	PartnerID   word        `json:"partner_id"`
	Created     millisecond `json:"createdTs"`
	Events      int64       `json:"eventCount"`
	LastEvent   millisecond `json:"lastEventTs"`
	LastError   word        `json:"lastError"`
	Deliveries  *delivered  `json:"deliveryStatus"`
	SessionLink string      `json:"-"` // the page of its session
}

// delivered sums up what became of a sentinel's events.
type delivered struct {
	Active   int64       `json:"active"`
	LastAt   millisecond `json:"lastDeliveryAt"`
	Status   word        `json:"lastStatus"`
	Error    word        `json:"lastError"`
	Attempts int64       `json:"attempts"`
	Dead     int64       `json:"dead"`
}

// Pulled tells that its events wait in a session's inbox.
func (w watch) Pulled() bool { return w.Target.Kind == "session" }

// Name is what a person calls it.
func (w watch) Name() string {
	if w.Label != "" {
		return string(w.Label)
	}
	if len(w.Match) == 0 {
		return string(w.ID)
	}
	if n := len(w.Match) - 1; n > 0 {
		return fmt.Sprintf("%s and %d more", w.Match[0].Subject, n)
	}
	return string(w.Match[0].Subject)
}

// Host is where a webhook's events go, without what is long in it.
func (w watch) Host() string { return endpoint{URL: w.Target.URL}.Host() }

// Address is the callback without its query, which may hold a secret of the receiver's.
func (w watch) Address() string {
	address, query, _ := strings.Cut(string(w.Target.URL), "?")
	if query != "" {
		address += "?…"
	}
	return address
}

// Because says what its status means, and what to do about it.
func (w watch) Because() said { return watchStates[string(w.Status)] }

// Ended tells that nothing matches any more.
func (w watch) Ended() bool { return w.Status == "expired" || w.Status == "orphaned" }

func (s *site) sentinelRoutes() {
	s.page("GET", "/sentinels", (*visit).sentinels)
	s.page("GET", "/sentinels/{id}", func(v *visit) error { return v.showSentinel(http.StatusOK, sentinelPage{}) })
	s.page("POST", "/sentinels/{id}/pause", func(v *visit) error { return v.patchSentinel("status", "paused", "unwatched") })
	s.page("POST", "/sentinels/{id}/resume", func(v *visit) error { return v.patchSentinel("status", "active", "watched") })
	s.page("POST", "/sentinels/{id}/secret", func(v *visit) error {
		return v.patchSentinel("secret", strings.TrimSpace(v.r.PostForm.Get("secret")), "secret")
	})
	s.page("POST", "/sentinels/{id}/delete", (*visit).deleteSentinel)
}

// sentinelsPage lists sentinels.
type sentinelsPage struct {
	Items []watch `json:"sentinels"`
	Next  string  `json:"next"`
	Query url.Values
	More  string
}

var sentinelFilter = []string{"status", "provider", "group", "session", "tenant_id"}

func (v *visit) sentinels() error {
	shown, q := only(v.r.URL.Query(), sentinelFilter...), only(v.r.URL.Query(), append(sentinelFilter, "cursor")...)
	q.Set("limit", rows)
	p, err := get[sentinelsPage](v, "/sentinels", q)
	if err != nil {
		return err
	}
	for i, w := range p.Items {
		p.Items[i].SessionLink = sessionLink(w.Target.SessionID, w.TenantID, w.PartnerID)
	}
	p.Query, p.More = shown, more(shown, p.Next)
	return v.show("sentinels.html", p)
}

// sentinelPage is one sentinel with what became of its events.
type sentinelPage struct {
	Watch    watch
	Attempts list[attempt]
	More     string
	Problem  string            // of the form that was sent
	Problems map[string]string // by field
	Letters  bool              // it has dead letters
}

func (v *visit) showSentinel(status int, p sentinelPage) error {
	id := seg(v.r.PathValue("id"))
	var err error
	if p.Watch, err = get[watch](v, "/sentinels/"+id, nil); err != nil {
		return err
	}
	p.Watch.SessionLink = sessionLink(p.Watch.Target.SessionID, p.Watch.TenantID, p.Watch.PartnerID)
	p.Letters = p.Watch.Deliveries != nil && p.Watch.Deliveries.Dead > 0
	q := only(v.r.URL.Query(), "cursor")
	q.Set("limit", "25")
	if p.Attempts, err = get[list[attempt]](v, "/v1/webhooks/"+id+"/attempts", q); err != nil {
		return err
	}
	p.More = more(nil, p.Attempts.Next)
	return v.showAs(status, "sentinel.html", p)
}

// patchSentinel changes a sentinel. A secret that is refused isn't shown again: it is
// the one thing that has to be typed anew.
func (v *visit) patchSentinel(field, value, note string) error {
	id := seg(v.r.PathValue("id"))
	err := v.ask(http.MethodPatch, "/sentinels/"+id, map[string]string{field: value}, nil)
	if refused, ok := errors.AsType[*problem](err); ok && refused.Status < 500 && field == "secret" && refused.Status != http.StatusNotFound {
		return v.showSentinel(refused.Status, sentinelPage{Problem: refused.Detail, Problems: fields(refused)})
	}
	if err != nil {
		return err
	}
	return v.redirect("/sentinels/" + id + "?done=" + note)
}

func (v *visit) deleteSentinel() error {
	if v.r.PostForm.Get("sure") != "yes" {
		return v.showSentinel(http.StatusBadRequest, sentinelPage{Problems: map[string]string{"sure": "tick the box first: what waits for it becomes dead letters"}})
	}
	return v.forget("/sentinels/", "/sentinels", "unwatching")
}
