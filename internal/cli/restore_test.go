package cli

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A backup is put back after more was published: what was still to do at its
// moment is delivered again under its id, and the server goes on from there.
func TestRestore(t *testing.T) {
	arrived, release := make(chan string, 8), make(chan struct{})
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		arrived <- r.Header.Get("webhook-id")
		<-release
	}))
	defer receiver.Close()
	data, backup := t.TempDir(), filepath.Join(t.TempDir(), "copy.db")
	publish := func(s *server, id string) {
		t.Helper()
		if code, v := s.post(testAdmin, "/v1/events", `{"id":"`+id+`","type":"a.b","data":1}`); code != http.StatusAccepted {
			t.Fatal(code, v)
		}
		if got := <-arrived; got != id {
			t.Fatalf("%s arrived, not %s", got, id)
		}
	}
	restore := func(want int, says string, args ...string) string {
		t.Helper()
		code, out, errs := run(t, nil, "", append([]string{"restore", "--data", data, backup}, args...)...)
		if code != want || !strings.Contains(out+errs, says) {
			t.Fatalf("%v: %d, want %d and %q\n%s%s", args, code, want, says, out, errs)
		}
		return out
	}
	s := serve(t, data, []string{"SUREHOOK_ADMIN_KEY=" + testAdmin})
	if code, v := s.post(testAdmin, "/v1/webhooks", `{"url":"`+receiver.URL+`/in"}`); code != http.StatusCreated {
		t.Fatal(code, v)
	}
	publish(s, "evt_before")
	if code, out, errs := run(t, nil, "", "backup", "--data", data, backup); code != 0 {
		t.Fatal(out, errs)
	}
	close(release)
	publish(s, "evt_after")
	restore(exitFailed, "another surehook process", "--force")
	if code, _ := s.stop(syscall.SIGTERM); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &s.output)
	}
	restore(exitFailed, "--force replaces")
	var r struct{ File, Kept string }
	if err := json.Unmarshal([]byte(restore(0, "", "--force", "--json")), &r); err != nil || r.File != filepath.Join(data, "surehook.db") {
		t.Fatal(r, err)
	}
	if _, err := os.Stat(r.Kept); err != nil {
		t.Error("the old store wasn't kept:", err)
	}

	s = serve(t, data, nil)
	if id := <-arrived; id != "evt_before" {
		t.Errorf("%s arrived", id)
	}
	publish(s, "evt_after") // it isn't in the backup: its id is free again
	if code, _ := s.stop(syscall.SIGTERM); code != 0 {
		t.Errorf("exit code %d\n%s", code, &s.output)
	}

	data = t.TempDir()
	if out := restore(0, "next: surehook serve --data "+data); !strings.Contains(out, "master.key") || !strings.Contains(out, "same webhook-id") {
		t.Error("it doesn't say what to do:", out)
	}
	backup += ".nowhere"
	restore(exitNotFound, "there is no file")
}
