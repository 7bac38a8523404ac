package console_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/surehook/surehook/internal/console"
)

// idp is a login provider: discovery, keys, an authorization endpoint at which
// everybody is signed in already, and a token endpoint that insists on PKCE, on the
// client's secret, and on each code once.
type idp struct {
	t      testing.TB
	srv    *httptest.Server
	issuer string
	key    *ecdsa.PrivateKey

	mu     sync.Mutex
	script script
	codes  map[string]url.Values // what each was asked for with
	told   []string              // codes and tokens, which nobody else may see
	asked  url.Values            // at the authorization endpoint, last
}

// script is what the provider does at the next login.
type script struct {
	claims  map[string]any                              // over what a right ID token says
	sign    func(payload []byte) string                 // nil: with the key that it shows
	refuse  url.Values                                  // come back with this in place of a code
	back    func(url.Values)                            // changes the way back
	token   func(w http.ResponseWriter, idToken string) // nil: the right answer
	offline bool
}

const (
	idpClient = "surehook-test"
	idpSecret = "client-secret-of-the-test"
)

func newIDP(t testing.TB) *idp {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	p := &idp{t: t, key: key, codes: map[string]url.Values{}}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /.well-known/openid-configuration", func(w http.ResponseWriter, _ *http.Request) {
		if p.plays().offline {
			http.Error(w, "down for maintenance", http.StatusServiceUnavailable)
			return
		}
		p.json(w, map[string]any{"issuer": p.issuer, "authorization_endpoint": p.issuer + "/authorize", "token_endpoint": p.issuer + "/token", "jwks_uri": p.issuer + "/keys",
			"response_types_supported": []string{"code"}, "subject_types_supported": []string{"public"}, "id_token_signing_alg_values_supported": []string{"ES256", "none"}})
	})
	mux.HandleFunc("GET /keys", func(w http.ResponseWriter, _ *http.Request) {
		p.json(w, jose.JSONWebKeySet{Keys: []jose.JSONWebKey{{Key: key.Public(), KeyID: "one", Algorithm: "ES256", Use: "sig"}}})
	})
	mux.HandleFunc("GET /authorize", p.authorize)
	mux.HandleFunc("POST /token", p.exchange)
	p.srv = httptest.NewServer(mux)
	p.issuer = strings.Replace(p.srv.URL, "127.0.0.1", "localhost", 1) // for a browser it is another site than the console
	t.Cleanup(p.srv.Close)
	return p
}

func (p *idp) json(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(w).Encode(v); err != nil {
		p.t.Error(err)
	}
}

func (p *idp) plays() script {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.script
}

func (p *idp) play(s script) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.script = s
}

func (p *idp) tells(secret string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.told = append(p.told, secret)
	return secret
}

func (p *idp) authorize(w http.ResponseWriter, r *http.Request) {
	q, s := r.URL.Query(), p.plays()
	if q.Get("client_id") != idpClient || q.Get("response_type") != "code" || !slices.Contains(strings.Fields(q.Get("scope")), "openid") || q.Get("code_challenge_method") != "S256" ||
		len(q.Get("code_challenge")) != 43 || len(q.Get("state")) < 40 || len(q.Get("nonce")) < 40 {
		http.Error(w, "not a right request: "+q.Encode(), http.StatusBadRequest)
		return
	}
	code := p.tells(rand.Text())
	p.mu.Lock()
	p.codes[code], p.asked = q, q
	p.mu.Unlock()
	back := url.Values{"code": {code}, "state": {q.Get("state")}}
	if s.refuse != nil {
		back = maps.Clone(s.refuse)
		back.Set("state", q.Get("state"))
	}
	if s.back != nil {
		s.back(back)
	}
	http.Redirect(w, r, q.Get("redirect_uri")+"?"+back.Encode(), http.StatusFound)
}

func (p *idp) exchange(w http.ResponseWriter, r *http.Request) {
	id, secret, basic := r.BasicAuth()
	if !basic {
		id, secret = r.PostFormValue("client_id"), r.PostFormValue("client_secret")
	}
	code := r.PostFormValue("code")
	p.mu.Lock()
	asked, ok := p.codes[code]
	delete(p.codes, code)
	p.mu.Unlock()
	sum := sha256.Sum256([]byte(p.tells(r.PostFormValue("code_verifier"))))
	if id != idpClient || secret != idpSecret || !ok || r.PostFormValue("redirect_uri") != asked.Get("redirect_uri") ||
		base64.RawURLEncoding.EncodeToString(sum[:]) != asked.Get("code_challenge") {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusBadRequest)
		_, _ = w.Write([]byte(`{"error":"invalid_grant","error_description":"the code ` + code + ` is no good"}`)) // the caller may have gone
		return
	}
	s := p.plays()
	now := time.Now()
	claims := map[string]any{"iss": p.issuer, "aud": idpClient, "sub": "u-1", "nonce": asked.Get("nonce"), "iat": now.Unix(), "exp": now.Add(time.Hour).Unix(),
		"email": "ann@example.com", "email_verified": true, "groups": []string{"everybody", "ops"}}
	for name, v := range s.claims {
		if claims[name] = v; v == nil {
			delete(claims, name)
		}
	}
	raw, err := json.Marshal(claims)
	if err != nil {
		p.t.Error(err)
	}
	if s.sign == nil {
		s.sign = func(b []byte) string { return p.jws(p.key, jose.ES256, "one", b) }
	}
	token := p.tells(s.sign(raw))
	if s.token != nil {
		s.token(w, token)
		return
	}
	p.json(w, map[string]any{"access_token": p.tells("at-" + rand.Text()), "token_type": "Bearer", "expires_in": 3600, "id_token": token})
}

// jws signs a token.
func (p *idp) jws(key crypto.PrivateKey, alg jose.SignatureAlgorithm, kid string, payload []byte) string {
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: alg, Key: jose.JSONWebKey{Key: key, KeyID: kid}}, nil)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	signed, err := signer.Sign(payload)
	if err != nil {
		p.t.Error(err)
		return ""
	}
	out, err := signed.CompactSerialize()
	if err != nil {
		p.t.Error(err)
	}
	return out
}

// login makes a site let people in whom this provider vouches for.
func (p *idp) login(rules ...string) func(*console.Options) {
	return func(o *console.Options) {
		o.OIDC = &console.OIDC{Issuer: p.issuer, ClientID: idpClient, ClientSecret: idpSecret, Scopes: []string{"email", "groups"}, Lasts: 8 * time.Hour}
		for _, text := range rules {
			r, err := console.ParseRule(text)
			if err != nil {
				p.t.Fatal(err)
			}
			o.OIDC.Rules = append(o.OIDC.Rules, r)
		}
	}
}
