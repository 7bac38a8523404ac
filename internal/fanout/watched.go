package fanout

import (
	"slices"
	"strings"
	"sync"

	"github.com/surehook/surehook"
)

// watched holds the endpoints of one scope's sentinels by the subjects that they
// watch. An event looks up each of its subjects, and those of its subjects' beginnings
// that are as long as some prefix: so it costs no more when there are more sentinels.
type watched struct {
	exact  map[string]map[int64]*surehook.Endpoint
	prefix map[string]map[int64]*surehook.Endpoint // without their "*"
	sizes  []int                                   // lengths of prefixes, ascending
	of     map[int]int                             // how many prefixes have a length
}

func newWatched() watched {
	return watched{exact: map[string]map[int64]*surehook.Endpoint{}, prefix: map[string]map[int64]*surehook.Endpoint{}, of: map[int]int{}}
}

func (w *watched) empty() bool { return len(w.exact)+len(w.prefix) == 0 }

// add takes a sentinel in, unless it matches nothing.
func (w *watched) add(e *surehook.Endpoint) {
	if !e.Sentinel.Status.Matches() {
		return
	}
	for _, c := range e.Sentinel.Match {
		stem, ok := strings.CutSuffix(surehook.FoldSubject(c.Subject), "*")
		if !ok {
			put(w.exact, stem, e)
			continue
		}
		if w.prefix[stem] == nil {
			if w.of[len(stem)]++; w.of[len(stem)] == 1 {
				i, _ := slices.BinarySearch(w.sizes, len(stem))
				w.sizes = slices.Insert(w.sizes, i, len(stem))
			}
		}
		put(w.prefix, stem, e)
	}
}

// remove takes one out, if it is in.
func (w *watched) remove(e *surehook.Endpoint) {
	if e.Sentinel == nil {
		return
	}
	for _, c := range e.Sentinel.Match {
		stem, ok := strings.CutSuffix(surehook.FoldSubject(c.Subject), "*")
		if !ok {
			take(w.exact, stem, e)
			continue
		}
		if w.prefix[stem] == nil {
			continue
		}
		if take(w.prefix, stem, e); w.prefix[stem] != nil {
			continue
		}
		if w.of[len(stem)]--; w.of[len(stem)] == 0 {
			delete(w.of, len(stem))
			i, _ := slices.BinarySearch(w.sizes, len(stem))
			w.sizes = slices.Delete(w.sizes, i, i+1)
		}
	}
}

// match adds the endpoints of sentinels that an event is something to.
func (w *watched) match(ev *surehook.Event, out []*surehook.Endpoint) []*surehook.Endpoint {
	if w.empty() {
		return out
	}
	terminal := sync.OnceValue(ev.Terminal)
	for _, subject := range ev.Subjects {
		subject = surehook.FoldSubject(subject)
		out = sights(w.exact[subject], ev, terminal, out)
		for _, n := range w.sizes {
			if n > len(subject) {
				break
			}
			out = sights(w.prefix[subject[:n]], ev, terminal, out)
		}
	}
	return out
}

func sights(from map[int64]*surehook.Endpoint, ev *surehook.Event, terminal func() bool, out []*surehook.Endpoint) []*surehook.Endpoint {
	for _, e := range from {
		if _, ok := e.Sentinel.Sighting(ev, terminal); ok && e.ID != ev.About {
			out = append(out, e)
		}
	}
	return out
}
