package console

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/surehook/surehook"
)

// event is an event as the API shows it.
type event struct {
	ID         word            `json:"id"`
	Alias      word            `json:"alias"`
	Type       word            `json:"type"`
	TenantID   word            `json:"tenant_id"`
	IdentityID word            `json:"identity_id"`
	Owner      word            `json:"owner"`
	Sequence   *int64          `json:"sequence"`
	Subjects   []word          `json:"subjects"`
	OccurredAt stamp           `json:"occurred_at"`
	CreatedAt  stamp           `json:"created_at"`
	Erased     bool            `json:"erased"`
	CloudEvent json.RawMessage `json:"cloudevent"`
	Data       json.RawMessage `json:"data"`
}

// attempt is one request and its outcome.
type attempt struct {
	ID             word    `json:"id"`
	EventID        word    `json:"event_id"`
	EventType      word    `json:"event_type"`
	WebhookID      word    `json:"webhook_id"`
	Attempt        int     `json:"attempt"`
	Status         string  `json:"status"`
	HTTPStatus     int     `json:"http_status"`
	Error          word    `json:"error"`
	Message        word    `json:"message"`
	Response       word    `json:"response"`
	ResponseBase64 word    `json:"response_base64"`
	DurationMS     float64 `json:"duration_ms"`
	Phases         phases  `json:"phases"`
	NextAttemptAt  stamp   `json:"next_attempt_at"`
	CreatedAt      stamp   `json:"created_at"`
	Late           bool    `json:"late"`
	Test           bool    `json:"test"`
}

// delivery is an event at an endpoint.
type delivery struct {
	EventID       word   `json:"event_id"`
	EventType     word   `json:"event_type"`
	WebhookID     word   `json:"webhook_id"`
	Status        string `json:"status"`
	Attempts      int    `json:"attempts"`
	NextAttemptAt stamp  `json:"next_attempt_at"`
	LastError     word   `json:"last_error"`
	LastStatus    int    `json:"last_http_status"`
	LastAttemptAt stamp  `json:"last_attempt_at"`

	Tries    []attempt // oldest first
	Endpoint *endpoint // nil: it isn't there any more
}

func (s *site) eventRoutes() {
	s.page("GET", "/events", (*visit).events)
	s.page("GET", "/events/{id}", (*visit).event)
	s.page("GET", "/events/{id}/data", (*visit).eventData)
	s.page("POST", "/events/{id}/replay", (*visit).replayEvent)
}

// eventsPage lists events.
type eventsPage struct {
	list[event]
	Query   url.Values
	More    string
	Types   []eventType
	Problem string
}

func (v *visit) events() error {
	given := v.r.URL.Query()
	if id := strings.TrimSpace(given.Get("id")); id != "" {
		return v.findEvent(id, given.Get("tenant_id"))
	}
	shown := only(given, "tenant_id", "type", "subject", "status", "since", "until")
	q := only(given, "tenant_id", "type", "subject", "status", "cursor")
	q.Set("limit", rows)
	p := eventsPage{Query: shown}
	for _, name := range []string{"since", "until"} {
		if shown.Get(name) == "" {
			continue
		}
		t, err := readTime(shown.Get(name))
		if err != nil {
			p.Problem = name + " must be a date and time, such as 2026-01-31T12:00 (UTC)."
			break
		}
		q.Set(name, t.Format(time.RFC3339))
	}
	types, err := get[list[eventType]](v, "/v1/event-types", nil)
	if err != nil {
		return err
	}
	p.Types = types.Items
	status := http.StatusOK
	if p.Problem == "" {
		p.list, err = get[list[event]](v, "/v1/events", q)
		if refused, ok := errors.AsType[*problem](err); ok && refused.Status == http.StatusBadRequest {
			p.Problem = refused.Detail
		} else if err != nil {
			return err
		}
	}
	if p.Problem != "" {
		status = http.StatusBadRequest
	}
	p.More = more(shown, p.Next)
	return v.showAs(status, "events.html", p)
}

// readTime reads what a field for date and time sends; a zone may follow, UTC by
// default.
func readTime(text string) (time.Time, error) {
	for _, layout := range []string{"2006-01-02T15:04", "2006-01-02T15:04:05", time.DateOnly} {
		if t, err := time.Parse(layout, text); err == nil {
			return t, nil
		}
	}
	return time.Parse(time.RFC3339, text)
}

// findEvent leads to an event whose id somebody has.
func (v *visit) findEvent(id, tenant string) error {
	to := "/events/" + seg(id)
	if tenant != "" {
		to += "?tenant_id=" + url.QueryEscape(tenant)
	}
	return v.redirect(to)
}

// shownData bounds how much of an event's data a page shows; the rest is a file.
const shownData = 24 << 10

// eventPage is an event's way.
type eventPage struct {
	Event      event
	Data       string // as it is stored
	Pretty     string // with line breaks; numbers as they are written
	Size       int
	Cut        bool
	Deliveries []delivery
	More       bool // there are more deliveries than are shown
	Query      string
}

func (v *visit) eventOf() (event, string, error) {
	q := only(v.r.URL.Query(), "tenant_id")
	e, err := get[event](v, "/v1/events/"+seg(v.r.PathValue("id")), q)
	query := ""
	if len(q) > 0 {
		query = "?" + q.Encode()
	}
	return e, query, err
}

func (v *visit) event() error {
	e, query, err := v.eventOf()
	if err != nil {
		return err
	}
	p := eventPage{Event: e, Size: len(e.Data), Query: query}
	data := []byte(e.Data)
	if p.Cut = len(data) > shownData; p.Cut {
		data = data[:shownData]
	}
	p.Data = inert(strings.ToValidUTF8(string(data), "\uFFFD"))
	var pretty bytes.Buffer
	if !p.Cut && json.Indent(&pretty, e.Data, "", "  ") == nil {
		p.Pretty = inert(pretty.String())
	}
	q := only(v.r.URL.Query(), "tenant_id")
	q.Set("limit", rows)
	path := "/v1/events/" + seg(v.r.PathValue("id"))
	ds, err := get[list[delivery]](v, path+"/deliveries", q)
	if err != nil {
		return err
	}
	q.Set("limit", "200")
	as, err := get[list[attempt]](v, path+"/attempts", q)
	if err != nil {
		return err
	}
	p.Deliveries, p.More = ds.Items, ds.Next != ""
	for i := range p.Deliveries {
		d := &p.Deliveries[i]
		for j := len(as.Items) - 1; j >= 0; j-- {
			if as.Items[j].WebhookID == d.WebhookID {
				d.Tries = append(d.Tries, as.Items[j])
			}
		}
		if i < 20 { // names for those that are looked at first
			if ep, err := get[endpoint](v, "/v1/webhooks/"+seg(d.WebhookID), nil); err == nil {
				d.Endpoint = &ep
			}
		}
	}
	return v.show("event.html", p)
}

// eventData gives the stored bytes as a file: nothing opens it as a page.
func (v *visit) eventData() error {
	e, _, err := v.eventOf()
	if err != nil {
		return err
	}
	if e.Erased {
		return surehook.Errorf(surehook.NotFound, "the event's data was erased")
	}
	h := v.w.Header()
	h.Set("Content-Type", "application/octet-stream")
	h.Set("Content-Disposition", `attachment; filename="event.json"`)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	_, _ = v.w.Write(e.Data) // the reader may have gone
	return nil
}

// replayEvent delivers an event again at one endpoint.
func (v *visit) replayEvent() error {
	id, hook := v.r.PathValue("id"), v.r.PostForm.Get("webhook_id")
	q := only(v.r.URL.Query(), "tenant_id")
	path := "/v1/webhooks/" + seg(hook) + "/deliveries/" + seg(id) + "/replay"
	if len(q) > 0 {
		path += "?" + q.Encode()
	}
	var out struct {
		Queued int `json:"queued"`
	}
	if err := v.ask(http.MethodPost, path, nil, &out); err != nil {
		return err
	}
	q.Set("done", "replayed")
	if out.Queued == 0 {
		q.Set("done", "in-progress")
	}
	return v.redirect("/events/" + seg(id) + "?" + q.Encode())
}
