package engine_test

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

const (
	window   = 30 * day       // in which what was held may still be sent
	longest  = 79 * time.Hour // the waits of profile pylota in all, with all jitter
	shortest = 63 * time.Hour
)

// act is something that happens at a time.
type act struct {
	at time.Time
	do func()
}

// script is the year's course.
type script struct {
	*year
	acts []act
}

func (s *script) on(d float64, do func()) {
	s.acts = append(s.acts, act{newYear.Add(time.Duration(d * float64(day))), do})
}

// outage makes a receiver misbehave for a while.
func (s *script) outage(h *hook, from float64, lasts time.Duration, why fault) {
	s.on(from, func() {
		s.net.set(h.addr, why)
		h.faults = append(h.faults, span{from: s.now(), why: why})
	})
	s.on(from+float64(lasts)/float64(day), func() {
		s.net.set(h.addr, well)
		h.faults[len(h.faults)-1].to = s.now()
	})
}

// rotate gives an endpoint a new secret.
func (y *year) rotate(h *hook, overlap time.Duration) {
	_, fresh, err := y.RotateSecret(y.t.Context(), h.ep.ID, overlap, engine.Actor{})
	if err != nil {
		y.t.Fatal(err)
	}
	now := y.now()
	for i := range h.secrets {
		old := &h.secrets[i]
		switch {
		case i == len(h.secrets)-1:
			old.to = now.Add(overlap)
		case old.to.After(now): // there are two at most
			old.to = now
		}
	}
	h.secrets = append(h.secrets, secretTime{text: fresh, from: now})
	y.follow()
}

// move changes an endpoint's URL. Nothing is sent until a test has passed.
func (s *script) move(h *hook, from float64) {
	s.on(from, func() {
		h.old = append(h.old, h.addr)
		b := h.addr.As4()
		h.addr = netip.AddrFrom4([4]byte{10, b[1], b[2], b[3] + 1})
		url := "http://" + h.addr.String() + "/in"
		if _, err := s.UpdateWebhook(s.t.Context(), h.ep.ID, engine.Patch{URL: &url}, engine.Actor{}); err != nil {
			s.t.Fatal(err)
		}
		s.follow()
	})
	s.on(from+1.5, func() {
		if a, err := s.TestWebhook(s.t.Context(), h.ep.ID, engine.Actor{}); err != nil || a.Status != surehook.AttemptSucceeded {
			s.t.Fatalf("the test of %s: %+v, %v", h.name, a, err)
		}
		h.off[len(h.off)-1].to = s.now()
		s.follow()
	})
}

// mend enables an endpoint that its failures disabled, and has it get what died.
func (y *year) mend(h *hook) {
	y.follow()
	if h.ep.Enabled {
		return
	}
	on := true
	if _, err := y.UpdateWebhook(y.t.Context(), h.ep.ID, engine.Patch{Enabled: &on}, engine.Actor{}); err != nil {
		y.t.Fatal(err)
	}
	off := &h.off[len(h.off)-1]
	off.to = y.now()
	dead := y.deliveries(h, surehook.Dead)
	for _, ev := range y.events {
		if _, is := dead[ev.id]; is && ev.at.After(y.now().Add(-window)) {
			ev.replayed[h] = true
		}
	}
	if _, err := y.Replay(y.t.Context(), h.ep.ID, engine.ReplayRequest{Since: y.now().Add(-window), Until: y.now(), Status: "dead"}, engine.Actor{}); err != nil {
		y.t.Fatal(err)
	}
	y.follow()
}

// suspend holds what goes to the partner and its tenants.
func (s *script) suspend(from, to float64) {
	put := func(on bool) func() {
		return func() {
			if err := s.PutPartner(s.t.Context(), &surehook.Partner{ID: "north", Suspended: on}, engine.Actor{}); err != nil {
				s.t.Fatal(err)
			}
			for _, h := range s.hooks {
				if h.name == "platform" {
					continue
				}
				if h.held = on; on {
					h.suspended = append(h.suspended, span{from: s.now()})
				} else {
					h.suspended[len(h.suspended)-1].to = s.now()
				}
			}
		}
	}
	s.on(from, put(true))
	for d := from; d < to; d++ {
		s.on(d+0.5, func() { s.sleep(61 * time.Second) }) // the engine looks each minute
	}
	s.on(to, put(false))
}

// course writes the year down.
func (s *script) course() {
	tenant, ordered, mail, partner, platform := s.hooks[0], s.hooks[1], s.hooks[2], s.hooks[3], s.hooks[4]
	for d := range 365 {
		for range s.daily {
			s.on(float64(d)+s.rand.Float64(), s.publish)
		}
	}
	for _, h := range s.hooks {
		for d := 15 + 30*s.rand.Float64(); d < 360; d += 25 + 30*s.rand.Float64() {
			overlap := []time.Duration{0, day, 7 * day}[s.rand.IntN(3)]
			s.on(d, func() { s.rotate(h, overlap) })
		}
	}
	for range 12 {
		s.on(360*s.rand.Float64(), func() { s.close(); s.open() })
	}
	s.outage(tenant, 10.1, 3*time.Minute, breaks)
	s.outage(tenant, 20.2, 5*time.Hour, refuses)
	s.outage(tenant, 40, 2*day, hangs)
	s.outage(tenant, 60, 6*day, breaks) // long enough to be disabled
	s.on(67, func() { s.mend(tenant) })
	s.move(tenant, 80)
	s.outage(ordered, 30, 4*time.Hour, breaks)
	s.outage(ordered, 200, 2*day, refuses)
	s.move(ordered, 230)
	s.outage(mail, 100, 4*day, refuses) // dead letters without being disabled
	s.outage(mail, 120, 20*time.Minute, hangs)
	s.move(mail, 180)
	s.outage(partner, 130, day, leaves) // disabled by the first 410
	s.on(131.5, func() { s.mend(partner) })
	s.outage(platform, 250, 3*time.Hour, hangs)
	s.move(platform, 270)
	s.suspend(150, 152)
	s.suspend(290, 325) // longer than the window
}

// A year of one tenant: outages of minutes to days, rotations, new URLs, a partner
// that is suspended, restarts. What arrived, what died and why, the order, and
// every signature are as a simple model says.
func TestAYear(t *testing.T) {
	if testing.Short() {
		t.Skip("a year takes two minutes under the race detector; it runs whole without")
	}
	onBoth(t, func(t *testing.T, dsn string) {
		synctest.Test(t, func(t *testing.T) { aYear(t, dsn) })
	})
}

func aYear(t *testing.T, dsn string) {
	y := newYearsWorld(t, dsn)
	s := &script{year: y}
	s.course()
	slices.SortStableFunc(s.acts, func(a, b act) int { return a.at.Compare(b.at) })
	for _, a := range s.acts {
		y.live(a.at)
		a.do()
	}
	y.live(y.now().Add(longest))
	y.check()
	if len(y.events) != 365*y.daily {
		t.Errorf("%d events", len(y.events))
	}
	if y.musts < 1300*y.daily || y.mustnts[surehook.Connect] == 0 || y.mustnts[surehook.EventUnavailable] < 20 {
		t.Errorf("the model is sure of %d arrivals and of deaths %v: that is too little", y.musts, y.mustnts)
	}
	t.Log(y.sum(), y.musts, y.mustnts)
}

// sum says what the year had.
func (y *year) sum() string {
	requests, dead := 0, 0
	for _, h := range y.hooks {
		for _, addr := range append(slices.Clone(h.old), h.addr) {
			requests += len(y.net.requests(addr))
		}
		for _, ev := range y.events {
			if slices.Contains(ev.to, h) && !y.arrived[key{ev.id, h.name}] {
				dead++
			}
		}
	}
	return fmt.Sprintf("%d events, %d requests, %d dead letters, %d sequences", len(y.events), requests, dead, len(y.owners))
}
