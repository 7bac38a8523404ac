package main

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/pgserver"
)

const relaySecret = " the relay's secret\t"

// relaySubscribers are the three of the proof: what the file says of each, and the
// same said by the test's own means.
var relaySubscribers = []struct {
	id, filter string
	wants      func(a *auditLine) bool
}{
	{"all", "{}", func(*auditLine) bool { return true }},
	{"acme-high", "{labels: {tenant: acme}, severity_min: high}", func(a *auditLine) bool {
		return a.labels["tenant"] == "acme" && (a.severity == "high" || a.severity == "critical")
	}},
	{"injection", `{blocked_rule_pattern: "injection/*"}`, func(a *auditLine) bool {
		if a.action == "block" {
			return strings.HasPrefix(a.rule, "injection/")
		}
		return slices.ContainsFunc(a.would, func(r string) bool { return strings.HasPrefix(r, "injection/") })
	}},
}

// relayRun is a relay in a process of its own, the log that it reads, and those that
// it sends to.
type relayRun struct {
	*server
	log    relayLog
	path   string
	config string
	lines  int

	requests, faults atomic.Int64
	mu               sync.Mutex
	got              map[string]map[int]string // subscriber → request → event id
	wrong            []string
}

func newRelayRun(t *testing.T, args ...string) *relayRun {
	r := &relayRun{server: newServer(t), log: relayLog{seed: 5}, got: map[string]map[int]string{}}
	r.args = args
	dir := t.TempDir()
	r.path, r.config = filepath.Join(dir, "access.log"), filepath.Join(dir, "relay.yaml")
	subscriber := httptest.NewServer(http.HandlerFunc(r.receive))
	t.Cleanup(subscriber.Close)
	text := fmt.Sprintf("sources:\n - {type: log_tail, path: %q, from_beginning: true}\nrelay: {instance_id: proof}\nsubscribers:\n", r.path)
	for _, s := range relaySubscribers {
		text += fmt.Sprintf(" - {id: %s, url: %q, secret_env: RELAY_SECRET, filter: %s, retry: {base_delay_ms: 50}}\n", s.id, subscriber.URL+"/"+s.id, s.filter)
		r.got[s.id] = map[int]string{}
	}
	if err := os.WriteFile(r.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *relayRun) start() {
	r.t.Helper()
	r.server.log.Reset()
	r.cmd = exec.Command(exe, append([]string{"relay", "--config", r.config, "--data", r.dir, "--listen", r.addr, "--log-level", "warn"}, r.args...)...)
	r.cmd.Env = append(os.Environ(), "RELAY_SECRET="+relaySecret)
	r.cmd.Stdout, r.cmd.Stderr = &r.server.log, &r.server.log
	if err := r.cmd.Start(); err != nil {
		r.t.Fatal(err)
	}
	r.until(http.StatusOK, 30*time.Second)
}

// receive is a subscriber by the protocol's text. One request in 300 meets a
// fault, which must be retried.
func (r *relayRun) receive(w http.ResponseWriter, req *http.Request) {
	n := r.requests.Add(1)
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // the relay was killed
	}
	mac := hmac.New(sha256.New, []byte(relaySecret))
	_, _ = io.WriteString(mac, req.Header.Get("X-PurpleWolf-Timestamp")+".")
	_, _ = mac.Write(body)
	var e struct {
		Schema  string `json:"schema"`
		EventID string `json:"event_id"`
		Labels  map[string]string
		Event   json.RawMessage
	}
	var event struct{ Request *int }
	id := strings.TrimPrefix(req.URL.Path, "/")
	switch {
	case req.Header.Get("X-PurpleWolf-Signature") != "sha256="+hex.EncodeToString(mac.Sum(nil)):
		r.fault("a signature is wrong")
	case json.Unmarshal(body, &e) != nil || e.Schema != "purple-wolf.audit/v1" || e.EventID != req.Header.Get("X-PurpleWolf-Event-Id"):
		r.fault("an envelope is wrong: %.300s", body)
	case json.Unmarshal(e.Event, &event) != nil || event.Request == nil:
		r.fault("an event is wrong: %.300s", e.Event)
	default:
		r.take(id, *event.Request, e.EventID, e.Event, e.Labels)
	}
	if n%300 == 0 {
		r.faults.Add(1)
		w.WriteHeader(http.StatusServiceUnavailable)
	}
}

// take notes an event, once it was compared with the line that it came from.
func (r *relayRun) take(subscriber string, request int, id string, object []byte, labels map[string]string) {
	a := r.log.audit(request)
	if a == nil || !bytes.Equal(object, a.object) || !maps.Equal(labels, a.labels) {
		r.fault("line %d: %.300s with %v", request, object, labels)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if first := r.got[subscriber][request]; first != "" && first != id {
		r.wrong = append(r.wrong, fmt.Sprintf("%s: line %d came as %s and as %s", subscriber, request, first, id))
	}
	r.got[subscriber][request] = id
}

func (r *relayRun) fault(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.wrong = append(r.wrong, fmt.Sprintf(format, args...))
}

func (r *relayRun) count() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, m := range r.got {
		n += len(m)
	}
	return n
}

// write writes all lines, and rotates the log in the middle as logrotate does: the
// file is renamed, and the writer goes on with the old one for a while. It gives
// the bytes written.
func (r *relayRun) write(lines int) (size int64, err error) {
	f, err := os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return 0, err
	}
	var b bytes.Buffer
	for i := range lines {
		if b.Write(r.log.line(i)); b.Len() > 64<<10 || i == lines-1 || i == lines/2 || i == lines/2+100 {
			n, err := f.Write(b.Bytes())
			if size += int64(n); err != nil {
				return size, err
			}
			b.Reset()
		}
		switch i {
		case lines / 2:
			err = os.Rename(r.path, r.path+".1")
		case lines/2 + 100:
			if err = f.Close(); err == nil {
				f, err = os.OpenFile(r.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
			}
		}
		if err != nil {
			return size, err
		}
	}
	return size, f.Close()
}

// wanted counts what each subscriber is to get.
func (r *relayRun) wanted(lines int) (each map[string]int, all int) {
	each = map[string]int{}
	for i := range lines {
		a := r.log.audit(i)
		for _, s := range relaySubscribers {
			if a != nil && s.wants(a) {
				each[s.id]++
				all++
			}
		}
	}
	return each, all
}

// reach waits until so many events have arrived.
func (r *relayRun) reach(n int, limit time.Duration) {
	r.t.Helper()
	for end := time.Now().Add(limit); r.count() < n; {
		if time.Now().After(end) {
			r.t.Fatalf("%d of %d events after %v%s\n%s", r.count(), n, limit, r.missing(), r.server.log.String())
		}
		<-time.After(5 * time.Millisecond)
	}
}

// missing says what hasn't come, for a proof that fails.
func (r *relayRun) missing() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	for _, s := range relaySubscribers {
		n := 0
		for i := range r.lines {
			if a := r.log.audit(i); a != nil && s.wants(a) && r.got[s.id][i] == "" {
				if n++; n <= 3 {
					fmt.Fprintf(&b, "\n%s lacks line %d: %.300q", s.id, i, r.log.line(i))
				}
			}
		}
		fmt.Fprintf(&b, "\n%s lacks %d", s.id, n)
	}
	return fmt.Sprintf("%s\n%d faults: %.300q", b.String(), len(r.wrong), r.wrong[:min(3, len(r.wrong))])
}

// peak is the largest resident memory of the running relay, in MB.
func (r *relayRun) peak() float64 {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", r.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	_, rest, _ := strings.Cut(string(b), "VmHWM:")
	kb, err := strconv.ParseFloat(strings.Fields(rest + " 0")[0], 64)
	if err != nil {
		return 0
	}
	return kb / 1024
}

// The relay's promise: of a log with hostile values, two kills and a rotation in
// the middle, each subscriber gets what its filter lets through, each event under
// one id, none lost.
func TestProofRelay(t *testing.T) { proveRelay(t, rounds(40_000, 1_000_000)) }

func TestProofRelayPostgres(t *testing.T) {
	proveRelay(t, rounds(20_000, 1_000_000), "--database", pgserver.Database(t))
}

func proveRelay(t *testing.T, lines int, args ...string) {
	t.Helper()
	r := newRelayRun(t, args...)
	r.lines = lines
	each, all := r.wanted(lines)
	limit := time.Duration(rounds(2, 20)) * time.Minute
	began := time.Now()
	r.start()
	var size int64
	wrote := make(chan error, 1)
	go func() {
		var err error
		size, err = r.write(lines)
		wrote <- err
	}()
	memory := 0.0
	for _, at := range []int{all / 4, all * 3 / 5} {
		r.reach(at, limit)
		memory = max(memory, r.peak())
		r.kill()
		r.start()
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	r.reach(all, limit)
	took := time.Since(began)
	memory = max(memory, r.peak())
	if code := r.term(); code != 0 {
		t.Errorf("exit code %d after SIGTERM\n%s", code, r.server.log.String())
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, s := range relaySubscribers {
		if len(r.got[s.id]) != each[s.id] {
			t.Errorf("%s got %d events, %d are for it", s.id, len(r.got[s.id]), each[s.id])
		}
		for request := range r.got[s.id] {
			if !s.wants(r.log.audit(request)) {
				t.Errorf("%s got line %d, which its filter keeps away", s.id, request)
			}
		}
	}
	if len(r.wrong) > 0 {
		t.Errorf("%d faults, the first: %s", len(r.wrong), r.wrong[0])
	}
	t.Logf("%d lines (%d MB), %v, 2 kills, 1 rotation: 0 lost, 0 doubled; %d requests for %d deliveries, %d of them met a fault; %.0f lines/s, %.0f deliveries/s; %.0f MB at most",
		lines, size>>20, each, r.requests.Load(), all, r.faults.Load(), float64(lines)/took.Seconds(), float64(all)/took.Seconds(), memory)
}
