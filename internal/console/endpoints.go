package console

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/surehook/surehook"
)

// limits are an endpoint's, as the API shows them.
type limits struct {
	WaitsMS     []int64 `json:"waits_ms,omitempty"`
	Attempts    int     `json:"attempts,omitempty"`
	TimeoutMS   int64   `json:"timeout_ms,omitempty"`
	Rate        float64 `json:"rate_per_second,omitempty"`
	Concurrency int     `json:"concurrency,omitempty"`
}

// endpoint is an endpoint as the API shows it.
type endpoint struct {
	ID                  word            `json:"id"`
	Scope               word            `json:"scope"`
	TenantID            word            `json:"tenant_id"`
	PartnerID           word            `json:"partner_id"`
	Target              string          `json:"target"`
	SessionID           word            `json:"session_id"`
	Urgency             word            `json:"urgency"`
	Inbox               *inbox          `json:"inbox"` // in lists
	URL                 word            `json:"url"`
	Description         word            `json:"description"`
	EventTypes          []word          `json:"event_types"`
	Subjects            []word          `json:"subjects"`
	IdentityIDs         []word          `json:"identity_ids"`
	Profile             word            `json:"profile"`
	Envelope            word            `json:"envelope"`
	Signature           word            `json:"signature"`
	Headers             map[string]word `json:"headers"`
	Limits              limits          `json:"limits"`
	Effective           limits          `json:"effective_limits"`
	Ordering            word            `json:"ordering"`
	Enabled             bool            `json:"enabled"`
	Paused              bool            `json:"paused"`
	DisabledReason      string          `json:"disabled_reason"`
	ConsecutiveFailures int             `json:"consecutive_failures"`
	FirstFailureAt      stamp           `json:"first_failure_at"`
	LastFailureAt       stamp           `json:"last_failure_at"`
	LastSuccessAt       stamp           `json:"last_success_at"`
	PreviousSecretUntil stamp           `json:"previous_secret_until"`
	CreatedAt           stamp           `json:"created_at"`
	UpdatedAt           stamp           `json:"updated_at"`
	Secret              string          `json:"secret"`
}

// State is how the endpoint does, in one word.
func (e endpoint) State() string {
	switch {
	case !e.Enabled:
		return "disabled"
	case e.Paused:
		return "paused"
	case e.ConsecutiveFailures > 0:
		return "failing"
	}
	return "healthy"
}

// Pulled tells an endpoint whose events wait in an inbox: it has no URL.
func (e endpoint) Pulled() bool { return e.Target == "pull" }

// Host is the URL without what is long in it.
func (e endpoint) Host() string {
	switch {
	case e.SessionID != "":
		return "inbox of session " + string(e.SessionID)
	case e.Pulled():
		return "inbox " + string(e.ID)
	}
	u, err := url.Parse(string(e.URL))
	if err != nil {
		return string(e.URL)
	}
	return u.Host
}

// Path is the rest of it.
func (e endpoint) Path() string {
	u, err := url.Parse(string(e.URL))
	if err != nil {
		return ""
	}
	return u.EscapedPath()
}

// Session is the page of the session whose inbox it feeds.
func (e endpoint) Session() string { return sessionLink(e.SessionID, e.TenantID, e.PartnerID) }

// Because says why it is disabled, and what ends that.
func (e endpoint) Because() said { return disabledBecause[e.DisabledReason] }

// What and Then are the two halves of it, for templates.
func (s said) What() string { return s.what }

// Then says what to do.
func (s said) Then() string { return s.then }

func (s *site) endpointRoutes() {
	s.page("GET", "/endpoints", (*visit).endpoints)
	s.page("GET", "/endpoints/new", func(v *visit) error { return v.form("", endpointForm{}, nil) })
	s.page("POST", "/endpoints", (*visit).createEndpoint)
	s.page("POST", "/check-url", (*visit).checkURL)
	s.page("GET", "/endpoints/{id}", (*visit).endpoint)
	s.page("GET", "/endpoints/{id}/history", (*visit).history)
	s.page("GET", "/endpoints/{id}/edit", (*visit).editEndpoint)
	s.page("POST", "/endpoints/{id}", (*visit).saveEndpoint)
	s.page("POST", "/endpoints/{id}/test", (*visit).testEndpoint)
	s.page("POST", "/endpoints/{id}/rotate", (*visit).rotate)
	s.page("POST", "/endpoints/{id}/revoke-previous", func(v *visit) error {
		return v.change(http.MethodDelete, "/previous-secret", nil, "revoked")
	})
	s.page("POST", "/endpoints/{id}/pause", func(v *visit) error { return v.patch("paused", true, "paused") })
	s.page("POST", "/endpoints/{id}/resume", func(v *visit) error { return v.patch("paused", false, "resumed") })
	s.page("POST", "/endpoints/{id}/enable", func(v *visit) error { return v.patch("enabled", true, "enabled") })
	s.page("POST", "/endpoints/{id}/disable", func(v *visit) error { return v.patch("enabled", false, "disabled") })
	s.page("POST", "/endpoints/{id}/delete", (*visit).deleteEndpoint)
}

// endpointsPage lists endpoints.
type endpointsPage struct {
	list[endpoint]
	Query url.Values
	More  string
}

func (v *visit) endpoints() error {
	q := only(v.r.URL.Query(), "tenant_id", "partner_id", "enabled", "scope", "cursor")
	shown := only(q, "tenant_id", "partner_id", "enabled", "scope")
	q.Set("limit", rows)
	l, err := get[list[endpoint]](v, "/v1/webhooks", q)
	if err != nil {
		return err
	}
	return v.show("endpoints.html", endpointsPage{l, shown, more(shown, l.Next)})
}

// more is the query of a listing's next page; empty: this is the last.
func more(q url.Values, next string) string {
	if next == "" {
		return ""
	}
	n := url.Values{"cursor": {next}}
	for name, x := range q {
		n[name] = x
	}
	return "?" + n.Encode()
}

// endpointPage is one endpoint with what happens there.
type endpointPage struct {
	Endpoint endpoint
	Attempts list[attempt]
	More     string
	Chart    *chartPart
	History  *historyPart
	Tested   *attempt // just now
	Secret   string   // just made: shown this once
	Again    bool     // it was made before, and shown then
	Rotated  bool
	Latest   *attempt // the latest that failed, while it fails
	Lane     lane
	Inbox    *inbox // of an endpoint that has one of its own
	Pulled   stamp  // when events were acknowledged last
	Command  string // to pull with

	Problems map[string]string // by field of the form that was sent
	Typed    url.Values        // as it was sent
}

// In gives what was typed into a field, or else what stands there at first.
func (p endpointPage) In(name, first string) string {
	if p.Typed.Has(name) {
		return p.Typed.Get(name)
	}
	return first
}

// refused shows the endpoint's page with a form of it as it was sent, and what is wrong.
func (v *visit) refused(err error) error {
	p, ok := errors.AsType[*problem](err)
	if !ok || len(p.Fields) == 0 || p.Status >= 500 {
		return err
	}
	return v.showEndpoint(p.Status, endpointPage{Problems: fields(p), Typed: v.r.PostForm})
}

// lane is where the endpoint's lane stands on the node that serves the page.
type lane struct {
	Here     bool   `json:"here"`
	Queued   int    `json:"queued"`
	InFlight int    `json:"in_flight"`
	Breaker  string `json:"breaker"`
	Until    stamp  `json:"open_until"`
}

func (v *visit) endpointOf() (endpoint, error) {
	return get[endpoint](v, "/v1/webhooks/"+seg(v.r.PathValue("id")), nil)
}

func (v *visit) endpoint() error {
	if id := v.r.PathValue("id"); strings.HasPrefix(id, "sen_") {
		return v.redirect("/sentinels/" + seg(id)) // its deliveries are listed as an endpoint's
	}
	return v.showEndpoint(http.StatusOK, endpointPage{})
}

// pulled adds how full the endpoint's inbox is, and how to read it.
func (p *endpointPage) pulled(v *visit) error {
	if !p.Endpoint.Pulled() || p.Endpoint.SessionID != "" || v.r.URL.Query().Get("cursor") != "" {
		return nil
	}
	path := "/v1/webhooks/" + seg(p.Endpoint.ID)
	in, err := get[inbox](v, path+"/inbox", nil)
	p.Inbox, p.Command = &in, pullCommand(path+"/events", url.Values{})
	for _, a := range p.Attempts.Items {
		if !a.Test && a.Status == "succeeded" {
			p.Pulled = a.CreatedAt
			break
		}
	}
	return err
}

func (v *visit) showEndpoint(status int, p endpointPage) error {
	var err error
	if p.Endpoint, err = v.endpointOf(); err != nil {
		return err
	}
	if p.Lane, err = get[lane](v, "/v1/webhooks/"+seg(p.Endpoint.ID)+"/lane", nil); err != nil {
		return err
	}
	q := only(v.r.URL.Query(), "cursor")
	q.Set("limit", "25")
	if p.Attempts, err = get[list[attempt]](v, "/v1/webhooks/"+seg(p.Endpoint.ID)+"/attempts", q); err != nil {
		return err
	}
	p.More = more(nil, p.Attempts.Next)
	if err := p.pulled(v); err != nil {
		return err
	}
	if p.Endpoint.ConsecutiveFailures > 0 || !p.Endpoint.Enabled {
		for i, a := range p.Attempts.Items {
			if a.Status != "succeeded" && !a.Test {
				p.Latest = &p.Attempts.Items[i]
				break
			}
		}
	}
	if v.r.URL.Query().Get("chart") != "" {
		c, err := v.sums(string(p.Endpoint.ID), windowOf(v.r.URL.Query().Get("window")))
		if err != nil {
			return err
		}
		h, err := v.historyOf(string(p.Endpoint.ID))
		if err != nil {
			return err
		}
		p.Chart, p.History = &c, &h
	}
	return v.showAs(status, "endpoint.html", p)
}

func (v *visit) testEndpoint() error {
	a := &attempt{}
	if err := v.ask(http.MethodPost, "/v1/webhooks/"+seg(v.r.PathValue("id"))+"/test", nil, a); err != nil {
		return err
	}
	return v.showEndpoint(http.StatusOK, endpointPage{Tested: a})
}

// rotate shows the new secret in its own answer: no URL and no other page has it.
func (v *visit) rotate() error {
	hours, err := strconv.ParseFloat(v.r.PostForm.Get("overlap_hours"), 64)
	if err != nil {
		return v.refused(refusedForm(map[string]string{"overlap_hours": "must be a number of hours, 0 to 168"}))
	}
	var out struct {
		Secret string `json:"secret"`
	}
	if err := v.ask(http.MethodPost, "/v1/webhooks/"+seg(v.r.PathValue("id"))+"/rotate-secret", map[string]float64{"overlap_hours": hours}, &out, v.once()...); err != nil {
		return v.refused(err)
	}
	return v.showEndpoint(http.StatusOK, endpointPage{Secret: v.first(out.Secret), Again: v.again, Rotated: true})
}

// once makes a form that is sent twice, by a reload, count once.
func (v *visit) once() []string {
	if n := v.r.PostForm.Get("once"); n != "" {
		return []string{"Idempotency-Key", n[:min(len(n), 100)]}
	}
	return nil
}

// first gives a secret when it is first shown. A page that is reloaded sends its form
// again, and gets the same answer from the API: by then somebody else may be looking.
func (v *visit) first(secret string) string {
	if v.again {
		return ""
	}
	return secret
}

func (v *visit) change(method, action string, body any, note string) error {
	id := v.r.PathValue("id")
	if err := v.ask(method, "/v1/webhooks/"+seg(id)+action, body, nil); err != nil {
		return err
	}
	return v.redirect("/endpoints/" + seg(id) + "?done=" + note)
}

func (v *visit) patch(field string, value any, note string) error {
	return v.change(http.MethodPatch, "", map[string]any{field: value}, note)
}

func (v *visit) deleteEndpoint() error {
	if v.r.PostForm.Get("sure") != "yes" {
		return surehook.Invalid("sure", "tick the box first: what waits for the endpoint is dropped with it")
	}
	if err := v.ask(http.MethodDelete, "/v1/webhooks/"+seg(v.r.PathValue("id")), nil, nil); err != nil {
		return err
	}
	return v.redirect("/endpoints?done=deleted")
}

// checkedURL is what the guard says of a URL.
type checkedURL struct {
	URL     word   `json:"url"`
	Allowed bool   `json:"allowed"`
	Reason  string `json:"reason"`
}

// checkURL judges a URL as it is typed.
func (v *visit) checkURL() error {
	given := strings.TrimSpace(v.r.PostForm.Get("url"))
	if given == "" {
		return v.part("endpoint-form.html", "url-verdict", nil)
	}
	var out checkedURL
	err := v.ask(http.MethodPost, "/v1/check-url", map[string]string{"url": given}, &out)
	if p, ok := errors.AsType[*problem](err); ok && p.Status < 500 {
		out, err = checkedURL{Reason: p.Detail}, nil
	}
	if err != nil {
		return err
	}
	return v.part("endpoint-form.html", "url-verdict", out)
}
