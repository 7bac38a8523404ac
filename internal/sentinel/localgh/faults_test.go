package localgh

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/sentinel"
)

// on has every path that holds a text answered by something else.
func (w *world) on(text string, p *played) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault = nil; p != nil {
		w.fault = func(path string) *played {
			if strings.Contains(path, text) {
				return p
			}
			return nil
		}
	}
}

func (w *world) status(code int, header ...string) *played {
	p := w.answer(code, http.StatusText(code), `{"message":"no"}`, "", fmt.Sprintf("gh: no (HTTP %d)", code), header...)
	return &p
}

// Whatever gh does, the look fails with words that help, and the next one finds
// everything.
func TestFaults(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name, want string
		lasting    bool
		p          *played
	}{
		{"logged out", "gh auth login", true, &played{Code: 4, Stderr: "To get started with GitHub CLI, please run:  gh auth login\n"}},
		{"a token that is no longer valid", "gh auth login", true, w.status(401)},
		{"not there", "may not see it (HTTP 404)", true, w.status(404)},
		{"a permission that the token lacks", "refuses this to gh's account: gh: no (HTTP 403)", true, w.status(403)},
		{"a gateway", "GitHub answered 502", false, w.status(502)},
		{"moved on", "GitHub answered 301", false, w.status(301)},
		{"no network", "gh failed: error connecting to api.github.com", false, &played{Code: 1, Stderr: "error connecting to api.github.com\ncheck your internet connection"}},
		{"a token in its words", "gh failed: bad [redacted] at https://x/y", false, &played{Code: 1, Stderr: "bad gho_abcDEF123 at https://x/y?access_token=abc"}},
		{"nothing at all", "gh failed: it said nothing", false, &played{Code: 2}},
		{"another program", "is --gh-command the GitHub CLI?", false, &played{Stdout: "hello\n"}},
		{"half an answer", "gh printed something else", false, &played{Stdout: "HTTP/2.0 200 OK\nDate"}},
		{"no JSON", "isn't what it documents", false, &played{Stdout: "HTTP/2.0 200 OK\n\r\n<html>"}},
		{"JSON of another kind", "isn't what it documents", false, &played{Stdout: "HTTP/2.0 200 OK\n\r\n[1]"}},
		{"another pull request", "isn't what it documents", false, &played{Stdout: "HTTP/2.0 200 OK\n\r\n" + `{"id":1,"number":2,"head":{"sha":"` + second + `"},"base":{"repo":{}}}`}},
		{"no commit", "isn't what it documents", false, &played{Stdout: "HTTP/2.0 200 OK\n\r\n" + `{"id":1,"number":1347,"head":{"sha":"../../x"},"base":{"repo":{}}}`}},
		{"a flood", "more than 16 MiB", false, &played{Flood: true}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newWorld(t)
			s := newSite(t, w)
			h := s.watch("sen_1")
			w.do(func() { w.comment(1, "x") })
			w.on("pulls/1347", c.p)
			if n, err := s.Poll(t.Context(), h); n != 0 || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%d, %v", n, err)
			}
			if want := fmt.Sprintf("sen_1 %v ", c.lasting); len(s.told) != 1 || !strings.HasPrefix(s.told[0], want) || !strings.Contains(s.told[0], c.want) {
				t.Errorf("%q", s.told)
			}
			if _, err := s.create(sentinel.Watch{Sentinel: "sen_2", Subjects: []string{subject}}); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Error(err)
			}
			w.on("", nil)
			if n := s.poll(h); n != 1 {
				t.Errorf("%d afterwards", n)
			}
			if len(s.told) != 2 || s.told[1] != "sen_1 false " {
				t.Errorf("%q", s.told)
			}
		})
	}
}

// A list that can't be read doesn't keep the others, but the closing waits for it,
// unless that would last: it would end the watch before the rest has come.
func TestTheClosingWaitsForTheRest(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	h := s.watch("sen_1")
	w.do(func() { w.comment(1, "one") })
	w.do(func() { w.review(1, "APPROVED") })
	w.do(w.merge)
	w.on("/reviews", w.status(500))
	if n, err := s.Poll(t.Context(), h); n != 1 || err == nil {
		t.Error(n, err)
	}
	s.want("comment by octocat: one")
	w.on("", nil)
	s.poll(h)
	s.want("comment by octocat: one", "review: approved by octocat", "merged by octocat")

	w = newWorld(t)
	s = newSite(t, w)
	h = s.watch("sen_1")
	w.do(w.merge)
	w.on("actions/runs", w.status(403))
	if n, err := s.Poll(t.Context(), h); n != 1 || err == nil {
		t.Error(n, err)
	}
	s.want("merged by octocat")
}

// One item that can't be understood doesn't keep the others, and is read again.
func TestAnOddItem(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	h := s.watch("sen_1")
	w.do(func() {
		w.comment(1, "one")
		w.comment(2, "two")
		w.comments[0]["id"] = "x"
	})
	for range 2 {
		if _, err := s.Poll(t.Context(), h); err == nil {
			t.Error("nobody hears of it")
		}
	}
	s.want("comment by octocat: two")
	w.do(func() { w.comments[0]["id"] = 1 })
	s.poll(h)
	s.want("comment by octocat: two", "comment by octocat: one")
}

func TestRateLimit(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	now := time.Now()
	s.gh.now = func() time.Time { return now }
	s.opt.Now = s.gh.now
	h := s.watch("sen_1")
	w.on("comments", w.status(403, "X-Ratelimit-Remaining: 0", fmt.Sprintf("X-Ratelimit-Reset: %d", w.now.Add(10*time.Minute).Unix())))
	_, err := s.Poll(t.Context(), h)
	if err == nil || !strings.Contains(err.Error(), "rate limit") || !strings.Contains(err.Error(), now.Add(10*time.Minute).UTC().Format(time.RFC3339)) {
		t.Fatal(err)
	}
	// Nobody asks until then, and the watch waits as long.
	runs := len(w.args)
	if _, err := s.create(sentinel.Watch{Sentinel: "sen_2", Subjects: []string{subject}}); err == nil || !strings.Contains(err.Error(), "rate limit") {
		t.Error(err)
	}
	if len(w.args) != runs {
		t.Error("gh was run in spite of the limit")
	}
	if _, next, err := s.store.ClaimPolls(t.Context(), Slug, nil, time.Minute, 1); err != nil || next < 9*time.Minute || next > 11*time.Minute {
		t.Error(next, err)
	}
	now = now.Add(10 * time.Minute)
	w.on("comments", w.status(429, "Retry-After: 7"))
	if _, err := s.Poll(t.Context(), h); err == nil || !strings.Contains(err.Error(), now.Add(7*time.Second).UTC().Format(time.RFC3339)) {
		t.Error(err)
	}
	now = now.Add(7 * time.Second)
	w.on("", nil)
	s.poll(h)
}

func TestSlowness(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	h := s.watch("sen_1")
	hang := make(chan struct{})
	defer close(hang)
	w.on("comments", &played{hang: hang})
	s.gh.most = 200 * time.Millisecond
	if _, err := s.Poll(t.Context(), h); err == nil || !strings.Contains(err.Error(), "didn't answer within 200ms") {
		t.Error(err)
	}
	// Stopping doesn't wait for it, and counts no failure.
	s.gh.most = time.Hour
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan error)
	go func() { _, err := s.Poll(ctx, h); over <- err }()
	cancel()
	if err := <-over; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	polls, _, err := s.store.ClaimPolls(t.Context(), Slug, []string{subject}, time.Minute, 1)
	if err != nil || polls[0].Failures != 1 {
		t.Errorf("%+v, %v", polls, err)
	}
}

func TestReadiness(t *testing.T) {
	w := newWorld(t)
	for _, c := range []struct {
		name, command, reason, setup string
		auth                         *played
	}{
		{"ready", w.command(), "", "", nil},
		{"missing", filepath.Join(t.TempDir(), "gh"), "isn't there", "Install the GitHub CLI", nil},
		{"no program", t.TempDir(), "isn't there", "Install", nil},
		{"logged out", w.command(), "isn't logged in", "gh auth login", &played{Code: 1, Stderr: "no oauth token"}},
		{"too old", w.command(), "too old", "gh auth status", &played{Code: 1, Stderr: `unknown command "token" for "gh auth"`}},
		{"off", "off", "switched off", "--gh-command gh", nil},
	} {
		w.on("auth", c.auth)
		p := New(Options{Command: c.command, Environ: w.env})
		r := p.Readiness(t.Context())
		if r.Ready != (c.reason == "") || !strings.Contains(r.Reason, c.reason) || !strings.Contains(strings.Join(r.Setup, "\n"), c.setup) || r.Ready != (len(r.Setup) == 0) {
			t.Errorf("%s: %+v", c.name, r)
		}
		if strings.Contains(fmt.Sprint(r), "gho_secret") {
			t.Errorf("%s: a token is shown", c.name)
		}
	}
}

// What a sentinel names never becomes an option, a path elsewhere or a shell's.
func TestSubjectsThatAreRefused(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	for _, bad := range []string{"", "github:", "github:o", "github:o/", "github:o/r#", "github:o/r#0", "github:o/r#-1", "github:o/r#+1", "github:o/r#01", "github:o/r#1x", "github:o/r#99999999999",
		"github:o/r#1*", "github:o/*", "github:-o/r#1", "github:o-/r#1", "github:../r#1", "github:o/..#1", "github:o/.#1", "github:o/r/s#1", "github:o/r?x#1", "github:o/r%2fx#1", "github:o/r s#1", "github:o/r*", "github:o/r/", "github:/r",
		"github:{owner}/{repo}#1", "github:o/$(id)#1", "github:o/r`id`#1", "github:o/r\n#1", "github:ö/r#1", "gitlab:o/r#1", "github:" + strings.Repeat("o", 40) + "/r#1", "github:o/" + strings.Repeat("r", 101) + "#1"} {
		if _, err := s.create(sentinel.Watch{Sentinel: "sen_1", Subjects: []string{bad}}); err == nil || !strings.Contains(err.Error(), "watches pull requests") {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if len(w.args) != 0 {
		t.Errorf("gh was run: %q", w.args)
	}
	if _, err := s.create(sentinel.Watch{Sentinel: "sen_1", Subjects: []string{subject}, Tenant: "acme"}); err == nil || !strings.Contains(err.Error(), "platform keys alone") {
		t.Error(err)
	}
	// Of several subjects one that isn't there takes the others back.
	if _, err := s.create(sentinel.Watch{Sentinel: "sen_1", Subjects: []string{subject, "github:o/r#1"}}); err == nil {
		t.Error("a pull request that isn't there is watched")
	}
	if polls, next, err := s.store.ClaimPolls(t.Context(), Slug, nil, time.Minute, 9); err != nil || len(polls) != 0 || next >= 0 {
		t.Error(polls, next, err)
	}
}

// What GitHub's answers hold never becomes an argument unless it is harmless, and
// gh gets no surprising environment.
func TestArguments(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	h := s.watch("sen_1")
	for _, tag := range []string{"W/\"a\r\n-x\"", `"--input=/etc/passwd x"`, "-H", `W/"` + strings.Repeat("a", 300) + `"`} {
		p := w.answer(200, "OK", "[]", tag, "")
		w.on("comments", &p)
		if _, err := s.Poll(t.Context(), h); (err != nil) != strings.Contains(tag, "\r") {
			t.Errorf("%q: %v", tag, err)
		}
		w.on("", nil)
		s.poll(h)
	}
	for _, args := range w.args {
		for _, a := range args {
			if strings.ContainsAny(a, "\r\n") || strings.Contains(a, "passwd") || strings.Contains(a, "aaa") {
				t.Errorf("%q", args)
			}
		}
	}
	for _, kv := range []string{"GH_PROMPT_DISABLED=1", "NO_COLOR=1", "GH_TOKEN=gho_secret"} {
		if !slices.Contains(w.environ, kv) {
			t.Errorf("without %s", kv)
		}
	}
	for _, kv := range w.environ {
		if strings.HasPrefix(kv, "GH_DEBUG=") || strings.HasPrefix(kv, "GH_HOST=") {
			t.Error(kv)
		}
	}
}

// One look serves all sentinels on a subject, until the last one is gone.
func TestSharing(t *testing.T) {
	w := newWorld(t)
	s := newSite(t, w)
	a, b := s.watch("sen_a"), s.watch("sen_b")
	w.do(func() { w.comment(1, "x") })
	if n := s.poll(a); n != 1 {
		t.Error(n)
	}
	if n := s.poll(b); n != 0 {
		t.Error(n)
	}
	w.on("pulls", w.status(404))
	if _, err := s.Poll(t.Context(), b); err == nil || len(s.told) != 2 {
		t.Errorf("%v: %q", err, s.told)
	}
	for _, h := range []string{a, a, b, ""} {
		if err := s.CancelWatch(t.Context(), h); err != nil {
			t.Error(err)
		}
	}
	if n, err := s.Poll(t.Context(), b); n != 0 || err != nil {
		t.Error("of a watch that is gone:", n, err)
	}
	if _, next, err := s.store.ClaimPolls(t.Context(), Slug, nil, time.Minute, 9); err != nil || next >= 0 {
		t.Error(next, err)
	}
}

// memory keeps one poll.
type memory struct {
	surehook.Polls
	poll   *surehook.Poll
	waits  []time.Duration
	claims []time.Time
}

func (m *memory) ClaimPolls(_ context.Context, _ string, _ []string, hold time.Duration, _ int) ([]*surehook.Poll, time.Duration, error) {
	now := time.Now()
	if m.poll.Due.After(now) {
		return nil, m.poll.Due.Sub(now), nil
	}
	m.claims = append(m.claims, now)
	m.poll.Due = now.Add(hold)
	return []*surehook.Poll{m.poll}, hold, nil
}

func (m *memory) SavePoll(_ context.Context, p *surehook.Poll, wait time.Duration) (bool, error) {
	m.waits = append(m.waits, wait)
	p.Due = time.Now().Add(wait)
	return true, nil
}

// Looks that fail come more and more rarely, and a subject that is ill for long is
// told of again as such.
func TestBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := &memory{poll: &surehook.Poll{Subject: subject, State: []byte(`{"no`), Sentinels: []string{"sen_1"}}}
		var told []bool
		p := New(Options{Command: "gh", Polls: m, Publish: func(context.Context, ...surehook.Event) ([]engine.Receipt, error) { return nil, nil },
			Report: func(_ context.Context, _ string, broken bool, _ string) error {
				told = append(told, broken)
				return nil
			}})
		p.Start()
		time.Sleep(110 * time.Minute) //nolint:forbidigo // of the bubble's clock
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		want := []time.Duration{1, 2, 4, 8, 15, 15, 15, 15, 15, 15, 15}
		for i := range want {
			want[i] *= time.Minute //nolint:durationcheck // numbers of minutes
		}
		if !slices.Equal(m.waits, want) {
			t.Error(m.waits)
		}
		if !slices.Equal(told, []bool{false, true}) {
			t.Error(told)
		}
		for i := 1; i < len(m.claims); i++ {
			if d := m.claims[i].Sub(m.claims[i-1]); d < m.waits[i-1] || d > m.waits[i-1]+time.Second {
				t.Errorf("after %s came a look %s later", m.waits[i-1], d)
			}
		}
	})
}

func FuzzParse(f *testing.F) {
	f.Add("HTTP/2.0 200 OK\nEtag: \"a\"\r\n\r\n{}")
	f.Add("HTTP/1.1 304\n\n")
	f.Fuzz(func(t *testing.T, out string) {
		a, ok := parse([]byte(out))
		if ok && (a.status < 100 || a.status > 999 || len(a.body) > len(out)) {
			t.Errorf("%+v", a)
		}
		if tag := a.etag(); strings.ContainsAny(tag, " \r\n") {
			t.Errorf("%q", tag)
		}
	})
}
