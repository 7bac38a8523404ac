package localgh

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"time"

	"github.com/surehook/surehook"
)

const (
	maxBusy  = 20             // pull requests of a repository whose checks are looked at although nothing else happened
	busyFor  = 24 * time.Hour // after something happened to a pull request
	maxOpen  = 500            // whose commits are known, so that a push is seen as one
	listStep = 3              // pages of a repository's pull requests in one look
)

// repoState is what is known of a repository: its pull requests, those to which
// something happened lately in full.
type repoState struct {
	Start  time.Time      `json:"start"`  // nothing older is an event
	Listed time.Time      `json:"listed"` // what was updated since is to be looked at
	Tag    string         `json:"tag,omitempty"`
	Heads  map[int]string `json:"heads,omitempty"` // of open ones
	Busy   map[int]*busy  `json:"busy,omitempty"`
}

// busy is a pull request to which something happened lately.
type busy struct {
	At    time.Time `json:"at"`
	Owed  bool      `json:"owed,omitempty"` // not all that happened has been read yet
	State *state    `json:"state"`
}

// listed is a pull request in a repository's list.
type listed struct {
	Number  int       `json:"number"`
	State   string    `json:"state"`
	Created time.Time `json:"created_at"`
	Updated time.Time `json:"updated_at"`
	Closed  time.Time `json:"closed_at"`
	Head    struct {
		SHA string `json:"sha"`
	} `json:"head"`
}

// list reads a page of a repository's pull requests, the last updated first.
func list(ctx context.Context, gh *tool, t target, state string, n int, tag string) (answer, []listed, error) {
	a, err := gh.get(ctx, t.path(fmt.Sprintf("pulls?state=%s&sort=updated&direction=desc&per_page=%d&page=%d", state, perPage, n)), tag)
	if err != nil {
		return a, nil, err
	}
	var out []listed
	if a.status == http.StatusOK {
		if err := json.Unmarshal(a.body, &out); err != nil {
			return a, nil, errAnswer
		}
		if slices.ContainsFunc(out, func(p listed) bool { return p.Number < 1 || !hexText(p.Head.SHA) }) {
			return a, nil, errAnswer
		}
	}
	return a, out, nil
}

// beginRepo notes the commits of the open pull requests: what was there before is no
// event.
func beginRepo(ctx context.Context, gh *tool, t target) (*repoState, error) {
	s := &repoState{Heads: make(map[int]string)}
	for n := 1; n <= maxOpen/perPage; n++ {
		a, pulls, err := list(ctx, gh, t, "open", n, "")
		if err != nil {
			return nil, err
		}
		if n == 1 {
			s.Start = a.date(gh.now()).UTC()
			s.Listed = s.Start
		}
		for _, p := range pulls {
			s.Heads[p.Number] = p.Head.SHA
		}
		if len(pulls) < perPage {
			break
		}
	}
	return s, nil
}

// lookAtRepo looks at the pull requests to which something happened lately, each as
// if it were watched alone.
func lookAtRepo(ctx context.Context, gh *tool, t target, raw []byte) ([]surehook.Event, any, error) {
	s, err := readState[repoState](raw)
	if err != nil {
		return nil, nil, err
	}
	if s.Busy == nil {
		s.Busy = make(map[int]*busy)
	}
	if s.Heads == nil {
		s.Heads = make(map[int]string)
	}
	lerr := s.list(ctx, gh, t)
	if l, ok := errors.AsType[*trouble](lerr); lerr != nil && (!ok || !l.lasting || len(s.Busy) == 0) {
		return nil, nil, lerr
	}
	var events []surehook.Event
	errs := []error{lerr}
	for _, n := range s.turn() {
		one, b := t, s.Busy[n]
		one.number, one.subject = n, fmt.Sprintf("%s#%d", t.subject, n)
		raw, err := json.Marshal(b.State) // a look that brings nothing leaves it as it was
		if err != nil {
			return nil, nil, err
		}
		more, next, err := lookAt(ctx, gh, one, raw)
		errs = append(errs, err)
		if st, ok := next.(*state); ok {
			b.State, events = st, append(events, more...)
			if s.Heads[n] != "" {
				s.Heads[n] = st.Head
			}
		}
		if l, ok := errors.AsType[*trouble](err); err == nil || ok && l.lasting {
			b.Owed = false
		}
	}
	inOrder(events)
	return events, s, worst(errs)
}

// list notes to which pull requests something happened.
func (s *repoState) list(ctx context.Context, gh *tool, t target) error {
	before, listed, tag := s.Listed, s.Listed, ""
	for n := 1; n <= listStep; n++ {
		known := ""
		if n == 1 {
			known = s.Tag
		}
		a, pulls, err := list(ctx, gh, t, "all", n, known)
		if err != nil {
			return err
		}
		if n == 1 {
			listed, tag = a.date(gh.now()).UTC(), a.etag()
		}
		done := len(pulls) < perPage
		for _, p := range pulls {
			if p.Updated.Before(before.Add(-overlap)) {
				done = true
				break
			}
			s.happened(p, before)
		}
		if done {
			s.Listed, s.Tag = listed, tag
			return nil
		}
	}
	s.Listed, s.Tag = listed, ""
	return &trouble{message: fmt.Sprintf("more than %d pull requests were updated since the last look, and only so many were looked at: use the provider webhook for this repository", listStep*perPage), lasting: true}
}

// happened takes a pull request in that was updated.
func (s *repoState) happened(p listed, before time.Time) {
	known := s.Heads[p.Number]
	switch {
	case p.State == "closed":
		delete(s.Heads, p.Number)
	case known == "" && len(s.Heads) < maxOpen:
		s.Heads[p.Number] = p.Head.SHA
	}
	b := s.Busy[p.Number]
	if b != nil && b.At.Equal(p.Updated) {
		return // it was listed again
	}
	if b == nil {
		since := before.Add(-overlap)
		if since.Before(s.Start) {
			since = s.Start
		}
		b = &busy{State: &state{Start: since, Comments: since}}
		// Of one that isn't known the first commit is no push.
		b.State.at(cmp.Or(known, p.Head.SHA), since)
		if p.State == "closed" && p.Closed.Before(since) {
			b.State.Closed = p.Closed
		}
		s.Busy[p.Number] = b
	}
	b.At, b.Owed = p.Updated, true
}

// turn lists those that are to be looked at now, the last updated first, and forgets
// those to which nothing happened for long, or that are too many.
func (s *repoState) turn() []int {
	all := slices.Collect(maps.Keys(s.Busy))
	slices.SortFunc(all, func(a, b int) int { return cmp.Or(s.Busy[b].At.Compare(s.Busy[a].At), cmp.Compare(a, b)) })
	out := all[:0]
	for i, n := range all {
		if b := s.Busy[n]; b.Owed || i < maxBusy && s.Listed.Sub(b.At) <= busyFor {
			out = append(out, n)
		} else {
			delete(s.Busy, n)
		}
	}
	return out
}
