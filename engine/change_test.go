package engine_test

import (
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

func TestL07_RotationSignsWithBoth(t *testing.T) { both(t, testL07RotationSignsWithBoth) }

func testL07RotationSignsWithBoth(t *testing.T, b *bed) {
	r := receivertest.New(t, nil)
	ep, old := b.hook(r)
	_, fresh, err := b.RotateSecret(t.Context(), ep.ID, time.Hour, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	b.publish("a", "1")
	got := r.Wait(t, 1)[0]
	if want := signature(t, fresh, got) + " " + signature(t, old, got); got.Get("webhook-signature") != want {
		t.Errorf("during the overlap: %q, want %q", got.Get("webhook-signature"), want)
	}
	// L-08: a second rotation drops the first secret.
	_, third, err := b.RotateSecret(t.Context(), ep.ID, time.Hour, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	b.publish("a", "2")
	got = r.Wait(t, 2)[1]
	if want := signature(t, third, got) + " " + signature(t, fresh, got); got.Get("webhook-signature") != want {
		t.Errorf("after two rotations: %q, want %q", got.Get("webhook-signature"), want)
	}
	b.leap(2 * time.Hour)
	b.publish("a", "3")
	verify(t, third, r.Wait(t, 3)[2])
	// L-09: revoking ends an overlap at once.
	_, fourth, _ := b.RotateSecret(t.Context(), ep.ID, time.Hour, engine.Actor{})
	for range 2 {
		if _, err := b.RevokePrevious(t.Context(), ep.ID, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	b.publish("a", "4")
	verify(t, fourth, r.Wait(t, 4)[3])
}

// a retry goes where the endpoint is now.
func TestR03_RetryUsesCurrentSettings(t *testing.T) {
	b := start(t)
	old := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := b.hook(old, func(w *engine.Webhook) { w.Limits.Waits = []time.Duration{time.Hour, time.Hour} })
	b.publish("a", "1")
	old.Wait(t, 1)
	b.until("the retry is written", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 1 })
	fresh := receivertest.New(t, nil)
	url := fresh.URL + "/new?k=1"
	got, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{URL: &url}, engine.Actor{})
	if err != nil || got.Enabled || got.DisabledReason != surehook.ReasonURLChanged {
		t.Fatalf("%+v, %v", got, err)
	}
	on := true
	if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Enabled: &on}, engine.Actor{}); surehook.CodeOf(err) != surehook.InvalidRequest {
		t.Errorf("enabled without a test: %v", err)
	}
	if a, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil || a.Status != surehook.AttemptSucceeded {
		t.Fatal(a, err)
	}
	b.leap(2 * time.Hour)
	b.restart()
	if r := fresh.Wait(t, 2)[1]; r.Line != "POST /new?k=1 HTTP/1.1" {
		t.Errorf("line %q", r.Line)
	}
}

// rows of a deleted endpoint go without a request.
func TestR02_NothingIsSentToADeletedEndpoint(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Waits = []time.Duration{time.Hour} })
	for range 5 {
		b.publish("a", "1")
	}
	r.Wait(t, 5)
	b.until("the retries are written", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 5 })
	if err := b.DeleteWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	b.idle()
	if dead, _ := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{}, surehook.Page{Limit: 10}); len(dead) != 0 {
		t.Errorf("dead letters %+v", dead)
	}
}

func TestF12_EnabledAgainInTime(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, fails(1, 500))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Waits = []time.Duration{time.Hour} })
	b.publish("a", "1")
	r.Wait(t, 1)
	b.until("the retry is written", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 1 })
	for _, on := range []bool{false, true} {
		if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Enabled: &on}, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	b.leap(2 * time.Hour)
	b.restart()
	r.Wait(t, 2)
	b.idle()
}

func TestC02_StopFreesWhatWasNotSent(t *testing.T) {
	b := start(t)
	gate := make(chan struct{})
	r := receivertest.New(t, always(receivertest.Answer{Gate: gate}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Concurrency = 2 })
	for range 20 {
		b.publish("a", "1")
	}
	r.Wait(t, 2)
	close(gate)
	b.close()
	b.open()
	b.idle()
	seen := map[string]int{}
	for _, got := range r.Requests() {
		seen[got.ID()]++
	}
	if len(seen) != 20 || len(r.Requests()) != 20 {
		t.Errorf("%d events in %d requests", len(seen), len(r.Requests()))
	}
	for _, a := range b.attempts(ep) {
		if a.Number != 1 {
			t.Errorf("a stop was counted as an attempt: %+v", a)
		}
	}
}

// S-02: what a stop cut off was no attempt.
func TestS02_ShutdownIsNoFailure(t *testing.T) {
	t.Parallel() // it waits, mostly
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Hang: true}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Timeout = time.Minute })
	b.publish("a", "1")
	r.Wait(t, 1)
	b.close() // its deadline cancels the attempt
	r.Use(nil)
	b.open()
	r.Wait(t, 2)
	b.idle()
	if as := b.attempts(ep); len(as) != 1 || as[0].Number != 1 || as[0].Status != surehook.AttemptSucceeded {
		t.Errorf("attempts %+v", as)
	}
}

func TestO05_OneEventOutOfFifty(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	b.hook(r)
	var wg sync.WaitGroup
	var fresh sync.Map
	for i := range 50 {
		wg.Go(func() {
			got, err := b.Publish(t.Context(), surehook.Event{ID: "same", Type: "a", Data: []byte("1")})
			if err != nil {
				t.Error(err)
			}
			if !got.Duplicate {
				fresh.Store(i, true)
			}
		})
	}
	wg.Wait()
	b.idle()
	n := 0
	fresh.Range(func(any, any) bool { n++; return true })
	if n != 1 || len(r.Requests()) != 1 {
		t.Errorf("%d fresh, %d requests", n, len(r.Requests()))
	}
	if _, err := b.Publish(t.Context(), surehook.Event{ID: "same", Type: "a", Data: []byte("2")}); surehook.CodeOf(err) != surehook.Conflict {
		t.Errorf("other content: %v", err)
	}
}

func TestH12_SecretsStayOutOfTheLog(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 401}))
	_, secret := b.hook(r, func(w *engine.Webhook) { w.URL = r.URL + "/p4th?token=s3cret" })
	b.publish("a", `{"card":"4111"}`)
	b.idle()
	for _, try := range b.seen() {
		b.opt.Logger.Info("try", "endpoint", try.Endpoint.ID, "host", try.Host, "error", try.Attempt.Error)
	}
	for _, word := range []string{"p4th", "s3cret", "4111", secret, strings.TrimPrefix(secret, "whsec_")} {
		if strings.Contains(b.logs.String(), word) {
			t.Errorf("the log holds %q", word)
		}
	}
}

func TestBackgroundReplay(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"}; w.Limits.Concurrency = 32 })
	since := b.now().Add(-time.Minute)
	const n = 1200
	for i := range n / 100 {
		events := make([]surehook.Event, 100)
		for j := range events {
			events[j] = surehook.Event{Type: []string{"a", "b"}[j%2], Data: []byte(fmt.Sprint(i))}
		}
		if _, err := b.Enqueue(t.Context(), events...); err != nil {
			t.Fatal(err)
		}
	}
	r.Wait(t, n/2)
	b.idle()
	job, err := b.StartReplay(t.Context(), ep.ID, engine.ReplayRequest{Since: since}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	r.Wait(t, n)
	b.idle()
	b.until("the job is done", func() bool {
		got, err := b.store.GetReplay(t.Context(), job.ID)
		return err == nil && got.State == surehook.ReplayDone && got.Queued == n/2
	})
}

func TestSecretUnavailableFailsThatEndpointOnly(t *testing.T) {
	b := start(t)
	bad, good := receivertest.New(t, nil), receivertest.New(t, nil)
	ep, _ := b.hook(bad)
	b.hook(good)
	if _, err := b.store.UpdateEndpoint(t.Context(), ep.ID, func(e *surehook.Endpoint) error {
		e.Secrets.Current = "pm1.AAAA.AAAA.AAAA"
		return nil
	}, nil); err != nil {
		t.Fatal(err)
	}
	b.publish("a", "1")
	good.Wait(t, 1)
	b.until("the bad one is dead", func() bool {
		dead, _ := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{Endpoint: ep.Key}, surehook.Page{Limit: 10})
		return len(dead) == 1 && dead[0].Code == surehook.SecretUnavailable
	})
	if !slices.ContainsFunc(b.attempts(ep), func(a surehook.Attempt) bool { return a.Code == surehook.SecretUnavailable }) || len(bad.Requests()) != 0 {
		t.Error("the attempts don't tell")
	}
}
