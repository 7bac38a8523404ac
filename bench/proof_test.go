package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/pgserver"
)

// full runs the proofs at their whole length; CI runs them reduced.
func full() bool { return os.Getenv("SUREHOOK_PROOF") == "full" }

func rounds(short, long int) int {
	if full() {
		return long
	}
	return short
}

const proofKey = "proof-admin-key-0123456789"

// server is surehook serve in a process of its own, which can be killed.
type server struct {
	t    *testing.T
	dir  string
	addr string
	args []string
	env  []string
	cmd  *exec.Cmd
	log  bytes.Buffer
}

func TestMain(m *testing.M) {
	if full() { // the database grows large: not in memory
		if err := os.Setenv("TMPDIR", os.TempDir()); err != nil {
			panic(err)
		}
	}
	dir, err := os.MkdirTemp("", "surehook-proof-")
	if err != nil {
		panic(err)
	}
	exe = filepath.Join(dir, "surehook")
	code := pgserver.Main(m)
	if err := os.RemoveAll(dir); err != nil {
		panic(err)
	}
	os.Exit(code)
}

var (
	exe   string
	build = sync.OnceValue(func() error {
		if out, err := exec.Command("go", "build", "-o", exe, "../cmd/surehook").CombinedOutput(); err != nil {
			return fmt.Errorf("building: %w\n%s", err, out)
		}
		return nil
	})
)

func newServer(t *testing.T) *server {
	t.Helper()
	if err := build(); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, dir: filepath.Join(t.TempDir(), "data"), addr: addr}
	t.Cleanup(func() {
		if s.cmd != nil {
			s.kill()
		}
	})
	return s
}

func (s *server) start() {
	s.t.Helper()
	s.launch()
	s.until(http.StatusOK, 20*time.Second)
}

// launch is start without the wait.
func (s *server) launch() {
	s.t.Helper()
	s.log.Reset()
	s.cmd = exec.Command(exe, append([]string{"serve", "--data", s.dir, "--listen", s.addr, "--allow-networks", "127.0.0.0/8", "--log-level", "warn"}, s.args...)...)
	s.cmd.Env = append(append(os.Environ(), "SUREHOOK_ADMIN_KEY="+proofKey), s.env...)
	s.cmd.Stdout, s.cmd.Stderr = &s.log, &s.log
	if err := s.cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
}

// until waits for the server to say how it is.
func (s *server) until(status int, limit time.Duration) {
	s.t.Helper()
	end := time.Now().Add(limit)
	for {
		got := 0
		res, err := http.Get("http://" + s.addr + "/readyz")
		if err == nil {
			_ = res.Body.Close()
			if got = res.StatusCode; got == status {
				return
			}
		}
		if time.Now().After(end) {
			s.t.Fatalf("/readyz answers %d after %v, not %d: %v\n%s", got, limit, status, err, s.log.String())
		}
		<-time.After(10 * time.Millisecond)
	}
}

// kill ends the process as a crash would.
func (s *server) kill() {
	_ = s.cmd.Process.Kill()
	_ = s.cmd.Wait() // killed, as meant
	s.cmd = nil
}

// term asks it to stop, and gives its exit code.
func (s *server) term() int {
	s.t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatal(err)
	}
	err := s.cmd.Wait()
	s.cmd = nil
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		return exit.ExitCode()
	}
	return 0
}

func (s *server) post(ctx context.Context, path string, body any) (int, map[string]any, error) {
	b, err := json.Marshal(body)
	if err != nil {
		return 0, nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.addr+path, bytes.NewReader(b))
	if err != nil {
		return 0, nil, err
	}
	req.Header.Set("Authorization", "Bearer "+proofKey)
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, nil, err
	}
	var out map[string]any
	err = json.Unmarshal(raw, &out)
	return res.StatusCode, out, err
}

// ledger counts what arrived, by endpoint and webhook-id.
type ledger struct {
	mu   sync.Mutex
	got  map[string]int
	news chan struct{}
}

func newLedger(t *testing.T) (*ledger, string) {
	t.Helper()
	l := &ledger{got: map[string]int{}, news: make(chan struct{}, 1)}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // a cut body is an attempt that is made again
		l.mu.Lock()
		l.got[r.URL.Path+" "+r.Header.Get("webhook-id")]++
		l.mu.Unlock()
		select {
		case l.news <- struct{}{}:
		default:
		}
		w.WriteHeader(http.StatusOK)
	}))
	t.Cleanup(srv.Close)
	return l, srv.URL
}

func (l *ledger) missing(accepted map[string]bool, endpoints int) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for id := range accepted {
		for e := range endpoints {
			if l.got[fmt.Sprintf("/hook/%d %s", e, id)] == 0 {
				n++
			}
		}
	}
	return n
}

func (l *ledger) duplicates() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, c := range l.got {
		n += c - 1
	}
	return n
}

// publish posts events until ctx ends; what was answered 202 is noted.
func (s *server) publish(ctx context.Context, worker, round int, mu *sync.Mutex, accepted map[string]bool) {
	for n := 0; ctx.Err() == nil; n++ {
		status, out, err := s.post(context.WithoutCancel(ctx), "/v1/events", map[string]any{"type": "proof.crash", "data": map[string]int{"round": round, "worker": worker, "n": n}})
		if err != nil {
			return // the server was killed
		}
		if id, ok := out["id"].(string); ok && status == http.StatusAccepted {
			mu.Lock()
			accepted[id] = true
			mu.Unlock()
		}
	}
}

const proofEndpoints, proofPublishers = 3, 8

func (s *server) hooks(url string) {
	s.t.Helper()
	for e := range proofEndpoints {
		status, out, err := s.post(s.t.Context(), "/v1/webhooks", map[string]any{"url": fmt.Sprintf("%s/hook/%d", url, e)})
		if err != nil || status != http.StatusCreated {
			s.t.Fatalf("creating a webhook: %d %v %v", status, out, err)
		}
	}
}

// run publishes for a while, then ends the server by end.
func (s *server) run(round int, length time.Duration, accepted map[string]bool, end func()) {
	ctx, stop := context.WithCancel(s.t.Context())
	defer stop()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for w := range proofPublishers {
		wg.Go(func() { s.publish(ctx, w, round, &mu, accepted) })
	}
	<-time.After(length)
	end()
	stop()
	wg.Wait()
}

func (l *ledger) settle(t *testing.T, accepted map[string]bool) {
	t.Helper()
	limit := time.NewTimer(60 * time.Second)
	defer limit.Stop()
	for l.missing(accepted, proofEndpoints) > 0 {
		select {
		case <-l.news:
		case <-time.After(100 * time.Millisecond):
		case <-limit.C:
			t.Fatalf("%d of %d deliveries are missing", l.missing(accepted, proofEndpoints), proofEndpoints*len(accepted))
		}
	}
}

// The promise: kill -9 at any moment, again and again, and every event that was
// answered 202 arrives at every endpoint. What arrives twice was in flight.
func TestProofCrash(t *testing.T) {
	s := newServer(t)
	l, url := newLedger(t)
	s.start()
	s.hooks(url)
	accepted := map[string]bool{}
	n := rounds(6, 50)
	for round := range n {
		s.run(round, time.Duration(50+rand.IntN(400))*time.Millisecond, accepted, s.kill)
		s.start()
	}
	l.settle(t, accepted)
	dup := l.duplicates()
	t.Logf("%d kills, %d events accepted, 0 lost, %d duplicate requests", n, len(accepted), dup)
	if len(accepted) < 10*n {
		t.Errorf("only %d events were accepted: the proof shows little", len(accepted))
	}
	// In flight at a kill: each endpoint's cap, and outcomes that weren't written yet.
	if most := n * (8*proofEndpoints + 1024); dup > most {
		t.Errorf("%d duplicates, more than the %d that can have been in flight", dup, most)
	}
	if code := s.term(); code != 0 {
		t.Errorf("exit code %d after SIGTERM\n%s", code, s.log.String())
	}
}

// S-03: a stop that is asked for repeats nothing.
func TestProofRollingRestart(t *testing.T) {
	s := newServer(t)
	l, url := newLedger(t)
	s.start()
	s.hooks(url)
	accepted := map[string]bool{}
	n := rounds(3, 20)
	for round := range n {
		s.run(round, 300*time.Millisecond, accepted, func() {
			if code := s.term(); code != 0 {
				t.Errorf("exit code %d after SIGTERM\n%s", code, s.log.String())
			}
		})
		s.start()
	}
	l.settle(t, accepted)
	t.Logf("%d restarts, %d events accepted, %d duplicate requests", n, len(accepted), l.duplicates())
	if dup := l.duplicates(); dup > 0 {
		t.Errorf("%d duplicates", dup)
	}
}
