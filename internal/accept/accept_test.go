package accept

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// The two checks must agree, or a body would be accepted by its length.
func FuzzValidJSON(f *testing.F) {
	for _, s := range []string{`1`, `-0`, `01`, `1e400`, `1.`, `.5`, `"\u12"`, `"\x"`, "\"\x01\"", `{"a":1,}`, `[1 2]`, `nul`, ``, ` `, `{} {}`, `{"a"}`, `[,]`,
		"\"\u2028\"", `"\ud800"`, `tru`, `-`, `1E+`, `{"a":1}`, "\ufeff1", "[1]\x00", "\v1"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 8<<10 {
			return
		}
		if got, want := validJSON(data), json.Valid(data); got != want {
			t.Errorf("%q: %t, the standard library says %t", data, got, want)
		}
	})
}

func TestEventsAreMadeReady(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 123_456_789, time.FixedZone("", 3600))
	trace := "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	given := []surehook.Event{
		{Type: "a.b", Data: []byte(`1`), Key: 7, Sequence: 9, About: "whk_1", Erased: true, Trace: "x"},
		{Type: "a.b", Data: []byte(`1`), ID: "own", OccurredAt: now.Add(-time.Hour), Trace: trace},
	}
	out, err := Events(given, now)
	if err != nil {
		t.Fatal(err)
	}
	a, b := out[0], out[1]
	if a.Key != 0 || a.Sequence != 0 || a.About != "" || a.Erased || a.Trace != "" || !strings.HasPrefix(a.ID, "evt_") || len(a.ID) != 30 ||
		!a.OccurredAt.Equal(now.Truncate(time.Millisecond)) {
		t.Errorf("%+v", a)
	}
	if b.ID != "own" || b.Trace != trace || !b.OccurredAt.Equal(now.Add(-time.Hour).Truncate(time.Millisecond)) {
		t.Errorf("%+v", b)
	}
	if given[0].ID != "" || given[0].Key != 7 {
		t.Error("the caller's event was changed")
	}
}

func TestRefusalsNameTheFieldAndTheEvent(t *testing.T) {
	good := surehook.Event{Type: "a.b", Data: []byte(`1`)}
	for path, change := range map[string]func(*surehook.Event){
		"type":        func(e *surehook.Event) { e.Type = surehook.TypeTest },
		"id":          func(e *surehook.Event) { e.ID = "secret.value" },
		"data":        func(e *surehook.Event) { e.Data = []byte(`"` + strings.Repeat("x", Usual.Bytes) + `"`) },
		"occurred_at": func(e *surehook.Event) { e.OccurredAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) },
		"tenant_id":   func(e *surehook.Event) { e.Tenant = "secret value" },
		"identity_id": func(e *surehook.Event) { e.Identity = "sécret" },
		"owner":       func(e *surehook.Event) { e.Owner = strings.Repeat("x", 201) },
		"subjects[1]": func(e *surehook.Event) { e.Subjects = []string{"a", "secret\x00value"} },
		"subjects":    func(e *surehook.Event) { e.Subjects = make([]string, 17) },
	} {
		bad := good
		change(&bad)
		for want, events := range map[string][]surehook.Event{path: {bad}, "events[1]." + path: {good, bad}} {
			_, err := Events(events, time.Now())
			e, ok := errors.AsType[*surehook.Error](err)
			if !ok || e.Code != surehook.InvalidRequest || e.Fields[0].Path != want || strings.Contains(err.Error(), "secret") {
				t.Errorf("%s: %v", want, err)
			}
		}
	}
}
