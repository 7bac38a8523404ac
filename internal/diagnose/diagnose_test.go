package diagnose

import (
	"bytes"
	"compress/gzip"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook/signing"
)

const (
	secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	body   = "{\"id\": \"evt_7\", \"b\": [1, 2.50], \"a\": \"Łódź <é> 🚀 /\"}"
)

var now = time.Unix(1674087231, 0)

func mac(key []byte, text string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte(text))
	return m.Sum(nil)
}

func key() []byte {
	b, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
	if err != nil {
		panic(err)
	}
	return b
}

// signed is a request by Standard Webhooks with the bytes of a key.
func signed(k []byte, id string, at time.Time, body string) Input {
	ts := strconv.FormatInt(at.Unix(), 10)
	h := http.Header{}
	h.Set("webhook-id", id)
	h.Set("webhook-timestamp", ts)
	h.Set("webhook-signature", "v1,"+base64.StdEncoding.EncodeToString(mac(k, id+"."+ts+"."+body)))
	return Input{Scheme: "standard", Secrets: []string{secret}, Header: h, Body: []byte(body), Now: now, Tolerance: 5 * time.Minute, Search: time.Hour}
}

func right() Input { return signed(key(), "evt_1", now, body) }

// edit changes the right request.
func edit(f func(in *Input)) Input {
	in := right()
	f(&in)
	return in
}

func bodied(b string) Input { return edit(func(in *Input) { in.Body = []byte(b) }) }

func secrets(s ...string) Input { return edit(func(in *Input) { in.Secrets = s }) }

func header(name, value string) Input { return edit(func(in *Input) { in.Header.Set(name, value) }) }

func TestJudgeAcceptsWhatIsRight(t *testing.T) {
	for _, in := range []Input{right(), secrets("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", secret), edit(func(in *Input) { in.Now, in.Tolerance = now.Add(time.Hour), 0 })} {
		if v, err := Judge(in); err != nil || !v.Valid || !v.Matches || len(v.Causes) != 0 {
			t.Errorf("%+v %v", v, err)
		}
	}
}

func bare() string { return strings.TrimPrefix(secret, "whsec_") }

type mistake struct {
	in   Input
	want string // codes
}

func mistakes(t *testing.T) []mistake {
	t.Helper()
	sig := right().Header.Get("webhook-signature")
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	if _, err := z.Write([]byte(body)); err != nil || z.Close() != nil {
		t.Fatal(err)
	}
	quoted, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return []mistake{
		{edit(func(in *Input) { in.Now = now.Add(7 * time.Minute) }), "clock_skew"},
		{edit(func(in *Input) { in.Now = now.Add(-7 * time.Minute) }), "clock_skew"},
		{secrets("whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"), "wrong_secret"},
		{secrets(bare()), "secret_prefix_missing"},
		{secrets("whsec_" + secret), "secret_prefix_twice"},
		{secrets(secret + "\n"), "secret_space"},
		{secrets(`"` + secret + `"`), "secret_space"},
		{secrets("whsec_AAAA"), "secret_invalid"},
		{signed([]byte(bare()), "evt_1", now, body), "secret_not_decoded"},
		{signed([]byte(secret), "evt_1", now, body), "secret_whole_text"},
		{signed(append(key(), '\n'), "evt_1", now, body), "secret_newline"},
		{edit(func(in *Input) { // what was copied is base64 of base64
			*in = signed(key(), "evt_1", now, body)
			in.Secrets = []string{"whsec_" + base64.StdEncoding.EncodeToString([]byte(bare()))}
		}), "secret_decoded_twice"},
		{bodied(body + "\n"), "trailing_newline"},
		{bodied(body + "\r\n"), "trailing_newline"},
		{edit(func(in *Input) { *in = signed(key(), "evt_1", now, body+"\n"); in.Body = []byte(body) }), "newline_missing"},
		{edit(func(in *Input) { *in = signed(key(), "evt_1", now, "a\r\nb"); in.Body = []byte("a\nb") }), "line_ends"},
		{bodied("\ufeff" + body), "byte_order_mark"},
		{bodied(string(quoted)), "body_quoted"},
		{bodied(base64.StdEncoding.EncodeToString([]byte(body))), "body_base64"},
		{bodied(zipped.String()), "body_compressed"},
		{bodied(fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(body), body)), "body_chunks"},
		{bodied(string(widened([]byte(body)))), "body_decoded"},
		{bodied(""), "body_empty"},
		{header("webhook-timestamp", strconv.FormatInt(now.Unix()-1800, 10)), "wrong_timestamp"},
		{header("webhook-timestamp", strconv.FormatInt(now.UnixMilli(), 10)), "timestamp_milliseconds"},
		{header("webhook-timestamp", now.UTC().Format(time.RFC3339)), "bad_timestamp timestamp_date"},
		{header("webhook-id", "dlv_1"), "wrong_secret"},
		{edit(func(in *Input) {
			*in = signed(key(), "evt_7", now, body)
			in.Header.Set("webhook-id", "dlv_1")
		}), "wrong_id"},
		{edit(func(in *Input) { in.Header.Set("webhook-id", "dlv_1"); in.Header.Set("X-Event-Id", "evt_1") }), "wrong_id"},
		{header("webhook-id", "EVT_1"), "wrong_id"},
		{header("webhook-id", "evt.1"), "id_with_dot"},
		{header("webhook-signature", sig[:20]+" "+sig[20:]), "header_folded"},
		{header("webhook-signature", strings.ReplaceAll(sig, "v1,", "")), "signature_prefix"},
		{header("webhook-signature", `"`+sig+`"`), "signature_quoted"},
		{header("webhook-signature", strings.TrimRight(sig, "=")), "signature_alphabet"},
		{header("webhook-signature", strings.ReplaceAll(strings.ReplaceAll(sig, "=", "%3D"), "+", "%2B")), "signature_percent"},
		{edit(func(in *Input) { in.Header["Webhook-Signature"] = []string{"v1,AAAA", sig} }), "repeated_header"},
		{edit(func(in *Input) { in.Header.Del("webhook-id") }), "missing_header"},
		{edit(func(in *Input) { in.Header.Del("webhook-id"); in.Header["Webhook_id"] = []string{"evt_1"} }), "missing_header"},
		{header("webhook-signature", strings.Replace(sig, "v1,", "v2,", 1)), "no_known_version"},
		// Two at once.
		{edit(func(in *Input) { in.Secrets = []string{bare()}; in.Body = append(in.Body, '\n') }), "secret_prefix_missing trailing_newline"},
		{edit(func(in *Input) {
			in.Header.Set("webhook-id", "dlv_1")
			in.Header.Set("X-Event-Id", "evt_1")
			in.Body = append(in.Body, '\n')
		}), "trailing_newline wrong_id"},
	}
}

// Every mistake is found, and named alone.
func TestCausesAreFound(t *testing.T) {
	for i, c := range mistakes(t) {
		v, err := Judge(c.in)
		if err != nil {
			t.Errorf("%d %s: %v", i, c.want, err)
			continue
		}
		var got []string
		for _, cause := range v.Causes {
			got = append(got, cause.Code)
			if strings.Contains(cause.Text+cause.Advice, "MfKQ") || cause.Text == "" {
				t.Errorf("%+v", cause)
			}
		}
		if strings.Join(got, " ") != c.want || v.Valid {
			t.Errorf("%d: %v, want %s (%v)", i, got, c.want, v.Reason)
		}
	}
}

// What a library writes in place of what was signed is traced back to what was
// signed, and to the library that writes so.
func TestReserialisedBodies(t *testing.T) {
	original, ok := parse([]byte(body))
	if !ok {
		t.Fatal("no JSON")
	}
	for _, signs := range styles {
		was := string(signs.write(original))
		if !json.Valid([]byte(was)) {
			t.Fatalf("%s: %s", signs.name, was)
		}
		for _, has := range styles {
			is := string(has.write(original))
			if is == was || signs.number == nil != (has.number == nil) || signs.sorted != has.sorted || signs.number != nil && signs.name[:2] != has.name[:2] {
				continue // a number or an order that is gone can't be brought back
			}
			in := signed(key(), "evt_1", now, was)
			in.Body = []byte(is)
			v, err := Judge(in)
			if err != nil || len(v.Causes) != 1 || v.Causes[0].Code != "body_reserialised" {
				t.Errorf("%s, was %s: %+v %v", has.name, signs.name, v.Causes, err)
			}
		}
	}
}

// The styles are what the languages write: their own output, pasted.
func TestStylesAreTheLanguages(t *testing.T) {
	v, ok := parse([]byte(`{"b":[1,2.50,1e21,0.0000001],"a":"é🚀/<&'+\u0001"}`))
	if !ok {
		t.Fatal("no JSON")
	}
	for name, want := range map[string]string{
		"JavaScript's JSON.stringify":     `{"b":[1,2.5,1e+21,1e-7],"a":"é🚀/<&'+\u0001"}`,
		"Python's json.dumps":             `{"b": [1, 2.5, 1e+21, 1e-07], "a": "\u00e9\ud83d\ude80/<&'+\u0001"}`,
		"PHP's json_encode":               `{"b":[1,2.50,1e21,0.0000001],"a":"\u00e9\ud83d\ude80\/<&'+\u0001"}`,
		"Go's json.Marshal of a map":      `{"a":"é🚀/\u003c\u0026'+\u0001","b":[1,2.5,1e+21,1e-7]}`,
		".NET's System.Text.Json":         `{"b":[1,2.50,1e21,0.0000001],"a":"\u00E9\uD83D\uDE80/\u003C\u0026\u0027\u002B\u0001"}`,
		"a writer with an indent of tabs": "{\n\t\"b\": [\n\t\t1,\n\t\t2.50,\n\t\t1e21,\n\t\t0.0000001\n\t],\n\t\"a\": \"é🚀/<&'+\\u0001\"\n}",
	} {
		i := slices.IndexFunc(styles, func(s style) bool { return s.name == name })
		if i < 0 {
			t.Fatal(name)
		}
		if got := string(styles[i].write(v)); got != want {
			t.Errorf("%s:\n%s\nwant\n%s", name, got, want)
		}
	}
	var m map[string]any
	if err := json.Unmarshal([]byte(`{"b":[1,2.5,1e21,1e-7],"a":"é<"}`), &m); err != nil {
		t.Fatal(err)
	}
	want, err := json.Marshal(m)
	i := slices.IndexFunc(styles, func(s style) bool { return s.name == "Go's json.Marshal of a map" })
	p, _ := parse([]byte(`{"b":[1,2.50,1e21,0.0000001],"a":"é<"}`))
	if got := styles[i].write(p); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s, and Go writes %s", got, want)
	}
}

// The other schemes, each with a mistake.
func TestOtherSchemes(t *testing.T) {
	ts := strconv.FormatInt(now.Unix(), 10)
	h := func(pairs ...string) http.Header {
		out := http.Header{}
		for i := 0; i < len(pairs); i += 2 {
			out.Set(pairs[i], pairs[i+1])
		}
		return out
	}
	sum := func(text string) string { return hex.EncodeToString(mac([]byte(secret), text)) }
	for name, header := range map[string]http.Header{
		"purple-wolf": h("X-PurpleWolf-Timestamp", ts, "X-PurpleWolf-Signature", "sha256="+sum(ts+"."+body)),
		"github":      h("X-Hub-Signature-256", "sha256="+sum(body)),
		"stripe":      h("Stripe-Signature", "t="+ts+",v1="+sum(ts+"."+body)+",v0=ff"),
		"shopify":     h("X-Shopify-Hmac-Sha256", base64.StdEncoding.EncodeToString(mac([]byte(secret), body))),
		"slack":       h("X-Slack-Request-Timestamp", ts, "X-Slack-Signature", "v0="+sum("v0:"+ts+":"+body)),
	} {
		in := Input{Scheme: name, Secrets: []string{secret}, Header: header, Body: []byte(body), Now: now, Tolerance: time.Minute, Search: time.Minute}
		if v, err := Judge(in); err != nil || !v.Valid {
			t.Errorf("%s: %+v %v", name, v, err)
		}
		for want, change := range map[string]func(in *Input){
			"trailing_newline":      func(in *Input) { in.Body = []byte(body + "\n") },
			"body_reserialised":     func(in *Input) { in.Body = []byte(strings.ReplaceAll(body, ": ", ":")) },
			"secret_prefix_missing": func(in *Input) { in.Secrets = []string{bare()} },
			"secret_space":          func(in *Input) { in.Secrets = []string{secret + " "} },
			"wrong_secret":          func(in *Input) { in.Secrets = []string{"other"} },
		} {
			bad := in
			change(&bad)
			if v, err := Judge(bad); err != nil || v.Valid || len(v.Causes) != 1 || v.Causes[0].Code != want {
				t.Errorf("%s: %+v %v, want %s", name, v.Causes, err, want)
			}
		}
	}
	if _, err := Judge(Input{Scheme: "pigeon", Secrets: []string{"x"}}); err == nil {
		t.Error("no such scheme")
	}
	if _, err := Judge(Input{Scheme: "github"}); !errors.Is(err, signing.ErrNoKey) {
		t.Errorf("%v", err)
	}
}

func TestAsymmetricKeys(t *testing.T) {
	private, err := signing.NewPrivateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signing.NewSigner(private)
	if err != nil {
		t.Fatal(err)
	}
	in := right()
	in.Header.Set("webhook-signature", signer.Sign("evt_1", now.Unix(), []byte(body)))
	in.Secrets = []string{private.Public().Encode()}
	if v, err := Judge(in); err != nil || !v.Valid {
		t.Errorf("%+v %v", v, err)
	}
	in.Body = append(in.Body, '\n')
	if v, err := Judge(in); err != nil || len(v.Causes) != 1 || v.Causes[0].Code != "trailing_newline" {
		t.Errorf("%+v %v", v, err)
	}
}

// Whatever comes, Judge answers, and calls nothing valid that isn't.
func FuzzJudge(f *testing.F) {
	f.Add([]byte(body), "evt_1", "1674087231", "v1,AAAA", "standard")
	f.Add([]byte("5\r\nabc"), "", "-1", "t=1,v1=00", "stripe")
	f.Add([]byte(`"\ud800"`), "a.b", "99999999999999999999", "sha256=", "github")
	f.Fuzz(func(t *testing.T, body []byte, id, ts, sig, scheme string) {
		h := http.Header{"Webhook-Id": {id}, "Webhook-Timestamp": {ts}, "Webhook-Signature": {sig}, "Stripe-Signature": {sig}, "X-Hub-Signature-256": {sig}}
		v, err := Judge(Input{Scheme: scheme, Secrets: []string{secret}, Header: h, Body: body, Now: now, Tolerance: time.Minute})
		if err == nil && (v.Valid || len(v.Causes) == 0) {
			t.Errorf("%+v", v)
		}
	})
}
