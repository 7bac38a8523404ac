// Package localgh is the provider local-gh: it looks for events of pull requests
// through the GitHub CLI gh of whoever runs surehook, and as its account.
//
// It guarantees that a look's events are stored before what it has seen is, so that
// none is lost between two looks or by a crash; that a fact has one event id however
// often it is read, so that none comes twice; that a subject is looked at once for
// all sentinels on it, by one node; and that nothing a sentinel says is ever read by
// a shell or taken for an option.
package localgh

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/sentinel"
)

// Slug is the provider's name.
const Slug = "local-gh"

// Options of the provider. Polls and Publish are required.
type Options struct {
	Command string // gh, by its path or its name on PATH; "off": none
	Environ func() []string
	Polls   surehook.Polls
	Publish func(ctx context.Context, events ...surehook.Event) ([]engine.Receipt, error) // engine.Engine.Enqueue
	// Report tells what became of a sentinel's watch: broken when somebody has to do
	// something; "": all is well again. nil: nobody hears.
	Report func(ctx context.Context, sentinel string, broken bool, message string) error
	Every  time.Duration // between looks at a subject; a minute
	Now    func() time.Time
	Logger *slog.Logger
}

// Provider looks at GitHub. Start it, and stop it.
type Provider struct {
	opt    Options
	gh     tool
	log    *slog.Logger
	wake   chan struct{}
	cancel context.CancelFunc
	done   sync.WaitGroup

	mu      sync.Mutex
	looking map[string]chan struct{} // subjects that this node looks at right now; closed when that is over
}

var _ sentinel.Provider = (*Provider)(nil)

const (
	atOnce    = 4 // looks of one node
	hold      = 10 * time.Minute
	maxWait   = 15 * time.Minute // between looks that fail
	idle      = 30 * time.Second // between questions for polls that other nodes have made
	failOften = 5                // looks in a row that make a passing trouble a lasting one
)

// New makes a provider.
func New(opt Options) *Provider {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Environ == nil {
		opt.Environ = func() []string { return nil }
	}
	if opt.Every == 0 {
		opt.Every = time.Minute
	}
	return &Provider{opt: opt, log: opt.Logger, wake: make(chan struct{}, 1), looking: make(map[string]chan struct{}),
		gh: tool{command: opt.Command, environ: opt.Environ, now: opt.Now}}
}

// Start begins to look, until Stop.
func (p *Provider) Start() {
	ctx, cancel := context.WithCancel(context.Background())
	p.cancel = cancel
	if p.opt.Command != off {
		p.done.Go(func() { p.loop(ctx) })
	}
}

// Stop ends what is being looked at; it is looked at again later.
func (p *Provider) Stop(context.Context) error {
	if p.cancel != nil {
		p.cancel()
		p.done.Wait()
	}
	return nil
}

const off = "off"

var errOff = &trouble{message: "local-gh is switched off here: --gh-command off", lasting: true}

// Slug implements sentinel.Provider.
func (p *Provider) Slug() string { return Slug }

// DefaultTypes implements sentinel.Provider.
func (p *Provider) DefaultTypes(subject string) []string { return sentinel.DefaultTypes(subject) }

// Readiness implements sentinel.Provider. GitHub isn't asked.
func (p *Provider) Readiness(ctx context.Context) sentinel.Readiness {
	err := p.ready(ctx)
	if err == nil {
		return sentinel.Readiness{Ready: true}
	}
	r := sentinel.Readiness{Reason: err.Error()}
	switch {
	case errors.Is(err, errMissing):
		r.Setup = []string{"Install the GitHub CLI, https://cli.github.com, on the machine that runs surehook, or set --gh-command to its path.", "Run gh auth login as the user that runs surehook."}
	case errors.Is(err, errLogin):
		r.Setup = []string{"Run gh auth login as the user that runs surehook, or set GH_TOKEN in its environment."}
	case errors.Is(err, errOff):
		r.Setup = []string{"Start surehook with --gh-command gh."}
	default:
		r.Setup = []string{"Run gh auth status as the user that runs surehook; it tells more."}
	}
	return r
}

func (p *Provider) ready(ctx context.Context) error {
	if p.opt.Command == off {
		return errOff
	}
	return p.gh.ready(ctx)
}

// Handle implements sentinel.Provider.
func (p *Provider) Handle(w sentinel.Watch) (string, error) {
	if w.Tenant != "" || w.Partner != "" {
		return "", errors.New("local-gh sees what the operator's GitHub account sees, so it serves platform keys alone")
	}
	if p.opt.Command == off {
		return "", errOff
	}
	for _, s := range w.Subjects {
		if _, err := parseTarget(s); err != nil {
			return "", err
		}
	}
	handle := strings.Join(append([]string{w.Sentinel}, w.Subjects...), " ")
	if len(handle) > maxHandle {
		return "", errors.New("these are too many subjects for one watch of local-gh: make several")
	}
	return handle, nil
}

// CreateWatch implements sentinel.Provider. It looks at each pull request once, so
// that one which isn't there is refused now.
func (p *Provider) CreateWatch(ctx context.Context, w sentinel.Watch) error {
	for _, subject := range w.Subjects {
		t, err := parseTarget(subject)
		if err != nil {
			return err
		}
		s, err := begin(ctx, &p.gh, t, w.Terminal)
		if err != nil {
			return err
		}
		raw, err := json.Marshal(s)
		if err == nil {
			err = p.opt.Polls.WatchPoll(ctx, Slug, t.subject, w.Sentinel, raw, p.opt.Every)
		}
		if err != nil {
			return err
		}
	}
	p.poke()
	return nil
}

const maxHandle = 4 << 10

// CancelWatch implements sentinel.Provider.
func (p *Provider) CancelWatch(ctx context.Context, handle string) error {
	id, subjects := watchOf(handle)
	var errs []error
	for _, s := range subjects {
		errs = append(errs, p.opt.Polls.UnwatchPoll(ctx, Slug, s, id))
	}
	return errors.Join(errs...)
}

// watchOf reads what Handle gave.
func watchOf(handle string) (id string, subjects []string) {
	words := strings.Fields(handle)
	if len(words) == 0 {
		return "", nil
	}
	return words[0], words[1:]
}

// Poll implements sentinel.Provider.
func (p *Provider) Poll(ctx context.Context, handle string) (int, error) {
	if p.opt.Command == off {
		return 0, errOff
	}
	_, subjects := watchOf(handle)
	n := 0
	var errs []error
	for _, s := range subjects {
		found, err := p.now(ctx, s)
		n += found
		errs = append(errs, err)
	}
	return n, errors.Join(errs...)
}

// now looks at a subject at once, or waits for the look that is under way.
func (p *Provider) now(ctx context.Context, subject string) (int, error) {
	for !p.begin(subject) {
		p.mu.Lock()
		over := p.looking[subject]
		p.mu.Unlock()
		if over == nil {
			continue
		}
		select {
		case <-over:
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
	defer p.end(subject)
	polls, _, err := p.opt.Polls.ClaimPolls(ctx, Slug, []string{subject}, hold, 1)
	if err != nil || len(polls) == 0 {
		return 0, err
	}
	defer p.poke()
	return p.look(ctx, polls[0])
}

// begin notes that this node looks at a subject; false: it does already.
func (p *Provider) begin(subject string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.looking[subject] != nil {
		return false
	}
	p.looking[subject] = make(chan struct{})
	return true
}

func (p *Provider) end(subject string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.looking[subject])
	delete(p.looking, subject)
}

func (p *Provider) poke() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// loop looks at what is due.
func (p *Provider) loop(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		case <-p.wake:
		}
		timer.Reset(p.round(ctx))
	}
}

// round looks at what is due, and tells when to come again.
func (p *Provider) round(ctx context.Context) time.Duration {
	for {
		polls, next, err := p.opt.Polls.ClaimPolls(ctx, Slug, nil, hold, atOnce)
		if err != nil {
			if ctx.Err() == nil {
				p.log.Error("what local-gh is to look at can't be read", "error", err)
			}
			return idle
		}
		if len(polls) == 0 {
			if next < 0 {
				return idle
			}
			return max(min(next, idle), 100*time.Millisecond)
		}
		var all sync.WaitGroup
		for _, poll := range polls {
			if !p.begin(poll.Subject) { // it is being looked at by hand
				continue
			}
			all.Go(func() {
				defer p.end(poll.Subject)
				_, err := p.look(ctx, poll)
				if err != nil && ctx.Err() == nil {
					p.log.Warn("a look through gh failed", "subject", poll.Subject, "failures", poll.Failures, "error", err)
				}
			})
		}
		all.Wait()
		if ctx.Err() != nil {
			return idle
		}
	}
}

// look looks at one subject, publishes what is new, and stores how far it came, in
// this order: what is lost by a crash between is read again, under the same ids.
func (p *Provider) look(ctx context.Context, poll *surehook.Poll) (int, error) {
	was := poll.Error
	n, err := p.try(ctx, poll)
	if ctx.Err() != nil {
		return n, ctx.Err() // the claim runs out
	}
	wait := p.opt.Every
	if err == nil {
		poll.Failures, poll.Error = 0, ""
	} else {
		poll.Failures++
		poll.Error = err.Error()
		wait = p.backOff(poll.Failures, err)
	}
	saved, serr := p.opt.Polls.SavePoll(ctx, poll, wait)
	if serr != nil {
		return n, errors.Join(err, serr)
	}
	if saved && poll.Error != was || poll.Failures == failOften {
		p.report(ctx, poll, err)
	}
	return n, err
}

// backOff is how long to wait after failures in a row.
func (p *Provider) backOff(failures int, err error) time.Duration {
	wait := min(p.opt.Every<<min(failures-1, 10), max(maxWait, p.opt.Every))
	if t, ok := errors.AsType[*trouble](err); ok && !t.until.IsZero() {
		wait = max(t.until.Sub(p.opt.Now()), time.Second)
	}
	return wait
}

func (p *Provider) report(ctx context.Context, poll *surehook.Poll, err error) {
	if p.opt.Report == nil {
		return
	}
	t, ok := errors.AsType[*trouble](err)
	broken := ok && t.lasting || poll.Failures >= failOften
	for _, id := range poll.Sentinels {
		if rerr := p.opt.Report(ctx, id, broken, poll.Error); rerr != nil {
			p.log.Warn("a sentinel couldn't be told of its watch", "sentinel_id", id, "error", rerr)
		}
	}
}

// try is one look. State is the new one only if its events are stored.
func (p *Provider) try(ctx context.Context, poll *surehook.Poll) (int, error) {
	t, err := parseTarget(poll.Subject)
	if err != nil {
		return 0, &trouble{message: err.Error(), lasting: true}
	}
	events, next, err := lookAt(ctx, &p.gh, t, poll.State)
	if next == nil {
		return 0, err
	}
	n, perr := p.publish(ctx, events)
	if perr != nil {
		return n, perr
	}
	raw, jerr := json.Marshal(next)
	if jerr != nil {
		return n, jerr
	}
	poll.State = raw
	return n, err
}

// publish stores events and counts the new ones. One that was stored before, even
// with other words (a comment was edited since), is no error.
func (p *Provider) publish(ctx context.Context, events []surehook.Event) (int, error) {
	n := 0
	for part := range slices.Chunk(events, 100) {
		rs, err := p.opt.Publish(ctx, part...)
		if err != nil {
			return n, fmt.Errorf("the events can't be stored now: %w", err)
		}
		for i, r := range rs {
			switch code := surehook.CodeOf(r.Err); {
			case r.Err == nil && !r.Duplicate:
				n++
			case r.Err == nil, code == surehook.Conflict:
			case code == surehook.InvalidRequest, code == surehook.TooLarge:
				p.log.Error("an event of GitHub's can't be stored", "event_id", part[i].ID, "error", r.Err)
			default:
				return n, fmt.Errorf("the events can't be stored now: %w", r.Err)
			}
		}
	}
	return n, nil
}
