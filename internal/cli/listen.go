package cli

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/internal/diagnose"
	"github.com/surehook/surehook/receiver"
	"github.com/surehook/surehook/signing"
)

const (
	maxShown    = 2 << 10  // of a body, on the screen
	maxListened = 16 << 20 // of a body that is taken
	maxCounted  = 100_000  // events of which the attempts are counted
)

// listener is a receiver for people: it verifies and prints.
type listener struct {
	c       *cmd
	scheme  string
	secrets []string           // empty: nothing is verified
	rc      *receiver.Receiver // nil with it
	status  int
	fail    failRule
	delay   time.Duration
	forward *url.URL
	record  *os.File
	full    bool
	raw     bool
	left    int // requests until it ends; 0: any number
	now     func() time.Time

	mu   sync.Mutex
	seen map[string]int // how often an event has come
	done chan struct{}
}

// failRule is --fail: the first requests of each event are answered so.
type failRule struct{ status, times int }

// String implements pflag.Value.
func (f *failRule) String() string {
	if f.times == 0 {
		return ""
	}
	return strconv.Itoa(f.status) + ":" + strconv.Itoa(f.times)
}

// Set implements pflag.Value.
func (f *failRule) Set(s string) error {
	status, times, ok := strings.Cut(s, ":")
	if !ok {
		times = "1"
	}
	var err1, err2 error
	f.status, err1 = strconv.Atoi(status)
	f.times, err2 = strconv.Atoi(times)
	if err1 != nil || err2 != nil || f.status < 300 || f.status > 599 || f.times < 1 {
		return errors.New("it must be a status from 300 to 599, a colon, and how often, as 500:3")
	}
	return nil
}

// Type implements pflag.Value.
func (f *failRule) Type() string { return "STATUS:N" }

// listenFlags are what becomes a listener.
type listenFlags struct {
	secret                        secretFlags
	addr, forward, record, replay string
	again                         bool
}

func (c *cmd) listenCmd() *cobra.Command {
	var fl listenFlags
	l := &listener{c: c, now: time.Now, done: make(chan struct{}), seen: map[string]int{}}
	listen := &cobra.Command{
		Use:   "listen",
		Short: "Receive webhooks: verify each signature, say why one is wrong, and print what came",
		Long: `Receive webhooks on any path, verify each signature, and print what came. Without a
secret nothing is verified. A request whose signature is wrong is answered 401, with
the cause on the screen; everything else gets the status that --status says.

--fail, --delay and --status play a receiver in trouble, to see how the sender goes on.
--forward sends what was accepted on to your own program, body and headers as they came,
and gives its answer back. --record keeps every request, as one line of JSON; --replay
shows such a file again, or sends it on with --forward. Recorded signatures grow old:
with --sign-again they are made anew.`,
		Example: "  SUREHOOK_SECRET=whsec_… surehook listen --addr 127.0.0.1:9000\n  surehook listen --fail 500:3 --delay 2s\n" +
			"  surehook listen --forward http://localhost:3000/hook --record got.jsonl\n  surehook listen --replay got.jsonl --forward http://localhost:3000/hook --sign-again",
		Args: exactly(),
		RunE: func(cc *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			return l.start(ctx, &fl)
		},
	}
	fl.secret.add(listen.Flags())
	f := listen.Flags()
	f.StringVar(&fl.addr, "addr", "127.0.0.1:9000", "address to listen on")
	f.StringVar(&l.scheme, "scheme", "standard", "who signs, and how")
	offer(listen, "scheme", diagnose.Schemes()...)
	f.IntVar(&l.status, "status", 200, "status of the answers")
	offer(listen, "status", "200", "204", "400", "410", "429", "500", "503")
	f.Var(&l.fail, "fail", "answer the first N requests of each event with this status, as 500:3")
	offer(listen, "fail", "500:3", "503:1", "429:2")
	f.DurationVar(&l.delay, "delay", 0, "wait so long before each answer")
	f.StringVar(&fl.forward, "forward", "", "URL to send on to what was accepted; its answer is given back")
	f.StringVar(&fl.record, "record", "", "file to add every request to, one line of JSON each")
	f.StringVar(&fl.replay, "replay", "", "file of such lines to show again, or to send to --forward, in place of listening")
	f.BoolVar(&fl.again, "sign-again", false, "with --replay and --forward: with a fresh timestamp and signature")
	f.IntVar(&l.left, "count", 0, "end after this many requests")
	f.BoolVar(&l.full, "full", false, "print all headers, and whole bodies, not the first 2 KiB")
	f.BoolVar(&l.raw, "raw", false, "print bodies as they came, not indented")
	return listen
}

// start checks the flags, and listens or replays.
func (l *listener) start(ctx context.Context, fl *listenFlags) error {
	if l.status < 200 || l.status > 599 {
		return usage("--status must be 200 to 599")
	}
	if l.delay < 0 {
		return usage("--delay must not be negative")
	}
	if fl.secret.text != "" || fl.secret.file != "" || l.c.env.getenv("SUREHOOK_SECRET") != "" {
		list, err := fl.secret.read(l.c)
		if err != nil {
			return err
		}
		if err := l.trust(list); err != nil {
			return err
		}
	}
	if fl.forward != "" {
		u, err := url.Parse(fl.forward)
		if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
			return usage("--forward must be a URL that begins with http:// or https://")
		}
		l.forward = u
	}
	if fl.replay != "" {
		return l.replay(ctx, fl)
	}
	if fl.again {
		return usage("--sign-again goes with --replay and --forward")
	}
	if fl.record != "" {
		f, err := os.OpenFile(fl.record, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			return fail(exitUsage, "", "--record: %w", err)
		}
		defer func() { _ = f.Close() }() // each line was written when it came
		l.record = f
	}
	return l.run(ctx, fl.addr)
}

// trust takes the secrets that requests must be signed with.
func (l *listener) trust(list []string) error {
	scheme, err := receiving(l.scheme, list)
	if err != nil {
		return err
	}
	rc, err := receiver.New(scheme, receiver.NoDedupe, receiver.WithMaxBody(maxListened), receiver.WithClock(func() time.Time { return l.now() }))
	if err != nil {
		return badSecret(err)
	}
	l.secrets, l.rc = list, rc
	return nil
}

// receiving finds a scheme by its name.
func receiving(name string, secrets []string) (receiver.Scheme, error) {
	switch name {
	case "standard":
		return receiver.Standard(secrets...), nil
	case "purple-wolf":
		return receiver.PurpleWolf(secrets...), nil
	case "github":
		return receiver.GitHub(secrets...), nil
	case "stripe":
		return receiver.Stripe(secrets...), nil
	case "shopify":
		return receiver.Shopify(secrets...), nil
	case "slack":
		return receiver.Slack(secrets...), nil
	}
	return receiver.Scheme{}, usage("unknown scheme; it must be %s", strings.Join(diagnose.Schemes(), ", "))
}

func (l *listener) run(ctx context.Context, addr string) error {
	sock, err := (&net.ListenConfig{}).Listen(ctx, "tcp", addr)
	if err != nil {
		return fail(exitFailed, "choose another --addr", "can't listen: %w", err)
	}
	srv := &http.Server{Handler: l, ConnContext: withHead, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: time.Minute}
	failed := make(chan error, 1)
	go func() { failed <- srv.Serve(heads{sock}) }()
	how := "verifies signatures (" + l.scheme + ")"
	if l.rc == nil {
		how = "verifies nothing: no secret was given"
	}
	if l.forward != nil {
		how += ", sends on to " + l.forward.Scheme + "://" + l.forward.Host
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

// attemptOf is what the sender says of the attempt; 0: nothing.
func attemptOf(h http.Header) int {
	for _, name := range []string{"Surehook-Attempt", signing.PurpleWolfAttempt} {
		if n, err := strconv.Atoi(h.Get(name)); err == nil && n > 0 {
			return n
		}
	}
	return 0
}
