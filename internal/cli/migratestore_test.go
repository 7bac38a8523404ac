package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/surehook/surehook/internal/pgserver"
)

// A server's store is moved; the next server goes on from there, with its keys,
// its secrets and what was pending, and the old file is served no more.
func TestMigrateStore(t *testing.T) {
	arrived, release := make(chan *http.Request, 8), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r
		<-release
	}))
	defer receiver.Close()
	data, dsn := t.TempDir(), pgserver.Database(t)
	migrate := func(want int, says string, args ...string) (out, errs string) {
		t.Helper()
		code, out, errs := run(t, nil, "", append([]string{"migrate-store", "--from", "sqlite:" + data, "--to", dsn}, args...)...)
		if code != want || !strings.Contains(out+errs, says) {
			t.Fatalf("%v: %d, want %d and %q\n%s%s", args, code, want, says, out, errs)
		}
		return out, errs
	}
	migrate(exitNotFound, "there is no store in")
	s := serve(t, data, []string{"SUREHOOK_ADMIN_KEY=" + testAdmin})
	if code, v := s.post(testAdmin, "/v1/webhooks", `{"url":"`+receiver.URL+`/in"}`); code != http.StatusCreated {
		t.Fatal(code, v)
	}
	if code, v := s.post(testAdmin, "/v1/events", `{"id":"evt_held","type":"a.b","data":1}`); code != http.StatusAccepted {
		t.Fatal(code, v)
	}
	<-arrived
	migrate(exitFailed, "another surehook process")
	if err := s.cmd.Process.Kill(); err != nil { // the request is never answered
		t.Fatal(err)
	}
	<-s.ended
	_ = s.cmd.Wait()

	out, errs := migrate(0, "both hold the same")
	if !strings.Contains(out, "endpoint_secrets") || !strings.Contains(out, filepath.Join(data, "master.key")) || !strings.Contains(errs, "rows, ") {
		t.Error(out, errs)
	}
	migrate(0, "nothing to do")
	out, errs = migrate(0, "", "--json")
	var m struct {
		From, To string
		Already  bool
		Rows     int
	}
	if err := json.Unmarshal([]byte(out), &m); err != nil || errs != "" || !m.Already || m.Rows == 0 || m.From != filepath.Join(data, "surehook.db") || strings.Contains(m.To, "@") {
		t.Error(out, errs, err)
	}
	refused(t, data, "--abandon")

	close(release)
	s = serve(t, data, []string{"SUREHOOK_DATABASE=" + dsn})
	if r := <-arrived; r.Header.Get("webhook-id") != "evt_held" {
		t.Errorf("%s arrived", r.Header.Get("webhook-id"))
	}
	if code, v := s.post(testAdmin, "/v1/events", `{"id":"evt_held","type":"a.b","data":1}`); code != http.StatusOK && code != http.StatusAccepted {
		t.Error(code, v)
	}
	if code, _ := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d\n%s", code, &s.output)
	}
	namesDatabase(t, s.output.String())

	migrate(0, "can be served again", "--abandon")
	s = serve(t, data, nil)
	<-arrived
	s.stop(syscall.SIGTERM)
	migrate(exitFailed, "another move")
	for _, args := range [][]string{{"--from", "mysql:x"}, {"--to", "mysql://x"}, {"--from", "sqlite:"}} {
		migrate(exitUsage, "must be", args...)
	}
}

// namesDatabase: what a server says at its start has the schema, and no account.
func namesDatabase(t *testing.T, said string) {
	t.Helper()
	if !strings.Contains(said, ", schema surehook\n") || strings.Contains(said, "@") {
		t.Errorf("doesn't say where the data is, or says too much:\n%s", said)
	}
}

// refused is a server that doesn't start.
func refused(t *testing.T, data, says string, environ ...string) {
	t.Helper()
	bin, err := exec.LookPath("surehook")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(bin, "serve", "--listen", "127.0.0.1:0", "--data", data)
	cmd.Env = append(os.Environ(), environ...)
	if out, err := cmd.CombinedOutput(); err == nil || !strings.Contains(string(out), says) {
		t.Errorf("%v, want %q\n%s", err, says, out)
	}
}
