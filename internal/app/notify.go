package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/config"
)

const (
	noticeQueue   = 256
	noticeTimeout = 30 * time.Second
)

// teller tells the operator, out of band, that an endpoint was disabled: one
// notice at a time, in a goroutine that nothing else waits for.
type teller struct {
	command []string
	url     string
	environ func() []string
	client  *http.Client
	log     *slog.Logger

	ctx    context.Context // ends what is being told
	cancel context.CancelFunc
	mu     sync.Mutex
	queue  chan []byte // nil once stopped
	done   chan struct{}
}

func newTeller(cfg config.Config, log *slog.Logger, environ func() []string) *teller {
	if environ == nil {
		environ = os.Environ
	}
	t := &teller{command: strings.Fields(cfg.NotifyCommand), url: cfg.NotifyURL, environ: environ, log: log,
		client: &http.Client{Timeout: noticeTimeout}, queue: make(chan []byte, noticeQueue), done: make(chan struct{})}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	go t.loop(t.queue)
	return t
}

// tell queues a notice; it never waits.
func (t *teller) tell(n engine.Notice) {
	if len(t.command) == 0 && t.url == "" {
		return
	}
	body, err := json.Marshal(n)
	if err != nil {
		t.log.Error("a notice can't be written", "error", err)
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.queue == nil {
		return
	}
	select {
	case t.queue <- body:
	default:
		t.log.Error("a notice was dropped: too many wait", "webhook_id", n.WebhookID)
	}
}

func (t *teller) loop(queue <-chan []byte) {
	defer close(t.done)
	for body := range queue {
		if len(t.command) > 0 {
			if err := t.run(body); err != nil {
				t.log.Error("the notify command failed", "error", err)
			}
		}
		if t.url != "" {
			if err := t.post(body); err != nil {
				t.log.Error("the notice couldn't be posted", "error", err)
			}
		}
	}
}

// run starts the command without a shell, the notice on its standard input and
// our own secrets not in its environment.
func (t *teller) run(body []byte) error {
	ctx, cancel := context.WithTimeout(t.ctx, noticeTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, t.command[0], t.command[1:]...) //nolint:gosec // the operator's own setting
	cmd.Stdin = bytes.NewReader(append(body, '\n'))
	cmd.WaitDelay = time.Second
	for _, kv := range t.environ() {
		if !secretEnv(kv) {
			cmd.Env = append(cmd.Env, kv)
		}
	}
	return cmd.Run()
}

// secretEnv tells the variables that no other program needs.
func secretEnv(kv string) bool {
	name, _, _ := strings.Cut(kv, "=")
	if name == config.Prefix+"KEY" {
		return true
	}
	for _, o := range config.Options() {
		if o.Secret && o.Env == name {
			return true
		}
	}
	return false
}

// post sends the notice. The URL holds whatever the operator's chat service
// calls a secret, so no error repeats it.
func (t *teller) post(body []byte) error {
	req, err := http.NewRequestWithContext(t.ctx, http.MethodPost, t.url, bytes.NewReader(body))
	if err != nil {
		return errors.New("notify-url can't be used")
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := t.client.Do(req)
	if err != nil {
		return fmt.Errorf("no answer from %s", req.URL.Host)
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 4<<10)) // so that the connection can be used again
	if err := resp.Body.Close(); err != nil || resp.StatusCode >= 300 {
		return fmt.Errorf("%s answered %d", req.URL.Host, resp.StatusCode)
	}
	return nil
}

// stop tells what waits, for as long as ctx allows.
func (t *teller) stop(ctx context.Context) error {
	t.mu.Lock()
	if t.queue != nil {
		close(t.queue)
		t.queue = nil
	}
	t.mu.Unlock()
	defer t.cancel()
	select {
	case <-t.done:
	case <-ctx.Done():
		t.cancel()
		<-t.done
	}
	return nil
}
