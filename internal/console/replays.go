package console

import (
	"net/http"
	"net/url"
	"time"
)

// replay is a background job that delivers past events again.
type replay struct {
	ID        word  `json:"id"`
	WebhookID word  `json:"webhook_id"`
	Since     stamp `json:"since"`
	Until     stamp `json:"until"`
	Status    word  `json:"status"`
	State     word  `json:"state"`
	Scanned   int64 `json:"scanned"`
	Queued    int64 `json:"queued"`
	Total     int64 `json:"total"`
	Error     word  `json:"error"`
	CreatedAt stamp `json:"created_at"`
	UpdatedAt stamp `json:"updated_at"`
}

// Running tells that there is progress to wait for.
func (r replay) Running() bool { return r.State == "running" }

func (s *site) replayRoutes() {
	s.page("GET", "/replays", (*visit).replays)
	s.page("GET", "/replays/{id}", func(v *visit) error { return v.replayPart("replay.html", "layout") })
	s.page("GET", "/replays/{id}/progress", func(v *visit) error { return v.replayPart("replay.html", "progress") })
	s.page("POST", "/replays/{id}/cancel", (*visit).cancelReplay)
	s.page("POST", "/endpoints/{id}/replay", (*visit).startReplay)
}

// replaysPage lists replays.
type replaysPage struct {
	list[replay]
	Query url.Values
	More  string
}

func (v *visit) replays() error {
	shown := only(v.r.URL.Query(), "webhook_id")
	q := only(v.r.URL.Query(), "webhook_id", "cursor")
	q.Set("limit", rows)
	l, err := get[list[replay]](v, "/v1/replays", q)
	if err != nil {
		return err
	}
	return v.show("replays.html", replaysPage{l, shown, more(shown, l.Next)})
}

func (v *visit) replayPart(page, part string) error {
	r, err := get[replay](v, "/v1/replays/"+seg(v.r.PathValue("id")), nil)
	if err != nil {
		return err
	}
	if part == "layout" {
		return v.show(page, r)
	}
	return v.part(page, part, r)
}

func (v *visit) cancelReplay() error {
	id := v.r.PathValue("id")
	if err := v.ask(http.MethodPost, "/v1/replays/"+seg(id)+"/cancel", nil, nil); err != nil {
		return err
	}
	return v.redirect("/replays/" + seg(id) + "?done=cancelled")
}

// startReplay delivers an endpoint's past events again, as a background job.
func (v *visit) startReplay() error {
	in := map[string]any{"background": true}
	for _, name := range []string{"since", "until"} {
		text := v.r.PostForm.Get(name)
		if text == "" {
			continue
		}
		t, err := readTime(text)
		if err != nil {
			return v.refused(refusedForm(map[string]string{name: "must be a date and time, such as 2026-01-31T12:00 (UTC)"}))
		}
		in[name] = t.Format(time.RFC3339)
	}
	if s := v.r.PostForm.Get("status"); s != "" {
		in["status"] = s
	}
	var out struct {
		Replay replay `json:"replay"`
	}
	if err := v.ask(http.MethodPost, "/v1/webhooks/"+seg(v.r.PathValue("id"))+"/replay", in, &out, v.once()...); err != nil {
		return v.refused(err)
	}
	return v.redirect("/replays/" + seg(out.Replay.ID) + "?done=started")
}
