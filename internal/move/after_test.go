package move_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// signature is computed without our own library.
func signature(t *testing.T, secret string, r receivertest.Request) string {
	t.Helper()
	key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		t.Fatal(err)
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(r.ID() + "." + r.Get("webhook-timestamp") + "."))
	mac.Write(r.Body)
	return "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// to gives what came to an endpoint's path, from a request on.
func (f *filled) to(path string, from int) []receivertest.Request {
	var out []receivertest.Request
	for _, r := range f.receiver.Requests()[from:] {
		if strings.HasPrefix(r.Line, "POST "+path+" ") {
			out = append(out, r)
		}
	}
	return out
}

// signed: what was due goes out under the old secrets, and so does what waited
// for its fan-out.
func (f *filled) signed(t *testing.T, e *engine.Engine, from int) {
	t.Helper()
	ids := func(path string) map[string]bool {
		out := map[string]bool{}
		for _, r := range f.to(path, from) {
			out[r.ID()] = true
		}
		return out
	}
	f.await(t, "what was pending", func() bool {
		return len(ids("/broken/waiting")) >= 4 && ids("/ok")["evt_outbox"] && ids("/tenant")["evt_outbox"] && ids("/broken/dead")["evt_outbox"]
	})
	for _, r := range f.to("/broken/waiting", from) {
		for _, name := range []string{"waiting", "old"} {
			if !strings.Contains(r.Get("webhook-signature"), signature(t, f.secret[name], r)) {
				t.Errorf("%s isn't signed with the secret %q", r.ID(), name)
			}
		}
	}
	for _, r := range f.to("/ok", from) {
		if r.Get("webhook-signature") != signature(t, f.secret["ok"], r) || r.Get("X-A") != "ü\"" {
			t.Errorf("%s isn't signed", r.ID())
		}
	}
	if ids("/broken/deleted")["evt_outbox"] || ids("/partner")["evt_outbox"] || ids("/younger")["evt_outbox"] {
		t.Error("an endpoint got what isn't for it")
	}
	f.await(t, "the replay", func() bool {
		r, err := e.Store().GetReplay(t.Context(), f.running)
		f.must(t, err)
		return r.State == surehook.ReplayDone
	})
}

// known: ids that were taken, API keys, and answers to repeat.
func (f *filled) known(t *testing.T, e *engine.Engine) {
	t.Helper()
	ev := bulkEvent(5)
	if r, err := e.Publish(t.Context(), ev); err != nil || !r.Duplicate {
		t.Errorf("a repeat: %+v, %v", r, err)
	}
	ev.Data = []byte(`2`)
	if _, err := e.Publish(t.Context(), ev); surehook.CodeOf(err) != surehook.Conflict {
		t.Errorf("its id with other content: %v", err)
	}
	if _, err := e.Publish(t.Context(), bulkEvent(2)); err != nil {
		t.Errorf("an id whose event went: %v", err)
	}
	s := e.Store()
	if k, err := s.KeyByHash(t.Context(), []byte("hash")); err != nil || k.ID != "key_1" || k.Tenant != "t1" || len(k.Permissions) != 1 {
		t.Errorf("%+v, %v", k, err)
	}
	if k, err := s.KeyByHash(t.Context(), []byte("hash2")); err != nil || k.RevokedAt.UnixMilli() != 9 {
		t.Errorf("%+v, %v", k, err)
	}
	if h, answer, err := s.Reserve(t.Context(), "key_1", "once", []byte("request")); err != nil || string(h) != "request" || string(answer) != "answer\x00\xff" {
		t.Errorf("%q %q %v", h, answer, err)
	}
}

// looks: history is as it was, and what is new comes after it.
func (f *filled) looks(t *testing.T, e *engine.Engine) {
	t.Helper()
	ctx, s := t.Context(), e.Store()
	if _, err := s.Endpoint(ctx, f.ids["deleted"]); surehook.CodeOf(err) != surehook.NotFound {
		t.Errorf("what was deleted: %v", err)
	}
	if ep, err := s.Endpoint(ctx, f.ids["disabled"]); err != nil || ep.Enabled || ep.DisabledReason != surehook.ReasonManual {
		t.Errorf("%+v, %v", ep, err)
	}
	one := surehook.Page{Limit: 1}
	old, err := s.Event(ctx, nil, bulkEvent(3).ID)
	f.must(t, err)
	if erased, err := s.Event(ctx, nil, bulkEvent(1).ID); err != nil || !erased.Erased {
		t.Errorf("%+v, %v", erased, err)
	}
	as, err := s.EventAttempts(ctx, old.Key, 0, surehook.Page{Limit: 10})
	if err != nil || len(as) != 2 || as[0].Number != 2 || as[0].Status != surehook.AttemptSucceeded {
		t.Errorf("replayed before the move: %+v, %v", as, err)
	}
	letters, err := s.ListDeadLetters(ctx, surehook.DeadLetterFilter{Endpoint: f.key(t, e, "waiting")}, one)
	if err != nil || len(letters) != 0 {
		t.Errorf("%+v, %v", letters, err)
	}
	waiting, err := s.EndpointAttempts(ctx, f.key(t, e, "waiting"), surehook.Page{Limit: 100})
	f.must(t, err)
	if first := waiting[len(waiting)-1]; !strings.HasPrefix(string(first.Response), "no\x00\xff\xfe") || first.EventID == "" || first.Status != surehook.AttemptFailed {
		t.Errorf("%+v", first)
	}
	before := len(f.to("/broken/waiting", 0))
	if r, err := e.Replay(ctx, f.ids["waiting"], engine.ReplayRequest{IDs: []string{"one-0"}}, engine.Actor{}); err != nil || r.Queued == 0 {
		t.Errorf("%+v, %v", r, err)
	}
	f.await(t, "the replay of an event", func() bool { return len(f.to("/broken/waiting", 0)) > before })
	if _, err := e.Publish(ctx, surehook.Event{ID: "evt_new", Type: "one.new", Owner: "owner", Data: []byte(`1`)}); err != nil {
		t.Error(err)
	}
	f.await(t, "what is new, at an endpoint that is younger than the outbox", func() bool { return len(f.to("/younger", 0)) > 0 })
	evs, err := s.ListEvents(ctx, surehook.EventFilter{}, one)
	if err != nil || len(evs) != 1 || evs[0].ID != "evt_new" {
		t.Errorf("%+v, %v", evs, err)
	}
	if _, _, err := e.CreateWebhook(ctx, engine.Webhook{URL: f.receiver.URL + "/new", EventTypes: []string{"never"}}, engine.Actor{}); err != nil {
		t.Error(err)
	}
	eps, err := s.ListEndpoints(ctx, surehook.EndpointFilter{}, one)
	if err != nil || len(eps) != 1 || !strings.HasSuffix(eps[0].URL, "/new") {
		t.Errorf("%+v, %v", eps, err)
	}
}

// bulkTime is when they occurred: lately, or they couldn't be replayed.
var bulkTime = time.Now().Add(-24 * time.Hour).UnixMilli()

func bulkEvent(n int) surehook.Event {
	return surehook.Event{ID: fmt.Sprintf("bulk-%d", n), Type: "bulk.a", OccurredAt: time.UnixMilli(bulkTime + int64(n)), Data: fmt.Appendf(nil, `{"n":%d,"é":"\u0000"}`, n)}
}
