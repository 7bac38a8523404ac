package localgh

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// target is a pull request that is watched, or with number 0 a repository.
type target struct {
	subject     string // as the sentinel has it
	owner, repo string
	number      int
}

var (
	ownerName = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?$`)
	repoName  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
)

// parseTarget reads github:OWNER/REPO or github:OWNER/REPO#N. What it lets through is
// safe in a path.
func parseTarget(subject string) (target, error) {
	bad := errors.New("local-gh watches pull requests, github:OWNER/REPO#NUMBER, and those of a repository, github:OWNER/REPO; for an owner or a prefix use the provider webhook")
	name, ok := strings.CutPrefix(subject, "github:")
	if !ok {
		return target{}, bad
	}
	name, number, one := strings.Cut(name, "#")
	owner, repo, ok := strings.Cut(name, "/")
	if !ok || !ownerName.MatchString(owner) || !repoName.MatchString(repo) || repo == "." || repo == ".." {
		return target{}, bad
	}
	t := target{subject: subject, owner: owner, repo: repo}
	if !one {
		return t, nil
	}
	n, err := strconv.ParseInt(number, 10, 32)
	if err != nil || n < 1 || strconv.FormatInt(n, 10) != number {
		return target{}, bad
	}
	t.number = int(n)
	return t, nil
}

func (t target) path(rest string) string {
	return "repos/" + t.owner + "/" + t.repo + "/" + rest
}

func (t target) pull() string { return t.path("pulls/" + strconv.Itoa(t.number)) }

// state is what is known of a pull request: how far GitHub's lists were read.
// Times are GitHub's.
type state struct {
	Start    time.Time       `json:"start"` // nothing older is an event
	Comments time.Time       `json:"comments"`
	Head     string          `json:"head,omitempty"`
	Pushes   map[string]int  `json:"pushes,omitempty"` // how often each commit was pushed
	Closed   time.Time       `json:"closed,omitzero"`  // the closing that was published last
	Reviews  []int64         `json:"reviews,omitempty"`
	Heads    []*head         `json:"heads,omitempty"` // the newest first
	Pages    map[string]page `json:"pages,omitempty"` // by path
	Pull     json.RawMessage `json:"pull,omitempty"`  // what events say of the pull request
	Repo     json.RawMessage `json:"repo,omitempty"`
}

// head is a commit whose checks are watched.
type head struct {
	SHA    string           `json:"sha"`
	Left   time.Time        `json:"left,omitzero"` // when another commit took its place
	Suites map[string]int64 `json:"suites,omitempty"`
	Runs   map[string]int64 `json:"runs,omitempty"`
}

// page is a page of a list as it was read last.
type page struct {
	Tag  string `json:"tag,omitempty"`
	Full bool   `json:"full,omitempty"` // another one may follow
}

const (
	maxPushes = 200           // commits whose pushes are counted
	maxHeads  = 4             // commits of one pull request that are watched at once
	oldHead   = 6 * time.Hour // for so long after another commit took its place
)

// init makes a state that was read whole.
func (s *state) init() *state {
	if s.Pages == nil {
		s.Pages = make(map[string]page)
	}
	return s
}

func readState[S any](raw []byte) (*S, error) {
	s := new(S)
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("the stored state of a watch can't be read: %w", err)
	}
	return s, nil
}

// pushed counts a push of a commit: one that is forced back to was pushed twice.
func (s *state) pushed(sha string) int {
	if s.Pushes == nil || len(s.Pushes) >= maxPushes && s.Pushes[sha] == 0 {
		s.Pushes = make(map[string]int)
	}
	s.Pushes[sha]++
	return s.Pushes[sha]
}

// at moves to another commit, and forgets those that are too old.
func (s *state) at(sha string, now time.Time) {
	if len(s.Heads) > 0 && s.Heads[0].SHA == sha {
		return
	}
	kept := []*head{{SHA: sha}}
	for i, h := range s.Heads {
		if i == 0 {
			h.Left = now
		}
		if h.SHA == sha { // forced back: its checks are known
			kept[0] = h
			h.Left = time.Time{}
			continue
		}
		kept = append(kept, h)
	}
	s.Heads = kept[:min(len(kept), maxHeads)]
	s.Head = sha
}

// trim forgets what needs no more looking at.
func (s *state) trim(now time.Time, used map[string]bool) {
	for i := len(s.Heads) - 1; i > 0; i-- {
		if now.Sub(s.Heads[i].Left) > oldHead {
			s.Heads = append(s.Heads[:i], s.Heads[i+1:]...)
		}
	}
	for path := range s.Pages {
		if !used[path] {
			delete(s.Pages, path)
		}
	}
}
