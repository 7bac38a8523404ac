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

// target is a pull request that is watched.
type target struct {
	subject     string // as the sentinel has it
	owner, repo string
	number      int
}

var (
	ownerName = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9-]{0,37}[A-Za-z0-9])?$`)
	repoName  = regexp.MustCompile(`^[A-Za-z0-9._-]{1,100}$`)
)

// parseTarget reads github:OWNER/REPO#N. What it lets through is safe in a path.
func parseTarget(subject string) (target, error) {
	bad := errors.New("local-gh watches pull requests, github:OWNER/REPO#NUMBER; for a repository or an owner use the provider webhook")
	name, ok := strings.CutPrefix(subject, "github:")
	if !ok {
		return target{}, bad
	}
	name, number, ok := strings.Cut(name, "#")
	if !ok {
		return target{}, bad
	}
	owner, repo, ok := strings.Cut(name, "/")
	n, err := strconv.ParseInt(number, 10, 32)
	if !ok || err != nil || n < 1 || strconv.FormatInt(n, 10) != number || !ownerName.MatchString(owner) || !repoName.MatchString(repo) || repo == "." || repo == ".." {
		return target{}, bad
	}
	return target{subject: subject, owner: owner, repo: repo, number: int(n)}, nil
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
	Pushes   int             `json:"pushes,omitempty"` // that were seen
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
	maxHeads = 4             // commits of one pull request that are watched at once
	oldHead  = 6 * time.Hour // for so long after another commit took its place
)

func readState(raw []byte) (*state, error) {
	s := &state{}
	if err := json.Unmarshal(raw, s); err != nil {
		return nil, fmt.Errorf("the stored state of a watch can't be read: %w", err)
	}
	if s.Pages == nil {
		s.Pages = make(map[string]page)
	}
	return s, nil
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
