package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/pgserver"
	"github.com/surehook/surehook/signing"
)

// watch is one sentinel, and what must arrive at it.
type watch struct {
	n       int
	id      string
	path    string
	subject string
	types   []string
	kind    string // of its until
	count   int
	at      time.Time
	pulled  bool // by the day's session

	mu      sync.Mutex
	secrets []string             // that its callback knows
	live    bool                 // nothing has ended it
	owed    map[string]bool      // events that were its own
	got     map[string]time.Time // events that arrived
	wrong   []string
}

// day is GitHub-shaped traffic, its watchers, and a server that is killed meanwhile.
type day struct {
	t       *testing.T
	s       *server
	url     string
	watches []*watch
	byPath  map[string]*watch
	bad     sync.Map // paths of callbacks that failed, and got an event
	serial  int
}

var dayTypes = []string{"github.check_suite.completed", "github.issue_comment.created", "github.pull_request.synchronize"}

func newSecret() string {
	b := make([]byte, 24)
	for i := range b {
		b[i] = byte(rand.IntN(256))
	}
	s, err := signing.SecretFromBytes(b)
	if err != nil {
		panic(err)
	}
	return s.Encode()
}

// ServeHTTP is every callback: those under /ok pass the challenge, the others fail it in
// each way. Of events, one in twenty is answered 503.
func (d *day) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return // the sender was killed
	}
	var in struct{ Type, Challenge, EventID string }
	if err := json.Unmarshal(body, &in); err != nil {
		d.t.Errorf("%s got %q", r.URL.Path, body)
	}
	if in.Type == "verification" {
		switch mode := strings.Split(r.URL.Path, "/")[1]; mode {
		case "ok":
			fmt.Fprintf(w, `{"challenge":%q}`, in.Challenge)
		case "wrong":
			fmt.Fprint(w, `{"challenge":"0"}`)
		case "status":
			w.WriteHeader(http.StatusInternalServerError)
		case "redirect":
			http.Redirect(w, r, "https://example.com/", http.StatusFound)
		case "cut":
			panic(http.ErrAbortHandler)
		}
		return
	}
	x := d.byPath[r.URL.Path]
	if x == nil {
		d.bad.Store(r.URL.Path, true)
		return
	}
	if rand.IntN(20) == 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	x.take(r, in.EventID, body)
}

// take notes an event that arrived, if one of the secrets signed it.
func (x *watch) take(r *http.Request, event string, body []byte) {
	x.mu.Lock()
	defer x.mu.Unlock()
	ts, _ := strconv.ParseInt(r.Header.Get("webhook-timestamp"), 10, 64)
	good := slices.ContainsFunc(x.secrets, func(text string) bool {
		secret, err := signing.ParseSecret(text)
		if err != nil {
			return false
		}
		signer, err := signing.NewSigner(secret)
		return err == nil && strings.Contains(r.Header.Get("webhook-signature"), signer.Sign(event, ts, body))
	})
	if !good || r.Header.Get("webhook-id") != event || x.id != "" && r.Header.Get("X-MCP-Subscription-Id") != x.id {
		x.wrong = append(x.wrong, event)
	}
	if _, again := x.got[event]; !again {
		x.got[event] = time.Now()
	}
}

// ask sends a request until the server answers it, whatever kills it meanwhile.
func (d *day) ask(method, path, media string, body any) (int, map[string]any) {
	var raw []byte
	var err error
	if body != nil {
		if raw, err = json.Marshal(body); err != nil {
			d.t.Error(err)
		}
	}
	for end := time.Now().Add(time.Minute); ; {
		req, err := http.NewRequestWithContext(context.Background(), method, "http://"+d.s.addr+path, bytes.NewReader(raw))
		if err != nil {
			d.t.Error(err)
			return 0, nil
		}
		req.Header.Set("Authorization", "Bearer "+proofKey)
		req.Header.Set("Content-Type", media)
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			var out map[string]any
			err = json.NewDecoder(res.Body).Decode(&out)
			_ = res.Body.Close()
			if err == nil && res.StatusCode != http.StatusServiceUnavailable {
				return res.StatusCode, out
			}
		}
		if time.Now().After(end) {
			d.t.Errorf("%s %s: no answer in a minute: %v", method, path, err)
			return 0, nil
		}
		<-time.After(20 * time.Millisecond)
	}
}

const dayPulls = 40

// add makes a sentinel of one kind or another.
func (d *day) add() {
	n := len(d.watches)
	pr := rand.IntN(dayPulls)
	x := &watch{n: n, path: fmt.Sprintf("/ok/%d", n), secrets: []string{newSecret()}, live: true, owed: map[string]bool{}, got: map[string]time.Time{}, kind: "never"}
	x.subject = []string{subjectOf(pr), fmt.Sprintf("github:o/r%d", pr%5), fmt.Sprintf("github:O/R%d#*", pr%5), "github:*"}[[]int{0, 0, 0, 0, 1, 2, 3}[rand.IntN(7)]]
	if rand.IntN(3) == 0 {
		x.types = []string{"github.*.completed"}
	}
	until := map[string]any{}
	switch rand.IntN(4) {
	case 0:
		x.kind, x.count = "count", 1+rand.IntN(30)
		until["n"] = x.count
	case 1:
		x.kind, x.subject = "subject_terminal", subjectOf(pr)
	case 2:
		x.kind, x.at = "at", time.Now().Add(time.Duration(1+rand.IntN(8))*time.Second)
		until["ms"] = x.at.UnixMilli()
	}
	target := map[string]any{"kind": "webhook", "url": d.url + x.path, "secret": x.secrets[0]}
	if x.pulled = x.kind != "at" && n%10 == 0; x.pulled {
		target = map[string]any{"kind": "session", "sessionId": "agent", "urgency": "steer"}
	}
	until["kind"] = x.kind
	clause := map[string]any{"subject": x.subject}
	if x.types != nil {
		clause["types"] = x.types
	}
	d.watches, d.byPath[x.path] = append(d.watches, x), x
	status, out := d.ask("POST", "/sentinels", "application/json", map[string]any{"match": []any{clause}, "until": until, "target": target})
	if status != http.StatusCreated {
		d.t.Fatalf("%d %v", status, out)
	}
	x.mu.Lock()
	x.id, _ = out["id"].(string)
	x.mu.Unlock()
}

func subjectOf(pr int) string { return fmt.Sprintf("github:o/r%d#%d", pr%5, pr) }

// refused asks for sentinels whose callbacks fail the challenge, in each way.
func (d *day) refused() {
	for url, reason := range map[string]string{d.url + "/wrong/1": "challenge_failed", d.url + "/status/1": "non_2xx", d.url + "/redirect/1": "ssrf_blocked", d.url + "/cut/1": "timeout",
		"ftp://hooks.example.com/1": "non_https", "https://10.0.0.1/1": "ssrf_blocked"} {
		status, out := d.ask("POST", "/sentinels", "application/json", map[string]any{"match": []any{map[string]any{"subject": "github:*"}}, "until": map[string]any{"kind": "never"},
			"target": map[string]any{"kind": "webhook", "url": url, "secret": newSecret()}})
		details, _ := out["details"].(map[string]any)
		if status != http.StatusUnprocessableEntity || details["reason"] != reason {
			d.t.Errorf("%s: %d %v", url, status, out)
		}
	}
}

// publish sends an event, and notes at whom it must arrive.
func (d *day) publish(id string, pr int, typ string, last bool) {
	subjects := []string{subjectOf(pr), fmt.Sprintf("github:o/r%d", pr%5), "github:o"}
	status, out := d.ask("POST", "/v1/events", "application/cloudevents+json", map[string]any{"specversion": "1.0", "id": id, "source": "https://github.com/o", "type": typ,
		"subject": subjects[0], "subjects": subjects, "terminal": last, "summary": "seven", "data": map[string]any{"pr": pr}})
	if status != http.StatusAccepted {
		d.t.Errorf("event: %d %v", status, out)
	}
	for _, x := range d.watches {
		x.mu.Lock()
		if x.live && x.wants(subjects, typ) {
			x.owed[id] = true
		}
		if x.live && last && x.kind == "subject_terminal" && x.subject == subjects[0] {
			x.live = false
		}
		x.mu.Unlock()
	}
}

func (x *watch) wants(subjects []string, typ string) bool {
	stem, prefix := strings.CutSuffix(strings.ToLower(x.subject), "*")
	return (x.types == nil || strings.HasSuffix(typ, ".completed")) &&
		slices.ContainsFunc(subjects, func(s string) bool { return s == stem || prefix && strings.HasPrefix(s, stem) })
}

// round publishes in many places at once, while the server is killed and restarted, secrets
// are changed and callbacks fail their challenge; then some pull requests are closed, and some sentinels are removed.
func (d *day) round(events int) {
	next := make(chan int)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for n := range next {
				d.publish(fmt.Sprintf("e%d", n), rand.IntN(dayPulls), dayTypes[n%len(dayTypes)], false)
			}
		})
	}
	wg.Go(func() {
		for range 5 {
			x := d.watches[rand.IntN(len(d.watches))]
			secret := newSecret()
			x.mu.Lock()
			x.secrets = append(x.secrets, secret)
			x.mu.Unlock()
			d.ask("PATCH", "/sentinels/"+x.id, "application/json", map[string]any{"secret": secret}) // 404 or 409 where it is removed or over
		}
	})
	wg.Go(d.refused)
	for n := range events {
		switch next <- d.serial; n {
		case events / 3, 2 * events / 3:
			d.s.kill()
			d.s.start()
		case events / 2:
			if code := d.s.term(); code != 0 {
				d.t.Errorf("a restart: exit %d", code)
			}
			d.s.start()
		}
		d.serial++
	}
	close(next)
	wg.Wait()
	for range 3 {
		d.publish(fmt.Sprintf("e%d", d.serial), rand.IntN(dayPulls), "github.pull_request.closed", true)
		d.serial++
	}
	d.settle()
	for range 5 {
		if x := d.watches[rand.IntN(len(d.watches))]; x.live && x.kind != "at" && !x.pulled {
			if status, out := d.ask("DELETE", "/sentinels/"+x.id, "application/json", nil); status != http.StatusOK {
				d.t.Errorf("removing: %d %v", status, out)
			}
			x.live = false
		}
	}
}

// missing counts what is owed and isn't there; of a count, so many of what matched.
func (x *watch) missing() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch x.kind {
	case "at":
		return 0
	case "count":
		return max(min(x.count, len(x.owed))-len(x.got), 0)
	}
	n := 0
	for id := range x.owed {
		if _, ok := x.got[id]; !ok {
			n++
		}
	}
	return n
}

func (d *day) settle() {
	d.t.Helper()
	for end := time.Now().Add(time.Minute); ; {
		n := 0
		for _, x := range d.watches {
			if !x.pulled {
				n += x.missing()
			}
		}
		if n == 0 {
			return
		}
		if time.Now().After(end) {
			d.t.Fatalf("%d deliveries are missing after a minute\n%s", n, d.s.log.String())
		}
		<-time.After(50 * time.Millisecond)
	}
}

// pull reads the session to its end, through one more crash.
func (d *day) pull() {
	byID := map[string]*watch{}
	for _, x := range d.watches {
		byID[x.id] = x
	}
	for cursor, page := "", 0; ; page++ {
		status, out := d.ask("GET", "/v1/sessions/agent/events?limit=50&cursor="+cursor, "application/json", nil)
		items, _ := out["items"].([]any)
		if status != http.StatusOK {
			d.t.Fatalf("pulling: %d %v", status, out)
		}
		for _, item := range items {
			it, _ := item.(map[string]any)
			id, _ := it["id"].(string)
			of, _ := it["webhook_id"].(string)
			if x := byID[of]; x == nil || !x.pulled || it["urgency"] != "steer" {
				d.t.Errorf("pulled: %v", it)
			} else {
				x.got[id] = time.Now()
			}
		}
		if cursor, _ = out["next_cursor"].(string); len(items) == 0 {
			break
		}
		if page == 1 {
			d.s.kill()
			d.s.start()
		}
	}
	for _, x := range d.watches {
		if n := x.missing(); x.pulled && n > 0 {
			d.t.Errorf("sentinel %d: %d events aren't in the session's inbox", x.n, n)
		}
	}
}

// check holds what arrived against what was owed: nothing more.
func (d *day) check() (pairs int) {
	for _, x := range d.watches {
		x.mu.Lock()
		pairs += len(x.got)
		if len(x.wrong) > 0 {
			d.t.Errorf("sentinel %d: %d events with a wrong signature or id", x.n, len(x.wrong))
		}
		if x.kind == "count" && len(x.got) > x.count {
			d.t.Errorf("sentinel %d: %d events, and its count is %d", x.n, len(x.got), x.count)
		}
		for id, at := range x.got {
			if !x.owed[id] {
				d.t.Errorf("sentinel %d (%s, %s): %s isn't its own", x.n, x.kind, x.subject, id)
			}
			if x.kind == "at" && at.After(x.at.Add(time.Second)) {
				d.t.Errorf("sentinel %d: an event %v after its time", x.n, at.Sub(x.at))
			}
		}
		x.mu.Unlock()
	}
	d.bad.Range(func(path, _ any) bool {
		d.t.Errorf("%v never passed a challenge, and got an event", path)
		return true
	})
	return pairs
}

// Sentinels of all kinds, through kills, failing receivers and changes of secrets:
// what must arrive does, and nothing else.
func TestProofSentinels(t *testing.T) {
	for name, server := range map[string]func(t *testing.T) *server{
		"SQLite":     newServer,
		"PostgreSQL": func(t *testing.T) *server { return newProcess(t, pgserver.Database(t)) },
	} {
		t.Run(name, func(t *testing.T) {
			d := &day{t: t, s: server(t), byPath: map[string]*watch{}}
			callbacks := httptest.NewServer(d)
			t.Cleanup(callbacks.Close)
			d.url = callbacks.URL
			d.s.start()
			if status, out := d.ask("PUT", "/v1/sessions/agent", "application/json", map[string]any{}); status/100 != 2 {
				t.Fatalf("%d %v", status, out)
			}
			sentinels, n := rounds(120, 1000), rounds(3, 10)
			for range n {
				for range sentinels / n {
					d.add()
				}
				d.round(rounds(150, 500))
			}
			d.settle()
			d.pull()
			t.Logf("%d sentinels, %d events, %d kills: %d pairs arrived, all that were owed", len(d.watches), d.serial, 2*n+1, d.check())
		})
	}
}
