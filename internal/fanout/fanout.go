// Package fanout chooses the endpoints of an event. New events, replays and
// catch-ups all ask the same function, so they can't disagree.
package fanout

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/surehook/surehook"
)

// Index holds the endpoints of one configuration version. It is safe for
// concurrent use.
type Index struct {
	mu        sync.RWMutex
	version   int64
	byKey     map[int64]*surehook.Endpoint
	scopes    map[scope]*bucket
	partner   map[string]string // tenant → partner
	moves     int64             // goes up when a tenant's partner changes
	watches   map[scope]int     // how many sentinels each has, but for those that ended
	sentinels map[surehook.SentinelStatus]int
}

type scope struct{ tenant, partner string }

func scopeOf(e *surehook.Endpoint) scope {
	if e.Tenant != "" {
		return scope{tenant: e.Tenant}
	}
	return scope{partner: e.Partner}
}

// bucket holds one scope's enabled endpoints by the pattern that finds them,
// so that an event looks at the endpoints of its type and not at all of them.
type bucket struct {
	all    map[int64]*surehook.Endpoint            // "*"
	exact  map[string]map[int64]*surehook.Endpoint // "order.paid"
	prefix map[string]map[int64]*surehook.Endpoint // "order" for "order.*"

	watched watched // sentinels' endpoints, which are in none of the others
}

// New makes an empty index.
func New() *Index {
	return &Index{
		byKey:   make(map[int64]*surehook.Endpoint),
		scopes:  make(map[scope]*bucket),
		partner: make(map[string]string),
		watches: make(map[scope]int), sentinels: make(map[surehook.SentinelStatus]int),
	}
}

// Version is the configuration version that Match speaks for.
func (x *Index) Version() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.version
}

// Apply takes changed endpoints in, tombstones included. Changes that were
// applied before are harmless, and so are older ones.
func (x *Index) Apply(changed []*surehook.Endpoint, version int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if version < x.version {
		return
	}
	for _, e := range changed {
		if old := x.byKey[e.Key]; old != nil {
			if old.Version > e.Version {
				continue
			}
			x.remove(old)
		}
		if !e.Deleted {
			x.add(e)
		}
	}
	x.version = version
}

// SetPartner tells which partner a tenant belongs to; "" for none.
func (x *Index) SetPartner(tenant, partner string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.partner[tenant] != partner {
		x.moves++
	}
	if partner == "" {
		delete(x.partner, tenant)
		return
	}
	x.partner[tenant] = partner
}

// Moves goes up when a tenant's partner changes.
func (x *Index) Moves() int64 {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.moves
}

// Partner gives the partner that a tenant belongs to; "" for none.
func (x *Index) Partner(tenant string) string {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.partner[tenant]
}

// PartnerOf gives the partner whose endpoint this is, or whose tenant's; "" for
// none.
func (x *Index) PartnerOf(e *surehook.Endpoint) string {
	if e.Tenant != "" {
		return x.Partner(e.Tenant)
	}
	return e.Partner
}

func (x *Index) add(e *surehook.Endpoint) {
	x.byKey[e.Key] = e
	x.count(e, 1)
	if !e.Enabled {
		return
	}
	b := x.scopes[scopeOf(e)]
	if b == nil {
		b = &bucket{all: map[int64]*surehook.Endpoint{}, exact: map[string]map[int64]*surehook.Endpoint{},
			prefix: map[string]map[int64]*surehook.Endpoint{}, watched: newWatched()}
		x.scopes[scopeOf(e)] = b
	}
	if e.Sentinel != nil {
		b.watched.add(e)
		return
	}
	for _, p := range e.EventTypes {
		if p == "*" {
			b.all[e.Key] = e
		} else if stem, ok := strings.CutSuffix(p, ".*"); ok {
			put(b.prefix, stem, e)
		} else {
			put(b.exact, p, e)
		}
	}
}

func put(m map[string]map[int64]*surehook.Endpoint, name string, e *surehook.Endpoint) {
	if m[name] == nil {
		m[name] = map[int64]*surehook.Endpoint{}
	}
	m[name][e.Key] = e
}

func (x *Index) remove(e *surehook.Endpoint) {
	delete(x.byKey, e.Key)
	x.count(e, -1)
	b := x.scopes[scopeOf(e)]
	if b == nil {
		return
	}
	delete(b.all, e.Key)
	b.watched.remove(e)
	for _, p := range e.EventTypes {
		if stem, ok := strings.CutSuffix(p, ".*"); ok {
			take(b.prefix, stem, e)
		} else {
			take(b.exact, p, e)
		}
	}
	if len(b.all)+len(b.exact)+len(b.prefix) == 0 && b.watched.empty() {
		delete(x.scopes, scopeOf(e)) // tenants come and go
	}
}

func take(m map[string]map[int64]*surehook.Endpoint, name string, e *surehook.Endpoint) {
	delete(m[name], e.Key)
	if len(m[name]) == 0 {
		delete(m, name)
	}
}

// Retire keeps events from sentinels that have ended, until the configuration says
// so itself. What it has taken already stays.
func (x *Index) Retire(endpoints []int64) {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, key := range endpoints {
		if e := x.byKey[key]; e != nil {
			if b := x.scopes[scopeOf(e)]; b != nil {
				b.watched.remove(e)
			}
		}
	}
}

// count counts a sentinel: of all by its status, and of its scope if it lives.
func (x *Index) count(e *surehook.Endpoint, n int) {
	if e.Sentinel == nil {
		return
	}
	x.sentinels[e.SentinelStatus()] += n
	if !e.Sentinel.EndedAt.IsZero() {
		return
	}
	if x.watches[scopeOf(e)] += n; x.watches[scopeOf(e)] == 0 {
		delete(x.watches, scopeOf(e))
	}
}

// Sentinels counts them by their status.
func (x *Index) Sentinels() map[surehook.SentinelStatus]int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return maps.Clone(x.sentinels)
}

// Watches counts the sentinels of an endpoint's scope that haven't ended.
func (x *Index) Watches(e *surehook.Endpoint) int {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.watches[scopeOf(e)]
}

// Endpoint gives an endpoint as of the current version; nil if there is none.
func (x *Index) Endpoint(key int64) *surehook.Endpoint {
	x.mu.RLock()
	defer x.mu.RUnlock()
	return x.byKey[key]
}

// Match gives the enabled endpoints that an event is for, in key order, and
// the configuration version that this holds for.
func (x *Index) Match(ev *surehook.Event) ([]*surehook.Endpoint, int64) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if ev.Type == surehook.TypeTest {
		return nil, x.version
	}
	var out []*surehook.Endpoint
	for _, s := range visible(ev) {
		if b := x.scopes[s]; b != nil {
			out = b.match(ev, out)
		}
	}
	slices.SortFunc(out, func(a, b *surehook.Endpoint) int { return cmp.Compare(a.Key, b.Key) })
	return slices.Compact(out), x.version // an endpoint may match by several patterns
}

// visible lists the scopes that can see an event.
func visible(ev *surehook.Event) []scope {
	s := make([]scope, 1, 3) // the platform sees every event
	// What tells of an endpoint isn't for its tenant.
	if ev.Tenant != "" && ev.Type != surehook.TypeDisabled {
		s = append(s, scope{tenant: ev.Tenant})
	}
	if ev.Partner != "" {
		s = append(s, scope{partner: ev.Partner})
	}
	return s
}

func (b *bucket) match(ev *surehook.Event, out []*surehook.Endpoint) []*surehook.Endpoint {
	out = keep(b.all, ev, out)
	out = keep(b.exact[ev.Type], ev, out)
	if len(b.prefix) > 0 {
		for i, r := range ev.Type {
			if r == '.' {
				out = keep(b.prefix[ev.Type[:i]], ev, out)
			}
		}
	}
	return b.watched.match(ev, out)
}

func keep(from map[int64]*surehook.Endpoint, ev *surehook.Event, out []*surehook.Endpoint) []*surehook.Endpoint {
	for _, e := range from {
		if e.ID != ev.About && filters(e, ev) {
			out = append(out, e)
		}
	}
	return out
}

// Wants tells whether one endpoint would get an event, whether or not it is
// enabled: replay asks this.
func Wants(e *surehook.Endpoint, ev *surehook.Event) bool {
	if ev.Type == surehook.TypeTest || e.ID == ev.About {
		return false
	}
	if e.Sentinel != nil {
		what, _ := e.Sentinel.Sighting(ev, ev.Terminal)
		return slices.Contains(visible(ev), scopeOf(e)) && !what.Silent
	}
	return slices.Contains(visible(ev), scopeOf(e)) && MatchesType(e.EventTypes, ev.Type) && filters(e, ev)
}

// MatchesType tells whether a type is among the patterns of an endpoint.
func MatchesType(patterns []string, typ string) bool {
	for _, p := range patterns {
		if p == "*" || p == typ {
			return true
		}
		if stem, ok := strings.CutSuffix(p, "*"); ok && strings.HasSuffix(stem, ".") && strings.HasPrefix(typ, stem) {
			return true
		}
	}
	return false
}

// filters checks what the buckets don't: subjects and identities. An event
// without an identity matches only endpoints without an identity filter.
func filters(e *surehook.Endpoint, ev *surehook.Event) bool {
	if len(e.Identities) > 0 && !slices.Contains(e.Identities, ev.Identity) {
		return false
	}
	return len(e.Subjects) == 0 || slices.ContainsFunc(ev.Subjects, func(s string) bool {
		return slices.ContainsFunc(e.Subjects, func(p string) bool {
			if stem, ok := strings.CutSuffix(p, "*"); ok {
				return strings.HasPrefix(s, stem)
			}
			return p == s
		})
	})
}
