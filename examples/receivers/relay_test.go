package receivers

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// relay is the real one, as a process, with all of the examples as subscribers.
type relay struct {
	t      *testing.T
	dir    string
	app    *app
	drills []*drill
}

// Every purple-wolf example takes what the real relay reads from a log, once
// each, whatever happens to answers, databases, secrets and processes.
func TestExamplesTakeTheRelay(t *testing.T) {
	t.Parallel()
	r := &relay{t: t, dir: t.TempDir()}
	for _, x := range examples {
		if x.profile == "purple-wolf" {
			d := &drill{t: t, x: x, in: newInbox(t), wire: newWire(t)}
			d.run(secrets[x.profile][0], "")
			r.drills = append(r.drills, d)
		}
	}
	if len(r.drills) != 3 {
		t.Fatalf("%d examples", len(r.drills))
	}
	r.secret(secrets["purple-wolf"][0])
	r.start()
	line := r.audit()
	for _, d := range r.drills {
		c := d.wire.last()
		if !bytes.Contains(c.body, []byte(line)) || c.header.Get("X-PurpleWolf-Schema") != "purple-wolf.audit/v1" {
			t.Errorf("%s: the audit line isn't in %s", d.x.name, c.body)
		}
		d.again(c, 200)
		d.again(captured{c.header, append(bytes.Clone(c.body), ' ')}, 401)
	}
	for i, trick := range []string{"lost", "held"} {
		for _, d := range r.drills {
			d.wire.play(trick)
		}
		r.audit()
		for _, d := range r.drills {
			until(t, func() bool { return d.wire.requests() >= d.sent+i+1 })
		}
	}
	r.locked()
	r.rotated()
}

// start writes the relay's file, and starts it.
func (r *relay) start() {
	r.t.Helper()
	self, err := os.Executable()
	if err != nil {
		r.t.Fatal(err)
	}
	program := filepath.Join(r.dir, "surehook")
	if err := os.Symlink(self, program); err != nil {
		r.t.Fatal(err)
	}
	file := "sources:\n  - {type: log_tail, path: " + filepath.Join(r.dir, "access.log") + ", from_beginning: true}\nsubscribers:\n"
	for i, d := range r.drills {
		file += fmt.Sprintf("  - {id: s%d, url: %q, secret_file: %s, timeout_ms: 3000, retry: {max_attempts: 20, base_delay_ms: 50, max_delay_ms: 200}}\n", i, d.wire.URL+"/webhook", filepath.Join(r.dir, "secret"))
	}
	if err := os.WriteFile(filepath.Join(r.dir, "relay.yaml"), []byte(file), 0o600); err != nil {
		r.t.Fatal(err)
	}
	r.app = start(r.t, []string{program, "relay", "--config", "relay.yaml", "--listen", "127.0.0.1:0", "--data", "data"}, r.dir)
}

func (r *relay) secret(s string) {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.dir, "secret"), []byte(s), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// audit adds an audit line to the log, waits until every example has it, and
// gives its object.
func (r *relay) audit() string {
	r.t.Helper()
	r.drills[0].sent++
	object := fmt.Sprintf(`{ "n":%d,"host":"a<b>&","query":"id=%%27\u0027 Łódź 🚀","action":"block","blocked_rule":"injection/sqli","blocked_severity":"critical","would_block_rules":[]}`, r.drills[0].sent)
	f, err := os.OpenFile(filepath.Join(r.dir, "access.log"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		r.t.Fatal(err)
	}
	if _, err := f.WriteString("2026-05-25T17:30:02Z INF " + object + " entryPointName=web middlewareName=strict-waf@file routerName=strict@file\n"); err != nil {
		r.t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		r.t.Fatal(err)
	}
	for _, d := range r.drills {
		d.sent = r.drills[0].sent
		until(r.t, func() bool { return d.in.rows(r.t) == d.sent })
	}
	return object
}

// locked: each example's database is locked until it has answered 503.
func (r *relay) locked() {
	r.t.Helper()
	for _, d := range r.drills {
		d.wire.settle(r.t)
		release := d.in.lock(r.t)
		defer release()
		go func() {
			if status := <-d.wire.served; status != 503 {
				r.t.Errorf("%s: a locked database was answered %d", d.x.name, status)
			}
			release()
		}()
	}
	r.audit()
}

// rotated: the subscribers know both secrets first, then the relay changes.
func (r *relay) rotated() {
	r.t.Helper()
	s := secrets["purple-wolf"]
	for _, d := range r.drills {
		before := d.wire.last()
		d.run(s[2], s[0])
		d.again(before, 200)
	}
	r.audit()
	r.secret(s[2])
	if err := r.app.cmd.Process.Signal(syscall.SIGHUP); err != nil {
		r.t.Fatal(err)
	}
	until(r.t, func() bool {
		r.audit()
		for _, d := range r.drills {
			if !d.wire.last().signedWith(s[2]) {
				return false
			}
		}
		return true
	})
}

// signedWith tells whether a purple-wolf request was signed with that secret.
func (c captured) signedWith(secret string) bool {
	m := hmac.New(sha256.New, []byte(secret))
	m.Write([]byte(c.header.Get("X-PurpleWolf-Timestamp") + "."))
	m.Write(c.body)
	return strings.TrimPrefix(c.header.Get("X-PurpleWolf-Signature"), "sha256=") == hex.EncodeToString(m.Sum(nil))
}

func (w *wire) requests() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.got)
}

// until asks again and again, for a minute at most.
func until(t *testing.T, is func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(time.Minute); !is(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("it didn't come about in a minute")
		}
	}
}
