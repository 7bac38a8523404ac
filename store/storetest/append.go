package storetest

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/surehook/surehook"
)

var appendTests = map[string]func(*env){
	"Append/keeps every field":                      appendFields,
	"Append/gives the rows to deliver":              appendTargets,
	"Append/a repeat is the same event":             appendRepeats,
	"Append/other content under the id is refused":  appendConflict,
	"Append/ids are the tenant's own":               appendTenants,
	"Append/checks the configuration":               appendVersion,
	"Append/50 at once with one id make one (O-05)": appendOneID,
	"Append/many at once lose none":                 appendMany,
	"Append/bytes stay as they are (A-04, A-12)":    appendBytes,
	"Append/keys ascend":                            appendKeys,
	"Append/a fan-out takes its outbox row away":    appendOutbox,
	"Outbox/is read a few megabytes at a time":      outboxBytes,
}

func appendFields(e *env) {
	ev := &surehook.Event{ID: "evt_x:1-y", Type: "order.paid", Tenant: "acme", Identity: "ali", Owner: "order-7", Sequence: 41,
		Subjects: []string{"a/b", `quote " and ,`, "ü"}, OccurredAt: e.clock.Now().Add(-time.Hour), Trace: "00-abc-def-01", About: "whk_9",
		Data: []byte(`{"a":1}`)}
	out := e.append(surehook.Append{Event: ev})[0]
	e.same("answer", out, surehook.Appended{EventKey: ev.Key})
	e.same("sequence, which the store gives", ev.Sequence, int64(1))
	want := *ev
	want.CreatedAt, want.OccurredAt = ms(e.clock.Now()), ms(ev.OccurredAt)
	acme, other := "acme", ""
	byKey, err := e.s.EventByKey(e.ctx, out.EventKey)
	e.ok(err)
	e.same("by key", byKey, want)
	byID, err := e.s.Event(e.ctx, nil, ev.ID)
	e.ok(err)
	e.same("by id", byID, want)
	byTenant, err := e.s.Event(e.ctx, &acme, ev.ID)
	e.ok(err)
	e.same("by tenant and id", byTenant, want)
	_, err = e.s.Event(e.ctx, &other, ev.ID)
	e.code(err, surehook.NotFound)
	_, err = e.s.EventByKey(e.ctx, out.EventKey+1_000_000)
	e.code(err, surehook.NotFound)
}

func appendTargets(e *env) {
	a, b := e.endpoint(), e.endpoint()
	ev := e.event()
	out := e.append(surehook.Append{Event: ev, Targets: []surehook.Target{{EndpointKey: b.Key, Owned: true}, {EndpointKey: a.Key}}})[0]
	e.same("rows", len(out.Deliveries), 2)
	owned, free := out.Deliveries[0], out.Deliveries[1]
	if owned.ID == 0 || free.ID == 0 || owned.ID == free.ID {
		e.Fatalf("ids %d and %d", owned.ID, free.ID)
	}
	e.same("owned row", owned, surehook.Delivery{ID: owned.ID, Epoch: e.s.Lease().Epoch, EventKey: ev.Key, EndpointKey: b.Key, FirstAttempt: 1, Due: e.clock.Now()})
	e.same("free row", free, surehook.Delivery{ID: free.ID, EventKey: ev.Key, EndpointKey: a.Key, FirstAttempt: 1, Due: e.clock.Now()})
	e.same("owned rows aren't claimed", len(e.claim(b, 10).Rows), 0)
	got := e.claim(a, 10).Rows
	e.same("free rows are", len(got), 1)
	e.same("with their bytes", string(got[0].Event.Data), string(ev.Data))
}

func appendRepeats(e *env) {
	ep := e.endpoint()
	target := []surehook.Target{{EndpointKey: ep.Key, Owned: true}}
	first, again := e.event(), e.event()
	again.ID = first.ID
	out := e.append(surehook.Append{Event: first, Targets: target}, surehook.Append{Event: again, Targets: target})
	e.same("in one batch", out[1], surehook.Appended{Duplicate: true, EventKey: out[0].EventKey})
	later := e.event()
	later.ID = first.ID
	later.OccurredAt = later.OccurredAt.Add(time.Hour) // when it was said isn't what was said
	e.same("across batches", e.append(surehook.Append{Event: later, Targets: target})[0], surehook.Appended{Duplicate: true, EventKey: out[0].EventKey})
	e.same("rows", e.pending().Owned, int64(1))
	e.reopen()
	again = e.event()
	again.ID = first.ID
	e.same("after a new start", e.append(surehook.Append{Event: again, Targets: target})[0], surehook.Appended{Duplicate: true, EventKey: out[0].EventKey})
}

func appendConflict(e *env) {
	ep := e.endpoint()
	target := []surehook.Target{{EndpointKey: ep.Key}}
	first, other, good := e.event(), e.event(), e.event()
	other.ID, other.Data = first.ID, []byte(`{"n":2}`)
	out := e.append(surehook.Append{Event: first, Targets: target}, surehook.Append{Event: other, Targets: target}, surehook.Append{Event: good, Targets: target})
	e.code(out[1].Err, surehook.Conflict)
	e.ok(out[0].Err)
	e.ok(out[2].Err)
	e.same("rows", e.pending().Due, int64(2))
	got, err := e.s.EventByKey(e.ctx, out[0].EventKey)
	e.ok(err)
	e.same("bytes of the first", string(got.Data), string(first.Data))
}

func appendTenants(e *env) {
	a, b := e.event(), e.event()
	b.ID, a.Tenant, b.Tenant = a.ID, "acme", "globex"
	out := e.append(surehook.Append{Event: a}, surehook.Append{Event: b})
	if out[0].Duplicate || out[1].Duplicate || out[0].EventKey == out[1].EventKey {
		e.Fatalf("two tenants' events are taken for one: %+v", out)
	}
	globex := "globex"
	got, err := e.s.Event(e.ctx, &globex, a.ID)
	e.ok(err)
	e.same("key", got.Key, out[1].EventKey)
}

func appendVersion(e *env) {
	ep := e.endpoint()
	v := e.version()
	_, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(ep *surehook.Endpoint) error { ep.URL = "https://example.com/new"; return nil }, nil)
	e.ok(err)
	ev := e.event()
	if _, err := e.s.Append(e.ctx, v, []surehook.Append{{Event: ev}}); !errors.Is(err, surehook.ErrConfigChanged) {
		e.Fatalf("got %v, want ErrConfigChanged", err)
	}
	_, err = e.s.Event(e.ctx, nil, ev.ID)
	e.code(err, surehook.NotFound)
	// A change that was refused isn't one.
	v = e.version()
	refusal := surehook.Invalid("url", "is bad")
	if _, err := e.s.UpdateEndpoint(e.ctx, ep.ID, func(*surehook.Endpoint) error { return refusal }, nil); !errors.Is(err, refusal) {
		e.Fatalf("got %v, want the refusal as it is", err)
	}
	e.same("version", e.version(), v)
	e.append(surehook.Append{Event: ev})
}

func appendOneID(e *env) {
	ep := e.endpoint()
	v := e.version()
	out := make([]surehook.Appended, 50)
	errs := make([]error, len(out))
	var wg sync.WaitGroup
	for i := range out {
		ev := &surehook.Event{ID: "evt_one", Type: "a.b", Data: []byte(`1`), OccurredAt: e.clock.Now()}
		wg.Go(func() {
			got, err := e.s.Append(e.ctx, v, []surehook.Append{{Event: ev, Targets: []surehook.Target{{EndpointKey: ep.Key}}}})
			if errs[i] = err; err == nil {
				out[i] = got[0]
			}
		})
	}
	wg.Wait()
	fresh := 0
	for i := range out {
		e.ok(errs[i])
		e.ok(out[i].Err)
		e.same("key", out[i].EventKey, out[0].EventKey)
		if !out[i].Duplicate {
			fresh++
		}
	}
	e.same("accepted as new", fresh, 1)
	e.same("rows", e.pending().Due, int64(1))
}

func appendMany(e *env) {
	const callers, each = 32, 10
	ep := e.endpoint()
	v := e.version()
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for j := range each {
				ev := &surehook.Event{ID: fmt.Sprintf("e-%d-%d", i, j), Type: "a.b", Data: []byte(`1`), OccurredAt: e.clock.Now()}
				if _, err := e.s.Append(e.ctx, v, []surehook.Append{{Event: ev, Targets: []surehook.Target{{EndpointKey: ep.Key}}}}); err != nil {
					e.Error(err)
				}
			}
		})
	}
	wg.Wait()
	e.same("rows", e.pending().Due, int64(callers*each))
	seen := make(map[string]bool)
	for _, r := range e.claim(ep, 1000).Rows {
		seen[r.Event.ID] = true
	}
	e.same("events", len(seen), callers*each)
}

func appendBytes(e *env) {
	for _, data := range []string{
		`-1.7976931348623157e+308`, `1e400`, `0.10`, `1E2`, `-0`, `{"b":1,"a":2,"b":3}`, " {\n\t\"a\" : 1 }\r\n", `"\u0000"`,
		`{"m":"\u001b[31m"}`, "\"\u2028 \U0001F469\u200D\U0001F680 \u00e9 e\u0301\"", `"\ud83d\ude00"`, "\"\x7f\"", `null`, `""`, `[]`,
	} {
		ev := e.event()
		ev.Data = []byte(data)
		key := e.append(surehook.Append{Event: ev})[0].EventKey
		got, err := e.s.EventByKey(e.ctx, key)
		e.ok(err)
		if string(got.Data) != data {
			e.Errorf("stored %q, got %q", data, got.Data)
		}
	}
	ev := e.event()
	ev.Data = make([]byte, 1<<20)
	for i := range ev.Data {
		ev.Data[i] = byte('a' + i%26)
	}
	key := e.append(surehook.Append{Event: ev})[0].EventKey
	got, err := e.s.EventByKey(e.ctx, key)
	e.ok(err)
	if string(got.Data) != string(ev.Data) {
		e.Error("a large body isn't what was stored")
	}
}

func appendKeys(e *env) {
	last := int64(0)
	for range 3 {
		out := e.append(surehook.Append{Event: e.event()}, surehook.Append{Event: e.event()})
		if out[0].EventKey <= last || out[1].EventKey <= out[0].EventKey {
			e.Fatalf("keys %d and %d after %d", out[0].EventKey, out[1].EventKey, last)
		}
		last = out[1].EventKey
		e.reopen()
	}
	// A caller that tries again with the same value gets a new place.
	ev := e.event()
	e.endpoint()
	if _, err := e.s.Append(e.ctx, -1, []surehook.Append{{Event: ev}}); !errors.Is(err, surehook.ErrConfigChanged) {
		e.Fatal(err)
	}
	between := e.append(surehook.Append{Event: e.event()})[0].EventKey
	if again := e.append(surehook.Append{Event: ev})[0].EventKey; again <= between {
		e.Fatalf("key %d after %d", again, between)
	}
}

func appendOutbox(e *env) {
	ep := e.endpoint()
	d := e.publish(true, ep)[0]
	o := e.outcome(d, surehook.Bury)
	o.Attempt.Code = surehook.Status410
	want := &surehook.Event{ID: "evt_disabled", Type: surehook.TypeDisabled, About: ep.ID, Subjects: []string{"s"}, OccurredAt: ms(e.clock.Now()), Data: []byte(`{}`)}
	e.recordWith(surehook.HealthRule{Gone: true, Disabled: func(*surehook.Endpoint, string, *surehook.Attempt) *surehook.Event { return want }}, o)
	waiting, err := e.s.Outbox(e.ctx, 10)
	e.ok(err)
	e.same("waiting", len(waiting), 1)
	e.same("event", waiting[0].Event, want)
	a := surehook.Append{Event: waiting[0].Event, Outbox: waiting[0].ID}
	first := e.append(a)[0]
	e.same("first fan-out", first, surehook.Appended{EventKey: first.EventKey})
	copied := *waiting[0].Event
	copied.Key = 0
	if second := e.append(surehook.Append{Event: &copied, Outbox: waiting[0].ID})[0]; !second.Duplicate || second.Err != nil {
		e.Fatalf("second fan-out: %+v", second)
	}
	waiting, err = e.s.Outbox(e.ctx, 10)
	e.ok(err)
	e.same("waiting after", len(waiting), 0)
}

func outboxBytes(e *env) {
	ep := e.endpoint()
	for i := range 9 {
		d := e.publish(true, ep)[0]
		o := e.outcome(d, surehook.Bury)
		o.Attempt.Code, o.Version = surehook.Status410, int64(2*i+1)
		ev := &surehook.Event{ID: e.id("evt_big"), Type: surehook.TypeDisabled, OccurredAt: e.clock.Now(), Data: make([]byte, 1<<20)}
		e.recordWith(surehook.HealthRule{Gone: true, Disabled: func(*surehook.Endpoint, string, *surehook.Attempt) *surehook.Event { return ev }}, o)
		e.enable(ep, true)
	}
	read := 0
	for read < 9 {
		waiting, err := e.s.Outbox(e.ctx, 100)
		e.ok(err)
		if len(waiting) == 0 || len(waiting) > 5 {
			e.Fatalf("%d events of 1 MiB at once", len(waiting))
		}
		for _, w := range waiting {
			e.append(surehook.Append{Event: w.Event, Outbox: w.ID})
		}
		read += len(waiting)
	}
}
