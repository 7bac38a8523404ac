package app

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"time"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/config"
)

// lineBuffer bounds the log lines that wait for a slow reader. Past it lines
// are dropped and counted: a full pipe must not stop deliveries.
const lineBuffer = 4 << 20

// lines is a writer that never blocks.
type lines struct {
	to io.Writer

	mu      sync.Mutex
	buf     []byte
	dropped int64
	closed  bool
	ready   chan struct{} // holds a token while buf has something
	gone    chan struct{}
}

func newLines(to io.Writer) *lines {
	if to == nil {
		to = io.Discard
	}
	l := &lines{to: to, ready: make(chan struct{}, 1), gone: make(chan struct{})}
	go l.loop()
	return l
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || len(l.buf)+len(p) > lineBuffer {
		l.dropped++
		return len(p), nil
	}
	l.buf = append(l.buf, p...)
	select {
	case l.ready <- struct{}{}:
	default:
	}
	return len(p), nil
}

func (l *lines) loop() {
	defer close(l.gone)
	var spare []byte
	for range l.ready {
		l.mu.Lock()
		full := l.buf
		l.buf = spare[:0]
		l.mu.Unlock()
		_, _ = l.to.Write(full) // there is nowhere left to say that it failed
		spare = full
	}
}

// drops counts the lines that were dropped.
func (l *lines) drops() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.dropped
}

// stop writes what waits, for as long as ctx allows.
func (l *lines) stop(ctx context.Context) error {
	l.mu.Lock()
	if !l.closed {
		l.closed = true
		close(l.ready) // a token that is in it is still taken
	}
	l.mu.Unlock()
	select {
	case <-l.gone:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func newLogger(cfg config.Config, opt Options, to io.Writer) *slog.Logger {
	var level slog.Level
	_ = level.UnmarshalText([]byte(cfg.LogLevel)) // one of the four that the table allows; else info
	ho := &slog.HandlerOptions{Level: level}
	if cfg.LogFormat == "text" || cfg.LogFormat == "" && opt.Text {
		return slog.New(slog.NewTextHandler(to, ho))
	}
	return slog.New(slog.NewJSONHandler(to, ho))
}

// observer hears of every attempt and passes it to the log, the metrics and
// the traces.
func observer(log *slog.Logger, m *metrics, t *tracer, also func(engine.Try)) func(engine.Try) {
	return func(try engine.Try) {
		m.attempt(try)
		t.attempt(try)
		logAttempt(log, try)
		if also != nil {
			also(try)
		}
	}
}

// logAttempt writes the one wide line of an attempt: every id, and what was
// decided. The host is all of the URL that it holds.
func logAttempt(log *slog.Logger, t engine.Try) {
	level, message := slog.LevelInfo, "delivered"
	switch {
	case t.Decision == surehook.Bury:
		level, message = slog.LevelWarn, "delivery is dead"
	case t.Attempt.Code != surehook.OK:
		message = "attempt failed"
	}
	ctx := context.Background()
	if !log.Enabled(ctx, level) {
		return
	}
	a, p := t.Attempt, t.Attempt.Phases
	attrs := []slog.Attr{
		slog.String("webhook_id", t.Endpoint.ID), slog.String("event_id", t.Event.ID), slog.String("attempt_id", a.ID),
		slog.String("tenant_id", t.Event.Tenant), slog.String("type", t.Event.Type), slog.String("host", t.Host),
		slog.Int("attempt", a.Number), slog.Int("status", a.HTTPStatus), slog.String("code", string(a.Code)),
		slog.Float64("resolve_ms", millis(p.Resolve)), slog.Float64("connect_ms", millis(p.Connect)), slog.Float64("tls_ms", millis(p.TLS)),
		slog.Float64("write_ms", millis(p.Write)), slog.Float64("wait_ms", millis(p.Wait)), slog.Float64("read_ms", millis(p.Read)),
		slog.Float64("duration_ms", millis(a.Duration)), slog.String("decision", decisionName(t.Decision)),
	}
	if a.Error != "" {
		attrs = append(attrs, slog.String("error", a.Error))
	}
	if t.Decision == surehook.Again {
		attrs = append(attrs, slog.Time("next_due", a.CreatedAt.Add(a.Duration+t.Wait)))
	}
	log.LogAttrs(ctx, level, message, attrs...)
}

func decisionName(d surehook.Decision) string {
	switch d {
	case surehook.Finish:
		return "succeeded"
	case surehook.Again:
		return "retry"
	case surehook.Bury:
		return "dead"
	case surehook.Note:
		return "test"
	default:
		return "released"
	}
}

func millis(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
