package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"html/template"
	"io/fs"
	"net/http"
	"path"
	"strings"

	"github.com/surehook/surehook"
)

//go:embed templates static
var files embed.FS

// pages are the templates, each with the layout around it.
type pages map[string]*template.Template

func parse() (pages, error) {
	layout, err := template.New("").Funcs(funcs).ParseFS(files, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, err
	}
	names, err := fs.Glob(files, "templates/*.html")
	if err != nil {
		return nil, err
	}
	out := make(pages)
	for _, name := range names {
		base := path.Base(name)
		if base == "layout.html" || base == "parts.html" {
			continue
		}
		t, err := layout.Clone()
		if err != nil {
			return nil, err
		}
		if out[base], err = t.ParseFS(files, name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// versions of the static files: they are kept by browsers for ever under a name
// that changes with their content.
var versions = func() map[string]string {
	out := make(map[string]string)
	entries, err := fs.ReadDir(files, "static")
	if err != nil {
		panic(err) // embedded
	}
	for _, e := range entries {
		b, err := files.ReadFile("static/" + e.Name())
		if err != nil {
			panic(err)
		}
		sum := sha256.Sum256(b)
		out[e.Name()] = hex.EncodeToString(sum[:6])
	}
	return out
}()

// view is what a template sees.
type view struct {
	Base    string // "/console" or "/portal"
	Portal  bool
	Theme   Theme
	HasLogo bool
	Version string
	Path    string
	Form    string // the token that goes with each form
	Key     *surehook.APIKey
	Live    bool // a session is there
	Done    string
	Data    any
}

// Section tells the menu where a page belongs.
func (v view) Section() string {
	section, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimPrefix(v.Path, v.Base), "/"), "/")
	return section
}

// Static is the address of one of our own files.
func (v view) Static(name string) string {
	return v.Base + "/static/" + name + "?v=" + versions[name]
}

// May tells whether the session's key has a permission.
func (v view) May(perm string) bool { return v.Key != nil && (&visit{key: v.Key}).may(perm) }

// Platform tells a session that sees everybody's.
func (v view) Platform() bool { return v.Key != nil && (&visit{key: v.Key}).platform() }

// Admin tells a session that manages the platform.
func (v view) Admin() bool { return v.Platform() && v.May(surehook.PermAdmin) }

// Manage tells a session that changes endpoints.
func (v view) Manage() bool { return v.May(surehook.PermWebhooksManage) }

// With is the view of a part of a page.
func (v view) With(data any) view {
	v.Data = data
	return v
}

func (s *site) view(r *http.Request, data any) view {
	return view{Base: s.base, Portal: s.portal(), Theme: s.opt.Theme, HasLogo: len(s.logo) > 0, Version: s.opt.Version, Path: r.URL.Path,
		Done: done[r.URL.Query().Get("done")], Data: data}
}

// show answers with a page.
func (v *visit) show(name string, data any) error { return v.showAs(http.StatusOK, name, data) }

func (v *visit) showAs(status int, name string, data any) error {
	x := v.view(v.r, data)
	x.Form, x.Key, x.Live = formToken(v.token), v.key, true
	return v.write(v.w, status, name, "layout", x)
}

// part answers with a part of a page.
func (v *visit) part(page, name string, data any) error {
	x := v.view(v.r, data)
	x.Form, x.Key, x.Live = formToken(v.token), v.key, true
	return v.write(v.w, http.StatusOK, page, name, x)
}

// render answers who has no session.
func (s *site) render(w http.ResponseWriter, r *http.Request, status int, name string, data any) {
	if err := s.write(w, status, name, "layout", s.view(r, data)); err != nil {
		s.log.Error("a page failed", "page", name, "error", err)
	}
}

// write makes the whole page before its first byte goes out: half a page would hide
// that something went wrong.
func (s *site) write(w http.ResponseWriter, status int, page, name string, x view) error {
	t, ok := s.pages[page]
	if !ok {
		return fmt.Errorf("there is no page %s", page)
	}
	var b bytes.Buffer
	if err := t.ExecuteTemplate(&b, name, x); err != nil {
		return err
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes()) // the reader may have gone
	return nil
}

// errorPage is what a failed request shows.
type errorPage struct {
	Status    int
	Title     string
	Detail    string
	RequestID string
}

// fail answers with an error.
func (v *visit) fail(err error) {
	if errors.Is(err, errGone) {
		return
	}
	p := v.describe(err)
	if e := v.showAs(p.Status, "error.html", p); e != nil {
		v.log.Error("a page failed", "page", "error.html", "error", e)
	}
}

// refuse is fail for who has no session.
func (s *site) refuse(w http.ResponseWriter, r *http.Request, err error) {
	p := s.describe(err)
	s.render(w, r, p.Status, "error.html", p)
}

func (s *site) describe(err error) errorPage {
	if p, ok := errors.AsType[*problem](err); ok {
		return errorPage{Status: p.Status, Title: http.StatusText(p.Status), Detail: p.Detail, RequestID: p.RequestID}
	}
	status := http.StatusInternalServerError
	if e, ok := errors.AsType[*surehook.Error](err); ok {
		switch e.Code {
		case surehook.Unauthorized:
			status = http.StatusUnauthorized
		case surehook.Forbidden:
			status = http.StatusForbidden
		case surehook.NotFound:
			status = http.StatusNotFound
		case surehook.InvalidRequest:
			status = http.StatusBadRequest
		case surehook.TooLarge:
			status = http.StatusRequestEntityTooLarge
		case surehook.Unavailable, surehook.Stopping:
			status = http.StatusServiceUnavailable
		default:
		}
		if status != http.StatusInternalServerError {
			return errorPage{Status: status, Title: http.StatusText(status), Detail: e.Message}
		}
	}
	s.log.Error("a page failed", "error", err)
	return errorPage{Status: status, Title: http.StatusText(status), Detail: "Something went wrong here. The server's log has more."}
}

// static serves our own files.
func (s *site) static(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("file")
	b, err := files.ReadFile("static/" + name)
	media := map[string]string{".js": "text/javascript; charset=utf-8", ".css": "text/css; charset=utf-8", ".svg": "image/svg+xml"}[path.Ext(name)]
	if err != nil || media == "" {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Content-Type", media)
	if r.URL.Query().Get("v") == versions[name] {
		w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	}
	_, _ = w.Write(b) //nolint:gosec // our own file; the reader may have gone
}
