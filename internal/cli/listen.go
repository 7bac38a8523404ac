package cli

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/signing"
)

const maxShown = 2 << 10 // of a body, on the screen

// listener is a receiver for people: it verifies and prints.
type listener struct {
	c      *cmd
	keys   []signing.Key
	status int
	full   bool
	left   int // requests until it ends; 0: any number
	now    func() time.Time

	mu   sync.Mutex
	done chan struct{}
}

func (c *cmd) listenCmd() *cobra.Command {
	var secret secretFlags
	var addr string
	l := &listener{c: c, now: time.Now, done: make(chan struct{})}
	listen := &cobra.Command{
		Use:   "listen",
		Short: "Receive webhooks: verify each signature and print what came",
		Long: `Receive webhooks on any path, verify each signature by Standard Webhooks, and print
what came. Without a secret nothing is verified. A request whose signature is wrong
is answered 401; everything else gets the status that --status says.`,
		Example: "  SUREHOOK_SECRET=whsec_… surehook listen --addr 127.0.0.1:9000\n  surehook listen --status 503 --json",
		Args:    exactly(),
		RunE: func(cc *cobra.Command, _ []string) error {
			if l.status < 200 || l.status > 599 {
				return usage("--status must be 200 to 599")
			}
			if secret.text != "" || secret.file != "" || c.env.getenv("SUREHOOK_SECRET") != "" {
				list, err := secret.read(c)
				if err != nil {
					return err
				}
				if l.keys, err = keys(list, true); err != nil {
					return err
				}
			}
			ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return l.run(ctx, addr)
		},
	}
	secret.add(listen.Flags())
	f := listen.Flags()
	f.StringVar(&addr, "addr", "127.0.0.1:9000", "address to listen on")
	f.IntVar(&l.status, "status", 200, "status of the answers")
	offer(listen, "status", "200", "204", "400", "410", "429", "500", "503")
	f.IntVar(&l.left, "count", 0, "end after this many requests")
	f.BoolVar(&l.full, "full", false, "print whole bodies, not the first 2 KiB")
	return listen
}

func (l *listener) run(ctx context.Context, addr string) error {
	sock, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fail(exitFailed, "choose another --addr", "can't listen: %w", err)
	}
	srv := &http.Server{Handler: l, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(sock) }()
	how := "verifies signatures"
	if len(l.keys) == 0 {
		how = "verifies nothing: no secret was given"
	}
	l.c.say("listening on http://%s, %s", sock.Addr(), how)
	select {
	case <-ctx.Done():
	case <-l.done:
	case err := <-failed:
		return err
	}
	stop, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
	defer cancel()
	if err := srv.Shutdown(stop); err != nil {
		return srv.Close()
	}
	return nil
}

// received is one request, as --json prints it.
type received struct {
	Time      time.Time `json:"time"`
	Method    string    `json:"method"`
	Path      string    `json:"path"`
	ID        string    `json:"webhook_id"`
	Attempt   int       `json:"attempt,omitempty"`
	Signature string    `json:"signature"` // valid, unchecked, or why it was refused
	Status    int       `json:"status"`
	Bytes     int       `json:"bytes"`
	Body      string    `json:"body"`                  // as it came: the signature is over its bytes
	Raw       []byte    `json:"body_base64,omitempty"` // in place of it, where it isn't UTF-8
}

// ServeHTTP implements http.Handler.
func (l *listener) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, req.Body, maxBody))
	if err != nil {
		http.Error(w, "the body couldn't be read", http.StatusBadRequest)
		return
	}
	r := received{Time: l.now().UTC().Truncate(time.Millisecond), Method: req.Method, Path: req.URL.Path, ID: req.Header.Get(signing.HeaderID),
		Signature: "unchecked", Status: l.status, Bytes: len(body)}
	r.Attempt, _ = strconv.Atoi(req.Header.Get("Surehook-Attempt")) // 0 from other senders
	if len(l.keys) > 0 {
		r.Signature = "valid"
		if err := signing.Verify(l.keys, req.Header.Get(signing.HeaderSignature), r.ID, req.Header.Get(signing.HeaderTimestamp), body, l.now(), signing.Tolerance); err != nil {
			r.Signature, r.Status = whyNot(err), http.StatusUnauthorized
		}
	}
	w.WriteHeader(r.Status)
	if utf8.Valid(body) {
		r.Body = string(body)
	} else {
		r.Raw = body
	}
	l.print(&r, body)
}

func (l *listener) print(r *received, body []byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.c.json {
		if err := l.c.out.value(r); err != nil {
			l.c.say("surehook: %s", err)
		}
	} else {
		l.text(r, body)
	}
	if l.left > 0 {
		if l.left--; l.left == 0 {
			close(l.done)
		}
	}
}

func (l *listener) text(r *received, body []byte) {
	o := l.c.out
	mark := o.paint(yellow, r.Signature)
	switch {
	case r.Signature == "valid":
		mark = o.paint(green, "valid signature")
	case len(l.keys) > 0:
		mark = o.paint(red, "refused: "+r.Signature)
	}
	attempt := ""
	if r.Attempt > 1 {
		attempt = fmt.Sprintf(", attempt %d", r.Attempt)
	}
	o.line("%s  %s %s  %s%s  %s  %d bytes, answered %d", clock(r.Time), printable(r.Method), printable(r.Path), printable(r.ID), attempt, mark, r.Bytes, r.Status)
	if len(body) == 0 {
		return
	}
	shown, more := body, ""
	if !l.full && len(shown) > maxShown {
		for shown = shown[:maxShown]; len(shown) > 0 && !utf8.RuneStart(body[len(shown)]); {
			shown = shown[:len(shown)-1]
		}
		more = fmt.Sprintf(" … and %d bytes more", len(body)-len(shown))
	}
	o.line("  %s%s", printable(string(shown)), more)
}

// printable keeps a stranger's text from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r == '\n' || r == '\t' || unicode.IsPrint(r) {
			return r
		}
		return '�'
	}, s)
}
