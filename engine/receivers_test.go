package engine_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// H-01: however long an answer is, it is recorded with a short excerpt, and the
// event is sent once.
func TestH01_BigAnswersAreRecorded(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, func(n int, _ receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Status: []int{200, 500, 200}[n-1], Body: strings.Repeat("é", 1<<20)}
	})
	ep, _ := b.hook(r)
	b.publish("a", "1")
	b.idle()
	b.publish("a", "2")
	b.idle()
	as := b.attempts(ep)
	if len(as) != 3 || as[2].Status != surehook.AttemptSucceeded || as[1].Status != surehook.AttemptFailed || as[0].Status != surehook.AttemptSucceeded {
		t.Fatalf("attempts %+v", as)
	}
	if n := len(as[1].Response); n == 0 || n > 1024 {
		t.Errorf("an excerpt of %d bytes", n)
	}
}

// H-06: an answer without end is cut, and costs its connection only.
func TestH06_AnEndlessAnswerIsCut(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Endless: true}))
	ep, _ := b.hook(r)
	for range 5 {
		b.publish("a", "1")
	}
	b.idle()
	for _, a := range b.attempts(ep) {
		if a.Status != surehook.AttemptSucceeded || a.Duration > 2*time.Second {
			t.Errorf("%+v", a)
		}
	}
	if n := len(r.Requests()); n != 5 {
		t.Errorf("%d requests", n)
	}
}

// H-08: a body that drips is part of the attempt: it ends with its time, and the
// status that came counts.
func TestH08_ADrippingBodyEndsWithTheAttempt(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Raw: "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nx", Hang: true}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Timeout = 300 * time.Millisecond })
	b.publish("a", "1")
	b.idle()
	as := b.attempts(ep)
	if len(as) != 1 || as[0].Status != surehook.AttemptSucceeded || as[0].Duration > 2*time.Second {
		t.Errorf("attempts %+v", as)
	}
}

// H-09: a receiver that never answers holds a bounded number of goroutines, and
// none after.
func TestH09_GoroutinesAreBounded(t *testing.T) {
	b := start(t)
	before := runtime.NumGoroutine()
	hole := receivertest.New(t, always(receivertest.Answer{Hang: true}))
	ep, _ := b.hook(hole, func(w *engine.Webhook) { w.Limits.Timeout = time.Minute })
	for range 10 {
		events := make([]surehook.Event, 100)
		for i := range events {
			events[i] = surehook.Event{Type: "a", Data: []byte("1")}
		}
		if _, err := b.Enqueue(t.Context(), events...); err != nil {
			t.Fatal(err)
		}
	}
	hole.Wait(t, 8)
	if n := runtime.NumGoroutine() - before; n > 8*4+10 { // a worker, a connection and its receiver, each
		t.Errorf("%d goroutines for 1,000 events", n)
	}
	if err := b.DeleteWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	hole.Close()
	b.idle()
	b.until("the goroutines are gone", func() bool { return runtime.NumGoroutine() <= before+5 })
}

// I-16: the body is there on every path, also after a connection broke.
func TestI16_TheBodyIsAlwaysThere(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, func(n int, _ receivertest.Request) receivertest.Answer {
		return []receivertest.Answer{{Reset: true}, {Close: true}, {Status: 500}, {Status: 503, Header: []string{"Connection: close"}}, {}, {}}[min(n-1, 5)]
	})
	ep, secret := b.hook(r, func(w *engine.Webhook) { w.Limits.Waits = append(w.Limits.Waits, time.Millisecond, time.Millisecond) })
	receipt := b.publish("a", `{"long":"`+strings.Repeat("x", 100_000)+`"}`)
	b.idle()
	if _, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{receipt.ID}}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	got := r.Wait(t, 6)
	for _, g := range got {
		verify(t, secret, g)
		if len(g.Body) < 100_000 || strconv.Itoa(len(g.Body)) != g.Get("Content-Length") {
			t.Errorf("a body of %d bytes, Content-Length %s", len(g.Body), g.Get("Content-Length"))
		}
	}
	b.idle()
}

// I-23: waiting in the queue is no part of an attempt's time.
func TestI23_QueueingIsNotInTheTimeout(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Delay: 20 * time.Millisecond}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Timeout = time.Second })
	events := make([]surehook.Event, 1000)
	for i := range events {
		events[i] = surehook.Event{Type: "a", Data: []byte(fmt.Sprint(i))}
	}
	if _, err := b.Enqueue(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	r.Wait(t, 1000)
	b.idle()
	if n := len(r.Requests()); n != 1000 {
		t.Errorf("%d requests for 1,000 events", n)
	}
	for _, a := range b.attempts(ep) {
		if a.Status != surehook.AttemptSucceeded || a.Number != 1 {
			t.Errorf("%+v", a)
		}
	}
}

// B-02: two attempts have two timestamps and two signatures.
func TestB02_EachAttemptIsSignedAnew(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, fails(1, 500))
	_, secret := b.hook(r, func(w *engine.Webhook) { w.Limits.Waits = []time.Duration{10 * time.Minute} })
	b.publish("a", "1")
	r.Wait(t, 1)
	b.until("it waits", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 1 })
	b.leap(13 * time.Minute)
	b.restart()
	got := r.Wait(t, 2)
	for _, name := range []string{"webhook-timestamp", "webhook-signature"} {
		if got[0].Get(name) == got[1].Get(name) {
			t.Errorf("the same %s", name)
		}
	}
	verify(t, secret, got[0])
	verify(t, secret, got[1])
}

// A v1a endpoint from its creation over a rotation to its test, checked by the
// standard library.
func TestV1aEndToEnd(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	ep, public := b.hook(r, func(w *engine.Webhook) { w.Signature = "v1a" })
	b.publish("a", `{"x":"é"}`)
	checkV1a(t, r.Wait(t, 1)[0], public)
	_, second, err := b.RotateSecret(t.Context(), ep.ID, time.Hour, engine.Actor{})
	if err != nil || second == public {
		t.Fatal(second, err)
	}
	b.publish("a", "2")
	checkV1a(t, r.Wait(t, 2)[1], second, public)
	b.leap(2 * time.Hour)
	if _, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	checkV1a(t, r.Wait(t, 3)[2], second)
	b.idle()
	if _, _, err := b.CreateWebhook(t.Context(), engine.Webhook{URL: r.URL, Signature: "v1a", Secret: public}, engine.Actor{}); surehook.CodeOf(err) != surehook.InvalidRequest {
		t.Errorf("a given v1a secret: %v", err)
	}
}

// checkV1a wants exactly one signature of each key, in order.
func checkV1a(t *testing.T, r receivertest.Request, publics ...string) {
	t.Helper()
	signed := []byte(r.ID() + "." + r.Get("webhook-timestamp") + "." + string(r.Body))
	signatures := strings.Fields(r.Get("webhook-signature"))
	if len(signatures) != len(publics) {
		t.Fatalf("%d signatures for %d keys", len(signatures), len(publics))
	}
	for i, s := range signatures {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(publics[i], "whpk_"))
		if err != nil {
			t.Fatal(err)
		}
		sig, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(s, "v1a,"))
		if err != nil || !ed25519.Verify(key, signed, sig) {
			t.Errorf("signature %d isn't by its key: %v", i, err)
		}
	}
}

// Profiles that there aren't are refused, as are those that only the operator's own
// files may name, wherever they come from; and rotation keeps to the profile's bounds.
func TestProfilesAndTheirBounds(t *testing.T) { both(t, testProfilesAndTheirBounds) }

func testProfilesAndTheirBounds(t *testing.T, b *bed) {
	r := receivertest.New(t, nil)
	for _, name := range []string{"Sentinel", "Standard", "x"} {
		_, _, err := b.CreateWebhook(t.Context(), engine.Webhook{URL: r.URL, Profile: name}, engine.Actor{})
		if surehook.CodeOf(err) != surehook.InvalidRequest || !strings.Contains(err.Error(), "profile") {
			t.Errorf("%s: %v", name, err)
		}
	}
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Profile = "pylota" })
	name := "purple-wolf"
	if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Profile: &name}, engine.Actor{}); surehook.CodeOf(err) != surehook.InvalidRequest {
		t.Errorf("by a change: %v", err)
	}
	for overlap, ok := range map[time.Duration]bool{-time.Second: false, 0: true, 168 * time.Hour: true, 169 * time.Hour: false} {
		if _, _, err := b.RotateSecret(t.Context(), ep.ID, overlap, engine.Actor{}); (err == nil) != ok {
			t.Errorf("an overlap of %s: %v", overlap, err)
		}
	}
}

// What only the engine may say of an event isn't taken from its caller, and what
// would break a header or a body isn't either.
func TestCallersCantSayWhatIsOurs(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.CarryTrace = true })
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r)
	trace := "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
	for i, ev := range []surehook.Event{
		{About: ep.ID, Erased: true, Key: 7, Sequence: 9, Trace: trace},
		{Trace: "00-x\r\nX-Evil: 1"},
		{Trace: strings.ToUpper(trace)},
	} {
		ev.Type, ev.Data = "a", []byte("1")
		if _, err := b.Publish(t.Context(), ev); err != nil {
			t.Fatal(err)
		}
		got := r.Wait(t, i+1)[i]
		if want := map[int]string{0: trace}[i]; got.Get("traceparent") != want || got.Get("X-Evil") != "" {
			t.Errorf("%d: traceparent %q", i, got.Get("traceparent"))
		}
	}
	for _, year := range []int{-5, 0, 10_000, 300_000} {
		_, err := b.Publish(t.Context(), surehook.Event{Type: "a", Data: []byte("1"), OccurredAt: time.Date(year, 1, 1, 0, 0, 0, 0, time.UTC)})
		if surehook.CodeOf(err) != surehook.InvalidRequest {
			t.Errorf("year %d: %v", year, err)
		}
	}
	b.idle()
}
