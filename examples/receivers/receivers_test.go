// Package receivers runs the example receivers beside it as their readers would:
// installed from their registries, started, and fed by the real sender.
package receivers

import (
	"bytes"
	"context"
	"errors"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/conformance"
	"github.com/surehook/surehook/store/sqlite"
)

// example is one program and how it is run.
type example struct {
	name    string
	profile string
	program func(t *testing.T) (argv []string, dir string)
}

func pythonExample(name, profile string) example {
	return example{"python " + name, profile, func(t *testing.T) ([]string, string) {
		return []string{python(t), absolute(t, "python/"+name+".py")}, t.TempDir()
	}}
}

func nodeExample(name, profile string) example {
	return example{"typescript " + name, profile, func(t *testing.T) ([]string, string) {
		dir := node(t)
		copied(t, "typescript/"+name+".ts", filepath.Join(dir, name+".ts"))
		return []string{"node", "--import", "tsx", name + ".ts"}, dir
	}}
}

func goExample(name, profile string) example {
	return example{"go " + name, profile, func(t *testing.T) ([]string, string) { return []string{goProgram(t, name)}, t.TempDir() }}
}

var examples = []example{
	pythonExample("standard_flask", "standard"), pythonExample("standard_fastapi", "standard"), pythonExample("purplewolf_flask", "purple-wolf"),
	nodeExample("standard_hono", "standard"), nodeExample("standard_express", "standard"), nodeExample("purplewolf_hono", "purple-wolf"),
	goExample("chi", "standard"), goExample("echo", "standard"), goExample("gin", "standard"), goExample("purplewolf", "purple-wolf"),
}

// secrets of a profile: the current one, the one before, and the next.
var secrets = map[string][3]string{
	"standard":    {"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD", "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"},
	"purple-wolf": {"schlüssel, mit Komma", "the one before", "the next one"},
}

func env(profile, current, previous string) []string {
	name := "WEBHOOK_SECRET"
	if profile == "purple-wolf" {
		name = "PURPLEWOLF_SECRET"
	}
	return []string{name + "=" + current, name + "_PREVIOUS=" + previous}
}

// Every example passes the whole kit, with its effects counted, and answers by
// the contract's very statuses.
func TestExamplesConform(t *testing.T) {
	t.Parallel()
	for _, x := range examples {
		t.Run(x.name, func(t *testing.T) {
			t.Parallel()
			argv, dir := x.program(t)
			in, s := newInbox(t), secrets[x.profile]
			a := start(t, argv, dir, append(env(x.profile, s[0], s[1]), "DATABASE="+in.path)...)
			report, err := conformance.Run(t.Context(), conformance.Options{URL: a.url, Profile: x.profile, Secrets: s[:2], Retired: s[2], Effects: in.count})
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range report.Results {
				if !r.Pass {
					t.Errorf("%+v", r)
				}
				if want := statuses[r.Name]; x.profile == "purple-wolf" && want != 0 && !slices.Equal(r.Statuses, slices.Repeat([]int{want}, len(r.Statuses))) {
					t.Errorf("%s: %v, not %d", r.Name, r.Statuses, want)
				}
			}
			if report.Passed < 40 || report.Skipped != 0 {
				t.Errorf("%d passed, %d skipped", report.Passed, report.Skipped)
			}
		})
	}
}

// statuses are those that purple-wolf's protocol names.
var statuses = map[string]int{"plain": 200, "rotation": 200, "replayed": 200, "retried": 200, "unsigned": 400, "no id": 400, "no timestamp": 400, "no signature": 400,
	"tampered": 401, "other secret": 401, "stale": 401, "future": 401, "another major": 422}

// sender is the real engine, shared by all examples.
type sender struct {
	*engine.Engine
	told map[string]chan engine.Try // by tenant
}

func newSender(t *testing.T) *sender {
	t.Helper()
	store, err := sqlite.Open(t.Context(), filepath.Join(t.TempDir(), "surehook.db"), sqlite.Options{})
	if err != nil {
		t.Fatal(err)
	}
	s := &sender{told: map[string]chan engine.Try{}}
	for _, x := range examples {
		s.told[tenant(x)] = make(chan engine.Try, 1000)
	}
	s.Engine, err = engine.New(engine.Options{Store: store, MasterKeys: [][]byte{bytes.Repeat([]byte{7}, 32)},
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Observe: func(try engine.Try) { s.told[try.Event.Tenant] <- try }})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		if err := errors.Join(s.Stop(ctx), store.Close()); err != nil {
			t.Error(err)
		}
	})
	return s
}

func tenant(x example) string { return strings.ReplaceAll(x.name, " ", "-") }

// The real sender's events arrive once each, whatever happens to answers,
// secrets, the database and the process.
func TestExamplesReceive(t *testing.T) {
	t.Parallel()
	s := newSender(t)
	t.Run("all", func(t *testing.T) { // the sender outlives them
		for _, x := range examples {
			t.Run(x.name, func(t *testing.T) {
				t.Parallel()
				d := newDrill(t, s, x)
				d.arrives()
				d.onceAnswersAreLost()
				d.afterADatabaseThatWasLocked()
				d.throughARotationAndACrash()
			})
		}
	})
}

// drill is one example, its endpoint and what is between.
type drill struct {
	t    *testing.T
	s    *sender
	x    example
	in   *inbox
	wire *wire
	app  *app
	hook string
	sent int
}

func newDrill(t *testing.T, s *sender, x example) *drill {
	t.Helper()
	d := &drill{t: t, s: s, x: x, in: newInbox(t), wire: newWire(t)}
	d.run(secrets[x.profile][0], "")
	w := engine.Webhook{Tenant: tenant(x), URL: d.wire.URL + "/webhook", Secret: secrets[x.profile][0], Profile: x.profile,
		Limits: surehook.Limits{Waits: slices.Repeat([]time.Duration{50 * time.Millisecond}, 9), Attempts: 10, Timeout: 10 * time.Second}}
	ep, _, err := s.CreateWebhook(t.Context(), w, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	d.hook = ep.ID
	return d
}

// run starts the example, or starts it again.
func (d *drill) run(current, previous string) {
	d.t.Helper()
	if d.app != nil {
		d.app.stop()
	}
	argv, dir := d.x.program(d.t)
	d.app = start(d.t, argv, dir, append(env(d.x.profile, current, previous), "DATABASE="+d.in.path)...)
	d.wire.lead(d.t, d.app.url)
}

// send publishes an event and waits until it is delivered; it gives the number of attempts.
func (d *drill) send() int {
	d.t.Helper()
	d.sent++
	_, err := d.s.Publish(d.t.Context(), surehook.Event{Type: "order.paid", Tenant: tenant(d.x), Data: []byte("{ \"name\":\"Łódź 🚀 \\u00e9</>\", \"total\": 12.50,\"action\":\"block\" }")})
	if err != nil {
		d.t.Fatal(err)
	}
	limit := time.After(60 * time.Second)
	for {
		select {
		case try := <-d.s.told[tenant(d.x)]:
			switch {
			case try.Attempt.Status == surehook.AttemptSucceeded:
				if n := d.in.rows(d.t); n != d.sent {
					d.t.Errorf("%d events are kept, %d were sent", n, d.sent)
				}
				return try.Attempt.Number
			case try.Decision == surehook.Bury:
				d.t.Fatalf("dead: %d %s", try.Attempt.HTTPStatus, try.Attempt.Error)
			}
		case <-limit:
			d.t.Fatal("it wasn't delivered in a minute")
		}
	}
}

// again sends a request that went by once more.
func (d *drill) again(c captured, want int) {
	d.t.Helper()
	status, err := c.send(d.t.Context(), d.app.url)
	if err != nil || status != want {
		d.t.Errorf("%d, %v, not %d", status, err, want)
	}
	if n := d.in.rows(d.t); n != d.sent {
		d.t.Errorf("%d events are kept, %d were sent", n, d.sent)
	}
}

// arrives: an event comes byte for byte, and its work is done; a replay does
// nothing, and what was tampered with is refused.
func (d *drill) arrives() {
	d.t.Helper()
	if n := d.send(); n != 1 {
		d.t.Errorf("%d attempts", n)
	}
	c := d.wire.last()
	var id string
	var kept []byte
	if err := d.in.db.QueryRowContext(d.t.Context(), `SELECT id, body FROM inbox`).Scan(&id, &kept); err != nil || !bytes.Equal(kept, c.body) || !bytes.Contains(kept, []byte("Łódź 🚀")) {
		d.t.Errorf("%s %v", kept, err)
	}
	d.app.wait(d.t, id+": ")
	d.again(c, 200)
	d.again(captured{c.header, append(bytes.Clone(c.body), ' ')}, 401)
}

// onceAnswersAreLost: the sender tries again, and the event is kept once.
func (d *drill) onceAnswersAreLost() {
	d.t.Helper()
	d.wire.play("lost")
	if n := d.send(); n != 2 {
		d.t.Errorf("%d attempts after a lost answer", n)
	}
	limits := surehook.Limits{Waits: slices.Repeat([]time.Duration{50 * time.Millisecond}, 9), Attempts: 10, Timeout: time.Second}
	if _, err := d.s.UpdateWebhook(d.t.Context(), d.hook, engine.Patch{Limits: &limits}, engine.Actor{}); err != nil {
		d.t.Fatal(err)
	}
	d.wire.play("held")
	if n := d.send(); n < 2 {
		d.t.Errorf("%d attempts after a slow answer", n)
	}
	limits.Timeout = 10 * time.Second
	if _, err := d.s.UpdateWebhook(d.t.Context(), d.hook, engine.Patch{Limits: &limits}, engine.Actor{}); err != nil {
		d.t.Fatal(err)
	}
}

// afterADatabaseThatWasLocked: what may pass is answered 5xx, and comes again.
func (d *drill) afterADatabaseThatWasLocked() {
	d.t.Helper()
	d.wire.settle(d.t)
	release := d.in.lock(d.t)
	defer release()
	first := make(chan int, 1)
	go func() {
		first <- <-d.wire.served
		release()
	}()
	if n := d.send(); n < 2 {
		d.t.Errorf("%d attempts", n)
	}
	if status := <-first; status != 503 {
		d.t.Errorf("a locked database was answered %d", status)
	}
}

// throughARotationAndACrash: the receiver takes both secrets while the sender
// changes over, and remembers what it had when it is started again.
func (d *drill) throughARotationAndACrash() {
	d.t.Helper()
	before, s := d.wire.last(), secrets[d.x.profile]
	current := s[2]
	if d.x.profile == "standard" { // the sender signs with both, the receiver knows the old one
		var err error
		if _, current, err = d.s.RotateSecret(d.t.Context(), d.hook, time.Hour, engine.Actor{}); err != nil {
			d.t.Fatal(err)
		}
		d.send()
	}
	d.run(current, s[0])
	d.again(before, 200)
	if d.x.profile == "purple-wolf" { // one signature: the receiver knows both first
		d.send()
		if err := d.s.SetSecret(d.t.Context(), d.hook, current, engine.Actor{}); err != nil {
			d.t.Fatal(err)
		}
	}
	if n := d.send(); n != 1 {
		d.t.Errorf("%d attempts", n)
	}
	d.again(before, 200)
}
