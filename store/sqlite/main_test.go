package sqlite

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/surehook/surehook"
)

// childFile names the file that this process, started again by a test, writes
// to until it is killed.
const childFile = "SUREHOOK_TEST_CHILD_FILE"

func TestMain(m *testing.M) {
	if path := os.Getenv(childFile); path != "" {
		if err := writeUntilKilled(path, os.Stdout); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// writeUntilKilled appends events and records outcomes, from several goroutines,
// and tells each event's id after it was answered.
func writeUntilKilled(path string, answered io.Writer) error {
	ctx := context.Background()
	s, err := Open(ctx, path, Options{FreeFloor: -1})
	if err != nil {
		return err
	}
	ep, err := s.Endpoint(ctx, "whk_1")
	if err != nil {
		return err
	}
	version := s.config.Load()
	failed := make(chan error)
	for g := range int64(8) {
		go func() { failed <- writeEvents(ctx, s, ep, version, g, answered) }()
	}
	return <-failed
}

func writeEvents(ctx context.Context, s *Store, ep *surehook.Endpoint, version, g int64, answered io.Writer) error {
	for i := int64(1); ; i++ {
		ev := &surehook.Event{ID: fmt.Sprintf("e-%d-%d-%d", s.Lease().Epoch, g, i), Type: "a.b", OccurredAt: time.Now(), Data: make([]byte, 500)}
		out, err := s.Append(ctx, version, []surehook.Append{{Event: ev, Targets: []surehook.Target{{EndpointKey: ep.Key, Owned: true}}}})
		if err != nil {
			return err
		}
		if _, err := fmt.Fprintln(answered, ev.ID); err != nil {
			return err
		}
		d := out[0].Deliveries[0]
		o := success(s.Lease().Epoch<<40|g<<32|i, d)
		switch i % 4 {
		case 0:
			continue // stays held
		case 1:
			o.Decision, o.Attempt.Status, o.Attempt.Code = surehook.Bury, surehook.AttemptDead, surehook.Status5xx
		case 2:
			o.Decision, o.Attempt.Status, o.Attempt.Code, o.Wait = surehook.Again, surehook.AttemptFailed, surehook.Timeout, time.Minute
		}
		if _, err := s.Record(ctx, []surehook.Outcome{o}, nil); err != nil {
			return err
		}
	}
}

// child is another process that writes to a file.
type child struct {
	cmd   *exec.Cmd
	lines *bufio.Scanner
}

func startChild(t *testing.T, path string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), childFile+"="+path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return &child{cmd: cmd, lines: bufio.NewScanner(out)}
}

// answered waits for n answers.
func (c *child) answered(t *testing.T, n int) []string {
	t.Helper()
	var out []string
	for len(out) < n {
		if !c.lines.Scan() {
			t.Fatal("the child ended by itself", c.lines.Err())
		}
		out = append(out, c.lines.Text())
	}
	return out
}

// kill ends the process at once, and gives the answers that it still gave.
func (c *child) kill(t *testing.T) []string {
	t.Helper()
	if err := c.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	var out []string
	for c.lines.Scan() {
		out = append(out, c.lines.Text())
	}
	if err := c.cmd.Wait(); err == nil {
		t.Fatal("the child wasn't killed")
	}
	return out
}

// openFile opens the file of a test, with an endpoint when it is new.
func openFile(t *testing.T, path string, opt Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), path, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	ep := &surehook.Endpoint{ID: "whk_1", URL: "https://example.com/", Enabled: true}
	if err := s.CreateEndpoint(t.Context(), ep, 0, nil); err != nil && surehook.CodeOf(err) != surehook.Conflict {
		t.Fatal(err)
	}
	return s
}

func tempFile(t *testing.T) string { return filepath.Join(t.TempDir(), "surehook.db") }

// add appends an event with a row for the test's endpoint.
func add(t *testing.T, s *Store, id string, size int, owned bool) (surehook.Appended, error) {
	t.Helper()
	ep, err := s.Endpoint(t.Context(), "whk_1")
	if err != nil {
		t.Fatal(err)
	}
	out, err := s.Append(t.Context(), s.config.Load(), []surehook.Append{{
		Event:   &surehook.Event{ID: id, Type: "a.b", OccurredAt: s.now(), Data: make([]byte, size)},
		Targets: []surehook.Target{{EndpointKey: ep.Key, Owned: owned}},
	}})
	if err != nil {
		return surehook.Appended{}, err
	}
	return out[0], out[0].Err
}

// whole fails the test unless SQLite finds the file in order.
func whole(t *testing.T, s *Store) {
	t.Helper()
	verdict := ""
	err := s.read(t.Context(), func(c *conn) error {
		st, err := c.stmt(`PRAGMA integrity_check`)
		if err != nil {
			return err
		}
		for st.Step() {
			verdict += st.ColumnText(0)
		}
		return st.Reset()
	})
	if err != nil || verdict != "ok" {
		t.Fatalf("integrity: %s, %v", verdict, err)
	}
}
