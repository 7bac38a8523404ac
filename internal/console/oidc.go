package console

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/surehook/surehook"
)

// OIDC is the provider that operators may sign in at, beside by key.
type OIDC struct {
	Issuer, ClientID string
	ClientSecret     string // empty: a public client, by PKCE alone
	Scopes           []string
	Rules            []Rule // the first that fits counts
	Lasts            time.Duration
	Client           *http.Client // nil: one with the system's roots
}

// Keys are what the rules' sessions ask the API by.
func (o *OIDC) Keys() []*surehook.APIKey {
	var out []*surehook.APIKey
	for i := range o.Rules {
		o.Rules[i].bind(o.Issuer, o.ClientID)
		out = append(out, &o.Rules[i].Key)
	}
	return out
}

const (
	providerWait  = 10 * time.Second // for each of the provider's answers
	providerAgain = 5 * time.Second  // after one that failed, before the next look
	loginFor      = 10 * time.Minute // from going to the provider to coming back
	oidcCookie    = "surehook_oidc"
)

// provider knows the login provider. It is asked when somebody first signs in: one
// that is down must not keep the server from starting.
type provider struct {
	OIDC
	now      func() time.Time
	callback string

	mu     sync.Mutex
	found  *oidc.Provider
	failed error
	at     time.Time
}

func newProvider(o OIDC, public *url.URL, now func() time.Time) (*provider, error) {
	if public == nil {
		return nil, errors.New("signing in at a provider needs the public URL, which it leads back to")
	}
	if o.Client == nil {
		o.Client = &http.Client{}
	}
	client := *o.Client
	client.Timeout = providerWait
	o.Client = &client
	o.Keys()
	return &provider{OIDC: o, now: now, callback: public.JoinPath("console", "oidc", "callback").String()}, nil
}

// Host is what the provider is called on the page.
func (p *provider) Host() string {
	u, err := url.Parse(p.Issuer)
	if err != nil {
		return "the login provider"
	}
	return u.Host
}

// context is what the provider's library asks with; it outlives a request.
func (p *provider) context(ctx context.Context) context.Context {
	return oidc.ClientContext(ctx, p.Client)
}

// get finds the provider by its issuer, once.
func (p *provider) get() (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.found != nil || p.failed != nil && p.now().Sub(p.at) < providerAgain {
		return p.found, p.failed
	}
	p.found, p.failed = oidc.NewProvider(p.context(context.Background()), p.Issuer) // its keys are fetched again later, by this context
	p.at = p.now()
	return p.found, p.failed
}

func (p *provider) config(found *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{ClientID: p.ClientID, ClientSecret: p.ClientSecret, Endpoint: found.Endpoint(), RedirectURL: p.callback,
		Scopes: append([]string{oidc.ScopeOpenID}, p.Scopes...)}
}

// derive makes one of the values that a login needs from the cookie's.
func derive(seed, what string) string {
	sum := sha256.Sum256([]byte(what + "\x00" + seed))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

func (s *site) oidcRoutes() {
	s.mux.HandleFunc("GET "+s.base+"/oidc", s.leave)
	s.mux.HandleFunc("GET "+s.base+"/oidc/callback", s.comeBack)
}

// setLogin keeps what only this browser knows while it is at the provider. It must
// come back with a link from there, so it is Lax.
func (s *site) setLogin(w http.ResponseWriter, value string, age int) {
	//nolint:gosec // secure wherever browsers come over TLS
	http.SetCookie(w, &http.Cookie{Name: oidcCookie, Value: value, Path: s.base + "/oidc", HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: age,
		Secure: s.opt.Public.Scheme == "https"})
}

// leave sends somebody to the provider.
func (s *site) leave(w http.ResponseWriter, r *http.Request) {
	next := s.next(r.URL.Query().Get("next"))
	found, err := s.oidc.get()
	if err != nil {
		s.turnDown(w, r, next, &denial{http.StatusBadGateway, "The login provider can't be reached: try again in a moment, or sign in with an API key. The server's log says why.", err})
		return
	}
	seed := newToken()
	s.setLogin(w, seed+"."+base64.RawURLEncoding.EncodeToString([]byte(next)), int(loginFor.Seconds()))
	http.Redirect(w, r, s.oidc.config(found).AuthCodeURL(derive(seed, "state"), oidc.Nonce(derive(seed, "nonce")), oauth2.S256ChallengeOption(derive(seed, "verifier"))), http.StatusSeeOther)
}

// denial is why somebody isn't let in: what the page says, and the cause for the log,
// which holds no token and no code.
type denial struct {
	status int
	say    string
	cause  error
}

func (r *denial) Error() string { return r.say }

func (s *site) turnDown(w http.ResponseWriter, r *http.Request, next string, why *denial) {
	if why.cause != nil {
		text := why.cause.Error()
		s.log.Warn("a login by OIDC failed", "why", why.say, "error", text[:min(len(text), 300)])
	}
	s.render(w, r, why.status, "login.html", s.gate(next, why.say))
}

// comeBack takes who comes from the provider. The page that it answers with goes on by
// itself: along a redirect from another site the session's cookie, which is Strict,
// wouldn't be sent.
func (s *site) comeBack(w http.ResponseWriter, r *http.Request) {
	address := s.address(r)
	if wait := s.limiter.wait(address); wait > 0 {
		w.Header().Set("Retry-After", seconds(wait))
		s.turnDown(w, r, "", &denial{http.StatusTooManyRequests, "Too many logins failed: wait " + seconds(wait) + " s, then try again.", nil})
		return
	}
	var seed, next string
	if c, err := r.Cookie(oidcCookie); err == nil {
		seed, next, _ = strings.Cut(c.Value, ".")
		raw, err := base64.RawURLEncoding.DecodeString(next)
		if err != nil {
			raw = nil
		}
		next = s.next(string(raw))
	}
	s.setLogin(w, "", -1) // it is good for one way
	rule, who, err := s.vouched(r, seed)
	if err == nil {
		n := &surehook.Session{KeyHash: rule.Key.Hash, Subject: "oidc:" + who}
		err = s.open(w, r, n, nil, &surehook.AuditEntry{Actor: n.Subject, Action: "session.open", Tenant: rule.Key.Tenant})
	}
	if why, ok := errors.AsType[*denial](err); ok {
		s.limiter.failed(address)
		s.turnDown(w, r, next, why)
		return
	}
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	if next == "" {
		next = s.base + "/"
	}
	w.Header().Set("Refresh", "0; url="+next)
	s.render(w, r, http.StatusOK, "signed-in.html", next)
}

// vouched gives who comes from the provider, and the rule that lets them in.
func (s *site) vouched(r *http.Request, seed string) (rule *Rule, who string, err error) {
	q := r.URL.Query()
	if seed == "" || subtle.ConstantTimeCompare([]byte(q.Get("state")), []byte(derive(seed, "state"))) != 1 {
		return nil, "", &denial{http.StatusBadRequest, "This login was begun elsewhere, was used already, or took over ten minutes: sign in again.", nil}
	}
	if code := q.Get("error"); code != "" {
		return nil, "", &denial{http.StatusForbidden, "The login provider said no: " + inert(clip(code+" "+q.Get("error_description"))) + ". Sign in again, or ask who runs it.", nil}
	}
	claims, err := s.oidc.claims(r.Context(), q.Get("code"), seed)
	if err != nil {
		return nil, "", &denial{http.StatusBadGateway, "The login provider's answer can't be taken: sign in again. If that doesn't help, ask who runs this server to look into its log.", err}
	}
	who = subject(claims)
	rule, err = choose(s.oidc.Rules, claims)
	switch {
	case err != nil:
		return nil, "", &denial{http.StatusForbidden, "The login provider hasn't verified the e-mail address of " + inert(who) + ": have it verified there, then sign in again.", nil}
	case rule == nil:
		return nil, "", &denial{http.StatusForbidden, "You are " + inert(who) + ", but nothing lets you in here: ask who runs this server for a rule (oidc-rules), or sign in as somebody else.", nil}
	}
	return rule, who, nil
}

// claims exchanges a code for an ID token, and gives what it says once it is proven to
// be the provider's, for us, and for this login.
func (p *provider) claims(ctx context.Context, code, seed string) (map[string]any, error) {
	found, err := p.get()
	if err != nil {
		return nil, err
	}
	ctx = p.context(ctx)
	token, err := p.config(found).Exchange(ctx, code, oauth2.VerifierOption(derive(seed, "verifier")))
	if refused, ok := errors.AsType[*oauth2.RetrieveError](err); ok {
		return nil, fmt.Errorf("the token endpoint answered %d %s", refused.Response.StatusCode, clip(refused.ErrorCode)) // its body stays out of the log
	}
	if err != nil {
		return nil, err
	}
	raw, _ := token.Extra("id_token").(string)
	id, err := found.Verifier(&oidc.Config{ClientID: p.ClientID, Now: p.now}).Verify(ctx, raw)
	if err != nil {
		return nil, err
	}
	if subtle.ConstantTimeCompare([]byte(id.Nonce), []byte(derive(seed, "nonce"))) != 1 {
		return nil, errors.New("the ID token is of another login: its nonce is another one")
	}
	var claims map[string]any
	if err := id.Claims(&claims); err != nil {
		return nil, err
	}
	if azp, ok := claims["azp"].(string); ok && azp != p.ClientID || !ok && len(id.Audience) > 1 {
		return nil, errors.New("the ID token was made for another client: its azp is another one, or missing")
	}
	return claims, nil
}

// subject is who signs in, as the audit log names them: by the address that the
// provider has verified, or by its own name for them.
func subject(claims map[string]any) string {
	if mail, ok := claims["email"].(string); ok && mail != "" && verified(claims) {
		return clip(mail)
	}
	sub, _ := claims["sub"].(string)
	return clip(sub)
}

// clip bounds a text of somebody else's.
func clip(s string) string {
	s = strings.TrimSpace(s)
	if r := []rune(s); len(r) > 200 {
		s = string(r[:200])
	}
	return s
}
