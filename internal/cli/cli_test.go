package cli

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook/client"
	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/config"
	"github.com/surehook/surehook/signing"
)

func TestTablesAlign(t *testing.T) {
	rows := [][]cell{{text("Łódź"), count(7), {text: "dead", colour: red}}, {text("x"), count(12345), text("ok")}}
	for colours, want := range map[bool]string{
		false: "NAME      N  STATE\nŁódź      7  dead\nx     12345  ok\n",
		true:  "\x1b[1mNAME\x1b[0m      \x1b[1mN\x1b[0m  \x1b[1mSTATE\x1b[0m\nŁódź      7  \x1b[31mdead\x1b[0m\nx     12345  ok\n",
	} {
		var b bytes.Buffer
		o := &output{w: &b, colour: colours}
		if err := o.table([]string{"NAME", "N", "STATE"}, rows); err != nil || b.String() != want {
			t.Errorf("%q, %v", b.String(), err)
		}
	}
}

func TestColoursOnATerminalAlone(t *testing.T) {
	for _, c := range []struct {
		environ  []string
		terminal bool
		want     bool
	}{{nil, true, true}, {nil, false, false}, {[]string{"NO_COLOR=1"}, true, false}, {[]string{"NO_COLOR="}, true, true}, {[]string{"TERM=dumb"}, true, false}} {
		if got := (&cmd{env: Env{Environ: c.environ}}).colours(c.terminal); got != c.want {
			t.Errorf("%v, terminal %v: %v", c.environ, c.terminal, got)
		}
	}
}

func TestProgressIsOneLineOnATerminal(t *testing.T) {
	var b bytes.Buffer
	p := progress{w: &b, terminal: true, state: &progressState{}}
	p.show("", "1 of 2")
	p.show("", "1 of 2")
	p.show("", "2 of 2")
	p.end()
	p.end()
	if b.String() != "\r\x1b[K1 of 2\r\x1b[K2 of 2\n" {
		t.Errorf("%q", b.String())
	}
}

func TestWhen(t *testing.T) {
	now := time.Date(2026, 1, 14, 12, 0, 0, 0, time.UTC)
	for in, want := range map[string]string{"24h": "2026-01-13T12:00:00Z", "2026-01-02": "2026-01-02T00:00:00Z", "2026-01-02T03:04:05+01:00": "2026-01-02T02:04:05Z"} {
		w := when{now: func() time.Time { return now }}
		if err := w.Set(in); err != nil || w.String() != want {
			t.Errorf("%s: %s, %v", in, &w, err)
		}
	}
	for _, in := range []string{"", "yesterday", "-1h"} {
		if err := (&when{}).Set(in); err == nil {
			t.Errorf("%q was taken", in)
		}
	}
}

func TestStrangersTextCannotSteerTheTerminal(t *testing.T) {
	if got := printable("a\x1b[2Jb\u202ec\nd\te é🚀"); got != "a�[2Jb�c\nd\te é🚀" {
		t.Errorf("%q", got)
	}
}

// The data of an event must leave the reader as it stands in the file.
func TestEventLinesKeepTheirBytes(t *testing.T) {
	for line, want := range map[string]string{
		`{"type":"a.b","data": { "n" : 1e400,"s":"<&>\u2028"} }`: `{ "n" : 1e400,"s":"<&>\u2028"}`,
		`{"type":"a.b","data":-0}`:                               `-0`,
		`{"no":"type", "data":1}`:                                `{"no":"type", "data":1}`,
		`[1,  2]`:                                                `[1,  2]`,
		`{"type":7,"data":1}`:                                    `{"type":7,"data":1}`,
	} {
		ev, err := parseEvent([]byte(line))
		if err != nil || string(ev.Data) != want {
			t.Errorf("%s: %s, %v", line, ev.Data, err)
		}
	}
	for _, line := range []string{"", "nonsense", `{"type":"a.b","data":1,"surprise":2}`, `{"a":1} {"b":2}`} {
		if _, err := parseEvent([]byte(line)); err == nil {
			t.Errorf("%q was taken", line)
		}
	}
}

func FuzzParseCaptured(f *testing.F) {
	f.Add([]byte("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\nx\n"))
	f.Add([]byte("a: b\n\n"))
	f.Add([]byte("Content-Length: -5\n\nxx"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, err := parseCaptured(raw)
		if err == nil && !bytes.Contains(raw, r.body) {
			t.Error("the body isn't in the file")
		}
	})
}

// The demo's receiver has to notice what it is there to notice.
func TestTheDemosReceiverIsStrict(t *testing.T) {
	const secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
	key, err := signing.ParseSecret(secret)
	if err != nil {
		t.Fatal(err)
	}
	signer, err := signing.NewSigner(key)
	if err != nil {
		t.Fatal(err)
	}
	at := time.Unix(1614265330, 0)
	body := []byte(`{"id":"e1","type":"a.b","timestamp":"…","data": [1] }`)
	right := signer.Sign("e1", at.Unix(), body)
	fresh := func() *demoReceiver {
		r := newReceiver("good", false, nil, func(string, int) int { return http.StatusOK })
		if err := r.trust(secret); err != nil {
			t.Fatal(err)
		}
		return r
	}
	for name, c := range map[string]struct {
		id, ts, sig string
		body        []byte
		now         time.Time
		status      int
	}{
		"right":         {"e1", "1614265330", right, body, at, 200},
		"second of two": {"e1", "1614265330", "v1,AAAA " + right, body, at, 200},
		"other body":    {"e1", "1614265330", right, append([]byte{' '}, body...), at, 401},
		"other id":      {"e2", "1614265330", right, body, at, 401},
		"none":          {"e1", "1614265330", "", body, at, 401},
		"old":           {"e1", "1614265330", right, body, at.Add(time.Hour), 401},
		"no time":       {"e1", "", right, body, at, 401},
	} {
		r := fresh()
		if got := r.take(http.MethodPost, c.id, c.ts, c.sig, c.body, c.now); got != c.status {
			t.Errorf("%s: %d", name, got)
		}
		if bad := r.counts().badSigs; (bad == 1) != (c.status == 401) {
			t.Errorf("%s: %d signature failures", name, bad)
		}
	}
	r := fresh()
	other := []byte(`{"id":"e1","type":"a.b","timestamp":"…","data": [2] }`)
	r.take(http.MethodPost, "e1", "1614265330", right, body, at)
	r.take(http.MethodPost, "e1", "1614265330", signer.Sign("e1", at.Unix(), other), other, at)
	if c := r.counts(); c.badBody != 1 || c.retried != 1 || c.delivered != 1 {
		t.Errorf("%+v", c)
	}
	if err := r.trust("whsec_!"); err == nil {
		t.Error("a secret that is none")
	}
}

// A number that isn't as it must be has to be told.
func TestTheDemosVerdict(t *testing.T) {
	d := &demo{}
	must := d.must("flaky", 10, 2, 23)
	if must.Delivered != 11 || must.Retried != 8 {
		t.Errorf("%+v", must)
	}
	if m := d.must("gone", 10, 2, 23); m.Dead != 1 || m.Disabled != "gone" {
		t.Errorf("%+v", m)
	}
	if m := d.must("flaky", 1, 1, 4); m.Retried != 4 {
		t.Errorf("%+v", m)
	}
	r := &result{}
	r.expect(must, must)
	if len(r.wrong) != 0 {
		t.Error(r.wrong)
	}
	for _, change := range []func(*row){func(x *row) { x.Delivered-- }, func(x *row) { x.Retried++ }, func(x *row) { x.Dead++ },
		func(x *row) { x.Disabled = "failing" }, func(x *row) { x.BadSignature++ }} {
		got := must
		change(&got)
		r := &result{}
		if r.expect(got, must); len(r.wrong) != 1 {
			t.Errorf("%+v: %v", got, r.wrong)
		}
	}
}

// The demo's expectations rest on a server whose metrics can be closed, too.
func TestMetricsCanBeClosed(t *testing.T) {
	cfg := config.Default()
	cfg.Listen, cfg.Data, cfg.MetricsAuth = "127.0.0.1:0", filepath.Join(t.TempDir(), "d"), "key"
	a, err := app.Start(t.Context(), cfg, app.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := a.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Error(err)
		}
	}()
	for key, want := range map[string]int{"": http.StatusUnauthorized, a.AdminKey: http.StatusOK} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+a.Addr.String()+"/metrics", nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Authorization", "Bearer "+key)
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != want {
			t.Errorf("%d, not %d", resp.StatusCode, want)
		}
	}
}

// Errors of the API get their exit codes, and say what to do.
func TestExitCodes(t *testing.T) {
	c := &cmd{}
	for status, want := range map[int]int{400: exitUsage, 401: exitRefused, 403: exitRefused, 404: exitNotFound, 409: exitFailed, 422: exitFailed, 500: exitFailed, 503: exitUnavailable} {
		e, ok := errors.AsType[*exitError](c.explain(&client.Problem{Status: status, Detail: "x"}))
		if !ok || e.code != want {
			t.Errorf("%d: %+v", status, e)
		}
	}
	if e, ok := errors.AsType[*exitError](c.explain(context.DeadlineExceeded)); !ok || e.code != exitUnavailable {
		t.Errorf("%+v", e)
	}
	// What was asked may be done: nobody may be told that nothing was changed.
	if e, ok := errors.AsType[*exitError](c.explain(&client.AnswerError{Host: "h"})); !ok || e.code != exitFailed || strings.Contains(e.hint, "nothing was changed") {
		t.Errorf("%+v", e)
	}
}

// Away from a terminal a clock that goes on is no news, and there is one line a
// second at most.
func TestProgressElsewhereTellsChangesAlone(t *testing.T) {
	var b bytes.Buffer
	p := progress{w: &b, state: &progressState{}}
	p.show("0.1 s  ", "1 of 3")
	p.show("0.2 s  ", "2 of 3") // within the second
	p.state.at = p.state.at.Add(-2 * progressEvery)
	p.show("2.3 s  ", "2 of 3")
	p.state.at = p.state.at.Add(-2 * progressEvery)
	p.show("4.4 s  ", "2 of 3") // no news
	p.show("4.5 s  ", "3 of 3")
	p.end()
	p.end()
	if b.String() != "0.1 s  1 of 3\n2.3 s  2 of 3\n4.5 s  3 of 3\n" {
		t.Errorf("%q", b.String())
	}
	b.Reset()
	p = progress{w: &b, terminal: true, state: &progressState{}}
	p.show("0.1 s  ", "1 of 3")
	p.show("0.2 s  ", "1 of 3")
	if b.String() != "\r\x1b[K0.1 s  1 of 3\r\x1b[K0.2 s  1 of 3" {
		t.Errorf("%q", b.String())
	}
}

// Every error of the library has words of its own here, without its prefix.
func TestVerdictsAreTheLibrarys(t *testing.T) {
	for _, v := range verdicts {
		if got := "signing: " + whyNot(fmt.Errorf("x: %w", v.err)); got != v.err.Error() {
			t.Errorf("%q, and the library says %q", got, v.err)
		}
	}
}

func TestOneIsNotMany(t *testing.T) {
	for n, want := range map[int]string{0: "0 old keys were", 1: "1 old key was", 2: "2 old keys were"} {
		if got := plural(n, "old key was", "old keys were"); got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
