package engine_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

const sentinelSecret = "whsec_MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3"

// passing gives challenges back, and leaves the rest to a script.
func passing(script receivertest.Script) receivertest.Script {
	return func(n int, r receivertest.Request) receivertest.Answer {
		var in struct{ Type, Challenge string }
		if json.Unmarshal(r.Body, &in) == nil && in.Type == "verification" {
			return receivertest.Answer{Body: `{"challenge":"` + in.Challenge + `"}`}
		}
		if script == nil {
			return receivertest.Answer{}
		}
		return script(n, r)
	}
}

func status(code int) receivertest.Script {
	return func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Status: code} }
}

// sentinel makes one that watches a subject, for ever unless it is changed.
func (b *bed) sentinel(r *receivertest.Receiver, change ...func(*engine.Sentinel)) *surehook.Endpoint {
	b.t.Helper()
	s := engine.Sentinel{Principal: "key_1", Match: []surehook.Clause{{Subject: "pr#7"}}, Until: surehook.Until{Kind: surehook.UntilNever}, URL: r.URL + "/in", Secret: sentinelSecret}
	for _, f := range change {
		f(&s)
	}
	ep, err := b.CreateSentinel(b.t.Context(), s, engine.Actor{})
	if err != nil {
		b.t.Fatal(err)
	}
	return ep
}

func until(u surehook.Until) func(*engine.Sentinel) { return func(s *engine.Sentinel) { s.Until = u } }

// see publishes an event about what the sentinels watch.
func (b *bed) see(id string) {
	b.t.Helper()
	if _, err := b.Publish(b.t.Context(), surehook.Event{ID: id, Type: "a", Subjects: []string{"pr#7", "pr"}, Data: []byte(`{"n":1}`)}); err != nil {
		b.t.Fatal(err)
	}
}

// events are the requests that weren't challenges.
func events(r *receivertest.Receiver) []receivertest.Request {
	return slices.DeleteFunc(r.Requests(), func(r receivertest.Request) bool { return strings.HasPrefix(r.ID(), "msg_verification_") })
}

// letter is why an endpoint's one dead letter is there.
func (b *bed) letter(ep *surehook.Endpoint) surehook.Code {
	b.t.Helper()
	all, err := b.store.ListDeadLetters(b.t.Context(), surehook.DeadLetterFilter{Endpoint: ep.Key}, surehook.Page{Limit: 10})
	if err != nil {
		b.t.Fatal(err)
	}
	if len(all) != 1 {
		return ""
	}
	return all[0].Code
}

// The schedule, across restarts: 0.5, 1, 2, 4 s, then dead; the same bytes each
// time, under a signature of their own.
func TestSentinelSchedule(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		r := receivertest.New(t, passing(status(503)))
		ep := b.sentinel(r)
		b.see("e1")
		for n, wait := range []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 0} {
			b.until(fmt.Sprint("attempt ", n+1), func() bool { return len(b.attempts(ep)) == n+1 })
			if a := b.attempts(ep)[0]; a.Number != n+1 || a.NextDue.IsZero() != (wait == 0) {
				t.Fatalf("%+v", a)
			}
			if got := b.seen()[n]; got.Wait != wait {
				t.Errorf("after attempt %d: %v, want %v", n+1, got.Wait, wait)
			}
			if b.leap(wait); wait > 0 {
				b.restart() // it looks for what is due then; timers go by real time
			}
		}
		b.idle()
		got := events(r)
		for _, g := range got {
			if string(g.Body) != string(got[0].Body) || g.ID() != "e1" {
				t.Errorf("%s %s", g.ID(), g.Body)
			}
			verify(t, sentinelSecret, g)
		}
		if len(got) != 5 || b.letter(ep) != surehook.Status5xx {
			t.Errorf("%d requests, letter %q", len(got), b.letter(ep))
		}
	})
}

// What refuses for good is asked once.
func TestSentinelFinalAnswers(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		for code, want := range map[int]surehook.Code{410: surehook.Status410, 413: surehook.Status4xx} {
			r := receivertest.New(t, passing(status(code)))
			ep := b.sentinel(r)
			b.see(fmt.Sprint("e", code))
			b.until("it is dead", func() bool { return b.letter(ep) == want })
			if n := len(events(r)); n != 1 || !b.endpoint(ep.ID).Enabled {
				t.Errorf("%d: %d requests", code, n)
			}
			if err := b.RemoveSentinel(t.Context(), ep.ID, engine.Actor{}); err != nil {
				t.Error(err)
			}
		}
		r := receivertest.New(t, passing(nil))
		ep := b.sentinel(r)
		b.alter(`UPDATE endpoint_secrets SET secret_enc = 'pm1.x'`, `UPDATE surehook.endpoint_secrets SET secret_enc = 'pm1.x'`)
		b.restart()
		b.see("undecodable")
		b.until("it is dead", func() bool { return b.letter(ep) == surehook.SecretUnavailable })
		if n := len(events(r)); n != 0 {
			t.Errorf("%d requests without a secret", n)
		}
	})
}

// Past its time nothing is sent any more, whatever waits; nor after its removal.
func TestSentinelEndsWhatWaits(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		r := receivertest.New(t, passing(status(500)))
		timed := b.sentinel(r, until(surehook.Until{Kind: surehook.UntilAt, At: b.now().Add(time.Hour)}))
		removed := b.sentinel(r)
		b.see("e1")
		b.until("both were tried", func() bool { return len(b.attempts(timed)) == 1 && len(b.attempts(removed)) == 1 })
		if err := b.RemoveSentinel(t.Context(), removed.ID, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		b.until("the removed one's is dead", func() bool { return b.letter(removed) == surehook.RemovedSentinel })
		n := len(events(r))
		b.leap(time.Hour)
		b.see("e2")
		b.until("the other one's is dead", func() bool { return b.letter(timed) == surehook.ExpiredSentinel })
		b.until("it is over", func() bool { return b.endpoint(timed.ID).Sentinel.Status == surehook.SentinelExpired })
		b.idle()
		if got := len(events(r)); got != n {
			t.Errorf("%d requests after the end", got-n)
		}
		if _, err := b.store.Endpoint(t.Context(), removed.ID); surehook.CodeOf(err) != surehook.NotFound {
			t.Errorf("%v", err)
		}
	})
}

// A body over the bound keeps its subject and summary alone.
func TestSentinelClamp(t *testing.T) { both(t, testSentinelClamp) }

func testSentinelClamp(t *testing.T, b *bed) {
	r := receivertest.New(t, passing(nil))
	b.sentinel(r)
	long := `{"subject":"x","text":"` + strings.Repeat("a", 256<<10) + `"}`
	form := surehook.CloudEvent{Source: "s", Subject: "pr#7", Extensions: map[string]any{"summary": "in \"short\""}, Content: []byte(long)}.Form()
	if _, err := b.Publish(t.Context(), surehook.Event{ID: "e1", Type: "a", Subjects: []string{"pr#7"}, Data: form}); err != nil {
		t.Fatal(err)
	}
	got := r.Wait(t, 2)[1]
	_, rest, _ := strings.Cut(string(got.Body), `"data":`)
	if want := `{"subject":"pr#7","summary":"in \"short\""},"cursor":null,"truncated":true}`; rest != want {
		t.Errorf("%.200s", rest)
	}
	verify(t, sentinelSecret, got)
}

// More sentinels than one transaction takes are as exact, those of a session.
func TestSentinelsWide(t *testing.T) {
	b := start(t) // PostgreSQL takes a million in one
	if _, err := b.OpenSession(t.Context(), engine.SessionScope{}, "s", false, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	ep, err := b.CreateSentinel(t.Context(), engine.Sentinel{Match: []surehook.Clause{{Subject: "pr#7"}}, Until: surehook.Until{Kind: surehook.UntilCount, Count: 1},
		Session: "s", Urgency: surehook.UrgencySteer}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	all := b.store.MaxTargets() + 501
	for i := range all - 1 {
		more, n := *ep, *ep.Sentinel
		more.ID, more.Sentinel = fmt.Sprintf("sen_%d", i), &n
		if err := b.store.CreateEndpoint(t.Context(), &more, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	b.see("e1")
	b.see("e2")
	ended := func() int {
		n := 0
		for p := (surehook.Page{Limit: 1000}); ; {
			eps, err := b.store.ListEndpoints(t.Context(), surehook.EndpointFilter{Kind: surehook.SentinelsOnly, Session: "s"}, p)
			if err != nil {
				t.Fatal(err)
			}
			for _, ep := range eps {
				if ep.Sentinel.Events == 1 && ep.Sentinel.Status == surehook.SentinelExpired {
					n++
				}
			}
			if len(eps) < p.Limit {
				return n
			}
			p.Cursor = eps[len(eps)-1].Key
		}
	}
	b.until("each has one", func() bool { return ended() == all })
	n, err := b.store.PendingCount(t.Context())
	if err != nil || n.Due+n.Held+n.Waiting+n.Owned != int64(all) {
		t.Errorf("%+v, %v", n, err)
	}
}

// On several nodes a count is exact, and so is what arrives.
func TestSentinelCountOnNodes(t *testing.T) {
	if testing.Short() {
		t.Skip("the short run, under the race detector, has SQLite alone; the whole one has both")
	}
	dsn := database(t)
	nodes := make([]*bed, 2)
	for i := range nodes {
		nodes[i] = prepare(t)
		nodes[i].dsn = dsn
		nodes[i].open()
	}
	r := receivertest.New(t, passing(nil))
	counted := nodes[0].sentinel(r, until(surehook.Until{Kind: surehook.UntilCount, Count: 25}))
	ever := nodes[1].sentinel(r)
	var wg sync.WaitGroup
	for i := range 80 {
		wg.Go(func() {
			_, err := nodes[i%2].Publish(context.Background(), surehook.Event{ID: fmt.Sprintf("e%d", i/2*2), Type: "a", Subjects: []string{"pr#7"}, Data: []byte(`1`)}) // each twice
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	nodes[0].until("all is there", func() bool { return len(events(r)) >= 25+40 })
	nodes[0].idle()
	got := map[string]int{}
	for _, g := range events(r) {
		got[g.Get("X-MCP-Subscription-Id")]++
	}
	if got[counted.ID] != 25 || got[ever.ID] != 40 {
		t.Errorf("%v", got)
	}
	if n := nodes[1].endpoint(counted.ID).Sentinel; n.Events != 25 || n.Status != surehook.SentinelExpired {
		t.Errorf("%+v", n)
	}
}

// A callback has 10 s for its challenge, and nothing is kept of one that fails.
func TestSentinelChallengeTimeout(t *testing.T) {
	t.Parallel()
	b := start(t)
	r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer { return receivertest.Answer{Hang: true} })
	begun := time.Now()
	_, err := b.CreateSentinel(t.Context(), engine.Sentinel{Match: []surehook.Clause{{Subject: "a"}}, Until: surehook.Until{Kind: surehook.UntilNever}, URL: r.URL, Secret: sentinelSecret}, engine.Actor{})
	refused, ok := errors.AsType[*engine.ChallengeError](err)
	if !ok || refused.Reason != engine.ChallengeTimeout || strings.Contains(err.Error(), r.URL) {
		t.Errorf("%v", err)
	}
	if took := time.Since(begun); took < 9*time.Second || took > 15*time.Second {
		t.Errorf("after %v", took)
	}
	if all, err := b.store.ListEndpoints(t.Context(), surehook.EndpointFilter{}, surehook.Page{Limit: 1}); err != nil || len(all) != 0 {
		t.Errorf("%v, %v", all, err)
	}
	if strings.Contains(b.logs.String(), "whsec_") {
		t.Error("the secret is in the log")
	}
}

// Without the settings of a development machine, plain HTTP is refused by its scheme,
// before anything is asked of anybody; and so is what isn't public.
func TestSentinelChallengeNeedsHTTPS(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.AllowNetworks = nil })
	for url, reason := range map[string]string{"http://hooks.example.com/x": engine.ChallengeNoHTTPS, "https://127.0.0.1/x": engine.ChallengeBlocked, "https://localhost/x": engine.ChallengeBlocked} {
		_, err := b.CreateSentinel(t.Context(), engine.Sentinel{Match: []surehook.Clause{{Subject: "a"}}, Until: surehook.Until{Kind: surehook.UntilNever}, URL: url, Secret: sentinelSecret}, engine.Actor{})
		if refused, ok := errors.AsType[*engine.ChallengeError](err); !ok || refused.Reason != reason {
			t.Errorf("%s: %v", url, err)
		}
	}
}
