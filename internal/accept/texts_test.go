package accept

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"
	"unicode/utf8"
)

func texts(t testing.TB, most int, fields ...string) Texts {
	t.Helper()
	x, err := NewTexts(fields, most)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// Only the text is shorter afterwards: every other byte is as it was.
func TestTextsAreCutBetweenCharacters(t *testing.T) {
	for in, want := range map[string]string{
		`{"t":"abcdef"}`:              `{"t":"abcde"}`,
		`{"t":"abcde"}    `:           `{"t":"abcde"}    `,
		`{"t":"abcdé"}`:               `{"t":"abcd"}`,
		`{"t":"a😊b"}`:                 `{"t":"a😊"}`,
		`{"t":"ab😊"}`:                 `{"t":"ab"}`,
		`{"t":"ab\ud83d\ude0a"}`:      `{"t":"ab"}`,
		`{"t":"a\ud83d\ude0az"}`:      `{"t":"a\ud83d\ude0a"}`,
		`{"t":"abc\ud83dz"}`:          `{"t":"abc"}`,
		`{"t":"\u00e9\u00e9\u00e9"}`:  `{"t":"\u00e9\u00e9"}`,
		`{"t":"\n\"\\\/\tx\""}`:       `{"t":"\n\"\\\/\t"}`,
		`{"t":"abcdef","t":"ghijkl"}`: `{"t":"abcde","t":"ghijk"}`,
		`{"\u0074":"abcdef"}`:         `{"\u0074":"abcde"}`,
		` { "z" : 1e400 , "t" : "abcdef" , "n":123456789012345678901234567890, "a":0.10 } `: ` { "z" : 1e400 , "t" : "abcde" , "n":123456789012345678901234567890, "a":0.10 } `,
		`{"x":{"t":"abcdefghi"},"s":"abcdefghi"}`:                                           `{"x":{"t":"abcdefghi"},"s":"abcdefghi"}`,
		`{"m":{"t":"abcdefghi","u":["t",{}]},"t":["abcdefghi","b"]}`:                        `{"m":{"t":"abcde","u":["t",{}]},"t":["abcde","b"]}`,
		`{"m":[{"t":"abcdefghi"},7,[{"t":"abcdefghi"}],{"t":"0123456"}]}`:                   `{"m":[{"t":"abcde"},7,[{"t":"abcdefghi"}],{"t":"01234"}]}`,
		`{"t":12345678,"m":"abcdefghi"}`:                                                    `{"t":12345678,"m":"abcdefghi"}`,
		`["abcdefghi"]`:                                                                     `["abcdefghi"]`,
		`[{"t":"abcdefghi"}]`:                                                               `[{"t":"abcde"}]`,
		`"abcdefghi"`:                                                                       `"abcdefghi"`,
		`{"t":{"t":"abcdefghi"},"m":{"m":[]}}`:                                              `{"t":{"t":"abcdefghi"},"m":{"m":[]}}`,
		`{"m":{},"t":"abcdefghi"}`:                                                          `{"m":{},"t":"abcde"}`,
	} {
		before := in
		if got := string(texts(t, 5, "t", "m.t").Cut([]byte(in))); got != want || in != before {
			t.Errorf("%s\n got %s\nwant %s", in, got, want)
		}
	}
}

func TestTextsThatFitStay(t *testing.T) {
	data := []byte(`{"extracted_text":"` + strings.Repeat("x", DefaultText) + `"}`)
	if got := texts(t, DefaultText, "extracted_text").Cut(data); &got[0] != &data[0] {
		t.Error("what needs no cut was copied")
	}
	if got := texts(t, 5).Cut(data); &got[0] != &data[0] {
		t.Error("no field is named, and something was cut")
	}
}

func TestTextsRefusesWhatItCantCut(t *testing.T) {
	for _, f := range [][]string{{""}, {"a..b"}, {".a"}, {"a."}, make([]string, 33)} {
		if _, err := NewTexts(f, 5); err == nil {
			t.Errorf("%q", f)
		}
	}
	for _, most := range []int{0, -1, MaxText + 1} {
		if _, err := NewTexts(nil, most); err == nil {
			t.Error(most)
		}
	}
}

// Whatever the JSON, what comes out is JSON that differs in those texts alone.
func FuzzTexts(f *testing.F) {
	for _, s := range []string{`{"t":"abcdef"}`, `{"m":[{"t":"a\ud83d\ude0az😊"}]}`, `{"t":"\u0000\u0000\u0000\u0000\u0000\u0000"}`, `[[{"t":"abcdef"}]]`, `{"t":"abcdé\"]}`} {
		f.Add([]byte(s))
	}
	x := texts(f, 5, "t", "m.t")
	f.Fuzz(func(t *testing.T, data []byte) {
		was := bytes.Clone(data)
		got := x.Cut(data)
		if !bytes.Equal(was, data) {
			t.Fatal("the data was changed in place")
		}
		if !json.Valid(data) || !utf8.Valid(data) {
			return // never given
		}
		if !json.Valid(got) || !utf8.Valid(got) {
			t.Fatalf("%s became %s", data, got)
		}
		var a, b any
		if json.Unmarshal(data, &a) != nil || json.Unmarshal(got, &b) != nil {
			return // numbers that Go can't hold
		}
		if bytes.ContainsAny(data, `\`) || bytes.Count(data, []byte(`"t"`)) > 1 {
			return
		}
		if m, ok := a.(map[string]any); ok {
			if s, ok := m["t"].(string); ok {
				for len(s) > 5 || !utf8.ValidString(s) {
					s = s[:len(s)-1]
				}
				if m["t"] = s; !bytes.Contains(data, []byte(`"m"`)) && !reflect.DeepEqual(a, b) {
					t.Fatalf("%s became %s", data, got)
				}
			}
		}
	})
}
