package engine_test

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
	"github.com/surehook/surehook/internal/seal"
)

// The bytes of an event are those of the time when it was accepted: on a retry
// after a restart with another api_version, and on replay to any endpoint.
func TestBytesAreFixedWhenAccepted(t *testing.T) { both(t, testBytesAreFixed) }

func testBytesAreFixed(t *testing.T, b *bed) {
	first := true
	r := receivertest.New(t, func(int, receivertest.Request) receivertest.Answer {
		if first {
			first = false
			return receivertest.Answer{Status: 500}
		}
		return receivertest.Answer{}
	})
	slow := func(w *engine.Webhook) { w.Profile, w.Limits.Waits = "pylota", []time.Duration{time.Hour} }
	ep, _ := b.hook(r, slow)
	at := time.Date(2026, 11, 5, 10, 20, 30, 123_456_789, time.FixedZone("", 2*3600))
	ev := surehook.Event{ID: "evt_fixed", Type: "message.received", Tenant: "acme", Identity: "ident_1", Owner: "mailbox", OccurredAt: at,
		Data: []byte(`{ "n": 12345678901234567890, "b":1, "a":0.10 }`)}
	if _, err := b.Publish(t.Context(), ev); err != nil {
		t.Fatal(err)
	}
	r.Wait(t, 1)
	b.until("the failure is recorded", func() bool { return len(b.attempts(ep)) == 1 })
	b.opt.APIVersion = "2027-01-01"
	b.restart()
	b.leap(2 * time.Hour)
	b.restart()
	r.Wait(t, 2)
	b.idle()
	other := receivertest.New(t, nil)
	late, _ := b.hook(other, func(w *engine.Webhook) { w.Envelope = surehook.EnvelopePylota }) // at another profile
	if _, err := b.Replay(t.Context(), late.ID, engine.ReplayRequest{IDs: []string{ev.ID}}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	other.Wait(t, 1)
	b.idle()
	want := `{"id":"evt_fixed","type":"message.received","api_version":"2026-10-01","occurred_at":"2026-11-05T08:20:30.123Z","tenant_id":"acme",` +
		`"identity_id":"ident_1","sequence":1,"data":{ "n": 12345678901234567890, "b":1, "a":0.10 }}`
	for _, got := range append(r.Requests(), other.Requests()...) {
		if string(got.Body) != want || got.ID() != ev.ID {
			t.Errorf("%s: got  %s\nwant %s", got.ID(), got.Body, want)
		}
	}
	next := b.publish("a", "1")
	b.idle()
	got := other.Requests()[1]
	if got.ID() != next.ID || !bytes.Contains(got.Body, []byte(`"api_version":"2027-01-01","occurred_at":`)) || !bytes.Contains(got.Body, []byte(`"tenant_id":null,"identity_id":null,"sequence":null,`)) {
		t.Errorf("%s", got.Body)
	}
}

// A second append of a given id changes nothing, and takes no place in the
// sequence; whichever way the events come.
func TestDeterministicIDs(t *testing.T) { both(t, testDeterministicIDs) }

func testDeterministicIDs(t *testing.T, b *bed) {
	put := func(id, data string) (engine.Receipt, error) {
		return b.Publish(t.Context(), surehook.Event{ID: id, Type: "suppression.created", Tenant: "acme", Owner: "mailbox", Data: []byte(data)})
	}
	for _, c := range []struct {
		id        string
		duplicate bool
		sequence  int64
	}{{"evt_a", false, 1}, {"evt_a", true, 1}, {"evt_b", false, 2}, {"evt_a", true, 1}, {"evt_b", true, 2}, {"evt_c", false, 3}} {
		rc, err := put(c.id, `{"of":"`+c.id+`"}`)
		if err != nil || rc.Duplicate != c.duplicate || rc.ID != c.id {
			t.Fatalf("%s: %+v, %v", c.id, rc, err)
		}
		ev, err := b.Engine.Store().Event(t.Context(), nil, c.id)
		if err != nil || ev.Sequence != c.sequence {
			t.Errorf("%s: sequence %d, %v", c.id, ev.Sequence, err)
		}
	}
	if _, err := put("evt_a", `{"other":true}`); surehook.CodeOf(err) != surehook.Conflict {
		t.Errorf("other content: %v", err)
	}
	if rc, err := put("evt_d", `1`); err != nil || rc.Duplicate {
		t.Error(rc, err)
	}
	if ev, err := b.Engine.Store().Event(t.Context(), nil, "evt_d"); err != nil || ev.Sequence != 4 {
		t.Errorf("after a refusal: %+v, %v", ev, err)
	}
}

// Long texts in the fields that the operator names are cut, before anything is
// stored; a repeat of the whole is still a repeat.
func TestTextsAreCut(t *testing.T) {
	both(t, testTextsAreCut, func(o *engine.Options) { o.TextFields, o.MaxTextBytes = []string{"extracted_text"}, 20 })
}

func testTextsAreCut(t *testing.T, b *bed) {
	r := receivertest.New(t, nil)
	b.hook(r)
	data := `{"n":12345678901234567890, "extracted_text" : "` + strings.Repeat("x", 18) + `😊 and more", "other":"` + strings.Repeat("y", 100) + `"}`
	ev := surehook.Event{ID: "evt_1", Type: "message.received", Data: []byte(data)}
	for _, duplicate := range []bool{false, true} {
		if rc, err := b.Publish(t.Context(), ev); err != nil || rc.Duplicate != duplicate {
			t.Fatal(rc, err)
		}
	}
	b.idle()
	want := strings.Replace(data, "😊 and more", "", 1)
	if got := r.Requests(); len(got) != 1 || !bytes.HasSuffix(got[0].Body, []byte(`"data":`+want+`}`)) {
		t.Errorf("%s", got[0].Body)
	}
	stored, err := b.Engine.Store().Event(t.Context(), nil, ev.ID)
	if err != nil || string(stored.Data) != want {
		t.Errorf("%s, %v", stored.Data, err)
	}
	if string(ev.Data) != data {
		t.Error("the caller's bytes were changed")
	}
	cloud := surehook.CloudEvent{Source: "/s", Content: []byte(data)}
	if _, err := b.Publish(t.Context(), surehook.Event{ID: "evt_2", Type: "a", Data: cloud.Form()}); err != nil {
		t.Fatal(err)
	}
	if stored, err := b.Engine.Store().Event(t.Context(), nil, "evt_2"); err != nil || string(stored.Content()) != want {
		t.Errorf("of a CloudEvent: %s, %v", stored.Data, err)
	}
	ev.Data = []byte(want) // the rest was another event's
	if _, err := b.Publish(t.Context(), ev); surehook.CodeOf(err) != surehook.Conflict {
		t.Errorf("what is given cut isn't what was given whole: %v", err)
	}
}

// The id of webhook.disabled is the source's function of its cause, under a key
// that is stored sealed and outlives the master key.
func TestDisabledIDIsDeterministic(t *testing.T) { both(t, testDisabledID) }

func testDisabledID(t *testing.T, b *bed) {
	fail := func(master ...[]byte) {
		t.Helper()
		ring, err := seal.NewKeyring(rand.Reader, master...)
		if err != nil {
			t.Fatal(err)
		}
		sealed, err := b.Engine.Store().Setting(t.Context(), seal.EventIDKey)
		if err != nil {
			t.Fatal(err)
		}
		key, err := ring.Open("settings", "value", seal.EventIDKey, string(sealed))
		if err != nil || len(key) != 32 || bytes.Contains(sealed, key) {
			t.Fatalf("the key isn't sealed under the current master key: %v", err)
		}
		r := receivertest.New(t, always(receivertest.Answer{Status: 410}))
		ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"} })
		cause := b.publish("a", "1").ID
		b.until("it is disabled", func() bool { return !b.endpoint(ep.ID).Enabled })
		attempt := b.attempts(ep)[0]
		mac := hmac.New(sha256.New, key)
		fmt.Fprintf(mac, "webhook.disabled:%s:%s:%d", ep.ID, cause, 1)
		var id ulid.ULID
		if err := id.SetTime(ulid.Timestamp(attempt.CreatedAt)); err != nil {
			t.Fatal(err)
		}
		copy(id[6:], mac.Sum(nil)[:10])
		want := "evt_" + id.String()
		b.until("its event is there", func() bool {
			ev, err := b.Engine.Store().Event(t.Context(), nil, want)
			return err == nil && ev.About == ep.ID && ev.Type == surehook.TypeDisabled
		})
	}
	fail(masterKey)
	fresh := bytes.Repeat([]byte{9}, 32)
	before, err := b.Engine.Store().Setting(t.Context(), seal.EventIDKey)
	if err != nil {
		t.Fatal(err)
	}
	b.opt.MasterKeys = [][]byte{fresh, masterKey}
	b.restart()
	b.opt.MasterKeys = [][]byte{fresh}
	b.restart()
	after, err := b.Engine.Store().Setting(t.Context(), seal.EventIDKey)
	if err != nil {
		t.Fatal(err)
	}
	old, err1 := seal.NewKeyring(rand.Reader, masterKey)
	now, err2 := seal.NewKeyring(rand.Reader, fresh)
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	was, err1 := old.Open("settings", "value", seal.EventIDKey, string(before))
	is, err2 := now.Open("settings", "value", seal.EventIDKey, string(after))
	if err1 != nil || err2 != nil || !bytes.Equal(was, is) {
		t.Errorf("the key didn't survive: %v, %v", err1, err2)
	}
	fail(fresh)
}

// There is no moment at which an endpoint is disabled and the news of it isn't
// either fanned out or waiting for that: it is told once, whatever ends the
// process in between.
func TestDisabledIsNeverLost(t *testing.T) { both(t, testDisabledIsNeverLost) }

func testDisabledIsNeverLost(t *testing.T, b *bed) {
	watcher := receivertest.New(t, nil)
	b.hook(watcher, func(w *engine.Webhook) { w.EventTypes = []string{surehook.TypeDisabled} })
	r := receivertest.New(t, always(receivertest.Answer{Status: 410}))
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"} })
	b.wrap = func(s surehook.Store) surehook.Store { return unread{s} }
	b.restart()
	b.publish("a", "1")
	b.until("it is disabled", func() bool { return !b.endpoint(ep.ID).Enabled })
	waiting, err := b.Engine.Store().(unread).Store.Outbox(t.Context(), 10)
	if err != nil || len(waiting) != 1 || waiting[0].Event.About != ep.ID {
		t.Fatalf("%+v, %v", waiting, err)
	}
	if n := len(watcher.Requests()); n != 0 {
		t.Fatalf("told %d times", n)
	}
	b.wrap = nil
	for range 2 { // two processes more; the first tells it
		b.restart()
		watcher.Wait(t, 1)
		b.idle()
	}
	if got := watcher.Requests(); len(got) != 1 || got[0].ID() != waiting[0].Event.ID {
		t.Errorf("%d requests", len(got))
	}
}

// unread is a store whose outbox nobody reads: as if the process ended before.
type unread struct{ surehook.Store }

// Outbox implements surehook.Appender.
func (unread) Outbox(context.Context, int) ([]surehook.OutboxEvent, error) { return nil, nil }
