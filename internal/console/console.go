package console

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/surehook/surehook"
)

// Options of the pages. API, Sessions and NewID are required.
type Options struct {
	// API gives the REST API as a session sees it, and the key that stands for it;
	// Unauthorized: the session's key is no more.
	API      func(context.Context, *surehook.Session) (http.Handler, *surehook.APIKey, error)
	Sessions surehook.Sessions
	NewID    func(prefix string) string
	Logger   *slog.Logger
	Version  string
	Now      func() time.Time // time.Now
	// Public is the address under which browsers reach the pages; cookies are for
	// TLS alone where it is https. nil: unknown.
	Public *url.URL
	Theme  Theme
	OIDC   *OIDC // nil: operators sign in by key alone; it needs Public
	// Refresh is how often an open page draws its chart anew; 30 s.
	Refresh time.Duration
}

// Theme is how tenants see their portal.
type Theme struct {
	Name   string   // "Webhooks"
	Logo   string   // a file, PNG, JPEG, WebP or SVG; empty: none
	Accent string   // a colour, #rrggbb; empty: ours
	Frames []string // origins that may show the portal in a frame; empty: none
}

// Console answers everything under /console and /portal.
type Console struct {
	opt     Options
	log     *slog.Logger
	now     func() time.Time
	mux     *http.ServeMux
	pages   pages
	limiter limiter
	live    context.Context // ends the streams
	stop    context.CancelFunc
	streams sync.WaitGroup
	places  places // of the streams
	logo    []byte
	origin  *http.CrossOriginProtection
	oidc    *provider
}

// site is one of the two: the console or the portal.
type site struct {
	*Console
	base string // "/console" or "/portal"
	kind surehook.SessionKind
}

func (s *site) portal() bool { return s.kind == surehook.SessionPortal }

// New makes the pages.
func New(opt Options) (*Console, error) {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Now == nil {
		opt.Now = time.Now
	}
	if opt.Refresh <= 0 {
		opt.Refresh = 30 * time.Second
	}
	if opt.Theme.Name == "" {
		opt.Theme.Name = "Webhooks"
	}
	c := &Console{opt: opt, log: opt.Logger, now: opt.Now, mux: http.NewServeMux(), origin: http.NewCrossOriginProtection()}
	c.live, c.stop = context.WithCancel(context.Background())
	c.limiter = limiter{now: opt.Now}
	var err error
	if c.pages, err = parse(); err != nil {
		return nil, err
	}
	if c.logo, err = readLogo(opt.Theme.Logo); err != nil {
		return nil, err
	}
	if opt.Public != nil {
		if err := c.origin.AddTrustedOrigin(opt.Public.Scheme + "://" + opt.Public.Host); err != nil {
			return nil, err
		}
	}
	if opt.OIDC != nil {
		if c.oidc, err = newProvider(*opt.OIDC, opt.Public, opt.Now); err != nil {
			return nil, err
		}
	}
	for _, s := range []*site{{c, "/console", surehook.SessionConsole}, {c, "/portal", surehook.SessionPortal}} {
		s.routes()
	}
	return c, nil
}

// Close ends the streams; requests that come later are answered all the same.
func (c *Console) Close() {
	c.stop()
	c.streams.Wait()
}

// Takes tells the paths that are the console's.
func Takes(path string) bool {
	for _, base := range []string{"/console", "/portal"} {
		if path == base || strings.HasPrefix(path, base+"/") {
			return true
		}
	}
	return false
}

// ServeHTTP implements http.Handler.
func (c *Console) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.secure(w, r)
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	c.mux.ServeHTTP(w, r)
}

// maxForm bounds what a page may send: an event type's schema is the largest.
const maxForm = 256 << 10

// visit is one request of a session.
type visit struct {
	*site
	w       http.ResponseWriter
	r       *http.Request
	session *surehook.Session
	token   string // the cookie's
	key     *surehook.APIKey
	api     http.Handler
	again   bool // what was asked for was done before: the page was reloaded
}

func (v *visit) may(perm string) bool {
	for _, p := range v.key.Permissions {
		if p == perm {
			return true
		}
	}
	return false
}

// platform tells a session that sees everybody's.
func (v *visit) platform() bool { return v.key.Tenant == "" && v.key.Partner == "" }

// page registers a page, or what a page sends.
func (s *site) page(method, path string, h func(*visit) error) {
	s.mux.HandleFunc(method+" "+s.base+path, func(w http.ResponseWriter, r *http.Request) {
		v, err := s.visit(w, r)
		if err != nil {
			s.outside(w, r, err)
			return
		}
		if err := v.checkForm(); err != nil {
			v.fail(err)
			return
		}
		if err := h(v); err != nil {
			v.fail(err)
		}
	})
}

// outside answers who has no session, or none any more: who asked for a page is
// asked to sign in, and comes back to it.
func (s *site) outside(w http.ResponseWriter, r *http.Request, err error) {
	if surehook.CodeOf(err) != surehook.Unauthorized {
		s.refuse(w, r, err)
		return
	}
	if r.Header.Get("HX-Request") != "" || strings.HasSuffix(r.URL.Path, "/live") {
		w.Header().Set("HX-Refresh", "true") // the page that asks goes to sign in
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	to := s.base + "/login"
	if r.Method == http.MethodGet && r.URL.Path != s.base && r.URL.Path != s.base+"/" {
		to += "?next=" + url.QueryEscape(r.URL.RequestURI())
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// redirect leads to a page of this site.
func (v *visit) redirect(path string) error {
	http.Redirect(v.w, v.r, v.base+path, http.StatusSeeOther) //nolint:gosec // to our own page
	return nil
}

var errGone = errors.New("the caller has gone")
