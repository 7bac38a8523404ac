package storetest

import (
	"sync"
	"time"

	"github.com/surehook/surehook"
)

var pollTests = map[string]func(*env){
	"Polls/are shared by sentinels":       pollSharing,
	"Polls/are claimed when they are due": pollClaims,
	"Polls/one claimer gets each":         pollRace,
}

const looker = "local-gh"

func (e *env) watchPoll(subject, sentinel, state string, wait time.Duration) {
	e.Helper()
	e.ok(e.s.WatchPoll(e.ctx, looker, subject, sentinel, []byte(state), wait))
}

func (e *env) claimPolls(subjects []string, limit int) ([]*surehook.Poll, time.Duration) {
	e.Helper()
	polls, next, err := e.s.ClaimPolls(e.ctx, looker, subjects, time.Minute, limit)
	e.ok(err)
	return polls, next
}

func pollSharing(e *env) {
	e.watchPoll("github:o/r#1", "sen_a", "first", 0)
	e.watchPoll("github:o/r#1", "sen_b", "second", time.Hour)
	e.watchPoll("github:o/r#1", "sen_a", "third", 0)
	e.ok(e.s.WatchPoll(e.ctx, "another", "github:o/r#1", "sen_c", nil, 0))
	due := ms(e.clock.Now())
	e.reopen()
	polls, next := e.claimPolls(nil, 10)
	e.same("polls", polls, []*surehook.Poll{{Provider: looker, Subject: "github:o/r#1", Sentinels: []string{"sen_a", "sen_b"}, State: []byte("first"), Due: due.Add(time.Minute)}})
	e.same("next", next, time.Minute)

	p := polls[0]
	p.State, p.Failures, p.Error = []byte("{\"x\":\"\xff\"}"), 3, "GitHub answered 502"
	saved, err := e.s.SavePoll(e.ctx, p, time.Minute)
	e.ok(err)
	e.same("saved", saved, true)
	e.ok(e.s.UnwatchPoll(e.ctx, looker, "github:o/r#1", "sen_a"))
	e.ok(e.s.UnwatchPoll(e.ctx, looker, "github:o/r#1", "sen_x"))
	e.ok(e.s.UnwatchPoll(e.ctx, looker, "github:o/r#2", "sen_a"))
	polls, _ = e.claimPolls([]string{"github:o/r#1", "github:o/r#2"}, 10)
	want := *p
	want.Sentinels, want.Due = []string{"sen_b"}, polls[0].Due
	e.same("after a look", polls, []*surehook.Poll{&want})

	e.ok(e.s.UnwatchPoll(e.ctx, looker, "github:o/r#1", "sen_b"))
	polls, next = e.claimPolls([]string{"github:o/r#1"}, 10)
	e.same("without sentinels", len(polls), 0)
	e.same("next", next, time.Duration(-1))
	saved, err = e.s.SavePoll(e.ctx, p, 0)
	e.ok(err)
	e.same("saved", saved, false)
}

func pollClaims(e *env) {
	e.watchPoll("b", "sen_1", "", 2*time.Second)
	e.watchPoll("a", "sen_2", "", time.Second)
	e.watchPoll("c", "sen_3", "", time.Hour)
	polls, next := e.claimPolls(nil, 10)
	e.same("due at first", len(polls), 0)
	e.same("next", next, time.Second)
	e.clock.Advance(2 * time.Second)
	polls, next = e.claimPolls(nil, 1)
	e.same("the longest due", polls[0].Subject, "a")
	e.same("next", next, time.Duration(0))
	polls, _ = e.claimPolls(nil, 10)
	e.same("the other one", len(polls) == 1 && polls[0].Subject == "b", true)
	polls, next = e.claimPolls(nil, 10)
	e.same("held", len(polls), 0)
	e.same("next", next, time.Minute)

	// A node that died holds nothing for longer; what it would save is refused.
	e.clock.Advance(time.Minute)
	first, _ := e.claimPolls(nil, 10)
	e.same("free again", len(first), 2)
	e.clock.Advance(time.Minute)
	second, _ := e.claimPolls([]string{"a"}, 10)
	saved, err := e.s.SavePoll(e.ctx, first[0], 0)
	e.ok(err)
	e.same("of the earlier claim", saved, false)
	saved, err = e.s.SavePoll(e.ctx, second[0], 0)
	e.ok(err)
	e.same("of the later claim", saved, true)
	polls, next = e.claimPolls([]string{"c"}, 1)
	e.same("one that isn't due, by name", len(polls) == 1 && polls[0].Subject == "c", true)
	e.same("next", next, time.Duration(0))
}

func pollRace(e *env) {
	const n = 40
	for range n {
		e.watchPoll(e.id("github:o/r#"), "sen_1", "", 0)
	}
	var mu sync.Mutex
	var wg sync.WaitGroup
	got := map[string]int{}
	for range 4 {
		wg.Go(func() {
			for misses := 0; misses < 3; {
				polls, _, err := e.s.ClaimPolls(e.ctx, looker, nil, time.Minute, 7)
				if err != nil {
					e.Error(err)
					return
				}
				if len(polls) == 0 {
					misses++
				}
				mu.Lock()
				for _, p := range polls {
					got[p.Subject]++
				}
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	for subject, times := range got {
		if times != 1 {
			e.Errorf("%s was claimed %d times", subject, times)
		}
	}
	e.same("claimed", len(got), n)
}
