package engine_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// E-1: what is erased isn't sent any more: not what waits for its retry, not what a
// lane holds, and by no replay. The record stays, and the health of the endpoint as
// well.
func TestErase(t *testing.T) { both(t, testErase) }

func testErase(t *testing.T, b *bed) {
	gate := make(chan struct{})
	slow := receivertest.New(t, always(receivertest.Answer{Gate: gate}))
	failing := receivertest.New(t, always(receivertest.Answer{Status: 500}))
	lane, _ := b.hook(slow, func(w *engine.Webhook) { w.Limits.Concurrency = 1; w.Limits.Timeout = 20 * time.Second })
	retry, _ := b.hook(failing, func(w *engine.Webhook) { w.Limits.Waits = []time.Duration{time.Hour} })
	var ids []string
	for i := range 4 {
		r, err := b.Publish(t.Context(), surehook.Event{Type: "a", Tenant: "acme", Identity: fmt.Sprint("id", i%2), Data: []byte(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, r.ID)
	}
	slow.Wait(t, 1)
	b.until("all have failed once", func() bool { return len(b.attempts(retry)) == 4 })
	got, err := b.Erase(t.Context(), engine.EraseRequest{Tenant: "acme", Identity: "id1"}, engine.Actor{ID: "key_1"})
	if err != nil || got.Events != 2 || got.Deliveries < 2 || got.Next != 0 {
		t.Fatalf("%+v, %v", got, err)
	}
	close(gate)
	slow.Wait(t, 2)
	b.until("the lane is empty", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Owned+n.Due == 0 })
	if n := len(slow.Requests()); n != 2 {
		t.Errorf("%d requests", n)
	}
	for i, id := range ids {
		ds := b.deliveries(id)
		for _, d := range ds {
			erased := i%2 == 1
			if dead := d.Status == surehook.Dead && d.LastCode == surehook.EventUnavailable; dead != erased {
				t.Errorf("event %d: %+v", i, d)
			}
		}
	}
	if h := b.endpoint(lane.ID).Health; h.ConsecutiveFailures != 0 {
		t.Errorf("%+v", h)
	}
	for _, req := range []engine.ReplayRequest{{IDs: ids[1:2]}} {
		_, err := b.Replay(t.Context(), lane.ID, req, engine.Actor{})
		if e := surehook.CodeOf(err); e != surehook.InvalidRequest {
			t.Errorf("replayed: %v", err)
		}
	}
	if r, err := b.Replay(t.Context(), lane.ID, engine.ReplayRequest{Since: b.now().Add(-time.Hour)}, engine.Actor{}); err != nil || r.Queued != 2 {
		t.Errorf("%+v, %v", r, err)
	}
	audit, err := b.store.ListAudit(t.Context(), "acme", surehook.Page{Limit: 10})
	if err != nil || len(audit) != 1 || audit[0].Action != "event.erase" || audit[0].Actor != "key_1" || audit[0].Target != "id1" {
		t.Errorf("%+v, %v", audit, err)
	}
}

// What the store keeps refusing is erased too, before it ever became an event: by
// id, or with all that is its tenant's. Nothing waits for it.
func TestEraseWhatIsRefused(t *testing.T) { both(t, testEraseRefused) }

func testEraseRefused(t *testing.T, b *bed) {
	f := b.fanned()
	b.refuseBad()
	good := b.publish("a", "1").ID
	secret := surehook.Event{ID: "bad", Type: "a", Tenant: "acme", Data: []byte(`"it is a secret"`)}
	erase := func(req engine.EraseRequest) (engine.EraseReceipt, error) {
		return b.Erase(t.Context(), req, engine.Actor{ID: "key_1"})
	}
	for _, req := range []engine.EraseRequest{{Tenant: "acme"}, {IDs: []string{"bad"}}, {IDs: []string{good, "bad"}, Tenant: ""}} {
		b.enqueue(secret)
		f.next(t)
		if _, err := erase(engine.EraseRequest{IDs: []string{"bad", "evt_x"}}); surehook.CodeOf(err) != surehook.InvalidRequest {
			t.Fatalf("with an id that nobody knows: %v", err)
		}
		if n, _, err := b.store.ErasureWaits(t.Context(), surehook.Erasure{Tenant: "acme"}, nil, 0); err != nil || n != 1 {
			t.Fatalf("a refused request took it: %d, %v", n, err)
		}
		got, err := erase(req)
		if want := max(len(req.IDs), 1); err != nil || got.Events != want || got.Next != 0 {
			t.Errorf("%+v: %+v, %v", req, got, err)
		}
		if n, _, err := b.store.ErasureWaits(t.Context(), surehook.Erasure{Tenant: "acme"}, nil, 0); err != nil || n != 0 {
			t.Errorf("%+v: %d left, %v", req, n, err)
		}
	}
	audit, err := b.store.ListAudit(t.Context(), "acme", surehook.Page{Limit: 10})
	if err != nil || len(audit) == 0 || audit[0].Action != "event.erase" || audit[0].Actor != "key_1" {
		t.Errorf("%+v, %v", audit, err)
	}
	if ev, err := b.store.Event(t.Context(), nil, good); err != nil || !ev.Erased {
		t.Errorf("%+v, %v", ev, err)
	}
}

// E-2: refusals name their field and change nothing; by ids all are found first.
func TestEraseRefusals(t *testing.T) {
	b := start(t)
	id := b.publish("a", "1").ID
	many := make([]string, engine.MaxEraseIDs+1)
	for _, c := range []struct {
		req   engine.EraseRequest
		field string
	}{
		{engine.EraseRequest{}, "tenant_id"}, {engine.EraseRequest{IDs: many}, "ids"}, {engine.EraseRequest{IDs: []string{id, "evt_x"}}, "ids[1]"},
		{engine.EraseRequest{IDs: []string{id}, Identity: "x"}, "identity_id"}, {engine.EraseRequest{IDs: []string{id}, Tenant: "other"}, "ids[0]"},
	} {
		_, err := b.Erase(t.Context(), c.req, engine.Actor{})
		e, ok := err.(*surehook.Error) //nolint:errorlint // as it is
		if !ok || len(e.Fields) != 1 || e.Fields[0].Path != c.field {
			t.Errorf("%+v: %v", c.req, err)
		}
	}
	if ev, err := b.store.Event(t.Context(), nil, id); err != nil || ev.Erased {
		t.Errorf("%+v, %v", ev, err)
	}
}

// E-3: what another node's lane holds is taken back as well, before it is sent, and
// without its data.
func TestEraseOnAnotherNode(t *testing.T) {
	t.Parallel() // it waits, mostly
	dsn := database(t)
	heeding := &heeding{Store: openStore(t, dsn), recalled: make(chan struct{})}
	holder, eraser := member(t, heeding), member(t, openStore(t, dsn), func(o *engine.Options) { o.APIOnly = true })
	gate := make(chan struct{})
	release := sync.OnceFunc(func() { close(gate) })
	defer release()
	r := receivertest.New(t, always(receivertest.Answer{Gate: gate}))
	w := engine.Webhook{URL: r.URL + "/in", Limits: surehook.Limits{Concurrency: 1, Timeout: 50 * time.Second}}
	if _, _, err := holder.CreateWebhook(t.Context(), w, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	var ids []string
	for i := range 5 {
		got, err := holder.Publish(t.Context(), surehook.Event{Type: "a", Data: fmt.Appendf(nil, `"secret-%d"`, i)})
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, got.ID)
	}
	r.Wait(t, 1) // one is on the wire, the others wait in the lane's memory
	if n := holder.Stats().Queued; n != 4 {
		t.Fatalf("the lane holds %d", n)
	}
	if got, err := eraser.Erase(t.Context(), engine.EraseRequest{IDs: ids[1:4]}, engine.Actor{}); err != nil || got.Events != 3 {
		t.Fatalf("%+v, %v", got, err)
	}
	select {
	case <-heeding.recalled:
	case <-time.After(20 * time.Second):
		t.Fatal("the other node doesn't hear of it")
	}
	release()
	r.Wait(t, 2)
	soon(t, "all is done", func() bool {
		n, err := holder.Store().PendingCount(t.Context())
		return err == nil && n == surehook.PendingCount{}
	})
	if got := r.Requests(); len(got) != 2 || got[0].ID() != ids[0] || got[1].ID() != ids[4] {
		t.Errorf("%d requests: %+v", len(got), got)
	}
	letters, err := holder.Store().ListDeadLetters(t.Context(), surehook.DeadLetterFilter{}, surehook.Page{Limit: 10})
	if err != nil || len(letters) != 3 {
		t.Errorf("%+v, %v", letters, err)
	}
}

// heeding is a store that tells when its engine has gone through its lanes for an
// erasure: it asks again only after that.
type heeding struct {
	surehook.Store
	recalled chan struct{}
	last     int64 // answer; one goroutine asks
}

func (h *heeding) Erasures(ctx context.Context) (int64, error) {
	if h.last > 0 {
		select {
		case <-h.recalled:
		default:
			close(h.recalled)
		}
	}
	n, err := h.Store.Erasures(ctx)
	h.last = n
	return n, err
}

// soon waits for what another node does.
func soon(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for limit := time.After(20 * time.Second); !ok(); {
		select {
		case <-tick.C:
		case <-limit:
			t.Fatal("waited 20 s: ", what)
		}
	}
}
