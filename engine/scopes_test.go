package engine_test

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/receivertest"
)

// town has tenants t1 and t2 of partner p, t3 of partner q, and t4 of none, with
// endpoints of all scopes at one receiver: an endpoint's path is its name.
type town struct {
	*bed
	r   *receivertest.Receiver
	eps map[string]*surehook.Endpoint
}

// gone is answered with 410: whoever has it is disabled by its first event.
const gone = "gone"

func newTown(t *testing.T, b *bed) *town {
	t.Helper()
	x := &town{bed: b, eps: make(map[string]*surehook.Endpoint)}
	x.r = receivertest.New(t, func(_ int, r receivertest.Request) receivertest.Answer {
		if strings.Contains(r.Line, gone) {
			return receivertest.Answer{Status: 410}
		}
		return receivertest.Answer{}
	})
	for _, tenant := range []surehook.Tenant{{ID: "t1", Partner: "p"}, {ID: "t2", Partner: "p"}, {ID: "t3", Partner: "q"}, {ID: "t4"}} {
		if err := b.PutTenant(t.Context(), &tenant, "tenant.put", engine.Actor{}); err != nil {
			t.Fatal(err)
		}
	}
	for name, w := range map[string]engine.Webhook{
		"platform": {}, "platform2": {}, "p": {Partner: "p"}, "p2": {Partner: "p"}, "q": {Partner: "q"},
		"t1": {Tenant: "t1"}, "t2": {Tenant: "t2"}, "t3": {Tenant: "t3"}, "t4": {Tenant: "t4"},
		"platform-exact": {EventTypes: []string{"domain.verified"}}, "t1-exact": {Tenant: "t1", EventTypes: []string{"message.received", "x"}},
		"t1-prefix": {Tenant: "t1", EventTypes: []string{"domain.*"}}, "p-prefix": {Partner: "p", EventTypes: []string{"domain.*"}},
		"t1-ann": {Tenant: "t1", Identities: []string{"ann", "bob"}}, "platform-ann": {Identities: []string{"ann"}}, "p-ann": {Partner: "p", Identities: []string{"ann"}},
	} {
		x.add(name, w)
	}
	return x
}

func (x *town) add(name string, w engine.Webhook) {
	x.t.Helper()
	w.URL, w.Profile = x.r.URL+"/"+name, "pylota"
	ep, _, err := x.CreateWebhook(x.t.Context(), w, engine.Actor{})
	if err != nil {
		x.t.Fatal(err)
	}
	x.eps[name] = ep
}

// got names the endpoints that an event was sent to, and gives its body.
func (x *town) got(id string) (names []string, body []byte) {
	seen := map[string]int{}
	for _, r := range x.r.Requests() {
		if r.ID() == id {
			seen[strings.Fields(r.Line)[1][1:]]++
			body = r.Body
		}
	}
	for name, n := range seen {
		if n != 1 {
			x.t.Errorf("%s got %s %d times", name, id, n)
		}
	}
	return slices.Sorted(maps.Keys(seen)), body
}

// wanted holds what was sent, what the store has, and what replay would choose
// against the names of endpoints.
func (x *town) wanted(t *testing.T, what, id string, names ...string) {
	t.Helper()
	slices.Sort(names)
	if got, _ := x.got(id); !slices.Equal(got, names) {
		t.Errorf("%s: sent to %v, want %v", what, got, names)
	}
	var rows []string
	for _, d := range x.deliveries(id) {
		for name, ep := range x.eps {
			if ep.ID == d.EndpointID {
				rows = append(rows, name)
			}
		}
	}
	if slices.Sort(rows); !slices.Equal(rows, names) {
		t.Errorf("%s: deliveries of %v, want %v", what, rows, names)
	}
	for name, ep := range x.eps {
		if !x.endpoint(ep.ID).Enabled {
			continue
		}
		ev, err := x.bed.Store().Event(t.Context(), nil, id)
		if err != nil {
			t.Fatal(err)
		}
		_, err = x.CheckReplay(t.Context(), ep.ID, []int64{ev.Key}, func(int) string { return "ids[0]" })
		if (err == nil) != slices.Contains(names, name) {
			t.Errorf("%s: replay to %s: %v", what, name, err)
		}
	}
}

// Every rule by which an event finds its endpoints, for new events and replay
// alike.
func TestVisibility(t *testing.T) { both(t, testVisibility) }

func testVisibility(t *testing.T, b *bed) {
	x := newTown(t, b)
	rows := []struct {
		what string
		ev   surehook.Event
		want []string
	}{
		{"an event of a partner's tenant", surehook.Event{Type: "message.received", Tenant: "t1"}, []string{"platform", "platform2", "p", "p2", "t1", "t1-exact"}},
		{"one of its other tenant", surehook.Event{Type: "message.received", Tenant: "t2"}, []string{"platform", "platform2", "p", "p2", "t2"}},
		{"one of another partner's tenant", surehook.Event{Type: "message.received", Tenant: "t3"}, []string{"platform", "platform2", "q", "t3"}},
		{"one of a tenant without a partner", surehook.Event{Type: "message.received", Tenant: "t4"}, []string{"platform", "platform2", "t4"}},
		{"one of a tenant that nobody named", surehook.Event{Type: "message.received", Tenant: "t5"}, []string{"platform", "platform2"}},
		{"one of a tenant with a partner's name", surehook.Event{Type: "message.received", Tenant: "p"}, []string{"platform", "platform2"}},
		{"one without a tenant", surehook.Event{Type: "message.received"}, []string{"platform", "platform2"}},
		{"a type that nobody has seen", surehook.Event{Type: "later.than-all", Tenant: "t4"}, []string{"platform", "platform2", "t4"}},
		{"an exact type, and a prefix", surehook.Event{Type: "domain.verified", Tenant: "t1"},
			[]string{"platform", "platform2", "platform-exact", "p", "p2", "p-prefix", "t1", "t1-prefix"}},
		{"deeper below a prefix", surehook.Event{Type: "domain.dns.failed", Tenant: "t1"}, []string{"platform", "platform2", "p", "p2", "p-prefix", "t1", "t1-prefix"}},
		{"a prefix isn't its own", surehook.Event{Type: "domain", Tenant: "t1"}, []string{"platform", "platform2", "p", "p2", "t1"}},
		{"nor the beginning of a name", surehook.Event{Type: "domains.x", Tenant: "t1"}, []string{"platform", "platform2", "p", "p2", "t1"}},
		{"of an identity", surehook.Event{Type: "message.received", Tenant: "t1", Identity: "ann"},
			[]string{"platform", "platform2", "platform-ann", "p", "p2", "p-ann", "t1", "t1-exact", "t1-ann"}},
		{"of another identity", surehook.Event{Type: "message.received", Tenant: "t1", Identity: "bob"},
			[]string{"platform", "platform2", "p", "p2", "t1", "t1-exact", "t1-ann"}},
		{"of nobody's identity", surehook.Event{Type: "message.received", Tenant: "t1", Identity: "eve"}, []string{"platform", "platform2", "p", "p2", "t1", "t1-exact"}},
		{"of an identity elsewhere", surehook.Event{Type: "x", Tenant: "t3", Identity: "ann"}, []string{"platform", "platform2", "platform-ann", "q", "t3"}},
	}
	ids := make([]string, len(rows))
	for i, row := range rows {
		row.ev.Data = []byte(`1`)
		r, err := x.Publish(t.Context(), row.ev)
		if err != nil || r.Deliveries != len(row.want) {
			t.Fatalf("%s: %+v, %v", row.what, r, err)
		}
		ids[i] = r.ID
	}
	x.idle()
	for i, row := range rows {
		t.Run(row.what, func(t *testing.T) { x.wanted(t, row.what, ids[i], row.want...) })
	}
}

// What tells of a disabled endpoint goes to the platform, and to the other
// endpoints of its partner; and a test to nobody else.
func TestPlatformEventsVisibility(t *testing.T) { both(t, testPlatformEvents) }

func testPlatformEvents(t *testing.T, b *bed) {
	x := newTown(t, b)
	for _, c := range []struct {
		name   string
		w      engine.Webhook
		tenant string // of the event that gets the 410
		want   []string
	}{
		{gone + "-t1", engine.Webhook{Tenant: "t1"}, "t1", []string{"platform", "platform2", "p", "p2"}},
		{gone + "-t4", engine.Webhook{Tenant: "t4"}, "t4", []string{"platform", "platform2"}},
		{gone + "-p", engine.Webhook{Partner: "p"}, "t2", []string{"platform", "platform2", "p", "p2"}},
		{gone + "-platform", engine.Webhook{}, "t3", []string{"platform", "platform2"}},
	} {
		c.w.EventTypes = []string{"only." + c.name, surehook.TypeDisabled} // it would get the news of itself, if any
		x.add(c.name, c.w)
		ep := x.eps[c.name]
		if _, err := x.Publish(t.Context(), surehook.Event{Type: "only." + c.name, Tenant: c.tenant, Data: []byte(`1`)}); err != nil {
			t.Fatal(err)
		}
		var news *surehook.Event
		x.until("the news of "+c.name, func() bool {
			es, err := x.bed.Store().ListEvents(t.Context(), surehook.EventFilter{Type: surehook.TypeDisabled}, surehook.Page{Limit: 100})
			if err != nil {
				t.Fatal(err)
			}
			i := slices.IndexFunc(es, func(e *surehook.Event) bool { return e.About == ep.ID })
			if i >= 0 {
				news = es[i]
			}
			return news != nil
		})
		x.idle()
		x.wanted(t, "the news of "+c.name, news.ID, c.want...)
		x.told(news, ep, surehook.ReasonGone)
		if err := x.DeleteWebhook(t.Context(), ep.ID, engine.Actor{}); err != nil { // the news of it is still its partner's
			t.Fatal(err)
		}
		delete(x.eps, c.name)
		x.wanted(t, "the news of what is deleted", news.ID, c.want...)
	}
	a, err := x.TestWebhook(t.Context(), x.eps["t1"].ID, engine.Actor{})
	if err != nil {
		t.Fatal(err)
	}
	x.idle()
	if names, _ := x.got(a.EventID); !slices.Equal(names, []string{"t1"}) {
		t.Errorf("a test was sent to %v", names)
	}
}

// told checks the body of such news.
func (x *town) told(news *surehook.Event, ep *surehook.Endpoint, reason string) {
	x.t.Helper()
	_, body := x.got(news.ID)
	tenant := "null"
	if ep.Tenant != "" {
		tenant = `"` + ep.Tenant + `"`
	}
	want := fmt.Sprintf(`{"id":%q,"type":"webhook.disabled","api_version":"2026-10-01","occurred_at":%q,"tenant_id":%s,"identity_id":null,"sequence":null,`+
		`"data":{"webhook_id":%q,"reason":%q}}`, news.ID, news.OccurredAt.UTC().Format("2006-01-02T15:04:05.000Z"), tenant, ep.ID, reason)
	if string(body) != want {
		x.t.Errorf("got  %s\nwant %s", body, want)
	}
}

// An endpoint gets what is accepted after it was made, and older events by replay
// alone; and a partner what was accepted while a tenant was its own.
func TestVisibilityInTime(t *testing.T) { both(t, testVisibilityInTime) }

func testVisibilityInTime(t *testing.T, b *bed) {
	x := newTown(t, b)
	publish := func() string {
		t.Helper()
		r, err := x.Publish(t.Context(), surehook.Event{Type: "a", Tenant: "t1", Data: []byte(`1`)})
		if err != nil {
			t.Fatal(err)
		}
		x.idle()
		return r.ID
	}
	old := publish()
	x.add("late", engine.Webhook{Tenant: "t1"})
	if err := x.PutTenant(t.Context(), &surehook.Tenant{ID: "t1", Partner: "q"}, "tenant.put", engine.Actor{}); err != nil {
		t.Fatal(err)
	}
	young := publish()
	x.wanted(t, "after the move", young, "platform", "platform2", "q", "t1", "late")
	if names, _ := x.got(old); slices.Contains(names, "late") || slices.Contains(names, "q") {
		t.Errorf("an old event was sent to %v", names)
	}
	if r, err := x.Replay(t.Context(), x.eps["late"].ID, engine.ReplayRequest{IDs: []string{old}}, engine.Actor{}); err != nil || r.Queued != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	if r, err := x.Replay(t.Context(), x.eps["p"].ID, engine.ReplayRequest{IDs: []string{old}}, engine.Actor{}); err != nil || r.Queued != 1 {
		t.Errorf("the partner of the time: %+v, %v", r, err)
	}
	for name, id := range map[string]string{"q": old, "p": young} {
		if _, err := x.Replay(t.Context(), x.eps[name].ID, engine.ReplayRequest{IDs: []string{id}}, engine.Actor{}); surehook.CodeOf(err) != surehook.InvalidRequest {
			t.Errorf("another partner's event is replayed to %s: %v", name, err)
		}
	}
	x.until("the replay arrives", func() bool {
		return slices.ContainsFunc(x.r.Requests(), func(r receivertest.Request) bool { return r.ID() == old && strings.Contains(r.Line, "/late") })
	})
	x.idle()
}

// Two tenants' events with one id are two to everybody: a receiver that sees both
// knows them by two webhook-ids, and each tenant by its own.
func TestOneIDOfTwoTenants(t *testing.T) { both(t, testOneID) }

func testOneID(t *testing.T, b *bed) {
	x := newTown(t, b)
	for _, tenant := range []string{"t1", "t3", "t2"} {
		for range 2 { // a repeat is one
			if _, err := x.Publish(t.Context(), surehook.Event{ID: "order:1", Type: "a", Tenant: tenant, Owner: "o", Data: []byte(`"` + tenant + `"`)}); err != nil {
				t.Fatal(err)
			}
		}
	}
	x.idle()
	ids := map[string]map[string]bool{}
	for _, r := range x.r.Requests() {
		name := strings.Fields(r.Line)[1][1:]
		var body struct {
			ID   string
			Data string
		}
		if err := json.Unmarshal(r.Body, &body); err != nil || body.ID != r.ID() {
			t.Errorf("id %q in %s, %v", r.ID(), r.Body, err)
		}
		if ids[name] == nil {
			ids[name] = map[string]bool{}
		}
		if ids[name][r.ID()] {
			t.Errorf("%s got %s twice", name, r.ID())
		}
		ids[name][r.ID()] = true
		if strings.HasPrefix(name, "t") && r.ID() != "order:1" || body.Data == "t1" && r.ID() != "order:1" {
			t.Errorf("%s got %s of %s", name, r.ID(), body.Data)
		}
	}
	for name, n := range map[string]int{"platform": 3, "p": 2, "q": 1, "t1": 1, "t2": 1, "t3": 1} {
		if len(ids[name]) != n {
			t.Errorf("%s knows %v", name, ids[name])
		}
	}
	// The webhook-id that an endpoint knows is what it may ask for again.
	for id := range ids["platform"] {
		if r, err := x.Replay(t.Context(), x.eps["platform"].ID, engine.ReplayRequest{IDs: []string{id}}, engine.Actor{}); err != nil || r.Queued != 1 {
			t.Errorf("replay of %s: %+v, %v", id, r, err)
		}
	}
	x.idle()
	again := map[string]int{}
	for _, r := range x.r.Requests() {
		if strings.HasSuffix(strings.Fields(r.Line)[1], "/platform") {
			again[r.ID()]++
		}
	}
	for id, n := range again {
		if n != 2 {
			t.Errorf("%s arrived %d times", id, n)
		}
	}
}
