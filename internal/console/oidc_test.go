package console_test

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/surehook/surehook"
	"github.com/surehook/surehook/internal/console"
)

// goOn signs in at the provider, and goes on as the page does.
func (b *browser) goOn(next string) answer {
	b.s.t.Helper()
	p := b.get("/console/oidc?next=" + url.QueryEscape(next))
	to, ok := strings.CutPrefix(p.Header.Get("Refresh"), "0; url=")
	if p.Status != http.StatusOK || !ok || !strings.Contains(p.Body, `href="`+to+`"`) {
		b.s.t.Fatalf("%d %s %v: %.600s", p.Status, p.URL, p.Header, p.Body)
	}
	return b.get(to)
}

// Who signs in at the provider may do what the rule says, is in the audit log by
// name, and stays as long as the rule holds and the session lasts.
func TestOIDC(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		p := newIDP(t)
		rules := p.login("groups=ops=admin", "email=*@EXAMPLE.com=read+mail:read@tenant:acme", "access.roles=viewer=read")
		s.serve(rules)
		if page := s.browser().get("/console/login?next=/console/events"); !strings.Contains(page.Body, `href="/console/oidc?next=%2fconsole%2fevents"`) || !strings.Contains(page.Body, "Sign in at localhost:") {
			t.Errorf("%s", page.Body)
		}
		ann := s.browser()
		if page := ann.goOn("/console/events?type=a"); page.Status != 200 || page.URL.RequestURI() != "/console/events?type=a" || !strings.Contains(page.Body, "<b>ann@example.com</b>") {
			t.Fatalf("%d %s %.900s", page.Status, page.URL, page.Body)
		}
		ann.get("/console/keys")
		if page := ann.post("/console/keys", "name", "x", "permissions", "read", "once", "o"); page.Status != http.StatusCreated {
			t.Errorf("who is an admin makes a key: %d", page.Status)
		}
		p.play(script{claims: map[string]any{"groups": "everybody", "email": "bob@example.com"}})
		bob := s.browser()
		if page := bob.goOn(""); page.URL.Path != "/console/" || !strings.Contains(page.Body, "tenant acme") {
			t.Errorf("%s: %.600s", page.URL, page.Body)
		}
		if page := bob.get("/console/keys"); page.Status != http.StatusForbidden {
			t.Errorf("who may only read sees keys: %d", page.Status)
		}
		p.play(script{claims: map[string]any{"groups": nil, "email": nil, "access": map[string]any{"roles": []string{"viewer"}}}})
		if page := s.browser().goOn(""); page.URL.Path != "/console/" || !strings.Contains(page.Body, "<b>u-1</b>") {
			t.Errorf("a claim within another: %s: %.600s", page.URL, page.Body)
		}
		log, err := s.store.ListAudit(t.Context(), "", surehook.Page{Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		did := map[string]bool{}
		for _, a := range log {
			did[a.Actor+" "+a.Action+" "+a.Tenant] = true
		}
		for _, want := range []string{"oidc:ann@example.com session.open ", "oidc:ann@example.com key.create ", "oidc:bob@example.com session.open acme"} {
			if !did[want] {
				t.Errorf("the audit log lacks %q: %v", want, did)
			}
		}
	})
}

// Sessions end with their rule, as links that they made do, and after their time.
func TestOIDCSessionsEnd(t *testing.T) {
	both(t, func(t *testing.T, s *site) {
		p := newIDP(t)
		s.serve(p.login("groups=ops=admin", "email=bob@example.com=read"))
		ann, bob := s.browser(), s.browser()
		ann.goOn("")
		p.play(script{claims: map[string]any{"groups": "everybody", "email": "bob@example.com"}})
		bob.goOn("")
		// The same store, and a rule less: its sessions are over, others aren't.
		jar := mustParse(t, s.srv.URL+"/console/x")
		cookies := ann.client.Jar.Cookies(jar)
		link := s.portalOf(ann, "acme")
		s.serve(p.login("email=bob@example.com=read"))
		for who, b := range map[string]*browser{"ann": ann, "bob": bob} {
			b.client.Jar.SetCookies(mustParse(t, s.srv.URL+"/console"), cookies)
			if who == "bob" {
				b.client.Jar.SetCookies(mustParse(t, s.srv.URL+"/console"), bob.client.Jar.Cookies(jar))
			}
		}
		if page := ann.get("/console/"); page.URL.Path != "/console/login" {
			t.Errorf("her rule is gone, and she is at %s", page.URL)
		}
		if page := s.browser().do("POST", "/portal/open", url.Values{"token": {link}}); page.Status != http.StatusUnauthorized {
			t.Errorf("her link outlives her rule: %d", page.Status)
		}
		if page := bob.get("/console/events"); page.Status != 200 || page.URL.Path != "/console/events" {
			t.Errorf("his rule is there: %d %s", page.Status, page.URL)
		}
		carl := s.browser()
		carl.goOn("")
		carl.get("/console/")
		carl.post("/console/logout")
		if page := carl.get("/console/"); page.URL.Path != "/console/login" {
			t.Errorf("signed out: %s", page.URL)
		}
		for range 9 {
			s.leap(50 * time.Minute)
			bob.get("/console/")
		}
		s.leap(30 * time.Minute)
		if page := bob.get("/console/"); page.URL.Path != "/console/login" {
			t.Errorf("after eight hours: %s", page.URL)
		}
	})
}

// portalOf makes a link into a tenant's portal, as somebody who is signed in.
func (s *site) portalOf(b *browser, tenant string) string {
	s.t.Helper()
	s.rest("PUT", "/v1/tenants/"+tenant, `{}`)
	b.get("/console/tenants")
	p := b.post("/console/tenants/" + tenant + "/portal")
	_, rest, _ := strings.Cut(p.Body, "token=")
	token, _, ok := strings.Cut(rest, "<")
	if !ok || p.Status != 200 {
		s.t.Fatalf("%d %.600s", p.Status, p.Body)
	}
	return token
}

// noted is what was logged.
type noted struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (n *noted) Write(b []byte) (int, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.Write(b)
}

func (n *noted) String() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.b.String()
}

// turnedDown is what a provider does, and what becomes of it.
type turnedDown struct {
	script
	status int
	said   string
}

// wrong are all the ways in which what comes from a provider can be wrong.
func (p *idp) wrong() map[string]turnedDown {
	other, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		p.t.Fatal(err)
	}
	const cant, elsewhere, nobody = "answer can&#39;t be taken", "begun elsewhere", "nothing lets you in"
	say := func(claims ...any) script {
		c := map[string]any{}
		for i := 0; i < len(claims); i += 2 {
			c[claims[i].(string)] = claims[i+1]
		}
		return script{claims: c}
	}
	raw := func(header string, sig []byte) func([]byte) string {
		return func(b []byte) string {
			return base64.RawURLEncoding.EncodeToString([]byte(header)) + "." + base64.RawURLEncoding.EncodeToString(b) + "." + base64.RawURLEncoding.EncodeToString(sig)
		}
	}
	answer := func(status int, body func(token string) string) script {
		return script{token: func(w http.ResponseWriter, token string) {
			w.Header().Set("Content-Type", "application/json")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body(token)) // the caller may have gone
		}}
	}
	return map[string]turnedDown{
		"of another issuer":   {say("iss", "https://evil.example"), 502, cant},
		"for another client":  {say("aud", "another"), 502, cant},
		"for two, by another": {say("aud", []string{idpClient, "another"}, "azp", "another"), 502, cant},
		"for two, by nobody":  {say("aud", []string{idpClient, "another"}), 502, cant},
		"of another login":    {say("nonce", "another"), 502, cant},
		"without a nonce":     {say("nonce", nil), 502, cant},
		"expired":             {say("exp", time.Now().Add(-time.Minute).Unix()), 502, cant},
		"without an end":      {say("exp", nil), 502, cant},
		"not yet":             {say("nbf", time.Now().Add(time.Hour).Unix()), 502, cant},
		"by another key":      {script{sign: func(b []byte) string { return p.jws(other, jose.ES256, "one", b) }}, 502, cant},
		"by an unknown key":   {script{sign: func(b []byte) string { return p.jws(other, jose.ES256, "two", b) }}, 502, cant},
		"by the secret":       {script{sign: func(b []byte) string { return p.jws([]byte(idpSecret+idpSecret), jose.HS256, "one", b) }}, 502, cant},
		"alg none":            {script{sign: raw(`{"alg":"none"}`, nil)}, 502, cant},
		"alg none, signed":    {script{sign: raw(`{"alg":"none","kid":"one"}`, []byte("x"))}, 502, cant},
		"no token":            {answer(200, func(string) string { return `{"access_token":"a","token_type":"Bearer"}` }), 502, cant},
		"no JSON":             {answer(200, func(t string) string { return "token " + t }), 502, cant},
		"a broken token": {answer(200, func(t string) string {
			return `{"access_token":"a","token_type":"Bearer","id_token":"` + t[:len(t)/2] + `"}`
		}), 502, cant},
		"a failing provider":   {answer(500, func(t string) string { return `{"error":"oops","error_description":"` + t + `"}` }), 502, cant},
		"an unverified e-mail": {say("email_verified", false, "groups", nil), 403, "hasn&#39;t verified"},
		"one that says so not": {say("email_verified", nil, "groups", nil), 403, "hasn&#39;t verified"},
		"nobody we know":       {say("email", "eve@example.com", "groups", []string{"op", "OPS", "ops2"}), 403, "eve@example.com, but " + nobody},
		"a group within one":   {say("email", "eve@example.com", "groups", map[string]any{"ops": "ops"}), 403, nobody},
		"a refusal":            {script{refuse: url.Values{"error": {"access_denied"}, "error_description": {"<b>no\x1b[31m"}}}, 403, "access_denied &lt;b&gt;no␛"},
		"no state":             {script{back: func(q url.Values) { q.Del("state") }}, 400, elsewhere},
		"another state":        {script{back: func(q url.Values) { q.Set("state", strings.Repeat("A", 43)) }}, 400, elsewhere},
		"a made up code":       {script{back: func(q url.Values) { q.Set("code", "made-up") }}, 502, cant},
		"no code":              {script{back: func(q url.Values) { q.Del("code") }}, 502, cant},
	}
}

// Whatever is wrong with what comes from the provider, nobody is let in; the page says
// what to do, and neither it nor the log holds a code, a token or the secret.
func TestOIDCTurnsDown(t *testing.T) {
	p := newIDP(t)
	log := &noted{}
	s := lite(t, p.login("groups=ops=admin", "email=ann@example.com=read"), func(o *console.Options) { o.Logger = slog.New(slog.NewTextHandler(log, nil)) })
	for name, c := range p.wrong() {
		p.play(c.script)
		b := s.browser()
		page := b.get("/console/oidc?next=/console/keys")
		if page.Status != c.status || !strings.Contains(page.Body, c.said) || !strings.Contains(page.Body, "next=%2fconsole%2fkeys") {
			t.Errorf("%s: %d %.1200s", name, page.Status, page.Body)
		}
		if in := b.get("/console/"); in.URL.Path != "/console/login" {
			t.Errorf("%s: let in", name)
		}
		for _, secret := range append(p.told, idpSecret) {
			if secret != "" && (strings.Contains(page.Body, secret) || strings.Contains(log.String(), secret)) {
				t.Errorf("%s: a secret is told: %s", name, log)
			}
		}
		s.leap(time.Minute) // of the limit
	}
	if !strings.Contains(log.String(), "expected audience") || !strings.Contains(log.String(), "answered 400 invalid_grant") {
		t.Errorf("the log says little: %s", log)
	}
}

// A way back is gone once: not again, not from another browser, and not with one's own
// code in somebody else's browser.
func TestOIDCGoesOnce(t *testing.T) {
	p := newIDP(t)
	s := lite(t, p.login("groups=ops=read"))
	b := s.browser()
	b.client.CheckRedirect = func(r *http.Request, _ []*http.Request) error {
		if strings.HasSuffix(r.URL.Path, "/callback") {
			return http.ErrUseLastResponse
		}
		return nil
	}
	begin := func(b *browser) string {
		page := b.get("/console/oidc")
		return mustParse(t, page.Header.Get("Location")).RequestURI()
	}
	back := begin(b)
	if page := s.browser().get(back); page.Status != http.StatusBadRequest || !strings.Contains(page.Body, "sign in again") {
		t.Errorf("in another browser: %d", page.Status)
	}
	seed := b.client.Jar.Cookies(mustParse(t, s.srv.URL+"/console/oidc/callback"))
	if page := b.get(back); page.Status != http.StatusOK || page.Header.Get("Refresh") != "0; url=/console/" {
		t.Fatalf("%d %v", page.Status, page.Header)
	}
	if page := b.get(back); page.Status != http.StatusBadRequest {
		t.Errorf("a second time: %d", page.Status)
	}
	thief := s.browser()
	thief.client.Jar.SetCookies(mustParse(t, s.srv.URL+"/console/oidc"), seed)
	if page := thief.get(back); page.Status != http.StatusBadGateway {
		t.Errorf("a replayed code: %d", page.Status)
	}
	eve := s.browser()
	eve.client.CheckRedirect = b.client.CheckRedirect
	hers := mustParse(t, begin(eve)).Query().Get("code")
	q := mustParse(t, begin(b)).Query()
	q.Set("code", hers)
	if page := b.get("/console/oidc/callback?" + q.Encode()); page.Status != http.StatusBadGateway {
		t.Errorf("her code in his login: %d", page.Status)
	}
	still := s.browser()
	still.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	cookie := still.get("/console/oidc").Header.Get("Set-Cookie")
	for _, want := range []string{"surehook_oidc=", "Path=/console/oidc", "HttpOnly", "SameSite=Lax", "Max-Age=600"} {
		if !strings.Contains(cookie, want) {
			t.Errorf("no %s: %s", want, cookie)
		}
	}
	for next, want := range map[string]string{"https://evil.example/": "/console/", "//evil.example/console/": "/console/", "/console/keys": "/console/keys",
		"/console/events?id=" + strings.Repeat("x", 4000): "/console/"} {
		b := s.browser()
		if cookie := still.get("/console/oidc?next=" + url.QueryEscape(next)).Header.Get("Set-Cookie"); len(cookie) > 4000 {
			t.Errorf("a cookie of %d bytes, which browsers drop", len(cookie))
		}
		if page := b.get("/console/oidc?next=" + url.QueryEscape(next)); page.Header.Get("Refresh") != "0; url="+want {
			t.Errorf("next %q leads to %v", next, page.Header)
		}
	}
	for range 10 {
		s.browser().get("/console/oidc/callback?state=x&code=y")
	}
	if page := s.browser().get("/console/oidc/callback?state=x&code=y"); page.Status != http.StatusTooManyRequests || page.Header.Get("Retry-After") == "" {
		t.Errorf("failed logins aren't limited: %d", page.Status)
	}
}

// A provider that is down keeps nobody with a key out, and is found again.
func TestOIDCProviderIsDown(t *testing.T) {
	p := newIDP(t)
	p.play(script{offline: true})
	s := lite(t, p.login("groups=ops=read"))
	if page := s.browser().get("/console/oidc"); page.Status != http.StatusBadGateway || !strings.Contains(page.Body, "can&#39;t be reached") || !strings.Contains(page.Body, `id="key"`) {
		t.Errorf("%d %s", page.Status, page.Body)
	}
	s.signIn(adminKey)
	p.play(script{})
	s.leap(time.Minute)
	s.browser().goOn("")
}

// A rule that can't be read says what is wrong with it.
func TestParseRule(t *testing.T) {
	for text, want := range map[string]string{
		"groups=ops=admin":                        "groups ops  events:pull,events:write,read,webhooks:manage",
		"email=*@example.com=read":                "email *@example.com  read",
		"groups=Platform Ops=manage":              "groups Platform Ops  read,webhooks:manage",
		"realm.roles=a=b=mail:read@partner:north": "realm.roles a=b @north mail:read,read",
		"sub=*=manage+mail:read@tenant:acme":      "sub * acme mail:read,read,webhooks:manage",
	} {
		r, err := console.ParseRule(text)
		perms := strings.Replace(strings.Join(r.Key.Permissions, ","), "admin,", "", 1)
		of := r.Key.Tenant
		if r.Key.Partner != "" {
			of = "@" + r.Key.Partner
		}
		if got := fmt.Sprintf("%s %s %s %s", r.Claim, r.Value, of, perms); err != nil || got != want {
			t.Errorf("%s: %q %v", text, got, err)
		}
	}
	for _, text := range []string{"", "ops", "groups=ops", "=ops=admin", "groups==admin", "groups=a*=read", "groups=a=root", "groups=a=", "groups=a=read+", "groups=a=admin@tenant:x", "groups=a=read@acme", "groups=a=read@tenant:"} {
		if r, err := console.ParseRule(text); err == nil {
			t.Errorf("%s: %+v", text, r)
		}
	}
}
