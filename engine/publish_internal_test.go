package engine

import (
	"encoding/json"
	"testing"
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
