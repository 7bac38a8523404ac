package engine_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

const modelEndpoints = 3

// world is an engine under a random course of events, and what must be true of
// it.
type world struct {
	*bed
	r        *rapid.T
	rs       []*receivertest.Receiver
	eps      []*surehook.Endpoint
	secrets  []string
	accepted []engine.Receipt
	replays  map[string]int // asked for, by event and endpoint
}

func newWorld(t *testing.T, r *rapid.T) *world {
	w := &world{bed: start(t), r: r, replays: map[string]int{}}
	for i := range modelEndpoints {
		rc := receivertest.New(t, nil)
		ep, secret := w.hook(rc, func(h *engine.Webhook) {
			h.Limits.Waits = []time.Duration{time.Millisecond, 2 * time.Millisecond, 20 * time.Millisecond}
			h.Limits.Concurrency = 1 + i
			if i == 1 {
				h.EventTypes = []string{"a.*"}
			}
			h.Ordered = i == 2
		})
		w.rs, w.eps, w.secrets = append(w.rs, rc), append(w.eps, ep), append(w.secrets, secret)
	}
	return w
}

func (w *world) which() int { return rapid.IntRange(0, modelEndpoints-1).Draw(w.r, "endpoint") }

func (w *world) publishSome() {
	for range rapid.IntRange(1, 15).Draw(w.r, "events") {
		typ := rapid.SampledFrom([]string{"a.b", "c"}).Draw(w.r, "type")
		owner := rapid.SampledFrom([]string{"", "x", "y"}).Draw(w.r, "owner")
		receipt, err := w.Publish(w.t.Context(), surehook.Event{Type: typ, Owner: owner, Data: []byte(fmt.Sprint(len(w.accepted)))})
		if err != nil {
			w.r.Fatal(err)
		}
		w.accepted = append(w.accepted, receipt)
	}
}

func (w *world) answer() {
	kind := rapid.SampledFrom([]receivertest.Answer{{}, {Status: 500}, {Status: 404}, {Status: 429}, {Status: 410}, {Reset: true}, {Delay: 3 * time.Millisecond}}).Draw(w.r, "answer")
	every := rapid.IntRange(1, 3).Draw(w.r, "every")
	w.rs[w.which()].Use(func(n int, _ receivertest.Request) receivertest.Answer {
		if n%every == 0 {
			return kind
		}
		return receivertest.Answer{}
	})
}

func (w *world) enable(i int, on bool) {
	if _, err := w.UpdateWebhook(w.t.Context(), w.eps[i].ID, engine.Patch{Enabled: &on}, engine.Actor{}); err != nil {
		w.r.Fatal(err)
	}
}

func (w *world) replay() {
	if len(w.accepted) == 0 {
		return
	}
	i := w.which()
	id := w.accepted[rapid.IntRange(0, len(w.accepted)-1).Draw(w.r, "event")].ID
	_, err := w.Replay(w.t.Context(), w.eps[i].ID, engine.ReplayRequest{IDs: []string{id}}, engine.Actor{})
	switch surehook.CodeOf(err) {
	case surehook.Conflict, surehook.InvalidRequest: // disabled, or not for it
	default:
		if err != nil {
			w.r.Fatal(err)
		}
		w.replays[id+"@"+w.eps[i].ID]++
	}
}

// settle makes everything well again and waits until nothing is to be done.
func (w *world) settle() {
	for i := range w.rs {
		w.rs[i].Use(nil)
		w.enable(i, true)
	}
	w.idle()
	for i := range w.rs { // a 410 that was under way when all became well
		w.enable(i, true)
	}
	w.idle()
}

func (w *world) check() {
	for _, a := range w.accepted {
		ds := w.deliveries(a.ID)
		if len(ds) < a.Deliveries {
			w.r.Errorf("%s: %d deliveries, %d were promised", a.ID, len(ds), a.Deliveries)
		}
		for _, d := range ds {
			if d.Status != surehook.Succeeded && d.Status != surehook.Dead {
				w.r.Errorf("%+v", d)
			}
		}
	}
	for i, ep := range w.eps {
		w.checkAttempts(ep)
		for _, got := range w.rs[i].Requests() {
			if want := signature(w.t, w.secrets[i], got); got.Get("webhook-signature") != want {
				w.r.Errorf("signature %q, want %q", got.Get("webhook-signature"), want)
			}
		}
	}
}

// checkAttempts: the attempts of a delivery are numbered without a gap, and none
// follows a success unless somebody asked for it.
func (w *world) checkAttempts(ep *surehook.Endpoint) {
	byEvent := map[string][]surehook.Attempt{}
	for p := (surehook.Page{Limit: 1000}); ; {
		as, err := w.store.EndpointAttempts(w.t.Context(), ep.Key, p)
		if err != nil {
			w.r.Fatal(err)
		}
		for _, a := range as {
			byEvent[a.EventID] = append([]surehook.Attempt{a}, byEvent[a.EventID]...)
		}
		if len(as) < p.Limit {
			break
		}
		p.Cursor = as[len(as)-1].Key
	}
	for id, as := range byEvent {
		again := 0
		for i, a := range as {
			if a.Number != i+1 || a.Late {
				w.r.Errorf("%s at %s: attempt %d is %+v", id, ep.ID, i+1, a)
			}
			if i > 0 && as[i-1].Status == surehook.AttemptSucceeded {
				again++
			}
		}
		if asked := w.replays[id+"@"+ep.ID]; again > asked {
			w.r.Errorf("%s at %s: sent %d times after it had succeeded, asked for %d", id, ep.ID, again, asked)
		}
	}
}

// Whatever is published, answered, disabled, enabled, replayed and restarted, and
// in whatever order: every event that was accepted has arrived at, or is a dead
// letter of, each endpoint that it was for.
func TestModel(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		w := newWorld(t, r)
		steps := map[string]func(){
			"publish": w.publishSome, "publish more": w.publishSome, "answer": w.answer, "answer again": w.answer, "replay": w.replay,
			"disable": func() { w.enable(w.which(), false) }, "enable": func() { w.enable(w.which(), true) },
			"restart": w.restart,
			"wait":    func() { w.rs[w.which()].Use(nil); w.until("a moment", func() bool { return true }) },
		}
		names := []string{"publish", "publish more", "answer", "answer again", "replay", "disable", "enable", "restart", "wait"}
		for range rapid.IntRange(1, 20).Draw(r, "steps") {
			steps[rapid.SampledFrom(names).Draw(r, "step")]()
		}
		w.settle()
		w.check()
		if err := w.Stop(context.Background()); err != nil {
			r.Error(err)
		}
		if err := w.store.Close(); err != nil {
			r.Error(err)
		}
		for _, rc := range w.rs {
			rc.Close()
		}
	})
}
