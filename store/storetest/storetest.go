// Package storetest is the fine print of surehook.Store: what every store must
// do, as tests. A store's own test calls Run; what passes may be used by the
// engine without knowing which store it is.
package storetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/oklog/ulid/v2"

	"github.com/surehook/surehook"
)

// Factory opens an empty store that tells the time by clock, and closes it at
// the end of the test. reopen closes it and opens the same data again, as a
// process would that comes after one which died: rows that were held are free.
type Factory func(t *testing.T, clock *Clock) (s surehook.Store, reopen func() surehook.Store)

// Clock is a clock that tests set. It may be read from any goroutine.
type Clock struct {
	mu    sync.Mutex
	now   time.Time
	watch func(time.Time)
}

// Now tells the time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

// Advance moves the clock on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.now = c.now.Add(d); c.watch != nil {
		c.watch(c.now)
	}
}

// Watch has f told each new time before Advance returns: for a store whose clock
// is elsewhere.
func (c *Clock) Watch(f func(time.Time)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watch = f
}

// NewClock starts a clock at an arbitrary time that is far from UTC's day.
func NewClock() *Clock {
	return &Clock{now: time.Date(2026, 3, 1, 1, 30, 0, 0, time.FixedZone("+1345", 13*3600+45*60))}
}

// Run runs every test of the suite, each on a store of its own.
func Run(t *testing.T, open Factory) {
	for _, group := range []map[string]func(*env){
		appendTests, aliasTests, scopeTests, viewerTests, sequenceTests, recordTests, healthTests, queueTests, replayTests, jobTests, endpointTests, historyTests, listingTests,
		adminTests, timeTests, pruneTests, orderTests, reportTests, countTests, partnerTests, eraseTests, pollTests, sessionTests, inboxTests, sentinelTests, reapingTests,
	} {
		names := make([]string, 0, len(group))
		for name := range group {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			t.Run(name, func(t *testing.T) { group[name](newEnv(t, open)) })
		}
	}
	t.Run("Model", func(t *testing.T) { Model(t, open) })
	t.Run("InboxModel", func(t *testing.T) { InboxModel(t, open) })
}

// Model compares the queue of a store with a simple one, through anything that
// may happen to it in any order.
func Model(t *testing.T, open Factory) { checkModel(t, newEnv(t, open)) }

// env is one test's store with what tests need to speak to it.
type env struct {
	tb
	ctx    context.Context
	s      surehook.Store
	clock  *Clock
	opener func() surehook.Store
	n      uint64 // makes ids

	sequences map[string]int64 // last of each owner
}

// tb is what tests of both kinds, testing's and rapid's, can do.
type tb interface {
	Helper()
	Error(args ...any)
	Errorf(format string, args ...any)
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Cleanup(f func())
}

func newEnv(t *testing.T, open Factory) *env {
	e := &env{tb: t, ctx: t.Context(), clock: NewClock(), sequences: make(map[string]int64)}
	e.s, e.opener = open(t, e.clock)
	return e
}

// reopen stands for a crash and a new start.
func (e *env) reopen() { e.s = e.opener() }

func (e *env) id(prefix string) string {
	e.n++
	return fmt.Sprintf("%s_%d", prefix, e.n)
}

func (e *env) attemptID() string {
	e.n++
	var id ulid.ULID
	binary.BigEndian.PutUint64(id[8:], e.n)
	return "dlv_" + id.String()
}

// ofEvents is the audit log's tail, as far as it tells of events.
func (e *env) ofEvents() []surehook.AuditEntry {
	e.Helper()
	log, err := e.s.ListAudit(e.ctx, "", surehook.Page{Limit: 20})
	e.ok(err)
	return slices.DeleteFunc(log, func(a surehook.AuditEntry) bool { return !strings.HasPrefix(a.Action, "event.") })
}

func (e *env) ok(err error) {
	e.Helper()
	if err != nil {
		e.Fatal(err)
	}
}

func (e *env) code(err error, want surehook.ErrorCode) {
	e.Helper()
	if err == nil || surehook.CodeOf(err) != want {
		e.Fatalf("got error %v, want code %s", err, want)
	}
}

// same compares anything. Times count by instant, and an empty list is none.
func (e *env) same(what string, got, want any) {
	e.Helper()
	if !reflect.DeepEqual(normal(reflect.ValueOf(got)), normal(reflect.ValueOf(want))) {
		e.Fatalf("%s:\n got %+v\nwant %+v", what, got, want)
	}
}

// normal turns a value into plain lists and maps in which equal times are equal.
func normal(v reflect.Value) any {
	if !v.IsValid() {
		return nil
	}
	if at, ok := v.Interface().(time.Time); ok {
		if at.IsZero() {
			return nil
		}
		return at.UTC().Format(time.RFC3339Nano)
	}
	switch v.Kind() {
	case reflect.Pointer:
		return normal(v.Elem())
	case reflect.Struct:
		out := make(map[string]any)
		for i := range v.NumField() {
			out[v.Type().Field(i).Name] = normal(v.Field(i))
		}
		return out
	case reflect.Slice:
		var out []any
		for i := range v.Len() {
			out = append(out, normal(v.Index(i)))
		}
		return out
	case reflect.Map:
		if v.Len() == 0 {
			return nil
		}
	default:
	}
	return v.Interface()
}

// endpoint creates an enabled platform endpoint for everything.
func (e *env) endpoint(change ...func(*surehook.Endpoint)) *surehook.Endpoint {
	e.Helper()
	ep := &surehook.Endpoint{ID: e.id("whk"), URL: "https://example.com/hook", EventTypes: []string{"*"}, Profile: "standard",
		Envelope: surehook.EnvelopeStandard, Enabled: true, Secrets: surehook.Secrets{Current: "sealed"}}
	for _, f := range change {
		f(ep)
	}
	e.ok(e.s.CreateEndpoint(e.ctx, ep, 0, nil))
	return ep
}

func (e *env) version() int64 {
	e.Helper()
	_, v, err := e.s.Changes(e.ctx, 0)
	e.ok(err)
	return v
}

func (e *env) append(items ...surehook.Append) []surehook.Appended {
	e.Helper()
	out, err := e.s.Append(e.ctx, e.version(), items)
	e.ok(err)
	e.same("number of answers", len(out), len(items))
	return out
}

func (e *env) event() *surehook.Event {
	return &surehook.Event{ID: e.id("evt"), Type: "order.paid", OccurredAt: e.clock.Now(), Data: []byte(`{"n":1}`)}
}

// publish appends an event with a row for each endpoint, held by this node or
// free.
func (e *env) publish(owned bool, eps ...*surehook.Endpoint) []surehook.Delivery {
	e.Helper()
	return e.publishEvent(e.event(), owned, eps...)
}

func (e *env) publishEvent(ev *surehook.Event, owned bool, eps ...*surehook.Endpoint) []surehook.Delivery {
	e.Helper()
	a := surehook.Append{Event: ev}
	for _, ep := range eps {
		a.Targets = append(a.Targets, surehook.Target{EndpointKey: ep.Key, Owned: owned && !ep.Ordered, Ordered: ep.Ordered})
	}
	out := e.append(a)
	e.ok(out[0].Err)
	return out[0].Deliveries
}

// outcome makes what an attempt of d came to; version is the endpoint's first.
func (e *env) outcome(d surehook.Delivery, decision surehook.Decision) surehook.Outcome {
	o := surehook.Outcome{Delivery: d, Decision: decision, Version: 1}
	if decision == surehook.Release {
		return o
	}
	a := &surehook.Attempt{ID: e.attemptID(), EventKey: d.EventKey, EndpointKey: d.EndpointKey, Number: d.Attempt + 1,
		CreatedAt: e.clock.Now(), Duration: 12_345 * time.Microsecond}
	switch decision {
	case surehook.Finish, surehook.Note:
		a.Status, a.HTTPStatus = surehook.AttemptSucceeded, 200
	case surehook.Bury:
		a.Status, a.Code, a.HTTPStatus = surehook.AttemptDead, surehook.Status5xx, 500
	default:
		a.Status, a.Code, a.HTTPStatus = surehook.AttemptFailed, surehook.Status5xx, 503
		o.Wait = time.Minute
	}
	o.Attempt = a
	return o
}

func (e *env) record(outcomes ...surehook.Outcome) surehook.Recorded {
	e.Helper()
	return e.recordWith(surehook.HealthRule{}, outcomes...)
}

// recordWith judges every endpoint by one rule.
func (e *env) recordWith(rule surehook.HealthRule, outcomes ...surehook.Outcome) surehook.Recorded {
	e.Helper()
	rules := make(map[int64]surehook.HealthRule)
	for _, o := range outcomes {
		rules[o.Delivery.EndpointKey] = rule
	}
	r, err := e.s.Record(e.ctx, outcomes, rules)
	e.ok(err)
	return r
}

func (e *env) claim(ep *surehook.Endpoint, limit int) surehook.Claim {
	e.Helper()
	c, err := e.s.Claim(e.ctx, ep.Key, limit, 1<<30)
	e.ok(err)
	return c
}

// claimOne expects exactly one due row.
func (e *env) claimOne(ep *surehook.Endpoint) surehook.Delivery {
	e.Helper()
	c := e.claim(ep, 10)
	if len(c.Rows) != 1 {
		e.Fatalf("%d rows are due, want 1", len(c.Rows))
	}
	return c.Rows[0].Delivery
}

// view reads a delivery as the API shows it.
func (e *env) view(d surehook.Delivery) surehook.DeliveryView {
	e.Helper()
	vs, err := e.s.EventDeliveries(e.ctx, d.EventKey, surehook.Page{Limit: 1000})
	e.ok(err)
	for _, v := range vs {
		if v.EndpointKey == d.EndpointKey {
			return v
		}
	}
	e.Fatal("no such delivery")
	return surehook.DeliveryView{}
}

// attempts reads a delivery's attempts, newest first.
func (e *env) attempts(d surehook.Delivery) []surehook.Attempt {
	e.Helper()
	out, err := e.s.EventAttempts(e.ctx, d.EventKey, d.EndpointKey, surehook.Page{Limit: 1000})
	e.ok(err)
	return out
}

func (e *env) letters() []surehook.DeadLetter {
	e.Helper()
	out, err := e.s.ListDeadLetters(e.ctx, surehook.DeadLetterFilter{}, surehook.Page{Limit: 1000})
	e.ok(err)
	return out
}

func (e *env) pending() surehook.PendingCount {
	e.Helper()
	n, err := e.s.PendingCount(e.ctx)
	e.ok(err)
	return n
}

func (e *env) reload(ep *surehook.Endpoint) *surehook.Endpoint {
	e.Helper()
	out, err := e.s.Endpoint(e.ctx, ep.ID)
	e.ok(err)
	return out
}

// ms cuts a time to what every store keeps.
func ms(t time.Time) time.Time { return time.UnixMilli(t.UnixMilli()) }
