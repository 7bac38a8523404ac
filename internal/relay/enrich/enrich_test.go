package enrich

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"reflect"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/surehook/surehook/internal/relay/audit"
	"github.com/surehook/surehook/internal/relay/config"
)

func labelled(values ...string) []audit.Event {
	events := make([]audit.Event, len(values))
	for i, v := range values {
		events[i].Labels = map[string]string{"tenant": v}
	}
	return events
}

func chain(t *testing.T, o Options, list ...config.Enrichment) *Chain {
	t.Helper()
	c, err := New(list, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// counted counts results.
type counted struct {
	mu sync.Mutex
	n  map[string]int
}

func (c *counted) observe(name string, r Result) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.n == nil {
		c.n = map[string]int{}
	}
	c.n[name+" "+string(r)]++
}

func TestLookup(t *testing.T) {
	var n counted
	c := chain(t, Options{Observe: n.observe},
		config.Enrichment{Type: config.Lookup, OnLabel: "tenant", Table: map[string]map[string]string{"acme": {"owner": "payments", "tenant": "other", "purple_wolf.x": "no"}}},
		config.Enrichment{Type: config.Lookup, OnLabel: "owner", Table: map[string]map[string]string{"payments": {"oncall": "pager"}}})
	events := append(labelled("acme", "nobody"), audit.Event{})
	c.Apply(t.Context(), events)
	if want := map[string]string{"tenant": "acme", "owner": "payments", "oncall": "pager"}; !maps.Equal(events[0].Labels, want) {
		t.Errorf("%v", events[0].Labels)
	}
	if len(events[1].Labels) != 1 || events[2].Labels != nil {
		t.Errorf("%v %v", events[1].Labels, events[2].Labels)
	}
	if want := map[string]int{"lookup ok": 2, "lookup miss": 1}; !reflect.DeepEqual(n.n, want) {
		t.Errorf("%v", n.n)
	}
}

// server is a catalogue.
type server struct {
	*httptest.Server
	asked atomic.Int64

	mu     sync.Mutex
	answer http.HandlerFunc
}

// answers sets what it does from now on.
func (s *server) answers(f http.HandlerFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.answer = f
}

func serve(t *testing.T) *server {
	s := &server{answer: func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"owner":"of %s"}`, strings.TrimPrefix(r.URL.EscapedPath(), "/tenants/"))
	}}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.asked.Add(1)
		if b, _ := io.ReadAll(r.Body); r.Method != http.MethodGet || len(b) > 0 || r.Header.Get("Content-Length") != "" {
			t.Errorf("%s with %d bytes", r.Method, len(b))
		}
		s.mu.Lock()
		answer := s.answer
		s.mu.Unlock()
		answer(w, r)
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *server) enrichment() config.Enrichment {
	return config.Enrichment{Type: config.HTTP, OnLabel: "tenant", URL: s.URL + "/tenants/{value}", Timeout: 5 * time.Second, CacheTTL: time.Minute, CacheCapacity: 2,
		AllowNetworks: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128")}}
}

func TestHTTP_AsksOnceForEachValue(t *testing.T) {
	s, now := serve(t), time.Unix(0, 0)
	var n counted
	c := chain(t, Options{Observe: n.observe, Now: func() time.Time { return now }}, s.enrichment())
	events := labelled("a", "b", "a", "a")
	c.Apply(t.Context(), events)
	for _, ev := range events {
		if ev.Labels["owner"] != "of "+ev.Labels["tenant"] {
			t.Errorf("%v", ev.Labels)
		}
	}
	c.Apply(t.Context(), labelled("b", "a"))
	if s.asked.Load() != 2 {
		t.Errorf("asked %d times", s.asked.Load())
	}
	c.Apply(t.Context(), labelled("c")) // b was used longest ago
	c.Apply(t.Context(), labelled("a"))
	c.Apply(t.Context(), labelled("b"))
	if s.asked.Load() != 4 {
		t.Errorf("asked %d times", s.asked.Load())
	}
	now = now.Add(time.Minute)
	c.Apply(t.Context(), labelled("b"))
	if s.asked.Load() != 5 {
		t.Errorf("asked %d times", s.asked.Load())
	}
	if want := map[string]int{"http ok": 7, "http cached": 3}; !reflect.DeepEqual(n.n, want) {
		t.Errorf("%v", n.n)
	}
}

func TestHTTP_AValueIsOnePieceOfThePath(t *testing.T) {
	s := serve(t)
	c := chain(t, Options{}, s.enrichment())
	events := labelled("../../admin", "x?a=b#c", "ü{value}%")
	c.Apply(t.Context(), events)
	for i, want := range []string{"%2E%2E%2F%2E%2E%2Fadmin", "x%3Fa%3Db%23c", "%C3%BC%7Bvalue%7D%25"} {
		if got := events[i].Labels["owner"]; got != "of "+want {
			t.Errorf("%q", got)
		}
	}
}

// No failure is fatal, and none is kept for long.
func TestHTTP_FailuresCostTheLabelsAlone(t *testing.T) {
	for name, answer := range map[string]func(w http.ResponseWriter, r *http.Request){
		"500":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"404":      func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
		"redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/tenants/b", http.StatusFound) },
		"no JSON":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "hello") },
		"numbers":  func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"a":1}`) },
		"null":     func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `null`) },
		"a list":   func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `["a"]`) },
		"too large": func(w http.ResponseWriter, _ *http.Request) {
			fmt.Fprintf(w, `{"a":"%s"}`, strings.Repeat("x", maxAnswer))
		},
		"broken": func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		t.Run(name, func(t *testing.T) {
			s, now := serve(t), time.Unix(0, 0)
			s.answers(answer)
			var n counted
			c := chain(t, Options{Observe: n.observe, Now: func() time.Time { return now }}, s.enrichment())
			events := labelled("a")
			c.Apply(t.Context(), events)
			c.Apply(t.Context(), events) // not asked for again
			if len(events[0].Labels) != 1 || s.asked.Load() != 1 || n.n["http error"] != 2 {
				t.Errorf("%v, asked %d times, %v", events[0].Labels, s.asked.Load(), n.n)
			}
			now = now.Add(rest)
			s.answers(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"owner":"x"}`) })
			c.Apply(t.Context(), events)
			if events[0].Labels["owner"] != "x" {
				t.Errorf("%v", events[0].Labels)
			}
		})
	}
}

func TestHTTP_ACatalogueThatFailsIsLeftAlone(t *testing.T) {
	s, now := serve(t), time.Unix(0, 0)
	s.answers(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	c := chain(t, Options{Now: func() time.Time { return now }}, s.enrichment())
	for i := range 50 {
		c.Apply(t.Context(), labelled(fmt.Sprint(i)))
	}
	if s.asked.Load() != restAfter {
		t.Errorf("asked %d times", s.asked.Load())
	}
	now = now.Add(rest)
	c.Apply(t.Context(), labelled("again"))
	if s.asked.Load() != restAfter+1 {
		t.Errorf("asked %d times", s.asked.Load())
	}
}

// A catalogue that never answers holds a batch up for a bounded time.
func TestHTTP_Slow(t *testing.T) {
	s := serve(t)
	over := make(chan struct{})
	s.answers(func(http.ResponseWriter, *http.Request) { <-over })
	defer close(over)
	e := s.enrichment()
	e.Timeout = 50 * time.Millisecond
	c := chain(t, Options{}, e)
	values := make([]string, 200)
	for i := range values {
		values[i] = fmt.Sprint(i)
	}
	events := labelled(values...)
	c.Apply(t.Context(), events)
	if n := s.asked.Load(); n > 3*atOnce {
		t.Errorf("asked %d times", n)
	}
	if len(events[0].Labels) != 1 {
		t.Errorf("%v", events[0].Labels)
	}
}

// The guard holds for catalogues too: an address that isn't allowed isn't reached.
func TestHTTP_Guarded(t *testing.T) {
	s := serve(t)
	e := s.enrichment()
	e.AllowNetworks = []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	var n counted
	c := chain(t, Options{Observe: n.observe}, e)
	c.Apply(t.Context(), labelled("a"))
	if s.asked.Load() != 0 || n.n["http error"] != 1 {
		t.Errorf("asked %d times, %v", s.asked.Load(), n.n)
	}
}

func TestHTTP_EndsWithItsContext(t *testing.T) {
	s := serve(t)
	ctx, cancel := context.WithCancel(t.Context())
	over := make(chan struct{})
	s.answers(func(http.ResponseWriter, *http.Request) { cancel(); <-over })
	defer close(over)
	c := chain(t, Options{}, s.enrichment())
	events := labelled("a")
	c.Apply(ctx, events)
	s.answers(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, `{"owner":"x"}`) })
	c.Apply(t.Context(), events) // it wasn't the catalogue's fault
	if events[0].Labels["owner"] != "x" {
		t.Errorf("%v", events[0].Labels)
	}
}
