package audit

import (
	"bytes"
	"strings"
	"testing"
)

// BenchmarkForeign is what most of a log costs: lines that are no audit lines.
func BenchmarkForeign(b *testing.B) {
	for name, line := range map[string]string{
		"common":    `203.0.113.7 - - [25/May/2026:17:30:02 +0000] "GET /api/v1/cart?id=1 HTTP/1.1" 200 512 "-" "Mozilla/5.0 (X11; Linux x86_64)" 1042 "checkout@file" "http://10.0.0.7:8080" 12ms`,
		"json":      `{"ClientAddr":"203.0.113.7:51234","ClientHost":"203.0.113.7","DownstreamContentSize":512,"DownstreamStatus":200,"Duration":12345678,"RequestHost":"shop.example","RequestMethod":"GET","RequestPath":"/api/v1/cart","RouterName":"checkout@file","StartUTC":"2026-05-25T17:30:02Z","level":"info","msg":"","time":"2026-05-25T17:30:02Z"}`,
		"escapes":   `{"level":"info","msg":"\u003cb\u003e hello \u003c/b\u003e and much more of this \u0026 that","nested":{"a":[1,2,3],"b":"\u2028"},"time":"2026-05-25T17:30:02Z"}`,
		"lookalike": `{"level":"info","msg":"the member would_block_rules of an object, which this isn't","note":"would_block_rules {","time":"2026-05-25T17:30:02Z"}`,
		"coloured":  "\x1b[90m2026-05-25T17:30:02Z\x1b[0m \x1b[32mINF\x1b[0m \x1b[1mStarting provider *file.Provider\x1b[0m \x1b[36mproviderName=\x1b[0mfile",
		"long":      `{"msg":"` + strings.Repeat("x{}", 30_000) + `"}`,
	} {
		b.Run(name, func(b *testing.B) {
			chunk := bytes.Repeat([]byte(line+"\n"), max(1, 256<<10/len(line)))
			measure(b, chunk, Foreign)
		})
	}
}

func BenchmarkAudit(b *testing.B) {
	chunk := bytes.Repeat([]byte(documented+"\n"), 256<<10/len(documented))
	measure(b, chunk, Audit)
}

// measure goes through a chunk as a source does, and says what that costs in CPU
// time too: where others use the machine, that is what can be compared.
func measure(b *testing.B, chunk []byte, want Verdict) {
	b.SetBytes(int64(len(chunk)))
	b.ReportAllocs()
	before := cpuTime()
	for b.Loop() {
		lines(b, chunk, want)
	}
	if used := cpuTime() - before; used > 0 {
		b.ReportMetric(float64(len(chunk))*float64(b.N)/1e6/used.Seconds(), "MB/cpu-s")
	}
}

func lines(b *testing.B, chunk []byte, want Verdict) {
	var p Parser
	for len(chunk) > 0 {
		end := bytes.IndexByte(chunk, '\n')
		var ev Event
		if p.Parse(chunk[:end], &ev) != want {
			b.Fatal("another verdict")
		}
		chunk = chunk[end+1:]
	}
}
