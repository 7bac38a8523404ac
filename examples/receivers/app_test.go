package receivers

import (
	"bufio"
	"context"
	"database/sql"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	_ "github.com/ncruces/go-sqlite3/driver"
)

// app is an example that runs.
type app struct {
	url   string
	cmd   *exec.Cmd
	lines chan string // what it prints
}

var where = regexp.MustCompile(`http://127\.0\.0\.1:\d+`)

// start runs a program as its reader would, and waits until it listens.
func start(t *testing.T, argv []string, dir string, env ...string) *app {
	t.Helper()
	a := &app{cmd: exec.Command(argv[0], argv[1:]...), lines: make(chan string, 10_000)}
	a.cmd.Dir, a.cmd.Env = dir, append(os.Environ(), append(env, "PORT=0", "PYTHONUNBUFFERED=1")...)
	r, w := io.Pipe()
	a.cmd.Stdout, a.cmd.Stderr = w, w
	if err := a.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		for in := bufio.NewScanner(r); in.Scan(); {
			a.lines <- in.Text()
		}
		close(a.lines)
	}()
	ended := make(chan struct{})
	go func() {
		_ = a.cmd.Wait() // it is killed
		_ = w.Close()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = a.cmd.Process.Kill() // it may have ended
		<-ended
	})
	a.url = where.FindString(a.wait(t, "http://127.0.0.1:")) + "/webhook"
	return a
}

// wait blocks until the program prints a line with that text.
func (a *app) wait(t *testing.T, text string) string {
	t.Helper()
	limit := time.After(60 * time.Second)
	var before []string
	for {
		select {
		case line, ok := <-a.lines:
			if !ok {
				t.Fatalf("it ended before it printed %q:\n%s", text, strings.Join(before, "\n"))
			}
			if strings.Contains(line, text) {
				return line
			}
			before = append(before, line)
		case <-limit:
			t.Fatalf("it printed no %q:\n%s", text, strings.Join(before, "\n"))
		}
	}
}

func (a *app) stop() {
	_ = a.cmd.Process.Kill() // as a crash would
	for range a.lines {
	}
}

// inbox is the table in which an example keeps what came.
type inbox struct {
	db   *sql.DB
	path string
}

func newInbox(t *testing.T) *inbox {
	t.Helper()
	return open(t, filepath.Join(t.TempDir(), "inbox.db"))
}

func open(t *testing.T, path string) *inbox {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+filepath.ToSlash(path)+"?_pragma=busy_timeout(10000)")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return &inbox{db, path}
}

func (i *inbox) count(ctx context.Context) (n int, err error) {
	err = i.db.QueryRowContext(ctx, `SELECT count(*) FROM inbox`).Scan(&n)
	return n, err
}

func (i *inbox) rows(t *testing.T) int {
	t.Helper()
	n, err := i.count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// lock takes the database away from the example, until the function is called.
func (i *inbox) lock(t *testing.T) (release func()) {
	t.Helper()
	c, err := i.db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := c.ExecContext(t.Context(), `BEGIN IMMEDIATE`); err != nil {
		t.Fatal(err)
	}
	return sync.OnceFunc(func() {
		_, err := c.ExecContext(context.WithoutCancel(t.Context()), `ROLLBACK`)
		if err != nil {
			t.Error(err)
		}
		_ = c.Close()
	})
}

// wire stands between the sender and an example: it keeps what goes by, and
// loses or holds back answers.
type wire struct {
	*httptest.Server
	mu     sync.Mutex
	to     *url.URL
	trick  string // of the next answer: lost, held
	got    []captured
	ended  int      // how many of them the example is done with
	served chan int // statuses of the example
}

// captured is a request as it went by.
type captured struct {
	header http.Header
	body   []byte
}

func newWire(t *testing.T) *wire {
	t.Helper()
	w := &wire{served: make(chan int, 1000)}
	w.Server = httptest.NewServer(w)
	t.Cleanup(w.Close)
	return w
}

func (w *wire) lead(t *testing.T, to string) {
	t.Helper()
	u, err := url.Parse(to)
	if err != nil {
		t.Fatal(err)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.to = u
}

func (w *wire) play(trick string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.trick = trick
}

// settle waits until the example is done with all that went by, and forgets
// how it answered.
func (w *wire) settle(t *testing.T) {
	t.Helper()
	until(t, func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return w.ended == len(w.got)
	})
	for len(w.served) > 0 {
		<-w.served
	}
}

func (w *wire) last() captured {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.got[len(w.got)-1]
}

// ServeHTTP implements http.Handler.
func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	w.mu.Lock()
	c, to, trick := captured{r.Header.Clone(), body}, w.to.String(), w.trick
	w.got, w.trick = append(w.got, c), ""
	w.mu.Unlock()
	status, err := c.send(context.WithoutCancel(r.Context()), to)
	if err == nil {
		w.served <- status
	}
	w.mu.Lock()
	w.ended++
	w.mu.Unlock()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	switch trick {
	case "lost": // the example answered, and the sender never hears of it
		panic(http.ErrAbortHandler)
	case "held": // too slow for the sender
		<-r.Context().Done()
	}
	rw.WriteHeader(status)
}

// send sends the request, unchanged.
func (c captured) send(ctx context.Context, to string) (int, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(string(c.body)))
	if err != nil {
		return 0, err
	}
	req.Header = c.header.Clone()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, err
	}
	_, _ = io.Copy(io.Discard, resp.Body) // so that the connection is used again
	_ = resp.Body.Close()
	return resp.StatusCode, nil
}
