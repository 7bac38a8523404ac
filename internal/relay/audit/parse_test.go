package audit

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

const documented = `2026-05-25T17:30:02Z INF {"host":"127.0.0.1:8000","path":"/","query":"id=1%27","method":"GET","source_ip":"203.0.113.7","action":"block","blocked_rule":"injection/sqli","blocked_severity":"critical","blocked_detail":"SQLi in field: 1'","would_block_rules":[],"labels":{"tenant":"acme"}} entryPointName=web middlewareName=strict-waf@file routerName=strict@file`

const object = `{"host":"127.0.0.1:8000","path":"/","query":"id=1%27","method":"GET","source_ip":"203.0.113.7","action":"block","blocked_rule":"injection/sqli","blocked_severity":"critical","blocked_detail":"SQLi in field: 1'","would_block_rules":[],"labels":{"tenant":"acme"}}`

// The line as documented, plain and in the colours of Traefik's console.
func TestParse_DocumentedLine(t *testing.T) {
	coloured := "traefik-1  | \x1b[90m2026-05-25T17:30:02Z\x1b[0m \x1b[32mINF\x1b[0m \x1b[1m" + object +
		"\x1b[0m \x1b[36mentryPointName=\x1b[0mweb \x1b[36mmiddlewareName=\x1b[0mstrict-waf@file \x1b[36mrouterName=\x1b[0mstrict@file"
	for _, line := range []string{documented, coloured} {
		var p Parser
		var ev Event
		if v := p.Parse([]byte(line), &ev); v != Audit {
			t.Fatalf("verdict %d", v)
		}
		if string(ev.JSON) != object {
			t.Errorf("the object isn't verbatim:\n%s", ev.JSON)
		}
		if ev.Action != Block || ev.Rule != "injection/sqli" || ev.Severity != Critical || len(ev.WouldBlock) != 0 {
			t.Errorf("%+v", ev)
		}
		if !maps.Equal(ev.Labels, map[string]string{"tenant": "acme"}) {
			t.Errorf("labels %v", ev.Labels)
		}
		if ev.Middleware != "strict-waf" || ev.Router != "strict" || ev.EntryPoint != "web" {
			t.Errorf("from %q %q %q", ev.Middleware, ev.Router, ev.EntryPoint)
		}
	}
}

func TestParse_Verdicts(t *testing.T) {
	for line, want := range map[string]Verdict{
		``:                          Foreign,
		`INF Starting provider`:     Foreign,
		`would_block_rules`:         Foreign,
		`{"action":"block"}`:        Foreign,
		`{"would_block_rules":[]}`:  Foreign,
		`{"a":"would_block_rules"}`: Foreign,
		`{"a":{"would_block_rules":[],"action":"block"}}`:                                                        Foreign, // not of the object itself
		`{"action":"shrug","would_block_rules":[]}`:                                                              Foreign,
		`{"action":"Block","would_block_rules":[]}`:                                                              Foreign,
		`{"action":["block"],"would_block_rules":[]}`:                                                            Foreign,
		`[{"action":"block","would_block_rules":[]}]`:                                                            Audit, // what stands before the object is anything
		`{"action":"block","would_block_rules":[]}`:                                                              Audit,
		`{"action":"allow","would_block_rules":null}`:                                                            Audit,
		`{"action":"allow","would_block_rules":"odd"}`:                                                           Audit,
		`{"action":"block","would_block\u005frules":[]}`:                                                         Audit,
		`{"action":"no","action":"allow","would_block_rules":[]}`:                                                Audit, // the last one counts
		`{"action":"allow","action":"no","would_block_rules":[]}`:                                                Foreign,
		`{"action":"block","would_block_rules":[],`:                                                              Malformed,
		`{"action":"block","would_block_rules":[}`:                                                               Malformed,
		`{"action":"block","would_block_rules":[],}`:                                                             Malformed,
		`{"action":"block","would_block_rules":[],"a":"}`:                                                        Malformed,
		"{\"action\":\"block\",\"would_block_rules\":[],\"a\":\"\xff\"}":                                         Malformed,
		`{x} {"action":"block","would_block_rules":[]}`:                                                          Foreign, // the first one counts
		`{"}":"{","\"}":"\\","action":"block","would_block_rules":[]}`:                                           Audit,
		`"{ {"action":"block","would_block_rules":[]}`:                                                           Malformed,
		"\x1b[1m\x1b[38;5;12m{\"action\":\"block\",\"would_block_rules\":[]}\x1b":                                Audit,
		"\x1b[{\"action\":\"block\",\"would_block_rules\":[]}":                                                   Audit,
		`{"action":"block","would_block_rules":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + `}`: Malformed, // deeper than a reader goes
	} {
		var p Parser
		if got := p.Parse([]byte(line), new(Event)); got != want {
			t.Errorf("%.80q: verdict %d, want %d", line, got, want)
		}
	}
}

func TestParse_Rest(t *testing.T) {
	for rest, want := range map[string][3]string{
		``:                                   {},
		` middlewareName= routerName=@file`:  {},
		` middlewareName=a@b@c routerName=r`: {"a", "r", ""},
		` middlewareName="two words@file" entryPointName="web"`: {"two words", "", "web"},
		` entryPointName=web@x`:                                 {"", "", "web@x"},
		` xmiddlewareName=no middlewareName=yes`:                {"yes", "", ""},
		` middlewareName=one middlewareName=two`:                {"one", "", ""},
		"\tmiddlewareName='m'\u00a0routerName=\"r\"x":           {"m", "r", ""},
		` error="a \" middlewareName=no" routerName=r`:          {"", "r", ""},
		" routerName=\xff\xfe":                                  {"", "\uFFFD", ""},
		` middlewareName="open`:                                 {"open", "", ""},
	} {
		var p Parser
		var ev Event
		if v := p.Parse([]byte(`{"action":"block","would_block_rules":[]}`+rest), &ev); v != Audit {
			t.Fatalf("%q: verdict %d", rest, v)
		}
		if got := [3]string{ev.Middleware, ev.Router, ev.EntryPoint}; got != want {
			t.Errorf("%q: %q, want %q", rest, got, want)
		}
	}
}

// What the line before left must not show.
func TestParse_ReusedEvent(t *testing.T) {
	var p Parser
	var ev Event
	p.Parse([]byte(documented), &ev)
	first := ev.JSON
	if p.Parse([]byte(`{"action":"allow","would_block_rules":["a",1,"b"]}`), &ev) != Audit {
		t.Fatal("no audit line")
	}
	if ev.Rule != "" || ev.Severity != NoSeverity || ev.Labels != nil || ev.Middleware != "" || !slices.Equal(ev.WouldBlock, []string{"a", "b"}) {
		t.Errorf("%+v", ev)
	}
	if string(first) != object {
		t.Error("the first event changed")
	}
}

func TestParse_LabelsKeepTheRules(t *testing.T) {
	labels := map[string]any{"ok": "v", "a.b_c-1": "", "Upper": "x", "1st": "x", "": "x", "purple_wolf.mode": "x", "number": 1,
		"long" + strings.Repeat("g", 60): "x", "fits" + strings.Repeat("g", 59): "x", "big": strings.Repeat("v", 1025), "full": strings.Repeat("v", 1024)}
	b, err := json.Marshal(map[string]any{"action": "block", "would_block_rules": []string{}, "labels": labels})
	if err != nil {
		t.Fatal(err)
	}
	var p Parser
	var ev Event
	if p.Parse(b, &ev) != Audit {
		t.Fatal("no audit line")
	}
	want := []string{"a.b_c-1", "fits" + strings.Repeat("g", 59), "full", "ok"}
	if got := slices.Sorted(maps.Keys(ev.Labels)); !slices.Equal(got, want) {
		t.Errorf("labels %q", got)
	}
	if !bytes.Equal(ev.JSON, b) {
		t.Error("the object must keep them all")
	}
}

func TestParse_LabelsHaveABound(t *testing.T) {
	many, heavy := []string{}, []string{}
	for i := range 40 {
		many = append(many, fmt.Sprintf(`"k%02d":"v"`, i))
		heavy = append(heavy, fmt.Sprintf(`"k%02d":"%s"`, i, strings.Repeat("v", 1000)))
	}
	for labels, want := range map[string]int{strings.Join(many, ","): MaxLabels, strings.Join(heavy, ","): 4, strings.Join(append(heavy, heavy...), ","): 4} {
		var p Parser
		var ev Event
		if p.Parse([]byte(`{"action":"block","would_block_rules":[],"labels":{`+labels+`}}`), &ev) != Audit {
			t.Fatal("no audit line")
		}
		if len(ev.Labels) != want {
			t.Errorf("%d labels, want %d", len(ev.Labels), want)
		}
	}
}

// Whatever the bytes: no panic, and an audit line's object is one JSON object
// that stood in the line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{documented, object, "\x1b[1m" + object + "\x1b[0m \x1b[36mmiddlewareName=\x1b[0ma@b", `{"action":"block","would_block_rules":[],`,
		`{"a":"\u00`, "{\xff}", `{"would_block_rules":[],"action":"allow","labels":{"a":1,"b":"c"}} routerName="x`, strings.Repeat("{", 100), "\x1b[", `"{"`, ""} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, line []byte) {
		var p Parser
		var ev Event
		before := bytes.Clone(line)
		v := p.Parse(line, &ev)
		if !bytes.Equal(line, before) {
			t.Fatal("the line was changed")
		}
		if v != Audit {
			return
		}
		var o map[string]json.RawMessage
		if err := json.Unmarshal(ev.JSON, &o); err != nil {
			t.Fatalf("no object: %v", err)
		}
		var a Action
		if err := json.Unmarshal(o["action"], &a); err != nil || a != ev.Action || a != Block && a != Allow {
			t.Fatalf("action %q, read as %q", o["action"], ev.Action)
		}
		if o[mark] == nil {
			t.Fatal("no mark")
		}
		if !bytes.Contains(appendPlain(nil, line), ev.JSON) {
			t.Fatal("the object isn't the line's")
		}
		for _, s := range append([]string{ev.Middleware, ev.Router, ev.EntryPoint, ev.Rule}, ev.WouldBlock...) {
			if !utf8.ValidString(s) {
				t.Fatalf("%q isn't UTF-8", s)
			}
		}
		for k, l := range ev.Labels {
			if CheckLabel(k, l) != nil || !utf8.ValidString(l) {
				t.Fatalf("label %q", k)
			}
		}
	})
}
