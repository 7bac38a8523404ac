package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/store/postgres"
	"github.com/surehook/surehook/store/sqlite"
)

// year is a tenant's year: an engine on one of the stores, receivers in memory, a
// clock that is moved, and a model that knows what must be so.
type year struct {
	*engine.Engine
	t     *testing.T
	path  string // of the file, unless there is a database
	db    *pgx.Conn
	store surehook.Store
	net   *internet
	rand  *rand.Rand // the script's
	daily int        // events

	mu    sync.Mutex
	jit   *rand.Rand    // the engine's
	ahead time.Duration // of the bubble's clock
	watch func(surehook.Change)

	setting sync.Mutex
	set     int64 // the database's clock

	hooks  []*hook
	events []*happened
	owners map[string]int64 // last sequence

	arrived map[key]bool // what was accepted, as check has found
	musts   int          // deliveries that the model says arrive
	mustnts map[surehook.Code]int
	letters map[[2]int64]surehook.DeadLetter
}

// hook is what the model knows of an endpoint.
type hook struct {
	name    string
	ep      *surehook.Endpoint
	addr    netip.Addr
	old     []netip.Addr
	held    bool // by a suspended partner
	takes   func(typ string) bool
	secrets []secretTime
	off     []span // when it was disabled
	faults  []span
	views   map[string]surehook.DeliveryView // at the end, by event

	suspended []span
}

// secretTime is a secret and when it signed.
type secretTime struct {
	text     string
	from, to time.Time // to: zero while it does
}

// span is a stretch of the year, and why.
type span struct {
	from, to time.Time // to: zero while it lasts
	why      fault
}

// happened is an event that was accepted.
type happened struct {
	id, typ, owner string
	at             time.Time
	sequence       int64
	to             []*hook // those that were to get it then
	replayed       map[*hook]bool
}

var newYear = time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)

// newYearsWorld begins the year, in the database at dsn or in a file.
func newYearsWorld(t *testing.T, dsn string) *year {
	y := &year{t: t, path: filepath.Join(t.TempDir(), "year.db"), daily: 3, rand: rand.New(rand.NewPCG(2027, 1)), jit: rand.New(rand.NewPCG(2027, 2)), owners: map[string]int64{}}
	y.ahead = time.Until(newYear)
	y.net = newInternet(y.now)
	if dsn != "" {
		y.connect(dsn)
		y.daily = 2
	}
	y.open()
	t.Cleanup(func() { y.close(); y.net.wg.Wait() })
	err := y.PutPartner(t.Context(), &surehook.Partner{ID: "north"}, engine.Actor{})
	err = errors.Join(err, y.PutTenant(t.Context(), &surehook.Tenant{ID: "acme", Partner: "north"}, "tenant.create", engine.Actor{}))
	if err != nil {
		t.Fatal(err)
	}
	all := func(typ string) bool { return typ != surehook.TypeDisabled }
	y.hook("tenant", engine.Webhook{Tenant: "acme"}, all)
	y.hook("ordered", engine.Webhook{Tenant: "acme", Ordered: true}, all)
	y.hook("mail", engine.Webhook{Tenant: "acme", EventTypes: []string{"message.*"}}, func(typ string) bool { return typ == "message.received" })
	y.hook("partner", engine.Webhook{Partner: "north"}, func(string) bool { return true })
	y.hook("platform", engine.Webhook{}, func(string) bool { return true })
	return y
}

func (y *year) now() time.Time {
	y.mu.Lock()
	defer y.mu.Unlock()
	return time.Now().Add(y.ahead)
}

// listened is a store that the year can speak for, and whose clock is the year's in
// all that the engine asks by itself.
type listened struct {
	surehook.Store
	y *year
}

func (l listened) Watch(f func(surehook.Change)) {
	l.y.mu.Lock()
	defer l.y.mu.Unlock()
	l.y.watch = f
	l.Store.Watch(f)
}

func (l listened) Append(ctx context.Context, version int64, items []surehook.Append) ([]surehook.Appended, error) {
	l.y.tell()
	return l.Store.Append(ctx, version, items)
}

func (l listened) Outbox(ctx context.Context, limit int) ([]surehook.OutboxEvent, error) {
	l.y.tell()
	return l.Store.Outbox(ctx, limit)
}

func (l listened) Record(ctx context.Context, outcomes []surehook.Outcome, rules map[int64]surehook.HealthRule) (surehook.Recorded, error) {
	l.y.tell()
	return l.Store.Record(ctx, outcomes, rules)
}

func (l listened) Claim(ctx context.Context, endpoint int64, limit, most int) (surehook.Claim, error) {
	l.y.tell()
	return l.Store.Claim(ctx, endpoint, limit, most)
}

func (l listened) End(ctx context.Context, endpoint int64, code surehook.Code, dueOnly, letters bool, limit int) (int, error) {
	l.y.tell()
	return l.Store.End(ctx, endpoint, code, dueOnly, letters, limit)
}

func (l listened) Expire(ctx context.Context, endpoint int64, w surehook.Window, after surehook.Place, limit int) (int, surehook.Place, error) {
	l.y.tell()
	return l.Store.Expire(ctx, endpoint, w, after, limit)
}

// connect takes a database, whose clock stands from then on where it was last put.
// A sequence keeps it, for those are the same in every snapshot.
func (y *year) connect(dsn string) {
	var err error
	if y.db, err = pgx.Connect(y.t.Context(), dsn); err != nil {
		y.t.Fatal(err)
	}
	if _, err := y.db.Exec(y.t.Context(), `CREATE SEQUENCE surehook.year;
		CREATE OR REPLACE FUNCTION surehook.clock() RETURNS bigint LANGUAGE sql VOLATILE AS $$SELECT pg_sequence_last_value('surehook.year')$$`); err != nil {
		y.t.Fatal(err)
	}
}

// tell puts the database's clock to the year's.
func (y *year) tell() {
	if y.db == nil {
		return
	}
	y.setting.Lock()
	defer y.setting.Unlock()
	ms := y.now().UnixMilli()
	if ms == y.set {
		return
	}
	if _, err := y.db.Exec(context.Background(), `SELECT setval('surehook.year', $1)`, ms); err != nil {
		y.t.Error(err)
	}
	y.set = ms
}

// openStore opens the store. Nobody can be told anything by the database here, for
// whoever waits for a connection keeps the bubble's clock from moving; and no lease
// runs out by a leap.
func (y *year) openStore() (err error) {
	if y.db == nil {
		y.store, err = sqlite.Open(y.t.Context(), y.path, sqlite.Options{Now: y.now, Sync: sqlite.Normal})
		return err
	}
	y.tell()
	y.store, err = postgres.Open(y.t.Context(), y.db.Config().ConnString(), postgres.Options{ListenDSN: "none", Lease: 50 * 365 * day, MaxConns: 3})
	return err
}

func (y *year) open() {
	y.t.Helper()
	err := y.openStore()
	if err != nil {
		y.t.Fatal(err)
	}
	y.Engine, err = engine.New(engine.Options{Store: listened{y.store, y}, MasterKeys: [][]byte{masterKey}, Now: y.now, Dial: y.net.dial,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}, Random: y.jitter,
		Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		y.t.Fatal(err)
	}
	if err := y.Start(y.t.Context()); err != nil {
		y.t.Fatal(err)
	}
}

// jitter is the engine's random source, which many goroutines ask.
func (y *year) jitter() float64 {
	y.mu.Lock()
	defer y.mu.Unlock()
	return y.jit.Float64()
}

func (y *year) close() {
	y.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := errors.Join(y.Stop(ctx), y.store.Close()); err != nil {
		y.t.Error(err)
	}
}

func (y *year) hook(name string, w engine.Webhook, takes func(string) bool) {
	y.t.Helper()
	h := &hook{name: name, addr: netip.AddrFrom4([4]byte{10, 0, byte(len(y.hooks)), 1}), takes: takes}
	w.URL, w.Profile = "http://"+h.addr.String()+"/in", "pylota"
	var secret string
	var err error
	if h.ep, secret, err = y.CreateWebhook(y.t.Context(), w, engine.Actor{}); err != nil {
		y.t.Fatal(err)
	}
	h.secrets = []secretTime{{text: secret, from: y.now()}}
	y.hooks = append(y.hooks, h)
}

// to moves the clock, and has everything looked at that may be due by then.
func (y *year) to(at time.Time) {
	if d := at.Sub(y.now()); d > 0 {
		y.mu.Lock()
		y.ahead += d
		y.mu.Unlock()
		y.tell()
	}
	var c surehook.Change
	due, err := y.store.Due(y.t.Context())
	if err != nil {
		y.t.Fatal(err)
	}
	for _, d := range due {
		if !d.Due.After(at) {
			c.Endpoints = append(c.Endpoints, d.EndpointKey)
		}
	}
	y.watch(c)
	synctest.Wait()
}

// sleep lets the time pass by which the engine's timers go.
func (y *year) sleep(d time.Duration) {
	time.Sleep(d) //nolint:forbidigo // in the bubble it moves the clock
	y.tell()
}

// settle lets what is due be attempted: in a moment where receivers are well,
// one after the other where a breaker is open.
func (y *year) settle() {
	y.t.Helper()
	synctest.Wait()
	for range 1000 {
		if !y.busy() {
			return
		}
		y.sleep(2 * time.Second)
		synctest.Wait()
	}
	y.t.Fatalf("%s: it doesn't come to rest", y.now())
}

// busy tells whether something is under way, or due and not held.
func (y *year) busy() bool {
	n, err := y.store.PendingCount(y.t.Context())
	if err != nil {
		y.t.Fatal(err)
	}
	if n.Owned > 0 {
		return true
	}
	if rows, err := y.store.Outbox(y.t.Context(), 1); err != nil || len(rows) > 0 {
		return true
	}
	due, ok := y.nextDue()
	return ok && !due.After(y.now())
}

// nextDue is when the next delivery is due of those that aren't held.
func (y *year) nextDue() (next time.Time, ok bool) {
	due, err := y.store.Due(y.t.Context())
	if err != nil {
		y.t.Fatal(err)
	}
	for _, d := range due {
		for _, h := range y.hooks {
			if h.ep.Key == d.EndpointKey && !h.held && (!ok || d.Due.Before(next)) {
				next, ok = d.Due, true
			}
		}
	}
	return next, ok
}

// live goes through time until at: each retry in its turn.
func (y *year) live(at time.Time) {
	for {
		y.settle()
		next, ok := y.nextDue()
		if !ok || next.After(at) {
			break
		}
		y.to(next)
	}
	y.to(at)
	y.settle()
	y.follow()
}

// publish accepts an event, and notes whom it is for.
func (y *year) publish() {
	ev := &happened{id: fmt.Sprintf("evt_%04d", len(y.events)), typ: []string{"message.received", "domain.verified"}[y.rand.IntN(2)],
		owner: fmt.Sprint("box-", y.rand.IntN(3)), at: y.now(), replayed: map[*hook]bool{}}
	_, err := y.Publish(y.t.Context(), surehook.Event{ID: ev.id, Type: ev.typ, Tenant: "acme", Owner: ev.owner, Data: []byte(`{"n":1}`)})
	if err != nil {
		y.t.Fatal(err)
	}
	y.owners[ev.owner]++
	ev.sequence = y.owners[ev.owner]
	for _, h := range y.hooks {
		if h.takes(ev.typ) && h.ep.Enabled {
			ev.to = append(ev.to, h)
		}
	}
	y.events = append(y.events, ev)
	y.settle()
	y.follow()
}

// follow notes which endpoints the engine has disabled.
func (y *year) follow() {
	for _, h := range y.hooks {
		ep, err := y.store.Endpoint(y.t.Context(), h.ep.ID)
		if err != nil {
			y.t.Fatal(err)
		}
		if h.ep.Enabled && !ep.Enabled {
			h.off = append(h.off, span{from: ep.UpdatedAt, why: fault(ep.DisabledReason)})
		}
		h.ep = ep
	}
}
