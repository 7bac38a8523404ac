package localgh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/sentinel/github"
)

const (
	perPage  = 100
	maxPages = 10
	// overlap is how far back a list is read again, since GitHub shows some things
	// late. What comes twice has the same id.
	overlap = 5 * time.Minute
)

// look is one look at a pull request. It changes a copy of the state, which is
// stored once its events are.
type look struct {
	ctx    context.Context
	gh     *tool
	t      target
	s      *state
	now    time.Time       // GitHub's
	used   map[string]bool // pages that were asked for
	events []surehook.Event
}

// pull is what is read of a pull request. Events get it as GitHub sent it.
type pull struct {
	ID       int64     `json:"id"`
	Number   int       `json:"number"`
	State    string    `json:"state"`
	ClosedAt time.Time `json:"closed_at"`
	MergedBy *user     `json:"merged_by"`
	Head     struct {
		SHA string `json:"sha"`
	} `json:"head"`
	Base struct {
		Repo json.RawMessage `json:"repo"`
	} `json:"base"`
}

type user struct {
	Login string `json:"login"`
}

// begin makes the state of a watch from one look: what was there before is no event.
// terminal: the watch is to end with its subject.
func begin(ctx context.Context, gh *tool, t target, terminal bool) (any, error) {
	if t.number == 0 {
		return beginRepo(ctx, gh, t)
	}
	a, err := gh.get(ctx, t.pull(), "")
	if err != nil {
		return nil, err
	}
	p, err := readPull(a.body, t)
	if err != nil {
		return nil, err
	}
	s := &state{Start: a.date(gh.now()).UTC()}
	if p.State == "closed" {
		if terminal {
			return nil, errClosed
		}
		s.Closed = p.ClosedAt
	}
	s.Comments = s.Start
	s.at(p.Head.SHA, s.Start)
	return s, nil
}

var errClosed = errors.New("the pull request is closed already, so nothing would end this watch; to watch it all the same say until never")

// lookAt looks at a target, from a stored state: the events, and the state to store
// once they are; nil: nothing was seen.
func lookAt(ctx context.Context, gh *tool, t target, raw []byte) ([]surehook.Event, any, error) {
	if t.number == 0 {
		return lookAtRepo(ctx, gh, t, raw)
	}
	s, err := readState[state](raw)
	if err != nil {
		return nil, nil, err
	}
	l := &look{ctx: ctx, gh: gh, t: t, s: s.init()}
	usable, err := l.all()
	if !usable {
		return nil, nil, err
	}
	return l.events, s, err
}

func readPull(body []byte, t target) (pull, error) {
	var p pull
	if err := json.Unmarshal(body, &p); err != nil || p.Number != t.number || p.ID < 1 || !hexText(p.Head.SHA) || len(p.Base.Repo) == 0 {
		return pull{}, errAnswer
	}
	return p, nil
}

var errAnswer = &trouble{message: "GitHub's answer isn't what it documents; nothing was taken from it"}

func hexText(s string) bool {
	return len(s) >= 40 && len(s) <= 64 && strings.Trim(s, "0123456789abcdef") == ""
}

// all looks for everything, the pull request first: without it nothing is taken, and
// usable is false. Of the lists, what could be read counts, whatever else couldn't.
func (l *look) all() (usable bool, err error) {
	l.used = make(map[string]bool)
	closed := l.s.Closed
	if err := l.pull(); err != nil {
		return false, err
	}
	errs := []error{l.comments(), l.reviews()}
	for _, h := range l.s.Heads {
		errs = append(errs, l.suites(h), l.runs(h))
	}
	if err = worst(errs); err == nil {
		l.s.trim(l.now, l.used)
	}
	// The closing comes last: it ends watches, which would miss the rest. While a list
	// can't be read for now, it waits.
	t, known := errors.AsType[*trouble](err)
	if hold := err != nil && (!known || !t.lasting); hold && !l.s.Closed.Equal(closed) {
		l.events = slices.DeleteFunc(l.events, func(e surehook.Event) bool { return e.Type == github.Closed })
		l.s.Closed = closed
		delete(l.s.Pages, l.t.pull())
	}
	inOrder(l.events)
	return true, err
}

// inOrder puts closings last, and the rest in order of time.
func inOrder(events []surehook.Event) {
	slices.SortStableFunc(events, func(a, b surehook.Event) int {
		if x, y := a.Type == github.Closed, b.Type == github.Closed; x != y {
			if x {
				return 1
			}
			return -1
		}
		return a.OccurredAt.Compare(b.OccurredAt)
	})
}

// worst picks the error that tells most: a rate limit, then one that passes, then one
// that lasts.
func worst(errs []error) (found error) {
	rank := func(err error) int {
		t, ok := errors.AsType[*trouble](err)
		switch {
		case err == nil:
			return 0
		case !ok || !t.until.IsZero():
			return 3
		case !t.lasting:
			return 2
		}
		return 1
	}
	for _, err := range errs {
		if rank(err) > rank(found) {
			found = err
		}
	}
	return found
}

// pull looks at the pull request itself. GitHub's clock is that of its answer.
func (l *look) pull() error {
	path := l.t.pull()
	a, err := l.gh.get(l.ctx, path, l.s.Pages[path].Tag)
	if err != nil {
		return err
	}
	l.now, l.used[path] = a.date(l.gh.now()).UTC(), true
	if a.status == http.StatusNotModified {
		return nil
	}
	p, err := readPull(a.body, l.t)
	if err != nil {
		return err
	}
	short, err := shorten(a.body)
	if err != nil {
		return errAnswer
	}
	l.s.Pull, l.s.Repo = short, nil
	if l.s.Repo, err = only(p.Base.Repo, "id", "full_name", "html_url"); err != nil {
		return errAnswer
	}
	if p.Head.SHA != l.s.Head {
		l.s.at(p.Head.SHA, l.now)
		id := fmt.Sprintf("gh:pull:%d:push:%.16s:%d", p.ID, p.Head.SHA, l.s.pushed(p.Head.SHA))
		if err := l.add("pull_request", "synchronize", id, nil); err != nil {
			return err
		}
	}
	if p.State == "closed" && !p.ClosedAt.Equal(l.s.Closed) {
		l.s.Closed = p.ClosedAt
		more := map[string]any{}
		if p.MergedBy != nil {
			more["sender"] = p.MergedBy
		}
		if err := l.add("pull_request", "closed", fmt.Sprintf("gh:pull:%d:closed:%d", p.ID, p.ClosedAt.Unix()), more); err != nil {
			return err
		}
	}
	l.s.Pages[path] = page{Tag: a.etag()}
	return nil
}

// shorten keeps of a pull request what events tell.
func shorten(body []byte) (json.RawMessage, error) {
	return only(body, "id", "number", "title", "html_url", "merged", "updated_at", "closed_at", "head")
}

// only keeps some members of an object; of head, its commit and branch.
func only(body []byte, names ...string) (json.RawMessage, error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	out := make(map[string]json.RawMessage, len(names))
	for _, n := range names {
		v, ok := all[n]
		switch {
		case !ok || string(v) == "null":
			continue
		case n == "head":
			var err error
			if v, err = only(v, "sha", "ref"); err != nil {
				return nil, err
			}
		}
		out[n] = v
	}
	return json.Marshal(out)
}

// pages reads a list, page after page, as far as it has changed; each gets the items.
// One that can't be understood doesn't keep the others; its page is read again.
func (l *look) pages(path, key string, each func(json.RawMessage) error) error {
	sep := "?"
	if strings.Contains(path, "?") {
		sep = "&"
	}
	var odd error
	for n := 1; n <= maxPages; n++ {
		at := fmt.Sprintf("%s%sper_page=%d&page=%d", path, sep, perPage, n)
		a, err := l.gh.get(l.ctx, at, l.s.Pages[at].Tag)
		if err != nil {
			return err
		}
		l.used[at] = true
		if a.status == http.StatusOK {
			items, err := itemsOf(a.body, key)
			if err != nil {
				return errAnswer
			}
			next := page{Tag: a.etag(), Full: len(items) >= perPage}
			for _, it := range items {
				if err := each(it); err != nil {
					odd, next.Tag = err, ""
				}
			}
			l.s.Pages[at] = next
		}
		if !l.s.Pages[at].Full {
			return odd
		}
	}
	return &trouble{message: fmt.Sprintf("there are more than %d comments, reviews or checks: local-gh doesn't see the rest", perPage*maxPages), lasting: true}
}

func itemsOf(body []byte, key string) (items []json.RawMessage, err error) {
	if key == "" {
		return items, json.Unmarshal(body, &items)
	}
	var all map[string]json.RawMessage
	if err := json.Unmarshal(body, &all); err != nil {
		return nil, err
	}
	return items, json.Unmarshal(all[key], &items)
}

// comments looks for new ones. The list is asked for from a time that moves only
// when something was new, so that it can be answered as unchanged.
func (l *look) comments() error {
	since, found := l.s.Comments, false
	path := l.t.path("issues/"+strconv.Itoa(l.t.number)+"/comments") + "?since=" + url.QueryEscape(since.UTC().Format(time.RFC3339))
	err := l.pages(path, "", func(raw json.RawMessage) error {
		var c struct {
			ID      int64     `json:"id"`
			Created time.Time `json:"created_at"`
			User    *user     `json:"user"`
		}
		if err := json.Unmarshal(raw, &c); err != nil || c.ID < 1 {
			return errAnswer
		}
		if c.Created.Before(since) { // an old one was edited
			return nil
		}
		err := l.add("issue_comment", "created", fmt.Sprintf("gh:comment:%d", c.ID), map[string]any{"comment": raw, "sender": c.User})
		found = found || err == nil
		return err
	})
	if err == nil && found {
		if next := l.now.Add(-overlap); next.After(since) {
			l.s.Comments = next
		}
	}
	return err
}

// reviews looks for those that were submitted. GitHub lists them by when they were
// begun, so which ones were published is kept.
func (l *look) reviews() error {
	return l.pages(l.t.pull()+"/reviews", "", func(raw json.RawMessage) error {
		var r struct {
			ID        int64     `json:"id"`
			State     string    `json:"state"`
			Submitted time.Time `json:"submitted_at"`
			User      *user     `json:"user"`
		}
		if err := json.Unmarshal(raw, &r); err != nil || r.ID < 1 {
			return errAnswer
		}
		if r.Submitted.Before(l.s.Start) || r.State == "PENDING" || slices.Contains(l.s.Reviews, r.ID) {
			return nil
		}
		// Webhooks write states in small letters.
		var all map[string]any
		if err := json.Unmarshal(raw, &all); err != nil {
			return errAnswer
		}
		all["state"] = strings.ToLower(r.State)
		err := l.add("pull_request_review", "submitted", fmt.Sprintf("gh:review:%d", r.ID), map[string]any{"review": all, "sender": r.User})
		if err == nil {
			l.s.Reviews = append(l.s.Reviews, r.ID)
		}
		return err
	})
}

// check is what is read of a check suite or a workflow's run.
type check struct {
	ID      int64     `json:"id"`
	Status  string    `json:"status"`
	Updated time.Time `json:"updated_at"`
	Attempt int64     `json:"run_attempt"`
}

func (l *look) suites(h *head) error {
	return l.pages(l.t.path("commits/"+h.SHA+"/check-suites"), "check_suites", func(raw json.RawMessage) error {
		c, err := l.done(raw)
		if c == nil || err != nil {
			return err
		}
		id, at := strconv.FormatInt(c.ID, 10), c.Updated.Unix()
		if h.Suites[id] >= at {
			return nil
		}
		if err := l.check("check_suite", fmt.Sprintf("gh:suite:%s:%d", id, at), raw); err != nil {
			return err
		}
		if h.Suites == nil {
			h.Suites = make(map[string]int64)
		}
		h.Suites[id] = at
		return nil
	})
}

func (l *look) runs(h *head) error {
	return l.pages(l.t.path("actions/runs?head_sha="+h.SHA), "workflow_runs", func(raw json.RawMessage) error {
		c, err := l.done(raw)
		if c == nil || err != nil {
			return err
		}
		id, attempt := strconv.FormatInt(c.ID, 10), max(c.Attempt, 1)
		if h.Runs[id] >= attempt {
			return nil
		}
		if err := l.check("workflow_run", fmt.Sprintf("gh:run:%s:%d", id, attempt), raw); err != nil {
			return err
		}
		if h.Runs == nil {
			h.Runs = make(map[string]int64)
		}
		h.Runs[id] = attempt
		return nil
	})
}

// done gives a check that has ended since the watch began, or nil.
func (l *look) done(raw json.RawMessage) (*check, error) {
	var c check
	if err := json.Unmarshal(raw, &c); err != nil || c.ID < 1 {
		return nil, errAnswer
	}
	if c.Status != "completed" || c.Updated.Before(l.s.Start) {
		return nil, nil
	}
	return &c, nil
}

// check adds a check's event. It is about this pull request even where GitHub
// doesn't list it, as with one from a fork.
func (l *look) check(kind, id string, raw json.RawMessage) error {
	var all map[string]any
	var repo any
	if err := errors.Join(json.Unmarshal(raw, &all), json.Unmarshal(l.s.Repo, &repo)); err != nil {
		return errAnswer
	}
	pulls, _ := all["pull_requests"].([]any)
	ours := map[string]any{"number": l.t.number, "base": map[string]any{"repo": repo}}
	pulls = slices.DeleteFunc(pulls, func(p any) bool {
		m, _ := p.(map[string]any)
		n, _ := m["number"].(float64)
		return int(n) == l.t.number
	})
	all["pull_requests"] = append([]any{ours}, pulls...)
	return l.add(kind, "completed", id, map[string]any{kind: all})
}

// add makes the event that GitHub's webhook would have made.
func (l *look) add(kind, action, id string, more map[string]any) error {
	payload := map[string]any{"action": action, "repository": l.s.Repo}
	switch kind {
	case "issue_comment":
		var p struct {
			Title string `json:"title"`
		}
		if err := json.Unmarshal(l.s.Pull, &p); err != nil {
			return errAnswer
		}
		payload["issue"] = map[string]any{"number": l.t.number, "title": p.Title, "pull_request": map[string]any{}}
	case "pull_request", "pull_request_review":
		payload["pull_request"] = l.s.Pull
	}
	for name, v := range more {
		payload[name] = v
	}
	raw, err := json.Marshal(payload)
	if err != nil {
		return err
	}
	ev, known, err := github.Map(kind, raw)
	if err != nil || !known {
		return errAnswer
	}
	ev.ID = id
	// A repository that was renamed answers under its new name.
	if !slices.ContainsFunc(ev.Subjects, func(s string) bool { return strings.EqualFold(s, l.t.subject) }) {
		ev.Subjects = append([]string{l.t.subject}, ev.Subjects[:min(len(ev.Subjects), 15)]...)
	}
	l.events = append(l.events, ev)
	return nil
}
