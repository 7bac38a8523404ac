package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// meet waits until that many nodes know of each other.
func (p *pair) meet(n int) {
	p.t.Helper()
	for end := time.Now().Add(10 * time.Second); ; <-time.After(20 * time.Millisecond) {
		met := true
		for _, e := range p.nodes[:n] {
			met = met && len(e.Store().Lease().Nodes) == n
		}
		if met {
			return
		}
		if time.Now().After(end) {
			p.t.Fatal("the nodes don't know of each other")
		}
	}
}

// leave stops a node in order.
func (p *pair) leave(i int) {
	p.t.Helper()
	if err := p.nodes[i].Stop(p.t.Context()); err != nil {
		p.t.Fatal(err)
	}
	if err := p.nodes[i].Store().Close(); err != nil {
		p.t.Fatal(err)
	}
}

// A cap holds over all nodes, each of which sends its part.
func TestProofCapOverNodes(t *testing.T) {
	p, url := newPair(t)
	p.meet(2)
	p.hook(url, surehook.Limits{Concurrency: 4})
	stop := p.publish("cap")
	<-time.After(3 * time.Second)
	stop()
	p.settle(30 * time.Second)
	if p.most > 4 {
		t.Errorf("%d requests at once, over a cap of 4", p.most)
	}
	if a, b := p.by("a", time.Time{}, nil), p.by("b", time.Time{}, nil); a == 0 || b == 0 {
		t.Errorf("one sent %d, the other %d", a, b)
	}
}

// A rate too.
func TestProofRateOverNodes(t *testing.T) {
	p, url := newPair(t)
	p.meet(2)
	const perSecond = 40
	p.hook(url, surehook.Limits{Rate: perSecond})
	stop := p.publish("rate")
	<-time.After(300 * time.Millisecond)
	stop()
	p.mu.Lock()
	before, start := len(p.got), time.Now()
	p.mu.Unlock()
	<-time.After(3 * time.Second)
	p.mu.Lock()
	n, took := len(p.got)-before, time.Since(start)
	p.mu.Unlock()
	// A limiter starts with a second's worth.
	if most := int(perSecond*took.Seconds()) + perSecond; n > most || n < perSecond {
		t.Errorf("%d requests in %v, at %d a second", n, took, perSecond)
	}
	p.settle(60 * time.Second)
}

// What one node alone may send to, another takes over when that one leaves.
func TestProofHomeNode(t *testing.T) {
	p, url := newPair(t)
	p.meet(2)
	p.hook(url, surehook.Limits{Concurrency: 1})
	stop := p.publish("home")
	<-time.After(time.Second)
	stop()
	p.settle(30 * time.Second)
	a, b := p.by("a", time.Time{}, nil), p.by("b", time.Time{}, nil)
	if p.most > 1 || a > 0 && b > 0 {
		t.Errorf("%d requests at once, one node sent %d and the other %d", p.most, a, b)
	}
	home, other := 0, "b"
	if b > 0 {
		home, other = 1, "a"
	}
	p.leave(home)
	left := time.Now()
	for n := range 20 {
		p.publishOne(p.nodes[1-home], fmt.Sprint("left-", n))
	}
	p.settle(30 * time.Second)
	if n := p.by(other, left, nil); n < 20 || p.most > 1 {
		t.Errorf("the one that stayed sent %d, and %d at once", n, p.most)
	}
}

// An event that is published through one node after a change was answered by
// another goes by it.
func TestProofChangesOverNodes(t *testing.T) {
	p, url := newPair(t)
	ctx := t.Context()
	hook := p.hook(url, surehook.Limits{})
	partner := map[string]string{}
	for _, name := range []string{"p1", "p2"} {
		e, _, err := p.nodes[0].CreateWebhook(ctx, engine.Webhook{Partner: name, URL: url + "/" + name}, engine.Actor{})
		if err != nil {
			t.Fatal(err)
		}
		partner[name] = e.ID
	}
	for n := range rounds(60, 1000) {
		a, b := p.nodes[n%2], p.nodes[1-n%2]
		// An endpoint is turned off and on.
		on := n%4 < 2
		if _, err := a.UpdateWebhook(ctx, hook.ID, engine.Patch{Enabled: &on}, engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		p.goesTo(b, surehook.Event{ID: fmt.Sprint("off-", n), Type: "a.b", Data: []byte(`{}`)}, hook.ID, on)
		// A tenant gets another partner.
		to, from := "p1", "p2"
		if n%3 == 0 {
			to, from = from, to
		}
		if err := a.PutTenant(ctx, &surehook.Tenant{ID: "t", Partner: to}, "put", engine.Actor{}); err != nil {
			t.Fatal(err)
		}
		ev := surehook.Event{ID: fmt.Sprint("partner-", n), Tenant: "t", Type: "a.b", Data: []byte(`{}`)}
		p.goesTo(b, ev, partner[to], true)
		p.goesTo(b, ev, partner[from], false)
	}
}

// goesTo publishes an event, unless it was before, and looks whether it is for
// an endpoint.
func (p *pair) goesTo(e *engine.Engine, ev surehook.Event, endpoint string, want bool) {
	p.t.Helper()
	if _, err := e.Publish(context.Background(), ev); err != nil {
		p.t.Fatal(err)
	}
	stored, err := e.Store().Event(p.t.Context(), &ev.Tenant, ev.ID)
	if err != nil {
		p.t.Fatal(err)
	}
	ds, err := e.Store().EventDeliveries(p.t.Context(), stored.Key, surehook.Page{Limit: 10})
	if err != nil {
		p.t.Fatal(err)
	}
	got := false
	for _, d := range ds {
		got = got || d.EndpointID == endpoint
	}
	if got != want {
		p.t.Errorf("event %s for endpoint %s: %v", ev.ID, endpoint, got)
	}
}
