package cli

import (
	"bufio"
	"bytes"
	"encoding/json"
	"io"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// run runs a command in this process.
func run(t *testing.T, environ []string, stdin string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Main(t.Context(), Env{Args: args, Environ: environ, Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs})
	return code, out.String(), errs.String()
}

func TestDemo(t *testing.T) {
	start := time.Now()
	code, out, errs := run(t, []string{"TMPDIR=" + t.TempDir()}, "", "demo")
	if code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	for _, want := range []string{"events    241 of 33 types", "ENDPOINT", "SIGNATURE FAILURES", "OK  241 events accepted, 241 accounted for, 0 lost",
		"Every event arrived byte for byte"} {
		if !strings.Contains(out, want) {
			t.Errorf("misses %q in\n%s", want, out)
		}
	}
	if !strings.Contains(errs, "published 241 of 241") {
		t.Errorf("no progress: %s", errs)
	}
	if s := out + errs; strings.Contains(s, "shk_") || strings.Contains(s, "whsec_") {
		t.Error("prints a secret without --keep")
	}
}

func TestDemoTakesEventsOfOnesOwn(t *testing.T) {
	lines := `{"any":"thing", "n": 1e400}` + "\n\n" + `{"type":"order.paid","data":[1,2 , 3]}` + "\n\"text\"\n"
	code, out, errs := run(t, nil, lines, "demo", "--json", "--events", "-")
	if code != 0 || errs != "" {
		t.Fatalf("exit code %d\n%s%s", code, out, errs)
	}
	var r struct {
		Events    int
		OK        bool
		Endpoints []row
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil || !r.OK || r.Events != 3 || len(r.Endpoints) != 4 || r.Endpoints[0].Delivered != 4 {
		t.Errorf("%v: %s", err, out)
	}
	if code, _, errs := run(t, nil, "nonsense\n", "demo", "--events", "-"); code != exitUsage || !strings.Contains(errs, "standard input line 1") {
		t.Error(code, errs)
	}
	if code, _, errs := run(t, nil, "", "demo", "--events", "-"); code != exitUsage || !strings.Contains(errs, "no events") {
		t.Error(code, errs)
	}
}

// server is a process of its own: this test's binary, as the surehook command.
type server struct {
	t      *testing.T
	cmd    *exec.Cmd
	url    string
	output journal
	ended  chan struct{}
}

// journal is what a process has written so far.
type journal struct {
	mu    sync.Mutex
	text  []byte
	wrote chan struct{} // closed at the next write, if somebody waits for it
}

func (j *journal) Write(b []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.text = append(j.text, b...)
	if j.wrote != nil {
		close(j.wrote)
		j.wrote = nil
	}
	return len(b), nil
}

// wait waits until the text holds a phrase more than n times.
func (j *journal) wait(t *testing.T, phrase string, n int) {
	t.Helper()
	for late := time.After(time.Minute); ; {
		j.mu.Lock()
		text, wrote := string(j.text), j.wrote
		if wrote == nil {
			wrote = make(chan struct{})
			j.wrote = wrote
		}
		j.mu.Unlock()
		if strings.Count(text, phrase) > n {
			return
		}
		select {
		case <-wrote:
		case <-late:
			t.Fatalf("waited a minute for %q:\n%s", phrase, text)
		}
	}
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return string(j.text)
}

var listens = regexp.MustCompile(`listens on (http://\S+),`)

// serve starts a server and waits until it listens.
func serve(t *testing.T, data string, environ []string, args ...string) *server {
	t.Helper()
	return spawn(t, environ, append([]string{"serve", "--listen", "127.0.0.1:0", "--data", data, "--allow-networks", "127.0.0.1/32"}, args...)...)
}

// spawn starts a command that listens, and waits until it does.
func spawn(t *testing.T, environ []string, args ...string) *server {
	t.Helper()
	bin, err := exec.LookPath("surehook") // testscript puts it into the path
	if err != nil {
		t.Fatal(err)
	}
	s := &server{t: t, ended: make(chan struct{})}
	s.cmd = exec.Command(bin, args...)
	s.cmd.Env = append(os.Environ(), environ...)
	pipe, err := s.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.cmd.Process.Kill() }) // it has ended, if all went well
	lines := bufio.NewReader(pipe)
	for s.url == "" {
		line, err := lines.ReadString('\n')
		_, _ = io.WriteString(&s.output, line)
		if err != nil {
			t.Fatalf("it ended before it listened:\n%s", &s.output)
		}
		if m := listens.FindStringSubmatch(line); m != nil {
			s.url = m[1]
		}
	}
	go func() {
		defer close(s.ended)
		_, _ = io.Copy(&s.output, lines)
	}()
	return s
}

// stop sends signals and gives the exit code and how long the end took.
func (s *server) stop(signals ...os.Signal) (int, time.Duration) {
	s.t.Helper()
	start := time.Now()
	for _, sig := range signals {
		if err := s.cmd.Process.Signal(sig); err != nil {
			s.t.Fatal(err)
		}
	}
	<-s.ended
	err := s.cmd.Wait()
	if err != nil && s.cmd.ProcessState.ExitCode() < 0 {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode(), time.Since(start)
}

func (s *server) post(key, path, body string) (int, map[string]any) {
	s.t.Helper()
	req, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+path, strings.NewReader(body))
	if err != nil {
		s.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+key)
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		s.t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	var v map[string]any
	if err := json.NewDecoder(resp.Body).Decode(&v); err != nil {
		s.t.Fatal(err)
	}
	return resp.StatusCode, v
}

const testAdmin = "planted-admin-key-0123456789"

func TestSIGTERMDrains(t *testing.T) {
	arrived, release := make(chan struct{}, 8), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		arrived <- struct{}{}
		<-release
	}))
	defer receiver.Close()
	data := t.TempDir()
	s := serve(t, data, []string{"SUREHOOK_ADMIN_KEY=" + testAdmin})
	if code, v := s.post(testAdmin, "/v1/webhooks", `{"url":"`+receiver.URL+`/in"}`); code != http.StatusCreated {
		t.Fatal(code, v)
	}
	if code, v := s.post(testAdmin, "/v1/events", `{"type":"a.b","data":1}`); code != http.StatusAccepted {
		t.Fatal(code, v)
	}
	<-arrived
	// The receiver answers while the process drains.
	drained := make(chan struct{})
	go func() {
		defer close(drained)
		code, took := s.stop(syscall.SIGTERM)
		if code != 0 || took > 15*time.Second {
			t.Errorf("exit code %d after %v\n%s", code, took, &s.output)
		}
	}()
	close(release)
	<-drained
	if !strings.Contains(s.output.String(), "delivered") {
		t.Errorf("the attempt in flight was cut:\n%s", &s.output)
	}
}

func TestASecondSignalCutsTheDrainAndLosesNothing(t *testing.T) {
	arrived := make(chan string, 8)
	stuck := make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get("webhook-id")
		select {
		case <-stuck:
		case <-r.Context().Done():
		}
	}))
	defer receiver.Close()
	data := t.TempDir()
	s := serve(t, data, []string{"SUREHOOK_ADMIN_KEY=" + testAdmin})
	if code, v := s.post(testAdmin, "/v1/webhooks", `{"url":"`+receiver.URL+`/in"}`); code != http.StatusCreated {
		t.Fatal(code, v)
	}
	_, v := s.post(testAdmin, "/v1/events", `{"type":"a.b","data":1}`)
	<-arrived
	// Two signals that come at once could be one; the second waits for the first's trace.
	code, took := s.stop(syscall.SIGTERM, syscall.SIGINT)
	if code != 0 || took > 9*time.Second {
		t.Errorf("exit code %d after %v\n%s", code, took, &s.output)
	}
	close(stuck)
	s = serve(t, data, nil)
	if id := <-arrived; id != v["id"] {
		t.Errorf("%s arrived, not %s", id, v["id"])
	}
	if code, _ := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d\n%s", code, &s.output)
	}
}

// Secrets planted in every place where one can be must not come out anywhere
// but where they belong.
func TestNoSecretLeaks(t *testing.T) {
	const master = "cGxhbnRlZC1tYXN0ZXIta2V5LTAxMjM0NTY3ODlhYmM=" // 32 bytes
	done := make(chan struct{}, 16)
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.Contains(r.URL.Path, "broken") {
			w.WriteHeader(http.StatusGone)
			_, _ = io.WriteString(w, "planted-answer")
		}
		done <- struct{}{}
	}))
	defer receiver.Close()
	data := t.TempDir()
	s := serve(t, data, []string{"SUREHOOK_ADMIN_KEY=" + testAdmin, "SUREHOOK_MASTER_KEY=" + master}, "--log-level", "debug",
		"--notify-url", receiver.URL+"/planted-notify")
	env := []string{"SUREHOOK_URL=" + s.url, "SUREHOOK_KEY=" + testAdmin}
	var said strings.Builder
	cli := func(args ...string) string {
		code, out, errs := run(t, env, "", args...)
		if code != 0 {
			t.Errorf("%v: %d %s", args, code, errs)
		}
		if args[1] == "create" || args[1] == "rotate-secret" {
			said.WriteString(errs)
			return out
		}
		said.WriteString(out + errs)
		return out
	}
	var hooks []string
	for _, path := range []string{"/planted-path?token=planted-query", "/broken/planted-path?token=planted-query"} {
		var made struct{ ID, Secret string }
		if err := json.Unmarshal([]byte(cli("webhooks", "create", receiver.URL+path, "--json")), &made); err != nil || made.Secret == "" {
			t.Fatal(err)
		}
		hooks = append(hooks, made.Secret)
		cli("webhooks", "get", made.ID, "--json")
		var rotated struct{ Secret string }
		if err := json.Unmarshal([]byte(cli("webhooks", "rotate-secret", made.ID, "--json")), &rotated); err != nil {
			t.Fatal(err)
		}
		hooks = append(hooks, rotated.Secret)
	}
	cli("events", "publish", "--type", "a.b", "--data", `{"card":"planted-data"}`)
	for range 3 { // two deliveries and the notice of the 410
		<-done
	}
	cli("webhooks", "list", "--json")
	cli("dead-letters", "list", "--json")
	cli("keys", "list", "--json")
	if code, _ := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d", code)
	}
	logs := s.output.String()
	if !strings.Contains(logs, "status_410") || !strings.Contains(logs, "draining") {
		t.Errorf("the log is empty:\n%s", logs)
	}
	for _, secret := range append(hooks, testAdmin, master, "planted-notify", "planted-master") {
		if strings.Contains(logs, secret) || strings.Contains(said.String(), secret) {
			t.Errorf("%.12s… came out", secret)
		}
	}
	for _, secret := range []string{"planted-path", "planted-query", "planted-data", "planted-answer"} {
		if strings.Contains(logs, secret) {
			t.Errorf("%s is in the log:\n%s", secret, logs)
		}
	}
	secretsAtRest(t, data, append(hooks, testAdmin, master))
}

// secretsAtRest looks for secrets in the files of a data directory.
func secretsAtRest(t *testing.T, data string, secrets []string) {
	t.Helper()
	err := filepath.WalkDir(data, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		raw, err := os.ReadFile(path)
		for _, secret := range secrets {
			if bytes.Contains(raw, []byte(secret)) || bytes.Contains(raw, []byte(strings.TrimPrefix(secret, "whsec_"))) {
				t.Errorf("%s holds a secret in the clear", filepath.Base(path))
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}

// A node without the API says so in the way that the CLI shows.
func TestANodeWithoutTheAPISaysSo(t *testing.T) {
	s := serve(t, t.TempDir(), []string{"SUREHOOK_ADMIN_KEY=" + testAdmin}, "--api=false")
	if code, v := s.post(testAdmin, "/v1/events", `{}`); code != http.StatusNotFound || v["code"] != "not_found" || v["request_id"] == nil {
		t.Error(code, v)
	}
	code, out, errs := run(t, []string{"SUREHOOK_URL=" + s.url, "SUREHOOK_KEY=" + testAdmin}, "", "webhooks", "list")
	if code != exitNotFound || out != "" || !strings.Contains(errs, "this node serves no API: ask one that does") {
		t.Error(code, out, errs)
	}
	if code, _ := s.stop(syscall.SIGTERM); code != 0 {
		t.Error(code, &s.output)
	}
}
