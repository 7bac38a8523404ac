package app

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/config"
)

var noon = time.Date(2026, 1, 14, 12, 0, 0, 0, time.UTC)

func try(code surehook.Code, d surehook.Decision) engine.Try {
	return engine.Try{
		Endpoint: &surehook.Endpoint{ID: "whk_1", URL: "https://example.com/path?token=planted"},
		Event:    &surehook.Event{Key: 7, ID: "evt_1", Type: "order.paid", Tenant: "acme", CreatedAt: noon, Data: []byte(`"planted"`)},
		Attempt: &surehook.Attempt{ID: "dlv_1", Number: 2, Code: code, HTTPStatus: 503, Error: "answered 503", Response: []byte("planted"),
			CreatedAt: noon.Add(time.Second), Duration: 250 * time.Millisecond, Phases: surehook.Phases{Wait: 240 * time.Millisecond}},
		Decision: d, Wait: 5 * time.Second, Host: "example.com"}
}

func TestOneWideLineAnAttempt(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(slog.NewJSONHandler(&buf, nil))
	logAttempt(log, try(surehook.Status5xx, surehook.Again))
	var got map[string]any
	if err := json.Unmarshal(buf.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{"level": "INFO", "webhook_id": "whk_1", "event_id": "evt_1", "attempt_id": "dlv_1", "tenant_id": "acme",
		"type": "order.paid", "host": "example.com", "attempt": 2.0, "status": 503.0, "code": "status_5xx", "wait_ms": 240.0, "duration_ms": 250.0,
		"decision": "retry", "error": "answered 503", "next_due": "2026-01-14T12:00:06.25Z"} {
		if got[name] != want {
			t.Errorf("%s is %v, not %v", name, got[name], want)
		}
	}
	logAttempt(log, try(surehook.Timeout, surehook.Bury))
	if s := buf.String(); strings.Contains(s, "planted") || strings.Contains(s, "/path") || !strings.Contains(s, `"WARN"`) {
		t.Error(s)
	}
}

// slow is a reader that has stopped reading.
type slow struct{ release chan struct{} }

func (s slow) Write(p []byte) (int, error) {
	<-s.release
	return len(p), nil
}

func TestALogThatNobodyReadsStopsNothing(t *testing.T) {
	s := slow{make(chan struct{})}
	l := newLines(s)
	line := bytes.Repeat([]byte("x"), 1<<20)
	for range 16 { // four times what is held
		if n, err := l.Write(line); n != len(line) || err != nil {
			t.Fatal(n, err)
		}
	}
	if l.drops() == 0 {
		t.Error("nothing was dropped, so memory isn't bounded")
	}
	cut, cancel := context.WithCancelCause(t.Context())
	cancel(errCut)
	if err := l.stop(cut); !errors.Is(err, errCut) {
		t.Errorf("the stop waits for the reader: %v", err)
	}
	close(s.release)
	if err := l.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLinesArriveInOrder(t *testing.T) {
	var buf bytes.Buffer
	l := newLines(&buf)
	var want strings.Builder
	for i := range 1000 {
		line := strings.Repeat("y", i%7) + "\n"
		want.WriteString(line)
		_, _ = l.Write([]byte(line))
	}
	if err := l.stop(t.Context()); err != nil || buf.String() != want.String() {
		t.Error("lines were lost or mixed", err)
	}
}

func TestMetrics(t *testing.T) {
	l := newLines(nil)
	t.Cleanup(func() { _ = l.stop(context.WithoutCancel(t.Context())) })
	m := newMetrics(l, config.EventClasses{{Name: "inbound", Types: []string{"message.received", "message.quarantined"}}})
	asked := 0
	store := counting{asked: &asked}
	now := noon
	m.registry.MustRegister(&backlog{store: store, now: func() time.Time { return now },
		stats: func() engine.Stats { return engine.Stats{Lanes: 3, Queued: 4, InFlight: 2, Closed: 2, Open: 1} },
		sentinels: func() map[surehook.SentinelStatus]int {
			return map[surehook.SentinelStatus]int{surehook.SentinelActive: 4}
		},
		pulls: func() engine.PullStats { return engine.PullStats{Readers: 2, Given: 8, Acked: 6} }})
	m.attempt(try(surehook.OK, surehook.Finish))
	m.attempt(try(surehook.SSRFBlocked, surehook.Bury))
	m.attempt(try(surehook.SecretUnavailable, surehook.Again))
	arrive := func(number int, typ string, after time.Duration) {
		m.arrived(engine.Arrival{OccurredAt: noon, Attempt: &surehook.Attempt{Number: number, EventType: typ, CreatedAt: noon.Add(after - time.Second), Duration: time.Second}})
	}
	arrive(1, "message.received", 30*time.Second)
	arrive(2, "message.received.other", 2*time.Hour)
	arrive(1, "order.paid", -time.Hour) // the publisher's clock is ahead
	m.died(map[string]int{"message.quarantined": 2, "order.paid": 3, "order.lost": 4})
	m.batch(3, time.Millisecond, errors.New("full"))
	m.disabled.WithLabelValues(surehook.ReasonGone).Inc()
	body := scrape(t, m.handler())
	for _, want := range []string{`webhook_attempts_total{result="succeeded"} 1`, `webhook_attempts_total{result="ssrf_blocked"} 1`,
		`webhook_dead_total{event_class="inbound"} 2`, `webhook_dead_total{event_class="other"} 7`, `webhook_disabled_total{reason="gone"} 1`,
		`webhook_delivery_latency_seconds_sum{event_class="inbound",first_attempt="succeeded"} 30`,
		`webhook_delivery_latency_seconds_bucket{event_class="inbound",first_attempt="succeeded",le="30"} 1`,
		`webhook_delivery_latency_seconds_bucket{event_class="inbound",first_attempt="succeeded",le="10"} 0`,
		`webhook_delivery_latency_seconds_count{event_class="inbound",first_attempt="failed"} 0`,
		`webhook_delivery_latency_seconds_sum{event_class="other",first_attempt="failed"} 7200`,
		`webhook_delivery_latency_seconds_sum{event_class="other",first_attempt="succeeded"} 0`,
		"webhook_ssrf_blocked_total 1", "surehook_secret_unavailable_total 1", "outbox_undispatched_age_seconds 90", "surehook_oldest_due_seconds 60", `surehook_pending{state="due"} 5`, `surehook_pending{state="owned"} 2`,
		`surehook_pending{state="waiting"} 9`, `surehook_pending{state="held"} 7`, "surehook_webhooks_failing 6", `surehook_node_leases{state="live"} 3`,
		`surehook_node_leases{state="expired"} 1`, "surehook_lanes 3", "surehook_inbox_events 5", "surehook_inbox_bytes 30",
		"surehook_inbox_oldest_age_seconds 40", "surehook_pull_readers 2", `surehook_pulled_total{step="given"} 8`, `surehook_pulled_total{step="acknowledged"} 6`, `surehook_breakers{state="open"} 1`, `surehook_sentinels{status="active"} 4`, `surehook_sentinels{status="orphaned"} 0`, "store_batch_jobs_sum 3",
		"store_batch_seconds_count 1", "store_batch_errors_total 1"} {
		if !strings.Contains(body, "\n"+want+"\n") {
			t.Errorf("misses %s", want)
		}
	}
	for _, stranger := range []string{"whk_", "evt_", "acme", "example.com", "message.", "order."} {
		if strings.Contains(body, stranger) {
			t.Errorf("a label has as many values as there are endpoints, tenants, hosts or event types: %s", stranger)
		}
	}
	_ = scrape(t, m.handler())
	if asked != 1 {
		t.Errorf("the store was asked %d times in one moment", asked)
	}
	now = now.Add(backlogAge)
	_ = scrape(t, m.handler())
	if asked != 2 {
		t.Errorf("a count is served for ever")
	}
}

// counting is a store that only counts.
type counting struct {
	surehook.Store
	asked *int
}

func (c counting) PendingCount(context.Context) (surehook.PendingCount, error) {
	*c.asked++
	return surehook.PendingCount{Owned: 2, Due: 5, Waiting: 9, Held: 7, OldestDue: noon.Add(-time.Minute)}, nil
}

func (c counting) Counts(context.Context) (surehook.Counts, error) {
	return surehook.Counts{Failing: 6, Leases: 3, ExpiredLeases: 1, Undispatched: noon.Add(-90 * time.Second)}, nil
}

func (c counting) InboxStates(context.Context, ...int64) ([]surehook.InboxState, error) {
	return []surehook.InboxState{{Events: 2, Bytes: 10, Oldest: noon.Add(-40 * time.Second)}, {Events: 3, Bytes: 20, Oldest: noon.Add(-time.Second)}}, nil
}

func scrape(t *testing.T, h http.Handler) string {
	t.Helper()
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/metrics", nil))
	return w.Body.String()
}

func TestSpansAreMadeAfterTheFact(t *testing.T) {
	rec := tracetest.NewSpanRecorder()
	tr := traceTo(rec, "test")
	first := try(surehook.OK, surehook.Finish)
	first.First = true
	tr.attempt(first)
	tr.attempt(first) // another endpoint's
	retry := try(surehook.Timeout, surehook.Again)
	tr.attempt(retry)
	spans := rec.Ended()
	if len(spans) != 4 {
		t.Fatalf("%d spans", len(spans))
	}
	publish := spans[0]
	if publish.Name() != "webhook publish" || !publish.StartTime().Equal(noon) || !publish.EndTime().Equal(noon.Add(time.Second)) {
		t.Errorf("%v", publish)
	}
	for _, s := range spans[1:] {
		if s.Name() != "webhook attempt" || s.Parent().SpanID() != publish.SpanContext().SpanID() || s.SpanContext().TraceID() != publish.SpanContext().TraceID() {
			t.Errorf("%s hangs elsewhere", s.Name())
		}
		if !s.EndTime().Equal(noon.Add(1250 * time.Millisecond)) {
			t.Errorf("ends %v", s.EndTime())
		}
		if slices.ContainsFunc(s.Attributes(), func(a attribute.KeyValue) bool { return strings.Contains(a.Value.String(), "planted") }) {
			t.Error("an attribute tells a secret")
		}
	}
}

func TestSpansHangBelowThePublishers(t *testing.T) {
	rec := tracetest.NewSpanRecorder()
	tr := traceTo(rec, "test")
	x := try(surehook.OK, surehook.Finish)
	x.First, x.Event.Trace = true, "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	tr.attempt(x)
	x.Event.Key++
	x.Event.Trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00" // not sampled
	tr.attempt(x)
	if n := len(rec.Ended()); n != 2 {
		t.Fatalf("%d spans", n)
	}
	for _, s := range rec.Ended() {
		if s.Parent().SpanID().String() != "b7ad6b7169203331" || s.SpanContext().TraceID().String() != "0af7651916cd43dd8448eb211c80319c" {
			t.Errorf("%s: %v", s.Name(), s.Parent())
		}
	}
	if err := tr.stop(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestTracerForgetsOldEvents(t *testing.T) {
	tr := traceTo(sdk.NewSimpleSpanProcessor(tracetest.NewNoopExporter()), "test")
	for k := range int64(3 * tracedEvents) {
		if !tr.first(k) {
			t.Fatal(k)
		}
	}
	if len(tr.seen) != tracedEvents || tr.first(3*tracedEvents-1) || !tr.first(0) {
		t.Errorf("%d remembered", len(tr.seen))
	}
}

func TestTracesURL(t *testing.T) {
	for in, want := range map[string]string{"http://c:4318": "http://c:4318/v1/traces", "http://c:4318/": "http://c:4318/v1/traces", "https://c/x/y": "https://c/x/y"} {
		if got := tracesURL(in); got != want {
			t.Errorf("%s: %s", in, got)
		}
	}
}

func TestNotices(t *testing.T) {
	got := make(chan string, 2)
	srv := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- string(body)
	}))
	defer srv.Close()
	dir := t.TempDir()
	script := filepath.Join(dir, "notify")
	if err := os.WriteFile(script, []byte("#!/bin/sh\ncat > $1\nenv >> $1\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(dir, "out")
	cfg := config.Config{NotifyURL: srv.URL + "/planted", NotifyCommand: script + " " + out}
	var logged bytes.Buffer
	tell := newTeller(cfg, slog.New(slog.NewTextHandler(&logged, nil)), func() []string {
		return []string{"PATH=" + os.Getenv("PATH"), "SUREHOOK_ADMIN_KEY=planted", "SUREHOOK_MASTER_KEY=planted", "SUREHOOK_KEY=planted", "HOME=/h"}
	})
	tell.tell(engine.Notice{WebhookID: "whk_1", Reason: "gone", At: noon})
	if body := <-got; body != `{"webhook_id":"whk_1","reason":"gone","consecutive_failures":0,"at":"2026-01-14T12:00:00Z"}` {
		t.Error(body)
	}
	if err := tell.stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(out)
	if err != nil || !strings.HasPrefix(string(text), `{"webhook_id":"whk_1"`) || !strings.Contains(string(text), "HOME=/h") || strings.Contains(string(text), "planted") {
		t.Errorf("%s, %v", text, err)
	}
	if logged.Len() > 0 {
		t.Error(logged.String())
	}
	tell.tell(engine.Notice{}) // after the stop: nothing to do, and no panic
}

func TestANoticeThatCannotBeSentIsLoggedWithoutItsURL(t *testing.T) {
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	url := srv.URL
	var logged bytes.Buffer
	log := slog.New(slog.NewTextHandler(&logged, nil))
	for _, end := range []bool{false, true} {
		if end {
			srv.Close()
		}
		tell := newTeller(config.Config{NotifyURL: url + "/planted", NotifyCommand: "/nowhere/at/all"}, log, nil)
		tell.tell(engine.Notice{WebhookID: "whk_1"})
		if err := tell.stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if s := logged.String(); strings.Contains(s, "planted") || !strings.Contains(s, "answered 403") || !strings.Contains(s, "no answer from") || !strings.Contains(s, "command failed") {
		t.Error(s)
	}
}
