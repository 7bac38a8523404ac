package cli

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/surehook/surehook/client"
	"github.com/surehook/surehook/internal/app"
	"github.com/surehook/surehook/internal/config"
)

const (
	demoPublishers = 8
	demoSpread     = 4 * time.Second // over which the events are published
	demoLimit      = 29 * time.Second
	holeSubject    = "demo:black-hole" // marks the few events that the black hole gets
	holeEvents     = 2                 // 8 failures in all: one less lets its breaker be
)

var demoWaits = []int{200, 400, 800} // ms; so 4 attempts

func (c *cmd) demoCmd() *cobra.Command {
	var keep bool
	var file string
	demo := &cobra.Command{
		Use:   "demo",
		Short: "Watch real events being delivered, signed, retried and accounted for",
		Long: `Start a server on a temporary SQLite file and a receiver on loopback, register four
endpoints (one good, one that fails twice and recovers, one that answers 410, one
black hole that never answers), publish real-shaped events through the REST API,
and account for every single one. The receiver verifies each signature with code
of its own. Exit code 0: every number was as it must be.

--events takes your own: one JSON value a line. An object with "type" and "data" is
published as POST /v1/events takes it; anything else becomes the data of a
"demo.event".`,
		Example: "  surehook demo\n  surehook demo --events mine.jsonl\n  surehook demo --keep",
		Args:    exactly(),
		RunE: func(cc *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cc.Context(), os.Interrupt, syscall.SIGTERM)
			defer stop()
			d := &demo{c: c, keep: keep}
			return d.run(ctx, file)
		},
	}
	demo.Flags().BoolVar(&keep, "keep", false, "leave everything running at the end, and print the API key and the addresses")
	demo.Flags().StringVar(&file, "events", "", "publish these events instead: a file of JSON lines; - is standard input")
	return demo
}

// demo is one run.
type demo struct {
	c    *cmd
	keep bool

	events []demoEvent
	dir    string
	log    *os.File
	app    *app.App
	api    *client.Client
	rs     *receivers
	hooks  []*demoHook
	shown  progress

	mu        sync.Mutex
	published map[string]publication // by event id
	promised  int                    // deliveries that the API promised
	refused   []string
	began     time.Time
}

// demoHook is an endpoint of the demo: its receiver, and its id in the API.
type demoHook struct {
	*demoReceiver
	id string
}

// publication is an accepted event.
type publication struct {
	at   time.Time // just before the request
	data [sha256.Size]byte
	hole bool
}

func (d *demo) run(ctx context.Context, file string) (err error) {
	if d.events, err = d.c.demoEvents(file); err != nil {
		return err
	}
	d.published = make(map[string]publication, len(d.events))
	d.shown = d.c.progress()
	if err := d.start(ctx); err != nil {
		return errors.Join(err, d.stop()) //nolint:contextcheck // the end has its own bound
	}
	defer func() { err = errors.Join(err, d.stop()) }() //nolint:contextcheck // the end has its own bound
	d.intro()
	if err := d.publish(ctx); err != nil {
		return err
	}
	r, err := d.wait(ctx)
	d.shown.end()
	if err != nil {
		return err
	}
	if err := d.report(r); err != nil {
		return err
	}
	if d.keep {
		d.stay(ctx)
	}
	if !r.OK {
		return &exitError{code: exitFailed, err: errSilent}
	}
	return nil
}

// start brings up the receiver, the server and the four endpoints.
func (d *demo) start(ctx context.Context) (err error) {
	if d.rs, err = listenDemo(); err != nil {
		return err
	}
	if d.dir, err = os.MkdirTemp("", "surehook-demo-"); err != nil {
		return err
	}
	if d.log, err = os.OpenFile(filepath.Join(d.dir, "surehook.log"), os.O_CREATE|os.O_WRONLY, 0o600); err != nil {
		return err
	}
	cfg := config.Default()
	cfg.Listen, cfg.Data, cfg.ShutdownGrace = "127.0.0.1:0", d.dir, 5*time.Second
	cfg.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")}
	if d.app, err = app.Start(ctx, cfg, app.Options{Version: version(), Log: d.log}); err != nil {
		return err
	}
	if d.api, err = client.New("http://"+d.app.Addr.String(), d.app.AdminKey); err != nil {
		return err
	}
	for _, r := range d.rs.all {
		h, err := d.register(ctx, r)
		if err != nil {
			return fmt.Errorf("registering the endpoint %s: %w", r.name, err)
		}
		d.hooks = append(d.hooks, h)
	}
	return nil
}

// stop takes everything down again; a part that never came up is nil.
func (d *demo) stop() error {
	d.shown.end()
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var errs []error
	if d.rs != nil {
		errs = append(errs, d.rs.close()) // first: a black hole would hold the drain
	}
	if d.app != nil {
		errs = append(errs, d.app.Stop(ctx))
	}
	if d.log != nil {
		errs = append(errs, d.log.Close())
	}
	if d.dir != "" {
		errs = append(errs, os.RemoveAll(d.dir))
	}
	return errors.Join(errs...)
}

// register creates an endpoint through the API.
func (d *demo) register(ctx context.Context, r *demoReceiver) (*demoHook, error) {
	w := client.WebhookInput{URL: d.rs.url(r), Description: "demo: " + r.name,
		Limits: &client.Limits{WaitsMS: demoWaits, Attempts: len(demoWaits) + 1, TimeoutMS: 2000}}
	if r.bare {
		w.Envelope = "payload"
	}
	if r.name == "black-hole" {
		w.Subjects = []string{holeSubject}
	}
	made, err := d.api.CreateWebhook(ctx, w)
	if err != nil {
		return nil, err
	}
	return &demoHook{demoReceiver: r, id: made.ID}, r.trust(made.Secret)
}

// publish sends the events through the API, spread over a few seconds.
func (d *demo) publish(ctx context.Context) error {
	d.began = time.Now()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan demoEvent)
	var wg sync.WaitGroup
	for range demoPublishers {
		wg.Go(func() {
			for ev := range next {
				if err := d.publishOne(ctx, ev); err != nil {
					cancel(err)
					return
				}
			}
		})
	}
	tick := time.NewTicker(min(max(demoSpread/time.Duration(len(d.events)), time.Microsecond), 20*time.Millisecond))
	defer tick.Stop()
	for i, ev := range d.events {
		if len(d.events) < 4000 {
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
		select {
		case next <- ev:
		case <-ctx.Done():
		}
		if i%8 == 0 {
			d.progress()
		}
	}
	close(next)
	wg.Wait()
	d.progress()
	return context.Cause(ctx)
}

func (d *demo) publishOne(ctx context.Context, ev demoEvent) error {
	start := time.Now()
	got, err := d.api.Publish(ctx, ev.Event)
	var problem *client.Problem
	d.mu.Lock()
	defer d.mu.Unlock()
	switch {
	case errors.As(err, &problem) && problem.Status < 500:
		d.refused = append(d.refused, fmt.Sprintf("%s: %s", ev.from, problem.Detail))
		return nil
	case err != nil:
		return fmt.Errorf("publishing %s: %w", ev.from, err)
	case got.Duplicate:
		return nil
	}
	d.published[got.ID] = publication{at: start, data: sha256.Sum256(ev.Data), hole: slices.Contains(ev.Subjects, holeSubject)}
	d.promised += got.Deliveries
	return nil
}

// progress shows where things stand, as the receiver sees them.
func (d *demo) progress() {
	d.mu.Lock()
	published := len(d.published)
	d.mu.Unlock()
	delivered, retried := 0, 0
	for _, h := range d.hooks {
		c := h.counts()
		delivered, retried = delivered+c.delivered, retried+c.retried
	}
	d.shown.show(fmt.Sprintf("%4.1f s  ", time.Since(d.began).Seconds()),
		fmt.Sprintf("published %d of %d, delivered %d, retries %d", published, len(d.events), delivered, retried))
}

// wait looks until every number is as it must be, or until the time is up.
func (d *demo) wait(ctx context.Context) (*result, error) {
	limit := demoLimit + time.Duration(len(d.events))*time.Millisecond
	poll := time.NewTicker(250*time.Millisecond + time.Duration(len(d.events))*100*time.Microsecond)
	defer poll.Stop()
	for {
		r, err := d.look(ctx)
		if err != nil {
			return nil, err
		}
		if len(r.wrong) == 0 || time.Since(d.began) > limit {
			return r, nil
		}
		d.progress()
		select {
		case <-poll.C:
		case <-ctx.Done():
			return nil, fail(exitFailed, "", "interrupted before everything was accounted for")
		}
	}
}

func (d *demo) intro() {
	o := d.c.out
	if d.c.json {
		return
	}
	types := map[string]bool{}
	for _, ev := range d.events {
		types[ev.Type] = true
	}
	o.line("%s", o.paint(bold, "surehook demo"))
	o.line("server    http://%s on a temporary SQLite file, events synced to disk before they are answered", d.app.Addr)
	o.line("receiver  http://%s, verifies every signature with code of its own", d.rs.addr)
	o.line("events    %d of %d types, through POST /v1/events", len(d.events), len(types))
	o.line("")
}

// stay leaves everything running until a signal.
func (d *demo) stay(ctx context.Context) {
	base, o := "http://"+d.app.Addr.String(), d.c.out
	if d.c.json {
		_ = o.value(map[string]string{"url": base, "key": d.app.AdminKey, "receiver": "http://" + d.rs.addr, "log": d.log.Name()}) // the verdict is out
	} else {
		o.line("")
		o.line("Still running, until Ctrl-C. The temporary data goes with it.")
		o.line("  API key    %s", d.app.AdminKey)
		o.line("  API        %s    documentation %s/docs", base, base)
		o.line("  receiver   http://%s/good", d.rs.addr)
		o.line("  log        %s", d.log.Name())
		o.line("Try:")
		auth := "-H 'Authorization: Bearer " + d.app.AdminKey + "'"
		o.line(`  curl -s %s/v1/events %s -H 'Content-Type: application/json' -d '{"type":"order.paid","data":{"total":"42.00"}}'`, base, auth)
		o.line("  curl -s %s/v1/webhooks %s", base, auth)
		o.line("  curl -s %s/v1/dead-letters %s", base, auth)
	}
	select {
	case <-ctx.Done():
	case err := <-d.app.Failed():
		d.c.say("surehook: %s", err)
	}
}
