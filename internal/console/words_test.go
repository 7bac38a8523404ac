package console

import (
	"os"
	"regexp"
	"testing"
)

// Every code of an outcome, and every reason for which an endpoint is disabled, is
// said in plain words.
func TestEveryCodeHasWords(t *testing.T) {
	for file, x := range map[string]struct {
		is    string
		words map[string]said
	}{"outcome.go": {`Code = "([a-z0-9_]+)"`, codes}, "surehook.go": {`Reason\w+ += "([a-z_]+)"`, disabledBecause}} {
		text, err := os.ReadFile("../../" + file)
		if err != nil {
			t.Fatal(err)
		}
		found := regexp.MustCompile(x.is).FindAllSubmatch(text, -1)
		if len(found) < 5 {
			t.Errorf("%s has %d codes", file, len(found))
		}
		for _, m := range found {
			if w := x.words[string(m[1])]; w.what == "" || w.then == "" {
				t.Errorf("%s has no words", m[1])
			}
		}
	}
	for text, want := range map[string]string{"delivered_rejected: status_410: HTTP 410": "The receiver answered 410 Gone, which means: stop for ever (410 Gone)", "sentinel_expired": "The sentinel's time was over before it was sent.", "else": "else"} {
		if got := why(text); got != want {
			t.Errorf("%s: %s", text, got)
		}
	}
}
