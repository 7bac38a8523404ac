package api

import (
	"context"
	"log/slog"
	"net/http"
	"path"
	"reflect"
	"strings"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"golang.org/x/sync/semaphore"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/engine"
	"github.com/surehook/surehook/internal/sentinel"
)

// Options of the API. Engine is required.
type Options struct {
	Engine    *engine.Engine
	Sentinels *sentinel.Service // nil: one of its own, where events are pushed alone
	Logger    *slog.Logger
	Version   string
	Metrics   http.Handler // mounted at /metrics behind a key that may read; nil: none
	// OpenMetrics serves /metrics without a key.
	OpenMetrics   bool
	MaxEventBytes int // of one event's data; 1 MiB, as the engine's
	// Operator tells whether a bearer token is that of the operator, who may do
	// everything; there are no API keys then. nil: API keys.
	Operator func(token string) bool
	Store    string // which store it is, for people
	// LookThrough bounds the events that one page of a search by type or subject looks
	// through; 50,000.
	LookThrough int
	// Rules stand in for API keys in sessions that a login provider's word opened, each
	// under its Hash. No token opens them.
	Rules []*surehook.APIKey
	// Portal is where a tenant's portal is opened; "/portal/open", a path at whatever
	// host the caller knows.
	Portal string
	Now    func() time.Time // time.Now
}

const (
	maxBatch     = 1000
	maxBatchBody = 16 << 20
	maxBody      = 256 << 10
)

// server holds what the handlers share.
type server struct {
	e       *engine.Engine
	store   surehook.Store
	log     *slog.Logger
	now     func() time.Time
	keys    *keyCache
	types   *catalogue
	version string
	opt     Options
	api     huma.API
	routes  *routes
	ready   readiness
	sums    *sums
	started time.Time
	flights flights
	raw     map[string]rawRoute // by method and path
	bodies  *semaphore.Weighted // memory for large bodies
	closing context.Context     // ends when requests that wait are to be answered
	close   context.CancelFunc
}

// Handler answers the whole API.
type Handler struct{ *server }

// Close writes down what is kept in memory, after the last request.
func (h *Handler) Close(ctx context.Context) {
	h.EndWaits()
	h.keys.uses.close(ctx)
}

// New makes the handler of the whole API.
func New(opt Options) *Handler {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Portal == "" {
		opt.Portal = "/portal/open"
	}
	if opt.LookThrough == 0 {
		opt.LookThrough = 50_000
	}
	if opt.MaxEventBytes == 0 {
		opt.MaxEventBytes = 1 << 20
	}
	if opt.Sentinels == nil {
		opt.Sentinels = sentinel.New(sentinel.Options{Engine: opt.Engine, Logger: opt.Logger})
	}
	s := &server{e: opt.Engine, store: opt.Engine.Store(), log: opt.Logger, now: opt.Now, version: opt.Version, opt: opt,
		raw: make(map[string]rawRoute), bodies: semaphore.NewWeighted(bodyBudget)}
	s.closing, s.close = context.WithCancel(context.Background())
	s.keys = newKeyCache(s.store, s.now, s.log)
	s.types = newCatalogue(s.store, s.now, s.log)
	s.sums = &sums{store: s.store, now: s.now}
	s.started = s.now()
	mux := &routes{ServeMux: http.NewServeMux()}
	s.routes = mux
	s.api = humago.New(mux, s.config())
	s.api.UseMiddleware(s.authenticated)
	s.events()
	s.webhooks()
	s.replays()
	s.deliveries()
	s.admin()
	s.partners()
	s.erasures()
	s.sentinels()
	s.pulls()
	s.overviews()
	s.sessions()
	s.pages()
	return &Handler{s}
}

// routes is a mux that knows what it was given.
type routes struct {
	*http.ServeMux
	patterns []string
}

// HandleFunc implements humago.Mux.
func (m *routes) HandleFunc(pattern string, h func(http.ResponseWriter, *http.Request)) {
	m.patterns = append(m.patterns, pattern)
	m.ServeMux.HandleFunc(pattern, h)
}

func (s *server) config() huma.Config {
	c := huma.DefaultConfig("Surehook", s.version)
	c.Info.Description = "Events in, signed webhooks out. Every error is a problem as in RFC 9457 with a stable `code`; only what isn't valid HTTP is refused in plain text."
	c.Formats = map[string]huma.Format{"application/json": format, "json": format}
	c.DefaultFormat = "application/json"
	c.DocsPath, c.SchemasPath, c.OpenAPIPath = "", "", "" // pages.go has ours
	c.RejectUnknownQueryParameters = true
	c.CreateHooks = nil // no links to schemas in answers: they hold the documented fields only
	c.Components.SecuritySchemes = map[string]*huma.SecurityScheme{"key": {Type: "http", Scheme: "bearer", Description: "An API key"}}
	return c
}

type requestIDKey struct{}

func requestID(ctx context.Context) string {
	id, _ := ctx.Value(requestIDKey{}).(string)
	return id
}

// begin gives a request its id, and its answer the headers of all.
func (s *server) begin(w http.ResponseWriter, r *http.Request) (id string) {
	id = r.Header.Get("X-Request-Id")
	if id == "" || len(id) > 100 || strings.ContainsFunc(id, func(c rune) bool { return c <= ' ' || c > '~' }) {
		id = s.e.NewID("req")
	}
	h := w.Header()
	h.Set("X-Request-Id", id)
	h.Set("Cache-Control", "no-store")
	h.Set("X-Content-Type-Options", "nosniff")
	return id
}

// ServeHTTP gives each request its id, and unknown paths and methods our kind of
// answer.
func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id := s.begin(w, r)
	defer s.rescue(w, id)
	if route, ok := s.raw[r.Method+" "+r.URL.Path]; ok {
		s.serveRaw(w, r, route, id)
		return
	}
	r = r.WithContext(context.WithValue(r.Context(), requestIDKey{}, id))
	if _, pattern := s.routes.Handler(r); pattern == "" || !clean(r.URL.EscapedPath()) {
		s.unrouted(w, r, id)
		return
	}
	s.routes.ServeHTTP(w, r)
}

// clean tells a path that the mux serves as it stands. Another one it would
// send on to the cleaned one: a caller whose id is empty would be led to change
// something else (DELETE /v1/webhooks//test).
func clean(p string) bool {
	c := path.Clean(p)
	return c == p || (c != "/" && c+"/" == p)
}

func (s *server) unrouted(w http.ResponseWriter, r *http.Request, id string) {
	var allowed []string
	for _, m := range []string{http.MethodGet, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete} {
		other := r.Clone(r.Context())
		other.Method = m
		_, direct := s.raw[m+" "+r.URL.Path]
		if _, pattern := s.routes.Handler(other); (pattern != "" && clean(r.URL.EscapedPath())) || direct {
			allowed = append(allowed, m)
		}
	}
	if len(allowed) > 0 {
		w.Header().Set("Allow", strings.Join(allowed, ", "))
		s.fail(w, id, surehook.Errorf(codeMethod, "this path takes %s", strings.Join(allowed, ", ")))
		return
	}
	s.fail(w, id, surehook.Errorf(surehook.NotFound, "there is nothing here; /docs has the routes"))
}

// authenticated puts the caller into the context of every operation that names
// a permission, and sees to it that only bodies are read that the document has.
func (s *server) authenticated(ctx huma.Context, next func(huma.Context)) {
	r, w := humago.Unwrap(ctx)
	id := requestID(r.Context())
	c, err := s.authenticate(r, id)
	if err != nil {
		s.fail(w, id, err)
		return
	}
	perm, _ := ctx.Operation().Metadata["permission"].(string)
	if or, _ := ctx.Operation().Metadata["or"].(string); !c.may(perm) && !c.may(or) {
		s.fail(w, id, &denied{required: perm})
		return
	}
	if !c.reaches(ctx.Operation()) {
		s.fail(w, id, &denied{scope: "platform"})
		return
	}
	if err := checkBody(w, r, ctx.Operation()); err != nil {
		s.fail(w, id, err)
		return
	}
	c.head = w.Header()
	next(huma.WithValue(ctx, callKey{}, c))
}

// reaches tells whether the key's scope is wide enough for an operation.
func (c *call) reaches(o *huma.Operation) bool {
	platform, _ := o.Metadata["platform"].(bool)
	partner, _ := o.Metadata["partner"].(bool)
	return !platform || c.platform() || partner && c.partner() != ""
}

// op describes a route.
type op struct {
	method, path, id, tag string
	summary, about        string
	perm                  string
	or                    string // another permission that is enough; mostly empty
	platform              bool   // a tenant's or a partner's key isn't enough
	partner               bool   // with platform: a partner's is
	status                int
	also                  map[string]any // of a raw route: other media types that it takes
	out                   any            // the answer, where the handler writes its bytes itself
	stream                bool           // with out: also as a stream
}

// route registers a handler. Its errors become problems here.
func route[I, O any](s *server, o op, h func(context.Context, *call, *I) (*O, error)) {
	operation := huma.Operation{Method: o.method, Path: o.path, OperationID: o.id, Tags: []string{o.tag}, Summary: o.summary,
		Description: o.about, DefaultStatus: o.status, MaxBodyBytes: maxBody, BodyReadTimeout: 30 * time.Second,
		Metadata: map[string]any{"permission": o.perm, "or": o.or, "platform": o.platform, "partner": o.partner},
		Security: []map[string][]string{{"key": {o.perm}}}}
	if o.or != "" {
		operation.Security = append(operation.Security, map[string][]string{"key": {o.or}})
	}
	if o.out != nil {
		operation.Responses = map[string]*huma.Response{"200": {Description: "OK", Content: map[string]*huma.MediaType{
			"application/json": {Schema: s.api.OpenAPI().Components.Schemas.Schema(reflect.TypeOf(o.out), true, o.id)}}}}
	}
	if o.stream {
		operation.Responses["200"].Content[eventStream] = &huma.MediaType{Schema: &huma.Schema{Type: "string"}}
	}
	huma.Register(s.api, operation, func(ctx context.Context, in *I) (*O, error) {
		if err := refuseNUL(in); err != nil {
			return nil, s.problem(requestID(ctx), err)
		}
		out, err := h(ctx, callOf(ctx), in)
		if err != nil {
			return nil, s.problem(requestID(ctx), err)
		}
		return out, nil
	})
}

// readiness remembers for a moment whether the store could be written.
type readiness struct {
	mu  sync.Mutex
	at  time.Time
	err error
}

func (s *server) isReady(ctx context.Context) error {
	s.ready.mu.Lock()
	defer s.ready.mu.Unlock()
	if now := s.now(); now.Sub(s.ready.at) > time.Second || now.Before(s.ready.at) {
		s.ready.at, s.ready.err = now, s.store.Health(context.WithoutCancel(ctx))
		if s.ready.err == nil {
			s.ready.err = s.e.Alive()
		}
	}
	return s.ready.err
}
