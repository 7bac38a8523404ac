// Package engine is Surehook as a library: the runtime that takes events in and
// delivers them, inside your own program.
//
// Guarantee: an event whose Enqueue returned without an error is delivered at
// least once to every endpoint that matched when it was accepted, or becomes a
// dead letter that can be replayed. That holds across crashes of the process
// and, with a store that syncs, of the machine.
//
//	store, _ := sqlite.Open(ctx, "surehook.db", sqlite.Options{})
//	e, _ := engine.New(engine.Options{Store: store, MasterKeys: keys})
//	_ = e.Start(ctx)
//	defer e.Stop(ctx)
//	receipt, err := e.Publish(ctx, surehook.Event{Type: "order.paid", Data: body})
package engine

import (
	"cmp"
	"context"
	cryptorand "crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/netip"
	"net/url"
	"sync"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/accept"
	"github.com/surehook/surehook/internal/dispatch"
	"github.com/surehook/surehook/internal/egress"
	"github.com/surehook/surehook/internal/fanout"
	"github.com/surehook/surehook/internal/seal"
)

// Options of an engine. Store and MasterKeys are required; the zero value of
// everything else is a good default.
type Options struct {
	Store      surehook.Store
	MasterKeys [][]byte // 32 bytes each: the first seals, the others still open
	KeyLost    bool     // the key that sealed the store's secrets is lost: start all the same

	Version   string   // for the User-Agent; "dev"
	UserAgent string   // the profile's, "Surehook/<Version>"
	OwnHosts  []string // our own API's and console's hosts, refused as endpoints

	AllowNetworks      []netip.Prefix // development only: private networks that may be reached
	EgressProxy        *url.URL       // HTTP CONNECT; the environment's proxies are ignored
	RootCAs            *x509.CertPool
	ClientCertificates []tls.Certificate
	Resolver           egress.Resolver // the system's
	// Dial opens connections to addresses that the guard accepted, in place of the
	// kernel: for receivers in memory.
	Dial     func(ctx context.Context, to netip.AddrPort) (net.Conn, error)
	DNSCache time.Duration // 5 s; negative: none

	APIOnly       bool // take events in alone: other nodes on the same store deliver them
	MaxInFlight   int  // requests over all endpoints; 1024
	MaxMemory     int  // bytes of events held for delivery; 16 MiB
	MaxEventBytes int  // of one event's data; 1 MiB
	MaxSubjects   int  // of one event; 16
	MaxWebhooks   int  // endpoints a scope; 20, negative: unlimited
	MaxSentinels  int  // that haven't ended, a scope; 100,000, negative: unlimited
	// How long a sentinel is kept that has ended, or whose session has, once nothing is
	// to be delivered any more; 7 days, negative: for ever.
	KeepSentinels time.Duration
	SentinelQueue int // events that may wait for one sentinel's webhook, past which the oldest become dead letters; 0: any number
	// What an inbox may hold, of endpoints that are pulled: 100,000 events and 256 MiB
	// of their data; negative: unlimited. Past it the oldest become dead letters.
	InboxEvents  int
	InboxBytes   int64
	SessionIdle  time.Duration // without a pull, after which a session ends; 1 h
	APIVersion   string        // of events' pylota envelopes from now on; "2026-10-01"
	TextFields   []string      // fields of events' data whose texts are cut, e.g. "extracted_text" or "message.text"
	MaxTextBytes int           // to which: 16 KiB; at most 64 KiB
	CarryTrace   bool
	Retain       time.Duration // how long events are kept, with all that belongs to them; 0: for ever. A tenant may have EventsDays of its own
	ReplayWindow time.Duration // how long after it occurred an event may be replayed, if it is kept so long; 30 days, negative: as long as it is kept

	// Handoff sees the events that this process fans out: those that were accepted
	// here, and those that it took out of the outbox, which one node alone does
	// with each. It is called once an event's deliveries are queued, also when there
	// are none; never for webhook.test, duplicates and replays.
	//
	// It can't delay or lose a delivery: one call at a time runs beside them, in
	// the order of the fan-out, with a context that ends after 10 s or at a stop. An
	// event is handed over at most once. It is dropped when 1,024 events or 8 MiB wait,
	// and lost with a crash; an error or a panic isn't followed by another try. Each is
	// logged as notifier_handoff_failed, with the ids of event and tenant, and counted
	// (HandoffsLost). The event's data is shared: don't change it.
	Handoff func(ctx context.Context, ev surehook.Event) error

	Logger  *slog.Logger
	Observe func(Try)                // called after each attempt, from many goroutines
	Arrived func(Arrival)            // called with each delivery's first success, once it is recorded, by one goroutine that must not wait
	Died    func(map[string]int)     // called likewise with the number of new dead letters, by their events' types
	Ended   func(surehook.Code, int) // called with the number of deliveries that became dead letters without an attempt, and why
	Notify  func(Notice)             // called, in a goroutine of its own, when an endpoint was disabled
	Now     func() time.Time         // time.Now
	Random  func() float64           // jitter
	Entropy io.Reader                // ids and secrets; crypto/rand
}

// Try is one attempt as observers see it.
type Try = dispatch.Try

// Arrival is a delivery's first success, after it was recorded.
type Arrival = dispatch.Arrival

// Notice tells the operator, out of band, that an endpoint was disabled.
type Notice struct {
	WebhookID string    `json:"webhook_id"`
	TenantID  string    `json:"tenant_id,omitempty"`
	Reason    string    `json:"reason"`
	Failures  int       `json:"consecutive_failures"`
	At        time.Time `json:"at"`
}

// Engine takes events in and delivers them. Make one with New.
type Engine struct {
	opt    Options
	store  surehook.Store
	log    *slog.Logger
	now    func() time.Time
	keys   *seal.Keyring
	client *egress.Client
	index  *fanout.Index
	disp   *dispatch.Dispatcher
	idKey  []byte // of the deterministic ids of platform events
	texts  accept.Texts

	entropy  *lockedEntropy
	refresh  sync.Mutex   // one refresh of the configuration at a time
	changes  sync.RWMutex // held for reading by those that change endpoints; see append
	tenancy  sync.Mutex   // tenants change in the store and here in one order
	held     suspensions
	inboxes  inboxes
	passed   passed
	sessions seen
	wide     wide
	replays  sync.Map // ids of the background replays that run here
	handoff  *handoff // nil: nobody listens

	ctx     context.Context // ends the background loops
	cancel  context.CancelFunc
	bg      sync.WaitGroup
	notices sync.WaitGroup
	outbox  chan struct{} // rung when the outbox may have something
	ended   chan struct{} // rung when sentinels have ended
	stale   chan struct{} // rung when the configuration couldn't be read again
	changed chan struct{} // rung when it was changed elsewhere
	kept    chan struct{} // rung when a tenant's days were changed
	erased  chan struct{} // rung when events were erased elsewhere

	erasures int64 // those that the lanes were asked about; follow's alone

	gate    sync.RWMutex // held for reading by callers that append or start something
	stopped bool
	started bool
}

// New makes an engine on an open store, which stays the caller's to close, after
// Stop.
func New(opt Options) (*Engine, error) {
	setDefaults(&opt)
	if opt.Store == nil {
		return nil, errors.New("engine: a store is required")
	}
	texts, err := accept.NewTexts(opt.TextFields, opt.MaxTextBytes)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	if err := accept.APIVersion(opt.APIVersion); err != nil {
		return nil, fmt.Errorf("engine: APIVersion %w", err)
	}
	keys, err := seal.NewKeyring(opt.Entropy, opt.MasterKeys...)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	client, err := egress.New(egress.Config{AllowNetworks: opt.AllowNetworks, OwnHosts: opt.OwnHosts, Proxy: opt.EgressProxy,
		RootCAs: opt.RootCAs, ClientCertificates: opt.ClientCertificates, Resolver: opt.Resolver, Dial: opt.Dial, DNSCache: max(opt.DNSCache, 0),
		MaxConnsPerHost: opt.MaxInFlight, MaxIdlePerHost: 256, MaxIdle: 2 * opt.MaxInFlight})
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	e := &Engine{opt: opt, store: opt.Store, log: opt.Logger, now: opt.Now, keys: keys, client: client, texts: texts, index: fanout.New(),
		entropy: newEntropy(opt.Entropy), outbox: make(chan struct{}, 1), stale: make(chan struct{}, 1), changed: make(chan struct{}, 1),
		ended: make(chan struct{}, 1), erased: make(chan struct{}, 1), kept: make(chan struct{}, 1)}
	e.ctx, e.cancel = context.WithCancel(context.Background())
	e.handoff = newHandoff(opt.Handoff, opt.Logger)
	e.disp = dispatch.New(dispatch.Options{Store: opt.Store, Client: client, Keyring: keys, Logger: opt.Logger, Now: opt.Now,
		Random: opt.Random, NewID: e.newULID, Observe: e.observe, Arrived: opt.Arrived, Died: opt.Died, Ended: opt.Ended, UserAgent: opt.UserAgent, Version: opt.Version, CarryTrace: opt.CarryTrace,
		Off: opt.APIOnly, MaxInFlight: opt.MaxInFlight, MaxMemory: opt.MaxMemory, DisabledEvent: e.disabledEvent, OnDisabled: e.onDisabled,
		Gone: e.gone, Held: e.suspended, Window: opt.window(), Refresh: e.reload})
	return e, nil
}

func setDefaults(o *Options) {
	if o.Version == "" {
		o.Version = "dev"
	}
	o.MaxInFlight = orDefault(o.MaxInFlight, 1024)
	o.MaxMemory = orDefault(o.MaxMemory, 16<<20)
	o.MaxEventBytes = orDefault(o.MaxEventBytes, accept.Usual.Bytes)
	o.MaxSubjects = orDefault(o.MaxSubjects, accept.Usual.Subjects)
	o.MaxWebhooks = orDefault(o.MaxWebhooks, 20)
	o.InboxEvents = orDefault(o.InboxEvents, 100_000)
	o.InboxBytes = cmp.Or(o.InboxBytes, 256<<20)
	o.SessionIdle = orDefault(o.SessionIdle, time.Hour)
	o.MaxSentinels = orDefault(o.MaxSentinels, 100_000)
	o.KeepSentinels = cmp.Or(o.KeepSentinels, 7*24*time.Hour)
	o.ReplayWindow = orDefault(o.ReplayWindow, 30*24*time.Hour)
	o.APIVersion = cmp.Or(o.APIVersion, dispatch.PylotaVersion)
	o.MaxTextBytes = orDefault(o.MaxTextBytes, accept.DefaultText)
	o.DNSCache = orDefault(o.DNSCache, egress.DefaultDNSCache)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Random == nil {
		o.Random = rand.Float64
	}
	if o.Entropy == nil {
		o.Entropy = cryptorand.Reader
	}
}

// window is how long events may be delivered again.
func (o *Options) window() surehook.Window {
	return surehook.Window{Most: max(o.ReplayWindow, 0), Kept: o.Retain}
}

func orDefault[T int | time.Duration](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// Start loads the configuration and begins to deliver, what an earlier process
// left first. It may be called once. When it fails nothing runs.
func (e *Engine) Start(ctx context.Context) error {
	e.gate.Lock()
	if e.started || e.stopped {
		e.gate.Unlock()
		return errors.New("engine: it was started before")
	}
	e.started = true
	e.gate.Unlock()
	err := e.start(ctx)
	if err != nil {
		if stop := e.Stop(ctx); stop != nil {
			e.log.Warn("the engine couldn't be stopped in order", "error", stop)
		}
	}
	return err
}

func (e *Engine) start(ctx context.Context) error {
	var err error
	if err := e.keys.Check(ctx, e.store, e.opt.KeyLost); err != nil {
		return err
	}
	if e.idKey, err = e.keys.Setting(ctx, e.store, seal.EventIDKey, e.opt.KeyLost); err != nil {
		return err
	}
	if err := e.loadTenants(ctx); err != nil {
		return err
	}
	if err := e.reload(ctx); err != nil {
		return err
	}
	if err := e.disp.Start(); err != nil {
		return err
	}
	if err := e.resumeWide(ctx); err != nil {
		return err
	}
	if err := e.resumeReplays(ctx, 0); err != nil {
		return err
	}
	e.store.Watch(e.heard)
	e.bg.Go(e.refreshLoop)
	e.bg.Go(e.pruneLoop)
	e.bg.Go(e.inboxLoop)
	e.bg.Go(e.pullSessionLoop)
	e.bg.Go(e.sentinelLoop)
	if !e.opt.APIOnly {
		e.bg.Go(e.fanOutLoop)
		e.bg.Go(e.replayLoop)
	}
	return nil
}

func (e *Engine) loadTenants(ctx context.Context) error {
	for p := (surehook.Page{Limit: 1000}); ; {
		ts, err := e.store.ListTenants(ctx, "", p)
		if err != nil {
			return err
		}
		for _, t := range ts {
			e.index.SetPartner(t.ID, t.Partner)
		}
		if len(ts) < p.Limit {
			return nil
		}
		p.Cursor = ts[len(ts)-1].Key
	}
}

// gone tells whether an endpoint that has rows is deleted. One that was made past
// this engine a moment ago isn't known yet, so the configuration is read first.
func (e *Engine) gone(ctx context.Context, key int64) *surehook.Endpoint {
	if e.index.Endpoint(key) != nil || e.reload(ctx) != nil || e.index.Endpoint(key) != nil {
		return nil
	}
	ep, err := e.store.Tombstone(ctx, key)
	if err != nil {
		return nil
	}
	return ep
}

// enter holds the gate for something that Stop must wait for.
func (e *Engine) enter() (leave func(), err error) {
	e.gate.RLock()
	if e.stopped {
		e.gate.RUnlock()
		return nil, errStopping
	}
	return e.gate.RUnlock, nil
}

var errStopping = surehook.Errorf(surehook.Stopping, "the engine is stopping")

// Stop refuses new events, lets attempts in flight end until ctx ends, cancels
// the rest, and records what they came to. What wasn't attempted stays in the
// store. An error says that the store didn't answer in time; nothing is lost,
// but deliveries may be repeated. It may be called twice.
func (e *Engine) Stop(ctx context.Context) error {
	e.cancel()
	closed := make(chan struct{})
	go func() {
		e.gate.Lock() // what was let in may go on to its end
		e.stopped = true
		e.gate.Unlock()
		e.store.Watch(nil)
		e.bg.Wait()
		close(closed)
	}()
	var err error
	select {
	case <-closed:
	case <-ctx.Done():
		select { // a stop without patience is no error by itself
		case <-closed:
		case <-time.After(time.Second):
			err = surehook.Errorf(surehook.Unavailable, "the store didn't answer before the stop")
		}
	}
	err = errors.Join(err, e.disp.Stop(ctx))
	e.handoff.stop(ctx)
	e.waitNotices(ctx)
	e.client.Close()
	return err
}

// waitNotices waits for the operator's hook, which may hang.
func (e *Engine) waitNotices(ctx context.Context) {
	told := make(chan struct{})
	go func() {
		e.notices.Wait()
		close(told)
	}()
	select {
	case <-told:
	case <-ctx.Done():
	}
}

// Store gives the engine's store, for reading.
func (e *Engine) Store() surehook.Store { return e.store }

// observe passes attempts on.
func (e *Engine) observe(t Try) {
	if e.opt.Observe != nil {
		e.opt.Observe(t)
	}
}

func (e *Engine) newULID(t time.Time) string { return e.entropy.next(t) }

// NewID makes an id with a prefix, e.g. "evt".
func (e *Engine) NewID(prefix string) string { return prefix + "_" + e.newULID(e.now()) }

// lockedEntropy makes ULIDs that ascend within a millisecond. It reads its
// random bytes in bulk: one read of the system's an id would be felt.
type lockedEntropy struct {
	mu  sync.Mutex
	src *ulid.MonotonicEntropy
}

func newEntropy(r io.Reader) *lockedEntropy {
	var seed [32]byte
	if _, err := io.ReadFull(r, seed[:]); err != nil {
		panic("engine: no entropy: " + err.Error()) // crypto/rand never fails; an injected reader must not
	}
	return &lockedEntropy{src: ulid.Monotonic(rand.NewChaCha8(seed), 0)}
}

func (l *lockedEntropy) next(t time.Time) string {
	l.mu.Lock()
	defer l.mu.Unlock()
	id, err := ulid.New(ulid.Timestamp(t), l.src)
	if err != nil { // 2^80 ids in one millisecond
		id = ulid.MustNew(ulid.Timestamp(t)+1, l.src)
	}
	return id.String()
}
