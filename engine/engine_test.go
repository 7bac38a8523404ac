package engine_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// fails answers status to the first n requests, then 200.
func fails(n, status int) receivertest.Script {
	return func(i int, _ receivertest.Request) receivertest.Answer {
		if i <= n {
			return receivertest.Answer{Status: status}
		}
		return receivertest.Answer{}
	}
}

func always(a receivertest.Answer) receivertest.Script {
	return func(int, receivertest.Request) receivertest.Answer { return a }
}

func TestDelivers(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	ep, secret := b.hook(r)
	receipt := b.publish("order.paid", `{"n":1.0}`)
	got := r.Wait(t, 1)[0]
	verify(t, secret, got)
	if got.ID() != receipt.ID || got.Line != "POST /in HTTP/1.1" || !strings.Contains(string(got.Body), `"data":{"n":1.0}}`) {
		t.Errorf("got %q %q %s", got.ID(), got.Line, got.Body)
	}
	b.idle()
	if ds := b.deliveries(receipt.ID); len(ds) != 1 || ds[0].Status != surehook.Succeeded || ds[0].EndpointID != ep.ID || ds[0].Attempts != 1 {
		t.Errorf("deliveries: %+v", ds)
	}
}

// The bytes of the caller's value arrive as they were given, on every envelope.
func TestA_BytesAreKept(t *testing.T) {
	bodies := []string{
		`{"q":"a<b>&c=d"}`, "\"raw \u2028 and \u2029\"", `"escaped \u2028 \u2029"`, `-1.7976931348623157e+308`, `1e400`, `0.10`, `1E2`, `-0`,
		`{"id":7615917337495251231,"a":1.0}`, `"😊 ñ 👩‍👩‍👧"`, `{"m":"\u001b[31m\u0000"}`, `"/ \/"`, ` { "spaced" : [ 1 , 2 ] } `, `null`, `[]`,
		`"` + strings.Repeat("x", 4094) + `😊"`,
	}
	b := start(t)
	r := receivertest.New(t, nil)
	_, secret := b.hook(r, func(w *engine.Webhook) { w.Envelope = surehook.EnvelopePayload })
	want := map[string]string{}
	for _, body := range bodies {
		want[b.publish("a.b", body).ID] = body
	}
	for _, got := range r.Wait(t, len(bodies)) {
		verify(t, secret, got)
		if string(got.Body) != want[got.ID()] {
			t.Errorf("got %q, want %q", got.Body, want[got.ID()])
		}
		if n := strconv.Itoa(len(got.Body)); got.Get("Content-Length") != n {
			t.Errorf("content length %s, want %s", got.Get("Content-Length"), n)
		}
	}
}

func TestA17_InvalidUTF8IsRefused(t *testing.T) {
	b := start(t)
	for _, data := range []string{"\"\xff\"", "{", "1 2", ""} {
		_, err := b.Publish(t.Context(), surehook.Event{Type: "a", Data: []byte(data)})
		if surehook.CodeOf(err) != surehook.InvalidRequest {
			t.Errorf("%q: %v", data, err)
		}
	}
}

func TestB01_FreshTimestampAndSameIDOnRetry(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, fails(1, 500))
	_, secret := b.hook(r, func(w *engine.Webhook) { w.Limits.Waits = []time.Duration{6 * time.Hour} })
	b.publish("a", "1")
	r.Wait(t, 1)
	b.until("the retry is written", func() bool {
		n, _ := b.store.PendingCount(t.Context())
		return n.Waiting == 1
	})
	b.leap(8 * time.Hour)
	b.restart() // B-03: the retry is built from stored rows only
	got := r.Wait(t, 2)
	verify(t, secret, got[0])
	verify(t, secret, got[1])
	first, _ := strconv.ParseInt(got[0].Get("webhook-timestamp"), 10, 64)
	second, _ := strconv.ParseInt(got[1].Get("webhook-timestamp"), 10, 64)
	if second-first < 7*3600 {
		t.Errorf("timestamps %d and %d", first, second)
	}
	if got[0].ID() != got[1].ID() || string(got[0].Body) != string(got[1].Body) {
		t.Error("id or body changed between attempts")
	}
	if a := got[1].Get("Surehook-Attempt"); a != "2" { // B-09
		t.Errorf("attempt %q", a)
	}
}

func TestB04_EveryPathIsSigned(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, fails(1, 503))
	ep, secret := b.hook(r)
	receipt := b.publish("a", `{"x":"é"}`)
	b.idle()
	if _, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{receipt.ID}}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	r.Wait(t, 3)
	if _, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	for i, got := range r.Wait(t, 4) {
		verify(t, secret, got)
		if i < 3 && got.ID() != receipt.ID { // B-08
			t.Errorf("request %d has id %q", i, got.ID())
		}
	}
}

func TestE01_EachEndpointHasItsOwnRetries(t *testing.T) {
	b := start(t)
	var rs []*receivertest.Receiver
	for i := range 5 {
		r := receivertest.New(t, fails(1+i%2, 500))
		b.hook(r)
		rs = append(rs, r)
	}
	receipt := b.publish("a", "1")
	b.idle()
	if receipt.Deliveries != 5 {
		t.Errorf("deliveries %d", receipt.Deliveries)
	}
	for i, r := range rs {
		if n := len(r.Requests()); n != 2+i%2 {
			t.Errorf("receiver %d got %d", i, n)
		}
	}
}

func TestD05_LimitIsKeptThenDeadLetter(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 403, Body: "no\x00\xff"})) // H-02, H-03
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Attempts = 3 })
	receipt := b.publish("a", "1")
	b.idle()
	if n := len(r.Requests()); n != 3 {
		t.Fatalf("%d requests", n)
	}
	dead, err := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{Endpoint: ep.Key}, surehook.Page{Limit: 10})
	if err != nil || len(dead) != 1 || dead[0].Code != surehook.Status4xx || dead[0].Attempts != 3 {
		t.Fatalf("dead letters %+v, %v", dead, err)
	}
	as := b.attempts(ep)
	if len(as) != 3 || string(as[0].Response) != "no\x00\xff" || as[0].Status != surehook.AttemptDead || as[1].Status != surehook.AttemptFailed {
		t.Errorf("attempts %+v", as)
	}
	// G-09: a replay adds attempts and leaves the old ones; a success ends the letter.
	r.Use(nil)
	if got, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{receipt.ID}}, engine.Actor{}); err != nil || got.Queued != 1 {
		t.Fatal(got, err)
	}
	b.idle()
	if as := b.attempts(ep); len(as) != 4 || as[0].Number != 4 || as[0].Status != surehook.AttemptSucceeded {
		t.Errorf("attempts %+v", as)
	}
	if dead, _ := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{}, surehook.Page{Limit: 10}); len(dead) != 0 {
		t.Errorf("dead letters %+v", dead)
	}
}

func TestG01_EveryReplayIsARequest(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r)
	receipt := b.publish("a", "1")
	b.idle()
	for i := range 3 {
		if _, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{receipt.ID}}, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		r.Wait(t, i+2)
		b.idle()
	}
}

func TestG03_ReplayTakesTheScheduledRetryOver(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, fails(1, 500))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Waits = []time.Duration{time.Hour} })
	receipt := b.publish("a", "1")
	r.Wait(t, 1)
	b.until("the retry is written", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Waiting == 1 })
	if _, err := b.Replay(t.Context(), ep.ID, engine.ReplayRequest{IDs: []string{receipt.ID}}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	b.idle() // the row is gone: nothing is scheduled any more
	if n := len(r.Requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
}

func TestG08_ReplaysThatCantBe(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"} })
	other := b.publish("b", "1")
	mine := b.publish("a", "1")
	b.idle()
	check := func(what string, want surehook.ErrorCode, id string, ids ...string) {
		t.Helper()
		if _, err := b.Replay(t.Context(), id, engine.ReplayRequest{IDs: ids}, engine.Actor{}); surehook.CodeOf(err) != want {
			t.Errorf("%s: %v", what, err)
		}
	}
	check("unsubscribed", surehook.InvalidRequest, ep.ID, mine.ID, other.ID)
	check("unknown event", surehook.InvalidRequest, ep.ID, mine.ID, "evt_nope")
	check("unknown endpoint", surehook.NotFound, "whk_nope", mine.ID)
	off := false
	if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Enabled: &off}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	check("disabled", surehook.Conflict, ep.ID, mine.ID)
	b.idle() // nothing was queued
	if n := len(r.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
}

func TestD15_GoneDisablesAndEndsWhatIsDue(t *testing.T) {
	notices := make(chan engine.Notice, 1)
	b := start(t, func(o *engine.Options) { o.Notify = func(n engine.Notice) { notices <- n } })
	gate := make(chan struct{})
	r := receivertest.New(t, always(receivertest.Answer{Status: 410, Gate: gate}))
	watcher := receivertest.New(t, nil)
	b.hook(watcher, func(w *engine.Webhook) { w.EventTypes = []string{"webhook.*"} })
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"}; w.Limits.Concurrency = 1 })
	var ids []string
	for range 4 {
		ids = append(ids, b.publish("a", "1").ID)
	}
	r.Wait(t, 1)
	close(gate)
	b.idle()
	if got := b.endpoint(ep.ID); got.Enabled || got.DisabledReason != surehook.ReasonGone {
		t.Errorf("endpoint %+v", got)
	}
	codes := map[surehook.Code]int{}
	for _, id := range ids {
		d := b.deliveries(id)[0]
		codes[d.LastCode]++
		if d.Status != surehook.Dead {
			t.Errorf("delivery %+v", d)
		}
	}
	if codes[surehook.Status410] != 1 || codes[surehook.EndpointDisabled] != 3 || len(r.Requests()) != 1 {
		t.Errorf("codes %v, %d requests", codes, len(r.Requests()))
	}
	if got := watcher.Wait(t, 1)[0]; !strings.Contains(string(got.Body), `"data":{"webhook_id":"`+ep.ID+`","reason":"gone"}`) {
		t.Errorf("told %s", got.Body)
	}
	if n := <-notices; n.WebhookID != ep.ID || n.Reason != "gone" {
		t.Errorf("notice %+v", n)
	}
}

func TestF09_OpenBreakerSpendsNoAttempts(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Concurrency = 4 })
	for range 40 {
		b.publish("a", "1")
	}
	r.Wait(t, 10)
	r.Use(nil)
	b.idle() // half-open probes find that it is well again
	for _, a := range b.attempts(ep) {
		if a.Status == surehook.AttemptDead {
			t.Errorf("attempt %+v", a)
		}
	}
	if n := len(r.Requests()); n > 40+20 {
		t.Errorf("%d requests", n)
	}
}

func TestE05_BlackHoleHoldsNobodyUp(t *testing.T) {
	b := start(t)
	hole := receivertest.New(t, always(receivertest.Answer{Hang: true}))
	b.hook(hole, func(w *engine.Webhook) { w.EventTypes = []string{"hole"}; w.Limits.Timeout = time.Minute })
	good := receivertest.New(t, nil)
	b.hook(good, func(w *engine.Webhook) { w.EventTypes = []string{"good"} })
	for range 500 {
		b.publish("hole", "1")
	}
	for i := range 50 {
		b.publish("good", "1")
		good.Wait(t, i+1)
	}
	if n := len(hole.Requests()); n > 8 {
		t.Errorf("%d requests are in the black hole, over the cap", n)
	}
}

func TestE06_ConcurrentWithinAnEndpoint(t *testing.T) {
	b := start(t)
	gate := make(chan struct{})
	r := receivertest.New(t, always(receivertest.Answer{Gate: gate}))
	b.hook(r, func(w *engine.Webhook) { w.Limits.Concurrency = 20 })
	for range 20 {
		b.publish("a", "1")
	}
	r.Wait(t, 20) // all at once: none has been answered
	close(gate)
	b.idle()
}

func TestL07_RotationSignsWithBoth(t *testing.T) {
	b := start(t)
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

func TestS02_ShutdownIsNoFailure(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, always(receivertest.Answer{Hang: true}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Timeout = time.Minute })
	b.publish("a", "1")
	r.Wait(t, 1)
	b.close() // its deadline cancels the attempt
	b.open()
	r.Use(nil)
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
