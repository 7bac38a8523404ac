package engine_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// What a dead node held for a sentinel that was removed meanwhile ends as everything
// else of that sentinel does: dead letters with sentinel_removed.
func TestSentinelRemovedWhileItsNodeWasDead(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		r := receivertest.New(t, passing(status(500)))
		ep := b.sentinel(r)
		b.see("e1")
		b.until("it was tried", func() bool { return len(b.attempts(ep)) == 1 })
		n := len(events(r))
		b.alter(`UPDATE endpoints SET deleted = 1, enabled = 0, version = version + 1; DELETE FROM sentinels; UPDATE pending SET owner = 1`,
			`UPDATE surehook.endpoints SET deleted = true, enabled = false, version = version + 1; DELETE FROM surehook.sentinels; UPDATE surehook.pending SET owner = NULL`)
		b.until("it is a dead letter", func() bool { return b.letter(ep) == surehook.RemovedSentinel })
		b.idle()
		if got := len(events(r)); got != n {
			t.Errorf("%d requests after the removal", got-n)
		}
	})
}

// What has waited for 7 days isn't sent any more, and what arrived leaves no row.
func TestSentinelMaxAge(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		answer := 200
		r := receivertest.New(t, passing(func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Status: answer} }))
		ep := b.sentinel(r)
		b.see("arrives")
		b.idle() // its row is gone: not after 24 hours, at once
		answer = 503
		b.see("waits")
		b.until("it was tried", func() bool { return len(b.attempts(ep)) == 2 })
		b.close()
		n := len(events(r))
		b.leap(7*24*time.Hour + time.Second)
		b.open()
		b.until("it is dead", func() bool { return b.letter(ep) == surehook.EventUnavailable })
		b.idle()
		if got := len(events(r)); got != n {
			t.Errorf("%d requests after 7 days", got-n)
		}
	})
}

// A sentinel's queue may be bounded: the oldest go, as dead letters.
func TestSentinelQueue(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		r := receivertest.New(t, passing(status(503)))
		ep := b.sentinel(r)
		ids := make([]string, 20)
		for i := range ids {
			ids[i] = fmt.Sprintf("e%02d", i)
			b.see(ids[i])
		}
		b.sentinel(r, until(surehook.Until{Kind: surehook.UntilAt, At: b.now().Add(time.Hour)})) // has the sentinels looked at now
		letters := func() []surehook.DeadLetter {
			all, err := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{Endpoint: ep.Key}, surehook.Page{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			return all
		}
		b.until("the oldest are dead letters", func() bool { return len(letters()) >= len(ids)-5 })
		for _, l := range letters() {
			if l.Code != surehook.SentinelFull || l.EventID >= ids[len(ids)-5] {
				t.Errorf("%s: %s", l.EventID, l.Code)
			}
		}
		if n := len(letters()); n != len(ids)-5 {
			t.Errorf("%d dead letters", n)
		}
	}, func(o *engine.Options) {
		o.SentinelQueue = 5
		o.APIOnly = true // nothing is sent, so all of them wait
	})
}

// Those that ended count to no bound, and are removed after their time.
func TestSentinelsAreReaped(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		r := receivertest.New(t, passing(nil))
		ep := b.sentinel(r, until(surehook.Until{Kind: surehook.UntilCount, Count: 1}))
		spec := engine.Sentinel{Principal: "key_1", Match: []surehook.Clause{{Subject: "other"}}, Until: surehook.Until{Kind: surehook.UntilNever}, URL: r.URL + "/in", Secret: sentinelSecret}
		_, err := b.CreateSentinel(t.Context(), spec, engine.Actor{})
		if surehook.CodeOf(err) != surehook.LimitReached {
			t.Errorf("one over the bound: %v", err)
		}
		b.see("e1")
		b.idle()
		b.until("another one may be made", func() bool {
			_, err := b.CreateSentinel(t.Context(), spec, engine.Actor{})
			return err == nil
		})
		if got := b.endpoint(ep.ID).Sentinel; got.Status != surehook.SentinelExpired {
			t.Errorf("%+v", got)
		}
		b.leap(7 * 24 * time.Hour)
		b.restart()
		b.until("it is removed", func() bool {
			_, err := b.store.Endpoint(t.Context(), ep.ID)
			return surehook.CodeOf(err) == surehook.NotFound
		})
		if all, err := b.store.ListEndpoints(t.Context(), surehook.EndpointFilter{}, surehook.Page{Limit: 9}); err != nil || len(all) != 1 {
			t.Errorf("%v, %v", all, err)
		}
	}, func(o *engine.Options) { o.MaxSentinels = 1 })
}

// A session that nobody pulls ends, and takes its sentinels along; before that is
// written down, it is over for new ones.
func TestSentinelOfAnIdleSession(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		if _, err := b.OpenSession(t.Context(), engine.SessionScope{}, "s", false, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		session := func(s *engine.Sentinel) { s.URL, s.Secret, s.Session, s.Urgency = "", "", "s", surehook.UrgencyFYI }
		ep := b.sentinel(&receivertest.Receiver{}, session)
		b.see("e1")
		b.leap(time.Hour)
		_, err := b.CreateSentinel(t.Context(), engine.Sentinel{Match: []surehook.Clause{{Subject: "a"}}, Until: surehook.Until{Kind: surehook.UntilNever}, Session: "s"}, engine.Actor{})
		if surehook.CodeOf(err) != surehook.NotAlive {
			t.Errorf("%v", err)
		}
		b.until("it is orphaned", func() bool { return b.endpoint(ep.ID).SentinelStatus() == surehook.SentinelOrphaned })
		b.until("what waited is dead", func() bool { return b.letter(ep) == surehook.SessionEnded })
		b.until("it is counted so", func() bool { return b.SentinelCounts()[surehook.SentinelOrphaned] == 1 })
	}, func(o *engine.Options) { o.SessionIdle = 4 * time.Second })
}
