// Package github turns webhooks of GitHub's into events about pull requests,
// repositories and their owners.
//
// It guarantees that nothing is published that GitHub didn't sign, that one
// delivery of GitHub's is one event however often it is sent, and that an event's
// data stays under 32 KiB.
package github

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/surehook/surehook"
)

// The types of the events.
const (
	CheckSuite  = "github.check_suite.completed"
	WorkflowRun = "github.workflow_run.completed"
	Review      = "github.pull_request_review.submitted"
	Closed      = "github.pull_request.closed"
	Synchronize = "github.pull_request.synchronize"
	Comment     = "github.issue_comment.created"
)

// Bounds of texts that people write, in bytes.
const (
	maxTitle   = 512
	maxBody    = 8 << 10
	maxExcerpt = 120
	maxPulls   = 14 // with the repository and its owner, as many subjects as an event may have
)

// payload is what is read of GitHub's JSON.
type payload struct {
	Action      string      `json:"action"`
	Repository  *repository `json:"repository"`
	Sender      user        `json:"sender"`
	CheckSuite  *run        `json:"check_suite"`
	WorkflowRun *run        `json:"workflow_run"`
	PullRequest *pull       `json:"pull_request"`
	Review      *remark     `json:"review"`
	Comment     *remark     `json:"comment"`
	Issue       *struct {
		Number      int             `json:"number"`
		Title       string          `json:"title"`
		PullRequest json.RawMessage `json:"pull_request"` // there when the issue is a pull request
	} `json:"issue"`
	After string `json:"after"`
}

type user struct {
	Login string `json:"login"`
}

type repository struct {
	ID       int64  `json:"id"`
	FullName string `json:"full_name"`
	HTMLURL  string `json:"html_url"`
}

// run is a check suite or a workflow's run.
type run struct {
	Name         string    `json:"name"`
	Conclusion   string    `json:"conclusion"`
	HeadSHA      string    `json:"head_sha"`
	HeadBranch   string    `json:"head_branch"`
	HTMLURL      string    `json:"html_url"`
	UpdatedAt    time.Time `json:"updated_at"`
	PullRequests []struct {
		Number int `json:"number"`
		Base   struct {
			Repo repository `json:"repo"`
		} `json:"base"`
	} `json:"pull_requests"`
}

type pull struct {
	Number    int       `json:"number"`
	Title     string    `json:"title"`
	HTMLURL   string    `json:"html_url"`
	Merged    bool      `json:"merged"`
	UpdatedAt time.Time `json:"updated_at"`
	ClosedAt  time.Time `json:"closed_at"`
	Head      struct {
		SHA string `json:"sha"`
		Ref string `json:"ref"`
	} `json:"head"`
}

// remark is a review or a comment.
type remark struct {
	State       string    `json:"state"`
	Body        string    `json:"body"`
	HTMLURL     string    `json:"html_url"`
	User        user      `json:"user"`
	CreatedAt   time.Time `json:"created_at"`
	SubmittedAt time.Time `json:"submitted_at"`
}

// data is what an event says, under GitHub's own names.
type data struct {
	Action     string `json:"action"`
	Repository string `json:"repository"`
	Numbers    []int  `json:"numbers,omitempty"` // of the pull requests
	Title      string `json:"title,omitempty"`
	Name       string `json:"name,omitempty"`
	Conclusion string `json:"conclusion,omitempty"`
	State      string `json:"state,omitempty"`
	Merged     *bool  `json:"merged,omitempty"`
	HeadSHA    string `json:"head_sha,omitempty"`
	HeadBranch string `json:"head_branch,omitempty"`
	Body       string `json:"body,omitempty"` // cut to 8 KiB
	Author     string `json:"author,omitempty"`
	Sender     string `json:"sender,omitempty"`
	URL        string `json:"url,omitempty"`
}

// ErrPayload is JSON that isn't what GitHub sends for this kind of webhook.
var ErrPayload = errors.New("the payload isn't what GitHub sends for this event")

// Map gives the event that a webhook of a kind (X-GitHub-Event) stands for,
// without its id; false for kinds and actions that nobody watches. The first
// subject is what the event is about: terminal is said of that one alone. Names
// are in GitHub's own case.
func Map(kind string, raw []byte) (surehook.Event, bool, error) {
	var p payload
	if err := json.Unmarshal(raw, &p); err != nil {
		return surehook.Event{}, false, ErrPayload
	}
	m := mapped{p: &p}
	var ok bool
	switch kind + "." + p.Action {
	case "check_suite.completed":
		m.typ = CheckSuite
		ok = m.run(p.CheckSuite, "check suite")
	case "workflow_run.completed":
		m.typ = WorkflowRun
		ok = m.run(p.WorkflowRun, "workflow")
	case "pull_request_review.submitted":
		m.typ = Review
		ok = m.review()
	case "pull_request.closed":
		m.typ, m.terminal = Closed, true
		ok = m.closed()
	case "pull_request.synchronize":
		m.typ = Synchronize
		ok = m.pushed()
	case "issue_comment.created":
		if p.Issue != nil && (len(p.Issue.PullRequest) == 0 || string(p.Issue.PullRequest) == "null") {
			return surehook.Event{}, false, nil // of an issue
		}
		m.typ = Comment
		ok = m.comment()
	default:
		return surehook.Event{}, false, nil
	}
	if !ok || p.Repository == nil || strings.Count(p.Repository.FullName, "/") != 1 {
		return surehook.Event{}, false, ErrPayload
	}
	ev, err := m.event()
	return ev, err == nil, err
}

// mapped gathers an event.
type mapped struct {
	p        *payload
	typ      string
	what     string // happened, for the summary
	at       time.Time
	terminal bool
	data     data
}

func (m *mapped) run(r *run, name string) bool {
	if r == nil || m.p.Repository == nil {
		return false
	}
	for _, pr := range r.PullRequests { // of a fork's, GitHub lists those in other repositories too
		if pr.Base.Repo.ID == m.p.Repository.ID && pr.Number > 0 && len(m.data.Numbers) < maxPulls {
			m.data.Numbers = append(m.data.Numbers, pr.Number)
		}
	}
	if m.at = r.UpdatedAt; r.Name != "" {
		name += " " + clip(r.Name, maxExcerpt)
	}
	m.what = name + ": " + cmp.Or(r.Conclusion, "completed")
	m.data.Name, m.data.Conclusion, m.data.URL = clip(r.Name, maxTitle), r.Conclusion, r.HTMLURL
	m.data.HeadSHA, m.data.HeadBranch = r.HeadSHA, clip(r.HeadBranch, maxTitle)
	return true
}

// pull takes what all events of a pull request have.
func (m *mapped) pull() bool {
	pr := m.p.PullRequest
	if pr == nil || pr.Number < 1 {
		return false
	}
	m.at = pr.UpdatedAt
	m.data.Numbers, m.data.Title, m.data.URL = []int{pr.Number}, clip(pr.Title, maxTitle), pr.HTMLURL
	m.data.HeadSHA, m.data.HeadBranch = pr.Head.SHA, clip(pr.Head.Ref, maxTitle)
	return true
}

func (m *mapped) closed() bool {
	if !m.pull() {
		return false
	}
	pr := m.p.PullRequest
	if !pr.ClosedAt.IsZero() {
		m.at = pr.ClosedAt
	}
	m.data.Merged = &pr.Merged
	if m.what = "closed without merging"; pr.Merged {
		m.what = "merged"
	}
	m.what += m.by(m.p.Sender.Login)
	return true
}

func (m *mapped) pushed() bool {
	if !m.pull() {
		return false
	}
	m.data.HeadSHA = cmp.Or(m.p.After, m.data.HeadSHA)
	m.what = "new commits" + m.by(m.p.Sender.Login)
	return true
}

func (m *mapped) review() bool {
	r := m.p.Review
	if r == nil || !m.pull() {
		return false
	}
	m.remark(r, r.SubmittedAt)
	m.data.State = r.State
	m.what = "review: " + cmp.Or(r.State, "submitted") + m.by(r.User.Login)
	return true
}

func (m *mapped) comment() bool {
	i, c := m.p.Issue, m.p.Comment
	if i == nil || c == nil || i.Number < 1 {
		return false
	}
	m.data.Numbers, m.data.Title = []int{i.Number}, clip(i.Title, maxTitle)
	m.remark(c, c.CreatedAt)
	line, _, _ := strings.Cut(strings.TrimSpace(c.Body), "\n")
	m.what = "comment" + m.by(c.User.Login) + ": " + clip(strings.TrimSpace(line), maxExcerpt)
	return true
}

func (m *mapped) remark(r *remark, at time.Time) {
	m.at = at
	m.data.Body, m.data.Author, m.data.URL = clip(r.Body, maxBody), r.User.Login, r.HTMLURL
}

func (m *mapped) by(login string) string {
	if login == "" {
		return ""
	}
	return " by " + login
}

func (m *mapped) event() (surehook.Event, error) {
	name := m.p.Repository.FullName
	owner, _, _ := strings.Cut(name, "/")
	var subjects []string
	for _, n := range m.data.Numbers {
		subjects = append(subjects, fmt.Sprintf("github:%s#%d", name, n))
	}
	subjects = append(subjects, "github:"+name, "github:"+owner)
	about := strings.TrimPrefix(subjects[0], "github:")
	m.data.Action, m.data.Repository, m.data.Sender = m.p.Action, name, m.p.Sender.Login
	content, err := json.Marshal(m.data)
	if err != nil {
		return surehook.Event{}, err
	}
	c := surehook.CloudEvent{Source: cmp.Or(m.p.Repository.HTMLURL, "https://github.com/"+name), Subject: subjects[0], DataContentType: "application/json", Content: content,
		Extensions: map[string]any{"summary": about + " " + m.what, "subjects": strings.Join(subjects, ","), "terminal": m.terminal}}
	if !m.at.IsZero() {
		c.Time = m.at.UTC().Format(time.RFC3339)
	}
	return surehook.Event{Type: m.typ, Subjects: subjects, OccurredAt: m.at, Data: c.Form()}, nil
}

// clip cuts a text between two characters.
func clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	for most > 0 && !utf8.RuneStart(s[most]) {
		most--
	}
	return s[:most] + "…"
}
