//go:build ignore

package main

import (
	"fmt"
	"strings"
)

// awkward are bodies that careless code changes on the way: re-encoded numbers,
// escaped or unescaped characters, sorted keys, trimmed white space.
func awkward() []string {
	data := []struct{ typ, subject, data string }{
		{"chat.message", "emoji", `{"text":"Ship it 🚀🚀🚀 👩‍👩‍👧‍👦 🏳️‍🌈 🇮🇪","reactions":{"👍🏿":3,"❤️":1}}`},
		{"chat.message", "line-separators", "{\"text\":\"first\u2028second\u2029third\",\"from\":\"clipboard\"}"},
		{"chat.message", "escaped-separators", `{"text":"first\u2028second\u2029third","from":"editor"}`},
		{"page.published", "html", `{"title":"Fish & Chips <b>bold</b>","html":"<script>if (a < b && c > d) { alert('hi') }</script>","path":"\/blog\/fish"}`},
		{"page.published", "escaped-html", `{"title":"Fish \u0026 Chips \u003cb\u003ebold\u003c/b\u003e"}`},
		{"ledger.entry", "big-integers", `{"account":9007199254740993,"entry":1234567890123456789,"amount":-9223372036854775808,"ids":[18446744073709551615,10000000000000000001]}`},
		{"ledger.entry", "huge-number", `{"limit":1e400,"floor":-1E+400,"epsilon":1e-400}`},
		{"ledger.entry", "number-spellings", `{"minus_zero":-0,"minus_zero_float":-0.0,"hundred":1E2,"hundred_too":100.0,"money":10.10,"plus":1e+2}`},
		{"ledger.entry", "long-fraction", `{"pi":3.14159265358979323846264338327950288419716939937510582097494459}`},
		{"export.finished", "nested", strings.Repeat("[", 120) + `{"deep":[[],{},[[null]]]}` + strings.Repeat("]", 120)},
		{"export.finished", "key-order", `{"z":1,"a":2,"m":{"y":true,"b":false},"10":"ten","9":"nine"}`},
		{"export.finished", "repeated-keys", `{"status":"queued","status":"done","rows":12}`},
		{"export.finished", "white-space", `{ "rows" :  3 ,	"files":[ "a.csv" , "b.csv" ]  }`},
		{"export.finished", "empty-keys", `{"":{"":[""]}," ":" "}`},
		{"user.renamed", "raw-and-escaped", `{"before":"J\u00fcrgen Gro\u00df","after":"Jürgen Groß","kana":"\u3055\u3068\u3046 さとう"}`},
		{"user.renamed", "surrogates", `{"escaped":"\ud83d\ude80","raw":"🚀","music":"\uD834\uDD1E"}`},
		{"user.renamed", "combining", `{"nfc":"é","nfd":"é","zero_width":"a​b","rtl":"‮abc‬","arabic":"السلام عليكم"}`},
		{"user.renamed", "controls", `{"name":"tab\tnew\nline\r\u0000\u001f\u007f","quote":"\"\\\/\b\f"}`},
		{"flag.changed", "bare-true", `true`},
		{"flag.changed", "bare-null", `null`},
		{"flag.changed", "bare-string", `"maintenance \u2014 back at 18:00"`},
		{"flag.changed", "bare-number", `-0`},
		{"flag.changed", "empty-array", `[]`},
		{"report.generated", "200-kilobytes", report(200 << 10)},
		{"report.generated", "many-keys", keys(800)},
	}
	lines := make([]string, len(data))
	for i, d := range data {
		lines[i] = event(d.typ, "initech", "case:"+d.subject, d.data)
	}
	return lines
}

// report is a body of at least n bytes.
func report(n int) string {
	var b strings.Builder
	b.WriteString(`{"report":"stock-levels","warehouse":"Łódź 2","generated_by":"nightly","rows":[`)
	for i := 0; b.Len() < n; i++ {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, `{"sku":"%s-%05d","title":%q,"on_hand":%d,"reserved":%d,"cost":"%d.%02d","bins":["%c%02d","%c%02d"]}`,
			strings.ToUpper(token(3)), i, pick("Espresso cups, set of 4", "Wool scarf “Fjord”", "抹茶セット", "Ceramic planter Ø 18 cm"), rng.IntN(5000), rng.IntN(200), rng.IntN(90), rng.IntN(100), 'A'+rng.IntN(8), rng.IntN(60), 'A'+rng.IntN(8), rng.IntN(60))
	}
	b.WriteString(`]}`)
	return b.String()
}

func keys(n int) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(`"metric_%03d_%s":%d`, i, token(4), rng.IntN(1_000_000))
	}
	return "{" + strings.Join(parts, ",") + "}"
}
