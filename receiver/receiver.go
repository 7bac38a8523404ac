package receiver

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/surehook/surehook/signing"
)

// The defaults.
const (
	Tolerance   = signing.Tolerance // 5 minutes, to either side
	MaxBody     = 1 << 20           // bytes
	ReadTimeout = 30 * time.Second  // the longest that a sender of ours waits
)

// Receiver verifies requests of one sender. It may be used from many
// goroutines at once.
type Receiver struct {
	scheme    Scheme
	dedupe    Dedupe
	tolerance time.Duration
	maxBody   int64
	maxRead   time.Duration
	now       func() time.Time
	log       *slog.Logger
}

// Option changes a default.
type Option func(*Receiver)

// WithTolerance sets how far a request's time may be from now. 0 is refused:
// without it a captured request could be sent again at any time.
func WithTolerance(d time.Duration) Option { return func(rc *Receiver) { rc.tolerance = d } }

// WithMaxBody bounds the body, in bytes. A longer one is answered 413, and no
// more of it is read.
func WithMaxBody(n int64) Option { return func(rc *Receiver) { rc.maxBody = n } }

// WithReadTimeout bounds how long a body may take to arrive, so that a stranger
// who sends it a byte at a time holds no connection. It is answered 408. The
// headers come before this package is called: give http.Server a
// ReadHeaderTimeout for them.
func WithReadTimeout(d time.Duration) Option { return func(rc *Receiver) { rc.maxRead = d } }

// WithClock replaces time.Now, for tests.
func WithClock(now func() time.Time) Option { return func(rc *Receiver) { rc.now = now } }

// WithLogger gets one line for each request that wasn't taken: its id, the
// status and the reason.
func WithLogger(l *slog.Logger) Option { return func(rc *Receiver) { rc.log = l } }

// New makes a receiver. The secrets are checked here, so that a process with
// an empty or cut one doesn't start. NoDedupe is for handlers whose effect may
// happen twice.
func New(scheme Scheme, dedupe Dedupe, options ...Option) (*Receiver, error) {
	rc := &Receiver{scheme: scheme, dedupe: dedupe, tolerance: Tolerance, maxBody: MaxBody, maxRead: ReadTimeout, now: time.Now}
	for _, o := range options {
		o(rc)
	}
	switch {
	case scheme.err != nil:
		return nil, scheme.err
	case scheme.verify == nil:
		return nil, errors.New("receiver: no scheme: call Standard, PurpleWolf, GitHub, Stripe, Shopify or Slack")
	case dedupe == nil:
		return nil, errors.New("receiver: no store of ids: give NewMemory, NewSQL or NoDedupe")
	case rc.tolerance <= 0:
		return nil, signing.ErrTolerance
	case rc.maxBody <= 0:
		return nil, errors.New("receiver: the largest body must be positive")
	case rc.maxRead <= 0:
		return nil, errors.New("receiver: the time for a body must be positive")
	}
	if d, ok := dedupe.(interface{ check(time.Duration) error }); ok {
		if err := d.check(rc.tolerance); err != nil {
			return nil, err
		}
	}
	return rc, nil
}

// Verify reads and judges a request, and changes nothing: it looks for no
// duplicate. The error is an *Error. Handle and Middleware do it themselves.
func (rc *Receiver) Verify(w http.ResponseWriter, r *http.Request) (Message, error) {
	whole := rc.hurry(w)
	if r.Method != http.MethodPost {
		return Message{}, refuse(ErrMethod, nil)
	}
	for _, name := range rc.scheme.headers {
		if len(r.Header.Values(name)) > 1 {
			return Message{}, refuse(ErrRepeatedHeader, nil)
		}
	}
	body, err := rc.body(w, r)
	if err != nil {
		return Message{}, refuse(err, nil)
	}
	whole()
	m, err := rc.scheme.verify(request{header: r.Header, body: body, now: rc.now(), tolerance: rc.tolerance})
	if err != nil {
		return Message{ID: m.ID}, refuse(err, nil)
	}
	m.Body = body
	return m, nil
}

// hurry gives the body its time. Once it is whole, the time that is left isn't
// the handler's. A request that is refused before that keeps its deadline: the
// server reads the rest of its body, and must not wait for it either. A writer
// that knows no deadline leaves it to its server's ReadTimeout.
func (rc *Receiver) hurry(w http.ResponseWriter) (whole func()) {
	if w == nil {
		return func() {}
	}
	conn := http.NewResponseController(w)
	if conn.SetReadDeadline(time.Now().Add(rc.maxRead)) != nil {
		return func() {}
	}
	return func() { _ = conn.SetReadDeadline(time.Time{}) } // it could be set before
}

// body reads what was sent, within its bounds.
func (rc *Receiver) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	if r.Body == nil { // of a request that no server made
		return nil, nil
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, rc.maxBody))
	if err == nil {
		return body, nil
	}
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return nil, ErrTooLarge
	}
	if late, ok := errors.AsType[net.Error](err); ok && late.Timeout() {
		return nil, ErrSlow
	}
	return nil, ErrBody
}

// Handle calls f for each event that is new. f should take the event over,
// by a transaction or a durable queue, and leave slow work for later: the
// sender waits for the answer, and tries again when it doesn't come in time.
// An error is answered 500, or as Answer says, and the event comes again.
func (rc *Receiver) Handle(f func(ctx context.Context, m Message) error) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := rc.Verify(w, r)
		if err == nil {
			err = rc.once(r.Context(), m, func(ctx context.Context) error { return f(ctx, m) })
		}
		if err != nil {
			rc.fail(w, r, m, err)
			return
		}
		w.WriteHeader(http.StatusOK)
	})
}

// Middleware is Handle for code that has an http.Handler already. next reads
// the raw body as if nothing had, and finds the Message by FromContext. Its
// answer is held back until the event's id is kept: any status but a 2xx means
// that the event isn't done, and will come again.
func (rc *Receiver) Middleware(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		m, err := rc.Verify(w, r)
		if err != nil {
			rc.fail(w, r, m, err)
			return
		}
		held := &answer{header: http.Header{}}
		err = rc.once(context.WithValue(r.Context(), messageKey{}, m), m, func(ctx context.Context) error {
			inner := r.WithContext(ctx)
			inner.Body, inner.ContentLength = io.NopCloser(bytes.NewReader(m.Body)), int64(len(m.Body))
			next.ServeHTTP(held, inner)
			if held.code() > 299 {
				return errHeld
			}
			return nil
		})
		switch {
		case err == nil || errors.Is(err, errHeld):
			held.send(w)
		default:
			rc.fail(w, r, m, err)
		}
	})
}

type messageKey struct{}

// FromContext gives the message that Middleware verified.
func FromContext(ctx context.Context) (Message, bool) {
	m, ok := ctx.Value(messageKey{}).(Message)
	return m, ok
}

// errHeld rolls back; the handler's own answer tells why.
var errHeld = errors.New("receiver: the handler answered no 2xx")

// once calls effect unless the event is a duplicate.
func (rc *Receiver) once(ctx context.Context, m Message, effect func(ctx context.Context) error) error {
	if m.ID == "" {
		if err := effect(ctx); err != nil {
			return handlerError(err)
		}
		return nil
	}
	var failed error
	_, err := rc.dedupe.Do(ctx, m.ID, func(ctx context.Context) error {
		failed = effect(ctx)
		return failed
	})
	switch {
	case failed != nil:
		return handlerError(failed)
	case err != nil:
		return refuse(ErrStore, err)
	}
	return nil
}

func handlerError(err error) error {
	if errors.Is(err, errHeld) {
		return err
	}
	e := refuse(ErrHandler, err)
	if s, ok := errors.AsType[*statusError](err); ok {
		e.Status = s.status
	}
	return e
}

// fail answers what wasn't taken. The sender is told the reason, which helps
// whoever looks at its log, and never the cause.
func (rc *Receiver) fail(w http.ResponseWriter, r *http.Request, m Message, err error) {
	e, ok := errors.AsType[*Error](err)
	if !ok {
		e = refuse(ErrHandler, err)
	}
	if rc.log != nil {
		rc.log.LogAttrs(r.Context(), slog.LevelWarn, "webhook not taken", slog.String("scheme", rc.scheme.name), slog.String("id", bounded(m.ID)),
			slog.Int("status", e.Status), slog.String("reason", e.Error()))
	}
	if e.Status == http.StatusMethodNotAllowed {
		w.Header().Set("Allow", http.MethodPost)
	}
	reason := e.Reason.Error()
	_, reason, _ = strings.Cut(reason, ": ")
	http.Error(w, reason, e.Status)
}

// bounded keeps a stranger's id from filling the log.
func bounded(id string) string {
	const most = 200
	if len(id) > most {
		return id[:most]
	}
	return id
}

// answer holds back what a handler writes.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

// Header implements http.ResponseWriter.
func (a *answer) Header() http.Header { return a.header }

// WriteHeader implements http.ResponseWriter.
func (a *answer) WriteHeader(status int) {
	if a.status == 0 && status >= 200 { // 1xx are no answers
		a.status = status
	}
}

// Write implements http.ResponseWriter.
func (a *answer) Write(p []byte) (int, error) {
	a.WriteHeader(http.StatusOK)
	return a.body.Write(p)
}

func (a *answer) code() int {
	if a.status == 0 {
		return http.StatusOK
	}
	return a.status
}

// send passes the answer on.
func (a *answer) send(w http.ResponseWriter) {
	for name, values := range a.header {
		w.Header()[name] = values
	}
	w.WriteHeader(a.code())
	_, _ = w.Write(a.body.Bytes()) // the sender reads the status
}
