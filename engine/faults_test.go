package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// faulty is a store whose calls fail where the test says so, before they did
// anything. It counts them.
type faulty struct {
	surehook.Store
	mu    sync.Mutex
	fail  func(call string, nth int) error
	calls map[string]int
}

func (f *faulty) ask(call string) error {
	f.mu.Lock()
	f.calls[call]++
	fail, n := f.fail, f.calls[call]
	f.mu.Unlock()
	if fail == nil {
		return nil
	}
	return fail(call, n)
}

func (f *faulty) use(fail func(call string, nth int) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fail = fail
}

func (f *faulty) count(call string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[call]
}

func (f *faulty) Append(ctx context.Context, version int64, items []surehook.Append) ([]surehook.Appended, error) {
	if err := f.ask("append"); err != nil {
		return nil, err
	}
	return f.Store.Append(ctx, version, items)
}

func (f *faulty) Outbox(ctx context.Context, limit int) ([]surehook.OutboxEvent, error) {
	if err := f.ask("outbox"); err != nil {
		return nil, err
	}
	return f.Store.Outbox(ctx, limit)
}

func (f *faulty) Record(ctx context.Context, os []surehook.Outcome, rules map[int64]surehook.HealthRule) (surehook.Recorded, error) {
	if err := f.ask("record"); err != nil {
		return surehook.Recorded{}, err
	}
	return f.Store.Record(ctx, os, rules)
}

func (f *faulty) Claim(ctx context.Context, endpoint int64, limit, most int) (surehook.Claim, error) {
	if err := f.ask("claim"); err != nil {
		return surehook.Claim{}, err
	}
	return f.Store.Claim(ctx, endpoint, limit, most)
}

func (f *faulty) End(ctx context.Context, endpoint int64, code surehook.Code, dueOnly, letters bool, limit int) (int, error) {
	if err := f.ask("end"); err != nil {
		return 0, err
	}
	return f.Store.End(ctx, endpoint, code, dueOnly, letters, limit)
}

func (f *faulty) Changes(ctx context.Context, version int64) ([]*surehook.Endpoint, int64, error) {
	if err := f.ask("changes"); err != nil {
		return nil, 0, err
	}
	return f.Store.Changes(ctx, version)
}

func (f *faulty) Replay(ctx context.Context, endpoint int64, events []int64, a *surehook.AuditEntry) ([]surehook.ReplayResult, error) {
	if err := f.ask("replay"); err != nil {
		return nil, err
	}
	return f.Store.Replay(ctx, endpoint, events, a)
}

func (f *faulty) AdvanceReplay(ctx context.Context, r *surehook.Replay, events []int64) error {
	if err := f.ask("advance"); err != nil {
		return err
	}
	return f.Store.AdvanceReplay(ctx, r, events)
}

func (f *faulty) PutSetting(ctx context.Context, name string, value []byte, overwrite bool) ([]byte, error) {
	if err := f.ask("setting"); err != nil {
		return nil, err
	}
	return f.Store.PutSetting(ctx, name, value, overwrite)
}

// flawed starts an engine on a faulty store.
func flawed(t *testing.T, change ...func(*engine.Options)) (*bed, *faulty) {
	t.Helper()
	f := &faulty{calls: map[string]int{}}
	b := prepare(t, change...)
	b.wrap = func(s surehook.Store) surehook.Store {
		f.Store = s
		return f
	}
	b.open()
	return b, f
}

// Every n-th call of each kind fails, in each of the ways that a store can, and
// what was accepted arrives all the same.
func TestFaultsOfTheStoreLoseNothing(t *testing.T) {
	for _, code := range []surehook.ErrorCode{surehook.Unavailable, surehook.Internal} {
		for _, call := range []string{"append", "record", "claim", "changes", "outbox", "end"} {
			t.Run(string(code)+" "+call, func(t *testing.T) {
				b, f := flawed(t)
				r := receivertest.New(t, fails(3, 503))
				ep, secret := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"a"}; w.Limits.Attempts = 20 })
				gone := receivertest.New(t, always(receivertest.Answer{Status: 410}))
				b.hook(gone, func(w *engine.Webhook) { w.EventTypes = []string{"b"} })
				watcher := receivertest.New(t, nil)
				b.hook(watcher, func(w *engine.Webhook) { w.EventTypes = []string{surehook.TypeDisabled} })
				f.use(func(c string, n int) error {
					if c == call && n%3 != 0 {
						return surehook.Errorf(code, "every third only")
					}
					return nil
				})
				accepted := map[string]bool{}
				for i := range 40 {
					got, err := b.Publish(t.Context(), surehook.Event{Type: []string{"a", "a", "a", "b"}[i%4], Data: []byte(fmt.Sprint(i))})
					if err == nil && i%4 != 3 {
						accepted[got.ID] = true
					}
				}
				b.until("the 410 is told of", func() bool { return call == "append" && len(gone.Requests()) == 0 || len(watcher.Requests()) > 0 })
				f.use(nil)
				b.idle()
				for _, got := range r.Requests() {
					verify(t, secret, got)
				}
				for id := range accepted {
					if d := b.deliveries(id); len(d) != 1 || d[0].Status != surehook.Succeeded {
						t.Errorf("%+v", d)
					}
				}
				if n := len(watcher.Requests()); n > 1 {
					t.Errorf("the disabling was told %d times", n)
				}
				if len(accepted) == 0 || len(b.attempts(ep)) == 0 {
					t.Error("nothing was accepted: the test tests nothing")
				}
			})
		}
	}
}

// A change that is in the store reaches the lanes although it couldn't be read
// at once, and although nobody publishes.
func TestChangesArriveLate(t *testing.T) {
	b, f := flawed(t)
	r := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	ep, _ := b.hook(r, func(w *engine.Webhook) {
		w.Limits.Waits = []time.Duration{100 * time.Millisecond}
		w.Limits.Attempts = 100
	})
	b.publish("a", "1")
	r.Wait(t, 1)
	f.use(func(call string, n int) error {
		if call == "changes" {
			return surehook.Errorf(surehook.Unavailable, "no")
		}
		return nil
	})
	off := false
	if _, err := b.UpdateWebhook(t.Context(), ep.ID, engine.Patch{Enabled: &off}, engine.Actor{}); err != nil {
		t.Fatalf("the change was made, but: %v", err)
	}
	f.use(nil)
	b.idle() // the row ends when the lane hears of it
	if b.Endpoint(ep.Key).Enabled {
		t.Error("the engine doesn't know")
	}
}

// The caller's end takes nothing back: a change that was made is followed.
func TestAChangeOutlivesItsCaller(t *testing.T) {
	b, f := flawed(t)
	ctx, cancel := context.WithCancel(t.Context())
	f.use(func(call string, n int) error {
		if call == "changes" {
			cancel() // between the change and its reading
		}
		return nil
	})
	r := receivertest.New(t, nil)
	_, secret, err := b.CreateWebhook(ctx, engine.Webhook{URL: r.URL}, engine.Actor{})
	if err != nil || secret == "" {
		t.Fatal(err)
	}
	f.use(nil)
	b.publish("a", "1")
	verify(t, secret, r.Wait(t, 1)[0])
}

// Endpoints that change without end hold no event up.
func TestAStormOfChanges(t *testing.T) {
	b := start(t, func(o *engine.Options) { o.MaxWebhooks = -1 })
	r := receivertest.New(t, nil)
	b.hook(r)
	stop := make(chan struct{})
	var storm sync.WaitGroup
	for i := range 8 {
		other, _ := b.hook(r, func(w *engine.Webhook) { w.EventTypes = []string{"never"} })
		storm.Go(func() {
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				default:
				}
				text := fmt.Sprint(i, n)
				if _, err := b.UpdateWebhook(context.Background(), other.ID, engine.Patch{Description: &text}, engine.Actor{}); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var publishers sync.WaitGroup
	for range 4 {
		publishers.Go(func() {
			for range 50 {
				if _, err := b.Publish(context.Background(), surehook.Event{Type: "a", Data: []byte("1")}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	publishers.Wait()
	close(stop)
	storm.Wait()
	r.Wait(t, 200)
	b.idle()
}

// O-02: a step of a replay that isn't written is made again, not passed over.
func TestReplayStepsAreRepeatedAfterAFault(t *testing.T) {
	b, f := flawed(t)
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Concurrency = 32 })
	since := b.now().Add(-time.Minute)
	events := make([]surehook.Event, 600)
	for i := range events {
		events[i] = surehook.Event{Type: "a", Data: []byte("1")}
	}
	if _, err := b.Enqueue(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	r.Wait(t, 600)
	b.idle()
	f.use(func(call string, n int) error {
		if call == "advance" && n == 1 {
			return surehook.Errorf(surehook.Unavailable, "no")
		}
		return nil
	})
	job, err := b.StartReplay(t.Context(), ep.ID, engine.ReplayRequest{Since: since}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	r.Wait(t, 1200)
	b.until("the job is done", func() bool {
		got, err := b.store.GetReplay(t.Context(), job.ID)
		return err == nil && got.State == surehook.ReplayDone && got.Queued == 600
	})
	b.idle()
}

// A stop in the middle of a replay isn't its end; neither is what queues nothing.
func TestReplayGoesOnAfterAStop(t *testing.T) {
	b, f := flawed(t)
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r, func(w *engine.Webhook) { w.Limits.Concurrency = 32 })
	since := b.now().Add(-time.Minute)
	events := make([]surehook.Event, 1100)
	for i := range events {
		events[i] = surehook.Event{Type: "a", Data: []byte("1")}
	}
	if _, err := b.Enqueue(t.Context(), events...); err != nil {
		t.Fatal(err)
	}
	r.Wait(t, 1100)
	b.idle()
	reached, goOn := make(chan struct{}), make(chan struct{})
	f.use(func(call string, n int) error {
		if call == "advance" && n == 2 {
			close(reached)
			<-goOn
			return context.Canceled // as a read that the stop cut off
		}
		return nil
	})
	job, err := b.StartReplay(t.Context(), ep.ID, engine.ReplayRequest{Since: since}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	<-reached
	stopped := make(chan struct{})
	go func() { b.close(); close(stopped) }()
	b.until("the stop has begun", func() bool {
		_, err := b.Publish(context.Background(), surehook.Event{Type: "never", Data: []byte("1")})
		return surehook.CodeOf(err) == surehook.Stopping
	})
	close(goOn)
	<-stopped
	f.use(nil)
	b.open()
	b.until("the job is done", func() bool {
		got, err := b.store.GetReplay(t.Context(), job.ID)
		return err == nil && got.State == surehook.ReplayDone && got.Queued == 1100
	})
	b.idle()
}

func TestReplayIsCancelled(t *testing.T) {
	b, f := flawed(t)
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r)
	since := b.now().Add(-time.Minute)
	b.publish("a", "1")
	b.idle()
	reached, goOn := make(chan struct{}), make(chan struct{})
	f.use(func(call string, n int) error {
		if call == "advance" {
			close(reached)
			<-goOn
		}
		return nil
	})
	job, err := b.StartReplay(t.Context(), ep.ID, engine.ReplayRequest{Since: since}, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	<-reached
	if err := b.CancelReplay(t.Context(), job.ID, engine.Actor{ID: "key_1", RequestID: "req_1"}); err != nil {
		t.Fatal(err)
	}
	log, err := b.store.ListAudit(t.Context(), "", surehook.Page{Limit: 1})
	if err != nil || len(log) != 1 || log[0].Action != "replay.cancel" || log[0].Target != job.ID || log[0].Actor != "key_1" || log[0].RequestID != "req_1" {
		t.Errorf("the audit log tells %+v, %v", log, err)
	}
	close(goOn)
	b.restart() // waits for the job's loop, and would go on with a running one
	b.idle()
	if got, err := b.store.GetReplay(t.Context(), job.ID); err != nil || got.State != surehook.ReplayCancelled || got.Queued != 0 || len(r.Requests()) != 1 {
		t.Errorf("%+v, %v, %d requests", got, err, len(r.Requests()))
	}
}

// Stop bears with whatever goes on: it is called by many, with events coming in,
// and everything after it is refused.
func TestStopWhileEventsComeIn(t *testing.T) {
	b := start(t)
	r := receivertest.New(t, nil)
	ep, _ := b.hook(r)
	var accepted sync.Map
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			for {
				got, err := b.Publish(context.Background(), surehook.Event{Type: "a", Data: []byte("1")})
				if surehook.CodeOf(err) == surehook.Stopping {
					return
				}
				if err != nil {
					t.Error(err)
					return
				}
				accepted.Store(got.ID, true)
			}
		})
	}
	r.Wait(t, 50)
	for range 3 {
		all.Go(func() {
			if err := b.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if _, err := b.StartReplay(t.Context(), ep.ID, engine.ReplayRequest{Since: time.Unix(1, 0)}, engine.Actor{}); surehook.CodeOf(err) != surehook.Stopping {
		t.Errorf("a replay after the stop: %v", err)
	}
	if _, err := b.TestWebhook(t.Context(), ep.ID, engine.Actor{}); surehook.CodeOf(err) != surehook.Stopping {
		t.Errorf("a test after the stop: %v", err)
	}
	if err := b.Start(t.Context()); err == nil {
		t.Error("it started again")
	}
	b.restart()
	b.idle()
	seen := map[string]int{}
	for _, got := range r.Requests() {
		seen[got.ID()]++
	}
	accepted.Range(func(id, _ any) bool {
		if seen[id.(string)] != 1 {
			t.Errorf("%s arrived %d times", id, seen[id.(string)])
		}
		return true
	})
}

func TestStartThatFailsLeavesNothing(t *testing.T) {
	b := prepare(t)
	b.wrap = func(s surehook.Store) surehook.Store { return brokenDue{s} }
	if err := b.tryOpen(); !errors.Is(err, errDue) {
		t.Fatal(err)
	}
	if err := b.Stop(t.Context()); err != nil {
		t.Error(err)
	}
}

var errDue = surehook.Errorf(surehook.Internal, "no due rows can be read")

type brokenDue struct{ surehook.Store }

func (brokenDue) Due(context.Context) ([]surehook.EndpointDue, error) { return nil, errDue }
