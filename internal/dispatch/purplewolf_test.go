package dispatch

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/profile"
	"github.com/surehook/surehook/signing"
)

const (
	wolfSecret = "correct horse battery staple"
	wolfObject = `{"host":"checkout.acme.example","path":"/api/v1/cart","query":"id=1%27+OR+%271%27%3D%271","method":"POST","source_ip":"203.0.113.7","action":"block","blocked_rule":"injection/sqli","blocked_severity":"critical","blocked_detail":"SQLi in field: …","would_block_rules":["reputation/rate_limited"]}`
)

func wolfRoute(t *testing.T, env surehook.Envelope) *route {
	t.Helper()
	key, err := signing.RawSecret([]byte(wolfSecret))
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signing.NewPurpleWolf(key)
	if err != nil {
		t.Fatal(err)
	}
	return &route{Endpoint: &surehook.Endpoint{}, profile: profile.PurpleWolf, envelope: env, signer: signer,
		header: []egress.Field{{Name: "Content-Type", Value: "application/json"}, {Name: "User-Agent", Value: profile.PurpleWolf.Agent("0.1.0")}}}
}

// onWire is one request of the profile as it goes out.
func onWire(t *testing.T, env surehook.Envelope, ev *surehook.Event, number int) string {
	t.Helper()
	r := wolfRoute(t, env)
	a := &surehook.Attempt{ID: fmt.Sprintf("dlv_01HXYZ7F8GZG23P4M2RKN9Y4Q%c", 'F'+number), Number: number,
		CreatedAt: time.Date(2026, 5, 25, 17, 30, 2, 123456789, time.UTC).Add(time.Duration(number-1) * 1500 * time.Millisecond)}
	body := r.body(newParcel(ev), a)
	var b strings.Builder
	for _, f := range r.fields(ev, a, body) {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	fmt.Fprintf(&b, "\n%s\n", body)
	return b.String()
}

func wolfCases() []struct {
	name string
	env  surehook.Envelope
	ev   surehook.Event
	n    int
} {
	type c = struct {
		name string
		env  surehook.Envelope
		ev   surehook.Event
		n    int
	}
	v1 := surehook.EnvelopePurpleWolf
	id, labels := "01HXYZ7F8GZG23P4M2RKN9Y4QF", []byte(`{"environment":"prod","service":"checkout-api","tenant":"acme"}`)
	audit := func(data []byte) surehook.Event { return surehook.Event{ID: id, Type: surehook.TypeAudit, Data: data} }
	return []c{
		{"the document's own", v1, audit(Audit(labels, "strict-waf", "checkout", "web", "relay-abc-1", []byte(wolfObject))), 1},
		{"a second attempt", v1, audit(Audit(labels, "strict-waf", "checkout", "web", "relay-abc-1", []byte(wolfObject))), 2},
		{"the next major", surehook.PurpleWolfEnvelope(2), audit(Audit(labels, "strict-waf", "checkout", "web", "relay-abc-1", []byte(wolfObject))), 1},
		{"no labels, nothing of the line known", v1, audit(Audit(nil, "", "", "", "relay-abc-1", []byte(`{"action":"allow","would_block_rules":[]}`))), 1},
		{"bytes that serialisers change", v1, audit(Audit(nil, `a"<b>&\`, "", "wëb\u2028", "r", []byte("{ \"z\" : 1.50, \"a\":\"<&>\\u003c\u2028\",\n\"z\":1e+2 }"))), 1},
		{"an event of the API's", v1, surehook.Event{ID: "evt_" + id, Type: "waf.block", Tenant: "acme", Data: []byte(`{"action":"block"}`)}, 1},
		{"an event with an id of its own", v1, surehook.Event{ID: "order_" + id, Type: surehook.TypeAudit, Data: []byte(wolfObject)}, 1},
	}
}

// The wire contract, byte for byte, as receivers of the original know it.
func TestPurpleWolfOnTheWire(t *testing.T) {
	const file = "testdata/purplewolf.txt"
	var b strings.Builder
	for _, c := range wolfCases() {
		fmt.Fprintf(&b, "# %s\n%s\n", c.name, onWire(t, c.env, &c.ev, c.n))
	}
	if *write {
		if err := os.WriteFile(file, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if b.String() != string(want) {
		t.Errorf("the wire has changed:\n%s", b.String())
	}
}

// What the receivers of the document check: the signature over the raw body, and
// that header and body say the same.
func TestPurpleWolfAsAReceiverReadsIt(t *testing.T) {
	for _, c := range wolfCases() {
		head, body, _ := strings.Cut(strings.TrimSuffix(onWire(t, c.env, &c.ev, c.n), "\n"), "\n\n")
		h := map[string]string{}
		for line := range strings.Lines(head) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
			if _, twice := h[name]; twice {
				t.Errorf("%s: %s is there twice", c.name, name)
			}
			h[name] = value
		}
		mac := hmac.New(sha256.New, []byte(wolfSecret))
		mac.Write([]byte(h["X-PurpleWolf-Timestamp"] + "." + body))
		if want := "sha256=" + hex.EncodeToString(mac.Sum(nil)); h["X-PurpleWolf-Signature"] != want {
			t.Errorf("%s: the signature is %s", c.name, h["X-PurpleWolf-Signature"])
		}
		var e struct {
			Schema     string          `json:"schema"`
			EventID    string          `json:"event_id"`
			DeliveryID string          `json:"delivery_id"`
			At         time.Time       `json:"delivered_at"`
			Attempt    int             `json:"attempt"`
			Labels     json.RawMessage `json:"labels"`
			Source     map[string]any  `json:"source"`
			Event      json.RawMessage `json:"event"`
		}
		if err := json.Unmarshal([]byte(body), &e); err != nil {
			t.Fatal(c.name, err)
		}
		if e.Schema != h["X-PurpleWolf-Schema"] || e.EventID != h["X-PurpleWolf-Event-Id"] || e.DeliveryID != h["X-PurpleWolf-Delivery-Id"] ||
			fmt.Sprint(e.Attempt) != h["X-PurpleWolf-Attempt"] || fmt.Sprint(e.At.Unix()) != h["X-PurpleWolf-Timestamp"] {
			t.Errorf("%s: header and body differ:\n%s\n%s", c.name, head, body)
		}
		if instance, _ := e.Source["relay_instance"].(string); len(e.Source) != 4 || instance == "" || len(e.Event) == 0 || string(e.Labels) == "{}" {
			t.Errorf("%s: %s", c.name, body)
		}
	}
}

// Only what Audit makes is taken for the rest of an envelope; all else is an event.
func TestIsAudit(t *testing.T) {
	for data, want := range map[string]bool{
		string(Audit(nil, "", "", "", "r", []byte(`{}`))):                    true,
		string(Audit([]byte(`{"a":"b"}`), "m", "r", "e", "r", []byte(`{}`))): true,
		string(Audit([]byte(`{}`), "m", "r", "e", "r", []byte(`{}`))):        false,
		string(Audit([]byte(`{"a":1}`), "m", "r", "e", "r", []byte(`{}`))):   false,
		string(Audit(nil, "", "", "", "r", []byte(`1`))):                     false,
		wolfObject: false,
		`{"labels":{"a":"b"},"action":"block","would_block_rules":[]}`:                                             false,
		`{"source":{},"event":{}}`:                                                                                 false,
		`{"source":{"middleware":null,"router":null,"entry_point":null,"relay_instance":null},"event":{}}`:         false,
		`{"source":{"middleware":null,"router":null,"entry_point":null,"relay_instance":"r"},"event":{},"more":1}`: false,
		`{"source":{"middleware":null,"router":null,"entry_point":null,"relay_instance":"r","more":1},"event":{}}`: false,
		`{"event":{},"source":{"middleware":null,"router":null,"entry_point":null,"relay_instance":"r"}}`:          false,
		`{}`: false, `[]`: false, `1`: false, ``: false,
	} {
		if got := IsAudit([]byte(data)); got != want {
			t.Errorf("%s: %v", data, got)
		}
	}
}

func FuzzAuditTail(f *testing.F) {
	f.Add([]byte(wolfObject))
	f.Add(Audit([]byte(`{"a":"b"}`), "m", "", "e", "r", []byte(wolfObject)))
	f.Fuzz(func(t *testing.T, data []byte) {
		if !json.Valid(data) {
			return
		}
		tail := auditTail(&surehook.Event{Type: surehook.TypeAudit, Data: data})
		var e map[string]json.RawMessage
		if err := json.Unmarshal([]byte("{"+string(tail)), &e); err != nil || e["source"] == nil || e["event"] == nil {
			t.Errorf("%q makes %q: %v", data, tail, err)
		}
	})
}
