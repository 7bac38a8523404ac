package localgh

import (
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/sentinel"
)

const repository = "github:octocat/Hello-World"

func (s *site) watchRepo(id string) string {
	s.t.Helper()
	h, err := s.create(sentinel.Watch{Sentinel: id, Subjects: []string{repository}})
	if err != nil {
		s.t.Fatal(err)
	}
	return h
}

// What happens to a repository's pull requests comes as if each were watched alone,
// over restarts too.
func TestRepository(t *testing.T) {
	w := newWorld(t)
	first := w.head()
	w.comment(1, "an old one")
	w.suite(first, 1, "completed", "success")
	w.now = w.now.Add(time.Hour)
	s := newSite(t, w)
	h := s.watchRepo("sen_1")
	if n := s.poll(h); n != 0 {
		t.Errorf("%d events of the time before: %v", n, s.events())
	}
	w.do(func() { w.asked = nil })
	s.poll(h)
	if len(w.asked) != 1 || !strings.HasSuffix(w.asked[0], " 304") {
		t.Errorf("with nothing new %q were asked for", w.asked)
	}
	w.do(func() { w.comment(2, "a question"); w.touch() })
	s.poll(h)
	s.restart()
	w.do(func() { w.push(second) })
	w.do(func() { w.suite(second, 2, "completed", "failure") }) // that touches no pull request
	s.poll(h)
	w.do(func() { w.review(3, "APPROVED"); w.merge() })
	s.poll(h)
	if n := s.poll(h); n != 0 {
		t.Errorf("%d repeats", n)
	}
	s.want("comment by octocat: a question", "new commits", "check suite: failure", "review: approved by octocat", "merged by octocat")
}

// A repository and its pull request watched at once give each fact one event.
func TestRepositoryBesideItsPullRequest(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	one, all := s.watch("sen_1"), s.watchRepo("sen_2")
	w.do(func() {
		w.push(second)
		w.comment(1, "x")
		w.review(1, "APPROVED")
		w.suite(second, 1, "completed", "success")
		w.workflow(second, 1, 1, "completed", "success")
	})
	if a, b := s.poll(all), s.poll(one); a != 5 || b != 0 {
		t.Error(a, b)
	}
	w.do(w.merge)
	if a, b := s.poll(one), s.poll(all); a != 1 || b != 0 {
		t.Error(a, b)
	}
}

// touch is what GitHub does when something happens to the pull request.
func (w *world) touch() { w.pull = with(w.pull, "updated_at", w.stamp()) }

// A pull request that can't be read owes its events, and keeps no other.
func TestRepositoryOwes(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	h := s.watchRepo("sen_1")
	w.do(func() { w.comment(1, "x"); w.touch() })
	w.on("pulls/1347", w.status(502))
	if n, err := s.Poll(t.Context(), h); n != 0 || err == nil {
		t.Error(n, err)
	}
	w.on("", nil)
	// Long after, with many others that were updated since.
	w.do(func() {
		w.now = w.now.Add(48 * time.Hour)
		for i := range 2 * maxBusy {
			w.others = append(w.others, with(w.pull, "number", 2000+i, "updated_at", w.stamp()))
		}
	})
	n, err := s.Poll(t.Context(), h)
	if n != 1 || err == nil || !strings.Contains(err.Error(), "HTTP 404") { // the others are only listed
		t.Error(n, err)
	}
	s.want("comment by octocat: x")
	polls, _, err := s.store.ClaimPolls(t.Context(), Slug, []string{repository}, time.Minute, 1)
	if err != nil || len(polls) != 1 {
		t.Fatal(polls, err)
	}
	st, err := readState[repoState](polls[0].State)
	if err != nil {
		t.Fatal(err)
	}
	// Nothing is owed any more, and what isn't busy any more goes at the next look.
	for n, b := range st.Busy {
		if b.Owed {
			t.Errorf("%d owes", n)
		}
	}
	if got := len(st.turn()); got != maxBusy {
		t.Errorf("%d are looked at", got)
	}
}

// An old pull request that somebody comments on wasn't closed just now; one that was
// closed between two looks was.
func TestRepositoryClosings(t *testing.T) {
	w := newWorld(t)
	w.do(w.merge)
	w.now = w.now.Add(time.Hour)
	s := newSite(t, w)
	h := s.watchRepo("sen_1")
	w.do(func() { w.comment(1, "late"); w.touch() })
	s.poll(h)
	s.want("comment by octocat: late")
}

// Too many at once are said to be; those that were listed count.
func TestRepositoryTooBusy(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	at, err := parseTarget(repository)
	if err != nil {
		t.Fatal(err)
	}
	st, err := beginRepo(t.Context(), &s.gh, at)
	if err != nil {
		t.Fatal(err)
	}
	st.Busy = make(map[int]*busy)
	w.do(func() {
		for i := range listStep * perPage {
			w.others = append(w.others, with(w.pull, "number", 2000+i, "updated_at", w.stamp()))
		}
	})
	if err := st.list(t.Context(), &s.gh, at); err == nil || !strings.Contains(err.Error(), "more than 300") || len(st.Busy) != listStep*perPage {
		t.Errorf("%v: %d", err, len(st.Busy))
	}
	if w.do(func() { w.others = w.others[:10] }); st.list(t.Context(), &s.gh, at) != nil {
		t.Error("it isn't over")
	}
}
