package dispatch

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/signing"
)

var write = flag.Bool("write-golden", false, "write testdata/render.jsonl anew; only for new lines, never for changed ones")

// golden has what each file holds: 200 bodies, and their envelopes.
var golden = map[string][]surehook.Envelope{"testdata/render.jsonl": envelopes, "testdata/pylota.jsonl": {surehook.EnvelopePylota}}

var envelopes = []surehook.Envelope{surehook.EnvelopeStandard, surehook.EnvelopePayload, surehook.EnvelopeThin, surehook.EnvelopeCloudEvents}

// recorded is an event with its body in one envelope: whole where it is short,
// and its signature under a fixed key and time.
type recorded struct {
	ID, Type, Tenant string
	Subjects         []string          `json:",omitempty"`
	Identity, Alias  string            `json:",omitempty"`
	APIVersion       string            `json:",omitempty"`
	Sequence         int64             `json:",omitempty"`
	At               int64             // Unix ms
	Data             []byte            // base64: no serialiser of ours touches it
	Bodies           map[string][]byte `json:",omitempty"`
	Sums             map[string]string // SHA-256
	Signatures       map[string]string
}

// awkward are values that serialisers like to change.
func awkward() []string {
	s := []string{`null`, `true`, `0`, `-0`, `0.10`, `1E2`, `1e+2`, `1.0`, `1e400`, `-1.7976931348623157e+308`, `7615917337495251231`, `123456789012345678901234567890`,
		`0.1e-7`, `""`, `"a<b>&c=d"`, `{"q":"a<b>&c=d"}`, "\"raw \u2028 and \u2029\"", `"escaped \u2028 \u2029"`, `"\u003c\u003e\u0026"`, `"\/ /"`, `"\u001b[31m\u0000"`,
		`"\ud83d\ude0a"`, `"😊 ñ 👩‍👩‍👧"`, `"\ud800"`, "\"\u00a0\ufeff\"", "\"e\u0301 é\"", `"\b\f\n\r\t\\\""`, "\"\x7f\"", ` 1 `, "\t[ ]\n", "{\r\n}", `{"a":1,"a":2}`, `{"":{}}`,
		`{"b":1,"a":2,"B":3}`, `{"__proto__":1}`, `[[[[[[[[]]]]]]]]`, `[1,2,3]`, `[ 1 , 2 ]`, `{"a" : { "b" : [ 1.50 ] } }`, `"=?+%20;&amp;"`, `"…–—“”"`, `"\u00e9é"`, `"Ω≈ç√"`,
		`{"id":"other","type":"other","data":{"data":1}}`, `"` + strings.Repeat("x", 5000) + `"`, `"` + strings.Repeat("é", 2048) + `"`, `[` + strings.Repeat("0,", 2000) + `0]`}
	r := rand.New(rand.NewPCG(7, 7))
	alphabet := []string{"a", "<", ">", "&", "\\u2028", "\u2029", "\\\"", "\\\\", "é", "😊", "\\u00e9", " ", "\\t", "=", "/", "\\/", "\u0300", "\\ud83d\\ude0a"}
	for len(s) < 200 {
		var b strings.Builder
		for range 1 + r.IntN(40) {
			b.WriteString(alphabet[r.IntN(len(alphabet))])
		}
		switch r.IntN(4) {
		case 0:
			s = append(s, `"`+b.String()+`"`)
		case 1:
			s = append(s, fmt.Sprintf(`{"%s": %d.%d0e%d}`, b.String(), r.IntN(1000), r.IntN(1000), r.IntN(300)))
		case 2:
			s = append(s, fmt.Sprintf("[%d,\n\"%s\" ,-0.%d]", r.Int64(), b.String(), r.IntN(100)))
		default:
			s = append(s, fmt.Sprintf(`{"n":{"m":["%s",null,%d]}}`, b.String(), r.Int64()))
		}
	}
	return s
}

func record(i int, data string) recorded {
	g := recorded{ID: fmt.Sprintf("evt_%026d", i), Type: "order.paid", At: 1_700_000_000_000 + int64(i)*977, Data: []byte(data)}
	switch i % 5 {
	case 1:
		g.Tenant, g.ID = "tenant-1", "own:id_"+fmt.Sprint(i)
	case 2:
		g.Tenant, g.Subjects = `q"<&>\`, []string{"a/b?c=<d>", "second"}
	case 3:
		g.Subjects = []string{"ünï\u2028 \u0001"}
	}
	return g
}

// recordPylota is record with what that envelope has beside.
func recordPylota(i int, data string) recorded {
	g := record(i, data)
	if i%3 > 0 {
		g.Identity, g.Sequence = fmt.Sprint("ident_", i), int64(i)*int64(i)*int64(i)*int64(i)+1
	}
	if i%7 == 0 {
		g.APIVersion = "2027-01-15"
	}
	if i%11 == 0 {
		g.Alias = g.ID + ":0123456789abcdef"
	}
	return g
}

func (g recorded) event() *surehook.Event {
	return &surehook.Event{ID: g.ID, Type: g.Type, Tenant: g.Tenant, Identity: g.Identity, Alias: g.Alias, APIVersion: g.APIVersion,
		Sequence: g.Sequence, Subjects: g.Subjects, OccurredAt: time.UnixMilli(g.At), Data: g.Data}
}

func (g recorded) fill(envelopes []surehook.Envelope) recorded {
	key, err := signing.SecretFromBytes(bytes.Repeat([]byte{42}, 32))
	if err != nil {
		panic(err)
	}
	signer, err := signing.NewSigner(key)
	if err != nil {
		panic(err)
	}
	g.Bodies, g.Sums, g.Signatures = map[string][]byte{}, map[string]string{}, map[string]string{}
	for _, env := range envelopes {
		id := g.event().WebhookID(surehook.ScopePlatform)
		body := Render(g.event(), env, id)
		sum := sha256.Sum256(body)
		g.Sums[string(env)] = base64.StdEncoding.EncodeToString(sum[:])
		g.Signatures[string(env)] = signer.Sign(id, g.At/1000, body)
		if len(body) < 300 {
			g.Bodies[string(env)] = body
		}
	}
	return g
}

// bodies and signatures are what they were when the golden file was
// written, byte for byte. A change here breaks the signature of every delivery
// that is retried across an upgrade.
func TestA03_BodiesAreAsEver(t *testing.T) {
	if *write {
		writeGolden(t, "testdata/render.jsonl", record)
		writeGolden(t, "testdata/pylota.jsonl", recordPylota)
	}
	for file, envelopes := range golden {
		t.Run(filepath.Base(file), func(t *testing.T) { checkGolden(t, file, envelopes) })
	}
}

func checkGolden(t *testing.T, file string, envelopes []surehook.Envelope) {
	f, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	n := 0
	for ; lines.Scan(); n++ {
		var g recorded
		if err := json.Unmarshal(lines.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		now := g.fill(envelopes)
		for _, env := range envelopes {
			if e := string(env); now.Sums[e] != g.Sums[e] || !bytes.Equal(now.Bodies[e], g.Bodies[e]) || now.Signatures[e] != g.Signatures[e] {
				t.Errorf("line %d, %s: %s, was %s", n+1, e, now.Bodies[e], g.Bodies[e])
			}
		}
	}
	if err := lines.Err(); err != nil || n != 200 {
		t.Errorf("%d lines, %v", n, err)
	}
}

func writeGolden(t *testing.T, file string, record func(int, string) recorded) {
	t.Helper()
	var out bytes.Buffer
	for i, data := range awkward() {
		b, err := json.Marshal(record(i, data).fill(golden[file]))
		if err != nil {
			t.Fatal(err)
		}
		out.Write(append(b, '\n'))
	}
	if err := os.WriteFile(file, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
}

// What is rendered is JSON with the data in it as it was.
func TestRenderedBodiesAreJSON(t *testing.T) {
	for i, data := range awkward() {
		g := record(i, data)
		for _, env := range append(envelopes[:len(envelopes):len(envelopes)], surehook.EnvelopePylota) {
			body := Render(g.event(), env, g.ID)
			if !json.Valid(body) {
				t.Errorf("%s: not JSON: %s", env, body)
			}
			if env == surehook.EnvelopeThin {
				continue
			}
			if !bytes.Contains(body, []byte(data)) {
				t.Errorf("%s: the data isn't in %s", env, body)
			}
		}
	}
}

// The body that is signed is the one that is sent: both are one slice.
func TestBodiesAreRenderedOnce(t *testing.T) {
	p := newParcel(&surehook.Event{ID: "evt_1", Type: "a", Data: []byte("1")})
	for _, env := range []surehook.Envelope{surehook.EnvelopeStandard, surehook.EnvelopeThin, surehook.EnvelopeCloudEvents, surehook.EnvelopePylota} {
		a, b := p.body(env, "evt_1"), p.body(env, "evt_1")
		if &a[0] != &b[0] {
			t.Errorf("%s was rendered twice", env)
		}
		if other := p.body(env, "evt_1:alias"); bytes.Equal(a, other) || &other[0] != &p.body(env, "evt_1:alias")[0] {
			t.Errorf("%s under another id: %s", env, other)
		}
	}
}

func TestReservedHeaders(t *testing.T) {
	for _, name := range []string{"Webhook-Signature", "webhook-ID", " content-type ", "User-Agent", "HOST", "Content-Length", "Transfer-Encoding", "traceparent",
		"Surehook-Attempt", "X-PurpleWolf-Signature", "Connection", "Content-Encoding", "TE", "Trailer", "Upgrade", "Expect"} {
		if !ReservedHeader(name) {
			t.Errorf("%q isn't reserved", name)
		}
	}
	for _, name := range []string{"Authorization", "X-Webhook", "X-Surehook"} {
		if ReservedHeader(name) {
			t.Errorf("%q is reserved", name)
		}
	}
}

// The form that its receivers know: a change breaks them.
func TestPylotaEnvelope(t *testing.T) {
	e := &surehook.Event{ID: "evt_1", Type: "message.received", Tenant: "acme", Identity: "ali", Owner: "ali", Sequence: 7,
		OccurredAt: time.UnixMilli(1_700_000_000_123), Data: []byte(`{ "a": 1.0 }`)}
	want := `{"id":"evt_1","type":"message.received","api_version":"2026-10-01","occurred_at":"2023-11-14T22:13:20.123Z",` +
		`"tenant_id":"acme","identity_id":"ali","sequence":7,"data":{ "a": 1.0 }}`
	if got := string(Render(e, surehook.EnvelopePylota, e.ID)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	e.Tenant, e.Identity, e.Sequence = "", "", 0
	want = strings.NewReplacer(`"acme"`, "null", `"ali"`, "null", `:7,`, `:null,`).Replace(want)
	if got := string(Render(e, surehook.EnvelopePylota, e.ID)); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}
