package app

import (
	"context"
	"crypto/sha256"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/url"
	"sync"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
)

// tracer makes spans after the fact, from the times that an attempt has: no
// span is ever open while a delivery waits for something. The zero tracer makes
// none.
type tracer struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer

	mu   sync.Mutex
	seen map[int64]bool // events whose publish span was made lately
	ring []int64        // the same, oldest at next
	next int
}

const tracedEvents = 4096 // remembered, so that one event has one publish span

func newTracer(ctx context.Context, endpoint, version string, log *slog.Logger) (*tracer, error) {
	if endpoint == "" {
		return &tracer{}, nil
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) {
		log.Warn("traces couldn't be sent", "error", err)
	}))
	exporter, err := otlptracehttp.New(ctx, otlptracehttp.WithEndpointURL(tracesURL(endpoint)), otlptracehttp.WithTimeout(5*time.Second))
	if err != nil {
		return nil, fmt.Errorf("otlp-endpoint: %w", err)
	}
	return traceTo(sdk.NewBatchSpanProcessor(exporter), version), nil
}

func traceTo(p sdk.SpanProcessor, version string) *tracer {
	res := resource.NewSchemaless(attribute.String("service.name", "surehook"), attribute.String("service.version", version))
	provider := sdk.NewTracerProvider(sdk.WithSpanProcessor(p), sdk.WithResource(res), sdk.WithIDGenerator(ids{}),
		sdk.WithSampler(sdk.ParentBased(sdk.AlwaysSample())))
	return &tracer{provider: provider, tracer: provider.Tracer("github.com/surehook/surehook"), seen: make(map[int64]bool, tracedEvents),
		ring: make([]int64, 0, tracedEvents)}
}

// stop sends what waits.
func (t *tracer) stop(ctx context.Context) error {
	if t.provider == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	_ = t.provider.Shutdown(ctx) // a collector that is away must not fail the stop; the handler has logged it
	return nil
}

// attempt makes the span of an attempt and, with the event's first one, that of
// the event. Both hang below the publisher's span if there was one; else the
// event has a trace of its own, whose ids follow from the event's.
func (t *tracer) attempt(try engine.Try) {
	if t.provider == nil {
		return
	}
	ev, a := try.Event, try.Attempt
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": ev.Trace})
	own := idsOf(ev)
	if t.first(ev.Key) && try.First {
		t.publish(ctx, own, ev, a)
	}
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, trace.NewSpanContext(trace.SpanContextConfig{
			TraceID: own.trace, SpanID: own.span, TraceFlags: trace.FlagsSampled, Remote: true}))
	}
	_, span := t.tracer.Start(ctx, "webhook attempt", trace.WithTimestamp(a.CreatedAt), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(attribute.String("surehook.webhook_id", try.Endpoint.ID), attribute.String("surehook.event_id", ev.ID),
			attribute.String("surehook.attempt_id", a.ID), attribute.String("surehook.event_type", ev.Type),
			attribute.Int("surehook.attempt", a.Number), attribute.String("surehook.decision", decisionName(try.Decision)),
			attribute.String("server.address", try.Host), attribute.String("http.request.method", "POST"),
			attribute.Int("http.response.status_code", a.HTTPStatus)))
	if a.Code != surehook.OK {
		span.SetAttributes(attribute.String("error.type", string(a.Code)))
		span.SetStatus(codes.Error, a.Error)
	}
	span.End(trace.WithTimestamp(a.CreatedAt.Add(a.Duration)))
}

// publish makes the span from the acceptance of an event to its first attempt.
func (t *tracer) publish(ctx context.Context, own spanIDs, ev *surehook.Event, a *surehook.Attempt) {
	if !trace.SpanContextFromContext(ctx).IsValid() {
		ctx = context.WithValue(ctx, ownIDs{}, own)
	}
	_, span := t.tracer.Start(ctx, "webhook publish", trace.WithTimestamp(ev.CreatedAt), trace.WithSpanKind(trace.SpanKindProducer),
		trace.WithAttributes(attribute.String("surehook.event_id", ev.ID), attribute.String("surehook.event_type", ev.Type)))
	span.End(trace.WithTimestamp(a.CreatedAt))
}

// first tells whether an event is new here.
func (t *tracer) first(key int64) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.seen[key] {
		return false
	}
	t.seen[key] = true
	if len(t.ring) < tracedEvents {
		t.ring = append(t.ring, key)
		return true
	}
	delete(t.seen, t.ring[t.next])
	t.ring[t.next] = key
	t.next = (t.next + 1) % tracedEvents
	return true
}

type spanIDs struct {
	trace trace.TraceID
	span  trace.SpanID
}

// idsOf makes the ids of an event's own trace, so that a retry after a restart
// is found beside the first attempt.
func idsOf(ev *surehook.Event) (s spanIDs) {
	sum := sha256.Sum256([]byte("surehook trace\x00" + ev.Tenant + "\x00" + ev.ID))
	copy(s.trace[:], sum[:16])
	copy(s.span[:], sum[16:])
	return s
}

type ownIDs struct{}

// ids gives a publish span the ids that were made for it, and others random
// ones.
type ids struct{}

func (ids) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	if own, ok := ctx.Value(ownIDs{}).(spanIDs); ok {
		return own.trace, own.span
	}
	var t trace.TraceID
	for i := range t {
		t[i] = byte(rand.Uint32()) //nolint:gosec // an id of a span guards nothing
	}
	return t, ids{}.NewSpanID(ctx, t)
}

func (ids) NewSpanID(context.Context, trace.TraceID) (s trace.SpanID) {
	for !s.IsValid() {
		for i := range s {
			s[i] = byte(rand.Uint32()) //nolint:gosec // an id of a span guards nothing
		}
	}
	return s
}

// tracesURL takes the collector's address, or the whole URL of its traces.
func tracesURL(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err != nil || u.Path != "" && u.Path != "/" {
		return endpoint
	}
	return u.JoinPath("v1", "traces").String()
}
