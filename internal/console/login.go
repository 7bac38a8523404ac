package console

import (
	"net"
	"net/http"
	"net/url"
	stdpath "path"
	"strings"

	"github.com/surehook/surehook"
)

// loginPage is what the page to sign in shows.
type loginPage struct {
	Next     string
	Problem  string
	WrongKey bool   // the problem is the key's
	Provider string // where else one may sign in; empty: nowhere
}

func (s *site) loginRoutes() {
	s.mux.HandleFunc("GET "+s.base+"/login", func(w http.ResponseWriter, r *http.Request) {
		if s.portal() {
			s.render(w, r, http.StatusUnauthorized, "portal-over.html", nil)
			return
		}
		s.render(w, r, http.StatusOK, "login.html", s.gate(s.next(r.URL.Query().Get("next")), ""))
	})
	s.page("POST", "/logout", func(v *visit) error {
		if err := v.opt.Sessions.EndSession(v.r.Context(), v.session.Hash); err != nil {
			return err
		}
		v.setCookie(v.w, "", 0)
		return v.redirect("/login")
	})
	if s.portal() {
		s.mux.HandleFunc("GET "+s.base+"/open", s.showLink)
		s.mux.HandleFunc("POST "+s.base+"/open", s.takeLink)
		return
	}
	s.mux.HandleFunc("POST "+s.base+"/login", s.login)
	if s.oidc != nil {
		s.oidcRoutes()
	}
}

func (s *site) gate(next, problem string) loginPage {
	p := loginPage{Next: next, Problem: problem}
	if s.oidc != nil {
		p.Provider = s.oidc.Host()
	}
	return p
}

// maxNext bounds where to go after signing in: it goes along in a cookie, and browsers
// drop those over 4 KB.
const maxNext = 2000

// next is where to go after signing in: within this site alone.
func (s *site) next(path string) string {
	u, err := url.Parse(path)
	if err != nil || len(path) > maxNext || u.Host != "" || u.Scheme != "" || !strings.HasPrefix(u.Path, s.base+"/") || strings.TrimSuffix(u.Path, "/") != strings.TrimSuffix(stdpath.Clean(u.Path), "/") || strings.ContainsAny(path, "\\\r\n") || strings.Contains(path, "//") {
		return ""
	}
	return path
}

// login opens a session for who has an API key.
func (s *site) login(w http.ResponseWriter, r *http.Request) {
	again := func(status int, why string) {
		p := s.gate(s.next(r.PostFormValue("next")), why)
		p.WrongKey = true
		s.render(w, r, status, "login.html", p)
	}
	if err := s.origin.Check(r); err != nil {
		again(http.StatusForbidden, "The form was sent from another site: sign in here.")
		return
	}
	address := s.address(r)
	if wait := s.limiter.wait(address); wait > 0 {
		w.Header().Set("Retry-After", seconds(wait))
		again(http.StatusTooManyRequests, "Too many wrong keys were tried: wait "+seconds(wait)+" s, then try again.")
		return
	}
	n := &surehook.Session{Kind: surehook.SessionConsole, KeyHash: hashOf(strings.TrimSpace(r.PostFormValue("key")))}
	_, key, err := s.opt.API(r.Context(), n)
	switch {
	case err != nil && surehook.CodeOf(err) == surehook.Unauthorized:
		s.limiter.failed(address)
		again(http.StatusUnauthorized, "This key is unknown or revoked. Check that all of it was pasted; surehook keys create makes a new one.")
		return
	case err != nil:
		s.refuse(w, r, err)
		return
	case !(&visit{key: key}).may(surehook.PermRead):
		again(http.StatusForbidden, "This key may not read: use one with the permission read.")
		return
	}
	if err := s.open(w, r, n, nil, &surehook.AuditEntry{Actor: key.ID, Action: "session.open", Tenant: key.Tenant}); err != nil {
		s.refuse(w, r, err)
		return
	}
	to := s.next(r.PostFormValue("next"))
	if to == "" {
		to = s.base + "/"
	}
	http.Redirect(w, r, to, http.StatusSeeOther) //nolint:gosec // next lets paths of this site through alone
}

func (s *site) address(r *http.Request) string {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	if err != nil {
		return r.RemoteAddr
	}
	return host
}

// showLink asks to go on: whoever only looks at a link, as mail programs do, must not
// use it up.
func (s *site) showLink(w http.ResponseWriter, r *http.Request) {
	s.render(w, r, http.StatusOK, "portal-open.html", r.URL.Query().Get("token"))
}

// takeLink makes a link into a session. The link is gone with it.
func (s *site) takeLink(w http.ResponseWriter, r *http.Request) {
	if s.origin.Check(r) != nil {
		s.refuse(w, r, errForm)
		return
	}
	token := r.PostFormValue("token")
	link, err := s.opt.Sessions.Session(r.Context(), hashOf(token))
	if err == nil && (link.Kind != surehook.SessionLink || !s.now().Before(link.ExpiresAt)) {
		err = errSession
	}
	if err == nil {
		_, _, err = s.opt.API(r.Context(), link)
	}
	if err == nil {
		n := &surehook.Session{KeyHash: link.KeyHash, Tenant: link.Tenant, Permissions: link.Permissions}
		err = s.open(w, r, n, link.Hash, &surehook.AuditEntry{Actor: link.ID, Action: "portal.open", Tenant: link.Tenant})
	}
	switch code := surehook.CodeOf(err); {
	case err == nil:
		http.Redirect(w, r, s.base+"/", http.StatusSeeOther)
	case code == surehook.NotFound, code == surehook.Unauthorized:
		s.render(w, r, http.StatusUnauthorized, "portal-over.html", nil)
	default:
		s.refuse(w, r, err)
	}
}
