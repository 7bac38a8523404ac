package console

import (
	"net/http"
	"net/url"
	"strings"
)

// inbox is how full an inbox is.
type inbox struct {
	Events   int64 `json:"events"`
	Bytes    int64 `json:"bytes"`
	OldestAt stamp `json:"oldest_at"`
	Dropped  int64 `json:"dropped"`
}

// reader is a session that pulls.
type reader struct {
	ID        word  `json:"id"`
	TenantID  word  `json:"tenant_id"`
	PartnerID word  `json:"partner_id"`
	Alive     bool  `json:"alive"`
	CreatedAt stamp `json:"created_at"`
	SeenAt    stamp `json:"seen_at"`
	EndedAt   stamp `json:"ended_at"`
	EndReason word  `json:"end_reason"`
	Inbox     inbox `json:"inbox"`
}

// State is how the session does, in one word.
func (r reader) State() string {
	if r.Alive {
		return "alive"
	}
	return string(r.EndReason)
}

// Link is the session's page.
func (r reader) Link() string { return sessionLink(r.ID, r.TenantID, r.PartnerID) }

func sessionLink(id, tenant, partner word) string {
	q := url.Values{}
	if tenant != "" {
		q.Set("tenant_id", string(tenant))
	} else if partner != "" {
		q.Set("partner_id", string(partner))
	}
	if len(q) == 0 {
		return "/sessions/" + seg(id)
	}
	return "/sessions/" + seg(id) + "?" + q.Encode()
}

func (s *site) sessionRoutes() {
	s.page("GET", "/sessions", (*visit).sessions)
	s.page("GET", "/sessions/{id}", func(v *visit) error { return v.showSession(http.StatusOK, "") })
	s.page("POST", "/sessions/{id}/close", (*visit).closeSession)
}

// sessionsPage lists sessions.
type sessionsPage struct {
	list[reader]
	Query url.Values
	More  string
}

func (v *visit) sessions() error {
	shown, q := only(v.r.URL.Query(), "tenant_id"), only(v.r.URL.Query(), "tenant_id", "cursor")
	q.Set("limit", rows)
	l, err := get[list[reader]](v, "/v1/sessions", q)
	if err != nil {
		return err
	}
	return v.show("sessions.html", sessionsPage{l, shown, more(shown, l.Next)})
}

// sessionPage is one session with what feeds it.
type sessionPage struct {
	Reader  reader
	Hooks   []endpoint
	Watches []watch
	Command string // to pull with
	Query   string
	Problem string
}

func (v *visit) showSession(status int, problem string) error {
	id, q := v.r.PathValue("id"), only(v.r.URL.Query(), "tenant_id", "partner_id")
	p := sessionPage{Problem: problem}
	var err error
	if p.Reader, err = get[reader](v, "/v1/sessions/"+seg(id), q); err != nil {
		return err
	}
	path := "/v1/sessions/" + seg(id) + "/events"
	if len(q) > 0 {
		p.Query = "?" + q.Encode()
	}
	p.Command = pullCommand(path, q)
	q.Set("limit", rows)
	q.Set("session_id", id)
	hooks, err := get[list[endpoint]](v, "/v1/webhooks", q)
	if err != nil {
		return err
	}
	p.Hooks = hooks.Items
	q.Del("session_id")
	q.Del("partner_id")
	q.Set("session", id)
	watches, err := get[sentinelsPage](v, "/sentinels", q)
	if err != nil {
		return err
	}
	for _, w := range watches.Items { // sessions of other scopes may have the same name
		if w.TenantID == p.Reader.TenantID && w.PartnerID == p.Reader.PartnerID {
			p.Watches = append(p.Watches, w)
		}
	}
	return v.showAs(status, "session.html", p)
}

func (v *visit) closeSession() error {
	q := only(v.r.URL.Query(), "tenant_id", "partner_id")
	if v.r.PostForm.Get("sure") != "yes" {
		return v.showSession(http.StatusBadRequest, "tick the box first: what waits becomes dead letters")
	}
	path := "/v1/sessions/" + seg(v.r.PathValue("id"))
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	if err := v.ask(http.MethodDelete, path, nil, nil); err != nil {
		return err
	}
	q.Set("done", "closed")
	return v.redirect("/sessions/" + seg(v.r.PathValue("id")) + "?" + q.Encode())
}

// pullCommand is how to pull, for a shell: nothing in a name means anything there.
func pullCommand(path string, q url.Values) string {
	q = only(q, "tenant_id", "partner_id")
	q.Set("wait", "60")
	return `curl -H "Authorization: Bearer $SUREHOOK_KEY" "$SUREHOOK_URL` + strings.ReplaceAll(path, "$", "%24") + "?" + q.Encode() + `"`
}
