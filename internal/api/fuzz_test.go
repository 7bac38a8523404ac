package api_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/surehook/surehook/internal/api"
)

// FuzzDecodeEvent: what is taken means to encoding/json what it means to us, and
// data is a piece of the body as it stands.
func FuzzDecodeEvent(f *testing.F) {
	for _, seed := range []string{
		`{"type":"a","data":1}`, `{"type":"a.b","data":{"k":["}",{"\"":1}]},"id":"x","tenant_id":"t","identity_id":"i","owner":"o","subjects":["s","\u00e9"],"occurred_at":"2026-01-31T12:00:00Z"}`,
		` { "data" : null , "type" : "a" } `, `{"data":"\ud83d\ude00","type":"\u0061"}`, `{"type":"a","data":1}x`, `{"type":"a","data":}`, `{"type":"a",}`, "{\"type\":\"\xff\"}", `{"typ\u0065":"a"}`,
		`{"type":"a","type":"b"}`, `{"data":[[[[1]]]}`, `{"data":{]}}`, `{"subjects":["\ud800"]}`, `[]`, ``, `{`, `{"a"`, `{"type":1e5,"data":-}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		given := string(body)
		ev, err := api.DecodeEvent(body)
		if string(body) != given {
			t.Fatal("the body was changed")
		}
		if err != nil || (len(ev.Data) > 0 && !json.Valid(ev.Data)) {
			if err != nil && len(err.Error()) > 600 {
				t.Fatalf("a long error: %s", err)
			}
			return // the engine refuses the data
		}
		if !json.Valid(body) {
			t.Fatalf("taken, and isn't JSON: %q", body)
		}
		if !strings.Contains(given, string(ev.Data)) {
			t.Fatalf("data %q isn't in %q", ev.Data, body)
		}
		var want struct {
			Type, ID string
			Subjects []string
			Data     json.RawMessage
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q: %v", body, err)
		}
		if ev.Type != want.Type || ev.ID != want.ID || len(ev.Subjects) != len(want.Subjects) || string(ev.Data) != string(want.Data) {
			t.Fatalf("%q is %+v, want %+v", body, ev, want)
		}
		for i, s := range ev.Subjects {
			if s != want.Subjects[i] || !utf8.ValidString(s) {
				t.Fatalf("%q: subject %q, want %q", body, s, want.Subjects[i])
			}
		}
	})
}

// FuzzDecodeBatch: the pieces of a batch that is JSON are its events.
func FuzzDecodeBatch(f *testing.F) {
	for _, seed := range []string{`{"events":[{"type":"a","data":1},{}]}`, ` {"events" : [ 1 , "]" , [2] ] } `, `{"events":[]}`, `{"events":[1,]}`, `{"events":{}}`, `{"events":[1],"events":[2]}`, `{"x":1}`, `{"events":[{]}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		got, err := api.Batch(body)
		if err != nil || !json.Valid(body) {
			return
		}
		var want struct{ Events []json.RawMessage }
		if err := json.Unmarshal(body, &want); err != nil || len(want.Events) != len(got) {
			t.Fatalf("%q: %d events, want %d (%v)", body, len(got), len(want.Events), err)
		}
		for i := range got {
			if string(got[i]) != string(want.Events[i]) {
				t.Fatalf("%q: event %d is %q", body, i, got[i])
			}
		}
	})
}

// FuzzHugeNumber: it ends, and calls no text huge that has few digits.
func FuzzHugeNumber(f *testing.F) {
	for _, seed := range []string{`1e400`, `[1e99999]`, `"1e99999"`, `{"a":-1E+0005}`, `1e`, `"`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		digits := 0
		for _, c := range data {
			if c >= '0' && c <= '9' {
				digits++
			}
		}
		if json.Valid(data) && digits < 4 && api.HugeNumber(data) {
			t.Fatalf("%q", data)
		}
	})
}
