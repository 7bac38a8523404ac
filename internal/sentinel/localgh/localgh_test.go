package localgh

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/sentinel"
	"github.com/surehook/surehook/internal/sentinel/github"
	"github.com/surehook/surehook/store/sqlite"
)

const subject = "github:octocat/Hello-World#1347"

const (
	second = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
	third  = "cccccccccccccccccccccccccccccccccccccccc"
)

// site is a provider over a real engine and store.
type site struct {
	*Provider
	t     *testing.T
	w     *world
	e     *engine.Engine
	store *sqlite.Store
	path  string
	mu    sync.Mutex
	told  []string // reports
	lose  error    // what publishing answers in place of the engine
}

func newSite(t *testing.T, w *world) *site {
	s := &site{t: t, w: w, path: filepath.Join(t.TempDir(), "surehook.db")}
	s.open()
	t.Cleanup(s.close)
	return s
}

func (s *site) open() {
	var err error
	if s.store, err = sqlite.Open(s.t.Context(), s.path, sqlite.Options{Sync: sqlite.Normal}); err != nil {
		s.t.Fatal(err)
	}
	if s.e, err = engine.New(engine.Options{Store: s.store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)}}); err != nil {
		s.t.Fatal(err)
	}
	if err := s.e.Start(s.t.Context()); err != nil {
		s.t.Fatal(err)
	}
	s.Provider = New(Options{Command: s.w.command(), Environ: s.w.env, Polls: s.store, Publish: s.publish, Report: s.report})
}

func (s *site) publish(ctx context.Context, events ...surehook.Event) ([]engine.Receipt, error) {
	if s.lose != nil {
		return nil, s.lose
	}
	return s.e.Enqueue(ctx, events...)
}

func (s *site) report(_ context.Context, id string, broken bool, message string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, fmt.Sprintf("%s %v %s", id, broken, message))
	return nil
}

func (s *site) close() {
	// Not the test's context: that has ended.
	if err := errors.Join(s.Stop(context.Background()), s.e.Stop(context.Background()), s.store.Close()); err != nil {
		s.t.Error(err)
	}
}

// restart is a new process on the same store.
func (s *site) restart() {
	s.close()
	s.open()
}

// create begins a watch as the sentinels' service does, which takes back what fails.
func (s *site) create(w sentinel.Watch) (string, error) {
	var err error
	if w.Handle, err = s.Handle(w); err != nil {
		return "", err
	}
	if err = s.CreateWatch(s.t.Context(), w); err != nil {
		return "", errors.Join(err, s.CancelWatch(s.t.Context(), w.Handle))
	}
	return w.Handle, nil
}

func (s *site) watch(id string) string {
	s.t.Helper()
	h, err := s.create(sentinel.Watch{Sentinel: id, Subjects: []string{subject}})
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// poll looks, and tells how many events were new.
func (s *site) poll(handle string) int {
	s.t.Helper()
	n, err := s.Poll(s.t.Context(), handle)
	if err != nil {
		s.t.Fatal(err)
	}
	return n
}

// events lists what is in the store, in order, without github. before the type.
func (s *site) events() []string {
	s.t.Helper()
	evs, err := s.store.ListEvents(s.t.Context(), surehook.EventFilter{}, surehook.Page{Limit: 1000})
	if err != nil {
		s.t.Fatal(err)
	}
	var out []string
	for _, e := range evs {
		full, err := s.store.Event(s.t.Context(), nil, e.ID)
		if err != nil {
			s.t.Fatal(err)
		}
		ce, ok := full.CloudEvent()
		if !ok || full.Subjects[0] != subject || full.Tenant != "" {
			s.t.Errorf("%+v", full)
		}
		out = append(out, fmt.Sprint(ce.Extensions["summary"]))
	}
	slices.Reverse(out)
	return out
}

func (s *site) want(want ...string) {
	s.t.Helper()
	for i := range want {
		want[i] = "octocat/Hello-World#1347 " + want[i]
	}
	if got := s.events(); !slices.Equal(got, want) {
		s.t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// Everything that happens to a pull request comes once, in order, and nothing that
// was there before; a restart changes nothing about it.
func TestLook(t *testing.T) {
	w := newWorld(t)
	first := w.head()
	w.comment(1, "an old one")
	w.review(1, "APPROVED")
	w.review(2, "PENDING")
	w.suite(first, 1, "completed", "success")
	w.workflow(first, 1, 1, "completed", "success")
	w.workflow(first, 2, 1, "in_progress", "")
	w.now = w.now.Add(time.Minute)
	s := newSite(t, w)
	h := s.watch("sen_1")
	if n := s.poll(h); n != 0 {
		t.Fatalf("%d events of the time before: %v", n, s.events())
	}
	w.do(func() { w.comment(3, "a question") })
	w.do(func() { w.reviews[1] = with(w.reviews[1], "state", "CHANGES_REQUESTED", "submitted_at", w.stamp()) })
	w.do(func() { w.workflow(first, 2, 1, "completed", "failure") })
	if n := s.poll(h); n != 3 {
		t.Error(n)
	}
	s.restart()
	if n := s.poll(h); n != 0 {
		t.Errorf("%d repeats after a restart", n)
	}
	w.do(func() { w.push(second); w.suite(second, 3, "queued", "") })
	w.do(func() { w.workflow(first, 2, 2, "completed", "success") }) // of the commit before, run again
	w.do(func() { w.suite(second, 3, "completed", "neutral") })
	w.do(func() { w.comments[1] = with(w.comments[1], "body", "an edited question", "updated_at", w.stamp()) })
	if n := s.poll(h); n != 3 {
		t.Error(n)
	}
	w.do(func() { w.push(first) }) // forced back: known checks don't come again
	w.do(func() { w.suite(first, 1, "completed", "failure") })
	w.do(func() { w.push(second) })
	w.do(func() { w.merge() })
	w.do(func() { w.comment(4, "thanks") })
	if n := s.poll(h); n != 3 {
		t.Error(n)
	}
	s.want("comment by octocat: a question", "review: changes_requested by octocat", "workflow Build: failure",
		"new commits", "workflow Build: success", "check suite: neutral",
		"check suite: failure", "comment by octocat: thanks", "merged by octocat")
}

// Back and forth between two commits: each push that is seen is an event.
func TestPushesBackAndForth(t *testing.T) {
	w := newWorld(t)
	first := w.head()
	s := newSite(t, w)
	h := s.watch("sen_1")
	for i, sha := range []string{second, first, second, first, third} {
		w.do(func() { w.push(sha) })
		if n := s.poll(h); n != 1 {
			t.Errorf("push %d: %d events", i, n)
		}
	}
}

// What hasn't changed costs no rate limit.
func TestUnchangedIsAnswered304(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	h := s.watch("sen_1")
	w.do(func() { w.comment(1, "x"); w.review(1, "COMMENTED"); w.suite(w.head(), 1, "completed", "success") })
	s.poll(h)
	s.poll(h) // the comments' list moves on once
	w.do(func() { w.asked = nil })
	s.poll(h)
	if len(w.asked) != 5 {
		t.Errorf("%q", w.asked)
	}
	for _, a := range w.asked {
		if !strings.HasSuffix(a, " 304") {
			t.Error(a)
		}
	}
}

// Lists of several pages are read to their end, and only what changed of them.
func TestPages(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	h := s.watch("sen_1")
	w.do(func() {
		for i := range 250 {
			w.comment(i+1, fmt.Sprint("comment ", i))
			w.review(i+1, "COMMENTED")
		}
	})
	if n := s.poll(h); n != 500 {
		t.Error(n)
	}
	s.poll(h)
	w.do(func() { w.asked = nil; w.review(1000, "APPROVED") })
	if n := s.poll(h); n != 1 {
		t.Error(n)
	}
	if i := slices.IndexFunc(w.asked, func(a string) bool { return strings.Contains(a, "reviews") && strings.HasSuffix(a, "page=1 304") }); i < 0 {
		t.Errorf("%q", w.asked)
	}
}

// One that is closed already would be watched for ever by who waits for that, and is
// refused; who watches on hears of the next closing.
func TestClosedAlready(t *testing.T) {
	w := newWorld(t)
	w.do(w.merge)
	s := newSite(t, w)
	if _, err := s.create(sentinel.Watch{Sentinel: "sen_1", Subjects: []string{subject}, Terminal: true}); err == nil || !strings.Contains(err.Error(), "closed already") {
		t.Error(err)
	}
	h := s.watch("sen_1")
	if n := s.poll(h); n != 0 {
		t.Error(n)
	}
	w.do(func() { w.comment(1, "thanks") })
	w.do(func() { w.pull = with(w.pull, "state", "open", "closed_at", nil, "merged", false) })
	s.poll(h)
	w.do(func() { w.pull = with(w.pull, "state", "closed", "closed_at", w.stamp(), "merged_by", nil) })
	s.poll(h)
	s.want("comment by octocat: thanks", "closed without merging")
}

// Events that can't be stored are read again; so is what was read before a crash
// that came ahead of the state.
func TestNothingIsLostByAStoreThatRefuses(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	h := s.watch("sen_1")
	w.do(func() { w.comment(1, "x"); w.push(second) })
	s.lose = surehook.Errorf(surehook.Unavailable, "the disk is full")
	if n, err := s.Poll(t.Context(), h); n != 0 || err == nil {
		t.Error(n, err)
	}
	s.lose = nil
	if n := s.poll(h); n != 2 {
		t.Error(n)
	}
	// The same look again, from the state of before.
	polls, _, err := s.store.ClaimPolls(t.Context(), Slug, []string{subject}, time.Minute, 1)
	if err != nil {
		t.Fatal(err)
	}
	state, err := readState[state](polls[0].State)
	if err != nil {
		t.Fatal(err)
	}
	if state.Pushes[second] != 1 || state.Head != second {
		t.Errorf("%+v", state)
	}
	if rs, err := s.e.Enqueue(t.Context(), surehook.Event{ID: "gh:comment:9", Type: github.Comment, Data: []byte(`1`)}); err != nil || rs[0].Err != nil {
		t.Fatal(err, rs)
	}
	w.do(func() { w.comment(9, "another content under an id that is taken"); w.comment(10, "y") })
	if n := s.poll(h); n != 1 {
		t.Error(n)
	}
}
