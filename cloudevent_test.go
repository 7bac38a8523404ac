package surehook

import (
	"encoding/json"
	"reflect"
	"testing"
)

func TestCloudEventForm(t *testing.T) {
	for _, c := range []CloudEvent{
		{Source: "/a"},
		{Source: "/a", Content: []byte(`{"k":["}",{"\"":1}]}`)},
		{Source: "/a", Content: []byte(`"a,\"b}"`), Subject: "s", Time: "2026-01-31T12:00:00.123456789+01:00", DataContentType: "text/plain", DataSchema: "https://e.example/s"},
		{Source: "/a\"\\\u2028\n<ü>", Content: []byte(`"AP8="`), Base64: true},
		{Source: "/a", Content: []byte(`null`), Extensions: map[string]any{"z": "}\"{", "terminal": true, "seq": int64(-7), "a": ""}},
		{Source: "/a", Content: []byte(`1e400`)}, {Source: "/a", Content: []byte(`0`)}, {Source: "/a", Content: []byte(`[]`)}, {Source: "/a", Content: []byte("{ \"a\" : [1 , 2]\n}")},
		{Source: "/a", Content: []byte(`[ 1, 2 ]`)}, {Source: "/a", Content: []byte(`true`)}, {Source: "/a", Content: []byte(`"x"`)},
	} {
		e := Event{Data: c.Form()}
		if !json.Valid(e.Data) {
			t.Errorf("%+v: %s isn't JSON", c, e.Data)
		}
		got, ok := e.CloudEvent()
		if !ok || !reflect.DeepEqual(got, c) {
			t.Errorf("%s is read as %+v, want %+v", e.Data, got, c)
		}
		want := string(c.Content)
		if c.Content == nil {
			want = "null"
		}
		if string(e.Content()) != want {
			t.Errorf("content %s, want %s", e.Content(), want)
		}
	}
}

// What isn't written by Form is data like any other.
func TestOtherDataIsNoCloudEvent(t *testing.T) {
	for _, data := range []string{``, `1`, `{}`, `{"$cloudevent":{}}`, `{"$cloudevent":{"source":1}}`, `{"$cloudevent":{"subject":"a","source":"b"}}`, ` {"$cloudevent":{"source":"a"}}`,
		`{"$cloudevent":{"source":"a"},"data":1,"more":2}`, `{"$cloudevent":{"source":"a"},"data":{},"more":2}`, `{"$cloudevent":{"source":"a"},"data":"x","data_base64":"y"}`,
		`{"$cloudevent":{"source":"a"},"other":1}`, `{"$cloudevent":{"source":"a"},"data_base64":1}`, `{"$cloudevent":{"source":"a"},"data":1 }x`, `{"$cloudevent":{"source":"`, `{"$cloudevent":{"source":"}`} {
		e := Event{Data: []byte(data)}
		if c, ok := e.CloudEvent(); ok {
			t.Errorf("%s is taken for %+v", data, c)
		}
		if string(e.Content()) != data {
			t.Errorf("%s has the content %s", data, e.Content())
		}
	}
}

func FuzzSplitCloudEvent(f *testing.F) {
	f.Add([]byte(`{"$cloudevent":{"source":"a","b":"}"},"data":[1,{"}":"\""}]}`))
	f.Add([]byte(`{"$cloudevent":{"source":"a"},"data_base64":"AA=="}`))
	f.Add([]byte(`{"$cloudevent":{"source":"\`))
	f.Fuzz(func(t *testing.T, data []byte) {
		attributes, content, _, ok := SplitCloudEvent(data)
		if ok && json.Valid(data) && (!json.Valid(attributes) || content != nil && !json.Valid(content)) {
			t.Fatalf("%q is cut into %q and %q", data, attributes, content)
		}
	})
}
