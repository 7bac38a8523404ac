package engine_test

import (
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

const day = 24 * time.Hour

// hub is a partner with a tenant, and an endpoint of each, of the platform and of
// a tenant without a partner.
type hub struct {
	*bed
	partner, tenant, platform, other *receivertest.Receiver
	ofPartner, ofTenant              *surehook.Endpoint
}

func newHub(t *testing.T, b *bed) *hub {
	t.Helper()
	h := &hub{bed: b, partner: receivertest.New(t, nil), tenant: receivertest.New(t, nil), platform: receivertest.New(t, nil), other: receivertest.New(t, nil)}
	for _, tenant := range []surehook.Tenant{{ID: "acme", Partner: "hub"}, {ID: "solo"}} {
		if err := b.PutTenant(t.Context(), &tenant, "tenant.put", engine.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	h.ofPartner, _ = b.hook(h.partner, func(w *engine.Webhook) { w.Partner = "hub" })
	h.ofTenant, _ = b.hook(h.tenant, func(w *engine.Webhook) { w.Tenant = "acme" })
	b.hook(h.platform, func(w *engine.Webhook) { w.EventTypes = []string{"a"} })
	b.hook(h.other, func(w *engine.Webhook) { w.Tenant = "solo" })
	return h
}

func (h *hub) suspend(suspended bool) {
	h.t.Helper()
	if err := h.PutPartner(h.t.Context(), &surehook.Partner{ID: "hub", Suspended: suspended}, engine.Actor{ID: "key_1"}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *hub) send(tenant string) string {
	h.t.Helper()
	r, err := h.Publish(h.t.Context(), surehook.Event{Type: "a", Tenant: tenant, Data: []byte(`1`)})
	if err != nil {
		h.t.Fatal(err)
	}
	return r.ID
}

// P-1: what goes to a suspended partner's and its tenants' endpoints waits: no
// attempt, no failure, no place in a lane. The platform's and others' go on. When
// the partner is active again it is sent.
func TestSuspendedPartner(t *testing.T) { both(t, testSuspendedPartner) }

func testSuspendedPartner(t *testing.T, b *bed) {
	h := newHub(t, b)
	h.suspend(true)
	id := h.send("acme")
	h.send("solo")
	h.platform.Wait(t, 2)
	h.other.Wait(t, 1)
	b.leap(20 * day) // far past the retry schedule
	b.restart()      // and in a new process as well
	h.send("solo")
	h.other.Wait(t, 2)
	h.platform.Wait(t, 3)
	if n := len(h.partner.Requests()) + len(h.tenant.Requests()); n != 0 {
		t.Fatalf("%d requests to a suspended partner's endpoints", n)
	}
	for _, ep := range []*surehook.Endpoint{h.ofPartner, h.ofTenant} {
		if as := b.attempts(ep); len(as) != 0 {
			t.Errorf("attempts: %+v", as)
		}
		if got := b.endpoint(ep.ID); got.Health.ConsecutiveFailures != 0 || !got.Enabled {
			t.Errorf("%+v", got)
		}
	}
	b.until("no lane holds them", func() bool { n, _ := b.store.PendingCount(t.Context()); return n.Owned == 0 })
	h.suspend(false)
	h.partner.Wait(t, 1)
	h.tenant.Wait(t, 1)
	b.idle()
	for _, d := range b.deliveries(id) {
		if d.Status != surehook.Succeeded || d.Attempts != 1 {
			t.Errorf("%+v", d)
		}
	}
}

// P-2: suspending takes back what lanes hold, and retries wait too.
func TestSuspendingTakesLanesBack(t *testing.T) { both(t, testSuspendingTakesLanesBack) }

func testSuspendingTakesLanesBack(t *testing.T, b *bed) {
	h := newHub(t, b)
	gate := make(chan struct{})
	h.tenant.Use(func(i int, _ receivertest.Request) receivertest.Answer {
		if i == 1 {
			return receivertest.Answer{Status: 500, Gate: gate}
		}
		return receivertest.Answer{}
	})
	one := 1
	if _, err := b.UpdateWebhook(t.Context(), h.ofTenant.ID, engine.Patch{Limits: &surehook.Limits{Concurrency: one, Waits: []time.Duration{time.Millisecond}}}, engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		h.send("acme")
	}
	h.tenant.Wait(t, 1)
	h.suspend(true)
	close(gate)
	b.until("the lane's rows are free", func() bool {
		n, _ := b.store.PendingCount(t.Context())
		return n.Owned == 0 && len(b.attempts(h.ofTenant)) == 1
	})
	if n := len(h.tenant.Requests()); n != 1 {
		t.Errorf("%d requests", n)
	}
	h.suspend(false)
	h.tenant.Wait(t, 6)
	b.idle()
}

// P-3: what is held when its event leaves the window is dead, event_unavailable,
// without a request: while it is held or when it is released; what is younger is
// sent.
func TestHeldPastTheWindow(t *testing.T) { both(t, testHeldPastTheWindow) }

func testHeldPastTheWindow(t *testing.T, b *bed) {
	h := newHub(t, b)
	h.suspend(true)
	old := h.send("acme")
	b.leap(20 * day)
	b.restart()
	young := h.send("acme")
	b.leap(11 * day)
	b.restart()
	h.suspend(false)
	h.tenant.Wait(t, 1)
	b.idle()
	if got := h.tenant.Requests(); len(got) != 1 || got[0].ID() != young {
		t.Fatalf("%+v", got)
	}
	for _, d := range b.deliveries(old) {
		if d.EndpointKey == h.ofTenant.Key || d.EndpointKey == h.ofPartner.Key {
			if d.Status != surehook.Dead || d.LastCode != surehook.EventUnavailable {
				t.Errorf("%+v", d)
			}
		}
	}
	if got := b.endpoint(h.ofTenant.ID); got.Health.ConsecutiveFailures != 0 {
		t.Errorf("%+v", got.Health)
	}
}

// P-4: a tenant that leaves a suspended partner is sent to again, and one that
// joins it isn't.
func TestTenantsOfASuspendedPartner(t *testing.T) { both(t, testTenantsOfASuspendedPartner) }

func testTenantsOfASuspendedPartner(t *testing.T, b *bed) {
	h := newHub(t, b)
	h.suspend(true)
	h.send("acme")
	put := func(tenant surehook.Tenant) {
		t.Helper()
		if err := b.PutTenant(t.Context(), &tenant, "tenant.put", engine.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	put(surehook.Tenant{ID: "acme"})
	h.tenant.Wait(t, 1)
	put(surehook.Tenant{ID: "solo", Partner: "hub"})
	h.send("solo")
	h.platform.Wait(t, 2)
	if n := len(h.other.Requests()); n != 0 {
		t.Errorf("%d requests", n)
	}
	if err := b.DeletePartner(t.Context(), "hub", engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	h.other.Wait(t, 1)
	b.idle()
}
