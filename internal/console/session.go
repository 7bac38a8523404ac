package console

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"time"

	"github.com/surehook/surehook"
)

// How long a session lasts: so long without a request, and so long at most.
const (
	idleFor      = time.Hour
	consoleFor   = 12 * time.Hour
	portalFor    = 8 * time.Hour
	noteUseEvery = time.Minute
)

var errSession = surehook.Errorf(surehook.Unauthorized, "the session is over: sign in again")

func newToken() string {
	var b [32]byte
	rand.Read(b[:])
	return base64.RawURLEncoding.EncodeToString(b[:])
}

func hashOf(text string) []byte {
	sum := sha256.Sum256([]byte(text))
	return sum[:]
}

// cookie is the name of the site's cookie.
func (s *site) cookie() string {
	if s.portal() {
		return "surehook_portal"
	}
	return "surehook_console"
}

// setCookie gives the browser a token; empty: takes it back. A portal in a frame of
// another site is the one case in which a cookie goes along with requests from
// there; the forms' own token stands behind it.
func (s *site) setCookie(w http.ResponseWriter, token string, lasts time.Duration) {
	c := &http.Cookie{Name: s.cookie(), Value: token, Path: s.base, HttpOnly: true, SameSite: http.SameSiteStrictMode, MaxAge: int(lasts.Seconds()),
		Secure: s.opt.Public != nil && s.opt.Public.Scheme == "https"}
	if token == "" {
		c.MaxAge = -1
	}
	if s.portal() && len(s.opt.Theme.Frames) > 0 {
		c.SameSite, c.Secure, c.Partitioned = http.SameSiteNoneMode, true, true
	}
	http.SetCookie(w, c)
}

// open makes a session and gives the browser its token. link is the hash of the
// link's token that it takes the place of; nil: none.
func (s *site) open(w http.ResponseWriter, r *http.Request, n *surehook.Session, link []byte, a *surehook.AuditEntry) error {
	lasts := consoleFor
	switch {
	case s.portal():
		lasts = portalFor
	case n.Subject != "":
		lasts = s.oidc.Lasts
	}
	token, now := newToken(), s.now()
	n.ID, n.Kind, n.Hash, n.CreatedAt, n.UsedAt, n.ExpiresAt = s.opt.NewID("ses"), s.kind, hashOf(token), now, now, now.Add(lasts)
	a.At, a.Target = now, n.ID
	if err := s.opt.Sessions.OpenSession(r.Context(), n, link, a); err != nil {
		return err
	}
	s.setCookie(w, token, lasts)
	return nil
}

// find gives the session of a request, as long as it lasts.
func (s *site) find(ctx context.Context, r *http.Request) (*surehook.Session, string, error) {
	c, err := r.Cookie(s.cookie())
	if err != nil || c.Value == "" || len(c.Value) > 100 {
		return nil, "", errSession
	}
	n, err := s.opt.Sessions.Session(ctx, hashOf(c.Value))
	switch now := s.now(); {
	case surehook.CodeOf(err) == surehook.NotFound && err != nil:
		return nil, "", errSession
	case err != nil:
		return nil, "", err
	case n.Kind != s.kind, !now.Before(n.ExpiresAt), now.Sub(n.UsedAt) >= idleFor:
		return nil, "", errSession
	}
	return n, c.Value, nil
}

// visit opens a request's session. Live numbers that a page fetches by itself don't
// keep a session that nobody uses.
func (s *site) visit(w http.ResponseWriter, r *http.Request) (*visit, error) {
	n, token, err := s.find(r.Context(), r)
	if err != nil {
		return nil, err
	}
	v := &visit{site: s, w: w, r: r, session: n, token: token}
	if v.api, v.key, err = s.opt.API(r.Context(), n); err != nil {
		return nil, err
	}
	if now := s.now(); now.Sub(n.UsedAt) >= noteUseEvery && r.Header.Get("X-Surehook-Live") == "" && r.Pattern != "GET "+s.base+"/live" {
		if err := s.opt.Sessions.UseSession(r.Context(), n.Hash, now); err != nil {
			s.log.Warn("that a session was used couldn't be noted", "session_id", n.ID, "error", err)
		}
	}
	return v, nil
}

// formToken goes with each form: who doesn't hold the session's cookie can't know it.
func formToken(token string) string {
	sum := sha256.Sum256([]byte("form\x00" + token))
	return base64.RawURLEncoding.EncodeToString(sum[:18])
}

var errForm = surehook.Errorf(surehook.Forbidden, "the form was sent from elsewhere, or under another session: go back, reload the page, and send it again")

// checkForm refuses what doesn't come from a page of this session.
func (v *visit) checkForm() error {
	if v.r.Method == http.MethodGet || v.r.Method == http.MethodHead {
		return nil
	}
	if err := v.origin.Check(v.r); err != nil {
		return errForm
	}
	if err := v.r.ParseForm(); err != nil {
		return surehook.Errorf(surehook.TooLarge, "the form can't be read, or is over %d KiB", maxForm>>10)
	}
	if subtle.ConstantTimeCompare([]byte(v.r.PostForm.Get("form")), []byte(formToken(v.token))) != 1 {
		return errForm
	}
	return nil
}
