package app

import (
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// metrics are what Prometheus sees. Every label has a small, fixed set of
// values: never an endpoint, a tenant or a host.
type metrics struct {
	registry *prometheus.Registry

	attempts  *prometheus.CounterVec
	dead      prometheus.Counter
	disabled  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	blocked   prometheus.Counter
	batchJobs prometheus.Histogram
	batchTime prometheus.Histogram
	batchErrs prometheus.Counter
}

func newMetrics(l *lines) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "webhook_attempts_total",
			Help: "Attempts by result: succeeded, or the code of the failure."}, []string{"result"}),
		dead: prometheus.NewCounter(prometheus.CounterOpts{Name: "webhook_dead_total",
			Help: "Deliveries that became dead letters by their last attempt."}),
		disabled: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "webhook_disabled_total",
			Help: "Endpoints that attempts disabled, by reason."}, []string{"reason"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "webhook_delivery_latency_seconds",
			Help:    "From the acceptance of an event to a receiver's 2xx, by whether the first attempt got it.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 60, 600, 3600, 21600, 86400}}, []string{"attempt"}),
		blocked: prometheus.NewCounter(prometheus.CounterOpts{Name: "webhook_ssrf_blocked_total",
			Help: "Attempts that the guard refused because of an address."}),
		batchJobs: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "store_batch_jobs",
			Help: "Writes that shared one transaction of the store.", Buckets: prometheus.ExponentialBuckets(1, 2, 10)}),
		batchTime: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "store_batch_seconds",
			Help: "Duration of a transaction of the store.", Buckets: prometheus.ExponentialBuckets(0.00025, 2, 15)}),
		batchErrs: prometheus.NewCounter(prometheus.CounterOpts{Name: "store_batch_errors_total",
			Help: "Transactions of the store that failed."}),
	}
	dropped := prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "surehook_log_lines_dropped_total",
		Help: "Log lines dropped because whoever reads them was too slow."}, func() float64 { return float64(l.drops()) })
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), dropped,
		m.attempts, m.dead, m.disabled, m.latency, m.blocked, m.batchJobs, m.batchTime, m.batchErrs)
	// A series that appears with its first event hides that event from rate().
	m.attempts.WithLabelValues("succeeded")
	for _, reason := range []string{surehook.ReasonFailing, surehook.ReasonGone} {
		m.disabled.WithLabelValues(reason)
	}
	return m
}

// handler serves the metrics.
func (m *metrics) handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 10 * time.Second})
}

// attempt counts one attempt.
func (m *metrics) attempt(t engine.Try) {
	result := string(t.Attempt.Code)
	if t.Attempt.Code == surehook.OK {
		result = "succeeded"
	}
	m.attempts.WithLabelValues(result).Inc()
	if t.Attempt.Code == surehook.SSRFBlocked {
		m.blocked.Inc()
	}
	switch t.Decision {
	case surehook.Bury:
		m.dead.Inc()
	case surehook.Finish:
		which := "later"
		if t.First {
			which = "first"
		}
		done := t.Attempt.CreatedAt.Add(t.Attempt.Duration)
		m.latency.WithLabelValues(which).Observe(max(done.Sub(t.Event.CreatedAt), 0).Seconds())
	default: // a retry follows, or it was a test
	}
}

// batch counts one transaction of the store.
func (m *metrics) batch(jobs int, took time.Duration, err error) {
	m.batchJobs.Observe(float64(jobs))
	m.batchTime.Observe(took.Seconds())
	if err != nil {
		m.batchErrs.Inc()
	}
}

// watch adds what is asked of the engine and its store at each scrape.
func (m *metrics) watch(e *engine.Engine) {
	m.registry.MustRegister(&backlog{store: e.Store(), stats: e.Stats, now: time.Now})
}

const (
	backlogAge     = 5 * time.Second // of a count that is served again
	backlogTimeout = 2 * time.Second
)

var (
	pendingDesc = prometheus.NewDesc("surehook_pending", "Deliveries that are still to do: in a lane (owned), due, or waiting for their time.", []string{"state"}, nil)
	ageDesc     = prometheus.NewDesc("outbox_undispatched_age_seconds", "Age of the oldest event or delivery that is due and not in a lane; 0: none.", nil, nil)
	lanesDesc   = prometheus.NewDesc("surehook_lanes", "Endpoints that this process has a lane for.", nil, nil)
	queuedDesc  = prometheus.NewDesc("surehook_lane_rows", "Deliveries that lanes hold in memory.", nil, nil)
	bytesDesc   = prometheus.NewDesc("surehook_lane_bytes", "Event data that lanes hold in memory.", nil, nil)
	flightDesc  = prometheus.NewDesc("surehook_in_flight", "Requests in flight.", nil, nil)
	breakerDesc = prometheus.NewDesc("surehook_breakers", "Lanes by the state of their breaker.", []string{"state"}, nil)
)

// backlog samples the queue at a scrape. The store is asked once in a few
// seconds, whoever scrapes however often: counting a million rows isn't free.
type backlog struct {
	store surehook.Store
	stats func() engine.Stats
	now   func() time.Time

	mu    sync.Mutex
	at    time.Time
	count surehook.PendingCount
	age   time.Duration
	known bool
}

// Describe implements prometheus.Collector.
func (b *backlog) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{pendingDesc, ageDesc, lanesDesc, queuedDesc, bytesDesc, flightDesc, breakerDesc} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (b *backlog) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	if count, age, ok := b.sample(); ok {
		gauge(pendingDesc, float64(count.Owned), "owned")
		gauge(pendingDesc, float64(count.Due), "due")
		gauge(pendingDesc, float64(count.Waiting), "waiting")
		gauge(ageDesc, age.Seconds())
	}
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
func (b *backlog) sample() (surehook.PendingCount, time.Duration, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.now()
	if !b.at.IsZero() && now.Sub(b.at) < backlogAge {
		return b.count, b.age, b.known
	}
	ctx, cancel := context.WithTimeout(context.Background(), backlogTimeout)
	defer cancel()
	count, err := b.store.PendingCount(ctx)
	b.at, b.known = now, err == nil
	if err != nil {
		return b.count, b.age, false
	}
	b.count, b.age = count, 0
	if !count.OldestDue.IsZero() {
		b.age = max(now.Sub(count.OldestDue), 0)
	}
	if rows, err := b.store.Outbox(ctx, 1); err == nil && len(rows) > 0 {
		since := rows[0].Event.CreatedAt
		if since.IsZero() { // not accepted yet: the store's own events, which happened when they were put there
			since = rows[0].Event.OccurredAt
		}
		b.age = max(b.age, now.Sub(since))
	}
	return b.count, b.age, true
}
