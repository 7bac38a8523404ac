package postgres

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/store/storetest"
)

// fault is what happens to one write of the driver's to the database.
type fault int

const (
	cutBefore fault = iota // the connection breaks, and the server hears nothing
	cutAfter               // the server does it, and nobody hears the answer
	refuse                 // the server fails it, as it fails what another is in the way of
	faultKinds
)

var refusals = [2]string{"40001", "40P01"}

// faults injects one fault into the statements of a store.
type faults struct {
	mu     sync.Mutex
	left   int // writes until it happens; 0: none is to
	kind   fault
	fired  bool
	random func() (fault, bool) // where set, asked at each write instead
}

func (f *faults) arm(kind fault, at int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kind, f.left, f.fired = kind, at, false
}

func (f *faults) disarm() (fired bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
	return f.fired
}

// next tells whether the fault is due now.
func (f *faults) next() (fault, int, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.random != nil {
		f.left++
		kind, now := f.random()
		return kind, f.left, now
	}
	if f.left == 0 {
		return 0, 0, false
	}
	f.left--
	f.fired = f.left == 0
	return f.kind, f.left, f.fired
}

func (f *faults) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &faultyConn{Conn: c, f: f}, nil
}

// faultyConn is a connection to the server. The driver writes whole messages, up
// to the one that asks for an answer.
type faultyConn struct {
	net.Conn
	f       *faults
	started bool
}

var errCut = errors.New("the connection was cut")

func (c *faultyConn) Write(b []byte) (int, error) {
	if !c.started { // the first message has another shape
		c.started = true
		return c.Conn.Write(b)
	}
	if b[0] == 'X' {
		return c.Conn.Write(b)
	}
	kind, n, now := c.f.next()
	if !now {
		return c.Conn.Write(b)
	}
	switch kind {
	case cutBefore:
		return 0, errors.Join(errCut, c.Conn.Close())
	case cutAfter:
		if _, err := c.Conn.Write(b); err != nil {
			return 0, err
		}
		_, _ = c.Conn.Read(make([]byte, 1<<16)) // it has been done by then
		return len(b), c.Conn.Close()
	default:
		sql := fmt.Sprintf("DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '%s'; END $$\x00", refusals[n%2])
		msg := binary.BigEndian.AppendUint32([]byte{'Q'}, uint32(len(sql)+4))
		if _, err := c.Conn.Write(append(msg, sql...)); err != nil {
			return 0, err
		}
		return len(b), nil
	}
}

// script is a node that does one of everything, again and again, and remembers
// what it was answered.
type script struct {
	t       *testing.T
	s, look *Store // look has no faults
	plain   *surehook.Endpoint
	ordered *surehook.Endpoint
	run     int

	accepted []int64
	known    map[[2]int64]int64 // rows that it holds, with their epoch
}

// must repeats f as the dispatcher, the engine and publishers do, as long as the
// store can't say.
func (x *script) must(what string, f func() error) {
	x.t.Helper()
	for try := 0; ; try++ {
		err := f()
		if err == nil {
			return
		}
		if surehook.CodeOf(err) != surehook.Unavailable && !errors.Is(err, surehook.ErrConfigChanged) || try == 20 {
			x.t.Fatalf("%s: %v, of %v", what, err, errors.Unwrap(err))
		}
		<-time.After(5 * time.Millisecond)
	}
}

func (x *script) publish(id, owner string) {
	var out []surehook.Appended
	x.must("append", func() error {
		_, version, err := x.s.Changes(x.t.Context(), 0)
		if err != nil {
			return err
		}
		out, err = x.s.Append(x.t.Context(), version, []surehook.Append{{Event: &surehook.Event{ID: id, Owner: owner, Type: "a.b", Data: []byte(`{}`)},
			Targets: []surehook.Target{{EndpointKey: x.plain.Key, Owned: owner == ""}, {EndpointKey: x.ordered.Key, Ordered: owner != ""}}}})
		if err == nil {
			err = out[0].Err
		}
		return err
	})
	x.accepted = append(x.accepted, out[0].EventKey)
	for _, d := range out[0].Deliveries {
		x.hold(d)
	}
}

func (x *script) hold(d surehook.Delivery) {
	if d.Epoch != 0 {
		x.known[[2]int64{d.EventKey, d.EndpointKey}] = d.Epoch
	}
}

// claim takes rows, and lets go of those whose epoch is over, as a lane does.
func (x *script) claim(endpoint int64, limit int) (out []surehook.Delivery) {
	x.must("claim", func() error {
		c, err := x.s.Claim(x.t.Context(), endpoint, limit, 1<<20)
		if err != nil {
			return err
		}
		for _, r := range c.Rows {
			x.hold(r.Delivery)
			out = append(out, r.Delivery)
		}
		return nil
	})
	return out
}

func (x *script) record(rows []surehook.Delivery, decide func(i int) surehook.Decision) {
	var batch []surehook.Outcome
	for i, d := range rows {
		a := &surehook.Attempt{ID: newAttemptID(time.Now().UnixMilli()), EventKey: d.EventKey, EndpointKey: d.EndpointKey, Number: d.Attempt + 1,
			Status: surehook.AttemptSucceeded, CreatedAt: time.Now()}
		o := surehook.Outcome{Delivery: d, Decision: decide(i), Attempt: a, Version: 1}
		switch o.Decision {
		case surehook.Release:
			o.Attempt = nil
		case surehook.Again:
			a.Status, a.Code = surehook.AttemptFailed, surehook.Status5xx
		case surehook.Bury:
			a.Status, a.Code = surehook.AttemptDead, surehook.Status5xx
		}
		batch = append(batch, o)
	}
	x.must("record", func() error {
		_, err := x.s.Record(x.t.Context(), batch, map[int64]surehook.HealthRule{x.plain.Key: {After: 1000}, x.ordered.Key: {After: 1000}})
		return err
	})
	for _, d := range rows {
		delete(x.known, [2]int64{d.EventKey, d.EndpointKey})
	}
}

// all does one of everything.
func (x *script) all() {
	x.run++
	x.accepted, x.known = nil, make(map[[2]int64]int64)
	ctx, id := x.t.Context(), fmt.Sprint("e", x.run, "-")
	x.publish(id+"1", "")
	x.publish(id+"2", "")
	x.publish(id+"3", "o")
	x.publish(id+"4", "o")
	rows := x.claim(x.plain.Key, 4)
	rows = append(rows, x.claim(x.ordered.Key, 10)...)
	x.record(rows, func(i int) surehook.Decision {
		return []surehook.Decision{surehook.Finish, surehook.Again, surehook.Bury, surehook.Release}[i%4]
	})
	x.must("update", func() error {
		_, err := x.s.UpdateEndpoint(ctx, x.ordered.ID, func(e *surehook.Endpoint) error { e.Ordered = !e.Ordered; return nil }, nil)
		return err
	})
	x.must("update back", func() error {
		_, err := x.s.UpdateEndpoint(ctx, x.ordered.ID, func(e *surehook.Endpoint) error { e.Ordered = true; return nil }, nil)
		return err
	})
	x.must("replay", func() error {
		_, err := x.s.Replay(ctx, x.plain.Key, x.accepted, &surehook.AuditEntry{Action: "replay"})
		return err
	})
	x.must("reap", func() error { return x.s.reap(ctx) })
	x.must("renew", func() error { return x.s.renew(ctx) })
	x.must("outbox", func() error { _, err := x.s.Outbox(ctx, 10); return err })
	x.must("due", func() error { _, err := x.s.Due(ctx); return err })
	x.must("disable", func() error { return x.enable(false) })
	x.must("end", func() error {
		_, err := x.s.End(ctx, x.ordered.Key, surehook.EndpointDisabled, true, true, 2)
		return err
	})
	x.must("enable", func() error { return x.enable(true) })
	x.must("settings", func() error { _, err := x.s.PutSetting(ctx, id, []byte("x"), true); return err })
}

func (x *script) enable(on bool) error {
	_, err := x.s.UpdateEndpoint(x.t.Context(), x.ordered.ID, func(e *surehook.Endpoint) error { e.Enabled = on; return nil }, nil)
	return err
}

// settled waits until each row that is held is held by this node's epoch, for
// a lane that knows of it.
func (x *script) settled(what string) {
	x.t.Helper()
	var bad string
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); <-time.After(5 * time.Millisecond) {
		bad = ""
		epoch := x.s.Lease().Epoch
		if err := x.look.read(x.t.Context(), func(tx pgx.Tx) error {
			rows, err := tx.Query(x.t.Context(), `SELECT event_key, endpoint_key, owner FROM surehook.pending WHERE owner IS NOT NULL`)
			if err != nil {
				return err
			}
			var k [2]int64
			var owner int64
			_, err = pgx.ForEachRow(rows, []any{&k[0], &k[1], &owner}, func() error {
				if owner != epoch || x.known[k] != epoch {
					bad = fmt.Sprintf("row %v is held by epoch %d; the node's is %d and it knows of %d", k, owner, epoch, x.known[k])
				}
				return nil
			})
			return err
		}); err != nil {
			x.t.Fatal(err)
		}
		if bad == "" {
			return
		}
	}
	x.t.Fatalf("%s: %s", what, bad)
}

// deliver sends all that is left, and looks for each accepted event at each
// endpoint.
func (x *script) deliver(what string) {
	x.t.Helper()
	for k, epoch := range x.known { // queued in a lane: sent, or dropped with its epoch
		if epoch == x.s.Lease().Epoch {
			x.record([]surehook.Delivery{x.row(k)}, func(int) surehook.Decision { return surehook.Finish })
		}
	}
	for end := time.Now().Add(10 * time.Second); ; {
		n, err := x.look.PendingCount(x.t.Context())
		if err != nil || time.Now().After(end) {
			x.t.Fatalf("%s: rows are stuck: %+v, %v", what, n, err)
		}
		if n.Owned+n.Due+n.Waiting == 0 {
			break
		}
		for _, e := range []int64{x.plain.Key, x.ordered.Key} {
			x.record(x.claim(e, 100), func(int) surehook.Decision { return surehook.Finish })
		}
	}
	for _, event := range x.accepted {
		ds, err := x.look.EventDeliveries(x.t.Context(), event, surehook.Page{Limit: 10})
		if err != nil || len(ds) != 2 {
			x.t.Fatalf("%s: event %d has %d deliveries, %v", what, event, len(ds), err)
		}
		for _, d := range ds {
			if d.Status != surehook.Succeeded && d.Status != surehook.Dead {
				x.t.Fatalf("%s: %+v", what, d)
			}
		}
	}
}

func (x *script) row(k [2]int64) surehook.Delivery {
	d := surehook.Delivery{EventKey: k[0], EndpointKey: k[1], Epoch: x.known[k]}
	if err := x.look.read(x.t.Context(), func(tx pgx.Tx) error {
		err := tx.QueryRow(x.t.Context(), `SELECT id, attempt, first_attempt FROM surehook.pending WHERE event_key = $1 AND endpoint_key = $2`, k[0], k[1]).
			Scan(&d.ID, &d.Attempt, &d.FirstAttempt)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		return err
	}); err != nil {
		x.t.Fatal(err)
	}
	return d
}

// N-07: whatever statement the database fails at, and however: nothing that was
// accepted is lost, and no row is held that nobody knows of.
func TestFaultsAtEveryStatement(t *testing.T) {
	dsn := migrated(t)
	f := &faults{}
	x := &script{t: t, s: reopenable(t, dsn, Options{ListenDSN: dsn, dial: f.dial})(), look: reopenable(t, dsn, Options{})()}
	for i, e := range []**surehook.Endpoint{&x.plain, &x.ordered} {
		*e = &surehook.Endpoint{ID: fmt.Sprint("whk", i), Enabled: true, Ordered: i == 1}
		if err := x.look.CreateEndpoint(t.Context(), *e, 0, nil); err != nil {
			t.Fatal(err)
		}
	}
	step := 4
	if testing.Short() {
		step = 20
	}
	if os.Getenv("SUREHOOK_PROOF") == "full" {
		step = 1
	}
	x.all()
	x.deliver("without a fault")
	runs := 0
	for kind := range faultKinds {
		at := 1 + int(kind)
		for ; ; at += step {
			f.arm(kind, at)
			x.all()
			fired := f.disarm()
			what := fmt.Sprintf("fault %d at statement %d", kind, at)
			x.settled(what)
			x.deliver(what)
			if !fired {
				break
			}
			runs++
		}
		t.Logf("kind %d: %d statements", kind, at)
	}
	if runs < 20 {
		t.Errorf("only %d faults", runs)
	}
}

// The model of every store, while statements fail and connections break: those
// that are known to have changed nothing, the store sees to by itself.
func TestModelUnderFaults(t *testing.T) {
	if os.Getenv("SUREHOOK_PROOF") != "full" {
		few(t, "rapid.checks", "5") // a fifth of it where the tests are to be short
	}
	var happened atomic.Int64
	var calm atomic.Bool // a node that can't start says so
	f := &faults{random: func() (fault, bool) {
		if rand.IntN(60) > 0 || calm.Load() { // more often, a new connection's statements could all fail ten times
			return 0, false
		}
		happened.Add(1)
		return []fault{cutBefore, refuse}[rand.IntN(2)], true
	}}
	storetest.Model(t, func(t *testing.T, clock *storetest.Clock) (surehook.Store, func() surehook.Store) {
		dsn := timed(t, clock)
		reopen := reopenable(t, dsn, Options{ListenDSN: dsn, dial: f.dial})
		s := func() surehook.Store {
			calm.Store(true)
			defer calm.Store(false)
			return reopen()
		}
		return s(), s
	})
	if t.Logf("%d faults", happened.Load()); happened.Load() == 0 {
		t.Error("that shows little")
	}
}

// few sets a flag for one test.
func few(t *testing.T, name, value string) {
	t.Helper()
	before := flag.Lookup(name).Value.String()
	if err := flag.Set(name, value); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = flag.Set(name, before) }) // it was valid
}
