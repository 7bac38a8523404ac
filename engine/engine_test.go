package engine_test

import (
	"strconv"
	"strings"
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

// B-01: a retry hours later is signed for its own time, under the same id.
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

// E-01: one event, five retries, one an endpoint.
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

// D-05: a limit of three is three requests, three attempts and a dead letter.
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

// G-01: a replay is never the same as the one before.
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

// G-03: there is one row, so a replay is the retry, now.
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

// G-08: what can't be replayed is refused, and nothing of it queued.
func TestG08_ReplaysThatCantBe(t *testing.T) { both(t, testG08ReplaysThatCantBe) }

func testG08ReplaysThatCantBe(t *testing.T, b *bed) {
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

// D-15, D-17: a 410 ends its own delivery and the endpoint; what was due behind it
// ends visibly, and nothing is asked again.
func TestD15_GoneDisablesAndEndsWhatIsDue(t *testing.T) {
	notices := make(chan engine.Notice, 1)
	both(t, func(t *testing.T, b *bed) { testD15Gone(t, b, notices) }, func(o *engine.Options) { o.Notify = func(n engine.Notice) { notices <- n } })
}

func testD15Gone(t *testing.T, b *bed, notices <-chan engine.Notice) {
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

// E-06: as many at once as the endpoint's limit says.
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
