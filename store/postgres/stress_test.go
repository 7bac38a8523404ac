package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/pgserver"
)

// stress is two nodes that do everything at once to few endpoints, events and
// owners, so that all get in each other's way.
type stress struct {
	t         *testing.T
	nodes     [2]*Store
	endpoints []*surehook.Endpoint
	appended  atomic.Int64
	recorded  atomic.Int64

	mu     sync.Mutex
	events []int64
	done   []surehook.Outcome // of before, to be recorded again
}

const stressEndpoints = 4

// N-04, N-05: locks are taken in one order for all, whatever is mixed: the server finds no
// deadlock, and nothing fails that isn't meant to.
func TestNoDeadlocks(t *testing.T) {
	dsn := migrated(t)
	exec(t, dsn, `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = ''50ms''', current_database()); END $$`)
	x := &stress{t: t, nodes: twoOn(t, dsn, Options{MaxConns: 24})}
	for i := range stressEndpoints {
		e := &surehook.Endpoint{ID: fmt.Sprint("whk", i), Enabled: true, Ordered: i%2 == 0}
		if err := x.nodes[0].CreateEndpoint(t.Context(), e, 0, nil); err != nil {
			t.Fatal(err)
		}
		x.endpoints = append(x.endpoints, e)
	}
	length := 6 * time.Second
	if testing.Short() {
		length = 3 * time.Second
	}
	if os.Getenv("SUREHOOK_PROOF") == "full" {
		length = 3 * time.Minute
	}
	ctx, cancel := context.WithTimeout(t.Context(), length)
	defer cancel()
	var work sync.WaitGroup
	for _, s := range x.nodes {
		for what, f := range map[string]func(*Store) error{
			"append": x.append, "append again": x.append, "append more": x.append, "claim": x.claim, "claim too": x.claim, "late": x.late, "end": x.end,
			"replay": x.replay, "replay all": x.replayJob, "update": x.update, "tenants": x.tenants, "fan out": x.fanOut, "epoch": x.epoch, "reap": x.reap, "prune": x.prune,
		} {
			work.Go(func() {
				for ctx.Err() == nil {
					if err := f(s); err != nil && !expected(err) {
						t.Errorf("%s: %v, of %v", what, err, errors.Unwrap(err))
						return
					}
				}
			})
		}
	}
	work.Wait()
	x.look(dsn)
	x.drain()
}

// drain delivers everything: no row is held by nobody, or waits behind nothing.
func (x *stress) drain() {
	s := x.nodes[0]
	x.nodes[1].doubt(x.nodes[1].Lease().Epoch) // what it held it would send
	s.doubt(s.Lease().Epoch)
	for _, e := range x.endpoints {
		if _, err := s.UpdateEndpoint(x.t.Context(), e.ID, func(e *surehook.Endpoint) error { e.Enabled = true; return nil }, nil); err != nil {
			x.t.Fatal(err)
		}
	}
	var n surehook.PendingCount
	for end := time.Now().Add(30 * time.Second); time.Now().Before(end); {
		var err error
		if n, err = s.PendingCount(x.t.Context()); err != nil {
			x.t.Fatal(err)
		}
		if n.Owned+n.Due+n.Waiting == 0 {
			return
		}
		for _, e := range x.endpoints {
			c, err := s.Claim(x.t.Context(), e.Key, 1000, 1<<20)
			if err != nil {
				x.t.Fatal(err)
			}
			var batch []surehook.Outcome
			for _, r := range c.Rows {
				batch = append(batch, surehook.Outcome{Delivery: r.Delivery, Decision: surehook.Finish, Attempt: &surehook.Attempt{ID: newAttemptID(time.Now().UnixMilli()),
					EventKey: r.Delivery.EventKey, EndpointKey: e.Key, Number: r.Delivery.Attempt + 1, Status: surehook.AttemptSucceeded, CreatedAt: time.Now()}})
			}
			if _, err := s.Record(x.t.Context(), batch, nil); err != nil {
				x.t.Fatal(err)
			}
		}
	}
	x.t.Errorf("rows are stuck: %+v", n)
}

// look asks the server what it saw.
func (x *stress) look(dsn string) {
	conn, err := pgx.Connect(x.t.Context(), dsn)
	if err != nil {
		x.t.Fatal(err)
	}
	defer func() { _ = conn.Close(context.Background()) }()
	<-time.After(1100 * time.Millisecond) // sessions tell what they counted once a second
	var deadlocks, commits int64
	var name string
	if err := conn.QueryRow(x.t.Context(), `SELECT datname, deadlocks, xact_commit FROM pg_stat_database WHERE datname = current_database()`).Scan(&name, &deadlocks, &commits); err != nil {
		x.t.Fatal(err)
	}
	x.t.Logf("%d events, %d outcomes, %d transactions, %d deadlocks", x.appended.Load(), x.recorded.Load(), commits, deadlocks)
	if deadlocks > 0 {
		x.t.Errorf("%d deadlocks:\n%s", deadlocks, strings.Join(regexp.MustCompile(`(?ms)^[^\n]*deadlock detected.*?STATEMENT:[^\n]*`).FindAllString(pgserver.Shared(x.t).Log(), 3), "\n"))
	}
	if x.appended.Load() == 0 || x.recorded.Load() == 0 {
		x.t.Error("nothing was done")
	}
}

func expected(err error) bool {
	switch surehook.CodeOf(err) {
	case surehook.NotFound, surehook.Conflict, surehook.LimitReached:
		return true
	}
	// In the way ten times over is what a crowd like this one may meet: nothing
	// was changed, and a lane asks again.
	return errors.Is(err, surehook.ErrConfigChanged) || errors.Is(err, errInTheWay)
}

func (x *stress) endpoint() *surehook.Endpoint { return x.endpoints[rand.IntN(len(x.endpoints))] }

// some gives keys of events in any order.
func (x *stress) some(n int) []int64 {
	x.mu.Lock()
	defer x.mu.Unlock()
	last := x.events[max(0, len(x.events)-50):]
	out := make([]int64, 0, n)
	for _, i := range rand.Perm(len(last))[:min(n, len(last))] {
		out = append(out, last[i])
	}
	return out
}

func (x *stress) append(s *Store) error {
	_, version, err := s.Changes(context.Background(), 0)
	if err != nil {
		return err
	}
	var items []surehook.Append
	base := time.Now().UnixMilli() / 20 // all goroutines meet at the same ids
	for _, i := range rand.Perm(12) {
		ev := &surehook.Event{ID: fmt.Sprint("e", base, "-", i), Type: "a.b", Data: []byte(`{}`)}
		if i%3 > 0 {
			ev.Owner = fmt.Sprint("o", i%3)
		}
		item := surehook.Append{Event: ev}
		for _, p := range rand.Perm(len(x.endpoints)) {
			e := x.endpoints[p]
			item.Targets = append(item.Targets, surehook.Target{EndpointKey: e.Key, Ordered: e.Ordered && ev.Owner != "", Remote: p == 0})
		}
		items = append(items, item)
	}
	out, err := s.Append(context.Background(), version, items)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, a := range out {
		if a.Err != nil {
			return a.Err
		}
		if !a.Duplicate && !a.Queued {
			x.events = append(x.events, a.EventKey)
			x.appended.Add(1)
		}
	}
	return nil
}

var stressRule = surehook.HealthRule{After: 3, Gone: true, Disabled: func(e *surehook.Endpoint, _ string, _ *surehook.Attempt) *surehook.Event {
	return &surehook.Event{ID: newAttemptID(time.Now().UnixMilli()), Type: "webhook.disabled", Owner: "o1", Data: []byte(`{}`)}
}}

// claim takes rows of several endpoints, and records what became of them in one
// batch.
func (x *stress) claim(s *Store) error {
	var batch []surehook.Outcome
	rules := map[int64]surehook.HealthRule{}
	for range 3 {
		e := x.endpoint()
		c, err := s.Claim(context.Background(), e.Key, 1+rand.IntN(20), 1<<20)
		if err != nil {
			return err
		}
		rules[e.Key] = stressRule
		for _, r := range c.Rows {
			batch = append(batch, outcomeOf(r.Delivery))
		}
	}
	if len(batch) == 0 {
		return nil
	}
	rand.Shuffle(len(batch), func(i, j int) { batch[i], batch[j] = batch[j], batch[i] })
	_, err := s.Record(context.Background(), batch, rules)
	x.recorded.Add(int64(len(batch)))
	x.mu.Lock()
	defer x.mu.Unlock()
	for i := range batch {
		if a := batch[i].Attempt; a != nil {
			repeat := *a
			batch[i].Attempt = &repeat
		}
	}
	x.done = append(x.done, batch...)
	x.done = x.done[max(0, len(x.done)-200):]
	return err
}

func outcomeOf(d surehook.Delivery) surehook.Outcome {
	a := &surehook.Attempt{ID: newAttemptID(time.Now().UnixMilli()), EventKey: d.EventKey, EndpointKey: d.EndpointKey, Number: d.Attempt + 1,
		Status: surehook.AttemptSucceeded, CreatedAt: time.Now()}
	o := surehook.Outcome{Delivery: d, Decision: surehook.Finish, Attempt: a, Version: 1}
	switch rand.IntN(6) {
	case 0:
		o.Decision, o.Attempt = surehook.Release, nil
	case 1:
		o.Decision, a.Status, a.Code = surehook.Again, surehook.AttemptFailed, surehook.Status5xx
	case 2:
		o.Decision, a.Status, a.Code = surehook.Bury, surehook.AttemptDead, surehook.Status5xx
	}
	return o
}

// late records outcomes again, in another order and mix.
func (x *stress) late(s *Store) error {
	x.mu.Lock()
	var batch []surehook.Outcome
	for _, i := range rand.Perm(len(x.done))[:min(20, len(x.done))] {
		o := x.done[i]
		if o.Attempt != nil {
			again := *o.Attempt
			o.Attempt = &again
		}
		batch = append(batch, o)
	}
	x.mu.Unlock()
	_, err := s.Record(context.Background(), batch, nil)
	return err
}

func (x *stress) end(s *Store) error {
	_, err := s.End(context.Background(), x.endpoint().Key, surehook.EndpointDisabled, rand.IntN(2) == 0, true, 1+rand.IntN(50))
	return err
}

func (x *stress) replay(s *Store) error {
	events := x.some(10)
	if len(events) == 0 {
		return nil
	}
	_, err := s.Replay(context.Background(), x.endpoint().Key, events, nil)
	return err
}

func (x *stress) replayJob(s *Store) error {
	r := &surehook.Replay{ID: newAttemptID(time.Now().UnixMilli()), EndpointKey: x.endpoint().Key}
	if err := s.CreateReplay(context.Background(), r, nil); err != nil {
		return err
	}
	for range 3 {
		if err := s.AdvanceReplay(context.Background(), r, x.some(5)); err != nil {
			return err
		}
	}
	return s.EndReplay(context.Background(), r.ID, surehook.ReplayDone, "", nil)
}

// update turns an endpoint off and on, and its order too; rarely, since each
// change turns appends away.
func (x *stress) update(s *Store) error {
	<-time.After(time.Duration(rand.IntN(30)) * time.Millisecond)
	_, err := s.UpdateEndpoint(context.Background(), x.endpoint().ID, func(e *surehook.Endpoint) error {
		e.Enabled = !e.Enabled || rand.IntN(3) > 0
		e.Ordered = rand.IntN(2) == 0
		return nil
	}, &surehook.AuditEntry{Action: "update"})
	return err
}

func (x *stress) tenants(s *Store) error {
	<-time.After(time.Duration(rand.IntN(100)) * time.Millisecond)
	id := fmt.Sprint("t", rand.IntN(3))
	if rand.IntN(4) == 0 {
		return s.DeleteTenant(context.Background(), id, nil)
	}
	return s.PutTenant(context.Background(), &surehook.Tenant{ID: id, Partner: fmt.Sprint("p", rand.IntN(3))}, nil)
}

func (x *stress) fanOut(s *Store) error {
	rows, err := s.Outbox(context.Background(), 20)
	if err != nil || len(rows) == 0 {
		return err
	}
	_, version, err := s.Changes(context.Background(), 0)
	if err != nil {
		return err
	}
	var items []surehook.Append
	for _, r := range rows {
		items = append(items, surehook.Append{Event: r.Event, Outbox: r.ID, Targets: []surehook.Target{{EndpointKey: x.endpoint().Key, Ordered: true}}})
	}
	_, err = s.Append(context.Background(), version, items)
	return err
}

// epoch has the node give up all that it holds.
func (x *stress) epoch(s *Store) error {
	<-time.After(time.Duration(rand.IntN(100)) * time.Millisecond)
	s.doubt(s.Lease().Epoch)
	return nil
}

// reap runs another node's lease out.
func (x *stress) reap(s *Store) error {
	<-time.After(time.Duration(rand.IntN(200)) * time.Millisecond)
	other := x.nodes[0]
	if s == other {
		other = x.nodes[1]
	}
	if err := s.do(context.Background(), `UPDATE surehook.nodes SET expires_at = 0 WHERE epoch = $1`, other.Lease().Epoch); err != nil {
		return err
	}
	if err := s.reap(context.Background()); err != nil {
		return err
	}
	other.renewing.Lock()
	defer other.renewing.Unlock()
	return other.renew(context.Background())
}

func (x *stress) prune(s *Store) error {
	<-time.After(time.Duration(rand.IntN(200)) * time.Millisecond)
	_, _, err := s.Prune(context.Background(), time.Now().Add(-time.Hour), 100)
	return err
}
