package console

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

func (s *site) adminRoutes() {
	s.page("POST", "/event-types", (*visit).saveType)
	s.page("POST", "/event-types/{name}/delete", (*visit).deleteType)
	s.page("GET", "/tenants", (*visit).tenants)
	s.page("POST", "/tenants", (*visit).saveTenant)
	s.page("POST", "/tenants/{id}/delete", func(v *visit) error { return v.forget("/v1/tenants/", "/tenants", "deleted") })
	s.page("POST", "/tenants/{id}/portal", (*visit).portalLink)
	s.page("GET", "/partners", (*visit).partners)
	s.page("POST", "/partners", (*visit).savePartner)
	s.page("POST", "/partners/{id}/delete", func(v *visit) error { return v.forget("/v1/partners/", "/partners", "deleted") })
	s.page("GET", "/keys", (*visit).keys)
	s.page("POST", "/keys", (*visit).makeKey)
	s.page("POST", "/keys/{id}/revoke", func(v *visit) error { return v.forget("/v1/keys/", "/keys", "key") })
	s.page("GET", "/audit", (*visit).audit)
	s.page("GET", "/system", (*visit).system)
}

func (v *visit) forget(path, page, note string) error {
	if err := v.ask(http.MethodDelete, path+seg(v.r.PathValue("id")), nil, nil); err != nil {
		return err
	}
	return v.redirect(page + "?done=" + note)
}

// adminPage is a listing with a form to add to it.
type adminPage[T any] struct {
	list[T]
	More     string
	Query    url.Values
	Form     url.Values // as it was typed
	Problems map[string]string
	Problem  string
	Secret   string // a key or a link that was made just now
	For      string // whose
	Again    bool   // it was made before, and shown then
}

// In gives what was typed into a field.
func (p adminPage[T]) In(name string) string { return p.Form.Get(name) }

// Chosen tells whether a box was ticked.
func (p adminPage[T]) Chosen(name, value string) bool {
	for _, x := range p.Form[name] {
		if x == value {
			return true
		}
	}
	return false
}

func listing[T any](v *visit, status int, page, path string, p adminPage[T], names ...string) error {
	p.Query = only(v.r.URL.Query(), names...)
	q := only(v.r.URL.Query(), append(names, "cursor")...)
	q.Set("limit", rows)
	var err error
	if p.list, err = get[list[T]](v, path, q); err != nil {
		return err
	}
	p.More = more(p.Query, p.Next)
	return v.showAs(status, page, p)
}

// again shows a listing with its form as it was typed, and what is wrong with it.
func again[T any](v *visit, page, path string, err error) error {
	refused, ok := errors.AsType[*problem](err)
	if !ok || refused.Status >= 500 {
		return err
	}
	return listing(v, refused.Status, page, path, adminPage[T]{Form: v.r.PostForm, Problems: fields(refused), Problem: refused.words()})
}

// tenant is a tenant that has a name.
type tenant struct {
	ID         word  `json:"id"`
	Name       word  `json:"name"`
	PartnerID  word  `json:"partner_id"`
	EventsDays int   `json:"events_days"`
	CreatedAt  stamp `json:"created_at"`
}

func (v *visit) tenants() error {
	return listing(v, http.StatusOK, "tenants.html", "/v1/tenants", adminPage[tenant]{})
}

func (v *visit) saveTenant() error {
	f := v.r.PostForm
	in := map[string]any{"name": strings.TrimSpace(f.Get("name")), "partner_id": strings.TrimSpace(f.Get("partner_id"))}
	var err error
	if days := strings.TrimSpace(f.Get("events_days")); days != "" {
		n, e := strconv.Atoi(days)
		if e != nil {
			err = refusedForm(map[string]string{"events_days": "must be a whole number of days"})
		}
		in["events_days"] = n
	}
	id := strings.TrimSpace(f.Get("id"))
	if id == "" {
		err = refusedForm(map[string]string{"id": "is required"})
	}
	if err == nil {
		err = v.ask(http.MethodPut, "/v1/tenants/"+seg(id), in, nil)
	}
	if err != nil {
		return again[tenant](v, "tenants.html", "/v1/tenants", err)
	}
	return v.redirect("/tenants?done=saved")
}

// portalLink makes a link into a tenant's portal, and shows it this once.
func (v *visit) portalLink() error {
	in := map[string]any{"tenant_id": v.r.PathValue("id")}
	if v.r.PostForm.Get("manage") == "yes" {
		in["permissions"] = []string{"read", "webhooks:manage"}
	}
	var out struct {
		URL string `json:"url"`
	}
	if err := v.ask(http.MethodPost, "/v1/portal-links", in, &out); err != nil {
		return again[tenant](v, "tenants.html", "/v1/tenants", err)
	}
	return listing(v, http.StatusOK, "tenants.html", "/v1/tenants", adminPage[tenant]{Secret: out.URL, For: v.r.PathValue("id")})
}

// partner is a partner that has a name.
type partner struct {
	ID        word  `json:"id"`
	Name      word  `json:"name"`
	Status    word  `json:"status"`
	CreatedAt stamp `json:"created_at"`
}

func (v *visit) partners() error {
	return listing(v, http.StatusOK, "partners.html", "/v1/partners", adminPage[partner]{})
}

func (v *visit) savePartner() error {
	f := v.r.PostForm
	id := strings.TrimSpace(f.Get("id"))
	var err error
	if id == "" {
		err = refusedForm(map[string]string{"id": "is required"})
	} else {
		err = v.ask(http.MethodPut, "/v1/partners/"+seg(id), map[string]string{"name": strings.TrimSpace(f.Get("name")), "status": f.Get("status")}, nil)
	}
	if err != nil {
		return again[partner](v, "partners.html", "/v1/partners", err)
	}
	return v.redirect("/partners?done=saved")
}

// apiKey is an API key, never itself.
type apiKey struct {
	ID          word   `json:"id"`
	Name        word   `json:"name"`
	Hint        word   `json:"hint"`
	TenantID    word   `json:"tenant_id"`
	PartnerID   word   `json:"partner_id"`
	Permissions []word `json:"permissions"`
	CreatedAt   stamp  `json:"created_at"`
	RevokedAt   stamp  `json:"revoked_at"`
	LastUsedAt  stamp  `json:"last_used_at"`
	Key         string `json:"key"`
}

func (v *visit) keys() error {
	return listing(v, http.StatusOK, "keys.html", "/v1/keys", adminPage[apiKey]{Form: url.Values{"once": {newToken()}}})
}

// makeKey makes a key, and shows it this once.
func (v *visit) makeKey() error {
	f := v.r.PostForm
	in := map[string]any{"permissions": append(append([]string{}, f["permissions"]...), split(f.Get("others"))...)}
	for _, name := range []string{"name", "tenant_id", "partner_id"} {
		if x := strings.TrimSpace(f.Get(name)); x != "" {
			in[name] = x
		}
	}
	var made apiKey
	if err := v.ask(http.MethodPost, "/v1/keys", in, &made, v.once()...); err != nil {
		return again[apiKey](v, "keys.html", "/v1/keys", err)
	}
	return listing(v, http.StatusCreated, "keys.html", "/v1/keys", adminPage[apiKey]{Secret: v.first(made.Key), Again: v.again, For: string(made.Name), Form: url.Values{"once": {newToken()}}})
}

// auditEntry is one change.
type auditEntry struct {
	At        stamp           `json:"at"`
	Actor     word            `json:"actor"`
	Action    word            `json:"action"`
	Target    word            `json:"target"`
	TenantID  word            `json:"tenant_id"`
	RequestID word            `json:"request_id"`
	Details   json.RawMessage `json:"details"`
}

// Said is what an entry adds.
func (a auditEntry) Said() string { return inert(string(a.Details)) }

func (v *visit) audit() error {
	return listing(v, http.StatusOK, "audit.html", "/v1/audit-log", adminPage[auditEntry]{}, "tenant_id")
}

// systemPage is what runs here.
type systemPage struct {
	Version      string `json:"version"`
	Go           string `json:"go"`
	Platform     string `json:"platform"`
	Store        string `json:"store"`
	StartedAt    stamp  `json:"started_at"`
	Nodes        int64  `json:"nodes"`
	LostNodes    int64  `json:"lost_nodes"`
	Undispatched stamp  `json:"oldest_undispatched_at"`
	Pending      struct {
		Owned     int64 `json:"owned"`
		Due       int64 `json:"due"`
		Waiting   int64 `json:"waiting"`
		Held      int64 `json:"held"`
		OldestDue stamp `json:"oldest_due_at"`
	} `json:"pending"`
	Lanes struct {
		Lanes    int64 `json:"lanes"`
		Queued   int64 `json:"queued"`
		Bytes    int64 `json:"bytes"`
		InFlight int64 `json:"in_flight"`
		Backlog  int64 `json:"backlog"`
		Open     int64 `json:"breakers_open"`
		HalfOpen int64 `json:"breakers_half_open"`
	} `json:"lanes"`
}

func (v *visit) system() error {
	p, err := get[systemPage](v, "/v1/system", nil)
	if err != nil {
		return err
	}
	return v.show("system.html", p)
}
