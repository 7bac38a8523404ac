package dispatch

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/egress"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// row is a pending row of the model.
type row struct {
	surehook.Delivery
	owner int64 // 0: free
	event *surehook.Event
}

// model is a store's queue in memory that keeps the rules of the rows. It can be
// told to fail, before or after it did what it was asked for.
type model struct {
	mu     sync.Mutex
	epoch  int64
	next   int64
	rows   map[int64]*row
	off    map[int64]bool // disabled endpoints
	erased map[int64]bool // events
	done   map[int64]surehook.Decision
	tries  map[int64]int       // attempts recorded, by row
	all    []surehook.Delivery // that were ever stored
	calls  map[string]int
	lease  time.Duration
	fail   func(call string, o []surehook.Outcome) error // nil: never
	after  func(call string) error
	told   []surehook.HealthRule

	version int64 // of every endpoint, as claims find it; 0: the lanes' own
}

func newModel() *model {
	return &model{epoch: 1, rows: map[int64]*row{}, off: map[int64]bool{}, erased: map[int64]bool{}, done: map[int64]surehook.Decision{}, tries: map[int64]int{},
		calls: map[string]int{}, lease: time.Hour}
}

func (m *model) enter(call string, o []surehook.Outcome) error {
	m.mu.Lock()
	m.calls[call]++
	fail := m.fail
	m.mu.Unlock()
	if fail != nil {
		if err := fail(call, o); err != nil {
			return err
		}
	}
	return nil
}

// failing replaces what fails.
func (m *model) failing(f func(call string, o []surehook.Outcome) error) {
	m.set(func() { m.fail = f })
}

func (m *model) count(call string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.calls[call]
}

func (m *model) set(f func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f()
}

// append stores a row for each target.
func (m *model) append(ev *surehook.Event, targets []surehook.Target) []surehook.Delivery {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.next++
	ev.Key = m.next
	out := make([]surehook.Delivery, len(targets))
	for i, t := range targets {
		m.next++
		r := &row{event: ev, Delivery: surehook.Delivery{ID: m.next, EventKey: ev.Key, EndpointKey: t.EndpointKey, FirstAttempt: 1, Due: time.Now()}}
		if t.Owned {
			r.owner, r.Epoch = m.epoch, m.epoch
		}
		m.rows[r.ID] = r
		m.all = append(m.all, r.Delivery)
		out[i] = r.Delivery
	}
	return out
}

// newEpoch is what opening a file anew does.
func (m *model) newEpoch() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.epoch++
	for _, r := range m.rows {
		r.owner = 0
	}
}

func (m *model) Record(_ context.Context, outcomes []surehook.Outcome, rules map[int64]surehook.HealthRule) (surehook.Recorded, error) {
	if err := m.enter("record", outcomes); err != nil {
		return surehook.Recorded{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out surehook.Recorded
	for _, rule := range rules {
		m.told = append(m.told, rule)
	}
	for _, o := range outcomes {
		r := m.rows[o.Delivery.ID]
		held := r != nil && r.owner == o.Delivery.Epoch && r.Attempt == o.Delivery.Attempt
		switch o.Decision {
		case surehook.Finish:
			delete(m.rows, o.Delivery.ID)
			m.done[o.Delivery.ID] = surehook.Finish
		case surehook.Release:
			if held {
				r.owner = 0
			}
		case surehook.Again:
			if held {
				r.owner, r.Attempt, r.Due = 0, r.Attempt+1, time.Now().Add(o.Wait)
			} else {
				out.Late++
			}
		case surehook.Bury:
			if held {
				delete(m.rows, o.Delivery.ID)
				m.done[o.Delivery.ID] = surehook.Bury
			} else {
				out.Late++
			}
		}
		if o.Attempt != nil {
			m.tries[o.Delivery.ID]++
		}
	}
	if m.after != nil {
		return out, m.after("record")
	}
	return out, nil
}

func (m *model) Claim(_ context.Context, endpoint int64, limit, maxBytes int) (surehook.Claim, error) {
	if err := m.enter("claim", nil); err != nil {
		return surehook.Claim{}, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := surehook.Claim{Version: m.version}
	if m.off[endpoint] {
		return surehook.Claim{}, nil
	}
	size := 0
	held := slices.ContainsFunc(slices.Collect(maps.Values(m.rows)), func(r *row) bool { return r.owner != 0 && r.Lost >= lostAlone })
	for _, r := range m.free(endpoint) {
		switch {
		case r.Lost >= lostAlone && held && !r.Due.After(time.Now()):
			if soon := time.Now().Add(time.Second); out.Next.IsZero() || soon.Before(out.Next) {
				out.Next = soon
			}
		case r.Lost >= lostAlone && len(out.Rows) > 0:
			out.More = true
		case r.Due.After(time.Now()):
			if out.Next.IsZero() || r.Due.Before(out.Next) {
				out.Next = r.Due
			}
		case len(out.Rows) == limit || (size > 0 && size+len(r.event.Data) > maxBytes):
			out.More = true
		default:
			size += len(r.event.Data)
			r.owner, r.Epoch = m.epoch, m.epoch
			copied := *r.event
			out.Rows = append(out.Rows, surehook.Claimed{Delivery: r.Delivery, Event: &copied})
			if r.Lost >= lostAlone {
				limit, held = 1, true // alone
			}
		}
	}
	return out, nil
}

// free lists an endpoint's free rows, the oldest due first. Callers hold mu.
func (m *model) free(endpoint int64) []*row {
	var out []*row
	for _, r := range m.rows {
		if r.EndpointKey == endpoint && r.owner == 0 {
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b *row) int {
		if c := a.Due.Compare(b.Due); c != 0 {
			return c
		}
		return int(a.ID - b.ID)
	})
	return out
}

func (m *model) Due(context.Context) ([]surehook.EndpointDue, error) {
	if err := m.enter("due", nil); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []surehook.EndpointDue
	seen := map[int64]bool{}
	for _, r := range m.rows {
		if !seen[r.EndpointKey] {
			seen[r.EndpointKey] = true
			if rs := m.free(r.EndpointKey); len(rs) > 0 {
				out = append(out, surehook.EndpointDue{EndpointKey: r.EndpointKey, Due: rs[0].Due})
			}
		}
	}
	return out, nil
}

func (m *model) End(_ context.Context, endpoint int64, _ surehook.Code, dueOnly, letters bool, limit int) (int, error) {
	if err := m.enter("end", nil); err != nil {
		return 0, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, r := range m.free(endpoint) {
		if n == limit || (dueOnly && r.Due.After(time.Now())) {
			break
		}
		delete(m.rows, r.ID)
		if letters {
			m.done[r.ID] = surehook.Bury
		}
		n++
	}
	return n, nil
}

// Expire buries what occurred too long ago, of the endpoint's free rows.
func (m *model) Expire(_ context.Context, endpoint int64, w surehook.Window, after surehook.Place, limit int) (int, surehook.Place, error) {
	if err := m.enter("expire", nil); err != nil {
		return 0, after, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, r := range m.free(endpoint) {
		if n < limit && time.Since(r.event.OccurredAt) > w.Most {
			delete(m.rows, r.ID)
			m.done[r.ID] = surehook.Bury
			n++
		}
	}
	return n, surehook.Place{}, nil
}

// ErasedAmong tells what the test has erased.
func (m *model) ErasedAmong(_ context.Context, events []int64) ([]int64, error) {
	if err := m.enter("erased", nil); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []int64
	for _, key := range events {
		if m.erased[key] {
			out = append(out, key)
		}
	}
	return out, nil
}

func (m *model) Lease() surehook.Lease {
	m.mu.Lock()
	defer m.mu.Unlock()
	return surehook.Lease{Epoch: m.epoch, Until: time.Now().Add(m.lease)}
}

func (m *model) PendingCount(context.Context) (surehook.PendingCount, error) {
	return surehook.PendingCount{}, nil
}

// wire is a client whose receivers are functions.
type wire struct {
	*egress.Guard
	mu      sync.Mutex
	answer  func(ctx context.Context, host, id string) egress.Result
	sent    map[string]int // by host
	ids     map[string]int // by webhook-id and host
	flying  int
	highest int
}

func (w *wire) Do(ctx context.Context, r *egress.Request) egress.Result {
	host, id := r.Target.Host(), r.Header[0].Value
	w.mu.Lock()
	w.sent[host]++
	w.ids[id+"@"+host]++
	w.flying++
	w.highest = max(w.highest, w.flying)
	answer := w.answer
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.flying--
		w.mu.Unlock()
	}()
	if ctx.Err() != nil {
		return egress.Result{Cancelled: true}
	}
	if answer == nil {
		return egress.Result{Status: 200}
	}
	return answer(ctx, host, id)
}

func (w *wire) use(f func(ctx context.Context, host, id string) egress.Result) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.answer = f
}

func (w *wire) count(host string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sent[host]
}

func status(code surehook.Code, n int) func(context.Context, string, string) egress.Result {
	return func(context.Context, string, string) egress.Result { return egress.Result{Code: code, Status: n} }
}

var fails500 = status(surehook.Status5xx, 500)

type openKeys struct{}

func (openKeys) Open(_, _, _, _ string) ([]byte, error) { return bytes.Repeat([]byte{1}, 32), nil }

// desk is a dispatcher on a model.
type desk struct {
	*Dispatcher
	t    testing.TB
	m    *model
	w    *wire
	ids  int
	logs bytes.Buffer
	mu   sync.Mutex
	eps  map[int64]*surehook.Endpoint
}

func (k *desk) Write(p []byte) (int, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.logs.Write(p)
}

// begin starts a dispatcher inside a bubble; the caller stops it.
func begin(t testing.TB, change ...func(*Options)) *desk {
	k := &desk{t: t, m: newModel(), eps: map[int64]*surehook.Endpoint{},
		w: &wire{Guard: egress.NewGuard([]netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, nil), sent: map[string]int{}, ids: map[string]int{}}}
	n := 0
	opt := Options{Store: k.m, Client: k.w, Keyring: openKeys{}, Logger: slog.New(slog.NewTextHandler(k, nil)), Now: time.Now,
		Random: func() float64 { return 0.5 }, Observe: func(Try) {}, MaxInFlight: 1024, MaxMemory: 32 << 20,
		NewID: func(time.Time) string {
			k.mu.Lock()
			defer k.mu.Unlock()
			n++
			return fmt.Sprintf("%026d", n)
		},
		DisabledEvent: func(*surehook.Endpoint, string, *surehook.Attempt) *surehook.Event { return nil },
		OnDisabled:    func([]*surehook.Endpoint) {},
		Gather:        -1, // a test that waits for quiet waits for timers too
		Gone: func(_ context.Context, key int64) *surehook.Endpoint {
			k.m.mu.Lock()
			defer k.m.mu.Unlock()
			if ep := k.eps[key]; ep.Deleted {
				return ep
			}
			return nil
		}}
	for _, f := range change {
		f(&opt)
	}
	k.Dispatcher = New(opt)
	if err := k.Start(); err != nil {
		t.Fatal(err)
	}
	return k
}

// endpoint makes an endpoint whose host is its key, and gives it to the lanes.
func (k *desk) endpoint(key int64, change ...func(*surehook.Endpoint)) *surehook.Endpoint {
	e := &surehook.Endpoint{Key: key, ID: fmt.Sprintf("whk_%d", key), Version: 1, URL: fmt.Sprintf("http://127.0.0.%d:9000/", key%250+1),
		Profile: "standard", Signature: "v1", Enabled: true, Secrets: surehook.Secrets{Current: "x"},
		Limits: surehook.Limits{Waits: []time.Duration{time.Second, time.Minute, time.Hour}}}
	for _, f := range change {
		f(e)
	}
	k.eps[key] = e
	k.m.set(func() { k.m.off[key] = !e.Enabled })
	k.Update(e)
	return e
}

func host(key int64) string { return fmt.Sprintf("127.0.0.%d", key%250+1) }

// change updates an endpoint as a later version.
func (k *desk) change(key int64, f func(*surehook.Endpoint)) {
	e := *k.eps[key]
	f(&e)
	e.Version++
	k.m.set(func() { k.eps[key] = &e; k.m.off[key] = !e.Enabled || e.Deleted })
	k.Update(&e)
}

// publish appends an event for the endpoints and hands it over.
func (k *desk) publish(size int, keys ...int64) {
	k.ids++
	ev := &surehook.Event{ID: fmt.Sprintf("evt_%d", k.ids), Type: "a", Data: bytes.Repeat([]byte{'1'}, size), OccurredAt: time.Now()}
	var eps []*surehook.Endpoint
	for _, key := range keys {
		if e := k.eps[key]; e.Enabled && !e.Deleted {
			eps = append(eps, e)
		}
	}
	recalls, targets := k.Recalls(), k.Reserve(eps, size)
	k.HandOff(ev, targets, k.m.append(ev, targets), recalls)
}

func (k *desk) left() int {
	k.m.mu.Lock()
	defer k.m.mu.Unlock()
	return len(k.m.rows)
}

// wrong tells what doesn't add up in a dispatcher at rest.
func (k *desk) wrong() error {
	if n := k.memory.used.Load(); n != 0 {
		return fmt.Errorf("%d bytes are accounted for, of nothing", n)
	}
	k.slots.mu.Lock()
	defer k.slots.mu.Unlock()
	if s := k.slots; s.free != k.opt.MaxInFlight || s.suspect != max(k.opt.MaxInFlight/4, 1) || s.waiting != 0 || len(s.turn) != 0 || len(s.queues) != 0 {
		return fmt.Errorf("slots: %d free, %d for suspects, %d waiting, turn %v", s.free, s.suspect, s.waiting, s.turn)
	}
	for _, l := range k.lanes {
		if l.reserved != 0 || l.running != 0 || len(l.queue) != 0 || l.claiming || l.ending {
			return fmt.Errorf("lane %d: reserved %d, running %d, queue %d, claiming %t, ending %t", l.key, l.reserved, l.running, len(l.queue), l.claiming, l.ending)
		}
	}
	return nil
}

func (k *desk) end() {
	k.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := k.Stop(ctx); err != nil {
		k.t.Error(err)
	}
}
