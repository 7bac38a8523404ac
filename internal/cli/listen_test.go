package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/conformance"
	"github.com/surehook/surehook/signing"
)

const listenSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// listening starts a listener, and gives what it writes.
func listening(t *testing.T, asJSON bool, change func(l *listener)) (addr string, l *listener, out *bytes.Buffer) {
	t.Helper()
	out = &bytes.Buffer{}
	c := &cmd{env: Env{Stdout: out, Stderr: out}, json: asJSON}
	c.out = c.output()
	l = &listener{c: c, scheme: "standard", status: 200, now: time.Now, done: make(chan struct{}), seen: map[string]int{}}
	if change != nil {
		change(l)
	}
	srv := httptest.NewUnstartedServer(l)
	srv.Listener, srv.Config.ConnContext = heads{srv.Listener}, withHead
	srv.Start()
	t.Cleanup(srv.Close)
	return srv.URL, l, out
}

func trusting(t *testing.T, l *listener, secrets ...string) {
	t.Helper()
	if err := l.trust(secrets); err != nil {
		t.Fatal(err)
	}
}

// deliver sends a right request, after change.
func deliver(t *testing.T, to, id, body string, change func(r *http.Request)) *http.Response {
	t.Helper()
	key, err := signing.ParseSecret(listenSecret)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signing.NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now().Unix()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, to, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set(signing.HeaderID, id)
	req.Header.Set(signing.HeaderTimestamp, strconv.FormatInt(now, 10))
	req.Header.Set(signing.HeaderSignature, signer.Sign(id, now, []byte(body)))
	if change != nil {
		change(req)
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func records(t *testing.T, raw []byte, n int) []received {
	t.Helper()
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	if len(lines) != n {
		t.Fatalf("%d lines, not %d:\n%s", len(lines), n, raw)
	}
	got := make([]received, n)
	for i, line := range lines {
		if err := json.Unmarshal([]byte(line), &got[i]); err != nil {
			t.Fatal(err)
		}
	}
	return got
}

func TestListen(t *testing.T) {
	addr, l, out := listening(t, true, func(l *listener) {
		trusting(t, l, listenSecret)
		l.status, l.left = 202, 5
	})
	deliver(t, addr+"/in?a=1", "evt_1", `{"test": "é"}`, nil)
	deliver(t, addr+"/in", "evt_1", `{"test": "é"}`, func(r *http.Request) { r.Header.Set("Surehook-Attempt", "2") })
	deliver(t, addr+"/in", "evt_2", `{"test": "é"}`, func(r *http.Request) {
		r.Body, r.ContentLength = io.NopCloser(strings.NewReader(`{"test":"é"}`)), -1
	})
	deliver(t, addr+"/in", "evt_3", "\xff", nil)
	deliver(t, addr+"/in", "evt_4", "{}", func(r *http.Request) { r.Header.Set(signing.HeaderTimestamp, "1") })
	<-l.done
	got := records(t, out.Bytes(), 5)
	if r := got[0]; r.Signature != "valid" || r.Status != 202 || r.Body != `{"test": "é"}` || r.Query != "a=1" || r.Header.Get("Webhook-Id") != "evt_1" || r.Seen != 0 {
		t.Errorf("%+v", r)
	}
	if r := got[1]; r.Seen != 1 || r.Attempt != 2 {
		t.Errorf("%+v", r)
	}
	if r := got[2]; r.Signature != "no signature matches" || r.Status != 401 || len(r.Causes) != 1 || r.Causes[0].Code != "body_reserialised" {
		t.Errorf("%+v", r)
	}
	if r := got[3]; r.Body != "" || string(r.Raw) != "\xff" {
		t.Errorf("%+v", r)
	}
	if r := got[4]; r.Signature != "the timestamp is too old" || r.Status != 401 {
		t.Errorf("%+v", r)
	}
}

// For people: the verdict, why, the headers that matter, the body indented.
func TestListenShows(t *testing.T) {
	addr, l, out := listening(t, false, func(l *listener) {
		trusting(t, l, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD")
		l.left = 1
	})
	deliver(t, addr, "evt_1", `{"name":"Łódź","n":1.50,"x":"`+"\u009b2J"+`"}`, func(r *http.Request) { r.Header.Set("X-Else", "hidden") })
	<-l.done
	for _, want := range []string{"refused: no signature matches", "most likely the secret is another endpoint's", "Webhook-Id: evt_1", "  {\n    \"name\": \"Łódź\",\n    \"n\": 1.50,", "answered 401"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("%q isn't in\n%s", want, out)
		}
	}
	if strings.Contains(out.String(), "hidden") || strings.ContainsRune(out.String(), '\u009b') {
		t.Errorf("%s", out)
	}
}

func TestListenFails(t *testing.T) {
	addr, _, _ := listening(t, true, func(l *listener) {
		trusting(t, l, listenSecret)
		if err := l.fail.Set("503:2"); err != nil {
			t.Fatal(err)
		}
		l.delay = time.Millisecond
	})
	for i, want := range []int{503, 503, 200, 200} {
		if got := deliver(t, addr, "evt_1", "{}", nil).StatusCode; got != want {
			t.Errorf("%d: %d", i, got)
		}
	}
	if got := deliver(t, addr, "evt_2", "{}", nil).StatusCode; got != 503 {
		t.Errorf("each event fails so often: %d", got)
	}
	for _, bad := range []string{"", "200:1", "500:0", "500:x", "600", "500:1:2"} {
		if err := new(failRule).Set(bad); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// What goes on is what came: every byte, every header. What comes back too.
func TestListenForwardsRecordsAndReplays(t *testing.T) {
	type request struct {
		header http.Header
		body   string
		query  string
	}
	var got []request
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			t.Error(err)
		}
		got = append(got, request{r.Header, string(body), r.URL.RawQuery})
		w.Header().Set("X-Answer", "yes")
		w.WriteHeader(http.StatusAccepted)
		_, _ = w.Write([]byte("thanks"))
	}))
	defer target.Close()
	u, err := url.Parse(target.URL + "/hook")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "got.jsonl")
	record, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	defer record.Close()
	addr, _, _ := listening(t, true, func(l *listener) {
		trusting(t, l, listenSecret)
		l.forward, l.record = u, record
	})
	const body = "{ \"a\": \"\\u00e9é\" }\n"
	resp := deliver(t, addr+"/x?q=1", "evt_1", body, func(r *http.Request) {
		r.Header["User-Agent"] = nil
		r.Header.Set("Accept-Encoding", "br")
		r.Header.Set("X-Multi", "a")
		r.Header.Add("X-Multi", "b")
	})
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusAccepted || string(text) != "thanks" || resp.Header.Get("X-Answer") != "yes" {
		t.Errorf("%d %s %v", resp.StatusCode, text, err)
	}
	deliver(t, addr, "evt_2", "\xfe\xff", nil)
	if r := deliver(t, addr, "evt_3", "x", func(r *http.Request) { r.Header.Set(signing.HeaderID, "evt_4") }); r.StatusCode != http.StatusUnauthorized {
		t.Errorf("%d", r.StatusCode)
	}
	if len(got) != 2 || got[0].body != body || got[0].query != "q=1" || got[1].body != "\xfe\xff" {
		t.Fatalf("%+v", got)
	}
	h := got[0].header
	if h.Get("Webhook-Id") != "evt_1" || h.Get("Accept-Encoding") != "br" || len(h.Values("X-Multi")) != 2 || h.Get("User-Agent") != "" || h.Get("X-Forwarded-For") != "" {
		t.Errorf("%v", h)
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm()&0o077 != 0 && info.Mode().Perm() != 0o644 {
		t.Errorf("%v %v", info, err)
	}

	replayed(t, file, target.URL)
	if r := got[len(got)-3]; len(got) != 5 || r.body != body || r.header.Get("Webhook-Timestamp") == h.Get("Webhook-Timestamp") || r.header.Get("Webhook-Signature") == h.Get("Webhook-Signature") {
		t.Errorf("%+v", got)
	}
}

// replayed shows the file's three requests again, and sends them on, signed anew.
func replayed(t *testing.T, file, target string) {
	t.Helper()
	raw, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	records(t, raw, 3)
	_, l, out := listening(t, true, func(l *listener) { trusting(t, l, listenSecret) })
	if err := l.start(t.Context(), &listenFlags{replay: file}); err != nil {
		t.Fatal(err)
	}
	if r := records(t, out.Bytes(), 3); r[0].Signature != "valid" || r[1].Signature != "valid" || r[2].Status != 401 {
		t.Errorf("%+v", r)
	}
	_, l, _ = listening(t, true, func(l *listener) {
		trusting(t, l, listenSecret)
		l.now = func() time.Time { return time.Now().Add(time.Hour) }
	})
	if err := l.start(t.Context(), &listenFlags{replay: file, forward: target, again: true}); err != nil {
		t.Fatal(err)
	}
}

// When nobody answers behind it, the sender is asked to come again.
func TestListenForwardsToNobody(t *testing.T) {
	down := httptest.NewServer(nil)
	down.Close()
	addr, _, out := listening(t, true, func(l *listener) {
		var err error
		if l.forward, err = url.Parse(down.URL + "/?token=planted"); err != nil {
			t.Fatal(err)
		}
	})
	if r := deliver(t, addr, "evt_1", "{}", nil); r.StatusCode != http.StatusBadGateway {
		t.Errorf("%d", r.StatusCode)
	}
	if strings.Contains(out.String(), "planted") || !strings.Contains(out.String(), "doesn't answer") {
		t.Errorf("%s", out)
	}
}

// listen takes and refuses what a receiver should, under both schemes.
func TestListenConforms(t *testing.T) {
	for _, c := range []struct {
		scheme  string
		secrets []string
	}{{"standard", []string{listenSecret, "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD"}}, {"purple-wolf", []string{"new", "old"}}} {
		addr, _, _ := listening(t, true, func(l *listener) {
			l.scheme = c.scheme
			trusting(t, l, c.secrets...)
		})
		report, err := conformance.Run(t.Context(), conformance.Options{URL: addr, Profile: c.scheme, Secrets: c.secrets, Retired: "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"})
		if err != nil {
			t.Fatal(err)
		}
		if report.Failed != 0 || report.Skipped != 0 || report.Passed < 30 {
			t.Errorf("%s: %+v", c.scheme, report)
		}
	}
}

// The command says which cases failed, what they risk, and ends with 1.
func TestConformanceCommand(t *testing.T) {
	bad := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) }))
	defer bad.Close()
	good, _, _ := listening(t, true, func(l *listener) { trusting(t, l, listenSecret) })
	for _, c := range []struct {
		args []string
		code int
		want []string
	}{
		{[]string{"conformance", good, "--secret", listenSecret}, exitOK, []string{"pass     plain", "skipped  rotation", " 0 failed"}},
		{[]string{"conformance", good, "--secret", listenSecret, "--json"}, exitOK, []string{`"failed":0`}},
		{[]string{"conformance", bad.URL, "--secret", listenSecret}, exitFailed, []string{"FAIL     tampered", "risk: anybody can send events in your sender's name"}},
		{[]string{"conformance", bad.URL, "--secret", listenSecret, "--json"}, exitFailed, []string{`"pass":false`, `"risk":"anybody`}},
		{[]string{"conformance", good, "--secret", listenSecret, "--retired-secret-file", "/nowhere"}, exitUsage, []string{"--retired-secret-file"}},
		{[]string{"conformance", good, "--secret", listenSecret, "--effects", "echo 7"}, exitFailed, []string{"0 effects, not 1"}},
		{[]string{"conformance", good, "--secret", listenSecret, "--effects", "echo x"}, exitUsage, []string{"must print one number"}},
		{[]string{"conformance", good, "--secret", listenSecret, "--profile", "pigeon"}, exitUsage, []string{"unknown profile"}},
		{[]string{"conformance", "http://127.0.0.1:1", "--secret", listenSecret}, exitUnavailable, []string{"can't be reached"}},
	} {
		var out, errs bytes.Buffer
		code := Main(t.Context(), Env{Args: c.args, Stdout: &out, Stderr: &errs})
		for _, want := range c.want {
			if !strings.Contains(out.String()+errs.String(), want) {
				t.Errorf("%v: %q isn't in\n%s%s", c.args, want, &out, &errs)
			}
		}
		if code != c.code || strings.Contains(out.String()+errs.String(), "MfKQ") {
			t.Errorf("%v: %d\n%s", c.args, code, &errs)
		}
		if c.args[len(c.args)-1] == "--json" && !json.Valid(out.Bytes()) {
			t.Errorf("%s", &out)
		}
	}
}

func TestListenRefusesItsFlags(t *testing.T) {
	for name, args := range map[string][]string{
		"--status":   {"--status", "99"},
		"--fail":     {"--fail", "200:1"},
		"--delay":    {"--delay", "-1s"},
		"--forward":  {"--forward", "localhost:3000"},
		"--replay":   {"--replay", "/nowhere"},
		"sign-again": {"--sign-again"},
		"scheme":     {"--scheme", "pigeon", "--secret", "x"},
		"secret":     {"--secret", "whsec_!"},
	} {
		var errs bytes.Buffer
		if code := Main(t.Context(), Env{Args: append([]string{"listen", "--addr", "127.0.0.1:0"}, args...), Stdout: io.Discard, Stderr: &errs}); code != exitUsage || !strings.Contains(errs.String(), name) {
			t.Error(fmt.Sprint(name, ": ", code, " ", errs.String()))
		}
	}
}
