package storetest

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/surehook/surehook"
)

var inboxTests = map[string]func(*env){
	"Inboxes/numbers ascend in order of arrival, and none comes twice": inboxNumbers,
	"Inboxes/pages by number and by bytes":                             inboxPages,
	"Inboxes/what is finished is gone":                                 inboxFinish,
	"Inboxes/a replay goes to the end":                                 inboxReplay,
	"Inboxes/what leaves otherwise is counted":                         inboxDropped,
	"Inboxes/the oldest go over the bound":                             inboxTrim,
	"Inboxes/nobody else's":                                            inboxForeign,
	"Inboxes/rows aren't due, and outlive a crash":                     inboxRows,
	"Inboxes/readers and writers at once":                              inboxRace,
	"Inboxes/states":                                                   inboxStates,
	"PullSessions/open, go on, end":                                    pullLife,
	"PullSessions/one inbox of several endpoints":                      pullInbox,
	"PullSessions/end when idle":                                       pullIdle,
	"PullSessions/are their scope's own":                               pullScope,
	"PullSessions/are forgotten when nothing is left":                  pullForget,
}

func own(ep *surehook.Endpoint) { ep.URL, ep.Inbox = "", surehook.OwnInbox }

func (e *env) pull(inbox, after int64, limit int) surehook.Pulled {
	e.Helper()
	out, err := e.s.Pull(e.ctx, inbox, after, limit, 1<<30)
	e.ok(err)
	return out
}

func numbersOf(p surehook.Pulled) []int64 {
	var out []int64
	for _, it := range p.Items {
		out = append(out, it.Number)
	}
	return out
}

func eventsOf(p surehook.Pulled) []int64 {
	var out []int64
	for _, it := range p.Items {
		out = append(out, it.Event.Key)
	}
	return out
}

// finish acknowledges items.
func (e *env) finish(items ...surehook.Item) {
	e.Helper()
	for _, it := range items {
		e.record(e.outcome(it.Delivery, surehook.Finish))
	}
}

func inboxNumbers(e *env) {
	ep := e.endpoint(own)
	e.same("its own", ep.Inbox, ep.Key)
	e.same("stored", e.reload(ep).Inbox, ep.Key)
	e.same("empty", e.pull(ep.Key, 0, 10), surehook.Pulled{})
	_, none := e.s.Numbered(e.ctx, ep.Key, 1, 10)
	e.code(none, surehook.CursorExpired)
	var want []int64
	for range 3 {
		want = append(want, e.publish(false, ep)[0].EventKey)
	}
	got := e.pull(ep.Key, 0, 10)
	e.same("in order", eventsOf(got), want)
	e.same("numbers", numbersOf(got), []int64{1, 2, 3})
	e.same("again the same", e.pull(ep.Key, 0, 10), got)
	e.same("the event is whole", string(got.Items[0].Event.Data), `{"n":1}`)
	e.same("its row", []any{got.Items[0].Delivery.EndpointKey, got.Items[0].Delivery.Attempt, got.Items[0].Delivery.FirstAttempt}, []any{ep.Key, 0, 1})
	e.finish(got.Items...)
	e.reopen()
	e.publish(false, ep)
	e.same("goes on behind", numbersOf(e.pull(ep.Key, 3, 10)), []int64{4})
	e.same("also for who asks from the top", numbersOf(e.pull(ep.Key, 0, 10)), []int64{4})
	_, err := e.s.Pull(e.ctx, ep.Key+1_000_000, 0, 10, 1)
	e.code(err, surehook.NotFound)
}

func inboxPages(e *env) {
	ep := e.endpoint(own)
	for range 7 {
		ev := e.event()
		ev.Data = []byte(`"` + strings.Repeat("x", 98) + `"`)
		e.publishEvent(ev, false, ep)
	}
	var seen []int64
	for after, more := int64(0), true; more; {
		p := e.pull(ep.Key, after, 3)
		seen, more = append(seen, numbersOf(p)...), p.More || len(p.Items) == 3
		if len(p.Items) > 0 {
			after = p.Items[len(p.Items)-1].Number
		}
	}
	e.same("all, once", seen, []int64{1, 2, 3, 4, 5, 6, 7})
	for _, c := range []struct{ bytes, items int }{{1, 1}, {100, 1}, {101, 2}, {250, 3}} {
		p, err := e.s.Pull(e.ctx, ep.Key, 0, 100, c.bytes)
		e.ok(err)
		e.same(fmt.Sprintf("in %d bytes", c.bytes), []any{len(p.Items), p.More}, []any{c.items, true})
	}
}

func inboxFinish(e *env) {
	ep := e.endpoint(own)
	for range 5 {
		e.publish(false, ep)
	}
	p := e.pull(ep.Key, 0, 10)
	up, err := e.s.Numbered(e.ctx, ep.Key, 3, 10)
	e.ok(err)
	e.same("up to a number", up, []surehook.Delivery{p.Items[0].Delivery, p.Items[1].Delivery, p.Items[2].Delivery})
	up, err = e.s.Numbered(e.ctx, ep.Key, 3, 2)
	e.ok(err)
	e.same("at most", len(up), 2)
	e.finish(p.Items[:3]...)
	e.same("left", numbersOf(e.pull(ep.Key, 0, 10)), []int64{4, 5})
	e.same("delivered", e.view(p.Items[0].Delivery).Status, surehook.Succeeded)
	e.same("one attempt", len(e.attempts(p.Items[0].Delivery)), 1)
	e.same("the others wait, for no time", []any{e.view(p.Items[4].Delivery).Status, e.view(p.Items[4].Delivery).NextAttemptAt}, []any{surehook.Pending, time.Time{}})
	e.same("nothing was dropped", e.pull(ep.Key, 0, 10).Dropped, int64(0))
	r, err := e.s.Record(e.ctx, []surehook.Outcome{e.outcome(p.Items[0].Delivery, surehook.Finish)}, nil)
	e.ok(err)
	e.same("a second time", r, surehook.Recorded{})
}

func inboxReplay(e *env) {
	ep := e.endpoint(own)
	for range 3 {
		e.publish(false, ep)
	}
	p := e.pull(ep.Key, 0, 10)
	e.finish(p.Items[0])
	e.clock.Advance(time.Second)
	e.replay(ep, p.Items[0].Event.Key)
	e.replay(ep, p.Items[1].Event.Key) // that still waits
	got := e.pull(ep.Key, 0, 10)
	e.same("numbers", numbersOf(got), []int64{3, 4, 5})
	e.same("the same events", slices.Sorted(slices.Values(eventsOf(got))), eventsOf(p))
	e.same("a new run", []any{got.Items[1].Delivery.Attempt, got.Items[1].Delivery.FirstAttempt}, []any{1, 2})
	up, err := e.s.Numbered(e.ctx, ep.Key, 2, 10)
	e.ok(err)
	e.same("not under its old number", len(up), 0)
	e.finish(got.Items...)
	e.same("done", len(e.pull(ep.Key, 0, 10).Items), 0)
}

func inboxDropped(e *env) {
	ep, other := e.endpoint(own), e.endpoint(own)
	var ds []surehook.Delivery
	for range 4 {
		ds = append(ds, e.publish(false, ep, other)[0])
	}
	e.pull(ep.Key, 0, 10)
	_, err := e.s.Erase(e.ctx, surehook.Erasure{Keys: []int64{ds[1].EventKey}}, 10, nil)
	e.ok(err)
	p := e.pull(ep.Key, 0, 10)
	e.same("without it", numbersOf(p), []int64{1, 3, 4})
	e.same("told", p.Dropped, int64(1))
	e.same("dead", e.view(ds[1]).LastCode, surehook.EventUnavailable)
	e.publish(false, ep, other)
	e.clock.Advance(40 * days)
	n, _, err := e.s.Expire(e.ctx, ep.Key, surehook.Window{Most: 30 * days}, surehook.Place{}, 100)
	e.ok(err)
	e.same("out of their window", n, 4)
	e.same("told, whether it had its number or not", e.pull(ep.Key, 0, 10), surehook.Pulled{Dropped: 5, Last: 4})
	e.same("nobody else's", e.pull(other.Key, 0, 10).Dropped, int64(1))
}

func inboxTrim(e *env) {
	ep := e.endpoint(own)
	var ds []surehook.Delivery
	for range 10 {
		ds = append(ds, e.publish(false, ep)[0]) // 7 bytes each
	}
	trim := func(b *surehook.InboxBound, limit int) (int, bool) {
		n, more, err := e.s.Trim(e.ctx, ep.Key, b, surehook.InboxFull, limit)
		e.ok(err)
		return n, more
	}
	n, more := trim(&surehook.InboxBound{}, 100)
	e.same("no bound", []any{n, more}, []any{0, false})
	n, more = trim(&surehook.InboxBound{Events: 10, Bytes: 70}, 100)
	e.same("just within", []any{n, more}, []any{0, false})
	n, more = trim(&surehook.InboxBound{Events: 8}, 1)
	e.same("a step", []any{n, more}, []any{1, true})
	n, more = trim(&surehook.InboxBound{Events: 8}, 100)
	e.same("the rest", []any{n, more}, []any{1, false})
	n, _ = trim(&surehook.InboxBound{Events: 100, Bytes: 48}, 100)
	e.same("by bytes", n, 2)
	p := e.pull(ep.Key, 0, 100)
	e.same("left", []any{numbersOf(p), p.Dropped}, []any{[]int64{5, 6, 7, 8, 9, 10}, int64(4)})
	e.same("letters", len(e.letters()), 4)
	e.same("why", e.view(ds[0]).LastCode, surehook.InboxFull)
	e.replay(ep, ds[0].EventKey)
	e.same("replayed", numbersOf(e.pull(ep.Key, 10, 100)), []int64{11})
	n, _ = trim(nil, 100)
	e.same("all", n, 7)
	e.same("empty", e.pull(ep.Key, 0, 100), surehook.Pulled{Dropped: 11, Last: 11})
}

func inboxForeign(e *env) {
	a, b, plain := e.endpoint(own), e.endpoint(own), e.endpoint()
	e.publish(false, a, plain)
	e.publish(false, b)
	e.same("a", len(e.pull(a.Key, 0, 10).Items), 1)
	e.same("b", len(e.pull(b.Key, 0, 10).Items), 1)
	_, err := e.s.Pull(e.ctx, plain.Key, 0, 10, 1)
	e.code(err, surehook.NotFound)
	e.same("the webhook's is due", len(e.claim(plain, 10).Rows), 1)
	up, err := e.s.UpdateEndpoint(e.ctx, a.ID, func(ep *surehook.Endpoint) error { ep.Inbox = b.Key; return nil }, nil)
	e.ok(err)
	e.same("an inbox stays", up.Inbox, a.Key)
	up, err = e.s.UpdateEndpoint(e.ctx, a.ID, func(ep *surehook.Endpoint) error { ep.Urgency = "steer"; return nil }, nil)
	e.ok(err)
	e.same("urgency", up.Urgency, "steer")
	e.ok(e.s.DeleteEndpoint(e.ctx, b.ID, nil))
	n, err := e.s.End(e.ctx, b.Key, surehook.EndpointDisabled, false, false, 10)
	e.ok(err)
	e.same("what waits goes with its endpoint", n, 1)
}

func inboxRows(e *env) {
	ep := e.endpoint(own)
	e.publish(false, ep)
	e.publish(false, ep)
	due, err := e.s.Due(e.ctx)
	e.ok(err)
	e.same("what has no number is due", len(due), 1)
	e.pull(ep.Key, 0, 10)
	due, err = e.s.Due(e.ctx)
	e.ok(err)
	e.same("what has one isn't", len(due), 0)
	e.reopen()
	e.same("counted", e.pending(), surehook.PendingCount{Waiting: 2})
	e.same("after a crash", numbersOf(e.pull(ep.Key, 0, 10)), []int64{1, 2})
	e.same("listed", len(e.deliveries(ep, surehook.Pending)), 2)
}

func (e *env) deliveries(ep *surehook.Endpoint, status surehook.DeliveryStatus) []surehook.DeliveryView {
	e.Helper()
	out, err := e.s.ListDeliveries(e.ctx, surehook.DeliveryFilter{Endpoint: ep.Key, Status: status}, surehook.Page{Limit: 1000})
	e.ok(err)
	return out
}

// inboxRace has writers and readers at one inbox. Each reader goes on from where it
// was, and sees each event once, whoever gave out the numbers.
func inboxRace(e *env) {
	const writers, each, readers = 4, 25, 3
	ep := e.endpoint(own)
	version := e.version()
	var events [writers * each]*surehook.Event
	for i := range events {
		events[i] = e.event()
	}
	errs := make(chan error, writers+readers)
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for _, ev := range events[w*each : (w+1)*each] {
				if _, err := e.s.Append(e.ctx, version, []surehook.Append{{Event: ev, Targets: []surehook.Target{{EndpointKey: ep.Key}}}}); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	var seen [readers][]int64
	for r := range readers {
		wg.Go(func() {
			for after := int64(0); len(seen[r]) < writers*each; {
				p, err := e.s.Pull(e.ctx, ep.Key, after, 7, 1<<20)
				if err != nil {
					errs <- err
					return
				}
				for _, it := range p.Items {
					if it.Number != after+1 {
						errs <- fmt.Errorf("number %d follows %d", it.Number, after)
						return
					}
					after = it.Number
					seen[r] = append(seen[r], it.Event.Key)
				}
			}
		})
	}
	wg.Wait()
	close(errs)
	for err := range errs {
		e.ok(err)
	}
	for r := range seen {
		e.same("one order for all", seen[r], seen[0])
		e.same("each once", len(slices.Compact(slices.Sorted(slices.Values(seen[r])))), writers*each)
	}
}

func inboxStates(e *env) {
	a, b := e.endpoint(own), e.endpoint(own)
	first := ms(e.clock.Now())
	e.publish(false, a)
	e.clock.Advance(time.Minute)
	e.publish(false, a)
	e.pull(a.Key, 0, 10)
	want := surehook.InboxState{Inbox: a.Key, Events: 2, Bytes: 14, Oldest: first}
	all, err := e.s.InboxStates(e.ctx)
	e.ok(err)
	e.same("those that hold something", all, []surehook.InboxState{want})
	some, err := e.s.InboxStates(e.ctx, a.Key, b.Key)
	e.ok(err)
	e.same("by key", some, []surehook.InboxState{want, {Inbox: b.Key}})
}
