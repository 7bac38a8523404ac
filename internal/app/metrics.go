package app

import (
	"net/http"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/config"
)

// metrics are what Prometheus sees; docs/metrics.md lists them. Every label has a
// small set of values that the code or the operator fixed: never an endpoint, a
// tenant, an owner, a host or an event type.
type metrics struct {
	registry *prometheus.Registry
	classes  config.EventClasses

	attempts  *prometheus.CounterVec
	dead      *prometheus.CounterVec
	ended     *prometheus.CounterVec
	disabled  *prometheus.CounterVec
	latency   *prometheus.HistogramVec
	blocked   prometheus.Counter
	sealed    prometheus.Counter
	batchJobs prometheus.Histogram
	batchTime prometheus.Histogram
	batchErrs prometheus.Counter
}

// latencies are bounds in seconds. 30 and 120 are those of the service level, a day
// is that of events that must have arrived.
var latencies = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120, 600, 3600, 21600, 86400, 259200}

func newMetrics(l *lines, classes config.EventClasses) *metrics {
	counter := func(name, help string) prometheus.CounterOpts { return prometheus.CounterOpts{Name: name, Help: help} }
	m := &metrics{
		registry: prometheus.NewRegistry(),
		classes:  classes,
		attempts: prometheus.NewCounterVec(counter("webhook_attempts_total", "Attempts by result: succeeded, or the code of the failure."), []string{"result"}),
		dead: prometheus.NewCounterVec(counter("webhook_dead_total", "Deliveries that became dead letters, by the class of their event's type."),
			[]string{"event_class"}),
		ended:    prometheus.NewCounterVec(counter("surehook_ended_total", "Deliveries that became dead letters without an attempt, by why."), []string{"code"}),
		disabled: prometheus.NewCounterVec(counter("webhook_disabled_total", "Endpoints that attempts disabled, by reason."), []string{"reason"}),
		latency: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "webhook_delivery_latency_seconds", Buckets: latencies,
			Help: "From occurred_at of an event to an endpoint's first 2xx, once for each delivery, by whether its first attempt got it."},
			[]string{"event_class", "first_attempt"}),
		blocked: prometheus.NewCounter(counter("webhook_ssrf_blocked_total", "Attempts that the guard refused because of an address.")),
		sealed:  prometheus.NewCounter(counter("surehook_secret_unavailable_total", "Attempts that weren't made because the endpoint's secret can't be unsealed.")),
		batchJobs: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "store_batch_jobs",
			Help: "Writes that shared one transaction of the store.", Buckets: prometheus.ExponentialBuckets(1, 2, 10)}),
		batchTime: prometheus.NewHistogram(prometheus.HistogramOpts{Name: "store_batch_seconds",
			Help: "Duration of a transaction of the store.", Buckets: prometheus.ExponentialBuckets(0.00025, 2, 15)}),
		batchErrs: prometheus.NewCounter(counter("store_batch_errors_total", "Transactions of the store that failed.")),
	}
	dropped := prometheus.NewCounterFunc(counter("surehook_log_lines_dropped_total", "Log lines dropped because whoever reads them was too slow."),
		func() float64 { return float64(l.drops()) })
	m.registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}), dropped,
		m.attempts, m.dead, m.ended, m.disabled, m.latency, m.blocked, m.sealed, m.batchJobs, m.batchTime, m.batchErrs)
	m.begin()
	return m
}

// begin makes the series that alerts ask for: one that appears with its first
// event hides that event from rate().
func (m *metrics) begin() {
	m.attempts.WithLabelValues("succeeded")
	for _, code := range []surehook.Code{surehook.EndpointDisabled, surehook.EventUnavailable, surehook.InboxFull, surehook.SessionEnded,
		surehook.ExpiredSentinel, surehook.RemovedSentinel, surehook.SentinelFull} {
		m.ended.WithLabelValues(string(code))
	}
	for _, reason := range []string{surehook.ReasonFailing, surehook.ReasonGone} {
		m.disabled.WithLabelValues(reason)
	}
	for _, class := range m.classes.Names() {
		m.dead.WithLabelValues(class)
		for _, first := range []bool{true, false} {
			m.latency.WithLabelValues(class, firstAttempt(first))
		}
	}
}

// firstAttempt is the label of deliveries whose first attempt succeeded, or
// failed. The service level counts the former alone: a receiver's outage is none
// of ours.
func firstAttempt(succeeded bool) string {
	if succeeded {
		return "succeeded"
	}
	return "failed"
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
	switch t.Attempt.Code {
	case surehook.SSRFBlocked:
		m.blocked.Inc()
	case surehook.SecretUnavailable:
		m.sealed.Inc()
	default:
	}
}

// arrived measures one delivery.
func (m *metrics) arrived(a engine.Arrival) {
	m.latency.WithLabelValues(m.classes.Of(a.Attempt.EventType), firstAttempt(a.Attempt.Number == 1)).Observe(a.Latency().Seconds())
}

// died counts new dead letters.
func (m *metrics) died(byType map[string]int) {
	for typ, n := range byType {
		m.dead.WithLabelValues(m.classes.Of(typ)).Add(float64(n))
	}
}

// endedBy counts deliveries that ended without an attempt.
func (m *metrics) endedBy(why surehook.Code, n int) {
	m.ended.WithLabelValues(string(why)).Add(float64(n))
}

// batch counts one transaction of the store.
func (m *metrics) batch(jobs int, took time.Duration, err error) {
	m.batchJobs.Observe(float64(jobs))
	m.batchTime.Observe(took.Seconds())
	if err != nil {
		m.batchErrs.Inc()
	}
}
