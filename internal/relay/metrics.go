package relay

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/relay/source"
)

// The outcomes of a delivery, as the original counts them. The last two can't
// happen here: they stay at 0, so that dashboards go on working.
const (
	delivered = "delivered"
	retried   = "retry"
	dlq       = "dlq"
	queueFull = "dropped_queue_full"
	closed    = "dropped_channel_closed"
)

// Metrics are the relay's, by the original's names.
type Metrics struct {
	lines       *prometheus.CounterVec
	parsed      *prometheus.CounterVec
	enriched    *prometheus.CounterVec
	subscribers *prometheus.CounterVec
	deliveries  *prometheus.CounterVec
	latency     *prometheus.HistogramVec
	build       *prometheus.GaugeVec
}

// NewMetrics makes the metrics of a build.
func NewMetrics(version, sha string) *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		lines:       counter("pwrelay_source_lines_total", "Lines read.", "source_id"),
		parsed:      counter("pwrelay_parsed_events_total", "Lines by what they are: audit lines (ok), others (not_pw), or audit lines that can't be used (error).", "result"),
		enriched:    counter("pwrelay_enricher_calls_total", "Calls of enrichments by result.", "enricher", "result"),
		subscribers: counter("pwrelay_subscribers_matched_total", "Events that a subscriber's filter let through.", "subscriber_id"),
		deliveries: counter("pwrelay_deliveries_total", "Attempts by outcome. dropped_queue_full and dropped_channel_closed can't happen any more.",
			"subscriber_id", "outcome"),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "pwrelay_delivery_latency_seconds",
			Help:    "From the reading of a line to the subscriber's 2xx.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300, 600, 3600}}, []string{"subscriber_id"}),
		build: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "pwrelay_build_info", Help: "What runs here; always 1."}, []string{"version", "git_sha"}),
	}
	m.build.WithLabelValues(version, sha).Set(1)
	for _, result := range []string{"ok", "not_pw", "error"} {
		m.parsed.WithLabelValues(result)
	}
	return m
}

// Register adds them to a registry, with what is asked of the relay and the
// store at each scrape.
func (m *Metrics) Register(to prometheus.Registerer, ready func() error, store surehook.Store, log func(error)) error {
	isReady := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "pwrelay_ready", Help: "1 while the relay reads and stores, else 0."}, func() float64 {
		if ready() != nil {
			return 0
		}
		return 1
	})
	for _, c := range []prometheus.Collector{m.lines, m.parsed, m.enriched, m.subscribers, m.deliveries, m.latency, m.build, isReady,
		&depth{store: store, now: time.Now, log: log}} {
		if err := to.Register(c); err != nil {
			return err
		}
	}
	return nil
}

// source makes a source's series: one that appears with its first line hides
// that from rate().
func (m *Metrics) source(id string) { m.lines.WithLabelValues(id) }

func (m *Metrics) subscriber(id string) {
	m.subscribers.WithLabelValues(id)
	m.latency.WithLabelValues(id)
	for _, outcome := range []string{delivered, retried, dlq, queueFull, closed} {
		m.deliveries.WithLabelValues(id, outcome)
	}
}

func (m *Metrics) read(id string, b *source.Batch) {
	m.lines.WithLabelValues(id).Add(float64(b.Lines))
	m.parsed.WithLabelValues("ok").Add(float64(len(b.Events)))
	m.parsed.WithLabelValues("not_pw").Add(float64(b.NotAudit))
	m.parsed.WithLabelValues("error").Add(float64(b.Malformed + b.TooLong))
}

func (m *Metrics) refused() { m.parsed.WithLabelValues("error").Inc() }

func (m *Metrics) matched(id string) { m.subscribers.WithLabelValues(id).Inc() }

// Enriched counts a call of an enrichment.
func (m *Metrics) Enriched(enricher, result string) {
	m.enriched.WithLabelValues(enricher, result).Inc()
}

// Observe counts an attempt at a subscriber.
func (m *Metrics) Observe(t engine.Try) {
	if t.Endpoint.Tenant != Tenant {
		return
	}
	id := t.Endpoint.Description
	switch t.Decision {
	case surehook.Finish:
		m.deliveries.WithLabelValues(id, delivered).Inc()
		took := t.Attempt.CreatedAt.Add(t.Attempt.Duration).Sub(t.Event.OccurredAt)
		m.latency.WithLabelValues(id).Observe(max(took, 0).Seconds())
	case surehook.Again:
		m.deliveries.WithLabelValues(id, retried).Inc()
	case surehook.Bury:
		m.deliveries.WithLabelValues(id, dlq).Inc()
	default: // nothing was attempted
	}
}

const (
	depthAge     = 5 * time.Second // of a count that is given again
	depthTimeout = 2 * time.Second
)

var depthDesc = prometheus.NewDesc("pwrelay_dlq_depth", "Dead letters of a subscriber.", []string{"subscriber_id"}, nil)

// depth counts dead letters at a scrape, but not at each of many.
type depth struct {
	store surehook.Store
	now   func() time.Time
	log   func(error)

	mu     sync.Mutex
	at     time.Time
	counts map[string]int64 // by subscriber; nil: the store can't be asked
}

// Describe implements prometheus.Collector.
func (d *depth) Describe(ch chan<- *prometheus.Desc) { ch <- depthDesc }

// Collect implements prometheus.Collector. While the store can't be asked there is
// no count: a stale one would look like calm.
func (d *depth) Collect(ch chan<- prometheus.Metric) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if now := d.now(); d.at.IsZero() || now.Sub(d.at) >= depthAge {
		ctx, cancel := context.WithTimeout(context.Background(), depthTimeout)
		defer cancel()
		var err error
		if d.counts, err = d.count(ctx); err != nil {
			d.log(err)
		}
		d.at = now
	}
	for id, n := range d.counts {
		ch <- prometheus.MustNewConstMetric(depthDesc, prometheus.GaugeValue, float64(n), id)
	}
}

func (d *depth) count(ctx context.Context) (map[string]int64, error) {
	letters, err := d.store.CountDeadLetters(ctx)
	if err != nil {
		return nil, err
	}
	out := make(map[string]int64)
	for page := (surehook.Page{Limit: 500}); ; {
		eps, err := d.store.ListEndpoints(ctx, surehook.EndpointFilter{Tenant: Tenant}, page)
		if err != nil {
			return nil, err
		}
		for _, ep := range eps {
			out[ep.Description] += letters[ep.Key]
		}
		if len(eps) < page.Limit {
			return out, nil
		}
		page.Cursor = eps[len(eps)-1].Key
	}
}
