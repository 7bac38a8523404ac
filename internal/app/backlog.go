package app

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// watch adds what is asked of the engine and its store at each scrape.
func (m *metrics) watch(e *engine.Engine) {
	m.registry.MustRegister(&backlog{store: e.Store(), stats: e.Stats, pulls: e.PullStats, sentinels: e.SentinelCounts, now: time.Now})
}

const (
	backlogAge     = 5 * time.Second // of a count that is served again
	backlogTimeout = 2 * time.Second
)

var (
	pendingDesc = prometheus.NewDesc("surehook_pending", "Deliveries that are still to do: in a lane (owned), due, held for a paused webhook or a suspended partner, or waiting for their time.", []string{"state"}, nil)
	ageDesc     = prometheus.NewDesc("outbox_undispatched_age_seconds", "Age of the oldest event whose endpoints aren't chosen yet; 0: none.", nil, nil)
	dueDesc     = prometheus.NewDesc("surehook_oldest_due_seconds", "How long the oldest delivery that is due, and neither in a lane nor held, has been so; 0: none.", nil, nil)
	lanesDesc   = prometheus.NewDesc("surehook_lanes", "Endpoints that this process has a lane for.", nil, nil)
	queuedDesc  = prometheus.NewDesc("surehook_lane_rows", "Deliveries that lanes hold in memory.", nil, nil)
	bytesDesc   = prometheus.NewDesc("surehook_lane_bytes", "Event data that lanes hold in memory.", nil, nil)
	flightDesc  = prometheus.NewDesc("surehook_in_flight", "Requests in flight.", nil, nil)
	failingDesc = prometheus.NewDesc("surehook_webhooks_failing", "Enabled webhooks with 10 or more consecutive failures.", nil, nil)
	leasesDesc  = prometheus.NewDesc("surehook_node_leases", "Leases of the nodes on this store: live, or expired, of nodes that are gone without a word.", []string{"state"}, nil)
	inboxDesc   = prometheus.NewDesc("surehook_inbox_events", "Events that wait in inboxes to be pulled.", nil, nil)
	inboxBytes  = prometheus.NewDesc("surehook_inbox_bytes", "Data of the events that wait in inboxes.", nil, nil)
	inboxAge    = prometheus.NewDesc("surehook_inbox_oldest_age_seconds", "Age of the oldest event that waits in an inbox; 0: none.", nil, nil)
	readersDesc = prometheus.NewDesc("surehook_pull_readers", "Long polls and streams that wait for events on this node.", nil, nil)
	pulledDesc  = prometheus.NewDesc("surehook_pulled_total", "Events that this node gave out of inboxes, each time that it did (given), and that were acknowledged (acknowledged).", []string{"step"}, nil)
	watchesDesc = prometheus.NewDesc("surehook_sentinels", "Sentinels by their status.", []string{"status"}, nil)
	breakerDesc = prometheus.NewDesc("surehook_breakers", "Lanes by the state of their breaker.", []string{"state"}, nil)
)

// backlog samples the queue at a scrape. The store is asked once in a few
// seconds, whoever scrapes however often: counting a million rows isn't free.
type backlog struct {
	store     surehook.Store
	stats     func() engine.Stats
	pulls     func() engine.PullStats
	sentinels func() map[surehook.SentinelStatus]int
	now       func() time.Time

	mu    sync.Mutex
	at    time.Time
	seen  sample
	known bool
}

// sample is one look at the store.
type sample struct {
	surehook.PendingCount
	surehook.Counts
	undispatched, due time.Duration       // of the oldest of each
	inbox             surehook.InboxState // of all together
	oldest            time.Duration       // of what waits there
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pendingDesc, ageDesc, dueDesc, failingDesc, leasesDesc, inboxDesc, inboxBytes, inboxAge, readersDesc, pulledDesc, lanesDesc, queuedDesc, bytesDesc, flightDesc, watchesDesc, breakerDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if seen, ok := b.sample(); ok {
		gauge(pendingDesc, float64(seen.Owned), "owned")
		gauge(pendingDesc, float64(seen.Due), "due")
		gauge(pendingDesc, float64(seen.Waiting), "waiting")
		gauge(pendingDesc, float64(seen.Held), "held")
		gauge(ageDesc, seen.undispatched.Seconds())
		gauge(dueDesc, seen.due.Seconds())
		gauge(failingDesc, float64(seen.Failing))
		gauge(leasesDesc, float64(seen.Leases), "live")
		gauge(leasesDesc, float64(seen.ExpiredLeases), "expired")
		gauge(inboxDesc, float64(seen.inbox.Events))
		gauge(inboxBytes, float64(seen.inbox.Bytes))
		gauge(inboxAge, seen.oldest.Seconds())
	}
	standing := b.sentinels()
	for _, status := range surehook.SentinelStatuses {
		gauge(watchesDesc, float64(standing[status]), string(status))
	}
	p := b.pulls()
	gauge(readersDesc, float64(p.Readers))
	ch <- prometheus.MustNewConstMetric(pulledDesc, prometheus.CounterValue, float64(p.Given), "given")
	ch <- prometheus.MustNewConstMetric(pulledDesc, prometheus.CounterValue, float64(p.Acked), "acknowledged")
	s := b.stats()
	gauge(lanesDesc, float64(s.Lanes))
	gauge(queuedDesc, float64(s.Queued))
	gauge(bytesDesc, float64(s.Bytes))
	gauge(flightDesc, float64(s.InFlight))
	gauge(breakerDesc, float64(s.Closed), "closed")
	gauge(breakerDesc, float64(s.Open), "open")
	gauge(breakerDesc, float64(s.HalfOpen), "half_open")
}

// sample counts, or gives a recent count. While the store can't be asked there
// is none: a stale one would look like calm.
func (b *backlog) sample() (sample, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if !b.at.IsZero() && now.Sub(b.at) < backlogAge {
		return b.seen, b.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), backlogTimeout)
	defer cancel()
	seen, err := b.look(ctx, now)
	b.at, b.known = now, err == nil
	if err == nil {
		b.seen = seen
	}
	return b.seen, b.known
}

func (b *backlog) look(ctx context.Context, now time.Time) (s sample, err error) {
	if s.PendingCount, err = b.store.PendingCount(ctx); err != nil {
		return s, err
	}
	if s.Counts, err = b.store.Counts(ctx); err != nil {
		return s, err
	}
	inboxes, err := b.store.InboxStates(ctx)
	if err != nil {
		return s, err
	}
	for _, in := range inboxes {
		s.inbox.Events += in.Events
		s.inbox.Bytes += in.Bytes
		if !in.Oldest.IsZero() {
			s.oldest = max(s.oldest, now.Sub(in.Oldest))
		}
	}
	if !s.OldestDue.IsZero() {
		s.due = max(now.Sub(s.OldestDue), 0)
	}
	if !s.Undispatched.IsZero() {
		s.undispatched = max(now.Sub(s.Undispatched), 0)
	}
	return s, nil
}
