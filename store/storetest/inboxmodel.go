package storetest

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/surehook/surehook"
)

// InboxModel runs random operations on an inbox against what must hold of it: no event
// is lost, none is given under two numbers, numbers never go back, and what a reader
// has passed never comes behind it.
func InboxModel(t *testing.T, open Factory) {
	e := newEnv(t, open)
	rapid.Check(t, func(rt *rapid.T) {
		e.tb = rt
		m := &inboxModel{env: e, ep: e.endpoint(own), waits: make(map[int64]int64)}
		rt.Repeat(map[string]func(*rapid.T){
			"append": m.append, "pull": m.pull, "finish": m.finish, "replay": m.replay, "trim": m.trim, "erase": m.erase,
			"advance": func(rt *rapid.T) {
				e.clock.Advance(time.Duration(rapid.IntRange(1, 1000).Draw(rt, "ms")) * time.Millisecond)
			},
			"crash": func(rt *rapid.T) {
				if rapid.IntRange(0, 3).Draw(rt, "luck") == 0 {
					e.reopen()
				}
			},
		})
		m.all()
	})
	e.tb = t
}

type inboxModel struct {
	env     *env
	ep      *surehook.Endpoint
	waits   map[int64]int64 // events that wait, by key, with the number that each was last given under; 0: none yet
	events  []int64         // all that can be replayed
	last    int64           // the highest number that was seen
	dropped int64
}

func (m *inboxModel) append(rt *rapid.T) {
	for range rapid.IntRange(1, 3).Draw(rt, "events") {
		key := m.env.publish(false, m.ep)[0].EventKey
		m.waits[key], m.events = 0, append(m.events, key)
	}
}

func (m *inboxModel) pull(rt *rapid.T) {
	m.check(rapid.Int64Range(0, m.last).Draw(rt, "after"), rapid.IntRange(1, 5).Draw(rt, "limit"))
}

// check pulls a page, and holds it against what is known.
func (m *inboxModel) check(after int64, limit int) surehook.Pulled {
	p := m.env.pull(m.ep.Key, after, limit)
	m.env.same("dropped", p.Dropped, m.dropped)
	at, highest := after, m.last
	for _, it := range p.Items {
		known, waits := m.waits[it.Event.Key]
		switch {
		case !waits:
			m.env.Fatalf("event %d is given, and doesn't wait", it.Event.Key)
		case it.Number <= at:
			m.env.Fatalf("number %d follows %d", it.Number, at)
		case known != 0 && known != it.Number:
			m.env.Fatalf("event %d has the number %d, and had %d", it.Event.Key, it.Number, known)
		case known == 0 && it.Number <= m.last:
			m.env.Fatalf("event %d got the number %d behind a reader at %d", it.Event.Key, it.Number, m.last)
		}
		at, highest = it.Number, max(highest, it.Number)
		m.waits[it.Event.Key] = it.Number
	}
	m.last = highest
	if p.Last < m.last {
		m.env.Fatalf("the last number is %d, and %d was given", p.Last, m.last)
	}
	if len(p.Items) < limit && !p.More {
		for key, number := range m.waits {
			if number == 0 {
				m.env.Fatalf("event %d waits, and isn't given to who reads to the end", key)
			}
		}
	}
	return p
}

// all reads from the top to the end: exactly what waits is there.
func (m *inboxModel) all() {
	n := 0
	for after := int64(0); ; {
		p := m.check(after, 3)
		if n += len(p.Items); len(p.Items) == 0 {
			break
		}
		after = p.Items[len(p.Items)-1].Number
	}
	m.env.same("events that wait", n, len(m.waits))
}

func (m *inboxModel) finish(rt *rapid.T) {
	upTo := rapid.Int64Range(0, m.last).Draw(rt, "up to")
	rows, err := m.env.s.Numbered(m.env.ctx, m.ep.Key, upTo, 100)
	m.env.ok(err)
	want := 0
	for key, number := range m.waits {
		if number != 0 && number <= upTo {
			want++
			delete(m.waits, key)
		}
	}
	if len(rows) < want {
		m.env.Fatalf("%d rows up to %d, want %d", len(rows), upTo, want)
	}
	for _, d := range rows {
		m.env.record(m.env.outcome(d, surehook.Finish))
		delete(m.waits, d.EventKey) // one that was numbered and not seen yet
	}
}

func (m *inboxModel) replay(rt *rapid.T) {
	if len(m.events) == 0 {
		return
	}
	key := rapid.SampledFrom(m.events).Draw(rt, "event")
	m.env.replay(m.ep, key)
	m.waits[key] = 0
}

func (m *inboxModel) trim(rt *rapid.T) {
	most := rapid.Int64Range(1, 6).Draw(rt, "events")
	n, _, err := m.env.s.Trim(m.env.ctx, m.ep.Key, &surehook.InboxBound{Events: most}, surehook.InboxFull, 100)
	m.env.ok(err)
	m.env.same("ended", n, max(len(m.waits)-int(most), 0))
	m.dropped += int64(n)
	if n == 0 {
		return
	}
	left := make(map[int64]bool)
	for _, it := range m.env.pull(m.ep.Key, 0, 1000).Items {
		left[it.Event.Key] = true
	}
	oldest := int64(0)
	for key, number := range m.waits {
		if !left[key] {
			oldest = max(oldest, number)
			delete(m.waits, key)
		}
	}
	for _, number := range m.waits {
		if number != 0 && number < oldest {
			m.env.Fatalf("%d is there, and %d went before it", number, oldest)
		}
	}
}

func (m *inboxModel) erase(rt *rapid.T) {
	if len(m.events) == 0 || rapid.IntRange(0, 3).Draw(rt, "luck") > 0 {
		return
	}
	i := rapid.IntRange(0, len(m.events)-1).Draw(rt, "event")
	key := m.events[i]
	_, err := m.env.s.Erase(m.env.ctx, surehook.Erasure{Keys: []int64{key}}, 1, nil)
	m.env.ok(err)
	if _, waits := m.waits[key]; waits {
		m.dropped++
		delete(m.waits, key)
	}
	m.events = append(m.events[:i:i], m.events[i+1:]...)
}
