package console

import (
	"errors"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/surehook/surehook"
)

// letter is a delivery that ended dead.
type letter struct {
	ID         word  `json:"id"`
	EventID    word  `json:"event_id"`
	EventType  word  `json:"event_type"`
	WebhookID  word  `json:"webhook_id"`
	Error      word  `json:"error"`
	HTTPStatus int   `json:"http_status"`
	Attempts   int   `json:"attempts"`
	CreatedAt  stamp `json:"created_at"`
}

func (s *site) letterRoutes() {
	s.page("GET", "/dead-letters", (*visit).letters)
	s.page("POST", "/dead-letters", (*visit).changeLetters)
}

// lettersPage lists dead letters.
type lettersPage struct {
	list[letter]
	Query   url.Values
	More    string
	Outcome *lettersOutcome
	Problem string
	Chosen  []string // ticked before
}

// Ticked tells whether a dead letter was ticked before.
func (p lettersPage) Ticked(id word) bool { return slices.Contains(p.Chosen, string(id)) }

// lettersOutcome is what became of those that were selected.
type lettersOutcome struct {
	Action  string // replay or discard
	Done    int
	Busy    int // an attempt is being made right now
	Refused []refusal
	Stay    int    // that were refused by earlier steps
	Next    string // all of the filter are meant, and there are more: where the next step goes on
}

// refusal is a group of dead letters that stay, and why.
type refusal struct {
	Why   string
	Count int
}

var letterFilter = []string{"webhook_id", "tenant_id", "since", "until"}

func (v *visit) letters() error { return v.showLetters(http.StatusOK, lettersPage{}) }

func (v *visit) lettersQuery(from url.Values) (shown, q url.Values, err error) {
	shown = only(from, letterFilter...)
	q = only(from, "webhook_id", "tenant_id", "cursor")
	for _, name := range []string{"since", "until"} {
		if text := shown.Get(name); text != "" {
			t, err := readTime(text)
			if err != nil {
				return shown, nil, surehook.Invalid(name, "must be a date and time, such as 2026-01-31T12:00 (UTC)")
			}
			q.Set(name, t.Format(time.RFC3339))
		}
	}
	return shown, q, nil
}

func (v *visit) showLetters(status int, p lettersPage) error {
	shown, q, err := v.lettersQuery(v.r.URL.Query())
	p.Query = shown
	if err != nil {
		p.Problem = err.Error()
		return v.showAs(http.StatusBadRequest, "letters.html", p)
	}
	q.Set("limit", rows)
	if p.list, err = get[list[letter]](v, "/v1/dead-letters", q); err != nil {
		return err
	}
	p.More = more(shown, p.Next)
	return v.showAs(status, "letters.html", p)
}

// stay shows the page as it was, and why nothing was done.
func (v *visit) stay(why string) error {
	return v.showLetters(http.StatusBadRequest, lettersPage{Problem: why, Chosen: v.r.PostForm["ids"]})
}

// Bounds of one change of dead letters: a page must answer while somebody waits.
const (
	lettersAtOnce = 100 // what the API takes
	lettersStep   = 500
	lettersTime   = 3 * time.Second
)

// changeLetters replays or discards dead letters: those that were ticked, or all of
// the filter.
func (v *visit) changeLetters() error {
	action := v.r.PostForm.Get("action")
	if action != "replay" && action != "discard" {
		return surehook.Invalid("action", "must be replay or discard")
	}
	if action == "discard" && v.r.PostForm.Get("sure") != "yes" {
		return v.stay("To discard, tick the box beside it first: a discarded dead letter can't be replayed from here any more.")
	}
	o := &lettersOutcome{Action: action}
	if v.r.PostForm.Get("all") != "yes" {
		ids := v.r.PostForm["ids"]
		if len(ids) == 0 {
			return v.stay("Nothing was done: tick at least one dead letter, or choose all of the filter.")
		}
		if len(ids) > lettersAtOnce {
			ids = ids[:lettersAtOnce]
		}
		if err := v.apply(o, ids); err != nil {
			return err
		}
		return v.showLetters(http.StatusOK, lettersPage{Outcome: o})
	}
	if err := v.step(o); err != nil {
		return err
	}
	return v.showLetters(http.StatusOK, lettersPage{Outcome: o})
}

// step does a part of all dead letters of the filter: the page shows how far it is,
// and goes on by itself.
func (v *visit) step(o *lettersOutcome) error {
	_, q, err := v.lettersQuery(v.r.URL.Query())
	if err != nil {
		return err
	}
	q.Set("limit", strconv.Itoa(lettersAtOnce))
	q.Del("cursor")
	if from := v.r.PostForm.Get("from"); from != "" {
		q.Set("cursor", from)
	}
	for name, to := range map[string]*int{"done": &o.Done, "busy": &o.Busy, "stay": &o.Stay} {
		*to, _ = strconv.Atoi(v.r.PostForm.Get(name)) // what a step before it has done; 0 for the first
	}
	for end, n := time.Now().Add(lettersTime), 0; ; {
		l, err := get[list[letter]](v, "/v1/dead-letters", q)
		if err != nil {
			return err
		}
		ids := make([]string, len(l.Items))
		for i, x := range l.Items {
			ids[i] = string(x.ID)
		}
		if len(ids) > 0 {
			if err := v.apply(o, ids); err != nil {
				return err
			}
		}
		if n += len(ids); l.Next == "" {
			return nil
		}
		if n >= lettersStep || time.Now().After(end) || v.r.Context().Err() != nil {
			o.Next = l.Next
			return nil //nolint:nilerr // whoever looks again goes on there
		}
		q.Set("cursor", l.Next)
	}
}

// Stays is how many of all steps were refused.
func (o *lettersOutcome) Stays() int {
	n := o.Stay
	for _, r := range o.Refused {
		n += r.Count
	}
	return n
}

// apply changes some dead letters. The API takes all or none, so where it refuses
// they go one by one, and each that stays says why.
func (v *visit) apply(o *lettersOutcome, ids []string) error {
	var out struct {
		Queued     int `json:"queued"`
		InProgress int `json:"in_progress"`
		Discarded  int `json:"discarded"`
	}
	err := v.ask(http.MethodPost, "/v1/dead-letters/"+o.Action, map[string][]string{"ids": ids}, &out)
	if err == nil {
		o.Done += out.Queued + out.Discarded
		o.Busy += out.InProgress
		return nil
	}
	refused, ok := errors.AsType[*problem](err)
	if !ok || refused.Status >= 500 || refused.Status == http.StatusUnauthorized {
		return err
	}
	if len(ids) == 1 {
		o.refuse(refused)
		return nil
	}
	for _, id := range ids {
		if err := v.apply(o, []string{id}); err != nil {
			return err
		}
	}
	return nil
}

func (o *lettersOutcome) refuse(p *problem) {
	why := p.Detail
	if len(p.Fields) > 0 {
		why = "the event " + p.Fields[0].Message
	}
	for i := range o.Refused {
		if o.Refused[i].Why == why {
			o.Refused[i].Count++
			return
		}
	}
	o.Refused = append(o.Refused, refusal{why, 1})
}
