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
)

// inbox registers an endpoint that is pulled.
func (b *bed) inbox(change ...func(*engine.Webhook)) *surehook.Endpoint {
	b.t.Helper()
	w := engine.Webhook{Pull: true}
	for _, f := range change {
		f(&w)
	}
	ep, secret, err := b.CreateWebhook(b.t.Context(), w, engine.Actor{})
	if err != nil || secret != "" {
		b.t.Fatal(err, secret)
	}
	return ep
}

func (b *bed) pull(ep *surehook.Endpoint, req engine.PullRequest) engine.PullPage {
	b.t.Helper()
	p, err := b.Pull(b.t.Context(), ep.ID, req)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

func bodies(p engine.PullPage) []string {
	var out []string
	for _, it := range p.Items {
		var body struct{ Data json.RawMessage }
		_ = json.Unmarshal(it.Body, &body)
		out = append(out, string(body.Data))
	}
	return out
}

// What is published waits, is given until it is acknowledged, and is delivered then.
func TestPull(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		ep := b.inbox(func(w *engine.Webhook) { w.EventTypes = []string{"order.*"} })
		var ids []string
		for i := range 5 {
			ids = append(ids, b.publish("order.paid", fmt.Sprintf(`{"a" : %d}`, i)).ID)
		}
		b.publish("user.created", `0`)
		p := b.pull(ep, engine.PullRequest{})
		if got := bodies(p); len(got) != 5 || got[0] != `{"a" : 0}` || got[4] != `{"a" : 4}` || p.More {
			t.Fatalf("%q", got)
		}
		want := fmt.Sprintf(`{"id":"%s","type":"order.paid","timestamp":"%s","data":{"a" : 0}}`, ids[0], p.Items[0].OccurredAt.UTC().Format("2006-01-02T15:04:05.000Z"))
		if string(p.Items[0].Body) != want {
			t.Errorf("body %s, want %s", p.Items[0].Body, want)
		}
		if again := b.pull(ep, engine.PullRequest{Limit: 2}); len(again.Items) != 2 || !again.More || again.Items[0].ID != ids[0] {
			t.Errorf("not acknowledged, but not there again: %+v", again)
		}
		if ahead := b.pull(ep, engine.PullRequest{From: p.Items[1].Cursor}); len(ahead.Items) != 3 || b.deliveries(ids[0])[0].Status != surehook.Pending {
			t.Errorf("reading on acknowledges: %+v", ahead)
		}
		p2 := b.pull(ep, engine.PullRequest{Cursor: p.Items[1].Cursor})
		if len(p2.Items) != 3 || p2.Items[0].ID != ids[2] {
			t.Errorf("%+v", p2)
		}
		for i, want := range []surehook.DeliveryStatus{surehook.Succeeded, surehook.Succeeded, surehook.Pending} {
			if d := b.deliveries(ids[i])[0]; d.Status != want {
				t.Errorf("event %d is %s, want %s", i, d.Status, want)
			}
		}
		if n, err := b.Ack(t.Context(), ep.ID, p2.Next); n != 3 || err != nil {
			t.Error(n, err)
		}
		if n, err := b.Ack(t.Context(), ep.ID, p2.Next); n != 0 || err != nil {
			t.Error(n, err)
		}
		b.restart()
		if p := b.pull(ep, engine.PullRequest{Cursor: p2.Next}); len(p.Items) != 0 {
			t.Errorf("%+v", p)
		}
		if as := b.attempts(ep); len(as) != 5 || as[0].Status != surehook.AttemptSucceeded || as[0].Number != 1 {
			t.Errorf("%d attempts", len(as))
		}
		r, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: ids[:1]}, engine.Actor{})
		if err != nil || r.Queued != 1 {
			t.Fatal(r, err)
		}
		if p := b.pull(ep, engine.PullRequest{Cursor: p2.Next}); len(p.Items) != 1 || p.Items[0].ID != ids[0] || p.Items[0].Attempt != 2 {
			t.Errorf("replayed: %+v", p)
		}
	})
}

// A reader that waits is called, by this engine's own events and by a replay.
func TestPullWaits(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		ep := b.inbox()
		got := make(chan engine.PullPage, 1)
		wait := func(cursor string) {
			go func() {
				p, err := b.Pull(t.Context(), ep.ID, engine.PullRequest{Cursor: cursor, Wait: time.Minute})
				if err != nil {
					t.Error(err)
				}
				got <- p
			}()
			b.until("a reader waits", func() bool { return b.PullStats().Readers == 1 })
		}
		wait("")
		id := b.publish("a", `1`).ID
		p := <-got
		if len(p.Items) != 1 || p.Items[0].ID != id {
			t.Fatalf("%+v", p)
		}
		wait(p.Next)
		if _, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{id}}, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if p = <-got; len(p.Items) != 1 || p.Items[0].Attempt != 2 {
			t.Fatalf("%+v", p)
		}
		wait(p.Next)
		if _, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if p = <-got; len(p.Items) != 1 || p.Items[0].Type != surehook.TypeTest {
			t.Fatalf("%+v", p)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() {
			_, err := b.Pull(ctx, ep.ID, engine.PullRequest{Cursor: p.Next, Wait: time.Minute})
			done <- err
		}()
		b.until("a reader waits", func() bool { return b.PullStats().Readers == 1 })
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		wait(p.Next)
		if err := b.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if end := <-got; len(end.Items) != 0 || end.Next == "" {
			t.Errorf("a stop leaves %+v", end)
		}
	})
}

// A thousand readers of a thousand inboxes wait without a look at the store.
func TestPullThousands(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.MaxWebhooks = -1 })
	const n = 1000
	eps := make([]*surehook.Endpoint, n)
	for i := range eps {
		eps[i] = b.inbox(func(w *engine.Webhook) { w.EventTypes = []string{fmt.Sprintf("t.n%d", i)} })
	}
	var wg sync.WaitGroup
	for i, ep := range eps {
		wg.Go(func() {
			p, err := b.Pull(t.Context(), ep.ID, engine.PullRequest{Wait: time.Minute})
			if err != nil || len(p.Items) != 1 || p.Items[0].Type != fmt.Sprintf("t.n%d", i) {
				t.Errorf("%d: %+v, %v", i, p, err)
			}
		})
	}
	b.until("all wait", func() bool { return b.PullStats().Readers == n })
	for i := range eps {
		b.publish(fmt.Sprintf("t.n%d", i), `1`)
	}
	wg.Wait()
	if r := b.PullStats().Readers; r != 0 {
		t.Errorf("%d readers are left", r)
	}
}

// What leaves the inbox unread is told once, with where to go on.
func TestPullTellsOfLosses(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		ep := b.inbox()
		var ids []string
		for i := range 4 {
			ids = append(ids, b.publish("a", fmt.Sprint(i)).ID)
		}
		p := b.pull(ep, engine.PullRequest{Limit: 1})
		if _, err := b.Erase(t.Context(), engine.EraseRequest{IDs: ids[2:3]}, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		_, err := b.Pull(t.Context(), ep.ID, engine.PullRequest{Cursor: p.Next})
		gap, ok := errors.AsType[*engine.CursorError](err)
		if !ok || surehook.CodeOf(err) != surehook.CursorExpired || gap.Dropped != 1 {
			t.Fatalf("%v", err)
		}
		got := b.pull(ep, engine.PullRequest{Cursor: gap.Next})
		if !slices.Equal(bodies(got), []string{"1", "3"}) {
			t.Errorf("%q", bodies(got))
		}
		if d := b.deliveries(ids[2])[0]; d.Status != surehook.Dead || d.LastCode != surehook.EventUnavailable {
			t.Errorf("%+v", d)
		}
		if p := b.pull(ep, engine.PullRequest{}); len(p.Items) != 2 {
			t.Errorf("who comes without a cursor is told nothing: %+v", p)
		}
	})
}

// The bound holds, its oldest become dead letters, and a replay brings them back.
func TestPullBound(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		ep := b.inbox()
		p := b.pull(ep, engine.PullRequest{})
		for i := range 10 {
			b.publish("a", fmt.Sprint(i))
		}
		b.until("the bound holds", func() bool {
			st, err := b.InboxState(t.Context(), ep.ID)
			if err != nil {
				t.Fatal(err)
			}
			return st.Events == 6 && st.Dropped == 4
		})
		_, err := b.Pull(t.Context(), ep.ID, engine.PullRequest{Cursor: p.Next})
		gap, ok := errors.AsType[*engine.CursorError](err)
		if !ok || gap.Dropped != 4 {
			t.Fatal(err)
		}
		if got := bodies(b.pull(ep, engine.PullRequest{Cursor: gap.Next})); !slices.Equal(got, []string{"4", "5", "6", "7", "8", "9"}) {
			t.Errorf("%q", got)
		}
		letters, err := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{}, surehook.Page{Limit: 10})
		if err != nil || len(letters) != 4 || letters[0].Code != surehook.InboxFull {
			t.Fatal(letters, err)
		}
		if _, err := b.ReplayEvents(t.Context(), ep.ID, []int64{letters[3].EventKey}, func(int) string { return "" }, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
	}, func(o *engine.Options) { o.InboxEvents = 6 })
}

func TestPullRefuses(t *testing.T) {
	b := start(t)
	a, other := b.inbox(), b.inbox()
	b.publish("a", `1`)
	mine, foreign := b.pull(a, engine.PullRequest{}), b.pull(other, engine.PullRequest{})
	flip := []byte(mine.Next)
	flip[5] ^= 1
	for _, c := range []struct {
		req  engine.PullRequest
		code surehook.ErrorCode
	}{
		{engine.PullRequest{Cursor: foreign.Next}, surehook.InvalidRequest},
		{engine.PullRequest{Cursor: string(flip)}, surehook.InvalidRequest},
		{engine.PullRequest{Cursor: "!"}, surehook.InvalidRequest},
		{engine.PullRequest{Cursor: strings.Repeat("A", 1<<20)}, surehook.InvalidRequest},
		{engine.PullRequest{Cursor: mine.Next, From: mine.Next}, surehook.InvalidRequest},
		{engine.PullRequest{Limit: 1001}, surehook.InvalidRequest},
		{engine.PullRequest{Limit: -1}, surehook.InvalidRequest},
		{engine.PullRequest{Wait: 61 * time.Second}, surehook.InvalidRequest},
	} {
		if _, err := b.Pull(t.Context(), a.ID, c.req); surehook.CodeOf(err) != c.code || err == nil {
			t.Errorf("%.60v: %v", c.req, err)
		}
	}
	if _, err := b.Ack(t.Context(), a.ID, foreign.Next); surehook.CodeOf(err) != surehook.InvalidRequest {
		t.Error(err)
	}
	if p := b.pull(a, engine.PullRequest{}); len(p.Items) != 1 {
		t.Error("a refusal has acknowledged something")
	}
	url := "https://example.com/"
	for what, f := range map[string]func() error{
		"url": func() error {
			_, _, err := b.CreateWebhook(t.Context(), engine.Webhook{Pull: true, URL: url}, engine.Actor{})
			return err
		},
		"secret": func() error {
			_, _, err := b.CreateWebhook(t.Context(), engine.Webhook{Pull: true, Secret: "whsec_x"}, engine.Actor{})
			return err
		},
		"headers": func() error {
			_, _, err := b.CreateWebhook(t.Context(), engine.Webhook{Pull: true, Headers: map[string]string{"X-A": "b"}}, engine.Actor{})
			return err
		},
		"url of a patch": func() error {
			_, err := b.UpdateWebhook(t.Context(), a.ID, engine.Patch{URL: &url}, engine.Actor{})
			return err
		},
		"limits": func() error {
			_, err := b.UpdateWebhook(t.Context(), a.ID, engine.Patch{Limits: &surehook.Limits{Attempts: 3}}, engine.Actor{})
			return err
		},
	} {
		if err := f(); surehook.CodeOf(err) != surehook.InvalidRequest || err == nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, _, err := b.RotateSecret(t.Context(), a.ID, 0, engine.Actor{}); surehook.CodeOf(err) != surehook.Conflict {
		t.Error(err)
	}
}

// A suspended partner's inbox gives nothing, and a disabled endpoint's what it has.
func TestPullHeld(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		ep := b.inbox(func(w *engine.Webhook) { w.Partner = "hub" })
		if err := b.PutTenant(t.Context(), &surehook.Tenant{ID: "acme", Partner: "hub"}, "tenant.create", engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if _, err := b.Publish(t.Context(), surehook.Event{Type: "a", Tenant: "acme", Data: []byte(`1`)}); err != nil {
			t.Fatal(err)
		}
		if err := b.PutPartner(t.Context(), &surehook.Partner{ID: "hub", Suspended: true}, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if p := b.pull(ep, engine.PullRequest{}); len(p.Items) != 0 || p.More {
			t.Errorf("%+v", p)
		}
		got := make(chan engine.PullPage, 1)
		go func() { got <- b.pull(ep, engine.PullRequest{Wait: time.Minute}) }()
		b.until("a reader waits", func() bool { return b.PullStats().Readers == 1 })
		if err := b.PutPartner(t.Context(), &surehook.Partner{ID: "hub"}, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if p := <-got; len(p.Items) != 1 {
			t.Errorf("%+v", p)
		}
		off := false
		if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Enabled: &off}, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if p := b.pull(ep, engine.PullRequest{}); len(p.Items) != 1 {
			t.Errorf("disabled: %+v", p)
		}
	})
}

// A session begins with its first pull, gathers what several endpoints feed it, and
// ends by hand or when nobody asks.
func TestPullSession(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		of := engine.SessionScope{Tenant: "acme"}
		pull := func(req engine.PullRequest) (engine.PullPage, error) {
			return b.PullSession(t.Context(), of, "agent-1", req, engine.Actor{})
		}
		if _, err := pull(engine.PullRequest{}); err != nil {
			t.Fatal(err)
		}
		feed := func(w *engine.Webhook) { w.Tenant, w.Session, w.Urgency = "acme", "agent-1", "steer" }
		a := b.inbox(feed, func(w *engine.Webhook) { w.EventTypes = []string{"a"} })
		b.inbox(feed, func(w *engine.Webhook) { w.EventTypes, w.Urgency = []string{"b"}, "fyi" })
		publish := func(typ string) {
			if _, err := b.Publish(t.Context(), surehook.Event{Type: typ, Tenant: "acme", Data: []byte(`"` + typ + `"`)}); err != nil {
				t.Fatal(err)
			}
		}
		for _, typ := range []string{"a", "b", "a"} {
			publish(typ)
		}
		p, err := pull(engine.PullRequest{})
		if err != nil || !slices.Equal(bodies(p), []string{`"a"`, `"b"`, `"a"`}) {
			t.Fatalf("%q, %v", bodies(p), err)
		}
		if p.Items[0].Urgency != "steer" || p.Items[1].Urgency != "fyi" || p.Items[0].EndpointID != a.ID {
			t.Errorf("%+v", p.Items)
		}
		if _, err := b.Pull(t.Context(), a.ID, engine.PullRequest{}); surehook.CodeOf(err) != surehook.Conflict {
			t.Error(err)
		}
		if n, err := b.AckSession(t.Context(), of, "agent-1", p.Items[0].Cursor, engine.Actor{}); n != 1 || err != nil {
			t.Error(n, err)
		}
		if err := b.CloseSession(t.Context(), of, "agent-1", engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if _, err := pull(engine.PullRequest{}); surehook.CodeOf(err) != surehook.NotAlive {
			t.Error(err)
		}
		if ep := b.endpoint(a.ID); ep.Enabled || ep.DisabledReason != surehook.ReasonSession {
			t.Errorf("%+v", ep)
		}
		letters, err := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{}, surehook.Page{Limit: 10})
		if err != nil || len(letters) != 2 || letters[0].Code != surehook.SessionEnded {
			t.Error(letters, err)
		}
		if _, _, err := b.CreateWebhook(t.Context(), engine.Webhook{Pull: true, Tenant: "acme", Session: "agent-1"}, engine.Actor{}); surehook.CodeOf(err) != surehook.NotAlive {
			t.Error(err)
		}
		if _, err := b.OpenSession(t.Context(), of, "agent-1", true, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		if p, err := pull(engine.PullRequest{}); err != nil || len(p.Items) != 0 {
			t.Error(p, err)
		}
		b.leap(2 * time.Hour)
		if _, err := pull(engine.PullRequest{}); surehook.CodeOf(err) != surehook.NotAlive {
			t.Error(err)
		}
		b.until("it is ended", func() bool {
			s, err := b.store.PullSession(t.Context(), "acme", "", "agent-1")
			return err == nil && s.EndReason == surehook.PullSessionIdle
		})
	}, func(o *engine.Options) { o.SessionIdle = 4 * time.Second })
}

// Whoever waits at a session's inbox is told of its end, and doesn't wait on.
func TestPullSessionEndsWhoWaits(t *testing.T) {
	both(t, func(t *testing.T, b *bed) {
		told := make(chan error)
		go func() {
			_, err := b.PullSession(context.Background(), engine.SessionScope{}, "s", engine.PullRequest{Wait: engine.MaxPullWait}, engine.Actor{})
			told <- err
		}()
		b.until("it waits", func() bool { return b.PullStats().Readers == 1 })
		if err := b.CloseSession(t.Context(), engine.SessionScope{}, "s", engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		select {
		case err := <-told:
			if surehook.CodeOf(err) != surehook.NotAlive {
				t.Error(err)
			}
		case <-time.After(20 * time.Second):
			t.Error("it waits on")
		}
	})
}
