package engine_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// wolf registers an endpoint of the relay's profile.
func (b *bed) wolf(r *receivertest.Receiver, change ...func(*engine.Webhook)) (*surehook.Endpoint, string) {
	b.t.Helper()
	return b.hook(r, append([]func(*engine.Webhook){func(w *engine.Webhook) { w.Profile = "purple-wolf" }}, change...)...)
}

// signedBy checks a request as the document tells its receivers to.
func signedBy(r receivertest.Request, secret string) bool {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(r.Get("X-PurpleWolf-Timestamp") + "."))
	mac.Write(r.Body)
	return r.Get("X-PurpleWolf-Signature") == "sha256="+hex.EncodeToString(mac.Sum(nil))
}

// Each attempt has its own body, which the signature is over; the event's id stays.
func TestPurpleWolfAttempts(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.Version = "1.2.3" })
	r := receivertest.New(t, func(n int, _ receivertest.Request) receivertest.Answer {
		return receivertest.Answer{Status: []int{503, 408, 429, 204}[min(n, 4)-1]}
	})
	_, secret := b.wolf(r)
	receipt, err := b.Publish(t.Context(), surehook.Event{Type: "waf.block", Data: []byte(`{"action": "block"}`)})
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for i, got := range r.Wait(t, 4) {
		if !signedBy(got, secret) {
			t.Errorf("attempt %d isn't signed by the secret that was shown", i+1)
		}
		var body struct {
			EventID    string `json:"event_id"`
			DeliveryID string `json:"delivery_id"`
			Attempt    int
			Event      json.RawMessage
		}
		if err := json.Unmarshal(got.Body, &body); err != nil {
			t.Fatal(err)
		}
		if body.Attempt != i+1 || got.Get("X-PurpleWolf-Attempt") != fmt.Sprint(i+1) || "evt_"+body.EventID != receipt.ID || seen[body.DeliveryID] ||
			len(body.DeliveryID) != 26 || string(body.Event) != `{"action": "block"}` {
			t.Errorf("attempt %d: %s", i+1, got.Body)
		}
		seen[body.DeliveryID] = true
		if got.Get("User-Agent") != "purple-wolf-relay/1.2.3" || got.Get("Content-Type") != "application/json" {
			t.Errorf("%q", got.Header)
		}
		for _, h := range got.Header {
			if n := strings.ToLower(h); strings.HasPrefix(n, "webhook-") || strings.HasPrefix(n, "surehook-") {
				t.Errorf("another profile's header: %s", h)
			}
		}
	}
	b.idle()
}

// §2 and §9 of the document: what each answer means, held against real answers.
func TestPurpleWolfOutcomes(t *testing.T) {
	t.Parallel() // it waits, mostly
	b := start(t, func(o *engine.Options) { o.MaxWebhooks = -1 })
	type answer struct {
		name string
		a    receivertest.Answer
		want string // delivered, retried or dead
	}
	var cases []answer
	status := func(want string, statuses ...int) {
		for _, s := range statuses {
			cases = append(cases, answer{fmt.Sprint(s), receivertest.Answer{Status: s, Header: []string{"Location: /elsewhere", "Retry-After: 3600"}}, want})
		}
	}
	status("delivered", 200, 201, 202, 204, 206, 226, 299)
	status("retried", 408, 429, 500, 501, 502, 503, 504, 505, 507, 511, 599)
	status("dead", 300, 301, 302, 303, 304, 307, 308, 399, 400, 401, 402, 403, 404, 405, 406, 407, 409, 410, 411, 412, 413, 414, 415, 418, 421, 422, 423, 425, 426, 428, 430, 431, 451, 499)
	cases = append(cases, answer{"reset", receivertest.Answer{Reset: true}, "retried"}, answer{"closed", receivertest.Answer{Close: true}, "retried"},
		answer{"timeout", receivertest.Answer{Hang: true}, "retried"}, answer{"no HTTP", receivertest.Answer{Raw: "SSH-2.0-x\r\n\r\n"}, "retried"})
	receivers := map[string]*receivertest.Receiver{}
	hooks := map[string]*surehook.Endpoint{}
	for _, c := range cases {
		r := receivertest.New(t, func(n int, _ receivertest.Request) receivertest.Answer {
			if n == 1 {
				return c.a
			}
			return receivertest.Answer{}
		})
		receivers[c.name] = r
		hooks[c.name], _ = b.wolf(r, func(w *engine.Webhook) { w.Limits.Timeout = 500 * time.Millisecond })
	}
	if _, err := b.Publish(t.Context(), surehook.Event{Type: "a", Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	b.idle()
	for _, c := range cases {
		letters, err := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{Endpoint: hooks[c.name].Key}, surehook.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		n, dead := len(receivers[c.name].Requests()), len(letters)
		got := fmt.Sprintf("%d requests, %d dead", n, dead)
		if want := map[string]string{"delivered": "1 requests, 0 dead", "retried": "2 requests, 0 dead", "dead": "1 requests, 1 dead"}[c.want]; got != want {
			t.Errorf("%s: %s, want %s", c.name, got, want)
		}
		if ep, err := b.store.Endpoint(t.Context(), hooks[c.name].ID); err != nil || !ep.Enabled {
			t.Errorf("%s: no answer disables the endpoint: %v", c.name, err)
		}
	}
}

// A handshake that fails is tried again, and the last attempt ends in a dead letter.
func TestPurpleWolfTLSFailureIsRetriedToTheEnd(t *testing.T) {
	b := start(t)
	srv := httptest.NewTLSServer(http.NotFoundHandler()) // its certificate is nobody's
	srv.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer srv.Close()
	ep, _ := b.wolf(receivertest.New(t, nil), func(w *engine.Webhook) { w.URL = srv.URL })
	if _, err := b.Publish(t.Context(), surehook.Event{Type: "a", Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	b.idle()
	letters, err := b.store.ListDeadLetters(t.Context(), surehook.DeadLetterFilter{Endpoint: ep.Key}, surehook.Page{Limit: 10})
	if err != nil || len(letters) != 1 || letters[0].Code != surehook.TLS || letters[0].Attempts != 4 {
		t.Errorf("%+v, %v", letters, err)
	}
}

// Any text is a secret, an overlap has no room, and the other schemes' endpoints
// don't become this one's.
func TestPurpleWolfSettings(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	ep, shown := b.wolf(r, func(w *engine.Webhook) { w.Secret = "whsec_as it stands, ünd short" })
	if shown != "whsec_as it stands, ünd short" || ep.Envelope != surehook.EnvelopePurpleWolf {
		t.Errorf("%s, %s", shown, ep.Envelope)
	}
	if _, _, err := b.RotateSecret(t.Context(), ep.ID, time.Hour, engine.Actor{}); surehook.CodeOf(err) != surehook.InvalidRequest || !strings.Contains(err.Error(), "one secret") {
		t.Errorf("an overlap: %v", err)
	}
	_, rotated, err := b.RotateSecret(t.Context(), ep.ID, 0, engine.Actor{})
	if err != nil || len(rotated) != 64 {
		t.Fatalf("%q, %v", rotated, err)
	}
	if a, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil || a.Status != surehook.AttemptSucceeded {
		t.Fatal(a, err)
	}
	if got := r.Wait(t, 1)[0]; !signedBy(got, rotated) || !strings.HasSuffix(string(got.Body), `"event":{"message":"hello"}}`) {
		t.Errorf("%q\n%s", got.Header, got.Body)
	}
	other, _ := b.hook(r)
	wolf, standard := "purple-wolf", "standard"
	payload := surehook.EnvelopePayload
	for name, err := range map[string]error{
		"from standard": second(b.UpdateWebhook(t.Context(), other.ID, engine.Patch{Profile: &wolf}, engine.Actor{})),
		"to standard":   second(b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Profile: &standard}, engine.Actor{})),
		"envelope":      second(b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Envelope: &payload}, engine.Actor{})),
		"v1a":           third(b.CreateWebhook(t.Context(), engine.Webhook{URL: r.URL, Profile: wolf, Signature: "v1a"}, engine.Actor{})),
		"other's":       third(b.CreateWebhook(t.Context(), engine.Webhook{URL: r.URL, Envelope: surehook.EnvelopePurpleWolf}, engine.Actor{})),
		"long secret":   third(b.CreateWebhook(t.Context(), engine.Webhook{URL: r.URL, Profile: wolf, Secret: strings.Repeat("x", 16<<10+1)}, engine.Actor{})),
	} {
		if surehook.CodeOf(err) != surehook.InvalidRequest {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func second[T any](_ T, err error) error        { return err }
func third[T, U any](_ T, _ U, err error) error { return err }

// Two versions of the schema go to one URL, in deliveries of their own.
func TestPurpleWolfTwoSchemas(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	b.wolf(r)
	b.wolf(r, func(w *engine.Webhook) { w.Envelope = surehook.PurpleWolfEnvelope(2) })
	if _, err := b.Publish(t.Context(), surehook.Event{Type: "a", Data: []byte("{}")}); err != nil {
		t.Fatal(err)
	}
	schemas := map[string]int{}
	for _, got := range r.Wait(t, 2) {
		schema := got.Get("X-PurpleWolf-Schema")
		if schemas[schema]++; !strings.HasPrefix(string(got.Body), `{"schema":"`+schema+`",`) {
			t.Errorf("%s: %s", schema, got.Body)
		}
	}
	if len(schemas) != 2 || schemas["purple-wolf.audit/v1"] != 1 || schemas["purple-wolf.audit/v2"] != 1 {
		t.Error(schemas)
	}
}
