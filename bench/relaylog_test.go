package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"math/rand/v2"
	"strings"
)

// relayLog is a log as Traefik writes it with purple-wolf in it: one line in ten is
// an audit line, values are varied and hostile, and some lines only look like
// audit lines. Line i is always the same.
type relayLog struct{ seed uint64 }

// auditLine is what a log's line says, as far as filters go by it.
type auditLine struct {
	number   int // of the line; in the event as "request"
	action   string
	rule     string
	severity string
	would    []string
	labels   map[string]string // those of at most 1,024 bytes, as the rules are
	object   []byte
}

func (g relayLog) random(i int) *rand.Rand { return rand.New(rand.NewPCG(g.seed, uint64(i))) }

// audit gives what line i says; nil: it is no audit line.
func (g relayLog) audit(i int) *auditLine {
	r := g.random(i)
	if r.IntN(10) != 0 {
		return nil
	}
	a := &auditLine{number: i, action: "block", rule: pick(r, relayRules), severity: pick(r, []string{"low", "medium", "high", "critical"}), labels: map[string]string{}}
	for range r.IntN(3) {
		a.would = append(a.would, pick(r, relayRules))
	}
	if r.IntN(3) == 0 {
		a.action, a.rule, a.severity = "allow", "", ""
	}
	if r.IntN(4) > 0 {
		a.labels["tenant"] = pick(r, []string{"acme", "contoso", "Acme", "", "acme\" }{"})
	}
	if r.IntN(4) == 0 {
		a.labels["environment"] = pick(r, relayHostile)
	}
	a.object = a.marshal(r)
	maps.DeleteFunc(a.labels, func(_, value string) bool { return len(value) > 1024 })
	return a
}

// relayRules hold the wildcard's letters, and near misses of injection/.
var relayRules = []string{"injection/sqli", "injection/xss", "injection/", "injection", "xinjection/sqli", "reputation/rate_limited", "structural/header", "*", "injection/*"}

// relayHostile are values that break readers which aren't careful.
var relayHostile = []string{`1' OR '1'='1`, `"}{"`, `\"}`, `{"action":"allow","would_block_rules":[]}`, "\x1b[31mred\x1b[0m", "a\nb\r\n\tc", "\x00\x7f", "üñïçødé 漢字 🐺",
	` middlewareName=evil@file routerName=evil `, `<script>&</script>`, "\u2028\u2029", strings.Repeat("A", 3000), strings.Repeat(`\`, 9), "%00%0a", "would_block_rules", "", "\ufeff"}

func pick[T any](r *rand.Rand, from []T) T { return from[r.IntN(len(from))] }

// marshal writes the object as the firewall does, with an escape here and there
// that it needn't have.
func (a *auditLine) marshal(r *rand.Rand) []byte {
	var b bytes.Buffer
	field := func(name string, v any) {
		if b.Len() > 1 {
			b.WriteByte(',')
		}
		value, err := json.Marshal(v)
		if err != nil {
			panic(err) // texts always marshal
		}
		fmt.Fprintf(&b, "%q:%s%s", name, pick(r, []string{"", "", " "}), value)
	}
	b.WriteByte('{')
	field("host", "shop.example")
	field("request", a.number)
	field("path", "/"+pick(r, relayHostile))
	field("query", pick(r, relayHostile))
	field("source_ip", fmt.Sprintf("203.0.113.%d", r.IntN(256)))
	field("action", a.action)
	if a.action == "block" {
		field("blocked_rule", a.rule)
		field("blocked_severity", a.severity)
		field("blocked_detail", pick(r, relayHostile))
	}
	if a.would == nil {
		a.would = []string{}
	}
	field("would_block_rules", a.would)
	if len(a.labels) > 0 {
		field("labels", a.labels)
	}
	if r.IntN(20) == 0 {
		b.WriteString(`,"more":{"n":1e999,"s":"\ud800","deep":[[[[{}]]]]}`)
	}
	b.WriteByte('}')
	return b.Bytes()
}

// line gives line i with its newline.
func (g relayLog) line(i int) []byte {
	at := fmt.Sprintf("2026-05-25T17:%02d:%02dZ", i/60%60, i%60)
	r := g.random(-1 - i)
	a := g.audit(i)
	if a == nil {
		return append(g.foreign(r, i, at), '\n')
	}
	if r.IntN(2) == 0 {
		return fmt.Appendf(nil, "%s INF %s entryPointName=web middlewareName=strict-waf@file routerName=strict@file\n", at, a.object)
	}
	return fmt.Appendf(nil, "traefik-1  | \x1b[90m%s\x1b[0m \x1b[32mINF\x1b[0m \x1b[1m%s\x1b[0m \x1b[36mentryPointName=\x1b[0mweb \x1b[36mmiddlewareName=\x1b[0m\"strict waf@file\"\r\n", at, a.object)
}

// foreign is a line that is no audit line, whatever it looks like.
func (g relayLog) foreign(r *rand.Rand, i int, at string) []byte {
	switch r.IntN(40) {
	case 0:
		return fmt.Appendf(nil, `%s INF {"action":"block","would_block_rules":[],"request":%d,`, at, i) // cut
	case 1:
		return fmt.Appendf(nil, `%s INF {"action":"shrug","would_block_rules":[],"request":%d}`, at, i)
	case 2:
		return fmt.Appendf(nil, `%s INF {"outer":{"action":"block","would_block_rules":[],"request":%d}}`, at, i)
	case 3:
		return fmt.Appendf(nil, `%s INF {x} {"action":"block","would_block_rules":[],"request":%d}`, at, i)
	case 4:
		return fmt.Appendf(nil, "%s INF {\"action\":\"block\",\"would_block_rules\":[],\"request\":%d,\"p\":\"\xff\xfe\"}", at, i)
	case 5:
		b := make([]byte, r.IntN(400))
		for k := range b {
			if b[k] = byte(r.Uint32()); b[k] == '\n' {
				b[k] = '{'
			}
		}
		return b
	case 6:
		if r.IntN(2000) == 0 {
			return bytes.Repeat([]byte("x"), 1<<20+1)
		}
		return nil
	case 7, 8, 9, 10, 11, 12, 13, 14, 15:
		return fmt.Appendf(nil, `{"ClientHost":"203.0.113.7","DownstreamStatus":200,"RequestPath":"/api/v1/cart?a=1\u0026b=%d","RouterName":"checkout@file","level":"info","time":"%s"}`, i, at)
	}
	return fmt.Appendf(nil, `203.0.113.7 - - [%s] "GET /api/v1/cart?id=%d HTTP/1.1" 200 512 "-" "Mozilla/5.0 (X11; Linux x86_64)" %d "checkout@file" "http://10.0.0.7:8080" 12ms`, at, i, i)
}
